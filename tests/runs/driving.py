"""Driving a supervisor through a script, and what came of it."""

from __future__ import annotations

from typing import Any, Self, TypeVar

import monitor
from monitor.messages import AssistantMessage, Text, UserMessage
from monitor.testing import FakeClock, ScriptedModel

E = TypeVar("E")

Reason = monitor.TerminateReason
SENTENCE = "I will now check the configuration file again to be sure. "


class Drive:
    """One run of a scripted model, on a clock that stands still unless the test moves it."""

    def __init__(self, *answers: Any, task: str | UserMessage = "do it", model: Any = None, **options: Any) -> None:
        self.model: Any = model if model is not None else ScriptedModel(*answers)
        self.clock: FakeClock = options.setdefault("clock", FakeClock())
        self.supervisor = monitor.Supervisor(self.model, **options)
        self.run = self.supervisor.stream(task, run_id="driven")
        self.events: list[monitor.events.Event] = []

    async def go(self) -> Self:
        async with self.run as run:
            async for event in run:
                self.events.append(event)
        assert [type(event) for event in self.events].count(monitor.events.RunTerminated) == 1
        assert self.events[-1] == monitor.events.RunTerminated(self.events[-1].at_s, self.run.outcome)
        assert self.clock.pending == 0
        return self

    @property
    def outcome(self) -> monitor.Outcome:
        return self.run.outcome

    @property
    def requests(self) -> list[monitor.models.ModelRequest]:
        requests: list[monitor.models.ModelRequest] = self.model.requests
        return requests

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def kinds(self, *kinds: type[Any]) -> list[str]:
        """The trail of events of these kinds, by name."""
        return [type(event).__name__ for event in self.events if isinstance(event, kinds)]

    def told(self, number: int) -> str:
        """The user message at the end of a request."""
        return text_of_user(self.requests[number].messages[-1])

    def offered(self, number: int) -> list[str]:
        """The tools of a request."""
        return [spec.name for spec in self.requests[number].tools]

    def results(self, number: int = -1) -> list[monitor.chunks.ToolResult]:
        """The results of the calls in an assistant message of the history."""
        replies = [message for message in self.run.history if isinstance(message, AssistantMessage)]
        return list(replies[number].results)


async def drive(*answers: Any, **options: Any) -> Drive:
    return await Drive(*answers, **options).go()


def text_of_user(message: object) -> str:
    assert isinstance(message, UserMessage)
    return "".join(part.text for part in message.content if isinstance(part, Text))


async def look(q: str) -> str:
    """Look something up."""
    return f"found {q}"

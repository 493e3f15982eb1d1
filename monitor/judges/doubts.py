"""The steps of a run that add nothing, as far as counting can see. A judge is asked about them.

Failure answered: a judge that is only asked whether a run is stuck calls a batch a loop. Twenty
equal calls may be what the task asks for, and only who reads the task can say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from monitor._util.quoting import quoted
from monitor.chunks import Chunk, ToolResult, TurnFinished
from monitor.outcome import Turn
from monitor.reasons import FinishReason

CALLS_KEPT = 64
"""The newest calls whose turns are known: more steps than are listed."""


class StepWeigher(Protocol):
    """Knows which steps add nothing: `monitor.detectors.StateNovelty`."""

    @property
    def idle_steps(self) -> Mapping[int, str]:
        """The newest steps without news: by the index of the call, what each was, in words."""
        ...

    def observe(self, chunk: Chunk, /) -> object:
        """Take in a call, the end of a turn, or a result."""
        ...

    def request(self, text: str, /) -> None:
        """Take in the user's request."""
        ...


class Doubts:
    """Collects the steps without news, since the evidence of a loop was last 0."""

    __slots__ = ("_asked", "_calls", "_weigher")

    def __init__(self, weigher: StepWeigher, task: str | None = None) -> None:
        """`weigher`: a new one. `task`: the user's request. `None`: unknown."""
        self._weigher = weigher
        self._asked: dict[int, tuple[int, str]] = {}
        """The turn and the tool of a call, by its index."""
        self._calls = 0
        if task:
            weigher.request(task)

    def request(self, text: str) -> None:
        """The user asks for something more."""
        self._weigher.request(text)

    def add_turn(self, turn: Turn) -> None:
        """Add a turn that has ended."""
        for call in turn.tool_calls:
            self._weigher.observe(call)
            self._asked[self._calls] = turn.number, call.name
            self._calls += 1
            if len(self._asked) > CALLS_KEPT:
                del self._asked[next(iter(self._asked))]
        self._weigher.observe(TurnFinished(FinishReason.DONE))

    def add_result(self, result: ToolResult) -> None:
        """Add the result of a call."""
        self._weigher.observe(result)

    def render(self) -> str:
        """A line for each step without news, the oldest first. Empty: there is none."""
        steps = [(self._asked[at], words) for at, words in self._weigher.idle_steps.items() if at in self._asked]
        return "\n".join(f"turn {turn}: {quoted(tool)}: {words}" for (turn, tool), words in steps)

"""Captures the events of runs, for the assertions of a test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, overload

from monitor.errors import ConfigError
from monitor.events import (
    ChunkReceived,
    Event,
    FirstChunk,
    RunTerminated,
    StopDecided,
    StreamClosed,
    ToolCallChanged,
    TurnEnded,
)
from monitor.outcome import Outcome
from monitor.sinks.base import listening
from monitor.sinks.lines import LINE_CHARS, line_of

E = TypeVar("E", bound=Event)

_LEFT_OUT = (ChunkReceived, FirstChunk, StopDecided, StreamClosed, ToolCallChanged)
"""Events that a summary omits: details of timing, and facts that other events repeat."""


class CapturedEvents(Sequence[Event]):
    """The events so far, as a sequence. Also a sink: `sinks=[CapturedEvents()]`."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def emit(self, event: Event) -> None:
        """Keep `event` for the test."""
        self._events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """The events of one type, in order: `events.of(monitor.events.Nudged)`."""
        return [event for event in self._events if isinstance(event, kind)]

    def summary(self, *, chars: int | None = LINE_CHARS) -> list[str]:
        """The events, one line each: turns, texts, calls, results, nudges, outputs, the end.

        The lines have no times, so a scripted run gives the same lines each time. Lines are cut to
        `chars` characters.
        """
        return [
            line_of(event, chars=chars)
            for event in self._events
            if not isinstance(event, _LEFT_OUT) and not _only_called(event)
        ]

    @property
    def outcomes(self) -> list[Outcome]:
        """How the runs ended, in the order in which they did. A nested run ends before the run that
        called it.
        """
        return [event.outcome for event in self.of(RunTerminated)]

    @property
    def outcome(self) -> Outcome:
        """How the only run ended. `ConfigError`: none has, or several have."""
        outcomes = self.outcomes
        if len(outcomes) != 1:
            raise ConfigError(f"{len(outcomes)} runs have ended while events were captured; look at `outcomes`")
        return outcomes[0]

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        return self._events[index]

    def __len__(self) -> int:
        return len(self._events)

    def __repr__(self) -> str:
        return "\n".join(["<CapturedEvents", *(f"  {line}" for line in self.summary()), ">"])


def _only_called(event: Event) -> bool:
    """Whether the event is a turn without text, whose calls have their own lines."""
    return isinstance(event, TurnEnded) and bool(event.turn.tool_calls) and not event.turn.text.strip()


@contextmanager
def capture_events() -> Iterator[CapturedEvents]:
    """Collect the events of every run that is made within the block, however deep in the code under
    test.

    with capture_events() as events:
        await my_agent("task")  # makes a Supervisor, a Guard or a watch() somewhere
    assert events.outcome.reason == "goal"
    assert "call search(limit=3)" in events.summary()

    Runs of tasks and worker threads that are started in the block count; those of other tasks do
    not.
    """
    events = CapturedEvents()
    with listening(events):
        yield events

"""A log of events, as `JsonlSink` and `agent-monitor run --log` write it, as recorded runs. Runs
that were appended follow each other.

The log has the model's answers, calls and results. It has neither the task nor the thinking, and
its runs are called `run-1`, `run-2` and so on, in the order in which they begin. Each line says
whose it is, so the events of nested runs may stand among those of their callers. The lines of older
logs do not say that; their runs follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from monitor.errors import AdapterError
from monitor.events import RunStarted, RunTerminated, ToolFinished, TurnEnded, event_codec, identity_in
from monitor.transcripts.base import RecordedCall, RecordedMessage, RecordedResult, RecordedRun

_READ = ("run_started", "turn_ended", "tool_finished", "run_terminated")
"""Events with the model's actions. Other lines only have to be events."""


def is_event(record: Mapping[str, Any]) -> bool:
    """`record` is a line of such a log."""
    tag = record.get("type")
    return isinstance(tag, str) and tag in event_codec.tags and isinstance(record.get("at_s"), int | float)


@dataclass(slots=True)
class LoggedRun:
    """A run that was read from a log of events."""

    run: RecordedRun
    parent: str | None = None
    """The name of the run that called it."""


@dataclass(slots=True)
class _OpenLoggedRun:
    name: str
    parent: str | None
    model: str
    messages: list[RecordedMessage] = field(default_factory=list)

    def logged(self) -> LoggedRun:
        return LoggedRun(RecordedRun(self.name, tuple(self.messages), model=self.model), self.parent)


class EventLog:
    """Collects events, and returns each run when it is over."""

    def __init__(self) -> None:
        self._runs = 0
        self._open: dict[str | None, _OpenLoggedRun] = {}
        """The open runs, by their ids. `None`: the run of a log that has no ids."""
        self._names: dict[str, str] = {}

    def add(self, record: Mapping[str, Any]) -> LoggedRun | None:
        """Add the next event. Returns the run that ends with it, or the run before it that had no
        ending.

        Raises `AdapterError` for anything but an event of this version, and for an incomplete
        answer.
        """
        if record["type"] not in _READ:
            return None
        try:
            event, told = event_codec.from_dict(record), identity_in(record)
        except ValueError as error:
            raise AdapterError(f"not a readable event: {error}") from None
        id = told[0].run if told is not None else None
        if isinstance(event, RunStarted):
            unfinished = self._open.pop(id, None)
            self._runs += 1
            name = f"run-{self._runs}"
            parent, model = (told[0].parent, told[0].model) if told is not None else (None, None)
            self._open[id] = _OpenLoggedRun(name, self._names.get(parent or ""), model or "")
            if id is not None:
                self._names[id] = name
            return unfinished.logged() if unfinished is not None else None
        run = self._open.get(id)
        if run is None:
            raise AdapterError(f"{record['type']}, and no run has started before it")
        if isinstance(event, RunTerminated):
            del self._open[id]
            return run.logged()
        if isinstance(event, ToolFinished):
            result = event.result
            run.messages.append(
                RecordedMessage("tool", tool_results=(RecordedResult(result.name, result.text, result.is_error),))
            )
        elif isinstance(event, TurnEnded):
            turn = event.turn
            calls = tuple(RecordedCall(call.name, call.arguments) for call in turn.tool_calls)
            run.messages.append(RecordedMessage("assistant", turn.text, calls))
            if turn.text_chars > len(turn.text):
                raise AdapterError(
                    f"the answer of turn {turn.number} is cut here: {len(turn.text):,} of {turn.text_chars:,}"
                    " characters"
                )
        return None

    def end(self) -> Iterator[LoggedRun]:
        """End the log. Gives the runs that are still open."""
        left, self._open = self._open, {}
        for run in left.values():
            yield run.logged()

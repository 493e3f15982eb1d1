"""A log of events, as `JsonlSink` and `agent-monitor run --log` write it, as recorded runs. Runs
that were appended follow each other.

The log has the model's answers, calls and results. It has neither the task nor the thinking, and no
names: its runs are called `run-1`, `run-2` and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitor.errors import AdapterError
from monitor.events import RunStarted, RunTerminated, ToolFinished, TurnEnded, event_codec
from monitor.transcripts.base import RecordedCall, RecordedMessage, RecordedResult, RecordedRun

_READ = ("run_started", "turn_ended", "tool_finished", "run_terminated")
"""Events with the model's actions. Other lines only have to be events."""


def is_event(record: Mapping[str, Any]) -> bool:
    """`record` is a line of such a log."""
    tag = record.get("type")
    return isinstance(tag, str) and tag in event_codec.tags and isinstance(record.get("at_s"), int | float)


class EventLog:
    """Collects events, and returns each run when it is over."""

    def __init__(self) -> None:
        self._runs = 0
        self._messages: list[RecordedMessage] | None = None

    def add(self, record: Mapping[str, Any]) -> RecordedRun | None:
        """Add the next event. Returns the run that ends with it, or the run before it that had no
        ending.

        Raises `AdapterError` for anything but an event of this version, and for an incomplete
        answer.
        """
        if record["type"] not in _READ:
            return None
        try:
            event = event_codec.from_dict(record)
        except ValueError as error:
            raise AdapterError(f"not a readable event: {error}") from None
        if isinstance(event, RunStarted):
            unfinished, self._messages = self.end(), []
            return unfinished
        if self._messages is None:
            raise AdapterError(f"{record['type']}, and no run has started before it")
        if isinstance(event, RunTerminated):
            return self.end()
        if isinstance(event, ToolFinished):
            result = event.result
            self._messages.append(
                RecordedMessage("tool", tool_results=(RecordedResult(result.name, result.text, result.is_error),))
            )
        elif isinstance(event, TurnEnded):
            turn = event.turn
            calls = tuple(RecordedCall(call.name, call.arguments) for call in turn.tool_calls)
            self._messages.append(RecordedMessage("assistant", turn.text, calls))
            if turn.text_chars > len(turn.text):
                raise AdapterError(
                    f"the answer of turn {turn.number} is cut here: {len(turn.text):,} of {turn.text_chars:,}"
                    " characters"
                )
        return None

    def end(self) -> RecordedRun | None:
        """End the log. Returns the run that is still open."""
        if self._messages is None:
            return None
        messages, self._messages = tuple(self._messages), None
        self._runs += 1
        return RecordedRun(f"run-{self._runs}", messages)

"""Events on their way to the terminal: in order, at once, as a transcript with a card at its end,
or as JSON lines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from rich.console import Console
from rich.text import Text

import monitor
from monitor.cli import _view
from monitor.cli._outcome import count, failed, results, style, used, why
from monitor.cli._transcript import Transcript
from monitor.events import (
    ChunkReceived,
    DetectionRaised,
    Event,
    LimitWarning,
    Paused,
    Resumed,
    RetryScheduled,
    StopDecided,
    ToolFinished,
    ToolStarted,
    event_codec,
)

_WAITS = (ToolStarted, ToolFinished, RetryScheduled, Paused, Resumed)
"""With these a wait begins, or goes on."""
_FINDINGS = (DetectionRaised, LimitWarning, StopDecided)
"""The run hands these out before the piece of the answer in which they were found."""
TASK_LINES = 8
"""A task from stdin may be a whole file; its begin says which."""


class Screen(Protocol):
    """What shows a run."""

    def begin(self, supervisor: monitor.Supervisor, task: str) -> None:
        """The run is about to begin."""
        ...

    def emit(self, event: Event) -> None:
        """The next event, in order."""
        ...

    def end(self, outcome: monitor.Outcome) -> None:
        """It is over."""
        ...


class Shown:
    """Brings events to the screen, in order and at once.

    The run hands out its events, pieces of the answer among them, when it is asked for the next
    one. While the run waits, nobody asks. As a sink, `Shown` hears of a wait when the wait begins,
    and shows all events before it.

    If nobody reads the output any more (`| head`), the run has no purpose either.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._heard: deque[Event] = deque()
        self._found: deque[Event] = deque()  # in a piece of the answer that comes next
        self.failure: OSError | None = None
        """Why what was said could not be shown."""
        self.abort: Callable[[str], None] = lambda _: None

    def emit(self, event: Event) -> None:
        """It has happened."""
        self._heard.append(event)
        if isinstance(event, _WAITS):
            self.flush()

    def handed_out(self, event: Event) -> None:
        """Its place among the pieces of the answer is here."""
        if isinstance(event, ChunkReceived):
            self._show(event)
        elif self._heard and self._heard[0] is event:
            self._found.append(self._heard.popleft())
            if isinstance(event, _FINDINGS):
                return
        self._show_found()

    def _show_found(self) -> None:
        while self._found:
            self._show(self._found.popleft())

    def flush(self) -> None:
        """Show all that has happened."""
        self._found.extend(self._heard)
        self._heard.clear()
        self._show_found()

    def _show(self, event: Event) -> None:
        if self.failure is None:
            try:
                self._screen.emit(event)
            except OSError as error:
                self.failure = error
                self.abort("what is printed cannot be written")
            if _view.nobody_reads():
                self.abort("nobody reads what is printed")


class JsonLines:
    """Events as JSON lines; the last one holds the outcome."""

    def __init__(self, *, chunks: bool) -> None:
        self._chunks = chunks

    def begin(self, supervisor: monitor.Supervisor, task: str) -> None:
        """The first event says what there is to say."""

    def emit(self, event: Event) -> None:
        """One line."""
        if self._chunks or not isinstance(event, ChunkReceived):
            _view.write_json(event_codec.dumps(event))

    def end(self, outcome: monitor.Outcome) -> None:
        """The last event has said it."""


class ForPeople:
    """A transcript, and a card at its end."""

    def __init__(self, console: Console, *, verbose: bool, priced: bool, demo: bool = False) -> None:
        self._console = console
        self._command = f"agent-monitor run{' --demo' if demo else ''}"
        self._priced = priced
        self._transcript = Transcript(console, verbose=verbose)

    def begin(self, supervisor: monitor.Supervisor, task: str) -> None:
        """With what, and what for."""
        parts = [_view.on_one_line(supervisor.model.name)]
        if supervisor.tools:
            parts.append(f"tools {', '.join(supervisor.tools)}")
        if supervisor.outputs is not None:
            parts.append(f"outputs {', '.join(supervisor.outputs.names)}")
        self._console.print(
            Text.assemble((self._command, "bold"), f": {'; '.join(parts)}"), width=_view.columns(self._console)
        )
        first, others = task.strip().splitlines()[:TASK_LINES], len(task.strip().splitlines()) - TASK_LINES
        _view.said_by_user(
            self._console, "\n".join([*first, *([f"(and {count(others, 'more line')})"] if others > 0 else [])])
        )

    def emit(self, event: Event) -> None:
        """One line, or some words."""
        self._transcript.emit(event)

    def end(self, outcome: monitor.Outcome) -> None:
        """The card."""
        self._transcript.end(outcome)
        rows = [
            *why(outcome),
            *results(outcome),
            ("used", used(outcome, self._transcript.tool_calls, priced=self._priced)),
        ]
        _view.card(self._console, _title(outcome), rows, style=style(outcome))


def _title(outcome: monitor.Outcome) -> str:
    if outcome.ok:
        return "goal reached"
    if outcome.reason is monitor.TerminateReason.TERMINATED:
        return "given up by the model"
    return f"{'failed' if failed(outcome) else 'stopped'}: {outcome.source}"

"""Shows events on the terminal in order and at once: as a transcript with a card at its end, or as
JSON lines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
"""Events at which a wait begins or goes on."""
_FINDINGS = (DetectionRaised, LimitWarning, StopDecided)
"""The run yields these events before the piece of the answer that caused them."""
TASK_LINES = 8
"""How many lines of a task are shown: a task from stdin may be a whole file."""


@dataclass(slots=True, frozen=True)
class Heading:
    """The lines above a run."""

    command: str
    model: str | None
    """`None`: it is not known any more."""
    tools: Sequence[str]
    outputs: Sequence[str]
    task: str


class Screen(Protocol):
    """Shows a run."""

    def begin(self, heading: Heading) -> None:
        """The run is about to begin."""
        ...

    def emit(self, event: Event) -> None:
        """The next event, in order."""
        ...

    def end(self, outcome: monitor.Outcome) -> None:
        """The run is over."""
        ...


class Shown:
    """Brings events to the screen, in order and at once.

    The run yields its events, with the pieces of the answer, on request. While the run waits, no
    event is requested. As a sink, `Shown` gets the event that begins a wait at once, and then shows
    all events before it.

    If the reader of the output has gone (`| head`), the run is aborted.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._heard: deque[Event] = deque()
        self._found: deque[Event] = deque()  # caused by the piece of the answer that comes next
        self.failure: OSError | None = None
        """The error that prevented output."""
        self.abort: Callable[[str], None] = lambda _: None

    def emit(self, event: Event) -> None:
        """Keep an event that has happened, and show it if a wait begins."""
        self._heard.append(event)
        if isinstance(event, _WAITS):
            self.flush()

    def handed_out(self, event: Event) -> None:
        """Show an event in its place among the pieces of the answer."""
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

    def end(self, outcome: monitor.Outcome) -> None:
        """Show the end of the run."""
        self._screen.end(outcome)

    def flush(self) -> None:
        """Show all events that have happened."""
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

    def begin(self, heading: Heading) -> None:
        """Does nothing: the first event has all facts."""

    def emit(self, event: Event) -> None:
        """One line."""
        if self._chunks or not isinstance(event, ChunkReceived):
            _view.write_json(event_codec.dumps(event))

    def end(self, outcome: monitor.Outcome) -> None:
        """Does nothing: the last event has all facts."""


class ForPeople:
    """A transcript, and a card at its end."""

    def __init__(self, console: Console, *, verbose: bool, priced: bool, session: str | None = None) -> None:
        """`session`: the name of the session that the run is stored in."""
        self._console = console
        self._priced = priced
        self._session = session
        self._transcript = Transcript(console, verbose=verbose)

    def begin(self, heading: Heading) -> None:
        """Print the model, the parts and the task."""
        parts = [_view.on_one_line(heading.model)] if heading.model is not None else []
        if heading.tools:
            parts.append(f"tools {', '.join(heading.tools)}")
        if heading.outputs:
            parts.append(f"outputs {', '.join(heading.outputs)}")
        said = Text.assemble((heading.command, "bold"), f"{': ' if parts else ''}{'; '.join(parts)}")
        self._console.print(said, width=_view.columns(self._console))
        lines = heading.task.strip().splitlines()
        first, others = lines[:TASK_LINES], len(lines) - TASK_LINES
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
            *self._stored(outcome),
        ]
        _view.card(self._console, _title(outcome), rows, style=style(outcome))

    def _stored(self, outcome: monitor.Outcome) -> list[tuple[str, str]]:
        """Where the run is stored, and how it goes on."""
        if self._session is None:
            return []
        ways = "" if outcome.ok else f"; agent-monitor resume {self._session} goes on with it"
        return [("session", f"{_view.on_one_line(self._session)}{_view.on_one_line(ways)}")]


def screen_of(*, as_json: bool, verbose: bool, priced: bool, session: str | None = None) -> Screen:
    """The screen of a run: JSON lines, or a transcript."""
    if as_json:
        return JsonLines(chunks=verbose)
    return ForPeople(_view.stdout(), verbose=verbose, priced=priced, session=session)


def _title(outcome: monitor.Outcome) -> str:
    if outcome.ok:
        return "goal reached"
    if outcome.reason is monitor.TerminateReason.TERMINATED:
        return "given up by the model"
    if outcome.reason is monitor.TerminateReason.PAUSED:
        return "waits for an approval"
    return f"{'failed' if failed(outcome) else 'stopped'}: {outcome.source}"

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
from monitor import events
from monitor.chunks import Price
from monitor.cli.render import output
from monitor.events import ChunkReceived, Envelope, envelope_codec
from monitor.view import LiveView
from monitor.view.status import InputLine, count

_WAITS = (
    *(events.ToolStarted, events.ToolFinished, events.RetryScheduled, events.ApprovalRequested),
    *(events.ApprovalAnswered, events.Paused, events.Resumed),
)
"""Events at which a wait begins or goes on."""
_FINDINGS = (events.DetectionRaised, events.LimitWarning, events.StopDecided)
"""The run yields these events before the piece of the answer that caused them."""
TASK_LINES = 8
"""How many lines of a task are shown: a task from stdin may be a whole file."""


@dataclass(slots=True, frozen=True)
class RunHeading:
    """The lines above a run."""

    command: str
    model: str | None
    """`None`: it is not known any more."""
    tools: Sequence[str]
    outputs: Sequence[str]
    task: str


class RunScreen(Protocol):
    """A display for the events of a run."""

    line: InputLine | None
    """The line in which a person writes to the run. `None`: nobody can."""

    def begin(self, heading: RunHeading) -> None:
        """Show the lines above the run, which is about to begin."""
        ...

    def receive(self, envelope: Envelope) -> None:
        """Show the next event of the run."""
        ...

    def close(self) -> None:
        """Show nothing more, and leave the terminal as it was."""
        ...


class EventFeed:
    """Brings events to the screen, in order and at once.

    The run yields its events, with the pieces of the answer, on request. While the run waits, no
    event is requested. As a sink, `EventFeed` gets the event that begins a wait at once, and then
    all events before it.

    If the reader of the output has gone (`| head`), the run is aborted.
    """

    def __init__(self, screen: RunScreen) -> None:
        self._screen = screen
        self._heard: deque[Envelope] = deque()
        self._found: deque[Envelope] = deque()  # caused by the piece of the answer that comes next
        self.failure: OSError | None = None
        """The error that prevented output."""
        self.abort: Callable[[str], None] = lambda _: None

    def receive(self, envelope: Envelope) -> None:
        """Keep an event that has happened, and show it if a wait begins."""
        self._heard.append(envelope)
        if isinstance(envelope.event, _WAITS):
            self.flush()

    def handed_out(self, envelope: Envelope) -> None:
        """Show an event in its place among the pieces of the answer."""
        if isinstance(envelope.event, ChunkReceived):
            self._show(envelope)
        elif self._heard and self._heard[0].event is envelope.event:
            self._found.append(self._heard.popleft())
            if isinstance(envelope.event, _FINDINGS):
                return
        self._show_found()

    def _show_found(self) -> None:
        while self._found:
            self._show(self._found.popleft())

    def flush(self) -> None:
        """Show all events that have happened."""
        self._found.extend(self._heard)
        self._heard.clear()
        self._show_found()

    @property
    def line(self) -> InputLine | None:
        """The line in which a person writes to the run. `None`: nobody can."""
        return self._screen.line

    def close(self) -> None:
        """Nothing more is shown: leave the terminal as it was."""
        self._screen.close()

    def _show(self, envelope: Envelope) -> None:
        if self.failure is None:
            try:
                self._screen.receive(envelope)
            except OSError as error:
                self.failure = error
                self.abort("what is printed cannot be written")
            if output.nobody_reads():
                self.abort("nobody reads what is printed")


class JsonScreen:
    """Events as JSON lines; the last one holds the outcome."""

    line: InputLine | None = None

    def __init__(self, *, chunks: bool) -> None:
        self._chunks = chunks

    def begin(self, heading: RunHeading) -> None:
        """Does nothing: the first event has all facts."""

    def receive(self, envelope: Envelope) -> None:
        """Print the event as one line of JSON."""
        if self._chunks or not isinstance(envelope.event, ChunkReceived):
            output.write_json(envelope_codec.dumps(envelope))

    def close(self) -> None:
        """Does nothing: the last event has all facts."""


class TerminalScreen:
    """The task, and a `LiveView` of the run."""

    def __init__(
        self, console: Console, *, verbose: bool, price: Price | None, session: str | None = None, types: bool = False
    ) -> None:
        """`price`: of the model. `session`: the name of the session that the run is stored in.
        `types`: somebody can type.
        """
        self._console = console
        self._session = session
        self.line: InputLine | None = InputLine() if console.is_terminal and types else None
        self._view = LiveView(console, verbose=verbose, price=price, beside=self._stored, line=self.line)

    def begin(self, heading: RunHeading) -> None:
        """Print the model, the parts and the task."""
        parts = [output.on_one_line(heading.model)] if heading.model is not None else []
        if heading.tools:
            parts.append(f"tools {', '.join(heading.tools)}")
        if heading.outputs:
            parts.append(f"outputs {', '.join(heading.outputs)}")
        said = Text.assemble((heading.command, "bold"), f"{': ' if parts else ''}{'; '.join(parts)}")
        self._console.print(said, width=output.columns(self._console))
        lines = heading.task.strip().splitlines()
        first, others = lines[:TASK_LINES], len(lines) - TASK_LINES
        output.said_by_user(
            self._console, "\n".join([*first, *([f"(and {count(others, 'more line')})"] if others > 0 else [])])
        )

    def receive(self, envelope: Envelope) -> None:
        """One line, some words, or the card at the end."""
        self._view.receive(envelope)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._view.close()

    def _stored(self, outcome: monitor.Outcome) -> list[tuple[str, str]]:
        """Where the run is stored, and how it goes on."""
        if self._session is None:
            return []
        ways = "" if outcome.ok else f"; agent-monitor sessions resume {self._session} goes on with it"
        return [("session", f"{output.on_one_line(self._session)}{output.on_one_line(ways)}")]


def screen_of(
    *, as_json: bool, verbose: bool, price: Price | None, session: str | None = None, types: bool = False
) -> RunScreen:
    """The screen of a run: JSON lines, or a live view. `types`: somebody can type."""
    if as_json:
        return JsonScreen(chunks=verbose)
    return TerminalScreen(output.stdout(), verbose=verbose, price=price, session=session, types=types)

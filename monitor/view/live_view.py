"""`LiveView`: runs on a terminal while they go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Self

from monitor.errors import MissingExtra

try:
    from rich.console import Console, Group
    from rich.errors import LiveError
    from rich.live import Live
except ImportError:
    raise MissingExtra("rich", "cli") from None

from monitor.chunks import Price
from monitor.events import ApprovalAnswered, ApprovalRequested, Envelope, Paused, Resumed, RunStarted, RunTerminated
from monitor.outcome import Outcome
from monitor.view.status import InputLine, Status, results, style, title, used, why
from monitor.view.terminal import PLAIN_COLUMNS, SafeConsole, card, columns, is_unbounded
from monitor.view.transcript import Transcript

REFRESH: Final = 4
"""How often a second the lines at the bottom are drawn anew, so that time goes on."""


class LiveView:
    """A sink that shows a run and its nested runs on a terminal.

        with monitor.view.LiveView() as view:
            outcome = await monitor.Supervisor(model, sinks=[view]).run("...")

    What happens is one line each: turns, calls and results, loops, warnings, what nested runs do.
    Below that stands what goes on now: limits as bars, the runs as a tree. At the end a card says
    how the run ended and what it used. Where there is no terminal, there are only the lines and the
    card.

    A sink does not get the pieces of an answer, so an answer is shown when it is whole. To show it
    while it is written, give the view the envelopes of a run that you read:

        async with supervisor.stream("...") as run:
            async for envelope in run.envelopes():
                view.receive(envelope)

    - `console`: of `rich`; by default the standard output.
    - `verbose`: the thinking too, every event, and every line whole.
    - `live`: whether what goes on now is shown; by default where there is a terminal.
    - `price`: of the model, so that the cost is shown.
    - `beside`: more rows for the card at the end, each a name and a text.
    - `line`: a line at the bottom, in which a person writes to the run.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        verbose: bool = False,
        live: bool | None = None,
        price: Price | None = None,
        beside: Callable[[Outcome], Sequence[tuple[str, str]]] = lambda _: (),
        line: InputLine | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console = console or plain_console()
        self._shows_now = console.is_terminal and not console.is_dumb_terminal if live is None else live
        self._price = price
        self._beside = beside
        self._line = line
        self._status = Status(price=price, now=now)
        self._transcript = Transcript(console, verbose=verbose, hold=self._shows_now)
        self._live: Live | None = None
        self._waits = 0
        """People who are asked, perhaps on this terminal: nothing is drawn meanwhile."""

    def receive(self, envelope: Envelope) -> None:
        """Show the next event of a run."""
        event = envelope.event
        self._status.hear(envelope)
        if isinstance(event, ApprovalRequested | Paused):
            self._waits += 1
            self._stop()
        elif isinstance(event, ApprovalAnswered | Resumed):
            self._waits = max(0, self._waits - 1)
        elif isinstance(event, RunTerminated) and not self._status.going:
            self._stop()
        self._transcript.emit(envelope)
        if isinstance(event, RunTerminated) and envelope.parent is None:
            self._ended(event)
        elif isinstance(event, RunStarted | ApprovalAnswered | Resumed):
            self._start()

    def close(self) -> None:
        """Show nothing more of what goes on, and end the line that has begun."""
        self._stop()
        self._transcript.end_of_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ended(self, event: RunTerminated) -> None:
        outcome, calls = event.outcome, self._status.calls
        rows = [
            *why(outcome),
            *results(outcome),
            ("used", used(outcome, calls)),
            *self._beside(outcome),
        ]
        card(self._console, title(outcome), rows, style=style(outcome))

    # ------------------------------------------------------------------ what goes on now

    def _start(self) -> None:
        if self._live is not None or not self._shows_now or self._waits:
            return
        live = Live(self, console=self._console, transient=True, refresh_per_second=REFRESH)
        try:
            live.start(refresh=True)
        except LiveError:  # the program shows something of its own there
            self._shows_now = False
            self._transcript.hold(hold=False)
        else:
            self._live = live
            if self._line is not None:
                self._line.opens()

    def _stop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            if self._line is not None:
                self._line.closes()
            live.stop()

    def __rich__(self) -> Group:
        """The lines at the bottom. `rich` also calls this in a thread of its own."""
        begun = self._transcript.begun
        width, ascii_only = columns(self._console), self._console.options.ascii_only
        now = self._status.lines(width, ascii_only=ascii_only)
        typed = [self._line.shown(width)] if self._line is not None else []
        return Group(*([begun] if begun is not None else []), *now, *typed)


def plain_console() -> Console:
    """A console for the standard output."""
    console = SafeConsole(highlight=False, markup=False, emoji=False)
    if is_unbounded(console):
        console.width = PLAIN_COLUMNS
    return console

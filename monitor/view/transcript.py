"""A run on the terminal while it goes on: the model's words as they come, everything else as one
quiet line each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from monitor.chunks import ReasoningDelta, TextDelta
from monitor.events import (
    ChunkReceived,
    Envelope,
    Event,
    PlanUpdated,
    RetryScheduled,
    RunStarted,
    RunTerminated,
    StreamFailed,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from monitor.outcome import Outcome
from monitor.sinks.descriptions import DESCRIPTIONS, Severity, attempt_in_words, call_in_words, for_people
from monitor.sinks.log import line_of
from monitor.view.status import failed, name_of
from monitor.view.terminal import LiveText, columns, is_unbounded, on_one_line

_MARKS: Final[Mapping[Severity, tuple[str, str]]] = {
    "detail": ("·", "dim"),
    "note": ("·", "dim"),
    "success": ("✓", "green"),
    "retry": ("↻", "yellow"),
    "warning": ("!", "yellow"),
    "error": ("!", "red"),
    "stop": ("■", "red"),
}
"""The mark and the style of each severity."""
SLOW_S: Final = 1.0
"""The time of a tool is shown if it is at least this many seconds."""
EXCERPT: Final = 400
"""The most characters of a nested run's answer that are shown, on one line."""


class Transcript:
    """The events of an outermost run as lines, with its answers as they come. The events of nested
    runs have the name of their run before them.

    `verbose`: the thinking too, every event, and every line whole. `hold`: answers are printed in
    whole lines.
    """

    def __init__(self, console: Console, *, verbose: bool, hold: bool = False) -> None:
        self._console = console
        self._verbose = verbose
        self._answer = LiveText(console, style="", hold=hold)
        self._thinking = LiveText(console, bar="  ┆ ", style="dim italic", hold=hold)
        self._plan: list[str] = []
        self._failed = False  # the failure of the model call was shown already
        self._written = False  # pieces of this turn's answer came
        self._main: str | None = None
        """The run whose lines have no name before them."""

    def hold(self, *, hold: bool) -> None:
        """Print answers in whole lines from now on, or piece by piece."""
        self.end_of_text()
        self._answer.hold = self._thinking.hold = hold

    @property
    def begun(self) -> Text | None:
        """The line of an answer that is not whole."""
        return self._thinking.begun or self._answer.begun

    def emit(self, envelope: Envelope) -> None:
        """Show the event of `envelope` as lines."""
        event = envelope.event
        if self._main is None and envelope.parent is None and isinstance(event, RunStarted):
            self._main = envelope.run
        if envelope.run == self._main:
            self._of_main(event)
        else:
            self._of_others(name_of(envelope), event)

    # ------------------------------------------------------------------ the outermost run

    def _of_main(self, event: Event) -> None:
        self._failed = self._failed and not isinstance(event, TurnStarted)
        match event:
            case ChunkReceived(chunk=TextDelta(text=text)):
                self._thinking.end()
                self._answer.write(text)
                self._written = True
            case ChunkReceived(chunk=ReasoningDelta(text=text)):
                if self._verbose:
                    self._answer.end()
                    self._thinking.write(text)
            case ChunkReceived():
                pass
            case TurnEnded(turn=turn):
                if not self._written:
                    self._answer.write(turn.text)
                    self._answer.end()
            case RunTerminated(outcome=outcome):
                self._end(outcome)
            case TurnStarted(turn=turn, model_call=call):
                self._written = False
                self.end_of_text()
                self._console.print(Text(f"turn {turn}{f' (model call {call})' if call != turn else ''}", style="bold"))
            case RetryScheduled() if self._failed:
                self._line(*_MARKS["retry"], attempt_in_words(event))
            case PlanUpdated(plan=plan):
                self._new_plan(plan)
            case StreamFailed():
                self._failed = True
                self._of_any("", event)
            case _:
                self._of_any("", event)

    def _end(self, outcome: Outcome) -> None:
        self.end_of_text()
        self._main = None
        if not outcome.ok:
            self._line("■", "bold red", "it failed here" if failed(outcome) else "stopped here")

    # ------------------------------------------------------------------ other runs

    def _of_others(self, name: str, event: Event) -> None:
        match event:
            case RunStarted():
                self._line("●", "cyan", "begins", who=name)
            case TurnEnded(turn=turn) if turn.text.strip():
                text = " ".join(turn.text.split())
                shown = text if self._verbose or len(text) <= EXCERPT else f"{text[:EXCERPT]}…"
                self._line("│", "cyan", shown, "", who=name)
            case RunTerminated(outcome=outcome):
                mark, style = ("✓", "green") if outcome.ok else ("■", "red")
                self._line(mark, style, f"{outcome.reason.value}: {outcome.detail}", who=name)
            case ChunkReceived() | TurnStarted() | TurnEnded():
                pass
            case _:
                self._of_any(name, event)

    # ------------------------------------------------------------------ lines

    def _of_any(self, who: str, event: Event) -> None:
        """An event that looks the same in every run."""
        match event:
            case ToolStarted(call=call):
                self._line("→", "cyan", call_in_words(call), who=who)
            case ToolFinished():
                self._result(event, who)
            case _:
                severity = DESCRIPTIONS[type(event)].severity
                if severity != "detail" or self._verbose:
                    self._line(*_MARKS[severity], line_of(event, chars=None), who=who)

    def _result(self, event: ToolFinished, who: str) -> None:
        result = event.result
        text = for_people(result)
        first, *others = text.strip().splitlines() or [""]
        shown = (
            text
            if self._verbose
            else f"{first} (and {len(others)} more line{'s' if len(others) > 1 else ''})"
            if others
            else first
        )
        took = f"  ({event.after_s:.1f} s)" if event.after_s >= SLOW_S else ""
        style = "red" if result.is_error else "dim"
        self._line("←", "red" if result.is_error else "cyan", f"{shown}{took}", style, who=who)

    def _new_plan(self, plan: str) -> None:
        lines = plan.splitlines()
        for line in lines:
            if line not in self._plan:
                self._line("·", "cyan", line)
        self._plan = lines

    def _line(self, mark: str, mark_style: str, text: str, style: str = "dim", *, who: str = "") -> None:
        self.end_of_text()
        said = Text.assemble((f"{who} ", "bold") if who else "", (on_one_line(" ".join(text.split())), style))
        if self._verbose and self._console.is_terminal:
            whole = Table.grid(padding=(0, 1))
            whole.add_row(Text(f"  {mark}", mark_style), said)
            self._console.print(whole, width=columns(self._console))
            return
        line = Text.assemble("  ", (f"{mark} ", mark_style), said)
        if self._verbose or is_unbounded(self._console):
            self._console.print(line, soft_wrap=True)
        else:
            self._console.print(line, no_wrap=True, overflow="ellipsis", width=columns(self._console))

    def end_of_text(self) -> None:
        """End the line of text that has begun."""
        self._answer.end()
        self._thinking.end()

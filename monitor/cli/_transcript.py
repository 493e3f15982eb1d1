"""A supervised run on the terminal while it goes on: the model's words as they come, everything
else as one quiet line each.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

import monitor
from monitor.chunks import ReasoningDelta, TextDelta
from monitor.cli import _view
from monitor.cli._outcome import failed
from monitor.events import (
    AbortRequested,
    BudgetLost,
    ChunkReceived,
    CompactionFailed,
    CompactionFinished,
    CompactionSkipped,
    CompactionStarted,
    ContextFull,
    ContextNearlyFull,
    DetectionRaised,
    Event,
    HistoryReduced,
    HistoryRepaired,
    LastTurnStarted,
    LimitWarning,
    Nudged,
    OutputEmitted,
    Paused,
    PlanUpdated,
    Resumed,
    RetryScheduled,
    RunTerminated,
    SinkFailed,
    StreamFailed,
    ToolFinished,
    ToolStarted,
    ToolWithdrawn,
    TurnEnded,
    TurnStarted,
    WindowWarning,
)
from monitor.sinks.lines import call_in_words, line_of

_MARKS: Mapping[type[Event], tuple[str, str]] = {
    OutputEmitted: ("✓", "green"),
    Nudged: ("!", "yellow"),
    ToolWithdrawn: ("!", "yellow"),
    DetectionRaised: ("!", "yellow"),
    LimitWarning: ("!", "yellow"),
    WindowWarning: ("!", "yellow"),
    BudgetLost: ("!", "yellow"),
    ContextFull: ("!", "yellow"),
    ContextNearlyFull: ("!", "yellow"),
    HistoryReduced: ("·", "dim"),
    CompactionStarted: ("·", "dim"),
    CompactionFinished: ("✓", "green"),
    CompactionSkipped: ("·", "dim"),
    CompactionFailed: ("!", "yellow"),
    HistoryRepaired: ("!", "yellow"),
    LastTurnStarted: ("!", "yellow"),
    RetryScheduled: ("↻", "yellow"),
    AbortRequested: ("■", "red"),
    SinkFailed: ("!", "red"),
    Paused: ("·", "dim"),
    Resumed: ("·", "dim"),
}
"""The marks and styles of other events. An event that is not listed is shown only with
`--verbose`."""
SLOW_S = 1.0
"""A tool that takes longer has its time shown."""


class Transcript:
    """`verbose`: the thinking too, every event, and every line whole."""

    def __init__(self, console: Console, *, verbose: bool) -> None:
        self.tool_calls = 0
        self._console = console
        self._verbose = verbose
        self._answer = _view.LiveText(console, style="")
        self._thinking = _view.LiveText(console, bar="  ┆ ", style="dim italic")
        self._plan: list[str] = []
        self._failed = False  # the failure of the model call was shown already

    def emit(self, event: Event) -> None:
        """Show the next event."""
        self._failed = self._failed and not isinstance(event, TurnStarted)
        match event:
            case ChunkReceived(chunk=TextDelta(text=text)):
                self._thinking.end()
                self._answer.write(text)
            case ChunkReceived(chunk=ReasoningDelta(text=text)):
                if self._verbose:
                    self._answer.end()
                    self._thinking.write(text)
            case ChunkReceived() | TurnEnded() | RunTerminated():
                pass
            case TurnStarted(turn=turn, model_call=call):
                self._end_of_text()
                self._console.print(Text(f"turn {turn}{f' (model call {call})' if call != turn else ''}", style="bold"))
            case ToolStarted(call=call):
                self.tool_calls += 1
                self._line("→", "cyan", call_in_words(call))
            case ToolFinished():
                self._result(event)
            case RetryScheduled(attempt=attempt, after_s=after_s) if self._failed:
                self._line("↻", "yellow", f"attempt {attempt} {f'in {after_s:g} s' if after_s else 'at once'}")
            case PlanUpdated(plan=plan):
                self._new_plan(plan)
            case StreamFailed():
                self._failed = True
                self._line("■", "red", line_of(event, chars=None))
            case _ if type(event) in _MARKS or self._verbose:
                mark, style = _MARKS.get(type(event), ("·", "dim"))
                self._line(mark, style, line_of(event, chars=None))

    def end(self, outcome: monitor.Outcome) -> None:
        """The run is over."""
        self._end_of_text()
        if not outcome.ok:
            self._line("■", "bold red", "it failed here" if failed(outcome) else "stopped here")

    def _result(self, event: ToolFinished) -> None:
        result = event.result
        first, *others = result.text.strip().splitlines() or [""]
        shown = (
            result.text
            if self._verbose
            else f"{first} (and {len(others)} more line{'s' if len(others) > 1 else ''})"
            if others
            else first
        )
        took = f"  ({event.after_s:.1f} s)" if event.after_s >= SLOW_S else ""
        self._line("←", "red" if result.is_error else "cyan", f"{shown}{took}", "red" if result.is_error else "dim")

    def _new_plan(self, plan: str) -> None:
        lines = plan.splitlines()
        for line in lines:
            if line not in self._plan:
                self._line("·", "cyan", line)
        self._plan = lines

    def _line(self, mark: str, mark_style: str, text: str, style: str = "dim") -> None:
        self._end_of_text()
        said = Text(_view.on_one_line(" ".join(text.split())), style)
        if self._verbose and self._console.is_terminal:
            whole = Table.grid(padding=(0, 1))
            whole.add_row(Text(f"  {mark}", mark_style), said)
            self._console.print(whole, width=_view.columns(self._console))
            return
        line = Text.assemble("  ", (f"{mark} ", mark_style), said)
        if self._verbose or _view.is_unbounded(self._console):
            self._console.print(line, soft_wrap=True)
        else:
            self._console.print(line, no_wrap=True, overflow="ellipsis", width=_view.columns(self._console))

    def _end_of_text(self) -> None:
        self._answer.end()
        self._thinking.end()

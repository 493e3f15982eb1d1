"""The runs of agents and frameworks that a scan has read, counted by tool and project; and each
loop, with its repeated part and its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Self

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from monitor.cli.render import output, table
from monitor.transcripts.analysis.recorded_steps import known_sum
from monitor.transcripts.analysis.survey import SurveyedRun
from monitor.transcripts.readers.registry import AGENTS
from monitor.view.status import count

OWN_FORMATS: Final = frozenset({"runs", "events"})
"""Formats of the project itself: their runs have a table of their own."""
PROJECTS_SHOWN: Final = 12
LOOPS_SHOWN: Final = 10
NAME_CHARS: Final = 40
UNKNOWN: Final = "?"
"""Stands for a number that no recording names."""


@dataclass(slots=True)
class _ProjectCounts:
    """Counts of runs. `None`: no run names the number."""

    ids: set[str] = field(default_factory=set[str])
    """The runs, so that one that goes on here counts here too, and only once."""
    runs: int = 0
    loops: int = 0
    tokens: int | None = None
    usd: float | None = None
    partial: bool = False
    """Some tokens have no known price."""
    listed: bool = False
    """Part of the money was worked out by list prices."""
    saved_tokens: int | None = None
    saved_usd: float | None = None

    def add(self, run: SurveyedRun) -> None:
        """Count one more run."""
        stopped = run.ended_by is not None
        self += _ProjectCounts(
            {run.id},
            int(not run.goes_on or run.id not in self.ids),
            int(run.loops),
            run.usage.total_tokens if run.usage else None,
            run.cost_usd,
            run.cost_partial or (run.cost_usd is None and run.total.turns > 0),
            run.cost_listed,
            run.saved_tokens if stopped else None,
            run.saved_usd if stopped else None,
        )

    @property
    def rank(self) -> tuple[int, int, int]:
        """The key that puts loops first, the costly ones before the others."""
        return -self.loops, -(self.saved_tokens or 0), -self.runs

    def __iadd__(self, other: _ProjectCounts) -> Self:
        self.ids |= other.ids
        self.runs += other.runs
        self.loops += other.loops
        self.tokens = known_sum(self.tokens, other.tokens)
        self.usd = known_sum(self.usd, other.usd)
        self.partial |= other.partial
        self.listed |= other.listed
        self.saved_tokens = known_sum(self.saved_tokens, other.saved_tokens)
        self.saved_usd = known_sum(self.saved_usd, other.saved_usd)
        return self


@dataclass(slots=True)
class ToolCounts:
    """Counts by tool and project, and the loops."""

    by_project: dict[tuple[str, str], _ProjectCounts] = field(default_factory=dict[tuple[str, str], _ProjectCounts])
    loops: list[SurveyedRun] = field(default_factory=list[SurveyedRun])

    @property
    def runs(self) -> int:
        """The number of all counted runs."""
        return sum(counted.runs for counted in self.by_project.values())

    @property
    def total(self) -> _ProjectCounts:
        """The counts of all projects together."""
        return _sum(self.by_project.values())

    @property
    def saved_tokens(self) -> int | None:
        """Tokens of model calls that a stop would have saved."""
        return self.total.saved_tokens

    def add(self, run: SurveyedRun) -> None:
        """Count one more run."""
        self.by_project.setdefault((run.format, project_of(run)), _ProjectCounts()).add(run)

    def list(self, run: SurveyedRun) -> None:
        """Keep a run that loops, to show it."""
        self.loops.append(run)

    def said_saved(self) -> str:
        """The saving of a stop, as a sentence."""
        saved = self.total
        money = f", US$ {saved.saved_usd:,.2f} of it priced" if saved.saved_usd is not None else ""
        return f"That is {count(saved.saved_tokens or 0, 'token')}{money}."

    def show(self, console: Console) -> None:
        """The loops, the costly ones first, then the table."""
        ordered = sorted(self.loops, key=lambda run: (-(run.saved_tokens or 0), -run.saved.turns))
        for run in ordered[:LOOPS_SHOWN]:
            _show_loop(console, run)
        if len(ordered) > LOOPS_SHOWN:
            console.print(
                Text(f"{count(len(ordered) - LOOPS_SHOWN, 'more run')} with a loop: --json names all.", "dim")
            )
        if ordered:
            console.print()
        self._show_table(console)

    def _show_table(self, console: Console) -> None:
        order = sorted(self.by_project.items(), key=lambda one: one[1].rank)
        shown, others = order[:PROJECTS_SHOWN], order[PROJECTS_SHOWN:]
        priced = self.total.usd is not None
        rows = [(*_named(kind, project), *_numbers(counted, priced=priced)) for (kind, project), counted in shown]
        if others:
            rows.append((f"{len(others)} more", "", *_numbers(_sum(counted for _, counted in others), priced=priced)))
        table.show(
            console,
            (
                table.Column("tool", "end"),
                table.Column("project", "middle"),
                *(table.Column(name, right=True) for name in ("runs", "loops", "tokens", "saved")),
                *(table.Column(name, right=True) for name in (("US$", "saved US$") if priced else ())),
            ),
            rows,
        )


def project_of(run: SurveyedRun) -> str:
    """The project of a run, short: the last folder of its path."""
    parts = run.began.project.replace("\\", "/").rstrip("/").rsplit("/", 1)
    return parts[-1] or "-"


def _named(kind: str, project: str) -> tuple[str, str]:
    return AGENTS.get(kind, kind), project


def _numbers(counted: _ProjectCounts, *, priced: bool) -> tuple[str | Text, ...]:
    loops = Text(f"{counted.loops:,}", style="red" if counted.loops else "dim")
    saved, saved_usd = (_number(counted.saved_tokens), _money(counted.saved_usd)) if counted.loops else ("", "")
    at_least = "≥ " if counted.partial and counted.usd is not None else ""
    money = (f"{at_least}{_money(counted.usd)}", saved_usd) if priced else ()
    return (f"{counted.runs:,}", loops, _number(counted.tokens), saved, *money)


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def _money(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.2f}"


def _sum(counted: Iterable[_ProjectCounts]) -> _ProjectCounts:
    total = _ProjectCounts()
    for one in counted:
        total += one
    return total


def _show_loop(console: Console, run: SurveyedRun) -> None:
    """Show a loop: its repeated part, its result, and the saving of a stop."""
    finding = run.finding
    if finding is None:
        return
    found = finding.detection
    head = Text.assemble(
        (AGENTS.get(run.format, run.format), "bold"),
        f"  {project_of(run)}  ",
        (output.shortened(run.id, NAME_CHARS), "dim"),
    )
    if run.first_at is not None:
        head.append(f"  {datetime.fromtimestamp(run.first_at, UTC):%Y-%m-%d %H:%M}", style="dim")
    console.print(head, soft_wrap=True)
    facts = [("because", Text(output.on_one_line(found.message), style="red"))]
    facts.append(("repeated", Text(output.on_one_line(found.evidence.excerpt), style="yellow")))
    if run.result and found.channel == "tools":
        facts.append(("result", Text(output.on_one_line(" ".join(run.result.split())))))
    facts += [("saved", Text(_saved(run))), ("file", Text(output.on_one_line(run.file), style="dim"))]
    _show_facts(console, facts)


def _show_facts(console: Console, facts: Sequence[tuple[str, Text]]) -> None:
    """Print names and values. In a pipe each value stands whole, on one line."""
    if output.is_unbounded(console):
        for name, value in facts:
            console.print(Text.assemble(f"  {name:<10}", value), soft_wrap=True)
    else:
        console.print(Padding(output.facts(facts), (0, 0, 0, 2), expand=False), width=output.columns(console))


def _saved(run: SurveyedRun) -> str:
    if run.ended_by is None:
        return "nothing: the policy would not have ended it"
    parts = [count(run.saved.turns, "turn"), count(run.saved.tool_calls, "call")]
    parts.append(f"{UNKNOWN} tokens" if run.saved_tokens is None else count(run.saved_tokens, "token"))
    if run.saved_usd is not None:
        parts.append(f"US$ {run.saved_usd:,.2f}")
    return ", ".join(parts)

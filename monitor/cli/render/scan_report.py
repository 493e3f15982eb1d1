"""The counted findings of a scan, as tables for people and as JSON for programs. Only the line of
each run is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any, Final, Self

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from monitor.cli.render import output, table
from monitor.prices import table_facts
from monitor.transcripts.analysis.recorded_steps import known_sum
from monitor.transcripts.analysis.scan import Finding, LoopExtent, ModelOutput, Rung
from monitor.transcripts.analysis.survey import (
    Card,
    SurveyedRun,
    loop_of_run,
)
from monitor.transcripts.readers.registry import AGENTS, signs_of
from monitor.verdicts import Detection, Level
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
                *(table.Column(name, right=True) for name in ("runs", "loops", "tokens", "avoidable")),
                *(table.Column(name, right=True) for name in (("US$", "avoidable US$") if priced else ())),
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
    facts = [
        ("loop", Text(output.on_one_line(loop_of_run(run)), style="red")),
        ("seen", Text(output.on_one_line(f"step {finding.turn:,}: {found.message}"))),
    ]
    facts.append(("repeated", Text(output.on_one_line(found.evidence.excerpt), style="yellow")))
    if run.result and found.channel == "tools":
        facts.append(("result", Text(output.on_one_line(" ".join(run.result.split())))))
    facts += [("avoidable", Text(_saved(run))), ("file", Text(output.on_one_line(run.file), style="dim"))]
    _show_facts(console, facts)


def _show_facts(console: Console, facts: Sequence[tuple[str, Text]]) -> None:
    """Print names and values. In a pipe each value stands whole, on one line."""
    if output.is_unbounded(console):
        for name, value in facts:
            console.print(Text.assemble(f"  {name:<11}", value), soft_wrap=True)
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


# --------------------------------------------------------------------------------------------------
# The counted findings of a scan, as tables for people and as JSON for programs. Only the line of
# each run is kept.

# --------------------------------------------------------------------------------------------------
# Findings in full: the detector, the count, the place, the evidence, and the policy's step.

LEVELS: Mapping[Level, str] = {"suspect": "a suspicion", "loop": "a loop"}
RUNG_STYLES: Mapping[Rung, str] = {
    "observe": "dim",
    "nudge": "yellow",
    "compact": "yellow",
    "refuse": "magenta",
    "withdraw": "magenta",
    "last_turn": "red",
    "stop": "bold red",
}
"""The styles of the steps that a policy takes."""


def found_at(finding: Finding) -> str:
    """Where the finding was seen, in short."""
    return place(finding.detection.channel, finding.detection.offset, finding.char, short=True)


def times(found: Detection, whole: int | None = None) -> str:
    """The number of repetitions, in the `whole` run; for a judge, its confidence."""
    return f"{found.count} %" if found.kind == "judge" else f"x {whole or found.count}"


def place(channel: str, offset: int, char: int | None, *, short: bool = False) -> str:
    """A place in words; calls and answers are counted from 1. `char`: the same place, counted
    within its message.
    """
    match channel:
        case "tools":
            return f"call {offset + 1:,}"
        case "messages":
            return f"answer {offset + 1:,}"
        case "text":
            return f"{'char' if short else 'character'} {offset if char is None else char:,}"
        case _:
            return f"character {offset:,} of the {'thinking' if channel == 'reasoning' else channel}"


def explain(console: Console, result: SurveyedRun) -> None:
    """One run: a line, then each loop with its findings, numbered in the order of the run. Without
    findings: the line.
    """
    output.heading(console, f"{output.on_one_line(result.id)}  ({output.on_one_line(result.file)})")
    console.print(_in_short(result), width=output.columns(console))
    if result.format:
        console.print(Text(f"read as {result.format}, by its content: {signs_of(result.format)}", style="dim"))
    loops: dict[tuple[object, ...], list[tuple[int, Finding]]] = {}
    for number, finding in enumerate(result.findings, 1):
        found = finding.detection
        loops.setdefault((found.detector, found.kind, found.channel, found.evidence.xxhash), []).append(
            (number, finding)
        )
    for numbered in loops.values():
        _explain_loop(console, numbered)


def finding_as_json(finding: Finding) -> dict[str, Any]:
    """The finding with its raw offsets, and the text that the model would have got."""
    return {
        "rung": finding.rung,
        "turn": finding.turn,
        "message": finding.message,
        "start_char": finding.start_char,
        "char": finding.char,
        "detection": finding.detection.to_dict(),
        "told": finding.told,
    }


def _in_short(result: SurveyedRun) -> str:
    end = result.ended_by
    was = amount(result.total)
    if end is None:
        return f"{was}; nothing found" if not result.findings else f"{was}; the policy would not have ended it"
    how = "stopped in" if end.rung == "stop" else "ended with a last turn after"
    return f"{was}; {how} turn {end.turn}, which would have avoided {amount(result.saved)}"


def amount(amount: ModelOutput) -> str:
    """An amount in words, without its zeros."""
    parts = [
        count(number, noun)
        for number, noun in ((amount.turns, "turn"), (amount.tool_calls, "call"), (amount.chars, "character"))
        if number
    ]
    return ", ".join(parts) or "nothing"


def _explain_loop(console: Console, numbered: Sequence[tuple[int, Finding]]) -> None:
    (_, start), (_, end) = numbered[0], numbered[-1]
    first, last = start.detection, end.detection
    console.print(Text.assemble(f"  {first.detector}: ", (first.kind, "bold")), soft_wrap=True)
    facts: list[tuple[str, RenderableType]] = [
        ("because", output.printable(last.message)),
        ("evidence", Text(output.on_one_line(last.evidence.excerpt), style="yellow")),
        ("xxh3", last.evidence.xxhash),
        ("began", place(first.channel, first.start_offset, start.start_char)),
        ("seen", _steps(numbered)),
    ]
    console.print(Padding(output.facts(facts), (0, 0, 0, 4), expand=False), width=output.columns(console))


def _steps(numbered: Sequence[tuple[int, Finding]]) -> Table:
    """One line for each new step. Repeated findings without a new step are joined in one line."""
    steps = Table.grid(padding=(0, 2))
    for _, same in groupby(numbered, key=lambda one: (one[1].detection.level, one[1].rung)):
        (number, first), *others = list(same)
        found = first.detection
        sure = f"{times(found)}: {LEVELS[found.level]} from {found.threshold}{' %' if found.kind == 'judge' else ''}"
        seen = Text(sure, style="red" if found.level == "loop" else "yellow")
        steps.add_row(f"#{number}", *_when(first), seen, Text(first.rung, style=RUNG_STYLES[first.rung]))
        if others:
            number, last = others[-1]
            again = Text(f"{len(others):,} more, up to {times(last.detection)}", style="dim")
            steps.add_row(f"#{number}", *_when(last), again, Text(last.rung, style=RUNG_STYLES[last.rung]))
    return steps


def _when(finding: Finding) -> tuple[str, str, str]:
    return f"turn {finding.turn}", found_at(finding), f"message {finding.message}"


LABELLED_LOOP = "loop"
NOT_COUNTED = "borderline"
"""The label of runs that people call neither a loop nor clean; they are not counted."""
EVIDENCE_COLUMNS = 100
"""Below this width there is no room for the evidence; --json has it in full."""
NAMED_OTHERS = 5


@dataclass(slots=True, frozen=True)
class _ListedRun:
    """A run that has a line in the table."""

    file: str
    cells: tuple[str | Text, ...]
    """The cells of the line, in the order of the columns."""


@dataclass(slots=True)
class _Savings:
    """Tokens and US dollars that a stop would have saved, as far as the recordings name them.
    `None`: no recording of the runs that it would have ended names them.
    """

    tokens: int | None = 0
    usd: float | None = 0.0
    ended: int = 0
    """Runs that a stop would have ended."""

    def add(self, run: SurveyedRun) -> None:
        if run.ended_by is None:
            return
        if self.ended == 0:
            self.tokens, self.usd = run.saved_tokens, run.saved_usd
        else:
            self.tokens = known_sum(self.tokens, run.saved_tokens)
            self.usd = known_sum(self.usd, run.saved_usd)
        self.ended += 1


@dataclass(slots=True)
class Report:
    """Counts of everything, and a line for each run that is listed."""

    tools: ToolCounts = field(default_factory=ToolCounts)
    """Runs of agents and frameworks, by tool and project."""
    savings: _Savings = field(default_factory=_Savings)
    """Tokens and US dollars that a stop would have saved, in all runs."""
    own: int = 0
    """Runs in the project's own formats."""
    warns: bool = False
    """Whether the policy has other steps than a stop, which then have a column."""
    runs: int = 0
    bad: int = 0
    """Lines and files that could not be read."""
    suspected: int = 0
    """Runs with suspicions and no loop."""
    ended: int = 0
    """Runs that the policy would have ended."""
    rows: list[_ListedRun] = field(default_factory=list[_ListedRun])
    by_kind: Counter[str] = field(default_factory=Counter[str])
    saved_by_kind: dict[str, ModelOutput] = field(default_factory=dict[str, ModelOutput])
    labelled: Counter[str] = field(default_factory=Counter[str])
    """Labelled loops by kind."""
    found: Counter[str] = field(default_factory=Counter[str])
    """Labelled loops that were found, by kind."""
    card: Card = field(default_factory=Card)
    idle: bool = False
    """There was nothing to look at, so this is no all-clear."""
    others: int = 0
    others_flagged: list[str] = field(default_factory=list[str])

    @property
    def incomplete(self) -> bool:
        """Whether not all was looked at that was asked for."""
        return bool(self.bad) or self.idle

    @property
    def loops(self) -> int:
        """Runs with a loop."""
        return self.by_kind.total()

    @property
    def saved(self) -> ModelOutput:
        """The amount that would not have been produced."""
        return sum(self.saved_by_kind.values(), ModelOutput())

    def add(self, result: SurveyedRun, *, listed: bool) -> None:
        """One more run. `listed`: it gets a line."""
        self.runs += not result.goes_on
        self.card.add(result)
        self.savings.add(result)
        if result.format in OWN_FORMATS:
            self.own += 1
        else:
            self.tools.add(result)
        if result.detection is not None:
            kind = f"{result.detection.detector}/{result.detection.kind}"
            self.by_kind[kind] += 1
            self.saved_by_kind[kind] = self.saved_by_kind.get(kind, ModelOutput()) + result.saved
        elif result.findings:
            self.suspected += 1
        self.ended += result.ended_by is not None
        if listed and result.format in OWN_FORMATS:
            self.rows.append(_ListedRun(result.file, _cells(result)))
        elif listed and result.loops:
            self.tools.list(result)
        self._compare(result)

    def _compare(self, result: SurveyedRun) -> None:
        run = result.began
        if run.label == LABELLED_LOOP:
            kind = run.loop.kind if run.loop else LABELLED_LOOP
            self.labelled[kind] += 1
            self.found[kind] += result.loops
        elif run.label not in {None, NOT_COUNTED}:
            self.others += 1
            if result.loops:
                self.others_flagged.append(run.run)


# ------------------------------------------------------------------ for people


def show(console: Console, report: Report, *, elapsed_s: float, settings: Path | None) -> None:
    """The lines, the counts and the sum. `settings`: the file that they were read from."""
    if report.rows:
        _show_runs(console, report)
    if report.tools.runs:
        report.tools.show(console)
    if report.loops:
        _show_kinds(console, report)
    console.print(
        Text(f"{count(report.runs, 'run')} in {elapsed_s:.1f} s, {report.loops} of them with a loop", style="bold")
    )
    if report.loops:
        console.print(Text(f"{report.card.said()}."), soft_wrap=not console.is_terminal)
        saved = report.saved
        which = "them" if report.ended == report.loops else f"the {report.ended} that the policy would have ended"
        console.print(
            f"Stopping {which} there would have avoided {count(saved.turns, 'turn')},"
            f" {count(saved.tool_calls, 'tool call')} and {count(saved.chars, 'character')}."
            if report.ended
            else "The policy would have ended none of them."
        )
    if report.tools.saved_tokens:
        console.print(report.tools.said_saved())
    if report.tools.total.listed:
        console.print(Text(f"Costs that no recording names are by {table_facts()}.", style="dim"))
    if report.suspected:
        console.print(f"{count(report.suspected, 'more run')} with suspicions and no loop.")
    if report.labelled or report.others:
        console.print(_labels(report))
    if settings is not None:
        console.print(f"Settings: {output.on_one_line(str(settings))}.")
    if report.bad:
        console.print(Text(f"{count(report.bad, 'line or file', 'lines or files')} could not be read.", style="red"))


def _show_runs(console: Console, report: Report) -> None:
    """One line a run. The evidence gets the room that is left, and none on a narrow terminal."""
    shown = {
        table.Column("file", "middle"): len({row.file for row in report.rows}) > 1,
        table.Column("run", "middle"): True,
        table.Column("loop", "fold"): True,
        table.Column("message"): True,
        table.Column("at"): True,
        table.Column("policy"): report.warns,
        table.Column("avoidable"): True,
        table.Column("evidence", "end"): console.width >= EVIDENCE_COLUMNS,
    }
    rows = [
        [cell for cell, is_shown in zip((row.file, *row.cells), shown.values(), strict=True) if is_shown]
        for row in report.rows
    ]
    table.show(console, [column for column, is_shown in shown.items() if is_shown], rows)
    if console.width < EVIDENCE_COLUMNS:
        console.print(
            Text("What was repeated is not shown on so few columns; --explain and --json say it.", style="dim")
        )


def _cells(result: SurveyedRun) -> tuple[str | Text, ...]:
    run, finding = output.on_one_line(result.id), result.finding
    if finding is None:
        return (run, Text("-", style="dim"), "", "", "", "", "")
    found, rungs = finding.detection, list(RUNG_STYLES)
    furthest = max(result.findings, key=lambda one: rungs.index(one.rung)).rung
    return (
        run,
        Text(f"{found.kind} {times(found, result.count)}", style="red"),
        str(finding.message),
        found_at(finding),
        Text(furthest, style=RUNG_STYLES[furthest]),
        _saved_output(result.saved) if result.ended_by else Text("-", style="dim"),
        Text(output.on_one_line(found.evidence.excerpt), style="yellow"),
    )


def _saved_output(saved: ModelOutput) -> str:
    return count(saved.tool_calls, "call") if saved.tool_calls else f"{saved.chars:,} chars"


def _show_kinds(console: Console, report: Report) -> None:
    kinds = [(kind, runs, report.saved_by_kind[kind]) for kind, runs in report.by_kind.most_common()]
    table.show(
        console,
        (
            table.Column("found by", "fold"),
            *(table.Column(name, right=True) for name in ("runs", "avoidable: turns", "calls", "chars")),
        ),
        [
            (kind, str(runs), f"{saved.turns:,}", f"{saved.tool_calls:,}", f"{saved.chars:,}")
            for kind, runs, saved in kinds
        ],
    )


def _labels(report: Report) -> str:
    said = f"{len(report.others_flagged)} of {count(report.others, 'other')} flagged"
    if report.labelled:
        said = f"of {count(report.labelled.total(), 'labelled loop')} {report.found.total()} found, {said}"
    if report.others_flagged:
        more = "" if len(report.others_flagged) <= NAMED_OTHERS else ", ..."
        said += f" ({', '.join(map(output.on_one_line, report.others_flagged[:NAMED_OTHERS]))}{more})"
    return f"Labels: {said}."


# ------------------------------------------------------------------ for programs


def _priced_by(result: SurveyedRun) -> str | None:
    """Where the cost of a run comes from. `None`: it is not known."""
    if result.cost_usd is None:
        return None
    return "list prices" if result.cost_listed else "recording"


def _of_finding(value: Callable[[Finding], Any]) -> Callable[[SurveyedRun], Any]:
    """A fact about the decisive finding of a run. `None`: there is none."""
    return lambda run: None if run.finding is None else value(run.finding)


def _of_loop(value: Callable[[LoopExtent], Any]) -> Callable[[SurveyedRun], Any]:
    """A fact about the loop in the whole run. `None`: there is none."""
    return lambda run: None if run.loop is None else value(run.loop)


def _moment(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()


def _fact(
    field: str | None, value: Callable[[SurveyedRun], Any], *, csv: str | None = None, other: Any = None
) -> table.Fact[SurveyedRun]:
    """A field of JSON, a column of CSV, or both. `other`: the value in CSV."""
    return table.Fact(field, None, value, csv=csv, csv_value=other)


RUN: Final = table.RowKind[SurveyedRun](
    _fact("type", lambda _: "run"),
    _fact("file", lambda run: run.file, csv="file"),
    _fact("format", lambda run: run.format, csv="format"),
    _fact("project", lambda run: run.began.project, csv="project"),
    _fact("id", lambda run: run.id, csv="run"),
    _fact("parent", lambda run: run.began.parent, csv="parent"),
    _fact("model", lambda run: run.model, csv="model"),
    _fact("label", lambda run: run.began.label),
    _fact("labelled_kind", lambda run: run.began.loop.kind if run.began.loop else None),
    _fact("first_at", lambda run: run.first_at, csv="first_at", other=lambda run: _moment(run.first_at)),
    _fact("last_at", lambda run: run.last_at, csv="last_at", other=lambda run: _moment(run.last_at)),
    _fact("state", lambda run: run.ended.state, csv="state"),
    _fact("detail", lambda run: run.ended.detail),
    _fact("total", lambda run: _amount_as_json(run.total)),
    _fact(None, lambda run: run.total.turns, csv="turns"),
    _fact(None, lambda run: run.total.tool_calls, csv="calls"),
    _fact("errors", lambda run: run.errors, csv="errors"),
    _fact("tokens", lambda run: run.usage.total_tokens if run.usage else None, csv="tokens"),
    _fact("usd", lambda run: run.cost_usd, csv="usd"),
    _fact("usd_partial", lambda run: run.cost_partial),
    _fact("usd_by", _priced_by),
    _fact("copied_turns", lambda run: run.copied_turns),
    _fact("compactions", lambda run: run.compactions),
    _fact("loop", lambda run: run.loops, csv="loop"),
    _fact(None, _of_finding(lambda one: f"{one.detection.detector}/{one.detection.kind}"), csv="found_by"),
    _fact("count", lambda run: run.count if run.loops else None, csv="count"),
    _fact("first_step", _of_loop(lambda loop: loop.first_turn), csv="first_step"),
    _fact("last_step", _of_loop(lambda loop: loop.last_turn), csv="last_step"),
    _fact("loop_usd", lambda run: run.loop_usd, csv="loop_usd"),
    _fact(None, _of_finding(lambda one: one.turn), csv="stop_at_step"),
    _fact(None, _of_finding(lambda one: one.detection.evidence.excerpt), csv="repeated"),
    _fact("ended", lambda run: run.ended_by is not None),
    _fact("rung", _of_finding(lambda one: one.rung)),
    _fact("message", _of_finding(lambda one: one.message)),
    _fact("char", _of_finding(lambda one: one.char)),
    _fact("detection", _of_finding(lambda one: one.detection.to_dict())),
    _fact("result", lambda run: run.result, csv="result", other=lambda run: run.result if run.loops else None),
    _fact("saved", lambda run: _amount_as_json(run.saved)),
    _fact(None, lambda run: run.saved.turns, csv="avoidable_turns"),
    _fact(None, lambda run: run.saved.tool_calls, csv="avoidable_calls"),
    _fact("saved_tokens", lambda run: run.saved_tokens, csv="avoidable_tokens"),
    _fact("saved_usd", lambda run: run.saved_usd, csv="avoidable_usd"),
)
"""The facts about a run, for JSON and for CSV. What `saved` names is avoidable by a stop."""


def run_as_json(result: SurveyedRun, *, explain: bool) -> dict[str, Any]:
    """One run. `explain`: with every finding, and the signs of its format."""
    run = RUN.as_json(result)
    if not explain:
        return run
    findings = list(map(finding_as_json, result.findings))
    return {**run, "recognised_by": signs_of(result.format) or None, "findings": findings}


def summary_as_json(report: Report, *, settings: Path | None) -> dict[str, Any]:
    """The counts. `settings`: the file that they were read from."""
    labels = {
        "loops": dict(sorted(report.labelled.items())),
        "found": dict(sorted(report.found.items())),
        "others": report.others,
        "others_flagged": report.others_flagged,
    }
    return {
        "type": "summary",
        "runs": report.runs,
        "loops": report.loops,
        "suspected": report.suspected,
        "ended": report.ended,
        "by_kind": dict(report.by_kind.most_common()),
        "saved": _amount_as_json(report.saved),
        "card": report.card.said(),
        "saved_tokens": report.savings.tokens,
        "saved_usd": report.savings.usd,
        "prices": str(table_facts()),
        "labels": labels if report.labelled or report.others else None,
        "settings": None if settings is None else str(settings),
        "unreadable": report.bad,
    }


def _amount_as_json(amount: ModelOutput) -> dict[str, int]:
    return {"chars": amount.chars, "tool_calls": amount.tool_calls, "turns": amount.turns}


# --------------------------------------------------------------------------------------------------
# The bar that is shown while transcripts are read.

BAR_CHARS = 16
BESIDE_CHARS = 62
"""The length of the bar, the counts and the time. The name of the file has the rest of a line."""


class _PolledProgress(Progress):
    """A bar that asks `done` how many bytes were read, whenever it is drawn."""

    def __init__(self, *columns: ProgressColumn, console: Console, done: Callable[[], int]) -> None:
        self._read = done
        # Results that are printed meanwhile belong to stdout and must not be drawn above the bar.
        super().__init__(*columns, console=console, transient=True, redirect_stdout=False)

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            self.update(task.id, completed=self._read())
        return super().get_renderables()


@contextmanager
def progress(
    console: Console, total: int, done: Callable[[], int], *, quiet: bool
) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on a terminal, and nothing elsewhere. `total`: the bytes to read. `done`: answers how
    many of them were read. `quiet`: no bar, because results are written to the terminal. The
    function that is yielded takes the runs, those with a loop, and the file that was read last.
    """
    if quiet or not console.is_terminal:
        yield lambda *_: None
        return
    columns = (
        BarColumn(BAR_CHARS, pulse_style="cyan"),
        TextColumn("{task.fields[runs]:,} runs, {task.fields[loops]:,} with a loop"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("left"),
        TextColumn("{task.fields[file]}", style="dim"),
    )
    with _PolledProgress(*columns, console=console, done=done) as bar:
        task = bar.add_task("", total=total or None, runs=0, loops=0, file="")

        def tick(runs: int, loops: int, file: str) -> None:
            bar.update(task, runs=runs, loops=loops, file=_shortened(file, console.width))

        yield tick


def _shortened(file: str, width: int) -> str:
    """The name of the file, as far as the line has room."""
    room = width - BESIDE_CHARS
    name = output.on_one_line(PurePath(file).name)
    if room < 2:  # noqa: PLR2004 - a letter and the sign that more follows
        return ""
    return name if len(name) <= room else f"{name[: room - 1]}\u2026"

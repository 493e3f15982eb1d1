"""Findings in full: the detector, the count, the place, the evidence, and the policy's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from monitor.cli.render import output
from monitor.transcripts.analysis.scan import Finding, ModelOutput, Rung
from monitor.transcripts.analysis.survey import SurveyedRun
from monitor.transcripts.readers.registry import signs_of
from monitor.verdicts import Detection, Level
from monitor.view.run_ending import count

LEVELS: Mapping[Level, str] = {"suspect": "a suspicion", "loop": "a loop"}
RUNG_STYLES: Mapping[Rung, str] = {
    "observe": "dim",
    "nudge": "yellow",
    "compact": "yellow",
    "withdraw": "magenta",
    "last_turn": "red",
    "stop": "bold red",
}
"""The styles of the steps that a policy takes."""


def found_at(finding: Finding) -> str:
    """Where the finding was seen, in short."""
    return place(finding.detection.channel, finding.detection.offset, finding.char, short=True)


def times(found: Detection) -> str:
    """The number of repetitions; for a judge, its confidence."""
    return f"{found.count} %" if found.kind == "judge" else f"x {found.count}"


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
        _show_loop(console, numbered)


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
    return f"{was}; {how} turn {end.turn}, which would have saved {amount(result.saved)}"


def amount(amount: ModelOutput) -> str:
    """An amount in words, without its zeros."""
    parts = [
        count(number, noun)
        for number, noun in ((amount.turns, "turn"), (amount.tool_calls, "call"), (amount.chars, "character"))
        if number
    ]
    return ", ".join(parts) or "nothing"


def _show_loop(console: Console, numbered: Sequence[tuple[int, Finding]]) -> None:
    (_, start), (_, end) = numbered[0], numbered[-1]
    first, last = start.detection, end.detection
    console.print(Text.assemble(f"  {first.detector}: ", (first.kind, "bold")), soft_wrap=True)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("because", output.printable(last.message))
    facts.add_row("evidence", Text(output.on_one_line(last.evidence.excerpt), style="yellow"))
    facts.add_row("xxh3", last.evidence.xxhash)
    facts.add_row("began", place(first.channel, first.start_offset, start.start_char))
    facts.add_row("seen", _steps(numbered))
    console.print(Padding(facts, (0, 0, 0, 4), expand=False), width=output.columns(console))


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

"""How many recorded loops are seen, how soon, and how many good runs are disturbed, beside what
other systems do on the same runs.

    python -m bench.quality [--quick] [--explain]

Every run of `fixtures/transcripts` is fed to the default detectors through the core that guards
live ones, its text cut in several ways. Two rows: `stops` counts what ends a run (a sure loop),
`nudges` the first finding of any kind, which the ladder answers with a nudge. Then come texts and
runs of calls of kinds that no recorded run holds, made from seeds (`bench.made`), loops with
structure (`bench.structure`), and the answers of a real small model that `make live` has recorded
(`bench.live`).

How it is counted (the same for the other systems, whose rows are cited and not run again):

- caught: it fired on a loop run, not before the loop began. Fired sooner is "early": neither caught
  nor a false alarm;
- only the first verdict of a run counts. Scores: loops of calls against clean and hard_negative
  runs, loops of text against plain and hard texts. Borderline runs (three or four equal calls, then
  recovery) are in no score;
- delay of calls: model turns from the end of the third repetition to the verdict (negative:
  sooner). Delay of text: characters after it.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table

from bench import _call_quality, _live_fixture, _report, kinds, saved, structure
from monitor.chunks import TextDelta, ToolResult, TurnFinished
from monitor.core.run import RunCore
from monitor.detectors import default_detectors
from monitor.events import DetectionRaised, Event
from monitor.policy import ObserveOnly
from monitor.testing import cut
from monitor.transcripts.base import LoopLabel, RecordedRun
from monitor.transcripts.corpus import Corpus
from monitor.verdicts import Detection

FIXTURES = Path(__file__).parents[1] / "fixtures" / "transcripts"
FILES = ("dev.jsonl.gz", "text_negatives_dev.jsonl.gz")
TOOLS = {
    "tool_identical": "identical",
    "tool_cycle2": "cycle 2",
    "tool_cycle3": "cycle 3",
    "error_streak_varied_args": "errors",
    "turn_text_repeat": "turn text",
}
TEXTS = {
    "text_char": "char",
    "text_word": "word",
    "text_phrase": "phrase",
    "text_sentence": "sentence",
    "text_paragraph": "paragraph",
    "text_inexact": "inexact",
}
KINDS = {**TOOLS, **TEXTS}
QUIET = {
    "clean": "clean",
    "hard_negative": "hard",
    "negative_text": "text",
    "hard_negative_text": "hard text",
    "borderline": "borderline",
}
SCORES = {
    "tools": (tuple(TOOLS), ("clean", "hard_negative")),
    "text": (tuple(TEXTS), ("negative_text", "hard_negative_text")),
    "all": (tuple(KINDS), ("clean", "hard_negative", "negative_text", "hard_negative_text")),
}
WORDS = re.compile(r"\s?[A-Za-z]{1,8}|\d{1,3}|\s+|[^\sA-Za-z\d]")
"""Word and punctuation pieces, like the tokens that some providers send one by one."""
CUTS = ("4 chars", "16 chars", "64 chars", "4096 chars", "words", "1 char", "random 1", "random 2", "random 3")
SHOWN = ("4 chars", "16 chars", "64 chars", "4096 chars", "words")
LEVELS = ("stops", "nudges")
QUICK_LIVE = 8

Line: TypeAlias = tuple[str, Sequence[str]]


@dataclass(slots=True, frozen=True)
class Verdict:
    """The first finding of a run that counts."""

    turn: int
    """The message in which it fell."""
    char: int | None
    """For text: the offset in that message's text."""
    kind: str
    message: str


@dataclass(slots=True)
class Count:
    """What a row came to."""

    caught: dict[str, list[int]] = field(default_factory=lambda: {kind: [0, 0, 0] for kind in KINDS})
    """By kind of loop: caught, all, early."""
    alarms: dict[str, list[int]] = field(default_factory=lambda: {label: [0, 0] for label in QUIET})
    """By label: fired, all."""
    delay_turns: list[int] = field(default_factory=list)
    delay_chars: list[int] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    """Missed, early and false ones, for --explain."""


@dataclass(slots=True, frozen=True)
class Peer:
    """A row that was measured once on the same runs, and how: see `SOURCE`."""

    name: str
    caught: tuple[int | None, ...]
    """In the order of `KINDS`."""
    alarms: tuple[int | None, ...]
    """In the order of `QUIET`."""
    f1: tuple[float, float, float]
    turns: float | None = None
    chars: float | None = None


SOURCE = (
    "other systems: measured in this project on the same runs, real code where it installs, else a port of the rule; no"
    " judge model; cited"
)
PEERS = (
    Peer(
        "Gemini CLI 0.61.0, 4 chars", (36, 12, 3, 0, 0, 3, 5, 3, 2, 1, 0), (0, 0, 0, 3, 0), (0.77, 0.44, 0.67), 2, 133
    ),
    Peer(
        "Gemini CLI 0.61.0, 64 chars", (36, 12, 3, 0, 0, 4, 5, 5, 2, 1, 0), (0, 1, 0, 15, 1), (0.77, 0.44, 0.64), 2, 177
    ),
    Peer("Qwen Code 0.24.4, default", (36, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0), (0.62, 0.0, 0.44), 2),
    Peer(
        "Qwen Code 0.24.4, heuristics on",
        (36, 27, 7, 5, 0, 7, 6, 6, 2, 1, 0),
        (75, 8, 0, 7, 13),
        (0.63, 0.59, 0.62),
        2,
        124,
    ),
    Peer("OpenHands 1.58.0", (25, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 4), (0.66, 0.0, 0.48), 1),
    Peer(
        "pydantic-ai-harness PR 336 (port)",
        (35, 27, 9, 0, 0, 0, 0, 0, 0, 0, 0),
        (0, 5, 0, 0, 33),
        (0.90, 0.0, 0.70),
        -1,
    ),
    Peer("opencode, as described (port)", (35, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), (0, 1, 0, 0, 37), (0.60, 0.0, 0.43), 0),
    Peer("OpenClaw, warn 10 (port)", (10, 12, 2, 0, 0, 0, 0, 0, 0, 0, 0), (0, 1, 0, 0, 0), (0.45, 0.0, 0.32), 4),
    Peer("tail 16..1024 x4 (port)", (0, 0, 0, 0, 0, 6, 8, 10, 7, 3, 4), (0, 0, 0, 2, 1), (0.0, 0.88, 0.46), None, 128),
    Peer("assembly of all public rules", (None,) * 11, (None,) * 5, (0.92, 0.89, 0.91)),
)


def read(folder: Path = FIXTURES) -> list[RecordedRun]:
    """All recorded runs."""
    return [run for name in FILES for run in Corpus(folder / name)]


def pieces(text: str, how: str) -> Iterable[str]:
    """`text` as a provider would send it."""
    number = re.search(r"\d+", how)
    if number is None:
        return (piece.group() for piece in WORDS.finditer(text))
    if how.startswith("random"):
        rng = random.Random(int(number.group()))
        return cut(text, [rng.choice((0, 1, 2, 3, 7, 20, 300)) for _ in range(97)] + [1])
    return cut(text, int(number.group()))


def watch(run: RecordedRun, how: str) -> dict[str, Verdict | None]:
    """The first sure loop and the first finding of `run`. It is read until both are known."""
    found: list[Detection] = []

    def emit(event: Event) -> None:
        if isinstance(event, DetectionRaised):
            found.append(event.detection)

    core = RunCore(detectors=default_detectors(), policy=ObserveOnly(), emit=emit, keep_text_chars=0)
    core.begin(0.0)
    first: dict[str, Verdict | None] = dict.fromkeys(LEVELS)
    chars = 0
    for index, grown in _fed(core, run, how):
        for detection in found:
            char = detection.offset - chars if detection.channel == "text" else None
            verdict = Verdict(index, char, detection.kind, detection.message)
            first["nudges"] = first["nudges"] or verdict
            if detection.level == "loop":
                first["stops"] = verdict
                return first
        found.clear()
        chars += grown
    return first


def _fed(core: RunCore, run: RecordedRun, how: str) -> Iterator[tuple[int, int]]:
    """Feed `run`; after each step the index of its message, and the characters by which the visible
    text before it has grown.
    """
    turn, length = -1, 0
    for index, chunk in run.chunks():
        if isinstance(chunk, ToolResult):
            core.tool_result(chunk.id, chunk.text, 0.0, is_error=chunk.is_error)
            yield index, 0
            continue
        if turn != index:
            core.begin_turn(0.0)
            turn, length = index, 0
        for piece in pieces(chunk.text, how) if isinstance(chunk, TextDelta) else ():
            core.feed_text(piece, 0.0)
            length += len(piece)
            yield index, 0
        if not isinstance(chunk, TextDelta):
            core.feed(chunk, 0.0)
        if isinstance(chunk, TurnFinished):
            core.end_turn(0.0, finished=True)
            yield index, length
        else:
            yield index, 0


def early(loop: LoopLabel, verdict: Verdict) -> bool:
    """It fired before the loop began: not on this loop."""
    if verdict.turn != loop.turn:
        return verdict.turn < (loop.turn or 0)
    return verdict.char is not None and loop.char is not None and verdict.char < loop.char


def turns_after(run: RecordedRun, third: int, seen: int) -> int:
    """Model turns between the end of the third repetition and the verdict."""
    low, high = sorted((third, seen))
    turns = sum(message.role == "assistant" for message in run.messages[low + 1 : high + 1])
    return turns if seen >= third else -turns


def count(runs: Sequence[RecordedRun], verdicts: Sequence[Verdict | None]) -> Count:
    """All verdicts of a row."""
    out = Count()
    for run, verdict in zip(runs, verdicts, strict=True):
        if run.loop is None:
            if run.label in out.alarms:
                out.alarms[run.label][0] += verdict is not None
                out.alarms[run.label][1] += 1
                if verdict is not None and run.label != "borderline":
                    out.odd.append(f"false {run.id} ({run.label}): {verdict.message}")
            continue
        cell = out.caught[run.loop.kind]
        cell[1] += 1
        if verdict is None:
            out.odd.append(f"missed {run.id} ({run.loop.kind})")
        elif early(run.loop, verdict):
            cell[2] += 1
            out.odd.append(f"early {run.id} ({run.loop.kind}): {verdict.message}")
        else:
            cell[0] += 1
            _delay(out, run, run.loop, verdict)
    return out


def _delay(out: Count, run: RecordedRun, loop: LoopLabel, verdict: Verdict) -> None:
    if loop.kind in TOOLS:
        if loop.turn_3 is not None:
            out.delay_turns.append(turns_after(run, loop.turn_3, verdict.turn))
    elif loop.char is not None and loop.period and verdict.char is not None and verdict.turn == loop.turn:
        out.delay_chars.append(verdict.char - (loop.char + 3 * loop.period))


def scores(counted: Count) -> dict[str, dict[str, Any]]:
    """Precision, recall and F1 for calls, text and both."""
    out = {}
    for name, (loops, quiet) in SCORES.items():
        hit = sum(counted.caught[kind][0] for kind in loops)
        total = sum(counted.caught[kind][1] for kind in loops)
        false = sum(counted.alarms[label][0] for label in quiet)
        precision = hit / (hit + false) if hit + false else None
        recall = hit / total if total else None
        f1 = 2 * precision * recall / (precision + recall) if precision and recall else 0.0
        out[name] = {"hit": hit, "total": total, "false": false, "precision": precision, "recall": recall, "f1": f1}
    return out


@dataclass(slots=True)
class Results:
    """All rows: by level, then by cut."""

    rows: dict[str, dict[str, Count]]
    differing: list[str]
    """Runs whose verdict depends on the cut; there must be none."""
    made: kinds.Kinds | None = None
    made_calls: _call_quality.MadeCalls | None = None
    structured: Sequence[structure.Part] = ()
    saved: Sequence[saved.Row] = ()
    """Tokens saved at a promised line, beside other systems."""
    live: _live_fixture.Recorded | None = None

    def goals(self) -> list[dict[str, Any]]:
        """What was promised for calls and for every verdict, and what came of it."""
        stops, nudges = (next(iter(self.rows[level].values())) for level in LEVELS)
        tools, text = scores(stops)["tools"], scores(stops)["text"]
        turns, chars = _median(nudges.delay_turns), _median(nudges.delay_chars)
        wanted = [
            ("F1 of calls, stops", tools["f1"], 0.98, True),
            ("loops of calls caught by a stop, of 81", tools["hit"], 80, True),
            ("clean runs disturbed at all", nudges.alarms["clean"][0], 0, False),
            ("hard runs disturbed at all", nudges.alarms["hard_negative"][0], 1, False),
            ("borderline runs stopped", stops.alarms["borderline"][0], 0, False),
            ("median delay of the first finding, turns", turns, 0, False),
            ("F1 of text, stops", text["f1"], 0.985, True),
            ("plain texts disturbed at all", nudges.alarms["negative_text"][0], 0, False),
            ("hard texts disturbed at all", nudges.alarms["hard_negative_text"][0], 1, False),
            ("median delay of the first finding, characters", chars, 150, False),
            ("runs whose verdict depends on the cut", len(self.differing), 0, False),
            *(self.made.goals() if self.made else ()),
            *(self.made_calls.goals() if self.made_calls else ()),
            *(goal for part in self.structured for goal in part.goals()),
            *(self.live.goals() if self.live else ()),
        ]
        return [
            {
                "goal": goal,
                "value": value,
                "limit": limit,
                "passed": value is not None and (value >= limit if least else value <= limit),
            }
            for goal, value, limit, least in wanted
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        ours = [
            {
                "row": f"ours, {level}",
                "cut": how,
                "caught": {
                    kind: {"caught": cell[0], "of": cell[1], "early": cell[2]} for kind, cell in counted.caught.items()
                },
                "alarms": {label: {"fired": cell[0], "of": cell[1]} for label, cell in counted.alarms.items()},
                "scores": scores(counted),
                "delay_turns": _spread(counted.delay_turns),
                "delay_chars": _spread(counted.delay_chars),
                "odd": counted.odd,
            }
            for level, by_cut in self.rows.items()
            for how, counted in by_cut.items()
        ]
        return {
            "rows": ours,
            "peers_source": SOURCE,
            "peers": [asdict(peer) for peer in PEERS],
            "differing": self.differing,
            "kinds": self.made.to_dict() if self.made else None,
            "call_kinds": self.made_calls.to_dict() if self.made_calls else None,
            "structured": [part.to_dict() for part in self.structured],
            "saved": saved.to_dict(self.saved),
            "live": self.live.to_dict() if self.live else None,
            "goals": self.goals(),
        }


def _median(values: Sequence[int]) -> float | None:
    return statistics.median(values) if values else None


def _spread(values: Sequence[int]) -> dict[str, float | None]:
    return {"mean": round(statistics.fmean(values), 2) if values else None, "median": _median(values)}


def measure(runs: Sequence[RecordedRun], cuts: Sequence[str] = CUTS) -> Results:
    """Every run, in every cut."""
    seen = {how: [watch(run, how) for run in runs] for how in cuts}
    first = seen[cuts[0]]
    differing = [
        f"{run.id}: {how}"
        for how in cuts
        for run, one, other in zip(runs, first, seen[how], strict=True)
        if one != other
    ]
    rows = {level: {how: count(runs, [verdicts[level] for verdicts in seen[how]]) for how in cuts} for level in LEVELS}
    return Results(rows, differing)


def show(results: Results, *, explain: bool = False) -> None:
    """As tables."""
    console = Console(width=150)
    sample = next(iter(results.rows["stops"].values()))
    caught = [f"{name}\n/{sample.caught[kind][1]}" for kind, name in KINDS.items()]
    alarms = [f"{name}\n/{sample.alarms[label][1]}" for label, name in QUIET.items()]
    ours = [
        (f"ours, {level}, {how}", counted)
        for level in LEVELS
        for how, counted in results.rows[level].items()
        if how in SHOWN
    ]
    _print(
        console,
        "caught (+ early, not counted)",
        caught,
        [(name, _caught(row)) for name, row in ours],
        [(p.name, _text(p.caught)) for p in PEERS],
    )
    _print(
        console,
        "alarms, scores, median delay",
        [*alarms, *(f"F1\n{name}" for name in SCORES), "delay\nturns", "delay\nchars"],
        [(name, _alarms(row)) for name, row in ours],
        [
            (p.name, [*_text(p.alarms), *(f"{f1:.2f}" for f1 in p.f1), _signed(p.turns), _signed(p.chars)])
            for p in PEERS
        ],
    )
    console.print(SOURCE)
    if results.made:
        kinds.show(console, results.made)
    if results.made_calls:
        _call_quality.show(console, results.made_calls)
    if results.structured:
        structure.show(console, results.structured, explain=explain)
    if results.saved:
        saved.show(console, results.saved)
    if results.live:
        _live_fixture.show(console, results.live, explain=explain)
    for level in LEVELS if explain else ():
        for line in next(iter(results.rows[level].values())).odd:
            console.print(f"{level}: {line}", markup=False, highlight=False)
    for line in results.differing:
        console.print(f"the verdict depends on the cut: {line}", markup=False)
    for goal in results.goals():
        value = goal["value"] if not isinstance(goal["value"], float) else round(goal["value"], 3)
        console.print(f"{'PASS' if goal['passed'] else 'FAIL'}  {goal['goal']}: {value} (limit {goal['limit']})")


def _print(console: Console, title: str, columns: Sequence[str], ours: Sequence[Line], peers: Sequence[Line]) -> None:
    table = Table(title=title)
    table.add_column("row", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for name, cells in ours:
        table.add_row(name, *cells)
    table.add_section()
    for name, cells in peers:
        table.add_row(name, *cells)
    console.print(table)


def _caught(counted: Count) -> list[str]:
    return [f"{hit}+{before}" if before else str(hit) for hit, _, before in counted.caught.values()]


def _alarms(counted: Count) -> list[str]:
    alarms = [str(fired) for fired, _ in counted.alarms.values()]
    f1 = [f"{score['f1']:.3f}" for score in scores(counted).values()]
    return [*alarms, *f1, *(_signed(_median(values)) for values in (counted.delay_turns, counted.delay_chars))]


def _text(numbers: Iterable[int | None]) -> list[str]:
    return ["" if number is None else str(number) for number in numbers]


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.0f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description="Detection quality on recorded runs.")
    parser.add_argument("--quick", action="store_true", help="two cuts, two texts of each made kind; writes nothing")
    parser.add_argument("--explain", action="store_true", help="name what was missed, early or false")
    options = parser.parse_args(arguments)
    results = measure(read(), CUTS[3:5] if options.quick else CUTS)
    results.made = kinds.measure(2 if options.quick else kinds.SEEDS)
    results.made_calls = _call_quality.measure(2 if options.quick else _call_quality.SEEDS)
    results.structured = structure.measure(1 if options.quick else structure.SEEDS)
    results.saved = saved.measure(saved.read(every=saved.QUICK_EVERY if options.quick else 1))
    results.live = _live_fixture.measure(_live_fixture.read(), every=QUICK_LIVE if options.quick else 1)
    show(results, explain=options.explain)
    if not options.quick:
        _report.write("quality", results.to_dict())
    return 0 if all(goal["passed"] for goal in results.goals()) else 1


if __name__ == "__main__":
    sys.exit(main())

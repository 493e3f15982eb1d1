"""Questions to a judge at recorded places of labelled runs, and what judges have answered.

The question is the one of the product: the instructions of `LoopJudge`, the request in its place,
and the record up to a step that has its answers; the end of the run is not in view. Loops are asked
about 5 and 10 answered steps after the repetition began. A good run is asked about after as many
steps as a loop of the same set. Two things are left out: steps without news, which depend on fitted
weights, so that no answer would outlive a fit; and runs whose texts are not in the fixtures.

A question is known by the hash of its text. An answer to another text is never used: a question
that has changed is "not asked yet".
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from monitor.judges.question import LOOP_INSTRUCTIONS, question, read_reply
from monitor.transcripts.analysis.calibration import is_stuck, question_on
from monitor.transcripts.base import RecordedRun
from monitor.transcripts.corpus import Corpus

FIXTURES = Path(__file__).parents[1] / "fixtures"
ANSWERS = FIXTURES / "judge" / "answers.jsonl.gz"
SETS = {"dev": 60, "composed": 60, "composed_by_others": 80, "composed_b": 30}
"""How many loops are asked about, and as many good runs."""
AFTER = (5, 10)
"""Answered steps since the repetition began."""
LINES = (0.5, 0.7, 0.9)
LEFT_OUT = "omitted: CC BY-SA source"
"""Stands in the fixtures in the place of texts that their licence keeps out."""
BINS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
"""The lowest confidence of each row of the table on reliability."""


@dataclass(slots=True, frozen=True)
class Question:
    """A question at one place of a run. Who answers sees only `text`."""

    run: str
    set: str
    stuck: bool
    after: int
    text: str

    @property
    def hash(self) -> str:
        return _hash(self.text)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def questions() -> list[Question]:
    """All recorded questions, in the order of their hashes."""
    chosen = [asked for name, most in SETS.items() for asked in _of_set(name, most)]
    return sorted(chosen, key=lambda asked: asked.hash)


def _of_set(name: str, most: int) -> Iterator[Question]:
    """The loops, half of them at each place; then as many good runs, each after as many steps as
    one of the loops: as many as it has, but for its last.
    """
    runs = sorted(Corpus(FIXTURES / "transcripts" / f"{name}.jsonl.gz"), key=lambda run: _hash(run.id))
    places: list[tuple[int, int]] = []
    hashes: set[str] = set()
    for run in runs:
        begins = run.loop.turn if run.loop is not None else None
        if is_stuck(run) and begins is not None:
            before = sum(step < begins for step in _answered(run))
            for after in AFTER if len(places) % len(AFTER) == 0 else reversed(AFTER):
                asked = _asked(run, name, before + after, stuck=True, after=after)
                if asked is not None and asked.hash not in hashes and len(places) < most:
                    places.append((before + after, after))
                    hashes.add(asked.hash)
                    yield asked
                    break
    places.sort()
    for run in runs:
        reached = [at for at in places if at[0] < len(_answered(run))] if is_stuck(run) is False else []
        if reached:
            asked = _asked(run, name, reached[-1][0], stuck=False, after=reached[-1][1])
            if asked is not None and asked.hash not in hashes:
                places.remove(reached[-1])
                hashes.add(asked.hash)
                yield asked


def _answered(run: RecordedRun) -> list[int]:
    """The indexes of the messages that make calls."""
    return [at for at, message in enumerate(run.messages) if message.role == "assistant" and message.tool_calls]


def _asked(run: RecordedRun, name: str, place: int, *, stuck: bool, after: int) -> Question | None:
    """The question after the step with the number `place`, from 1, unless that is the last one."""
    steps = _answered(run)
    told = question_on(run, steps[place - 1]) if place < len(steps) else None
    if told is None or LEFT_OUT in told.digest or LEFT_OUT in (told.task or ""):
        return None
    return Question(run.id, name, stuck, after, f"{LOOP_INSTRUCTIONS}\n\n{question(replace(told, doubts=''))}\n")


def write(folder: Path) -> int:
    """Write a file for each question, named by its hash. Nothing says which are stuck."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = questions()
    for one in asked:
        (folder / f"{one.hash}.txt").write_text(one.text, "utf-8", "backslashreplace")
    return len(asked)


# --------------------------------------------------------------------------------------------------
# What judges have answered.


@dataclass(slots=True)
class Row:
    """The answers of one model to the questions of one set and one place."""

    loops: list[float] = field(default_factory=list[float])
    """The confidences of all loops that were asked about."""
    good: list[float] = field(default_factory=list[float])
    advised: int = 0
    """Loops at the second line or above for which it had a sentence for the agent."""
    not_asked: int = 0

    def add(self, other: Row) -> None:
        """Add the answers of `other`."""
        self.loops += other.loops
        self.good += other.good
        self.advised += other.advised
        self.not_asked += other.not_asked

    def above(self, line: float) -> tuple[int, int]:
        """Loops and good runs that are called stuck at `line`."""
        return sum(one >= line for one in self.loops), sum(one >= line for one in self.good)


@dataclass(slots=True)
class Answered:
    """All answers of all models."""

    rows: dict[tuple[str, str, int], Row]
    """By model, set and place."""
    unknown: int
    """Answers to no question of today."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "rows": [
                {
                    "model": model,
                    "set": name,
                    "after": after,
                    "loops": len(row.loops),
                    "good": len(row.good),
                    "at": {str(line): row.above(line) for line in LINES},
                    "advised": row.advised,
                    "not_asked": row.not_asked,
                }
                for (model, name, after), row in self.rows.items()
            ],
            "answers_to_no_question": self.unknown,
        }


def read(path: Path = ANSWERS) -> dict[str, dict[str, dict[str, Any]]]:
    """The answers by model and by the hash of the question. An answer is checked as a reply is."""
    by_model: dict[str, dict[str, dict[str, Any]]] = {}
    if path.exists():
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            for line in filter(str.strip, lines):
                answer = json.loads(line)
                answer["confidence"] = read_reply(json.dumps(answer)).confidence
                by_model.setdefault(answer["model"], {})[answer["question"]] = answer
    return by_model


def measure(path: Path = ANSWERS) -> Answered:
    """What each model has answered to the questions of today."""
    asked, by_model = questions(), read(path)
    hashes = {one.hash for one in asked}
    rows: dict[tuple[str, str, int], Row] = {}
    for model, answers in (by_model or {"nobody": {}}).items():
        for one in sorted(asked, key=lambda one: (list(SETS).index(one.set), one.after)):
            row = rows.setdefault((model, one.set, one.after), Row())
            answer = answers.get(one.hash)
            if answer is None:
                row.not_asked += 1
                continue
            (row.loops if one.stuck else row.good).append(answer["confidence"])
            row.advised += one.stuck and answer["confidence"] >= LINES[1] and bool(answer.get("advice"))
    return Answered(rows, sum(question not in hashes for answers in by_model.values() for question in answers))


def show(console: Console, answered: Answered) -> None:
    """As tables: what was found, and whether the confidences mean what they say."""
    models = dict.fromkeys(model for model, _, _ in answered.rows)
    totals: dict[str, Row] = {}
    columns = ("answered by", "set", "after", *(f"{what} {line}" for line in LINES for what in ("loops", "good")))
    table = Table(*columns, "advised", "not asked yet", title="Recorded questions: called stuck")
    for model in models:
        total = Row()
        for (by, name, after), row in answered.rows.items():
            if by == model:
                table.add_row(model, name, str(after), *_found(row), str(row.advised), str(row.not_asked))
                total.add(row)
        table.add_row(model, "all", "", *_found(total), str(total.advised), str(total.not_asked), end_section=True)
        totals[model] = total
    console.print(table)
    table = Table("answered by", "confidence", "answers", "stuck", "share", title="Reliability")
    for model, total in totals.items():
        loops, every = Counter(map(_bin, total.loops)), Counter(map(_bin, (*total.loops, *total.good)))
        for low in BINS:
            if every[low]:
                share = f"{loops[low] / every[low]:.2f}"
                table.add_row(model, f"from {low}", str(every[low]), str(loops[low]), share)
    console.print(table)
    if answered.unknown:
        console.print(f"answers to questions that have changed, not used: {answered.unknown}")


def _found(row: Row) -> Iterator[str]:
    for line in LINES:
        loops, good = row.above(line)
        yield f"{loops} of {len(row.loops)}"
        yield f"{good} of {len(row.good)}"


def _bin(confidence: float) -> float:
    return max(low for low in BINS if confidence >= low)

"""The answers of the small model that were recorded once, each with its seed and its label, and
what the detector of repeated text makes of them: a section of `bench.quality`.

`fixtures/live/answers.jsonl.gz` has the whole answers, as they come without a guard. Their labels
are those of `bench._live_labels`. Where it says `disputed`, the label stands in
`fixtures/live/read.json`, with the hash of the text that was read.
"""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, get_args

import xxhash
from rich.console import Console
from rich.table import Table

from bench._live_labels import Label, measured
from bench.kinds import median, watch

FOLDER: Final = Path(__file__).parents[1] / "fixtures" / "live"
ANSWERS: Final = "answers.jsonl.gz"
READ: Final = "read.json"


@dataclass(slots=True, frozen=True)
class Answer:
    """A whole answer of the model."""

    id: str
    question: str
    seed: int
    temperature: float
    finish: str
    """`stop`: the model ended it. `length`: the limit of tokens did."""
    tokens: int
    text: str

    @property
    def hash(self) -> str:
        """Of the text. A label that was given by reading belongs to this text alone."""
        return xxhash.xxh64_hexdigest(self.text.encode())


@dataclass(slots=True, frozen=True)
class Labelled:
    """An answer, and what it is."""

    answer: Answer
    label: Label
    read: bool
    """Somebody has read it. Else the measure was sure."""
    repeats_from: int | None
    """From this character on almost nothing is new. `None` for a good answer."""


@dataclass(slots=True)
class Row:
    """What the detector makes of the answers of one label."""

    answers: int = 0
    stopped: int = 0
    nudged: int = 0
    """A finding, and no stop."""


@dataclass(slots=True)
class Recorded:
    """What the detector makes of all recorded answers."""

    rows: dict[str, Row]
    delays: list[int]
    """Characters from the place where the answer goes in circles to the stop."""
    loop_chars: int
    saved_chars: int
    """Of the characters of all loops: those that would not have been written."""
    differing: list[str]
    """Answers whose findings depend on the cut. There must be none."""
    odd: list[str]
    """Loops that were not stopped, and good answers that were."""

    def goals(self) -> list[tuple[str, float, float, bool]]:
        """(what, value, limit, at least)."""
        good, loops = self.rows["good"], self.rows["loop"]
        return [
            ("good answers of a small model stopped", good.stopped, 0, False),
            ("loops of a small model stopped, share", loops.stopped / max(loops.answers, 1), 0.95, True),
            ("answers of a small model that nobody has labelled", self.rows["disputed"].answers, 0, False),
            ("answers of a small model whose findings depend on the cut", len(self.differing), 0, False),
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "rows": {name: asdict(row) for name, row in self.rows.items()},
            "delay_chars": median(self.delays),
            "loop_chars": self.loop_chars,
            "saved_chars": self.saved_chars,
            "differing": self.differing,
            "odd": self.odd,
        }


def write(answers: Iterable[Answer], folder: Path = FOLDER) -> Path:
    """Write the whole answers. The same answers give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed:
        for answer in answers:
            packed.write(json.dumps(asdict(answer), ensure_ascii=False).encode() + b"\n")
    path = folder / ANSWERS
    path.write_bytes(buffer.getvalue())
    return path


def labels_by_reading(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """What somebody has read, by the ids of the answers."""
    path = folder / READ
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def read(folder: Path = FOLDER) -> list[Labelled]:
    """All recorded answers with their labels."""
    by_reading = labels_by_reading(folder)
    with gzip.open(folder / ANSWERS, "rt", encoding="utf-8") as lines:
        return [labelled(Answer(**json.loads(line)), by_reading) for line in lines]


def labelled(answer: Answer, by_reading: Mapping[str, dict[str, Any]]) -> Labelled:
    """`answer` with its label: what was read, if it was this very text that was read."""
    sure, said = measured(answer.text), by_reading.get(answer.id)
    if said is not None and said["hash"] == answer.hash:
        return Labelled(answer, said["label"], read=True, repeats_from=said["repeats_from"])
    ended = sure.label == "loop" and answer.finish == "stop"  # how much of it was a loop, a reader has to say
    return Labelled(answer, "disputed" if ended else sure.label, read=False, repeats_from=sure.repeats_from)


def measure(answers: Sequence[Labelled], *, every: int = 1) -> Recorded:
    """Show each answer to the detector, in one piece and in pieces of any size."""
    out = Recorded({name: Row() for name in get_args(Label)}, [], 0, 0, [], [])
    for one in answers[::every]:
        row, text = out.rows[one.label], one.answer.text
        found = watch("text", text)
        if found != watch("text", text, random.Random(one.answer.id)):
            out.differing.append(one.answer.id)
        stops = [detection.offset for detection in found if detection.level == "loop"]
        row.answers += 1
        row.stopped += bool(stops)
        row.nudged += bool(found) and not stops
        if one.label in {"loop", "good"} and bool(stops) != (one.label == "loop"):
            out.odd.append(f"{one.answer.id}: {one.label}, {'stopped' if stops else 'not stopped'}")
        if one.label == "loop":
            out.loop_chars += len(text)
            out.saved_chars += len(text) - stops[0] if stops else 0
            if stops and one.repeats_from is not None:
                out.delays.append(stops[0] - one.repeats_from)
    return out


def show(console: Console, results: Recorded, *, explain: bool = False) -> None:
    """A line a label."""
    table = Table(title="recorded answers of a model of 135 million parameters")
    for column in ("label", "answers", "stopped", "nudged only"):
        table.add_column(column, justify="left" if column == "label" else "right")
    for name, row in results.rows.items():
        table.add_row(name, str(row.answers), str(row.stopped), str(row.nudged))
    console.print(table)
    if results.loop_chars:
        console.print(
            f"of the characters of the loops {results.saved_chars / results.loop_chars:.0%} come after the stop;"
            f" median delay {median(results.delays) or 0:+.0f} characters after the first copy"
        )
    for line in results.odd if explain else ():
        console.print(line, markup=False, highlight=False)

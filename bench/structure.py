"""How many loops with structure are ended, and how many good texts that look like them are stopped:
a section of `bench.quality`.

    python -m bench.structure [--seeds 5] [--explain]

Two parts, never mixed: `tuned`, whose wording the rules were tuned on, and `held out`, other words,
sentences, labels and seeds. Good texts come plain and in a fence.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.structure_kinds import LOOPS, QUIET, WORDINGS, looping
from monitor.detectors import ContentRepetition
from monitor.testing.loops import Lists
from monitor.verdicts import Detection

SEEDS = 5
LEAST_CAUGHT = 0.95
MOST_STOPPED = 0.01
PLACES = {"plain": "Here it is:\n\n{}\nThat was it.\n", "fence": "Here it is:\n\n```\n{}\n```\nThat was it.\n"}


@dataclass(slots=True)
class Part:
    """What came of one wording."""

    name: str
    loops: int = 0
    caught: int = 0
    good: int = 0
    stopped: int = 0
    nudged: int = 0
    odd: list[str] = field(default_factory=list[str])
    """Missed, stopped and nudged ones."""
    differing: list[str] = field(default_factory=list[str])
    """Texts whose findings depend on the cut; there must be none."""

    def goals(self) -> list[tuple[str, float, float, bool]]:
        """(what, value, limit, at least)."""
        return [
            (
                f"structured loops caught by a stop, {self.name}, share",
                self.caught / max(self.loops, 1),
                LEAST_CAUGHT,
                True,
            ),
            (
                f"good structured texts stopped, {self.name}, share",
                self.stopped / max(self.good, 1),
                MOST_STOPPED,
                False,
            ),
            (f"structured texts whose findings depend on the cut, {self.name}", len(self.differing), 0, False),
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        counts = {name: getattr(self, name) for name in ("loops", "caught", "good", "stopped", "nudged")}
        return {"part": self.name, **counts, "odd": self.odd, "differing": self.differing}


def watch(text: str, rng: random.Random | None = None) -> list[Detection]:
    """What is found in `text`, all at once or in pieces of any size."""
    detector, found, at = ContentRepetition(), list[Detection](), 0
    while at < len(text):
        size = rng.choice((1, 3, 7, 40, 500, 4096)) if rng else len(text)
        found += detector.feed(text[at : at + size])
        at += size
    return found


def measure(seeds: int = SEEDS, wordings: Mapping[str, Lists] = WORDINGS) -> list[Part]:
    """Every kind, with `seeds` texts of each wording."""
    return [_measure(name, lists, seeds) for name, lists in wordings.items()]


def _measure(name: str, lists: Lists, seeds: int) -> Part:
    part = Part(name)
    for seed in range(seeds):
        for kind, loop in LOOPS.items():
            rng = random.Random(f"{name} {kind} {seed}")
            text, start = looping(loop, rng, lists)
            found = _watched(part, f"{kind} {seed}", text, rng)
            ended = any(one.level == "loop" and one.offset > start for one in found)
            part.loops += 1
            part.caught += ended
            if not ended or found[0].offset <= start:
                part.odd.append(f"{'early' if ended else 'missed'} {kind} {seed}")
        for kind, make in QUIET.items():
            rng = random.Random(f"{name} {kind} {seed}")
            text = make(rng, lists)
            for place, frame in PLACES.items():
                found = _watched(part, f"{kind} {seed} {place}", frame.format(text), rng)
                stopped = any(one.level == "loop" for one in found)
                part.good += 1
                part.stopped += stopped
                part.nudged += bool(found) and not stopped
                part.odd += (
                    [f"{'stopped' if stopped else 'nudged'} {kind} {seed} {place}: {found[0].kind}"] if found else []
                )
    return part


def _watched(part: Part, name: str, text: str, rng: random.Random) -> list[Detection]:
    found = watch(text)
    if found != watch(text, rng):
        part.differing.append(name)
    return found


def show(console: Console, parts: Sequence[Part], *, explain: bool = False) -> None:
    """A row for each part."""
    table = Table(
        title=f"loops with structure ({len(LOOPS)} kinds), good texts that look like them ({len(QUIET)} kinds)"
    )
    for column in ("wording", "loops", "caught", "good texts", "stopped", "nudged"):
        table.add_column(column, justify="left" if column == "wording" else "right")
    for part in parts:
        table.add_row(
            part.name, *(str(getattr(part, name)) for name in ("loops", "caught", "good", "stopped", "nudged"))
        )
    console.print(table)
    for part in parts if explain else ():
        for line in part.odd + part.differing:
            console.print(f"{part.name}: {line}", markup=False, highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.structure", description="Loops with structure, and what looks like them."
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="texts of each kind and wording")
    parser.add_argument("--explain", action="store_true", help="name what was missed, stopped or nudged")
    options = parser.parse_args(arguments)
    parts = measure(options.seeds)
    show(Console(width=150), parts, explain=options.explain)
    goals = [goal for part in parts for goal in part.goals()]
    return 0 if all(value >= limit if least else value <= limit for _, value, limit, least in goals) else 1


if __name__ == "__main__":
    sys.exit(main())

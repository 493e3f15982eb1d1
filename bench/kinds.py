"""Quality on kinds of text that no recorded run holds, made from seeds: the section of
`bench.quality` that no rule was tuned to a text of.

Good texts come plain, in a fence and as the arguments of a call; floods begin in several places
behind healthy text. The seeds are others than those of the tests.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.made import FLOODS, LISTS, TEXTS
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCallDelta
from monitor.detectors import ContentRepetition
from monitor.testing.loops import OPENINGS, flood_of, text_of
from monitor.verdicts import Detection

SEEDS = 5
FLOOD_CHARS = 40_000
PLACES = ("plain", "fence", "arguments")
CHANNELS = ("text", "reasoning", "arguments")


@dataclass(slots=True)
class Good:
    """One kind of good text: how often it was stopped, and how often nudged and not stopped."""

    texts: int = 0
    stops: int = 0
    nudges: int = 0


@dataclass(slots=True)
class Flood:
    """One kind of loop: how many were ended, and how many characters after the third round."""

    texts: int = 0
    stops: int = 0
    delays: list[int] = field(default_factory=list[int])
    first: list[int] = field(default_factory=list[int])
    """The same for the first finding of any level."""


@dataclass(slots=True)
class Kinds:
    """What came of all kinds."""

    good: dict[str, Good]
    borderline: dict[str, Good]
    floods: dict[str, Flood]
    differing: list[str]
    """Texts whose findings depend on the cut; there must be none."""

    def goals(self) -> list[tuple[str, float, float, bool]]:
        """(what, value, limit, at least)."""
        return [
            ("good texts of made kinds stopped", sum(good.stops for good in self.good.values()), 0, False),
            ("made borderline texts stopped", sum(good.stops for good in self.borderline.values()), 0, False),
            ("made floods ended, share", self._ended(), 1.0, True),
            ("made texts whose findings depend on the cut", len(self.differing), 0, False),
        ]

    def _ended(self) -> float:
        return sum(flood.stops for flood in self.floods.values()) / max(
            sum(flood.texts for flood in self.floods.values()), 1
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        floods = {
            kind: {
                "texts": flood.texts,
                "stops": flood.stops,
                "delay": median(flood.delays),
                "first": median(flood.first),
            }
            for kind, flood in self.floods.items()
        }
        good, borderline = (
            {kind: asdict(one) for kind, one in kinds.items()} for kinds in (self.good, self.borderline)
        )
        return {"good": good, "borderline": borderline, "floods": floods, "differing": self.differing}


def median(values: Sequence[int]) -> float | None:
    """`None` of nothing."""
    return statistics.median(values) if values else None


def chunk(channel: str, text: str) -> Chunk:
    """`text` as the next of `channel`."""
    if channel == "arguments":
        return ToolCallDelta("a", "write_file", text)
    return ReasoningDelta(text) if channel == "reasoning" else TextDelta(text)


def watch(channel: str, text: str, rng: random.Random | None = None) -> list[Detection]:
    """What is found in `text`, all at once or in pieces of any size."""
    detector, found, at = ContentRepetition(), list[Detection](), 0
    while at < len(text):
        size = rng.choice((1, 3, 4, 16, 70, 900)) if rng else len(text)
        found += detector.observe(chunk(channel, text[at : at + size]))
        at += size
    return found


def measure(seeds: int = SEEDS) -> Kinds:
    """Every kind, with `seeds` texts each."""
    results = Kinds({}, {}, {}, [])
    for kind, made in TEXTS.items():
        rows = results.good if made["group"] == "good" else results.borderline
        row = rows[kind] = Good()
        for seed in range(seeds):
            rng = random.Random(f"bench {kind} {seed}")
            text = text_of(made, rng, LISTS)
            for place in PLACES:
                _count(row, _watched(results, f"{kind} {seed} {place}", place, text, rng))
    for kind, made in FLOODS.items():
        flood = results.floods[kind] = Flood()
        for seed in range(seeds):
            for channel in CHANNELS if made["group"] == "data" else CHANNELS[:2]:
                rng = random.Random(f"bench {kind} {channel} {seed}")
                opening = list(OPENINGS.values())[seed % len(OPENINGS)]
                text, ends = flood_of(made, rng, LISTS, chars=FLOOD_CHARS, opening=opening)
                found = watch(channel, text)
                if found != watch(channel, text, rng):
                    results.differing.append(f"{kind} {seed} {channel}")
                _time(flood, [finding for finding in found if finding.offset >= ends[0]], ends[min(2, len(ends) - 1)])
    return results


def _watched(results: Kinds, name: str, place: str, text: str, rng: random.Random) -> list[Detection]:
    channel = "arguments" if place == "arguments" else "text"
    whole = {
        "plain": f"Here it is:\n\n{text}\nThat was it.\n",
        "fence": f"Here it is:\n\n```\n{text}\n```\nThat was it.\n",
    }.get(place, text)
    found = watch(channel, whole)
    if found != watch(channel, whole, rng):
        results.differing.append(name)
    return found


def _count(row: Good, found: Sequence[Detection]) -> None:
    stopped = any(finding.level == "loop" for finding in found)
    row.texts += 1
    row.stops += stopped
    row.nudges += bool(found) and not stopped


def _time(flood: Flood, found: Sequence[Detection], third: int) -> None:
    flood.texts += 1
    loops = [finding.offset for finding in found if finding.level == "loop"]
    if loops:
        flood.stops += 1
        flood.delays.append(loops[0] - third)
    if found:
        flood.first.append(found[0].offset - third)


def show(console: Console, results: Kinds) -> None:
    """The kinds that were disturbed, and all floods."""
    table = Table(title="good texts of made kinds (those that were disturbed)")
    for column in ("kind", "texts", "stopped", "nudged"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for kinds, name in ((results.good, ""), (results.borderline, " (borderline)")):
        for kind, row in kinds.items():
            if row.stops or row.nudges:
                table.add_row(kind + name, str(row.texts), str(row.stops), str(row.nudges))
        total = [sum(getattr(row, what) for row in kinds.values()) for what in ("texts", "stops", "nudges")]
        table.add_row(f"all {len(kinds)} kinds{name}", *map(str, total))
        table.add_section()
    console.print(table)
    table = Table(title="floods of made kinds: characters after the third round, medians")
    for column in ("kind", "texts", "ended", "first finding", "stop"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for kind, flood in results.floods.items():
        table.add_row(
            kind, str(flood.texts), str(flood.stops), _signed(median(flood.first)), _signed(median(flood.delays))
        )
    every = Flood(
        *(sum(getattr(flood, what) for flood in results.floods.values()) for what in ("texts", "stops")),
        *(
            [delay for flood in results.floods.values() for delay in getattr(flood, what)]
            for what in ("delays", "first")
        ),
    )
    table.add_section()
    table.add_row(
        "all", str(every.texts), str(every.stops), _signed(median(every.first)), _signed(median(every.delays))
    )
    console.print(table)


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.0f}"

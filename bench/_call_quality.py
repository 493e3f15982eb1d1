"""Quality on made sequences of calls: how many loops were caught, and how much good work was
stopped.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.made import LISTS, RUNS
from monitor.detectors import default_detectors
from monitor.detectors.detector import is_request_reader
from monitor.testing.loops import chunks_of, run_of
from monitor.verdicts import Detection

SEEDS = 5
CAUGHT = 0.95
STOPPED = 0.01


@dataclass(slots=True)
class Kind:
    """What came of one kind."""

    runs: int = 0
    stops: int = 0
    nudges: int = 0
    """Suspected, and not stopped."""


@dataclass(slots=True)
class MadeCalls:
    """What came of all kinds."""

    loops: dict[str, Kind]
    good: dict[str, Kind]

    def goals(self) -> list[tuple[str, float, float, bool]]:
        """(what, value, limit, at least)."""
        return [
            ("made loops of calls stopped, share", _share(self.loops), CAUGHT, True),
            ("good runs of made calls stopped, share", _share(self.good), STOPPED, False),
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            name: {kind: asdict(one) for kind, one in kinds.items()}
            for name, kinds in (("loops", self.loops), ("good", self.good))
        }


def _share(kinds: dict[str, Kind]) -> float:
    return sum(kind.stops for kind in kinds.values()) / max(sum(kind.runs for kind in kinds.values()), 1)


def watch(kind: str, rng: random.Random) -> list[Detection]:
    """What the default detectors find in one run. Some kinds have a request."""
    detectors = default_detectors()
    for reader in filter(is_request_reader, detectors) if "request" in RUNS[kind] else ():
        reader.request(RUNS[kind]["request"])
    chunks = chunks_of(run_of(RUNS[kind], rng, LISTS))
    return [found for _, chunk in chunks for detector in detectors for found in detector.observe(chunk)]


def measure(seeds: int = SEEDS) -> MadeCalls:
    """Every kind, with `seeds` runs each."""
    results = MadeCalls({}, {})
    for kind, made in RUNS.items():
        rows = results.loops if made["group"] == "loop" else results.good
        row = rows[kind] = Kind()
        for seed in range(seeds):
            found = watch(kind, random.Random(f"bench calls {kind} {seed}"))
            stopped = any(finding.level == "loop" for finding in found)
            row.runs += 1
            row.stops += stopped
            row.nudges += bool(found) and not stopped
    return results


def show(console: Console, results: MadeCalls) -> None:
    """The kinds that were missed or disturbed, and the sums."""
    table = Table(title="made runs of calls (loops that were missed, good runs that were disturbed)")
    for column in ("kind", "runs", "stopped", "nudged"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for name, kinds in (("loop", results.loops), ("good", results.good)):
        for kind, row in kinds.items():
            if row.stops < row.runs if name == "loop" else row.stops or row.nudges:
                table.add_row(f"{name}: {kind}", str(row.runs), str(row.stops), str(row.nudges))
        total = [sum(getattr(row, what) for row in kinds.values()) for what in ("runs", "stops", "nudges")]
        table.add_row(f"all {len(kinds)} kinds of {name}", *map(str, total))
        table.add_section()
    console.print(table)

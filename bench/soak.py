"""Runs with random faults: does each of them end once, for a true reason, in time, and leave
nothing behind?

    python -m bench.soak [--runs 2000] [--seed 1] [--only 17] [--quick]

Models, tools, detectors, policies, sinks and callers that fail, hang, stall, abort and cancel at
random instants, alone and in twos, in runs and in runs inside of runs, on asyncio and on trio, by a
simulated clock; then the real google-genai SDK against a local server that counts its connections.
A seed and a number make one run again: `--seed 1 --only 17`. Exits with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import _report
from bench._quiet import quiet
from bench._soak_faults import FAULTS
from bench._soak_run import Result, SoakedRun, soak
from bench._soak_sdk import soak_sdk

RUNS = 2_000
SDK_RUNS = 72
"""On each of three transports."""
SEED = 1
SHOWN = 20
FILES = Path("/proc/self/fd")

_console = Console(width=150)


@dataclass
class Results:
    """What became of all runs."""

    seed: int
    runs: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    files_left: int = 0

    @property
    def wrong(self) -> list[Result]:
        return [run for run in self.runs if run.violations]

    @property
    def passed(self) -> bool:
        return not self.wrong and not self.files_left

    def table(self) -> dict[str, Counter[str]]:
        """How runs with a fault ended. One with two faults stands under both."""
        found: dict[str, Counter[str]] = {}
        for run in self.runs:
            for fault in run.faults:
                found.setdefault(fault, Counter())[run.reason] += 1
        return dict(sorted(found.items(), key=lambda row: _place(row[0])))

    def to_dict(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "runs": len(self.runs),
            "seconds": round(self.seconds, 1),
            "backends": dict(Counter(run.backend for run in self.runs)),
            "reasons": dict(Counter(run.reason for run in self.runs).most_common()),
            "faults": {
                fault: dict(reasons.most_common())
                for fault, reasons in sorted(self.table().items(), key=lambda row: _place(row[0]))
            },
            "files_left": self.files_left,
            "wrong": [{"number": run.number, "faults": run.faults, "violations": run.violations} for run in self.wrong],
        }


def measure(seed: int, numbers: Iterable[int], *, sdk_runs: int) -> Results:
    """All runs with these numbers, then `sdk_runs` on each transport of the SDK."""
    results = Results(seed)
    begun = time.perf_counter()
    files = _open_files()
    with quiet("monitor.sinks", "trio.async_generator_errors", "asyncio"):
        results.runs += [soak(seed, number) for number in numbers]
        if sdk_runs:
            results.runs += soak_sdk(seed, sdk_runs)
    results.files_left = max(0, _open_files() - files)
    results.seconds = time.perf_counter() - begun
    return results


def _open_files() -> int:
    """0 where the system does not tell."""
    return sum(1 for _ in FILES.iterdir()) if FILES.exists() else 0


def show(results: Results) -> None:
    """As a table: faults by reasons."""
    table = Table(
        "fault", "runs", "ended with", title=f"{len(results.runs)} runs, seed {results.seed}, {results.seconds:.0f} s"
    )
    for fault, reasons in results.table().items():
        table.add_row(
            fault, str(reasons.total()), ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
        )
    _console.print(table)
    for run in results.wrong[:SHOWN]:
        _console.print(
            f"WRONG  run {run.number} on {run.backend} with {', '.join(run.faults)}: {'; '.join(run.violations)}"
        )
    if results.files_left:
        _console.print(f"WRONG  {results.files_left} files or sockets are left open")
    _console.print(
        f"{'PASS' if results.passed else 'FAIL'}  {len(results.wrong)} of {len(results.runs)} runs ended otherwise than"
        " they should"
    )


def _place(fault: str) -> tuple[int, str]:
    return (FAULTS.index(fault) if fault in FAULTS else len(FAULTS), fault)


def _show_one(seed: int, number: int) -> None:
    """The events of one run."""
    run = SoakedRun(seed, number)
    result = run.play()
    for event in run.seen.events:
        _console.print(f"{event.at_s:10.3f}  {event}", overflow="ellipsis", no_wrap=True, markup=False)
    _console.print(f"{result.backend}, {', '.join(result.faults)}: {result.reason} {result.violations or ''}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, print, write; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", type=int, help="this run alone, with its events; writes nothing")
    parser.add_argument("--quick", action="store_true", help="few runs, to see that it works; writes nothing")
    options = parser.parse_args(arguments)
    if options.only is not None:
        _show_one(options.seed, options.only)
        return 0
    results = measure(
        options.seed, range(100 if options.quick else options.runs), sdk_runs=18 if options.quick else SDK_RUNS
    )
    show(results)
    if not options.quick:
        _report.write("soak", results.to_dict())
    return 0 if results.passed else 1


if __name__ == "__main__":
    sys.exit(main())

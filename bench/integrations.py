"""Each agent framework under the guard: what still comes after the decision, when its server sees
the client leave, and what the guard adds to a chunk.

    python -m bench.integrations [--quick] [--also PYTHON]

Every framework asks a local server over HTTP, through the provider's real SDK. *Closing*: the model
chants, the guard stops it. *Chunks*: an answer of many chunks that the server sends without a
pause, read with the guard and without it, in turns, in one run. A framework that is not installed
has no row. `--also` names the Python of another environment, for frameworks that cannot stand
beside the others. Exits with 1 if a connection stayed open.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

import monitor
from bench import _report
from bench._close_cases import UNSEEN_S
from bench._close_sdks import COUNTED
from bench._quiet import quiet
from bench.frameworks.base import Framework, frameworks, installed
from monitor.errors import TerminateReason
from monitor.events import Event, StopDecided
from monitor.testing.local_server import LocalServer

ROOT = Path(__file__).parents[1]
GOAL_MS = 50.0
_console = Console(width=130)


@dataclass(slots=True)
class Sizes:
    """How often each is done."""

    closings: int = 20
    rounds: int = 8
    chunks: int = 2_000
    """Of an answer that is read to its end."""


QUICK = Sizes(closings=2, rounds=2)


@dataclass(slots=True)
class Closing:
    """One run that was stopped."""

    reason: str | None
    closed: bool
    chunks_after: int
    """What the guard read from the framework after the decision."""
    sent_after: int
    """Events that the server sent after the decision: it cannot know of it sooner."""
    seen_after_ms: float | None
    """From the decision until the server saw that the client had left."""


@dataclass(slots=True)
class Row:
    """One framework."""

    module: str
    """Of `bench.frameworks`."""
    name: str
    packages: dict[str, str]
    closings: int
    wrong: int
    chunks_after: int
    sent_after: int
    seen_ms: float | None
    """The median."""
    seen_ms_most: float | None
    chunks: int
    bare_us: float
    """Microseconds a chunk without the guard; the median of all rounds."""
    guarded_us: float
    added_us: float
    ratio: float
    """With the guard, of without it, in the middle of the rounds."""
    """The median of the differences, round by round."""


class _AtDecision:
    """When the guard decided, and what the server had sent by then."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server
        self.at: float | None = None
        self.sent = 0

    def emit(self, event: Event) -> None:
        """Note the decision."""
        if isinstance(event, StopDecided) and self.at is None:
            self.at = time.perf_counter()
            self.sent = self._server.requests[-1].events_sent


async def closed_once(framework: Framework, server: LocalServer, client: Any) -> Closing:
    """One chant, stopped."""
    number, decision = len(server.requests), _AtDecision(server)
    guard = monitor.Guard(sinks=[decision])
    ended = await framework.ask(client, "chants", guard)
    seen_after_ms = None
    try:
        left = await server.wait_closed_async(number, timeout_s=UNSEEN_S)
        if decision.at is not None:
            seen_after_ms = (left.at - decision.at) * 1e3
    except TimeoutError:
        pass
    outcome = guard.outcome
    return Closing(
        ended.reason,
        outcome.closed,
        outcome.chunks_after_decision,
        server.requests[number].events_sent - decision.sent,
        seen_after_ms,
    )


async def chunk_us(framework: Framework, client: Any, chunks: int, *, guarded: bool) -> float:
    """Microseconds of processor time that a chunk of a good answer costs its reader. The server has
    a thread of its own. Garbage is collected outside of the measurement: that takes as long as a
    thousand chunks.
    """
    gc.disable()
    try:
        began = time.thread_time()
        ended = await framework.ask(client, f"{COUNTED}{chunks}", monitor.Guard() if guarded else None)
        took = time.thread_time() - began
    finally:
        gc.enable()
    assert ended.reason is None, ended.reason
    assert len(ended.text.split()) == chunks, f"{framework.name} lost text"
    return took / chunks * 1e6


async def measured(module: str, framework: Framework, sizes: Sizes) -> Row:
    """One framework."""
    with framework.wire.serve() as server:
        async with framework.client(server) as client:
            for guarded in (False, True):  # what is made at the first use is no part of a chunk
                await chunk_us(framework, client, sizes.chunks, guarded=guarded)
            closings = [await closed_once(framework, server, client) for _ in range(sizes.closings)]
            pairs = []
            for number in range(sizes.rounds):
                order = (False, True) if number % 2 else (True, False)
                times = {on: await chunk_us(framework, client, sizes.chunks, guarded=on) for on in order}
                pairs.append((times[False], times[True]))
    seen = sorted(one.seen_after_ms for one in closings if one.seen_after_ms is not None)
    loop = TerminateReason.LOOP_DETECTED.value
    return Row(
        module,
        framework.name,
        installed(framework.packages) or {},
        len(closings),
        sum(one.reason != loop or not one.closed or one.seen_after_ms is None for one in closings),
        max(one.chunks_after for one in closings),
        max(one.sent_after for one in closings),
        round(median(seen), 2) if seen else None,
        round(seen[-1], 2) if seen else None,
        sizes.chunks,
        round(median(bare for bare, _ in pairs), 1),
        round(median(guarded for _, guarded in pairs), 1),
        round(median(guarded - bare for bare, guarded in pairs), 1),
        round(median(guarded / bare for bare, guarded in pairs), 3),
    )


@dataclass(slots=True)
class Results:
    """All rows."""

    rows: list[Row]
    missing: list[str]
    """Modules of `bench.frameworks` whose framework is not installed."""

    def goals(self) -> list[dict[str, Any]]:
        """What was promised, and what came of it."""
        wanted = [
            ("runs that were not stopped, or not closed", sum(row.wrong for row in self.rows), 0),
            ("chunks read after the decision", max((row.chunks_after for row in self.rows), default=0), 0),
            ("cost of a chunk beside the bare framework", max((row.ratio for row in self.rows), default=1.0), 1.15),
            ("latest close as the server saw it, ms", max((row.seen_ms_most or 0 for row in self.rows), default=0), 50),
        ]
        return [
            {"goal": what, "value": value, "limit": limit, "passed": value <= limit} for what, value, limit in wanted
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"rows": [asdict(row) for row in self.rows], "missing": self.missing, "goals": self.goals()}


def measure(sizes: Sizes | None = None, only: Sequence[str] | None = None) -> Results:
    """All frameworks that are installed; `only`: of these modules."""
    rows = {name: row for name, row in frameworks().items() if only is None or name in only}
    with quiet("monitor.sinks"):
        made = [asyncio.run(measured(name, row, sizes or Sizes())) for name, row in rows.items() if row is not None]
    return Results(made, [name for name, row in rows.items() if row is None])


def elsewhere(python: str, only: Sequence[str], *, quick: bool) -> list[Row]:
    """The rows of another environment."""
    command = [python, "-m", "bench.integrations", "--json", *(["--quick"] if quick else []), "--only", *only]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


def show(results: Results) -> None:
    """As a table."""
    table = Table(title="frameworks under the guard")
    for column in (
        "framework", "wrong", "chunks read\nafter", "events sent\nafter", "server saw it\nms, median", "most",
        "us a chunk\nwithout", "with", "added", "ratio",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column == "framework" else "right", no_wrap=True)
    for row in results.rows:
        first = next(iter(row.packages.items()), ("", ""))
        cells = (row.chunks_after, row.sent_after, row.seen_ms, row.seen_ms_most)
        times = (row.bare_us, row.guarded_us, row.added_us, row.ratio)
        table.add_row(f"{row.name} {first[1]}", f"{row.wrong}/{row.closings}", *map(str, (*cells, *times)))
    _console.print(table)
    if results.missing:
        _console.print(f"not installed here: {', '.join(results.missing)}")
    for goal in results.goals():
        _console.print(
            f"{'PASS' if goal['passed'] else 'FAIL'}  {goal['goal']}: {goal['value']} (at most {goal['limit']})"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 if a run was not stopped, or a connection stayed open."""
    parser = argparse.ArgumentParser(prog="python -m bench.integrations", description="Frameworks under the guard.")
    parser.add_argument("--quick", action="store_true", help="two of each, to see that it works; writes nothing")
    parser.add_argument("--also", metavar="PYTHON", action="append", default=[], help="of another environment")
    parser.add_argument("--only", nargs="*", help="modules of bench.frameworks")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON and nothing else")
    options = parser.parse_args(arguments)
    results = measure(QUICK if options.quick else None, options.only)
    if options.json:
        print(json.dumps([asdict(row) for row in results.rows]))
        return 0
    for python in options.also:
        results.rows += elsewhere(python, results.missing, quick=options.quick)
    results.missing = sorted({*results.missing} - {row.module for row in results.rows})
    show(results)
    if not options.quick:
        _report.write("integrations", results.to_dict())
    return 0 if not any(row.wrong for row in results.rows) else 1


if __name__ == "__main__":
    sys.exit(main())

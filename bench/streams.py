"""How many streams one process holds, whether one that floods takes the others' time, and how many
workers a fleet needs.

    python -m bench.streams [--quick]

Four measurements on asyncio, then arithmetic over them:

- **Capacity**: more and more streams, each with 50 chunks a second at its own times. A chunk is
  late by the time from its due moment until its source is woken. The plain loop stands beside the
  watched one.
- **Fairness**: 200 streams with ten chunks a second, beside one that never waits.
- **Memory** of a stream in progress, by the growth of the process.
- **Quiet**: 5,000 streams that send a chunk each second.

Lateness is that of a core which does nothing else, whatever the machine does: the clock of the
event loop is the thread's processor time, and a wait takes no time but moves the clock (`_Core`).

The workers that a fleet needs follow from these figures and from the cost of a commit
(`bench/_cost_model.py`), by arithmetic and by a simulation of 100,000 sessions.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import selectors
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.table import Table

import monitor
from bench import _cost_model, _report
from bench.stream import FULL, LIMITS, QUICK, _p99, _pieces, _quiets, _text

T = TypeVar("T")

PACE: Final = 50
"""Chunks a second of a busy stream."""
LATE_MS: Final = 10.0
RAMP_S: Final = 1.0
"""All streams begin within so many seconds."""
_console = Console(width=140)
_PIECES: Final = _pieces(_text(200_000))


class _Waits(selectors.DefaultSelector):
    """Moves the clock of its loop instead of waiting."""

    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout is not None and timeout > 0:
            self.skipped_s += timeout
        return ready


class _Core(asyncio.SelectorEventLoop):
    """An event loop on a core of its own: time is what this thread works, and what it waits."""

    def __init__(self) -> None:
        self._waits = _Waits()
        super().__init__(self._waits)

    def time(self) -> float:
        """Seconds."""
        return time.thread_time() + self._waits.skipped_s


@dataclass
class Load:
    """So many streams at once."""

    streams: int
    watched: bool
    chunks: int
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """Processor time of a chunk, with the source and its timer."""
    cpu_share: float
    """Of one core."""


@dataclass
class Fairness:
    """Streams beside one that floods."""

    streams: int
    flooded: bool
    p50_ms: float
    p99_ms: float
    flood_chunks: int


@dataclass
class Results:
    """Everything that was measured."""

    loads: list[Load]
    fairness: list[Fairness]
    memory_kb: float
    quiet: dict[str, Any]
    costs: _cost_model.Costs
    workers: list[_cost_model.Need] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


async def _paced(
    number: int, streams: int, pace: float, seconds: float, late: list[float]
) -> AsyncGenerator[str, None]:
    """Chunks at the stream's own times. The streams begin one after the other within `RAMP_S`; what
    comes late meanwhile is not counted.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    first = began + number / streams * RAMP_S + number / streams / pace
    for index in range(int((RAMP_S + seconds - number / streams * RAMP_S) * pace)):
        due = first + index / pace
        await asyncio.sleep(due - loop.time())
        if due > began + RAMP_S + 1 / pace:
            late.append(loop.time() - due)
        yield _PIECES[(number * 31 + index) % len(_PIECES)]


async def _read(source: AsyncGenerator[str, None], watched: bool) -> int:  # noqa: FBT001 - the two kinds of one row
    count = 0
    if not watched:
        async for _ in source:
            count += 1
        return count
    async with monitor.watch(source, stop_when=LIMITS) as stream:
        async for _ in stream:
            count += 1
    return count


async def _load(streams: int, seconds: float, *, watched: bool) -> Load:
    late: list[float] = []
    gc.collect()
    began = time.process_time(), asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_read(_paced(number, streams, PACE, seconds, late), watched)) for number in range(streams)
        ]
    cpu, took = time.process_time() - began[0], asyncio.get_running_loop().time() - began[1]
    chunks = sum(task.result() for task in tasks)
    return Load(
        streams,
        watched,
        chunks,
        round(median(late) * 1e3, 2),
        round(_p99(late) * 1e3, 2),
        round(cpu / chunks * 1e6, 1),
        round(cpu / took, 2),
    )


async def _loads(counts: Sequence[int], seconds: float) -> list[Load]:
    return [await _load(streams, seconds, watched=watched) for streams in counts for watched in (False, True)]


def _held(loads: Sequence[Load]) -> Load:
    """The most streams that a core holds: few of their chunks come too late."""
    watched = [load for load in loads if load.watched]
    return [load for load in watched if load.p99_ms < LATE_MS or load is watched[0]][-1]


async def _floods(stop: Callable[[], bool]) -> AsyncGenerator[str, None]:
    index = 0
    while not stop():
        index += 1
        yield _PIECES[index % len(_PIECES)]


async def _fair(streams: int, seconds: float, *, flooded: bool) -> Fairness:
    late: list[float] = []
    over = False

    async def all_paced() -> None:
        nonlocal over
        async with asyncio.TaskGroup() as group:
            for number in range(streams):
                group.create_task(_read(_paced(number, streams, 10, seconds, late), watched=True))
        over = True

    async with asyncio.TaskGroup() as group:
        group.create_task(all_paced())
        flood = group.create_task(_read(_floods(lambda: over), watched=True)) if flooded else None
    return Fairness(
        streams,
        flooded,
        round(median(late) * 1e3, 2),
        round(_p99(late) * 1e3, 2),
        flood.result() if flood is not None else 0,
    )


async def _fairness(streams: int, seconds: float) -> list[Fairness]:
    return [await _fair(streams, seconds, flooded=flooded) for flooded in (False, True)]


def _resident_kb() -> float:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * 4.0


async def _memory_kb(streams: int) -> float:
    """Of a watched stream that has read 2,000 characters, with its task and its source."""
    here, go, all_here = 0, asyncio.Event(), asyncio.Event()

    async def one() -> None:
        nonlocal here

        async def source() -> AsyncGenerator[str, None]:
            for piece in _PIECES[:500]:
                yield piece
            await go.wait()

        async with monitor.watch(source(), stop_when=LIMITS) as watched:
            for _ in range(500):
                await anext(watched)
            here += 1
            if here == streams:
                all_here.set()
            await go.wait()

    gc.collect()
    before = _resident_kb()
    async with asyncio.TaskGroup() as group:
        for _ in range(streams):
            group.create_task(one())
        await all_here.wait()
        gc.collect()
        held = _resident_kb() - before
        go.set()
    return round(held / streams, 1)


def _run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=_Core) as runner:
        return runner.run(work)


def measure(*, quick: bool) -> Results:
    """All of it."""
    plan = QUICK if quick else replace(FULL, quiet_chunks=5)
    counts, seconds = ((10, 20), 0.2) if quick else ((200, 400, 600, 800, 1_000), 1.0)
    loads = _run(_loads(counts, seconds))
    fairness = _run(_fairness(20 if quick else 200, 0.3 if quick else 2.0))
    memory_kb = asyncio.run(_memory_kb(50 if quick else 2_000))
    quiet = asyncio.run(_quiets(plan)).to_dict()
    costs = _cost_model.costs(chunk_us=_held(loads).cpu_us, stream_kb=memory_kb)
    needs = [_cost_model.simulated(costs, _cost_model.Fleet(*((1_000, 36.0) if quick else (100_000, 3_600.0))))]
    return Results(loads, fairness, memory_kb, quiet, costs, needs)


def show(results: Results) -> None:
    """As tables."""
    table = Table(
        "streams", "", "chunks", "late, p50 ms", "p99 ms", "cpu us a chunk", "of a core", title=f"{PACE} chunks/s each"
    )
    for load in results.loads:
        kind = "watched" if load.watched else "plain"
        times = (f"{load.p50_ms:.2f}", f"{load.p99_ms:.2f}", f"{load.cpu_us:.1f}", f"{load.cpu_share:.0%}")
        table.add_row(str(load.streams), kind, f"{load.chunks:,}", *times)
    _console.print(table)
    table = Table(
        "streams",
        "late, p50 ms",
        "p99 ms",
        "chunks of the flood",
        title="Ten chunks/s each",
    )
    for row in results.fairness:
        beside = " beside a flood" if row.flooded else ""
        late = (f"{row.p50_ms:.2f}", f"{row.p99_ms:.2f}")
        table.add_row(f"{row.streams}{beside}", *late, f"{row.flood_chunks:,}")
    _console.print(table)
    held = _held(results.loads)
    chunk_us = held.cpu_us
    _console.print(
        f"a core holds {held.streams} streams, {held.streams * PACE:,} chunks/s;"
        f" {LATE_MS * 1e3 / chunk_us:,.0f} chunks of one moment take {LATE_MS:g} ms"
    )
    quiet = results.quiet
    _console.print(
        f"memory of a stream: {results.memory_kb:g} KB; {quiet['streams']:,} quiet streams: {quiet['times']:.2f} times"
        " plain asyncio's processor time"
    )
    for need in results.workers:
        _console.print("\n".join(need.lines()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.streams", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--quick", action="store_true", help="little of everything; writes nothing")
    options = parser.parse_args(arguments)
    results = measure(quick=options.quick)
    show(results)
    if not options.quick:
        _report.write("streams", results.to_dict())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How many workers a fleet needs: by arithmetic over measured costs, and by a simulation.

A worker is one process on one core. It runs at most `slots` sessions at once. Each turn streams an
answer, commits once, and then waits for its tools. All costs come from the committed results of the
benches; what a fleet does (`Fleet`) is an assumption, which a user replaces.
"""

from __future__ import annotations

import heapq
import json
import math
import random
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any, Final

from bench._report import RESULTS

SHARE: Final = 0.6
"""The part of a core that a worker may use on the average, so that a burst finds room."""
BIN_S: Final = 5.0
"""The load of a worker is summed up over so many seconds."""


@dataclass(frozen=True)
class Costs:
    """What was measured."""

    chunk_us: float
    """Processor time of a chunk: reading, decoding, detection (`bench.streams`)."""
    set_up_us: float
    """Of a stream: making, opening, closing (`bench.stream`)."""
    stream_kb: float
    """Memory of a stream in progress (`bench.streams`)."""
    commits_per_s: float
    """Commits of one disk, one at a time (`bench.sessions`)."""
    commit_ms: float
    """The middle of their times."""


@dataclass(frozen=True)
class Fleet:
    """What a fleet does: assumptions. The default: 100,000 sessions that begin within an hour."""

    sessions: int = 100_000
    within_s: float = 3_600.0
    turns: int = 10
    chunks: int = 400
    """Chunks of an answer, on the average."""
    chunks_per_s: float = 60.0
    tools_s: float = 8.0
    """Time of the tools of a turn, on the average."""
    slots: int = 200
    """Sessions that one worker runs at once."""


@dataclass(frozen=True)
class Need:
    """The workers that a fleet needs, and why."""

    fleet: Fleet
    sessions_at_once: float
    chunks_per_s: float
    commits_per_s: float
    workers_for_slots: float
    workers_for_cpu: float
    disks: float
    """Disks of the measured kind that the commits need, one commit at a time."""
    workers: int
    """What the simulation needs: no session waits longer than a second at p99, and no worker uses
    more than 80 % of its core in a window of five seconds at p99.
    """
    start_wait_p99_s: float
    core_mean: float
    core_p99: float
    commits_p99_per_s: float
    memory_mb: float
    """Of the streams of one worker."""

    def lines(self) -> list[str]:
        """For people."""
        fleet = self.fleet
        return [
            f"{fleet.sessions:,} sessions within {fleet.within_s:,.0f} s, each of {fleet.turns} turns:",
            f"  at once {self.sessions_at_once:,.0f}; {self.chunks_per_s:,.0f} chunks/s",
            f"  {self.commits_per_s:,.0f} commits/s, at p99 {self.commits_p99_per_s:,.0f}",
            f"  workers by arithmetic: {self.workers_for_slots:.1f} for slots, {self.workers_for_cpu:.1f} for cores",
            f"  disks for the commits: {self.disks:.2f}",
            f"  simulated: {self.workers} workers, a session waits {self.start_wait_p99_s:.1f} s at p99",
            f"  a core is used {self.core_mean:.0%}, at p99 {self.core_p99:.0%}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def costs(*, chunk_us: float | None = None, stream_kb: float | None = None) -> Costs:
    """The committed results; those that were just measured are given."""
    if chunk_us is None or stream_kb is None:
        own = _results("streams")["costs"]
        chunk_us, stream_kb = own["chunk_us"], own["stream_kb"]
    crowd = next(row for row in _results("stream")["crowds"] if row["backend"] == "asyncio")
    commit = next(row for row in _results("sessions")["speed"] if row["what"] == "session, 1 runs")
    return Costs(chunk_us, crowd["set_up_us"], stream_kb, commit["per_s"], commit["p50_ms"])


def _results(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return read


def simulated(cost: Costs, fleet: Fleet) -> Need:
    """The smallest number of workers that passes, from the arithmetic on upwards."""
    turn_s = fleet.chunks / fleet.chunks_per_s + fleet.tools_s
    rate = fleet.sessions / fleet.within_s
    at_once = rate * fleet.turns * turn_s
    cpu_s = fleet.turns * (fleet.chunks * cost.chunk_us + cost.set_up_us + cost.commit_ms * 1e3) / 1e6
    for_slots, for_cpu = at_once / fleet.slots, rate * cpu_s / SHARE
    workers = max(1, math.ceil(max(for_slots, for_cpu)))
    while True:
        run = _Simulation(cost, fleet, workers)
        if run.start_wait_p99_s <= 1.0 and run.core_p99 <= 0.8:
            break
        workers = math.ceil(workers * 1.05)
    return Need(
        fleet=fleet,
        sessions_at_once=at_once,
        chunks_per_s=rate * fleet.turns * fleet.chunks,
        commits_per_s=rate * fleet.turns,
        workers_for_slots=for_slots,
        workers_for_cpu=for_cpu,
        disks=rate * fleet.turns / cost.commits_per_s,
        workers=workers,
        start_wait_p99_s=run.start_wait_p99_s,
        core_mean=run.core_mean,
        core_p99=run.core_p99,
        commits_p99_per_s=run.commits_p99_per_s,
        memory_mb=fleet.slots * cost.stream_kb / 1024,
    )


class _Simulation:
    """Sessions come by chance, wait for a slot, and load the core of its worker turn after turn."""

    def __init__(self, cost: Costs, fleet: Fleet, workers: int, seed: int = 19) -> None:
        chance = random.Random(seed)
        slots = [(0.0, number) for number in range(workers * fleet.slots)]
        loads: list[dict[int, float]] = [{} for _ in range(workers)]
        commits: dict[int, int] = {}
        waits: list[float] = []
        now, rate = 0.0, fleet.sessions / fleet.within_s
        fixed_s = (cost.set_up_us + cost.commit_ms * 1e3) / 1e6
        for _ in range(fleet.sessions):
            now += chance.expovariate(rate)
            free_at, slot = slots[0]
            at = max(now, free_at)
            waits.append(at - now)
            load = loads[slot % workers]
            for _ in range(fleet.turns):
                chunks = fleet.chunks * chance.lognormvariate(-0.32, 0.8)  # a mean of 1
                took = chunks / fleet.chunks_per_s
                each = fleet.chunks_per_s * cost.chunk_us / 1e6
                end = at + took
                for index in range(int(at // BIN_S), int(end // BIN_S) + 1):
                    inside = min(end, (index + 1) * BIN_S) - max(at, index * BIN_S)
                    load[index] = load.get(index, 0.0) + inside * each
                last = int(end // BIN_S)
                load[last] = load.get(last, 0.0) + fixed_s
                commits[last] = commits.get(last, 0) + 1
                at = end + chance.expovariate(1 / fleet.tools_s)
            heapq.heapreplace(slots, (at, slot))
        steady = range(int(fleet.within_s / 4 // BIN_S), int(fleet.within_s // BIN_S))
        shares = [load.get(index, 0.0) / BIN_S for load in loads for index in steady]
        self.start_wait_p99_s = _p99(waits)
        self.core_mean = mean(shares)
        self.core_p99 = _p99(shares)
        self.commits_p99_per_s = _p99([commits.get(index, 0) / BIN_S for index in steady])


def _p99(values: list[float]) -> float:
    return sorted(values)[max(0, math.ceil(0.99 * len(values)) - 1)]

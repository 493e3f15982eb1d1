"""What the proxy costs, and how soon it closes, beside a plain relay and LiteLLM's proxy.

    python -m bench.proxy [--litellm .venvs/litellm/bin/python] [--quick]

One service streams chat completions on order; the client reads them directly, and through each
proxy. All moments come from one clock that the processes share. LiteLLM runs from an environment of
its own; `make litellm` makes it.

- *first byte*: from the request to the first byte of the answer, the median and p99.
- *per piece*: from the moment at which the service sends a piece to the moment at which the client
  has it, for one stream and for several at once.
- *processor time per piece*, of the proxy's process alone, for several streams at once. Streams a
  core: how many streams of 100 pieces a second fill one core by this count.
- *a long history*: processor time of the proxy for one of the last 20 of 100 requests. Each
  repeats the history of the one before it and adds 20 KB.
- *close*: until the service sees the connection gone. After the client left within the answer, and
  before its first byte. After the piece of a loop in which the decision falls was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import _report
from bench._proxy_client import FrameContent, ask, log
from bench._proxy_fronts import CHAT, KEY, Front, litellm, ours, plain, upstream, version_of

PACE_S = 0.01
"""100 pieces a second."""
TURN_BYTES = 20_000
"""100 turns are 2 MB."""
UNSEEN_S = 3.0
"""A close that the service has not seen by then counts as not seen."""
GOAL_CLOSE_MS, GOAL_PIECE_US, GOAL_LONG = 50.0, 30.0, 3.0

_TICK_MS = 0.5
"""Processor time is counted in steps of 10 ms, over 20 requests."""

_numbers = count()
_console = Console(width=150)


@dataclass
class Sizes:
    """How much is measured."""

    first: int = 100
    pieces: int = 300
    streams: int = 20
    closes: int = 50
    turns: int = 100


@dataclass
class Row:
    """The measures of one front. Milliseconds, and microseconds where the name says so."""

    name: str
    first_ms: float = 0.0
    first_p99_ms: float = 0.0
    one_ms: float = 0.0
    one_p99_ms: float = 0.0
    many_ms: float = 0.0
    many_p99_ms: float = 0.0
    cpu_us_per_piece: float | None = None
    streams_per_core: int | None = None
    memory_mb: float = 0.0
    left_within_p99_ms: float | None = None
    left_within_unseen: int = 0
    left_before_p99_ms: float | None = None
    left_before_unseen: int = 0
    loop_pieces: float | None = None
    """Pieces that the client got of an answer that loops, of at most 400."""
    loop_p99_ms: float | None = None
    loop_unseen: int = 0
    long_cpu_ms: float | None = None
    """Processor time of one of the last requests of a long history."""
    notes: list[str] = field(default_factory=list)


async def measured(front: Front, service: int, sizes: Sizes) -> Row:
    """All measures of one front."""
    row = Row(front.name)
    await _warm(front)
    answers = [await _asked(front, f"words 5 {PACE_S / 5}") for _ in range(sizes.first)]
    firsts = [(heard.began - heard.asked) * 1e3 for _, heard in answers if heard.began is not None]
    row.first_ms, row.first_p99_ms = median(firsts), _p99(firsts)

    one = await _asked(front, f"words {sizes.pieces} {PACE_S}")
    row.one_ms, row.one_p99_ms = _latency(await log(service), [one])
    cpu = front.cpu_s()
    together = await asyncio.gather(*(_asked(front, f"words {sizes.pieces} {PACE_S}") for _ in range(sizes.streams)))
    used = front.cpu_s() - cpu
    row.many_ms, row.many_p99_ms = _latency(await log(service), together)
    if front.pid:
        row.cpu_us_per_piece = used / (sizes.streams * sizes.pieces) * 1e6
        row.streams_per_core = round(1e6 / (row.cpu_us_per_piece / PACE_S))
        row.memory_mb = front.memory_mb()

        row.long_cpu_ms = await _long_history(front, sizes.turns)

    within = [await _asked(front, "words 500 0.005", leave_after=20) for _ in range(sizes.closes)]
    before = [await _asked(front, "silent 1 0", leave_after=0) for _ in range(sizes.closes)]
    loops = [await _asked(front, "chant 400 0.002") for _ in range(sizes.closes)] if front.pid else []
    await asyncio.sleep(UNSEEN_S)
    seen = await log(service)
    row.left_within_p99_ms, row.left_within_unseen = _closes(seen, within)
    row.left_before_p99_ms, row.left_before_unseen = _closes(seen, before)
    if loops and front.path == CHAT:
        row.loop_pieces = median(len(heard.pieces) for _, heard in loops)
        row.loop_p99_ms, row.loop_unseen = _stops(seen, loops)
    return row


async def _long_history(front: Front, turns: int) -> float:
    """Milliseconds of processor time for one of the last requests of a history that grows by
    `TURN_BYTES` with each.
    """
    history: list[dict[str, str]] = []
    last = max(1, turns // 5)
    cpu = 0.0
    for number in range(turns):
        if number == turns - last:
            cpu = front.cpu_s()
        order = f"r{next(_numbers)} words 5 0"
        await ask(front.port, front.path, order, key=KEY, history=history)
        said = " ".join(f"{number}.{word}" for word in range(TURN_BYTES // 6))[:TURN_BYTES]
        history += [{"role": "user", "content": order}, {"role": "assistant", "content": said}]
    return (front.cpu_s() - cpu) / last * 1e3


async def _warm(front: Front) -> None:
    """The first requests load code."""
    for _ in range(5):
        await _asked(front, "words 5 0")


async def _asked(front: Front, order: str, *, leave_after: int | None = None) -> tuple[str, FrameContent]:
    name = f"r{next(_numbers)}"
    heard = await ask(front.port, front.path, f"{name} {order}", key=KEY, leave_after=leave_after)
    if leave_after is None and not heard.pieces:
        raise RuntimeError(f"{front.name} answered nothing: {heard.end!r}")
    return name, heard


def _latency(seen: dict[str, Any], answers: Sequence[tuple[str, FrameContent]]) -> tuple[float, float]:
    took = [
        (got - sent) * 1e3
        for name, heard in answers
        for sent, got in zip(seen[name]["sent"], heard.pieces, strict=False)
    ]
    return median(took), _p99(took)


def _closes(seen: dict[str, Any], answers: Sequence[tuple[str, FrameContent]]) -> tuple[float | None, int]:
    """The p99 of the closes that the service saw, and how many it did not see."""
    took = [
        (seen[name]["closed"] - heard.left) * 1e3
        for name, heard in answers
        if name in seen and seen[name]["closed"] is not None and heard.left is not None
    ]
    return (_p99(took) if took else None), len(answers) - len(took)


def _stops(seen: dict[str, Any], answers: Sequence[tuple[str, FrameContent]]) -> tuple[float | None, int]:
    """The same for loops, from the moment at which the first piece was sent that the client did not
    get: the decision falls in it.
    """
    took = [
        (served["closed"] - served["sent"][len(heard.pieces)]) * 1e3
        for name, heard in answers
        if (served := seen[name])["closed"] is not None and len(served["sent"]) > len(heard.pieces)
    ]
    return (_p99(took) if took else None), len(answers) - len(took)


def _p99(numbers: Sequence[float]) -> float:
    return quantiles(numbers, n=100)[98] if len(numbers) > 1 else numbers[0]


def show(rows: Sequence[Row]) -> None:
    """The tables."""
    cost = Table("", "first byte", "p99", "per piece", "p99", "together", "p99", "CPU/piece", "streams/core", "memory")
    for row in rows:
        cpu = "" if row.cpu_us_per_piece is None else f"{row.cpu_us_per_piece:.0f} us"
        core = "" if row.streams_per_core is None else str(row.streams_per_core)
        times = (row.first_ms, row.first_p99_ms, row.one_ms, row.one_p99_ms, row.many_ms, row.many_p99_ms)
        cost.add_row(row.name, *(f"{time:.2f} ms" for time in times), cpu, core, f"{row.memory_mb:.0f} MB")
    _console.print(cost)
    close = Table("p99 until the service sees it", "client left within", "before the first byte", "loop cut", "after")
    for row in rows:
        close.add_row(
            row.name,
            _said(row.left_within_p99_ms, row.left_within_unseen),
            _said(row.left_before_p99_ms, row.left_before_unseen),
            "" if row.loop_pieces is None else _said(row.loop_p99_ms, row.loop_unseen),
            "" if row.loop_pieces is None else f"{row.loop_pieces:.0f} pieces",
        )
    _console.print(close)


def _said(p99_ms: float | None, unseen: int) -> str:
    known = "" if p99_ms is None else f"{p99_ms:.1f} ms"
    return ", ".join(filter(None, [known, f"{unseen} not seen" if unseen else ""]))


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.proxy", description="What the proxy costs, and how soon it closes."
    )
    parser.add_argument("--litellm", metavar="PYTHON", default=".venvs/litellm/bin/python")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, and nothing is written")
    given = parser.parse_args()
    sizes = Sizes(first=10, pieces=30, streams=5, closes=5, turns=25) if given.quick else Sizes()
    rows: list[Row] = []
    peer = ""
    with upstream() as service:
        rows.append(asyncio.run(measured(Front("no proxy", service, CHAT, 0), service, sizes)))
        with ours(service) as front:
            rows.append(asyncio.run(measured(plain(front), service, sizes)))
            rows.append(asyncio.run(measured(front, service, sizes)))
        if Path(given.litellm).exists():
            peer = version_of(given.litellm)
            with contextlib.suppress(KeyboardInterrupt), litellm(service, given.litellm) as front:
                rows.append(asyncio.run(measured(front, service, sizes)))
        else:
            _console.print(f"LiteLLM is left out: there is no {given.litellm}")
    show(rows)
    _, relayed, watched = rows[:3]
    assert watched.cpu_us_per_piece is not None
    assert relayed.cpu_us_per_piece is not None
    added_us = watched.cpu_us_per_piece - relayed.cpu_us_per_piece
    _console.print(f"watching adds {added_us:.0f} us of processor time to a piece (goal: {GOAL_PIECE_US:g} us)")
    assert watched.long_cpu_ms is not None
    assert relayed.long_cpu_ms is not None
    times = watched.long_cpu_ms / max(relayed.long_cpu_ms, _TICK_MS)
    long_mb = sizes.turns * TURN_BYTES / 1e6
    _console.print(
        f"a request of {long_mb:.1f} MB costs {watched.long_cpu_ms:.1f} ms, {times:.1f} times a relay's"
        f" {relayed.long_cpu_ms:.1f} ms (goal: {GOAL_LONG:g} times)"
    )
    if not given.quick:
        path = _report.write(
            "proxy",
            {
                "versions": {"uvicorn": version("uvicorn"), "httpx2": version("httpx2"), "litellm": peer or None},
                "goals": {
                    "close_p99_ms": GOAL_CLOSE_MS,
                    "added_us_per_piece": GOAL_PIECE_US,
                    "long_history": GOAL_LONG,
                },
                "added_us_per_piece": added_us,
                "long_history_times_a_relay": times,
                "rows": [vars(row) for row in rows],
            },
        )
        _console.print(f"written to {path.relative_to(Path.cwd())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

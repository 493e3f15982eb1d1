"""What a judge beside a stream costs it, how soon its verdict closes one, with the real
google-genai SDK on every transport, and what judges have answered to recorded questions.

    python -m bench.judge [--rounds 15] [--quick]
    python -m bench.judge --write FOLDER      the recorded questions, one text file each, no labels
    python -m bench.judge --answers FILE      JSON lines: question (its hash), model, analysis,
                                              confidence, repeats, advice, ask_person

Two tables. *Delivery*: a stream whose chunks are due every 2 ms, with a judge that takes a second
to answer over HTTP and without one, in turn; the delay of a chunk is counted from when it was due
until the caller had it, and the processor time of the event loop's thread from chunk to chunk.
*Verdicts*: the agent's stream stalls, the judge answers; from the moment at which the server has
sent the judge's last byte to the moment at which it sees the stalled connection closed. Exits with
1 if a goal was missed. The recorded questions and how they are counted: `bench._judge_questions`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import anyio
from google.genai.client import AsyncClient
from rich.console import Console
from rich.table import Table

import monitor
from bench import _judge_questions, _report
from bench._close_cases import Backend, Transport
from bench._close_sdks import GOOGLE
from bench._quiet import quiet
from bench.close import PACKAGES, _p99
from monitor.chunks import Chunk, TextDelta, TurnFinished
from monitor.errors import FinishReason, TerminateReason
from monitor.events import JudgeAnswered
from monitor.judges import LoopJudge
from monitor.sinks.log import MemorySink
from monitor.testing import LocalGemini, ReceivedRequest
from monitor.testing import gemini_steps as wire

ROUNDS, VERDICTS = 15, 40
EVERY_S = 0.002
STREAM_S = 1.3
"""How long a stream lasts: the judge is asked at its start, and has answered before its end."""
JUDGE_S = 1.0
STALLED_S = 0.2
"""Until the verdict: long enough for the stream to be open and silent."""
DELAY_GOAL_MS, VERDICT_GOAL_MS = 1.0, 50.0

_console = Console(width=150)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rounds: int = ROUNDS
    verdicts: int = VERDICTS
    stream_s: float = STREAM_S
    judge_s: float = JUDGE_S


QUICK = Sizes(rounds=1, verdicts=2)


@dataclass
class Delivery:
    """Delays of chunks in milliseconds, round by round."""

    backend: Backend
    transport: Transport
    without: list[list[float]] = field(default_factory=list)
    beside: list[list[float]] = field(default_factory=list)
    answers: int = 0
    """Questions that were answered while the stream went on."""

    without_cpu: list[float] = field(default_factory=list)
    beside_cpu: list[float] = field(default_factory=list)
    """Milliseconds of processor time of the event loop's thread from one chunk to the next: what
    delays a chunk, but for the neighbours.
    """

    @property
    def added_ms(self) -> float:
        """What the judge adds to the 99th percentile of the delay. Other programs on the machine
        only ever add to a round, and the judge adds to each: so the quieter rounds are compared, by
        their lower quartile.
        """
        return _quartile(map(_p99, self.beside)) - _quartile(map(_p99, self.without))

    @property
    def added_cpu_ms(self) -> float:
        """What it adds to the 99th percentile of the processor time between two chunks."""
        return _p99(self.beside_cpu) - _p99(self.without_cpu)


@dataclass
class Verdicts:
    """From the judge's last byte to the closed connection."""

    backend: Backend
    transport: Transport
    wrong: Counter[str] = field(default_factory=Counter)
    ms: list[float] = field(default_factory=list)


def _quartile(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 4]


def _reply(confidence: float) -> str:
    return json.dumps({"analysis": "The same page under other words.", "confidence": confidence})


def _script(request: ReceivedRequest, judge_s: float) -> wire.Script:
    """A judge has instructions; an agent's prompt says what becomes of it."""
    if "systemInstruction" in request.body:
        said = request.body["contents"][0]["parts"][0]["text"]
        stalls = '"stalls"' in said
        return [wire.Pause(STALLED_S if stalls else judge_s), wire.text(_reply(0.95 if stalls else 0.1)), wire.finish()]
    return [wire.text("Let me look."), wire.Stall()]


# --- delivery


async def _paced(due: list[float], stream_s: float) -> AsyncIterator[Chunk]:
    """A chunk every 2 ms; `due` gets the moments at which they should come."""
    start = time.perf_counter()
    for number in range(1, round(stream_s / EVERY_S)):
        due.append(start + number * EVERY_S)
        await anyio.sleep(max(0.0, due[-1] - time.perf_counter()))
        yield TextDelta(f"word {number} ")
    due.append(time.perf_counter())
    yield TurnFinished(FinishReason.DONE)


async def _read(judge: LoopJudge | None, stream_s: float) -> tuple[list[float], list[float], int]:
    """Delays and processor time of the chunks of one stream in milliseconds; and how often the
    judge answered.
    """
    due: list[float] = []
    got: list[tuple[float, float]] = []
    sink = MemorySink()
    async with monitor.Guard(judge=judge, sinks=[sink]) as guard, guard.watch(_paced(due, stream_s)) as watched:
        got += [(time.perf_counter(), time.thread_time()) async for _ in watched]
    answers = sum(isinstance(event, JudgeAnswered) for event in sink.events)
    delays = [(at - when) * 1e3 for (at, _), when in zip(got, due, strict=True)]
    return delays, [(after - before) * 1e3 for (_, before), (_, after) in pairwise(got)], answers


async def _delivery(backend: Backend, transport: Transport, server: LocalGemini, sizes: Sizes) -> Delivery:
    found = Delivery(backend, transport)
    async with GOOGLE.client(server, transport) as client:
        judge = LoopJudge.article(monitor.model("google:local", client=client), first_turn=1)
        await _read(judge, sizes.judge_s + 0.2)  # what the SDK does at its first use is no part of it
        for _ in range(sizes.rounds):
            delays, cpu, _ = await _read(None, sizes.stream_s)
            found.without.append(delays)
            found.without_cpu += cpu
            delays, cpu, answers = await _read(judge, sizes.stream_s)
            found.beside.append(delays)
            found.beside_cpu += cpu
            found.answers += answers
    return found


# --- verdicts


async def _verdict(client: AsyncClient, server: LocalGemini) -> float | str:
    """Milliseconds; or what went wrong."""
    judge = LoopJudge.article(monitor.model("google:local", client=client), first_turn=1)
    number = len(server.requests)
    async with (
        monitor.Guard(judge=judge, task="stalls") as guard,
        guard.watch(partial(GOOGLE.ask, client, "stalls")) as watched,
    ):
        async for _ in watched:
            pass
    agent = next(index for index in (number, number + 1) if "systemInstruction" not in server.requests[index].body)
    asked = server.requests[2 * number + 1 - agent]
    closed = await server.wait_closed_async(agent)
    outcome = guard.outcome
    if outcome.reason is not TerminateReason.LOOP_DETECTED or not outcome.closed or asked.last_sent_at is None:
        return f"{outcome.reason.value}, closed={outcome.closed}, {outcome.detail}"
    return (closed.at - asked.last_sent_at) * 1e3


async def _verdicts(backend: Backend, transport: Transport, server: LocalGemini, sizes: Sizes) -> Verdicts:
    found = Verdicts(backend, transport)
    async with GOOGLE.client(server, transport) as client:
        await _verdict(client, server)
        for _ in range(sizes.verdicts):
            ms = await _verdict(client, server)
            if isinstance(ms, str):
                found.wrong[ms] += 1
            else:
                found.ms.append(ms)
    return found


# --- the report


@dataclass
class Results:
    """Everything that was measured."""

    deliveries: list[Delivery] = field(default_factory=list)
    verdicts: list[Verdicts] = field(default_factory=list)

    def goals(self) -> list[dict[str, Any]]:
        """What was promised, and what came of it."""
        added, late = max(row.added_ms for row in self.deliveries), max(_p99(row.ms) for row in self.verdicts)
        cpu = max(row.added_cpu_ms for row in self.deliveries)
        goals = [
            ("delay added by a judge at p99, worst, ms", round(added, 3), DELAY_GOAL_MS),
            ("from the verdict to the closed connection at p99, worst, ms", round(late, 3), VERDICT_GOAL_MS),
            ("processor time added between two chunks at p99, worst, ms", round(cpu, 3), DELAY_GOAL_MS),
            ("verdicts that went wrong", sum(row.wrong.total() for row in self.verdicts), 0),
            ("questions without an answer", sum(len(row.beside) - row.answers for row in self.deliveries), 0),
        ]
        return [
            {"goal": name, "value": value, "limit": limit, "passed": value <= limit} for name, value, limit in goals
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "packages": {name: version(name) for name in PACKAGES},
            "deliveries": [
                {
                    "backend": row.backend,
                    "transport": row.transport,
                    "rounds": len(row.beside),
                    "chunks": sum(map(len, row.beside)),
                    "without_ms": _percentiles(row.without),
                    "beside_ms": _percentiles(row.beside),
                    "added_p99_ms": round(row.added_ms, 3),
                    "added_cpu_p99_ms": round(row.added_cpu_ms, 3),
                }
                for row in self.deliveries
            ],
            "verdicts": [
                {
                    "backend": row.backend,
                    "transport": row.transport,
                    "runs": len(row.ms) + row.wrong.total(),
                    "wrong": row.wrong.total(),
                    "what": dict(row.wrong),
                    "p50_ms": round(median(row.ms), 3),
                    "p99_ms": round(_p99(row.ms), 3),
                }
                for row in self.verdicts
            ],
            "goals": self.goals(),
        }


def _percentiles(rounds: Sequence[Sequence[float]]) -> dict[str, float]:
    pooled = [delay for delays in rounds for delay in delays]
    return {"p50": round(median(pooled), 3), "p99": round(_p99(pooled), 3), "max": round(max(pooled), 3)}


def measure(sizes: Sizes) -> Results:
    """All of it."""
    results = Results()
    with quiet("trio.async_generator_errors"), LocalGemini(partial(_script, judge_s=sizes.judge_s)) as server:
        for backend, transport in GOOGLE.transports:
            results.deliveries.append(anyio.run(_delivery, backend, transport, server, sizes, backend=backend))
            results.verdicts.append(anyio.run(_verdicts, backend, transport, server, sizes, backend=backend))
    return results


def show(results: Results) -> None:
    """As tables."""
    table = Table(
        "judge over",
        "chunks",
        "p50 ms",
        "p99 ms",
        "max ms",
        "p50 with",
        "p99 with",
        "max with",
        "added at p99, ms",
        "of it CPU",
        title="Delivery: from due until had",
    )
    for row in results.deliveries:
        without, beside = _percentiles(row.without), _percentiles(row.beside)
        where = f"{row.transport} on {row.backend}"
        numbers = (*without.values(), *beside.values(), row.added_ms, row.added_cpu_ms)
        table.add_row(where, str(sum(map(len, row.beside))), *(f"{number:.2f}" for number in numbers))
    _console.print(table)
    table = Table(
        "transport",
        "runs",
        "wrong",
        "p50 ms",
        "p99 ms",
        title="Verdicts: from the judge's last byte to the closed connection",
    )
    for verdict in results.verdicts:
        where = f"{verdict.transport} on {verdict.backend}"
        table.add_row(
            where,
            str(len(verdict.ms) + verdict.wrong.total()),
            str(dict(verdict.wrong) or 0),
            f"{median(verdict.ms):.2f}",
            f"{_p99(verdict.ms):.2f}",
        )
    _console.print(table)
    for goal in results.goals():
        _console.print(
            f"{'PASS' if goal['passed'] else 'FAIL'}  {goal['goal']}: {goal['value']} (at most {goal['limit']})"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.judge", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"of each stream on each transport; {ROUNDS} if not given"
    )
    parser.add_argument("--quick", action="store_true", help="one of each, to see that it works; writes nothing")
    parser.add_argument(
        "--write", type=Path, metavar="FOLDER", help="write the recorded questions, and measure nothing"
    )
    parser.add_argument("--answers", type=Path, metavar="FILE", help="count these answers and end")
    options = parser.parse_args(arguments)
    if options.write is not None:
        _console.print(f"{_judge_questions.write(options.write)} questions in {options.write}")
        return 0
    answered = _judge_questions.measure(options.answers or _judge_questions.ANSWERS)
    _judge_questions.show(_console, answered)
    if options.answers is not None:
        return 0
    results = measure(QUICK if options.quick else Sizes(rounds=options.rounds))
    show(results)
    if not options.quick:
        _report.write("judge", {**results.to_dict(), "recorded_questions": answered.to_dict()})
    return 0 if all(goal["passed"] for goal in results.goals()) else 1


if __name__ == "__main__":
    sys.exit(main())

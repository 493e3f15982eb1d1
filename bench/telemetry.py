"""What the telemetry sink costs: time for every turn, and for every chunk.

    python -m bench.telemetry [--rounds 40]

A run of 50 turns, with and without a tool call each. The rows, one of them without a sink, take
turns in each round; the exporter is in memory. Events are made before the clock starts, so that a
row is the sink alone. A chunk makes no event, so a chunk calls no sink: the last row counts them.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from statistics import median
from typing import Literal

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from rich.console import Console
from rich.table import Table

import monitor
from bench import _report
from monitor import events
from monitor.chunks import TextDelta, ToolCall, ToolResult, TurnFinished, Usage
from monitor.errors import FinishReason, TerminateReason
from monitor.outcome import Outcome, Turn
from monitor.sinks import FanOut, MemorySink, OtelSink

TURNS = 50
CHUNKS = (100, 2_000)
GOAL_TURN_US = 60.0


def made_run(*, calls: bool) -> list[events.Event]:
    """The events of a run of `TURNS` turns, with a tool call each if `calls`."""
    made: list[events.Event] = [events.RunStarted(0.0, ("content_repetition",), "max_turns")]
    for n in range(1, TURNS + 1):
        call = ToolCall(f"c{n}", "search", {"q": f"question {n}"})
        turn = Turn(
            number=n,
            text="Let me look.",
            tool_calls=(call,),
            usage=Usage(1000, 50, 0, 0, 1050),
            finish_reason=FinishReason.DONE,
        )
        made += [
            events.TurnStarted(float(n), n, n),
            events.FirstChunk(n + 0.1, n, 0.1),
            events.TurnEnded(n + 0.5, turn),
        ]
        if calls:
            made += [
                events.ToolStarted(n + 0.5, n, call),
                events.ToolFinished(n + 0.9, n, ToolResult(call.id, "search", "found"), 0.4),
            ]
    ended = Outcome(ok=True, reason=TerminateReason.GOAL, detail="done", source="model", turns=TURNS)
    return [*made, events.RunTerminated(TURNS + 1.0, ended)]


def bare_us(tracers: TracerProvider) -> float:
    """Microseconds that the SDK itself takes for the two spans of a turn, with 8 attributes at
    their start and 8 at their end.
    """
    tracer = tracers.get_tracer("bare")
    first, last = {f"a{n}": n for n in range(8)}, {f"b{n}": n for n in range(8)}
    began = time.perf_counter()
    for _ in range(2 * TURNS):
        span = tracer.start_span("bare", context=Context(), attributes=first, start_time=1)
        span.set_attributes(last)
        span.end(2)
    return (time.perf_counter() - began) / TURNS * 1e6


def turn_us(run: Sequence[events.Event], sink: OtelSink | None) -> tuple[float, float]:
    """Microseconds a turn in `emit`, and with the work of the sink's thread."""
    fan = FanOut([] if sink is None else [sink])
    began = time.perf_counter()
    for event in run:
        fan.emit(event)
    emitted = time.perf_counter()
    if sink is not None:
        sink.flush()
    return (emitted - began) / TURNS * 1e6, (time.perf_counter() - began) / TURNS * 1e6


async def calls_of(chunks: int) -> int:
    """How often a sink is called for a stream of `chunks` chunks."""

    async def stream() -> AsyncIterator[TextDelta | TurnFinished]:
        for n in range(chunks):
            yield TextDelta(f"word{n} ")
        yield TurnFinished(FinishReason.DONE)

    sink = MemorySink()
    async with monitor.watch(stream(), sinks=[sink]) as watched:
        async for _ in watched:
            pass
    return len(sink.events)


def main() -> None:
    """Measure, print a table, write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    run, plain = made_run(calls=True), made_run(calls=False)
    kinds: list[tuple[str, Literal["genai", "openinference"], bool]] = [
        ("genai", "genai", False),
        ("genai, with content", "genai", True),
        ("openinference", "openinference", False),
    ]
    exporter = InMemorySpanExporter()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    sinks: dict[str, OtelSink | None] = {
        name: OtelSink(dialect=dialect, content=content, model="openai:m", tracer_provider=tracers)
        for name, dialect, content in kinds
    }
    sinks["no SDK configured"] = OtelSink(model="openai:m")
    sinks["no sink"] = None
    measured: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for name, sink in sinks.items():
            measured.setdefault(f"{name}, no call", []).append(turn_us(plain, sink))
            exporter.clear()
            measured.setdefault(f"{name}, a call", []).append(turn_us(run, sink))
            exporter.clear()
        bare = bare_us(tracers)
        measured.setdefault("the SDK's two spans, bare", []).append((bare, bare))
        exporter.clear()
    few, many = (asyncio.run(calls_of(chunks)) for chunks in CHUNKS)
    table = Table(title=f"the telemetry sink, a run of {TURNS} turns")
    for column in ("row", "us a turn in the run", "us a turn with the thread", "goal"):
        table.add_column(column, justify="right")
    rows = {}
    for name, times in measured.items():
        inside, total = median(one for one, _ in times), median(one for _, one in times)
        rows[name] = {"emit_us": round(inside, 2), "with_thread_us": round(total, 2)}
        table.add_row(
            name, f"{inside:.1f}", f"{total:.1f}", f"<= {GOAL_TURN_US:g}" if name.startswith(("genai", "open")) else ""
        )
    table.add_row("calls of a sink a chunk", f"{(many - few) / (CHUNKS[1] - CHUNKS[0]):g}", "", "0")
    Console().print(table)
    _report.write("telemetry", {"turns": TURNS, "rows": rows, "calls_a_chunk": (many - few) / (CHUNKS[1] - CHUNKS[0])})
    for made in sinks.values():
        if made is not None:
            made.close()


if __name__ == "__main__":
    main()

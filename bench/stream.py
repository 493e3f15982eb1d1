"""What watching a stream costs: time for every chunk, memory for every stream, and how soon a
decision reaches the source.

    python -m bench.stream [--quick] [--only quiet set-up] [--megabytes 1 10 100]

Everything runs in process on sources that cost nothing themselves, so that what is left is the
library. Times are of rounds in which all rows take turns, as machines differ and drift; a row's
added cost is the median of its differences from the bare loop of the same round. The bare loop and
an empty class wrapper stand beside it: they say how fast this machine is at all.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import importlib
import random
import string
import sys
import time
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from statistics import median
from typing import Any, Literal, TypeAlias

import anyio
import anyio.lowlevel
import trio.lowlevel
from google.genai import types
from rich.console import Console
from rich.table import Table

import monitor
from bench import _report
from monitor.detectors import ContentRepetition, Detector

Backend: TypeAlias = Literal["asyncio", "trio"]
Source: TypeAlias = Callable[[Sequence[Any]], AsyncGenerator[Any, None]]
Job: TypeAlias = Callable[[], Awaitable[None]]

CHUNK_CHARS = 4
"""What a model's token comes to."""
FRESH_OBJECTS = 64
"""How many SDK objects are in the cache together; see `_decode_costs`."""
LIMITS = monitor.Timeout(3600) | monitor.IdleTimeout(600) | monitor.TokenLimit(10**9)
MEGA = 10**6
LEAP_CHARS = 4_096
"""A long stream grows by pieces of this size, and is measured in pieces of a token."""
CROWD_CHUNKS = 300_000
"""Chunks of all streams of a crowd together, at most."""
PACKAGES = ("anyio", "trio", "google-genai", "openai-agents", "autogen-agentchat", "pydantic-ai-slim")

GOAL_ASYNCIO_US = 1.0
GOAL_TRIO_US = 8.0
GOAL_DECODE_US = 1.0
GOAL_GROWTH = 1.10
GOAL_HELD_KB = 16.0
GOAL_SET_UP_US = 150.0
GOAL_QUIET_TIMES = 3.0
GOAL_CLOSE_US = 50.0
QUIET_S = 1.0
"""Time between two chunks of a quiet stream."""

_console = Console(width=150)


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    chunks: int
    rounds: int
    megabytes: Sequence[float]
    memory_megabytes: Sequence[float]
    legs: int
    streams: Sequence[int]
    stream_chunks: int
    set_ups: int
    quiet_streams: int
    quiet_chunks: int
    closes: int
    peer_chunks: int
    peer_rounds: int


FULL = Plan(
    chunks=20_000,
    rounds=15,
    megabytes=(1, 10, 100),
    memory_megabytes=(0.1, 1, 10),
    legs=7,
    streams=(1_000, 10_000),
    stream_chunks=100,
    set_ups=500,
    quiet_streams=5_000,
    quiet_chunks=20,
    closes=500,
    peer_chunks=3_000,
    peer_rounds=7,
)
QUICK = Plan(
    chunks=2_000,
    rounds=3,
    megabytes=(1, 10),
    memory_megabytes=(0.05, 0.2),
    legs=3,
    streams=(100, 1_000),
    stream_chunks=10,
    set_ups=20,
    quiet_streams=50,
    quiet_chunks=2,
    closes=50,
    peer_chunks=300,
    peer_rounds=2,
)


# --- texts and sources

_ALPHABETS = {
    "ascii": string.ascii_lowercase,
    "cjk": "".join(map(chr, range(0x4E00, 0x4E80))),
    "emoji": "".join(map(chr, range(0x1F600, 0x1F640))),
}


@cache
def _text(chars: int, alphabet: str = string.ascii_lowercase) -> str:
    """Words without a loop in them."""
    chance = random.Random(11)
    words: list[str] = []
    length = 0
    while length < chars:
        words.append("".join(chance.choices(alphabet, k=chance.randint(2, 9))))
        length += len(words[-1]) + 1
    return " ".join(words)[:chars]


def _pieces(text: str) -> list[str]:
    return [text[at : at + CHUNK_CHARS] for at in range(0, len(text), CHUNK_CHARS)]


async def _never_suspends(items: Sequence[Any]) -> AsyncGenerator[Any, None]:
    for item in items:
        yield item


async def _asyncio_turn(items: Sequence[Any]) -> AsyncGenerator[Any, None]:
    for item in items:
        await asyncio.sleep(0)
        yield item


async def _trio_turn(items: Sequence[Any]) -> AsyncGenerator[Any, None]:
    for item in items:
        await trio.lowlevel.checkpoint()
        yield item


class _Endless:
    """The text over and over, far apart enough to be no loop; every piece is made anew, so that
    keeping one would show.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._piece_chars = CHUNK_CHARS

    async def stream(self) -> AsyncGenerator[str, None]:
        """Without an end."""
        text, at = self._text, 0
        while True:
            chars = self._piece_chars
            start = at % (len(text) - chars)
            at += chars
            yield text[start : start + chars]

    async def leap(self, watched: AsyncIterator[Any], chars: int) -> None:
        """Read so many characters quickly: the monitor is the same after them, however they are
        cut.
        """
        self._piece_chars = LEAP_CHARS
        await _read(watched, chars // LEAP_CHARS)
        self._piece_chars = CHUNK_CHARS
        await _read(watched, chars % LEAP_CHARS // CHUNK_CHARS)


_TURN: dict[Backend, Source] = {"asyncio": _asyncio_turn, "trio": _trio_turn}


class _EmptyWrapper:
    """The least that a class around a stream can cost."""

    def __init__(self, source: AsyncGenerator[Any, None]) -> None:
        self._source = source

    def __aiter__(self) -> _EmptyWrapper:
        return self

    async def __anext__(self) -> Any:
        return await self._source.__anext__()


# --- time per chunk


@dataclass
class Cost:
    """One row: microseconds per chunk, a value a round."""

    name: str
    backend: Backend
    source: str
    us: list[float] = field(default_factory=list)
    added_us: list[float] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "name": self.name,
            "backend": self.backend,
            "source": self.source,
            "us": _summary(self.us),
            "added_us": _summary(self.added_us),
            "times_bare": round(self.ratio, 2),
        }

    @property
    def ratio(self) -> float:
        """Times the bare loop."""
        whole = median(self.us)
        return whole / (whole - median(self.added_us))


def _summary(values: Sequence[float]) -> dict[str, float]:
    return {"median": round(median(values), 4), "min": round(min(values), 4)}


async def _drain(stream: AsyncIterator[Any]) -> None:
    async for _ in stream:
        pass


async def _drain_watched(source: AsyncGenerator[Any, None], options: dict[str, Any]) -> None:
    async with monitor.watch(source, **options) as watched:
        async for _ in watched:
            pass
    assert watched.outcome.ok, watched.outcome.detail


def _jobs(source: Source, items: Sequence[Any]) -> dict[str, Job]:
    """The rows. The first is what the others are compared with."""
    return {
        "bare async for": lambda: _drain(source(items)),
        "empty class wrapper": lambda: _drain(_EmptyWrapper(source(items))),
        "watch, nothing on": lambda: _drain_watched(source(items), {"detectors": None}),
        "watch, limits": lambda: _drain_watched(source(items), {"detectors": None, "stop_when": LIMITS}),
        FULL_ROW: lambda: _drain_watched(source(items), {"stop_when": LIMITS, "detectors": _two()}),
        "watch, limits, all default detectors": lambda: _drain_watched(source(items), {"stop_when": LIMITS}),
    }


WITH_TEXT = "ascii, and its text, kept to a million characters"
"""The row that also counts the text that is kept."""

FULL_ROW = "watch, limits, two detectors"
"""What the goals of time and memory are set for."""


def _two() -> list[Detector]:
    """The one that reads all text, and the one that reads every call."""
    return [monitor.ContentRepetition(), monitor.ToolCallRepetition()]


async def _timed(job: Job, chunks: int) -> float:
    start = time.perf_counter()
    await job()
    return (time.perf_counter() - start) / chunks * 1e6


async def _rounds(jobs: dict[str, Job], backend: Backend, source: str, *, chunks: int, rounds: int) -> list[Cost]:
    """All jobs in turn, as often as `rounds` says."""
    costs = [Cost(name, backend, source) for name in jobs]
    for job in jobs.values():
        await job()
    gc.collect()
    for _ in range(rounds):
        times = [await _timed(job, chunks) for job in jobs.values()]
        for cost, us in zip(costs, times, strict=True):
            cost.us.append(us)
            cost.added_us.append(us - times[0])
    return costs


async def _chunk_costs(backend: Backend, plan: Plan) -> list[Cost]:
    items = _pieces(_text(plan.chunks * CHUNK_CHARS))
    sources = {"never suspends": _never_suspends, "one turn a chunk": _TURN[backend]}
    costs: list[Cost] = []
    for name, source in sources.items():
        costs += await _rounds(_jobs(source, items), backend, name, chunks=plan.chunks, rounds=plan.rounds)
    return costs


def _responses(items: Sequence[str]) -> list[types.GenerateContentResponse]:
    """As the SDK delivers them."""
    responses = [_response(item) for item in items]
    last = responses[-1].candidates
    assert last is not None
    last[0].finish_reason = types.FinishReason.STOP
    return responses


def _response(text: str) -> types.GenerateContentResponse:
    content = types.Content(role="model", parts=[types.Part(text=text)])
    return types.GenerateContentResponse(
        response_id="r", model_version="m", candidates=[types.Candidate(index=0, content=content)]
    )


async def _decode_costs(plan: Plan) -> list[Cost]:
    """The first row is the same text as `str`: what is added to it is decoding.

    The same few objects come again and again: the SDK has just made an object when it is decoded,
    so it is in the processor's cache, which 20,000 objects made beforehand are not. (Detectors are
    off: they would see the repetition.)
    """
    few = _pieces(_text(FRESH_OBJECTS * CHUNK_CHARS))
    items = few * (plan.chunks // FRESH_OBJECTS)
    responses = [_response(item) for item in few] * (plan.chunks // FRESH_OBJECTS) + _responses(few)[-1:]
    options: dict[str, Any] = {"stop_when": LIMITS, "detectors": None}
    jobs: dict[str, Job] = {
        "watch, str": lambda: _drain_watched(_never_suspends(items), options),
        "watch, google-genai objects": lambda: _drain_watched(_never_suspends(responses), options),
    }
    return await _rounds(jobs, "asyncio", "never suspends", chunks=plan.chunks, rounds=plan.rounds)


# --- growth: time and memory of a long stream


@dataclass
class Age:
    """An old stream and new ones in turn."""

    megabytes: float
    old_us: list[float]
    new_us: list[float]

    @property
    def ratio(self) -> float:
        """How much slower the old one is."""
        return median(old / new for old, new in zip(self.old_us, self.new_us, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        data = {"megabytes": self.megabytes, "old_us": _summary(self.old_us), "new_us": _summary(self.new_us)}
        return data | {"ratio": round(self.ratio, 3)}


async def _read(watched: AsyncIterator[Any], chunks: int) -> None:
    for _ in range(chunks):
        await anext(watched)


async def _ages(plan: Plan) -> list[Age]:
    """One stream grows; at every size its next piece and the first piece of a new stream are timed
    side by side.
    """
    text = _text(MEGA // 2)
    leg = plan.chunks
    ages, read = [], 0
    source = _Endless(text)
    async with monitor.watch(source.stream(), stop_when=LIMITS) as old:
        for megabytes in plan.megabytes:
            missing = int(megabytes * MEGA) - read
            await source.leap(old, missing)
            await _read(old, leg)
            read += missing + (plan.legs + 1) * leg * CHUNK_CHARS
            age = Age(megabytes, [], [])
            for _ in range(plan.legs):
                async with monitor.watch(_Endless(text).stream(), stop_when=LIMITS) as new:
                    await _read(new, leg)  # to the size at which a detector's window is full
                    age.new_us.append(await _timed(partial(_read, new, leg), leg))
                    age.old_us.append(await _timed(partial(_read, old, leg), leg))
            ages.append(age)
    return ages


@dataclass
class Held:
    """What the monitor holds of a stream in progress besides its text, in kilobytes."""

    script: str
    megabytes: list[float] = field(default_factory=list)
    kilobytes: list[float] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "script": self.script,
            "megabytes": self.megabytes,
            "kilobytes": [round(value, 1) for value in self.kilobytes],
        }


@contextlib.contextmanager
def _traced() -> Iterator[Callable[[], float]]:
    """A function that tells how many kilobytes are held of what was allocated in the block."""
    gc.collect()
    tracemalloc.start()

    def held() -> float:
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / 1024

    base = held()
    try:
        yield lambda: held() - base
    finally:
        tracemalloc.stop()


async def _held(plan: Plan) -> list[Held]:
    """Megabytes are millions of characters, in any script. The text itself is the caller's wish,
    and is kept in one row only.
    """
    rows = []
    ascii_letters = _ALPHABETS["ascii"]
    cases: list[tuple[str, str, Callable[[], list[Detector]], int]] = [
        (name, letters, _two, 0) for name, letters in _ALPHABETS.items()
    ]
    cases += [
        ("ascii, all default detectors", ascii_letters, monitor.default_detectors, 0),
        (WITH_TEXT, ascii_letters, _two, MEGA),
    ]
    for script, alphabet, detectors, keep in cases:
        text = _text(MEGA // 10, alphabet)
        async with monitor.watch(_Endless(text).stream(), stop_when=LIMITS, detectors=detectors()) as warm:
            await _read(warm, plan.chunks)  # what is made once in a process is nobody's stream
        row, read = Held(script), 0
        source = _Endless(text)
        with _traced() as held:
            async with monitor.watch(
                source.stream(), stop_when=LIMITS, detectors=detectors(), keep_text_chars=keep
            ) as watched:
                for megabytes in plan.memory_megabytes:
                    chars = int(megabytes * MEGA)
                    last = min(chars - read, plan.chunks * CHUNK_CHARS)
                    await source.leap(watched, chars - read - last)
                    await _read(watched, last // CHUNK_CHARS)
                    read = chars
                    row.megabytes.append(megabytes)
                    row.kilobytes.append(held())
        rows.append(row)
    return rows


# --- many streams at once


@dataclass
class Crowd:
    """Many streams in one process, each of their chunks a turn of the loop."""

    backend: Backend
    streams: int
    bare_us: float
    watched_us: float
    set_up_us: float
    """Opening and closing a watched stream, beyond a bare one."""
    kilobytes: float
    """For a stream of which 2,000 characters were read, and are kept."""


class _Gate:
    """Every stream of a crowd stops here, until all have come and it is opened."""

    def __init__(self, streams: int) -> None:
        self._missing = streams
        self._opened = anyio.Event()
        self.all_here = anyio.Event()

    async def wait(self) -> None:
        """Called by every stream."""
        self._missing -= 1
        if not self._missing:
            self.all_here.set()
        await self._opened.wait()

    def open(self) -> None:
        """Let them go on."""
        self._opened.set()


Runner: TypeAlias = Callable[[AsyncGenerator[str, None], int, _Gate, _Gate], Coroutine[Any, Any, None]]


async def _bare_one(source: AsyncGenerator[str, None], chunks: int, start: _Gate, end: _Gate) -> None:
    await anext(source)
    await start.wait()
    await _read(source, chunks)
    await end.wait()
    await source.aclose()


async def _watched_one(source: AsyncGenerator[str, None], chunks: int, start: _Gate, end: _Gate) -> None:
    async with monitor.watch(source, stop_when=LIMITS) as watched:
        await anext(watched)
        await start.wait()
        await _read(watched, chunks)
        await end.wait()


async def _crowd_us(one: Runner, source: Source, items: Sequence[str], streams: int) -> tuple[float, float]:
    """Microseconds per chunk, and per stream for opening and closing."""
    start, end, chunks = _Gate(streams), _Gate(streams), len(items) - 1
    moments = [time.perf_counter()]
    async with anyio.create_task_group() as group:
        for _ in range(streams):
            group.start_soon(one, source(items), chunks, start, end)
        for gate in (start, end):
            await gate.all_here.wait()
            moments.append(time.perf_counter())
            gate.open()
    moments.append(time.perf_counter())
    opening, reading, closing = (after - before for before, after in pairwise(moments))
    return reading / streams / chunks * 1e6, (opening + closing) / streams * 1e6


async def _crowd(backend: Backend, streams: int, plan: Plan) -> Crowd:
    items = _pieces(_text(min(plan.stream_chunks, CROWD_CHUNKS // streams) * CHUNK_CHARS))
    runners: dict[str, Runner] = {"bare": _bare_one, "watched": _watched_one}
    per_chunk: dict[str, list[float]] = {name: [] for name in runners}
    per_stream: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(3):
        for name, one in runners.items():
            gc.collect()
            chunk_us, stream_us = await _crowd_us(one, _TURN[backend], items, streams)
            per_chunk[name].append(chunk_us)
            per_stream[name].append(stream_us)
    return Crowd(
        backend=backend,
        streams=streams,
        bare_us=round(median(per_chunk["bare"]), 3),
        watched_us=round(median(per_chunk["watched"]), 3),
        set_up_us=round(median(per_stream["watched"]) - median(per_stream["bare"]), 1),
        kilobytes=round(await _crowd_kilobytes(min(streams, 100)), 2),
    )


async def _crowd_kilobytes(streams: int) -> float:
    text = _text(MEGA // 10)
    with _traced() as held:
        bare = [_Endless(text).stream() for _ in range(streams)]
        for source in bare:
            await anext(source)
        sources_kb = held()
        async with contextlib.AsyncExitStack() as stack:
            for source in bare:
                watched = await stack.enter_async_context(monitor.watch(source, stop_when=LIMITS))
                await _read(watched, 2_000 // CHUNK_CHARS)
            return (held() - sources_kb) / streams


# --- one stream after the other, and streams that say little


@dataclass
class SetUp:
    """Processor time of whole streams of two pieces, one after the other, in microseconds each."""

    bare_us: list[float] = field(default_factory=list)
    watched_us: list[float] = field(default_factory=list)

    @property
    def added_us(self) -> float:
        """What watching adds: making, opening, ending."""
        return median(watched - bare for bare, watched in zip(self.bare_us, self.watched_us, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"bare_us": _summary(self.bare_us), "watched_us": _summary(self.watched_us), "added_us": self.added_us}


async def _set_ups(plan: Plan) -> SetUp:
    row = SetUp()
    pieces = _pieces(_text(2 * CHUNK_CHARS))
    jobs: tuple[tuple[list[float], Job], ...] = (
        (row.bare_us, lambda: _drain(_never_suspends(pieces))),
        (row.watched_us, lambda: _drain_watched(_never_suspends(pieces), {"stop_when": LIMITS})),
    )
    for _ in range(plan.rounds + 1):
        for times, job in jobs:
            gc.collect()
            start = time.process_time()
            for _ in range(plan.set_ups):
                await job()
            times.append((time.process_time() - start) / plan.set_ups * 1e6)
    del row.bare_us[0], row.watched_us[0]
    return row


@dataclass
class Quiet:
    """Processor time of many streams that send a chunk a second, from their making to their end, in
    microseconds for each stream.
    """

    streams: int
    chunks: int
    bare_us: list[float] = field(default_factory=list)
    watched_us: list[float] = field(default_factory=list)

    @property
    def times(self) -> float:
        """Watched by bare."""
        return median(watched / bare for bare, watched in zip(self.bare_us, self.watched_us, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        times = {"bare_us": _summary(self.bare_us), "watched_us": _summary(self.watched_us), "times": self.times}
        return {"streams": self.streams, "chunks": self.chunks} | times


async def _says_little(pieces: Sequence[str], delay_s: float) -> AsyncGenerator[str, None]:
    await asyncio.sleep(delay_s)
    for piece in pieces:
        await asyncio.sleep(QUIET_S)
        yield piece


async def _quiets(plan: Plan) -> Quiet:
    row = Quiet(plan.quiet_streams, plan.quiet_chunks)
    pieces = _pieces(_text(plan.quiet_chunks * CHUNK_CHARS))
    jobs: tuple[tuple[list[float], Callable[[AsyncGenerator[str, None]], Coroutine[Any, Any, None]]], ...] = (
        (row.bare_us, _drain),
        (row.watched_us, partial(_drain_watched, options={"stop_when": LIMITS})),
    )
    for _ in range(3):
        for times, job in jobs:
            gc.collect()
            start = time.process_time()
            async with anyio.create_task_group() as group:
                for number in range(plan.quiet_streams):
                    group.start_soon(job, _says_little(pieces, QUIET_S * number / plan.quiet_streams))
            times.append((time.process_time() - start) / plan.quiet_streams * 1e6)
    return row


# --- from the decision to the source


@dataclass
class Closing:
    """Microseconds from handing over the chunk that completes a loop to the source's own
    `finally`.
    """

    backend: Backend
    us: list[float]
    pulled_too_many: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        times = {"p50_us": round(median(self.us), 1), "p99_us": round(_p99(self.us), 1)}
        return {"backend": self.backend, "runs": len(self.us), "pulled_too_many": self.pulled_too_many} | times


class _Chanting:
    """A source that notes when it handed out its last chunk, and when it was closed."""

    def __init__(self, pieces: Sequence[str], backend: Backend) -> None:
        self._pieces = pieces
        self._turn: Callable[[], Awaitable[object]] = (
            trio.lowlevel.checkpoint if backend == "trio" else partial(asyncio.sleep, 0)
        )
        self.handed_over = self.closed = 0.0
        self.pulled = 0

    async def stream(self) -> AsyncGenerator[str, None]:
        """The pieces, a turn of the loop each."""
        try:
            for piece in self._pieces:
                await self._turn()
                self.pulled += 1
                self.handed_over = time.perf_counter()
                yield piece
        finally:
            self.closed = time.perf_counter()


async def _closings(backend: Backend, plan: Plan) -> Closing:
    pieces = _pieces(_text(2_000) + "I will now check the configuration file again to be sure. " * 40)
    feed = ContentRepetition().feed
    completes = next(
        number for number, piece in enumerate(pieces, 1) if any(found.level == "loop" for found in feed(piece))
    )
    closing = Closing(backend, [], 0)
    for _ in range(plan.closes):
        source = _Chanting(pieces, backend)
        async with monitor.watch(source.stream(), stop_when=LIMITS, detectors=_two()) as watched:
            await _drain(watched)
        closing.us.append((source.closed - source.handed_over) * 1e6)
        closing.pulled_too_many += source.pulled - completes
    return closing


def _p99(values: Sequence[float]) -> float:
    """Nearest rank: of fewer than 100 values, the largest."""
    return sorted(values)[max(0, -(-99 * len(values) // 100) - 1)]


# --- peers: their stream layers over a model that costs nothing


async def _peer_costs(plan: Plan) -> list[Cost]:
    items = _pieces(_text(plan.peer_chunks * CHUNK_CHARS))
    jobs: dict[str, Job] = {
        "bare async for": lambda: _drain(_never_suspends(items)),
        "agent-monitor, limits and detectors": lambda: _drain_watched(_never_suspends(items), {"stop_when": LIMITS}),
    }
    for make in (_openai_agents, _autogen, _pydantic_ai):
        try:
            jobs |= make(items)
        except ImportError as error:
            _console.print(f"skipped {make.__name__.strip('_').replace('_', '-')}: {error.name} is not installed")
    return await _rounds(jobs, "asyncio", "never suspends", chunks=plan.peer_chunks, rounds=plan.peer_rounds)


def _openai_agents(items: Sequence[str]) -> dict[str, Job]:
    agents, interface = importlib.import_module("agents"), importlib.import_module("agents.models.interface")
    responses = importlib.import_module("openai.types.responses")
    agents.set_tracing_disabled(True)

    async def stream_response(_model: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        delta = partial(responses.ResponseTextDeltaEvent, content_index=0, item_id="m", output_index=0, logprobs=[])
        for number, item in enumerate(items):
            yield delta(delta=item, sequence_number=number, type="response.output_text.delta")
        words = responses.ResponseOutputText(annotations=[], text="".join(items), type="output_text", logprobs=[])
        message = responses.ResponseOutputMessage(
            id="m", role="assistant", status="completed", type="message", content=[words]
        )
        whole = {"id": "r", "created_at": 0.0, "model": "f", "object": "response", "output": [message]}
        answer = responses.Response(**whole, parallel_tool_calls=False, tool_choice="auto", tools=[])
        yield responses.ResponseCompletedEvent(response=answer, sequence_number=len(items), type="response.completed")

    async def get_response(_model: Any, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    model = type("Model", (interface.Model,), {"stream_response": stream_response, "get_response": get_response})()
    agent = agents.Agent(name="a", model=model)

    async def run() -> None:
        await _drain(agents.Runner.run_streamed(agent, "x").stream_events())

    return {"openai-agents, run_streamed().stream_events()": run}


def _pydantic_ai(items: Sequence[str]) -> dict[str, Job]:
    package, models = importlib.import_module("pydantic_ai"), importlib.import_module("pydantic_ai.models.function")

    async def answer(_messages: Any, _info: Any) -> AsyncIterator[str]:
        for item in items:
            yield item

    agent = package.Agent(models.FunctionModel(stream_function=answer))

    async def run() -> None:
        async with agent.run_stream("x") as streamed:
            await _drain(streamed.stream_text(delta=True, debounce_by=None))

    return {"pydantic-ai, run_stream().stream_text(delta=True)": run}


def _autogen(items: Sequence[str]) -> dict[str, Job]:
    chat, models = importlib.import_module("autogen_agentchat.agents"), importlib.import_module("autogen_core.models")
    no_usage = models.RequestUsage(prompt_tokens=1, completion_tokens=1)
    info = models.ModelInfo(
        vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False
    )

    async def create_stream(_client: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        for item in items:
            yield item
        yield models.CreateResult(finish_reason="stop", content="".join(items), usage=no_usage, cached=False)

    def answering(value: Any) -> Callable[..., Any]:
        return lambda *_, **__: value

    methods: dict[str, Any] = dict.fromkeys(models.ChatCompletionClient.__abstractmethods__, answering(1))
    methods |= {"actual_usage": answering(no_usage), "total_usage": answering(no_usage)}
    methods |= {
        "create_stream": create_stream,
        "model_info": property(answering(info)),
        "capabilities": property(answering(info)),
    }
    client = type("Client", (models.ChatCompletionClient,), methods)()

    async def run() -> None:
        agent = chat.AssistantAgent("a", client, model_client_stream=True)
        await _drain(agent.run_stream(task="x"))

    return {"autogen, AssistantAgent.run_stream()": run}


# --- the report


@dataclass
class Results:
    """What was measured, of the parts that were asked for."""

    costs: list[Cost] = field(default_factory=list)
    decoding: list[Cost] = field(default_factory=list)
    ages: list[Age] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    crowds: list[Crowd] = field(default_factory=list)
    set_up: list[SetUp] = field(default_factory=list)
    quiet: list[Quiet] = field(default_factory=list)
    closings: list[Closing] = field(default_factory=list)
    peers: list[Cost] = field(default_factory=list)

    def goals(self) -> list[dict[str, Any]]:
        """What was promised, and what came of it."""
        goals: list[tuple[str, float, float]] = []
        if self.costs:
            goals += [
                ("added to a chunk on asyncio, us", self._worst_added("asyncio"), GOAL_ASYNCIO_US),
                ("added to a chunk on trio, us", self._worst_added("trio"), GOAL_TRIO_US),
            ]
        if self.decoding:
            goals.append(("added by decoding google-genai, us", median(self.decoding[-1].added_us), GOAL_DECODE_US))
        if self.ages:
            goals.append(("an old stream against a new one, times", max(age.ratio for age in self.ages), GOAL_GROWTH))
        for held in self.held:
            if held.script == "ascii":
                goals.append(("held of an ASCII stream besides its text, KB", max(held.kilobytes), GOAL_HELD_KB))
        for set_up in self.set_up:
            goals.append(("added by a whole stream of two pieces, us", set_up.added_us, GOAL_SET_UP_US))
        for quiet in self.quiet:
            goals.append(("quiet streams, times plain asyncio's processor time", quiet.times, GOAL_QUIET_TIMES))
        for closing in self.closings:
            if closing.backend == "asyncio":
                goals.append(("from decision to the source's finally, p99 us", _p99(closing.us), GOAL_CLOSE_US))
        if self.closings:
            too_many = sum(closing.pulled_too_many for closing in self.closings)
            goals.append(("chunks pulled after the decision", float(too_many), 0.0))
        return [
            {"goal": name, "value": round(value, 3), "limit": limit, "passed": value <= limit}
            for name, value, limit in goals
        ]

    def _worst_added(self, backend: Backend) -> float:
        return max(median(cost.added_us) for cost in self.costs if cost.backend == backend and cost.name == FULL_ROW)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "packages": {name: _version(name) for name in PACKAGES},
            "costs": [row.to_dict() for row in self.costs],
            "decoding": [row.to_dict() for row in self.decoding],
            "ages": [row.to_dict() for row in self.ages],
            "held": [row.to_dict() for row in self.held],
            "crowds": [vars(row) for row in self.crowds],
            "set_up": [row.to_dict() for row in self.set_up],
            "quiet": [row.to_dict() for row in self.quiet],
            "closings": [row.to_dict() for row in self.closings],
            "peers": [row.to_dict() for row in self.peers],
            "goals": self.goals(),
        }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _print_costs(title: str, costs: Sequence[Cost]) -> None:
    table = Table(
        "", "event loop", "source", "us a chunk", "added: median", "added: min", "times the first", title=title
    )
    for row in costs:
        added = (f"{median(row.added_us):+.3f}", f"{min(row.added_us):+.3f}")
        table.add_row(row.name, row.backend, row.source, f"{median(row.us):.3f}", *added, f"{row.ratio:.1f}")
    _console.print(table)


def _print_ages(ages: Sequence[Age]) -> None:
    table = Table(
        "MB of text before", "old stream, us", "new stream, us", "ratio", title="Time for a chunk of a long stream"
    )
    for age in ages:
        table.add_row(
            f"{age.megabytes:g}", f"{median(age.old_us):.3f}", f"{median(age.new_us):.3f}", f"{age.ratio:.3f}"
        )
    _console.print(table)


def _print_held(held: Sequence[Held]) -> None:
    table = Table(
        "script",
        *(f"{size:g} M characters" for size in held[0].megabytes),
        title="Held of a stream in progress besides its text, KB",
    )
    for row in held:
        table.add_row(row.script, *(f"{value:.1f}" for value in row.kilobytes))
    _console.print(table)


def _print_crowds(crowds: Sequence[Crowd]) -> None:
    table = Table(
        "streams",
        "event loop",
        "bare, us a chunk",
        "watched",
        "added",
        "set up, us",
        "KB a stream",
        title="Streams at once, a turn a chunk",
    )
    for row in crowds:
        added = f"{row.watched_us - row.bare_us:+.2f}"
        times = (f"{row.bare_us:.2f}", f"{row.watched_us:.2f}", added, f"{row.set_up_us:.0f}")
        table.add_row(f"{row.streams:,}", row.backend, *times, f"{row.kilobytes:.1f}")
    _console.print(table)


def _print_lives(set_up: Sequence[SetUp], quiet: Sequence[Quiet]) -> None:
    table = Table("", "bare", "watched", "added", "times", title="Processor time of whole streams on asyncio, us each")
    rows: list[tuple[str, SetUp | Quiet]] = [("one after the other, two pieces", row) for row in set_up]
    rows += [(f"{row.streams:,} at once, {row.chunks} chunks, one each {QUIET_S:g} s", row) for row in quiet]
    for name, row in rows:
        bare, watched = median(row.bare_us), median(row.watched_us)
        table.add_row(name, f"{bare:.1f}", f"{watched:.1f}", f"{watched - bare:+.1f}", f"{watched / bare:.1f}")
    _console.print(table)


def _print_closings(closings: Sequence[Closing]) -> None:
    table = Table(
        "event loop",
        "runs",
        "p50 us",
        "p99 us",
        "chunks too many",
        title="From the decision to the source's own finally",
    )
    for row in closings:
        table.add_row(
            row.backend, str(len(row.us)), f"{median(row.us):.1f}", f"{_p99(row.us):.1f}", str(row.pulled_too_many)
        )
    _console.print(table)


def show(results: Results) -> None:
    """As tables."""
    if results.costs:
        _print_costs(f"Added to every chunk of {CHUNK_CHARS} characters", results.costs)
    if results.decoding:
        _print_costs("Decoding google-genai objects", results.decoding)
    if results.ages:
        _print_ages(results.ages)
    if results.held:
        _print_held(results.held)
    if results.crowds:
        _print_crowds(results.crowds)
    if results.set_up or results.quiet:
        _print_lives(results.set_up, results.quiet)
    if results.closings:
        _print_closings(results.closings)
    if results.peers:
        _print_costs("Stream layers of agent frameworks", results.peers)
    for goal in results.goals():
        _console.print(
            f"{'PASS' if goal['passed'] else 'FAIL'}  {goal['goal']}: {goal['value']} (at most {goal['limit']:g})"
        )


_BACKENDS: tuple[Backend, ...] = ("asyncio", "trio")
_PARTS: dict[str, Callable[[Plan], Results]] = {
    "chunks": lambda plan: Results(
        costs=[cost for backend in _BACKENDS for cost in anyio.run(_chunk_costs, backend, plan, backend=backend)]
    ),
    "decoding": lambda plan: Results(decoding=anyio.run(_decode_costs, plan)),
    "ages": lambda plan: Results(ages=anyio.run(_ages, plan)),
    "held": lambda plan: Results(held=anyio.run(_held, plan)),
    "crowds": lambda plan: Results(
        crowds=[
            anyio.run(_crowd, backend, streams, plan, backend=backend)
            for backend in _BACKENDS
            for streams in plan.streams
        ]
    ),
    "set-up": lambda plan: Results(set_up=[anyio.run(_set_ups, plan)]),
    "quiet": lambda plan: Results(quiet=[anyio.run(_quiets, plan)]),
    "closings": lambda plan: Results(
        closings=[anyio.run(_closings, backend, plan, backend=backend) for backend in _BACKENDS]
    ),
    "peers": lambda plan: Results(peers=anyio.run(_peer_costs, plan)),
}
"""What can be measured by itself."""


def measure(plan: Plan, parts: Sequence[str] | None = None) -> Results:
    """The named parts. `None`: all of them."""
    results = Results()
    for name in parts or _PARTS:
        for what, rows in vars(_PARTS[name](plan)).items():
            getattr(results, what).extend(rows)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write. A goal that was missed is printed, and is no error: machines
    differ.
    """
    parser = argparse.ArgumentParser(
        prog="python -m bench.stream", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument(
        "--quick", action="store_true", help="little of everything, to see that it works; writes nothing"
    )
    parser.add_argument("--only", choices=[*_PARTS], nargs="+", help="measure these parts alone; writes nothing")
    parser.add_argument("--megabytes", type=float, nargs="+", help="ages of the long stream")
    options = parser.parse_args(arguments)
    plan = QUICK if options.quick else FULL
    if options.megabytes:
        plan = replace(plan, megabytes=options.megabytes)
    results = measure(plan, options.only)
    show(results)
    if not options.quick and not options.only:
        _report.write("stream", results.to_dict())
    return 0


if __name__ == "__main__":
    sys.exit(main())

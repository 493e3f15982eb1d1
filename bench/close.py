"""Every way in which a run can end, with the real google-genai SDK on every transport: does the server see it, and how soon?

    python -m bench.close [--runs 20] [--quick]

Three tables. *Endings*: each of them against a local server; the reason, the caller's own exception or cancellation, the one
`RunTerminated`, the moment at which the server saw the client leave, and a second request on the same client. *Floods*: a
server that sends without a pause, so that the transport has buffered more than a close may drop. *Races*: our stop and a foreign
cancellation in the same turn of the event loop, in both orders, and sources that make closing hard. Exits with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import random
import string
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias, cast

import anyio
import anyio.lowlevel
import httpx2
from google import genai
from google.genai import types
from google.genai.client import AsyncClient
from rich.console import Console
from rich.table import Table

import monitor
from bench import _report
from monitor.chunks import Chunk
from monitor.detectors import NOTHING
from monitor.events import Event, FirstChunk, RunStarted, RunTerminated, StopDecided, TurnEnded
from monitor.outcome import Outcome
from monitor.reasons import TerminateReason
from monitor.sinks import EventSink, MemorySink
from monitor.testing import Do, FakeClock, Pause, ScriptedStream, Stall
from monitor.testing import gemini_server as wire
from monitor.testing.gemini_server import LocalGemini
from monitor.verdicts import Detection

Backend: TypeAlias = Literal["asyncio", "trio"]
Transport: TypeAlias = Literal["aiohttp", "httpx2"]

CELLS: tuple[tuple[Backend, Transport], ...] = (("asyncio", "aiohttp"), ("asyncio", "httpx2"), ("trio", "httpx2"))
"""The SDK's aiohttp transport knows no trio."""
RUNS = 20
GOAL_MS = 50.0
IDLE_S = 0.05
DEADLINE_S = 0.06
HARNESS_LIMIT_S = 10.0
"""A run that takes longer hangs."""
UNSEEN_S = 1.0
"""A close that the server has not seen by then, it never sees."""

_console = Console(width=150)


# --- what the server says


def _sentence() -> str:
    return "I will now check the configuration file again to be sure. "


def _words(count: int) -> list[str]:
    """Words that never repeat, so that no detector has a say."""
    chance = random.Random(7)
    return ["".join(chance.choices(string.ascii_lowercase, k=9)) + " " for _ in range(count)]


def _busy() -> list[wire.Step]:
    return [step for word in _words(500) for step in (wire.Send(wire.text(word)), wire.Pause(0.001))]


def _scripts() -> dict[str, wire.Script]:
    """A request names its script: it is the prompt."""
    opening = [wire.text(word) for word in _words(3)]
    return {
        "stalls": [*opening, wire.Stall()],
        "silent": [wire.Stall()],
        "busy": [*_busy(), wire.Stall()],
        "chants": [*opening, wire.Repeat(wire.text(_sentence()), delay_s=0.001)],
        "floods": [wire.Repeat(wire.text("and on and on "))],
        "small": [wire.text("ok"), wire.finish()],
    }


def _script_of(scripts: dict[str, wire.Script]) -> Callable[[wire.ReceivedRequest], wire.Script]:
    return lambda request: scripts[request.body["contents"][0]["parts"][0]["text"]]


@contextlib.asynccontextmanager
async def _sdk(server: LocalGemini, transport: Transport) -> AsyncIterator[AsyncClient]:
    options: dict[str, Any] = {"base_url": server.base_url}
    if transport == "httpx2":
        options["async_client_args"] = {"transport": httpx2.AsyncHTTPTransport()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # aiohttp warns of how the SDK derives from its session
        client = genai.Client(api_key="local", http_options=types.HttpOptions(**options))
        try:
            yield client.aio
        finally:
            await client.aio.aclose()
            client.close()


async def _ask(client: AsyncClient, script: str) -> AsyncIterator[types.GenerateContentResponse]:
    config = types.GenerateContentConfig(automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True))
    return await client.models.generate_content_stream(model="local", contents=script, config=config)


# --- one run


class _Stamp:
    """When the library decided, for endings that nobody else can date."""

    def __init__(self) -> None:
        self.at: float | None = None

    def emit(self, event: Event) -> None:
        if isinstance(event, StopDecided):
            self.at = time.perf_counter()


class _FailingSink:
    """Crashes at one kind of event."""

    def __init__(self, kind: type[Event]) -> None:
        self._kind = kind

    def emit(self, event: Event) -> None:
        if isinstance(event, self._kind):
            raise RuntimeError("the sink crashes")


class _CrashingDetector:
    """Crashes at the third delta."""

    name = "crashing"

    def __init__(self) -> None:
        self._seen = 0

    def observe(self, chunk: Chunk) -> Sequence[Detection]:
        self._seen += 1
        if self._seen > 2:
            raise ZeroDivisionError("the detector crashes")
        return NOTHING

    def reset(self) -> None:
        self._seen = 0

    def snapshot(self) -> dict[str, Any]:
        return {"version": 1}

    def restore(self, state: object) -> None:
        raise NotImplementedError


class Case:
    """One run: when its end was decided, what came of it, and what was wrong."""

    def __init__(self, number: int, source: Callable[[str], Any]) -> None:
        self.number = number
        self.wrong: list[str] = []
        self.decided_at: float | None = None
        self.events = MemorySink()
        self._stamp = _Stamp()
        self._source = source
        self._watched: monitor.Watch[Any] | None = None
        self._waiting = anyio.Event()

    @property
    def outcome(self) -> Outcome | None:
        return self._watched.outcome if self._watched is not None else None

    def watch(self, script: str, *, sinks: Sequence[EventSink] = (), **options: Any) -> monitor.Watch[Any]:
        self._watched = monitor.watch(partial(self._source, script), sinks=[*sinks, self.events, self._stamp], **options)
        return self._watched

    async def read(self, watched: AsyncIterator[Any]) -> None:
        """Read to the end; the third chunk is the last one of a server that stalls."""
        count = 0
        async for _ in watched:
            count += 1
            if count == 3:
                self._waiting.set()

    def decide(self) -> None:
        self.decided_at = time.perf_counter()

    @property
    def decision(self) -> float:
        decided = self.decided_at or self._stamp.at
        assert decided is not None, "nothing was decided"
        return decided

    async def when_waiting(self, action: Callable[[], object]) -> None:
        """Do it once a read is pending."""
        await self._waiting.wait()
        await anyio.sleep(0.003)
        self.decide()
        action()

    def expect(self, claim: bool, what: str) -> None:  # noqa: FBT001 - it is what is expected
        if not claim:
            self.wrong.append(what)

    def check(self, reasons: Sequence[TerminateReason], *, may_stay_open: bool = False) -> None:
        """What holds for every ending."""
        outcome = self.outcome
        if outcome is None:
            self.wrong.append("no outcome")
            return
        self.expect(outcome.reason in reasons, f"reason {outcome.reason.value}")
        self.expect(may_stay_open or outcome.closed, "not closed")
        ended = [isinstance(event, RunTerminated) for event in self.events.events]
        self.expect(sum(ended) == 1 and ended[-1], f"{sum(ended)} RunTerminated" if sum(ended) != 1 else "events after RunTerminated")


def _cancelling() -> int:
    """Cancellations that this task was asked for and has not settled; trio does not count them."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return task.cancelling() if task is not None else 0


# --- the endings


async def _break(case: Case) -> None:
    async with case.watch("busy") as watched:
        async for _ in watched:
            if len(case.events.events) and watched.outcome is None:
                case.decide()
                break


async def _abort_in_body(case: Case) -> None:
    async with case.watch("busy") as watched:
        async for _ in watched:
            case.decide()
            watched.abort("enough")


async def _abort_waiting(case: Case) -> None:
    async with anyio.create_task_group() as group, case.watch("stalls") as watched:
        group.start_soon(case.when_waiting, watched.abort)
        await case.read(watched)


async def _abort_from_thread(case: Case) -> None:
    def from_thread() -> None:
        threading.Thread(target=decide_and_abort).start()

    def decide_and_abort() -> None:
        case.decide()
        watched.abort("from a thread")

    async with anyio.create_task_group() as group, case.watch("stalls") as watched:
        group.start_soon(case.when_waiting, from_thread)
        await case.read(watched)


def _abort_before_headers(server: LocalGemini) -> Callable[[Case], Awaitable[None]]:
    async def play(case: Case) -> None:
        async def abort() -> None:
            while len(server.requests) <= case.number:
                await anyio.sleep(0.001)
            case.decide()
            watched.abort("no answer")

        async with anyio.create_task_group() as group, case.watch("silent") as watched:
            group.start_soon(abort)
            await case.read(watched)

    return play


async def _idle(case: Case) -> None:
    async with case.watch("stalls", stop_when=monitor.IdleTimeout(IDLE_S)) as watched:
        async for _ in watched:
            case.decided_at = time.perf_counter() + IDLE_S


async def _deadline(case: Case) -> None:
    case.decided_at = time.perf_counter() + DEADLINE_S
    async with case.watch("busy", stop_when=monitor.Timeout(DEADLINE_S)) as watched:
        await case.read(watched)


async def _detection(case: Case) -> None:
    async with case.watch("chants") as watched:
        await case.read(watched)


async def _body_exception(case: Case) -> None:
    mine = ValueError("the caller's own")
    try:
        async with case.watch("busy") as watched:
            async for _ in watched:
                case.decide()
                raise mine
    except ValueError as error:
        case.expect(error is mine, "another exception")
    else:
        case.wrong.append("the exception was swallowed")


async def _outer_scope(case: Case) -> None:
    went_on = False
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(case.when_waiting, scope.cancel)
            async with case.watch("stalls") as watched:
                await case.read(watched)
            await anyio.lowlevel.checkpoint()
            went_on = True
    case.expect(scope.cancelled_caught and not went_on, "the cancelled scope's code went on")


async def _native_cancel(case: Case) -> None:
    async def run() -> None:
        try:
            async with case.watch("stalls") as watched:
                await case.read(watched)
        finally:
            case.expect(_cancelling() == 1, f"cancelling() is {_cancelling()} in the cancelled task")

    async def cancel() -> None:
        await case.when_waiting(partial(task.cancel, "the caller's own"))

    task = asyncio.create_task(run())
    async with anyio.create_task_group() as group:
        group.start_soon(cancel)
        try:
            await task
            case.wrong.append("the cancellation was swallowed")
        except asyncio.CancelledError as error:
            case.expect(error.args == ("the caller's own",), f"cancelled with {error.args}")


async def _detector_crash(case: Case) -> None:
    async with case.watch("busy", detectors=[_CrashingDetector()]) as watched:
        await case.read(watched)
    outcome = case.outcome
    case.expect(outcome is not None and isinstance(outcome.error, ZeroDivisionError), "the crash is not in the outcome")


async def _sink_crash(case: Case) -> None:
    kinds = (RunStarted, FirstChunk, StopDecided, TurnEnded, RunTerminated)
    async with case.watch("chants", sinks=[_FailingSink(kinds[case.number // 2 % len(kinds)])]) as watched:
        await case.read(watched)


@dataclass(frozen=True)
class Ending:
    """A way to end, and what it has to be called."""

    name: str
    play: Callable[[Case], Awaitable[None]]
    reason: TerminateReason
    asyncio_only: bool = False


def _endings(server: LocalGemini) -> tuple[Ending, ...]:
    return (
        Ending("break", _break, TerminateReason.CLOSED_BY_CALLER),
        Ending("abort in the loop's body", _abort_in_body, TerminateReason.ABORTED),
        Ending("abort while waiting", _abort_waiting, TerminateReason.ABORTED),
        Ending("abort from a thread", _abort_from_thread, TerminateReason.ABORTED),
        Ending("abort before headers", _abort_before_headers(server), TerminateReason.ABORTED),
        Ending("idle timeout", _idle, TerminateReason.IDLE_TIMEOUT),
        Ending("deadline on a busy stream", _deadline, TerminateReason.TIMEOUT),
        Ending("detection", _detection, TerminateReason.LOOP_DETECTED),
        Ending("exception in the body", _body_exception, TerminateReason.ERROR),
        Ending("outer scope cancelled", _outer_scope, TerminateReason.CANCELLED),
        Ending("native task.cancel()", _native_cancel, TerminateReason.CANCELLED, asyncio_only=True),
        Ending("crash of a detector", _detector_crash, TerminateReason.ERROR),
        Ending("crash of a sink, then detection", _sink_crash, TerminateReason.LOOP_DETECTED),
    )


@dataclass
class Row:
    """One ending on one transport."""

    ending: str
    backend: Backend
    transport: Transport
    runs: int = 0
    wrong: int = 0
    what: dict[str, int] = field(default_factory=dict)
    usable: int = 0
    ms: list[float] = field(default_factory=list)

    def add(self, case: Case, *, ms: float, usable: bool) -> None:
        """One more run."""
        self.runs += 1
        self.wrong += bool(case.wrong)
        self.what = dict(Counter(self.what) + Counter(case.wrong))
        self.usable += usable
        self.ms.append(ms)


async def _one_ending(ending: Ending, server: LocalGemini, client: AsyncClient) -> tuple[Case, float, bool]:
    case = Case(len(server.requests), partial(_ask, client))
    settled = _cancelling()
    try:
        with anyio.fail_after(HARNESS_LIMIT_S):
            await ending.play(case)
    except TimeoutError:
        case.wrong.append("hung")
    case.expect(_cancelling() == settled, f"cancelling() is {_cancelling()} afterwards")
    case.check([ending.reason])
    ms = await _seen_after_ms(case, server)
    usable = await _usable(client)
    case.expect(usable, "the client is not usable")
    return case, ms, usable


async def _seen_after_ms(case: Case, server: LocalGemini) -> float:
    try:
        closed = await server.wait_closed_async(case.number, timeout_s=UNSEEN_S)
    except TimeoutError:
        case.wrong.append("the server never saw it")
        return math.inf
    return (closed.at - case.decision) * 1e3


async def _usable(client: AsyncClient) -> bool:
    try:
        with anyio.fail_after(HARNESS_LIMIT_S):
            return [chunk.text async for chunk in await _ask(client, "small")][0] == "ok"
    except Exception:  # noqa: BLE001 - whatever it is, the client cannot be used
        return False


async def _cell(backend: Backend, transport: Transport, server: LocalGemini, runs: int) -> list[Row]:
    """All endings on one transport, on one client."""
    rows = []
    async with _sdk(server, transport) as client:
        await _usable(client)  # the SDK's own first-use costs are nobody's ending
        for ending in _endings(server):
            if ending.asyncio_only and backend != "asyncio":
                continue
            row = Row(ending.name, backend, transport)
            for _ in range(runs):
                case, ms, usable = await _one_ending(ending, server, client)
                row.add(case, ms=ms, usable=usable)
            rows.append(row)
    return rows


# --- floods


@dataclass
class Flood:
    """A run that was broken off in a flood."""

    backend: Backend
    transport: Transport
    wrong: list[str]
    reason: str
    said_closed: bool
    seen_after_ms: float
    dropped: int
    closing_ms: float
    blocked_ms: float
    """The longest time for which no other task had a turn, from the decision on."""


class _Heartbeat:
    """A task that only wants its turns."""

    def __init__(self) -> None:
        self._beats: list[float] = []

    async def beat(self) -> None:
        while True:
            self._beats.append(time.perf_counter())
            await anyio.sleep(0.0005)

    def longest_gap_ms(self, start: float, end: float) -> float:
        beats = [start, *(at for at in self._beats if start < at < end), end]
        return max(after - before for before, after in zip(beats, beats[1:], strict=False)) * 1e3


async def _flood(backend: Backend, transport: Transport, server: LocalGemini) -> Flood:
    """Each on a client of its own: one that could not be closed must not slow the next one down."""
    heart = _Heartbeat()
    async with _sdk(server, transport) as client, anyio.create_task_group() as group:
        group.start_soon(heart.beat)
        case = Case(len(server.requests), partial(_ask, client))
        async with case.watch("floods", detectors=None) as watched:
            await _read_until_flooded(watched)
            case.decide()
        left = time.perf_counter()
        case.check([TerminateReason.CLOSED_BY_CALLER], may_stay_open=True)
        outcome = cast("Outcome", case.outcome)
        seen = await _seen_after_ms(case, server)
        if not outcome.closed:
            case.wrong = [what for what in case.wrong if what != "the server never saw it"]  # which is what it said
        case.expect(await _usable(client), "the client is not usable")
        group.cancel_scope.cancel()
    return Flood(
        backend,
        transport,
        case.wrong,
        outcome.reason.value,
        outcome.closed,
        seen,
        outcome.chunks_after_decision,
        (left - case.decision) * 1e3,
        heart.longest_gap_ms(case.decision, left),
    )


async def _read_until_flooded(watched: AsyncIterator[Any]) -> None:
    """A consumer that is slower than the server, for a moment."""
    count = 0
    async for _ in watched:
        count += 1
        if count % 5 == 0:
            await anyio.sleep(0.02)
        if count == 50:
            return


# --- races and sources that make it hard, in process

_PIECES = [_sentence()] * 14
"""Enough to be a loop; where exactly it falls is the detector's business."""


def _native(case: Case) -> Callable[[Case], Awaitable[None]]:
    raise NotImplementedError(case)


@dataclass
class Stop:
    """One of our stops, ready to be caused in this very turn of the loop."""

    watched: monitor.Watch[Any]
    ready: Callable[[], Awaitable[None]]
    cause: Callable[[], object]
    reason: TerminateReason


def _abort_stop(case: Case) -> Stop:
    stall = Stall()
    case_source = ScriptedStream("a", stall)
    watched = _watch_source(case, case_source)
    return Stop(watched, stall.reached, watched.abort, TerminateReason.ABORTED)


def _timeout_stop(case: Case) -> Stop:
    stall, clock = Stall(), FakeClock()
    watched = _watch_source(case, ScriptedStream("a", stall), stop_when=monitor.Timeout(30), clock=clock)
    return Stop(watched, stall.reached, partial(clock.advance, 60), TerminateReason.TIMEOUT)


def _idle_stop(case: Case) -> Stop:
    stall, clock = Stall(), FakeClock()
    watched = _watch_source(case, ScriptedStream("a", stall), stop_when=monitor.IdleTimeout(30), clock=clock)
    return Stop(watched, stall.reached, partial(clock.advance, 60), TerminateReason.IDLE_TIMEOUT)


def _detection_stop(case: Case) -> Stop:
    pause = Pause()
    watched = _watch_source(case, ScriptedStream("a", pause, *_PIECES, Stall()))
    return Stop(watched, pause.reached, pause.release, TerminateReason.LOOP_DETECTED)


def _watch_source(case: Case, source: ScriptedStream, **options: Any) -> monitor.Watch[Any]:
    case.__init__(case.number, lambda _: source)  # type: ignore[misc]
    return case.watch("", **options)

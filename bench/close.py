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
import logging
import random
import string
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from statistics import median
from typing import Any, Literal, TypeAlias

import anyio
import anyio.lowlevel
import anyio.to_thread
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
from monitor.testing import gemini_steps as wire
from monitor.testing.gemini_server import LocalGemini, ReceivedRequest
from monitor.verdicts import Detection

Backend: TypeAlias = Literal["asyncio", "trio"]
Transport: TypeAlias = Literal["aiohttp", "httpx2"]

CELLS: tuple[tuple[Backend, Transport], ...] = (("asyncio", "aiohttp"), ("asyncio", "httpx2"), ("trio", "httpx2"))
"""The SDK's aiohttp transport knows no trio."""
PACKAGES = ("google-genai", "aiohttp", "httpx2", "anyio", "trio")
RUNS = 20
GOAL_MS = 50.0
IDLE_S = 0.05
DEADLINE_S = 0.06
HARNESS_LIMIT_S = 10.0
"""A run that takes longer hangs."""
UNSEEN_S = 1.0
"""A close that the server has not seen by then, it never sees."""

SAME_TICK_S = 0.01
"""The two equal deadlines: short, because every repetition waits for it."""

Ask: TypeAlias = Callable[[str], Any]
"""From the name of a script to what opens its stream."""


_console = Console(width=150)


# --- what the server says


_SENTENCE = "I will now check the configuration file again to be sure. "


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
        "chants": [*opening, wire.Repeat(wire.text(_SENTENCE), delay_s=0.001)],
        "floods": [wire.Repeat(wire.text("and on and on "))],
        "small": [wire.text("ok"), wire.finish()],
    }


def _script_of(scripts: dict[str, wire.Script]) -> Callable[[ReceivedRequest], wire.Script]:
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
        """The moment of the decision."""
        if isinstance(event, StopDecided):
            self.at = time.perf_counter()


class Case:
    """One run: when its end was decided, what came of it, and what was wrong."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.decided_at: float | None = None
        self.events = MemorySink()
        self._stamp = _Stamp()
        self._watched: monitor.Watch[Any] | None = None
        self._waiting = anyio.Event()

    @property
    def outcome(self) -> Outcome:
        """How the run ended."""
        assert self._watched is not None, "nothing is watched yet"
        assert self._watched.outcome is not None, "the run has no outcome"
        return self._watched.outcome

    def watch(self, source: Any, *, sinks: Sequence[EventSink] = (), **options: Any) -> monitor.Watch[Any]:
        """Watch the stream that this run is about."""
        self._watched = monitor.watch(source, sinks=[*sinks, self.events, self._stamp], **options)
        return self._watched

    async def read(self, watched: AsyncIterator[Any]) -> list[Any]:
        """Read to the end. The third item is the last one of a server that stalls."""
        items: list[Any] = []
        async for item in watched:
            items.append(item)
            if len(items) == 3:
                self._waiting.set()
        return items

    def decide(self) -> None:
        """This is the moment from which the close is timed."""
        self.decided_at = time.perf_counter()

    @property
    def decision(self) -> float:
        """When the end was decided, on the clock of the server's records."""
        decided = self.decided_at or self._stamp.at
        assert decided is not None, "nothing was decided"
        return decided

    async def when_waiting(self, action: Callable[[], object]) -> None:
        """Do it once a read is pending."""
        await self._waiting.wait()
        await anyio.sleep(0.003)
        self.decide()
        action()

    def expect(self, *, what_else: str, that: bool) -> None:
        """Note `what_else` happened, unless `that` is so."""
        if not that:
            self.wrong.append(what_else)

    def check(self, *reasons: TerminateReason, may_stay_open: bool = False) -> None:
        """What holds for every ending."""
        if self._watched is None or self._watched.outcome is None:
            self.wrong.append("no outcome")
            return
        self.expect(that=self.outcome.reason in reasons, what_else=f"reason {self.outcome.reason.value}")
        self.expect(that=may_stay_open or self.outcome.closed, what_else="not closed")
        ends = [isinstance(event, RunTerminated) for event in self.events.events]
        self.expect(that=sum(ends) == 1, what_else=f"{sum(ends)} RunTerminated")
        self.expect(that=ends[-1], what_else="RunTerminated is not the last event")

    async def unless_hung(self, run: Awaitable[None]) -> None:
        """`run`, with what every caller may count on afterwards."""
        before = _cancelling()
        try:
            with anyio.fail_after(HARNESS_LIMIT_S):
                await run
        except TimeoutError:
            self.wrong.append("hung")
        except Exception as error:  # noqa: BLE001 - a benchmark of endings goes on
            self.wrong.append(f"{type(error).__name__}: {error}")
        try:
            await anyio.lowlevel.checkpoint()
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                raise
            self.wrong.append("the caller's code was cancelled")
        self.expect(that=_cancelling() == before, what_else=f"cancelling() is {_cancelling()} afterwards")


def _cancelling() -> int:
    """Cancellations that this task was asked for and has not settled; trio does not count them."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return task.cancelling() if task is not None else 0


# --- the endings


class _FailingSink:
    """Crashes at one kind of event."""

    def __init__(self, kind: type[Event]) -> None:
        self._kind = kind

    def emit(self, event: Event) -> None:
        """Crash, if it is time."""
        if isinstance(event, self._kind):
            raise RuntimeError("the sink crashes")


class _CrashingDetector:
    """Crashes at the third delta."""

    name = "crashing"

    def __init__(self) -> None:
        self._seen = 0

    def observe(self, chunk: Chunk) -> Sequence[Detection]:
        """Crash, if it is time."""
        self._seen += 1
        if self._seen > 2:
            raise ZeroDivisionError("the detector crashes")
        return NOTHING

    def reset(self) -> None:
        """Start again."""
        self._seen = 0

    def snapshot(self) -> dict[str, Any]:
        """Nobody asks."""
        return {"version": 1}

    def restore(self, state: object) -> None:
        """Nobody asks."""


class Endings:
    """Every way to end a stream of one client, a method each."""

    def __init__(self, server: LocalGemini, client: AsyncClient) -> None:
        self._server = server
        self._client = client

    def _ask(self, script: str) -> Any:
        return partial(_ask, self._client, script)

    async def leave(self, case: Case) -> None:
        """`break`."""
        async with case.watch(self._ask("busy")) as watched:
            async for _ in watched:
                case.decide()
                break

    async def abort_in_body(self, case: Case) -> None:
        """`abort()` in the caller's own loop."""
        async with case.watch(self._ask("busy")) as watched:
            async for _ in watched:
                case.decide()
                watched.abort("enough")

    async def abort_waiting(self, case: Case) -> None:
        """`abort()` from another task, while nothing comes."""
        async with anyio.create_task_group() as group, case.watch(self._ask("stalls")) as watched:
            group.start_soon(case.when_waiting, watched.abort)
            await case.read(watched)

    async def abort_from_thread(self, case: Case) -> None:
        """`abort()` from another thread, while nothing comes."""

        def decide_and_abort() -> None:
            case.decide()
            watched.abort("from a thread")

        thread = threading.Thread(target=decide_and_abort)
        async with anyio.create_task_group() as group, case.watch(self._ask("stalls")) as watched:
            group.start_soon(case.when_waiting, thread.start)
            await case.read(watched)
        thread.join()

    async def abort_before_headers(self, case: Case) -> None:
        """`abort()` while the server has not even answered."""
        number = len(self._server.requests)

        async def abort() -> None:
            await anyio.to_thread.run_sync(self._server.wait_request, number)
            case.decide()
            watched.abort("no answer")

        async with anyio.create_task_group() as group, case.watch(self._ask("silent")) as watched:
            group.start_soon(abort)
            await case.read(watched)

    async def idle(self, case: Case) -> None:
        """Nothing comes for too long."""
        async with case.watch(self._ask("stalls"), stop_when=monitor.IdleTimeout(IDLE_S)) as watched:
            async for _ in watched:
                case.decided_at = time.perf_counter() + IDLE_S

    async def deadline(self, case: Case) -> None:
        """The run takes too long, while chunks keep coming."""
        case.decided_at = time.perf_counter() + DEADLINE_S
        async with case.watch(self._ask("busy"), stop_when=monitor.Timeout(DEADLINE_S)) as watched:
            await case.read(watched)

    async def detection(self, case: Case) -> None:
        """The model chants."""
        async with case.watch(self._ask("chants")) as watched:
            await case.read(watched)

    async def body_exception(self, case: Case) -> None:
        """The caller's code raises."""
        mine = ValueError("the caller's own")
        try:
            async with case.watch(self._ask("busy")) as watched:
                async for _ in watched:
                    case.decide()
                    raise mine
        except ValueError as error:
            case.expect(that=error is mine, what_else="another exception came out")
        else:
            case.wrong.append("the exception was swallowed")

    async def outer_scope(self, case: Case) -> None:
        """A scope around it all is cancelled."""
        went_on = False
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                group.start_soon(case.when_waiting, scope.cancel)
                async with case.watch(self._ask("stalls")) as watched:
                    await case.read(watched)
                await anyio.lowlevel.checkpoint()
                went_on = True
        case.expect(that=scope.cancelled_caught and not went_on, what_else="the cancelled scope's code went on")

    async def native_cancel(self, case: Case) -> None:
        """The reading task is cancelled, as asyncio does it."""
        task = asyncio.create_task(_read_cancelled(case, case.watch(self._ask("stalls"))))
        await _cancelled_by(case, task, case.when_waiting(partial(task.cancel, "the caller's own")))

    async def detector_crash(self, case: Case) -> None:
        """A detector raises."""
        async with case.watch(self._ask("busy"), detectors=[_CrashingDetector()]) as watched:
            await case.read(watched)
        case.expect(that=isinstance(case.outcome.error, ZeroDivisionError), what_else="the crash is not in the outcome")

    async def sink_crash(self, case: Case) -> None:
        """A sink raises, at another event every time, which ends nothing; a detection does."""
        kinds = (RunStarted, FirstChunk, StopDecided, TurnEnded, RunTerminated)
        failing = _FailingSink(kinds[len(self._server.requests) // 2 % len(kinds)])  # two requests a run
        async with case.watch(self._ask("chants"), sinks=[failing]) as watched:
            await case.read(watched)

    def all(self) -> Iterator[tuple[str, Callable[[Case], Awaitable[None]], TerminateReason]]:
        """Name, method, and what the run has to be called."""
        yield "break", self.leave, TerminateReason.CLOSED_BY_CALLER
        yield "abort in the loop's body", self.abort_in_body, TerminateReason.ABORTED
        yield "abort while waiting", self.abort_waiting, TerminateReason.ABORTED
        yield "abort from a thread", self.abort_from_thread, TerminateReason.ABORTED
        yield "abort before headers", self.abort_before_headers, TerminateReason.ABORTED
        yield "idle timeout", self.idle, TerminateReason.IDLE_TIMEOUT
        yield "deadline on a busy stream", self.deadline, TerminateReason.TIMEOUT
        yield "detection", self.detection, TerminateReason.LOOP_DETECTED
        yield "exception in the body", self.body_exception, TerminateReason.ERROR
        yield "outer scope cancelled", self.outer_scope, TerminateReason.CANCELLED
        if _on_asyncio():
            yield "native task.cancel()", self.native_cancel, TerminateReason.CANCELLED
        yield "crash of a detector", self.detector_crash, TerminateReason.ERROR
        yield "crash of a sink, then detection", self.sink_crash, TerminateReason.LOOP_DETECTED


def _on_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _read_cancelled(case: Case, watch: monitor.Watch[Any]) -> None:
    """What the cancelled task of a caller does."""
    try:
        async with watch as watched:
            await case.read(watched)
        await anyio.lowlevel.checkpoint()
        case.wrong.append("the cancelled task's code went on")
    finally:
        case.expect(that=_cancelling() == 1, what_else=f"cancelling() is {_cancelling()} in the cancelled task")


async def _cancelled_by(case: Case, task: asyncio.Task[None], cancel: Awaitable[None], *, came_second: bool = False) -> None:
    """`came_second`: of two cancellations in one turn asyncio delivers the first one's message, and both count."""
    await cancel
    try:
        await task
    except asyncio.CancelledError as error:
        case.expect(that=came_second or error.args == ("the caller's own",), what_else=f"cancelled with {error.args}")
    else:
        case.wrong.append("the cancellation was swallowed")


@dataclass
class Row:
    """All runs of one ending in one place."""

    name: str
    backend: Backend
    transport: Transport | None = None
    runs: int = 0
    wrong: int = 0
    what: Counter[str] = field(default_factory=Counter)
    usable: int = 0
    ms: list[float] = field(default_factory=list)
    """How long after the decision the server saw the client leave, where it did."""

    def add(self, case: Case) -> None:
        """One more run."""
        self.runs += 1
        self.wrong += bool(case.wrong)
        self.what.update(case.wrong)


async def _endings(backend: Backend, transport: Transport, server: LocalGemini, runs: int) -> list[Row]:
    """All endings on one transport, on one client."""
    rows = []
    async with _sdk(server, transport) as client:
        await _usable(client)  # what the SDK does at its first use is no part of an ending
        for name, play, reason in Endings(server, client).all():
            row = Row(name, backend, transport)
            for _ in range(runs):
                await _one_ending(row, play, reason, server, client)
            rows.append(row)
    return rows


async def _one_ending(
    row: Row, play: Callable[[Case], Awaitable[None]], reason: TerminateReason, server: LocalGemini, client: AsyncClient
) -> None:
    case, number = Case(), len(server.requests)
    await case.unless_hung(play(case))
    case.check(reason)
    seen_ms = await _seen_after_ms(case, server, number)
    case.expect(that=seen_ms is not None, what_else="the server never saw it")
    usable = await _usable(client)
    case.expect(that=usable, what_else="the client is not usable")
    row.add(case)
    row.usable += usable
    if seen_ms is not None:
        row.ms.append(seen_ms)


async def _seen_after_ms(case: Case, server: LocalGemini, number: int) -> float | None:
    try:
        closed = await server.wait_closed_async(number, timeout_s=UNSEEN_S)
    except TimeoutError:
        return None
    return (closed.at - case.decision) * 1e3


async def _usable(client: AsyncClient) -> bool:
    try:
        with anyio.fail_after(HARNESS_LIMIT_S):
            return "".join([chunk.text or "" async for chunk in await _ask(client, "small")]) == "ok"
    except Exception:  # noqa: BLE001 - whatever it is, the client cannot be used
        return False


# --- floods


@dataclass
class Flood:
    """A run that was broken off in a flood."""

    backend: Backend
    transport: Transport
    wrong: list[str]
    said_closed: bool
    seen_after_ms: float | None
    chunks_after_decision: int
    closing_ms: float
    blocked_ms: float
    """The longest time for which no other task had a turn, from the decision on."""


class _Heart:
    """A task that only wants its turns."""

    def __init__(self) -> None:
        self._beats: list[float] = []

    async def beat(self) -> None:
        """As often as it may."""
        while True:
            self._beats.append(time.perf_counter())
            await anyio.sleep(0.0005)

    def longest_gap_ms(self, start: float, end: float) -> float:
        """For how long it was not let."""
        beats = [start, *(at for at in self._beats if start < at < end), end]
        return max(after - before for before, after in pairwise(beats)) * 1e3


async def _flood(backend: Backend, transport: Transport, server: LocalGemini) -> Flood:
    """Each on a client of its own: a connection that stays open must not slow the next one down."""
    heart, case, number = _Heart(), Case(), len(server.requests)
    async with _sdk(server, transport) as client, anyio.create_task_group() as group:
        group.start_soon(heart.beat)
        async with case.watch(partial(_ask, client, "floods"), detectors=None) as watched:
            await _read_behind(watched)
            case.decide()
        left = time.perf_counter()
        case.check(TerminateReason.CLOSED_BY_CALLER, may_stay_open=True)
        seen_ms = await _seen_after_ms(case, server, number)
        case.expect(that=seen_ms is not None or not case.outcome.closed, what_else="it said that it had closed")
        case.expect(that=await _usable(client), what_else="the client is not usable")
        group.cancel_scope.cancel()
    return Flood(
        backend=backend,
        transport=transport,
        wrong=case.wrong,
        said_closed=case.outcome.closed,
        seen_after_ms=seen_ms,
        chunks_after_decision=case.outcome.chunks_after_decision,
        closing_ms=(left - case.decision) * 1e3,
        blocked_ms=heart.longest_gap_ms(case.decision, left),
    )


async def _read_behind(watched: AsyncIterator[Any]) -> None:
    """A consumer that is slower than the server, so that the transport's buffer is full."""
    for count in range(50):
        await anext(watched)
        if count % 5 == 0:
            await anyio.sleep(0.01)


# --- races


@dataclass
class Armed:
    """One of our stops, to be caused in this very turn of the loop."""

    source: ScriptedStream
    options: dict[str, Any]
    pending: Pause | Stall
    """Where the source is when it is time."""
    cause: Callable[[monitor.Watch[Any]], object]
    reason: TerminateReason


def _armed_abort() -> Armed:
    stall = Stall()
    return Armed(ScriptedStream("a", stall), {}, stall, lambda watched: watched.abort(), TerminateReason.ABORTED)


def _armed_timeout() -> Armed:
    stall, clock = Stall(), FakeClock()
    options = {"stop_when": monitor.Timeout(30), "clock": clock}
    return Armed(ScriptedStream("a", stall), options, stall, lambda _: clock.advance(60), TerminateReason.TIMEOUT)


def _armed_idle() -> Armed:
    stall, clock = Stall(), FakeClock()
    options = {"stop_when": monitor.IdleTimeout(30), "clock": clock}
    return Armed(ScriptedStream("a", stall), options, stall, lambda _: clock.advance(60), TerminateReason.IDLE_TIMEOUT)


def _armed_detection() -> Armed:
    pause = Pause()
    source = ScriptedStream("a", pause, _SENTENCE * 20, Stall())
    return Armed(source, {}, pause, lambda _: pause.release(), TerminateReason.LOOP_DETECTED)


_ARMED = {"abort": _armed_abort, "timeout": _armed_timeout, "idle timeout": _armed_idle, "detection": _armed_detection}


async def _both(first: Callable[[], object], second: Callable[[], object], pending: Pause | Stall) -> None:
    await pending.reached()
    first()
    second()


def _ordered(
    ours: Callable[[], object], other: Callable[[], object], *, ours_first: bool
) -> tuple[Callable[[], object], Callable[[], object]]:
    return (ours, other) if ours_first else (other, ours)


async def _with_scope(case: Case, *, arm: Callable[[], Armed], ours_first: bool) -> None:
    """Ours, and the caller's scope is cancelled."""
    armed, went_on = arm(), False
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            watch = case.watch(armed.source, **armed.options)
            group.start_soon(_both, *_ordered(partial(armed.cause, watch), scope.cancel, ours_first=ours_first), armed.pending)
            async with watch as watched:
                await case.read(watched)
            await anyio.lowlevel.checkpoint()
            went_on = True
    case.expect(that=scope.cancelled_caught and not went_on, what_else="the cancelled scope's code went on")
    case.check(armed.reason, TerminateReason.CANCELLED)


async def _with_native(case: Case, *, arm: Callable[[], Armed], ours_first: bool) -> None:
    """Ours, and the caller's task is cancelled."""
    armed = arm()
    watch = case.watch(armed.source, **armed.options)
    task = asyncio.create_task(_read_cancelled(case, watch))
    cancel = partial(task.cancel, "the caller's own")
    both = _both(*_ordered(partial(armed.cause, watch), cancel, ours_first=ours_first), armed.pending)
    await _cancelled_by(case, task, both, came_second=ours_first)
    case.check(armed.reason, TerminateReason.CANCELLED)


async def _with_abort(case: Case, *, arm: Callable[[], Armed], ours_first: bool) -> None:
    """Two of ours: the user's abort wins."""
    armed = arm()
    async with anyio.create_task_group() as group, case.watch(armed.source, **armed.options) as watched:
        group.start_soon(_both, *_ordered(partial(armed.cause, watched), watched.abort, ours_first=ours_first), armed.pending)
        await case.read(watched)
    case.check(TerminateReason.ABORTED)


async def _chunk_and_abort(case: Case, *, ours_first: bool) -> None:
    """A chunk comes in the same turn: delivered or not, but once, and the run ends."""
    pause = Pause()
    async with anyio.create_task_group() as group, case.watch(ScriptedStream("a", pause, "b", Stall())) as watched:
        group.start_soon(_both, *_ordered(watched.abort, pause.release, ours_first=ours_first), pause)
        items = await case.read(watched)
    case.expect(that=items in (["a"], ["a", "b"]), what_else=f"delivered {items}")
    case.check(TerminateReason.ABORTED)


async def _equal_scope(case: Case) -> None:
    """The caller's `move_on_after` and our `Timeout`, of the same length."""
    went_on = False
    with anyio.move_on_after(SAME_TICK_S) as scope:
        async with case.watch(ScriptedStream("a", Stall()), stop_when=monitor.Timeout(SAME_TICK_S)) as watched:
            await case.read(watched)
        await anyio.sleep(HARNESS_LIMIT_S)
        went_on = True
    case.expect(that=scope.cancelled_caught and not went_on, what_else="the cancelled scope's code went on")
    case.check(TerminateReason.TIMEOUT, TerminateReason.CANCELLED)


async def _equal_timeout(case: Case) -> None:
    """The same with `asyncio.timeout`."""
    try:
        async with asyncio.timeout(SAME_TICK_S):
            async with case.watch(ScriptedStream("a", Stall()), stop_when=monitor.Timeout(SAME_TICK_S)) as watched:
                await case.read(watched)
            await asyncio.sleep(HARNESS_LIMIT_S)
    except TimeoutError:
        pass
    else:
        case.wrong.append("the TimeoutError was swallowed")
    case.check(TerminateReason.TIMEOUT, TerminateReason.CANCELLED)


async def _scope_while_closing(case: Case) -> None:
    """The caller's scope is cancelled while a slow source is being closed: it is closed all the same."""
    closing = Pause()
    went_on = False
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(_both, scope.cancel, closing.release, closing)
            source = ScriptedStream("a", "b", at_close=[closing])
            async with case.watch(source) as watched:
                await anext(watched)
            await anyio.lowlevel.checkpoint()
            went_on = True
    case.expect(that=scope.cancelled_caught and not went_on, what_else="the cancelled scope's code went on")
    case.expect(that=source.closed, what_else="the source stayed open")
    case.check(TerminateReason.CLOSED_BY_CALLER)


async def _native_while_closing(case: Case) -> None:
    """The same with a task, which no scope can shield: if the close is cut short, the outcome must not say otherwise."""
    stall, closing = Stall(), Pause()
    source = ScriptedStream("a", stall, at_close=[closing])
    watch = case.watch(source)
    task = asyncio.create_task(_read_cancelled(case, watch))
    await stall.reached()
    watch.abort()
    cancel = partial(task.cancel, "the caller's own")
    await _cancelled_by(case, task, _both(cancel, closing.release, closing))
    case.expect(that=source.closed or not case.outcome.closed, what_else="it said that it had closed")
    case.check(TerminateReason.ABORTED, may_stay_open=True)


# --- sources that make it hard


async def _abort_by_source(case: Case) -> None:
    """`abort()` from inside the read, as from a signal handler: it must end the read, and nothing after it."""
    source = ScriptedStream("a", Do(lambda: watched.abort("by itself")), "b", "c")
    async with case.watch(source) as watched:
        await case.read(watched)
    case.check(TerminateReason.ABORTED)


async def _swallowed_once(case: Case) -> None:
    """The source takes the first cancellation for a bad connection, and waits again."""

    async def source() -> AsyncIterator[str]:
        yield "a"
        with contextlib.suppress(asyncio.CancelledError):
            await anyio.sleep(UNSEEN_S)
        await anyio.sleep(UNSEEN_S)

    start = time.perf_counter()
    async with case.watch(source(), stop_when=monitor.IdleTimeout(SAME_TICK_S)) as watched:
        await case.read(watched)
    case.expect(that=time.perf_counter() - start < UNSEEN_S, what_else="the deadline passed unheard")
    case.check(TerminateReason.IDLE_TIMEOUT)


async def _close_raises(case: Case) -> None:
    """Closing fails, and the outcome says so."""
    async with case.watch(ScriptedStream("a", "b", at_close=[OSError("no")])) as watched:
        await anext(watched)
    case.expect(that=not case.outcome.closed, what_else="it said that it had closed")
    case.check(TerminateReason.CLOSED_BY_CALLER, may_stay_open=True)


async def _close_hangs(case: Case) -> None:
    """Closing never ends, and the outcome says so."""
    async with case.watch(ScriptedStream("a", "b", at_close=[Stall()]), close_grace_s=SAME_TICK_S) as watched:
        await anext(watched)
    case.expect(that=not case.outcome.closed, what_else="it said that it had closed")
    case.check(TerminateReason.CLOSED_BY_CALLER, may_stay_open=True)


class _Iterable:
    """Not an iterator: its `__aiter__` is a generator function, so whoever iterates has to close what it makes."""

    def __init__(self) -> None:
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[str]:
        try:
            for word in _words(3):
                yield word
                await anyio.lowlevel.checkpoint()
        finally:
            self.closed = True


async def _iterable_closed(case: Case) -> None:
    """The iterator that was made of an iterable is closed."""
    source = _Iterable()
    async with case.watch(source) as watched:
        await anext(watched)
    case.expect(that=source.closed or not case.outcome.closed, what_else="it said that it had closed")
    case.check(TerminateReason.CLOSED_BY_CALLER, may_stay_open=True)


async def _read_cut_short(case: Case) -> None:
    """The caller's scope around one read expires, which ends the source; that is no good end of the stream."""
    stall = Stall()
    async with anyio.create_task_group() as group, case.watch(ScriptedStream("a", stall)) as watched:
        with anyio.CancelScope() as scope:
            group.start_soon(_both, scope.cancel, lambda: None, stall)
            await case.read(watched)
        await case.read(watched)
    case.expect(that=not case.outcome.ok, what_else="ok")
    case.expect(that=_ended_once(case), what_else="RunTerminated is not the last event")


async def _left_while_closing(case: Case) -> None:
    """One task ends the stream and is closing it when the block is left in another: the outcome waits for the close."""
    stall, closing = Stall(), Pause()
    async with anyio.create_task_group() as group:
        async with case.watch(ScriptedStream("a", stall, at_close=[closing])) as watched:
            group.start_soon(case.read, watched)
            await stall.reached()
            watched.abort()
            await closing.reached()
            group.start_soon(_both, closing.release, lambda: None, closing)
        outcome_at = len(case.events.events)
    case.expect(that=outcome_at == len(case.events.events), what_else="events after the block was left")
    case.check(TerminateReason.ABORTED)


async def _left_while_read(case: Case) -> None:
    """The block is left while another task waits for a chunk: that task comes out."""
    stall = Stall()
    with anyio.move_on_after(UNSEEN_S) as hanging:
        async with anyio.create_task_group() as group, case.watch(ScriptedStream("a", stall)) as watched:
            group.start_soon(case.read, watched)
            await stall.reached()
    case.expect(that=not hanging.cancelled_caught, what_else="the reader was left waiting")
    case.check(TerminateReason.CLOSED_BY_CALLER, may_stay_open=True)


async def _two_readers(case: Case) -> None:
    """A second task reads at the same time: it is refused, and the first one is none the worse."""
    stall = Stall()
    async with anyio.create_task_group() as group, case.watch(ScriptedStream("a", stall)) as watched:
        group.start_soon(case.read, watched)
        await stall.reached()
        try:
            await anext(watched)
            case.wrong.append("the second reader was let in")
        except monitor.ConfigError:
            watched.abort()
    case.check(TerminateReason.ABORTED)


async def _never_iterated(case: Case) -> None:
    """An SDK's coroutine that nobody awaits in the end: it is closed, and aborting late changes nothing."""

    async def opened() -> ScriptedStream:
        case.wrong.append("it was opened")
        return ScriptedStream()

    async with case.watch(opened()) as watched:
        pass
    watched.abort("too late")
    watched.abort("and again")
    await anyio.lowlevel.checkpoint()
    case.check(TerminateReason.CLOSED_BY_CALLER)


def _ended_once(case: Case) -> bool:
    return [type(event) for event in case.events.events].index(RunTerminated) == len(case.events.events) - 1


def _races() -> Iterator[tuple[str, Callable[[Case], Awaitable[None]]]]:
    """What runs on the current event loop."""
    for ours_first in (True, False):
        for name, arm in _ARMED.items():
            yield _named(name, "scope.cancel()", ours_first=ours_first), partial(_with_scope, arm=arm, ours_first=ours_first)
            if _on_asyncio():
                yield _named(name, "task.cancel()", ours_first=ours_first), partial(_with_native, arm=arm, ours_first=ours_first)
            if name != "abort":
                yield _named(name, "abort", ours_first=ours_first), partial(_with_abort, arm=arm, ours_first=ours_first)
        yield _named("abort", "a chunk", ours_first=ours_first), partial(_chunk_and_abort, ours_first=ours_first)
    yield "move_on_after = Timeout", _equal_scope
    yield "scope.cancel() while closing", _scope_while_closing
    if _on_asyncio():
        yield "asyncio.timeout = Timeout", _equal_timeout
        yield "task.cancel() while closing", _native_while_closing
    yield "the source itself aborts", _abort_by_source
    yield "the source swallows one cancellation", _swallowed_once
    yield "closing raises", _close_raises
    yield "closing hangs", _close_hangs
    yield "an iterable that is no iterator", _iterable_closed
    yield "a read cut short by the caller", _read_cut_short
    yield "left while another task closes", _left_while_closing
    yield "left while another task reads", _left_while_read
    yield "two readers", _two_readers
    yield "never iterated, aborted late", _never_iterated


def _named(ours: str, other: str, *, ours_first: bool) -> str:
    return f"{ours}, then {other}" if ours_first else f"{other}, then {ours}"


async def _raced(backend: Backend, runs: int) -> list[Row]:
    rows = []
    for name, play in _races():
        row = Row(name, backend)
        for _ in range(runs):
            case = Case()
            await case.unless_hung(play(case))
            row.add(case)
        rows.append(row)
    return rows


# --- the report


def _p99(values: Sequence[float]) -> float:
    """Nearest rank: of fewer than 100 values, the largest."""
    return sorted(values)[max(0, -(-99 * len(values) // 100) - 1)]


def _print_endings(rows: Sequence[Row]) -> None:
    table = Table(
        "ending", "transport", "runs", "wrong", "p50 ms", "p99 ms", "usable", title="Endings: from the decision to the server's view"
    )
    for row in rows:
        times = (f"{median(row.ms):.2f}", f"{_p99(row.ms):.2f}") if row.ms else ("never", "never")
        where = f"{row.transport} on {row.backend}"
        table.add_row(row.name, where, str(row.runs), _wrong(row), *times, f"{row.usable}/{row.runs}")
    _console.print(table)


def _print_floods(floods: Sequence[Flood]) -> None:
    table = Table("transport", "said closed", "server saw it", "dropped chunks", "closing ms", "loop blocked ms", title="Floods")
    for flood in floods:
        seen = "no" if flood.seen_after_ms is None else f"{flood.seen_after_ms:.1f} ms"
        times = (f"{flood.closing_ms:.1f}", f"{flood.blocked_ms:.1f}")
        where = f"{flood.transport} on {flood.backend}"
        table.add_row(where, "yes" if flood.said_closed else "no", seen, str(flood.chunks_after_decision), *times)
    _console.print(table)


def _print_races(rows: Sequence[Row]) -> None:
    table = Table("race or source", "event loop", "runs", "wrong", title="Races and sources that make it hard")
    for row in rows:
        table.add_row(row.name, row.backend, str(row.runs), _wrong(row))
    _console.print(table)


def _wrong(row: Row) -> str:
    return f"{row.wrong}: {', '.join(row.what)}" if row.wrong else "0"


@dataclass
class Results:
    """Everything that was measured."""

    endings: list[Row] = field(default_factory=list)
    floods: list[Flood] = field(default_factory=list)
    races: list[Row] = field(default_factory=list)

    def goals(self) -> list[dict[str, Any]]:
        """What was promised, and what came of it."""
        late = max((_p99(row.ms) for row in self.endings if row.ms), default=0.0)
        goals = [
            ("endings that went wrong", sum(row.wrong for row in self.endings), 0),
            ("worst p99 from decision to server, ms", round(late, 3), GOAL_MS),
            ("floods that went wrong", sum(bool(flood.wrong) for flood in self.floods), 0),
            ("races and hard sources that went wrong", sum(row.wrong for row in self.races), 0),
        ]
        return [{"goal": name, "value": value, "limit": limit, "passed": value <= limit} for name, value, limit in goals]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "packages": {name: version(name) for name in PACKAGES},
            "endings": [_row_to_dict(row) for row in self.endings],
            "floods": [flood.__dict__ for flood in self.floods],
            "races": [_row_to_dict(row) for row in self.races],
            "goals": self.goals(),
        }


def _row_to_dict(row: Row) -> dict[str, Any]:
    data: dict[str, Any] = {"name": row.name, "backend": row.backend, "runs": row.runs, "wrong": row.wrong, "what": dict(row.what)}
    if row.transport is None:
        return data
    times = {"p50_ms": round(median(row.ms), 3), "p99_ms": round(_p99(row.ms), 3)} if row.ms else {"p50_ms": None, "p99_ms": None}
    return data | {"transport": row.transport, "usable": row.usable} | times


@contextlib.contextmanager
def _quiet(*loggers: str) -> Iterator[None]:
    """Crashing sinks are reported, as they should be; httpcore2 leaves a generator to the collector on trio, and trio says so."""
    levels = {name: logging.getLogger(name).level for name in loggers}
    for name in loggers:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def measure(*, runs: int, floods: int, races: int) -> Results:
    """All of it. `runs`, `floods`, `races`: how often each."""
    results = Results()
    with _quiet("monitor.sinks", "trio.async_generator_errors"), LocalGemini(_script_of(_scripts())) as server:
        for backend, transport in CELLS:
            results.endings += anyio.run(_endings, backend, transport, server, runs, backend=backend)
        for backend, transport in CELLS:
            results.floods += [anyio.run(_flood, backend, transport, server, backend=backend) for _ in range(floods)]
    backends: tuple[Backend, ...] = ("asyncio", "trio")
    for backend in backends:
        results.races += anyio.run(_raced, backend, races, backend=backend)
    return results


def show(results: Results) -> None:
    """As tables."""
    _print_endings(results.endings)
    _print_floods(results.floods)
    _print_races(results.races)
    for goal in results.goals():
        _console.print(f"{'PASS' if goal['passed'] else 'FAIL'}  {goal['goal']}: {goal['value']} (at most {goal['limit']})")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.close", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, help=f"of every ending on every transport; {RUNS} if not given")
    parser.add_argument("--quick", action="store_true", help="two of each, to see that it works; writes nothing")
    options = parser.parse_args(arguments)
    runs = options.runs or (2 if options.quick else RUNS)
    results = measure(runs=runs, floods=1 if options.quick else 5, races=runs if options.quick else 5 * runs)
    show(results)
    if not options.quick:
        _report.write("close", results.to_dict())
    return 0 if all(goal["passed"] for goal in results.goals()) else 1


if __name__ == "__main__":
    sys.exit(main())

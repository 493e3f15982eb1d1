"""Every way in which a run can end, with the real SDKs on every transport: does the server see it,
and how soon?

    python -m bench.close [--runs 20] [--quick] [--frameworks] [--also PYTHON]

Four tables. *Endings*: each of them against a local server; the reason, the caller's own exception
or cancellation, the one `RunTerminated`, the moment at which the server saw the client leave, and a
second request on the same client. *Floods*: a server that sends without a pause, so that the
transport has buffered more than a close may drop. *Races*: our stop and a foreign cancellation in
the same turn of the event loop, in both orders, and sources that make closing hard. *Frameworks*:
the endings inside the loops of the agent frameworks that are installed; `--frameworks` measures
these alone, `--also` those of another environment. They are written to a file of their own. Exits
with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from statistics import median
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
from rich.console import Console
from rich.table import Table

import monitor
from bench import _report
from bench._close_cases import (
    HARNESS_LIMIT_S,
    UNSEEN_S,
    Backend,
    Case,
    CountingDetector,
    FailingSink,
    Row,
    Transport,
    cancelled_by,
    on_asyncio,
    read_cancelled,
)
from bench._close_frameworks import framework_rows
from bench._close_races import raced
from bench._close_sdks import SDKS, Sdk
from bench._quiet import quiet
from bench.frameworks.base import frameworks
from monitor.chunks import Chunk
from monitor.detectors import NOTHING
from monitor.errors import TerminateReason
from monitor.events import FirstChunk, RunStarted, RunTerminated, StopDecided, TurnEnded
from monitor.testing.local_server import LocalServer
from monitor.verdicts import Detection

PACKAGES = (*dict.fromkeys(package for sdk in SDKS for package in sdk.packages), "aiohttp", "httpx2", "anyio", "trio")
RUNS = 20
GOAL_MS = 50.0
IDLE_S = 0.05
OPENING_S = 0.02
"""The first moments of a stream: connecting, asking, the headers, the first object."""
DEADLINE_S = 0.06
ON_ITS_WAY_S = 0.01


_console = Console(width=150)


# --- the endings


class _CrashingDetector(CountingDetector):
    """Crashes at the third delta."""

    name = "crashing"

    def observe(self, chunk: Chunk) -> Sequence[Detection]:
        """Crash, if it is time."""
        self.seen += 1
        if self.seen > 2:
            raise ZeroDivisionError("the detector crashes")
        return NOTHING


class Endings:
    """Every way to end a stream of one client, a method each."""

    def __init__(self, sdk: Sdk, server: LocalServer, client: Any) -> None:
        self.sdk = sdk
        self.server = server
        self.client = client
        self._chance = random.Random(7)

    def _ask(self, script: str) -> Any:
        """What opens the stream of a script. A request names its script: it is the prompt."""
        return partial(self.sdk.ask, self.client, script)

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
        number = len(self.server.requests)

        async def abort() -> None:
            await anyio.to_thread.run_sync(self.server.wait_request, number)
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
        task = asyncio.create_task(read_cancelled(case, case.watch(self._ask("stalls"))))
        await cancelled_by(case, task, case.when_waiting(partial(task.cancel, "the caller's own")))

    def _while_opening(self, case: Case) -> float:
        """A moment of the opening, in seconds from its beginning. It may be so early that nothing
        was asked yet.
        """
        case.may_ask_nothing = True
        return self._chance.uniform(0.0005, OPENING_S)

    async def _at_some_moment(self, case: Case, action: Callable[[], object]) -> None:
        await anyio.sleep(self._while_opening(case))
        case.decide()
        action()

    async def abort_opening(self, case: Case) -> None:
        """`abort()` from another task, while the stream opens."""
        async with anyio.create_task_group() as group, case.watch(self._ask("stalls")) as watched:
            group.start_soon(self._at_some_moment, case, watched.abort)
            await case.read(watched)

    async def deadline_opening(self, case: Case) -> None:
        """The run takes too long, while the stream opens."""
        async with case.watch(self._ask("stalls"), stop_when=monitor.Timeout(self._while_opening(case))) as watched:
            await case.read(watched)

    async def outer_scope_opening(self, case: Case) -> None:
        """A scope around it all is cancelled, while the stream opens."""
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                async with case.watch(self._ask("stalls")) as watched:
                    group.start_soon(self._at_some_moment, case, scope.cancel)
                    await case.read(watched)
        case.expect(that=scope.cancelled_caught, what_else="the cancellation was swallowed")

    async def native_cancel_opening(self, case: Case) -> None:
        """The reading task is cancelled, as asyncio does it, while the stream opens."""
        task = asyncio.create_task(read_cancelled(case, case.watch(self._ask("stalls"))))
        await cancelled_by(case, task, self._at_some_moment(case, partial(task.cancel, "the caller's own")))

    async def detector_crash(self, case: Case) -> None:
        """A detector raises."""
        async with case.watch(self._ask("busy"), detectors=[_CrashingDetector()]) as watched:
            await case.read(watched)
        case.expect(that=isinstance(case.outcome.error, ZeroDivisionError), what_else="the crash is not in the outcome")

    async def sink_crash(self, case: Case) -> None:
        """A sink raises, at another event every time, which ends nothing; a detection does."""
        kinds = (RunStarted, FirstChunk, StopDecided, TurnEnded, RunTerminated)
        failing = FailingSink(kinds[len(self.server.requests) // 2 % len(kinds)])  # two requests a run
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
        if on_asyncio():
            yield "native task.cancel()", self.native_cancel, TerminateReason.CANCELLED
        yield "abort while opening", self.abort_opening, TerminateReason.ABORTED
        yield "deadline while opening", self.deadline_opening, TerminateReason.TIMEOUT
        yield "outer scope cancelled while opening", self.outer_scope_opening, TerminateReason.CANCELLED
        if on_asyncio():
            yield "native task.cancel() while opening", self.native_cancel_opening, TerminateReason.CANCELLED
        yield "crash of a detector", self.detector_crash, TerminateReason.ERROR
        yield "crash of a sink, then detection", self.sink_crash, TerminateReason.LOOP_DETECTED


async def _endings(sdk: Sdk, backend: Backend, transport: Transport, server: LocalServer, runs: int) -> list[Row]:
    """All endings on one transport, on one client."""
    rows = []
    async with sdk.client(server, transport) as client:
        await _usable(sdk, client)  # what the SDK does at its first use is no part of an ending
        endings = Endings(sdk, server, client)
        for name, play, reason in endings.all():
            row = Row(name, backend, transport, sdk.name)
            for _ in range(runs):
                await _one_ending(row, play, reason, endings)
            rows.append(row)
    return rows


async def _one_ending(
    row: Row, play: Callable[[Case], Awaitable[None]], reason: TerminateReason, endings: Endings
) -> None:
    server = endings.server
    case, number = Case(), len(server.requests)
    await case.unless_hung(play(case))
    case.check(reason)
    seen_ms = None
    if case.may_ask_nothing and not await _was_asked(server, number):
        row.unasked += 1
    else:
        seen_ms = await _seen_after_ms(case, server, number)
        case.expect(that=seen_ms is not None, what_else="the server never saw it")
    usable = await _usable(endings.sdk, endings.client)
    case.expect(that=usable, what_else="the client is not usable")
    row.add(case)
    row.usable += usable
    if seen_ms is not None:
        row.ms.append(seen_ms)


async def _was_asked(server: LocalServer, number: int) -> bool:
    """What was sent just before the end may still be on its way."""
    await anyio.sleep(ON_ITS_WAY_S)
    return len(server.requests) > number


async def _seen_after_ms(case: Case, server: LocalServer, number: int) -> float | None:
    try:
        closed = await server.wait_closed_async(number, timeout_s=UNSEEN_S)
    except TimeoutError:
        return None
    return (closed.at - case.decision) * 1e3


async def _usable(sdk: Sdk, client: Any) -> bool:
    try:
        with anyio.fail_after(HARNESS_LIMIT_S):
            return "".join([sdk.said(item) or "" async for item in await sdk.ask(client, "small")]) == "ok"
    except Exception:  # noqa: BLE001 - whatever it is, the client cannot be used
        return False


# --- floods


@dataclass
class Flood:
    """A run that was broken off in a flood."""

    sdk: str
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


async def _flood(sdk: Sdk, backend: Backend, transport: Transport, server: LocalServer) -> Flood:
    """Each on a client of its own: a connection that stays open must not slow the next one down."""
    heart, case, number = _Heart(), Case(), len(server.requests)
    async with sdk.client(server, transport) as client, anyio.create_task_group() as group:
        group.start_soon(heart.beat)
        async with case.watch(partial(sdk.ask, client, "floods"), detectors=None) as watched:
            await _read_behind(watched)
            case.decide()
        left = time.perf_counter()
        case.check(TerminateReason.CLOSED_BY_CALLER, may_stay_open=True)
        seen_ms = await _seen_after_ms(case, server, number)
        case.expect(that=seen_ms is not None or not case.outcome.closed, what_else="it said that it had closed")
        case.expect(that=await _usable(sdk, client), what_else="the client is not usable")
        group.cancel_scope.cancel()
    return Flood(
        sdk=sdk.name,
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


# --- the report


def _p99(values: Sequence[float]) -> float:
    """Nearest rank: of fewer than 100 values, the largest."""
    return sorted(values)[max(0, -(-99 * len(values) // 100) - 1)]


def _print_endings(rows: Sequence[Row], title: str) -> None:
    table = Table(
        "ending",
        "SDK",
        "transport",
        "runs",
        "wrong",
        "p50 ms",
        "p99 ms",
        "usable",
        title=f"{title}: from the decision to the server's view",
    )
    for row in rows:
        times = (f"{median(row.ms):.2f}", f"{_p99(row.ms):.2f}") if row.ms else ("never", "never")
        where = f"{row.transport} on {row.backend}"
        table.add_row(row.name, row.sdk, where, str(row.runs), _wrong(row), *times, f"{row.usable}/{row.runs}")
    _console.print(table)


def _print_floods(floods: Sequence[Flood]) -> None:
    table = Table(
        "SDK",
        "transport",
        "said closed",
        "server saw it",
        "dropped chunks",
        "closing ms",
        "loop blocked ms",
        title="Floods",
    )
    for flood in floods:
        seen = "no" if flood.seen_after_ms is None else f"{flood.seen_after_ms:.1f} ms"
        times = (f"{flood.closing_ms:.1f}", f"{flood.blocked_ms:.1f}")
        where = f"{flood.transport} on {flood.backend}"
        table.add_row(
            flood.sdk, where, "yes" if flood.said_closed else "no", seen, str(flood.chunks_after_decision), *times
        )
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
    frameworks: list[Row] = field(default_factory=list)

    def goals(self) -> list[dict[str, Any]]:
        """What was promised, and what came of it."""
        return _judged(
            [
                ("endings that went wrong", sum(row.wrong for row in self.endings), 0),
                ("worst p99 from decision to server, ms", _latest(self.endings), GOAL_MS),
                ("floods that went wrong", sum(bool(flood.wrong) for flood in self.floods), 0),
                ("races and hard sources that went wrong", sum(row.wrong for row in self.races), 0),
            ]
        )

    def framework_goals(self) -> list[dict[str, Any]]:
        """The same for the endings inside frameworks."""
        return _judged(
            [
                ("endings inside frameworks that went wrong", sum(row.wrong for row in self.frameworks), 0),
                ("worst p99 from decision to server inside frameworks, ms", _latest(self.frameworks), GOAL_MS),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "packages": {name: version(name) for name in PACKAGES},
            "endings": [_row_to_dict(row) for row in self.endings],
            "floods": [flood.__dict__ for flood in self.floods],
            "races": [_row_to_dict(row) for row in self.races],
            "goals": self.goals(),
        }

    def frameworks_dict(self) -> dict[str, Any]:
        """The endings inside frameworks, as JSON."""
        rows = [framework for framework in frameworks().values() if framework is not None]
        return {
            "packages": {name: version(name) for row in rows for name in row.packages},
            "frameworks": sorted({row.sdk for row in self.frameworks if row.sdk}),
            "endings": [_row_to_dict(row) for row in self.frameworks],
            "goals": self.framework_goals(),
        }


def _latest(rows: Sequence[Row]) -> float:
    return round(max((_p99(row.ms) for row in rows if row.ms), default=0.0), 3)


def _judged(goals: Sequence[tuple[str, float, float]]) -> list[dict[str, Any]]:
    return [{"goal": name, "value": value, "limit": limit, "passed": value <= limit} for name, value, limit in goals]


def _row_to_dict(row: Row) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": row.name,
        "backend": row.backend,
        "runs": row.runs,
        "wrong": row.wrong,
        "what": dict(row.what),
    }
    if row.transport is None:
        return data
    times = (
        {"p50_ms": round(median(row.ms), 3), "p99_ms": round(_p99(row.ms), 3)}
        if row.ms
        else {"p50_ms": None, "p99_ms": None}
    )
    return data | {"sdk": row.sdk, "transport": row.transport, "usable": row.usable, "unasked": row.unasked} | times


def measure(*, runs: int, floods: int, races: int) -> Results:
    """All but the frameworks. `runs`, `floods`, `races`: how often each."""
    results = Results()
    for sdk in SDKS:
        with quiet("monitor.sinks", "trio.async_generator_errors"), sdk.serve() as server:
            for backend, transport in sdk.transports:
                results.endings += anyio.run(_endings, sdk, backend, transport, server, runs, backend=backend)
            for backend, transport in sdk.transports:
                results.floods += [
                    anyio.run(_flood, sdk, backend, transport, server, backend=backend) for _ in range(floods)
                ]
    backends: tuple[Backend, ...] = ("asyncio", "trio")
    for backend in backends:
        results.races += anyio.run(raced, backend, races, backend=backend)
    return results


def show(results: Results) -> None:
    """As tables."""
    if results.frameworks:
        _print_endings(results.frameworks, "Endings inside frameworks")
    if results.endings:
        _print_endings(results.endings, "Endings")
        _print_floods(results.floods)
        _print_races(results.races)
    inside = results.framework_goals() if results.frameworks else []
    for goal in (*inside, *(results.goals() if results.endings else ())):
        _console.print(
            f"{'PASS' if goal['passed'] else 'FAIL'}  {goal['goal']}: {goal['value']} (at most {goal['limit']})"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.close", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--runs", type=int, help=f"of every ending on every transport; {RUNS} if not given")
    parser.add_argument("--quick", action="store_true", help="two of each, to see that it works; writes nothing")
    parser.add_argument("--frameworks", action="store_true", help="only the endings inside agent frameworks")
    parser.add_argument("--also", metavar="PYTHON", action="append", default=[], help="of another environment")
    options = parser.parse_args(arguments)
    runs, alone = options.runs or (2 if options.quick else RUNS), options.frameworks
    races = runs if options.quick else 5 * runs
    floods = 1 if options.quick else 5
    results = Results() if alone else measure(runs=runs, floods=floods, races=races)
    results.frameworks = framework_rows(runs, options.also)
    show(results)
    goals = [*results.framework_goals(), *([] if alone else results.goals())]
    if not options.quick:
        _report.write("close_frameworks", results.frameworks_dict())
        if not alone:
            _report.write("close", results.to_dict())
    return 0 if all(goal["passed"] for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())

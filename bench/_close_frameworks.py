"""The endings of `bench.close` inside the loops of agent frameworks: the guard is the caller's, the
loop around the stream is the framework's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread

import monitor
from bench._close_cases import (
    HARNESS_LIMIT_S,
    UNSEEN_S,
    Case,
    CountingDetector,
    FailingSink,
    Row,
    cancelled_by,
    cancelling,
)
from bench._quiet import quiet
from bench.frameworks.base import Framework, frameworks
from monitor.chunks import Chunk
from monitor.detectors import NOTHING, default_detectors
from monitor.errors import TerminateReason
from monitor.events import FirstChunk, RunStarted, RunTerminated, StopDecided, TurnEnded
from monitor.guard.guard import Guard
from monitor.testing.local_server import LocalServer
from monitor.verdicts import Detection

ROOT = Path(__file__).parents[1]
IDLE_S = 0.05
DEADLINE_S = 0.08
OPENING_S = 0.04
"""The first moments of a run: the framework's own work before its request comes first."""
ON_ITS_WAY_S = 0.01


class Seeing(CountingDetector):
    """A detector that finds nothing. It says that chunks have come, and may crash."""

    name = "seeing"

    def __init__(self, case: Case, *, idle_s: float = 0.0, crash: bool = False) -> None:
        self._case = case
        self._idle_s = idle_s
        self._crash = crash
        super().__init__()

    def observe(self, chunk: Chunk) -> Sequence[Detection]:
        """The third chunk is the last one of a server that stalls."""
        self.seen += 1
        if self.seen == 3:
            if self._crash:
                raise ZeroDivisionError("the detector crashes")
            self._case.has_three()
        if self._idle_s:
            self._case.decided_at = time.perf_counter() + self._idle_s
        return NOTHING


class FrameworkEndings:
    """Every way to end a run inside a framework, a method each."""

    def __init__(self, framework: Framework, server: LocalServer, client: Any) -> None:
        self.framework = framework
        self.server = server
        self.client = client
        self._chance = random.Random(7)

    async def _ask(self, prompt: str, guard: Guard) -> None:
        await self.framework.ask(self.client, prompt, guard)

    async def _beside(self, case: Case, prompt: str, what: Callable[[Guard], Coroutine[Any, Any, None]]) -> None:
        """A run, and beside it what ends it."""
        guard = case.guard(detectors=[Seeing(case)])
        async with anyio.create_task_group() as group:
            group.start_soon(what, guard)
            await self._ask(prompt, guard)

    async def abort_waiting(self, case: Case) -> None:
        """`guard.abort()` from another task, while nothing comes."""
        await self._beside(case, "stalls", lambda guard: case.when_waiting(guard.abort))

    async def abort_from_thread(self, case: Case) -> None:
        """`guard.abort()` from another thread, while nothing comes."""

        def in_a_thread(guard: Guard) -> None:
            thread = threading.Thread(target=guard.abort, args=("from a thread",))
            thread.start()

        await self._beside(case, "stalls", lambda guard: case.when_waiting(partial(in_a_thread, guard)))

    async def abort_before_headers(self, case: Case) -> None:
        """`guard.abort()` while the server has not even answered."""
        number = len(self.server.requests)

        async def abort(guard: Guard) -> None:
            await anyio.to_thread.run_sync(self.server.wait_request, number)
            case.decide()
            guard.abort("no answer")

        await self._beside(case, "silent", abort)

    async def idle(self, case: Case) -> None:
        """Nothing comes for too long."""
        guard = case.guard(stop_when=monitor.IdleTimeout(IDLE_S), detectors=[Seeing(case, idle_s=IDLE_S)])
        await self._ask("stalls", guard)

    async def deadline(self, case: Case) -> None:
        """The run takes too long, while chunks keep coming."""
        guard = case.guard(stop_when=monitor.Timeout(DEADLINE_S))
        case.may_ask_nothing = True  # a slow machine may take that long to ask
        case.decided_at = time.perf_counter() + DEADLINE_S
        await self._ask("busy", guard)

    async def detection(self, case: Case) -> None:
        """The model chants."""
        await self._ask("chants", case.guard())

    async def outer_scope(self, case: Case) -> None:
        """A scope around it all is cancelled."""
        guard, went_on = case.guard(detectors=[Seeing(case)]), False
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                group.start_soon(case.when_waiting, scope.cancel)
                await self._ask("stalls", guard)
                await anyio.lowlevel.checkpoint()
                went_on = True
        case.expect(that=scope.cancelled_caught and not went_on, what_else="the cancelled scope's code went on")

    async def native_cancel(self, case: Case) -> None:
        """The task of the run is cancelled, as asyncio does it."""
        task = asyncio.create_task(self._cancelled(case))
        await cancelled_by(case, task, case.when_waiting(partial(task.cancel, "the caller's own")))

    def _while_opening(self, case: Case) -> float:
        case.may_ask_nothing = True
        return self._chance.uniform(0.0005, OPENING_S)

    async def abort_opening(self, case: Case) -> None:
        """`guard.abort()` from another task, at some moment of the beginning."""

        async def abort(guard: Guard) -> None:
            await anyio.sleep(self._while_opening(case))
            case.decide()
            guard.abort()

        await self._beside(case, "stalls", abort)

    async def deadline_opening(self, case: Case) -> None:
        """The run takes too long, at some moment of the beginning."""
        await self._ask("stalls", case.guard(stop_when=monitor.Timeout(self._while_opening(case))))

    async def native_cancel_opening(self, case: Case) -> None:
        """The task of the run is cancelled at some moment of the beginning."""
        task = asyncio.create_task(self._cancelled(case))

        async def cancel() -> None:
            await anyio.sleep(self._while_opening(case))
            case.decide()
            task.cancel("the caller's own")

        await cancelled_by(case, task, cancel())

    async def _cancelled(self, case: Case) -> None:
        try:
            await self._ask("stalls", case.guard(detectors=[Seeing(case)]))
            await anyio.lowlevel.checkpoint()
            case.wrong.append("the cancelled task's code went on")
        finally:
            case.expect(that=cancelling() == 1, what_else=f"cancelling() is {cancelling()} in the cancelled task")

    async def detector_crash(self, case: Case) -> None:
        """A detector raises."""
        with contextlib.suppress(ZeroDivisionError):  # some frameworks let it through
            await self._ask("busy", case.guard(detectors=[Seeing(case, crash=True)]))
        case.expect(that=isinstance(case.outcome.error, ZeroDivisionError), what_else="the crash is not in the outcome")

    async def sink_crash(self, case: Case) -> None:
        """A sink raises, at another event every time, which ends nothing; a detection does."""
        kinds = (RunStarted, FirstChunk, StopDecided, TurnEnded, RunTerminated)
        failing = FailingSink(kinds[len(self.server.requests) // 2 % len(kinds)])  # two requests a run
        await self._ask("chants", case.guard(sinks=[failing], detectors=default_detectors()))

    def all(self) -> Iterator[tuple[str, Callable[[Case], Awaitable[None]], TerminateReason]]:
        """Name, method, and what the run has to be called."""
        yield "abort while waiting", self.abort_waiting, TerminateReason.ABORTED
        yield "abort from a thread", self.abort_from_thread, TerminateReason.ABORTED
        yield "abort before headers", self.abort_before_headers, TerminateReason.ABORTED
        yield "idle timeout", self.idle, TerminateReason.IDLE_TIMEOUT
        yield "deadline on a busy stream", self.deadline, TerminateReason.TIMEOUT
        yield "detection", self.detection, TerminateReason.LOOP_DETECTED
        yield "outer scope cancelled", self.outer_scope, TerminateReason.CANCELLED
        yield "native task.cancel()", self.native_cancel, TerminateReason.CANCELLED
        yield "abort while opening", self.abort_opening, TerminateReason.ABORTED
        yield "deadline while opening", self.deadline_opening, TerminateReason.TIMEOUT
        yield "native task.cancel() while opening", self.native_cancel_opening, TerminateReason.CANCELLED
        yield "crash of a detector", self.detector_crash, TerminateReason.ERROR
        yield "crash of a sink, then detection", self.sink_crash, TerminateReason.LOOP_DETECTED


async def endings_of(framework: Framework, runs: int) -> list[Row]:
    """All endings of one framework, on one client."""
    rows = []
    with framework.wire.serve() as server:
        async with framework.client(server) as client:
            await _usable(framework, client)  # what is made at the first use is no part of an ending
            endings = FrameworkEndings(framework, server, client)
            for name, play, reason in endings.all():
                row = Row(name, "asyncio", framework.transport, framework.name)
                for _ in range(runs):
                    await _one(row, play, reason, endings)
                rows.append(row)
    return rows


async def _one(
    row: Row, play: Callable[[Case], Awaitable[None]], reason: TerminateReason, endings: FrameworkEndings
) -> None:
    server, case, number = endings.server, Case(), len(endings.server.requests)
    await case.unless_hung(play(case))
    case.check(reason)
    if case.may_ask_nothing:
        await anyio.sleep(ON_ITS_WAY_S)
    if case.may_ask_nothing and len(server.requests) == number:
        row.unasked += 1
    else:
        try:
            left = await server.wait_closed_async(number, timeout_s=UNSEEN_S)
            row.ms.append((left.at - case.decision) * 1e3)
        except TimeoutError:
            case.wrong.append("the server never saw it")
    usable = await _usable(endings.framework, endings.client)
    case.expect(that=usable, what_else="the client is not usable")
    row.add(case)
    row.usable += usable


async def _usable(framework: Framework, client: Any) -> bool:
    try:
        with anyio.fail_after(HARNESS_LIMIT_S):
            return (await framework.ask(client, "small", Guard())).text == "ok"
    except Exception:  # noqa: BLE001 - whatever it is, the client cannot be used
        return False


def framework_rows(runs: int, also: Sequence[str] = ()) -> list[Row]:
    """All endings in all frameworks that are installed. `also`: the Python of other environments,
    for those that are not.
    """
    made = frameworks()
    rows = _rows([framework for framework in made.values() if framework is not None], runs)
    missing = [name for name, framework in made.items() if framework is None]
    for python in also:
        command = [python, "-W", "ignore", "-m", "bench._close_frameworks", str(runs), *missing]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        rows += [Row(**row | {"what": Counter(row["what"])}) for row in json.loads(done.stdout.splitlines()[-1])]
    return rows


def _rows(made: Sequence[Framework], runs: int) -> list[Row]:
    with quiet("monitor.sinks"):
        return [row for one in made for row in anyio.run(endings_of, one, runs, backend="asyncio")]


def main() -> None:
    """`RUNS MODULE ...`: the rows of these modules, as a line of JSON."""
    runs, *names = sys.argv[1:]
    made = [framework for name, framework in frameworks().items() if framework is not None and name in names]
    print(json.dumps([asdict(row) for row in _rows(made, int(runs))]))


if __name__ == "__main__":
    main()

"""The part of the soak with the real SDK: the server counts the connections."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
from google.genai.client import AsyncClient

import monitor
from bench._close_cases import Backend, Transport
from bench._close_sdks import GOOGLE
from bench._soak_faults import SENTENCE, Ledger, Seen
from bench._soak_run import Result
from monitor.adapters.google.model import GoogleModel
from monitor.errors import TerminateReason
from monitor.testing import LocalGemini, ReceivedRequest
from monitor.testing import gemini_steps as wire

LIMIT_S = 6.0
GRACE_S = 1.0
AT_ONCE = 8
LEFT_S = 2.0
"""Within so many seconds of its end the server must have seen a run leave."""

Reason = TerminateReason
REASONS: dict[str, set[TerminateReason]] = {
    "nothing": {Reason.GOAL},
    "stalls": {Reason.TIMEOUT, Reason.IDLE_TIMEOUT},
    "cut": {Reason.TRUNCATED, Reason.INVALID_STREAM, Reason.ERROR, Reason.TIMEOUT},
    "reset": {Reason.ERROR, Reason.TRUNCATED, Reason.TIMEOUT},
    "no JSON": {Reason.INVALID_STREAM, Reason.ERROR, Reason.TIMEOUT},
    "rate limited": {Reason.RATE_LIMITED, Reason.TIMEOUT},
    "server error": {Reason.ERROR, Reason.TIMEOUT},
    "error in the stream": {Reason.ERROR, Reason.TIMEOUT},
    "overflow": {Reason.PROMPT_TOO_LONG},
    "blocked": {Reason.BLOCKED},
    "empty": {Reason.INVALID_STREAM},
    "chants": {Reason.LOOP_DETECTED, Reason.TIMEOUT},
    "floods": {Reason.LOOP_DETECTED, Reason.TIMEOUT},
    "tool hangs": {Reason.TIMEOUT},
    "abort": {Reason.ABORTED, Reason.GOAL},
    "abort from a thread": {Reason.ABORTED, Reason.GOAL},
    "cancelled": {Reason.CANCELLED, Reason.GOAL},
    "break": {Reason.CLOSED_BY_CALLER, Reason.GOAL},
}
"""What may come of each fault. A run that has its output before the fault strikes has reached its
goal.
"""
CUT_BY_SERVER = ("cut", "reset", "no JSON")
FROM_OUTSIDE = ("abort", "abort from a thread", "cancelled", "break")


def _script(fault: str, request: ReceivedRequest) -> wire.Script:
    """The first turn calls a tool, the second fails or emits."""
    words = [wire.text(f"word {number} ") for number in range(5)]
    slow = [step for word in words for step in (word, wire.Pause(0.005))]
    if len(request.body["contents"]) == 1:
        return [*slow, wire.call("look", {"task": "it"}, id="call_1"), wire.finish()]
    failing: dict[str, wire.Script] = {
        "stalls": [*words, wire.Stall()],
        "cut": [*words, wire.Cut()],
        "reset": [*words, wire.Reset()],
        "no JSON": [*words, wire.Raw(b"data: {nonsense\n\n"), wire.Cut()],
        "rate limited": [wire.rate_limited(None)],
        "server error": [wire.html_error()],
        "error in the stream": [*words, wire.midstream_error()],
        "overflow": [wire.overflow()],
        "blocked": [wire.blocked()],
        "empty": [wire.finish()],
        "chants": [wire.Repeat(wire.text(SENTENCE), delay_s=0.001)],
        "floods": [wire.Repeat(wire.text("and on and on "))],
    }
    return failing.get(fault) or [
        *slow,
        wire.call("emit_value", {"name": "answer", "value": "42"}, id="call_2"),
        wire.finish(),
    ]


@dataclass
class _Run:
    number: int
    fault: str
    chance: random.Random
    wrong: list[str]

    async def play(self, client: AsyncClient, backend: Backend) -> Result:
        seen = Seen(Ledger())
        model = GoogleModel(f"run-{self.number}-{self.fault.replace(' ', '_')}", client=client)
        supervisor = monitor.Supervisor(
            model,
            tools=[self.look],
            outputs={"answer": str},
            stop_when=monitor.Timeout(LIMIT_S) | monitor.IdleTimeout(LIMIT_S / 2),
            requests=monitor.runs.Requests(retries=monitor.Retries(1, first_delay_s=0.01)),
            last_turn=None,
            sinks=[seen],
        )
        run = supervisor.stream("find it")
        after_s = self.chance.uniform(0, 0.1)
        leaves_at = self.chance.randint(1, 30)
        struck = went_on = False
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                if self.fault in FROM_OUTSIDE and self.fault != "break":
                    group.start_soon(self._strike, after_s, {"cancelled": scope.cancel}.get(self.fault, run.abort))
                async with run:
                    count = 0
                    async for _ in run:
                        count += 1
                        if self.fault == "break" and count == leaves_at:
                            struck = True
                            break
                group.cancel_scope.cancel()
            went_on = not scope.cancel_called
        outcome = run.outcome
        endings = [event for event in seen.events if isinstance(event, monitor.events.RunTerminated)]
        self._expect(that=len(endings) == 1 and endings[0] is seen.events[-1], what_else=f"{len(endings)} endings")
        self._expect(that=outcome.reason in REASONS[self.fault], what_else=f"{outcome.reason.value}: {outcome.detail}")
        self._expect(that=outcome.closed, what_else="it says that its source may be open")
        self._expect(that=outcome.elapsed_s <= LIMIT_S + GRACE_S, what_else=f"it took {outcome.elapsed_s:.2f} s")
        self._expect(that=went_on or scope.cancel_called, what_else="a cancellation was lost")
        self._expect(that=struck or outcome.reason is not Reason.CLOSED_BY_CALLER, what_else="nobody had left")
        return Result(self.number, backend, (f"sdk: {self.fault}",), outcome.reason.value, tuple(self.wrong))

    async def look(self, task: str) -> str:
        """Look for something."""
        if self.fault == "tool hangs":
            await anyio.sleep_forever()
        return f"found {task}"

    async def _strike(self, after_s: float, strike: Callable[[], object]) -> None:
        await anyio.sleep(after_s)
        if self.fault == "abort from a thread":
            threading.Thread(target=strike).start()
        else:
            strike()

    def _expect(self, *, that: bool, what_else: str) -> None:
        if not that:
            self.wrong.append(what_else)


async def _batch(
    server: LocalGemini, transport: Transport, backend: Backend, seed: int, numbers: Sequence[int]
) -> list[Result]:
    results: list[Result] = []
    async with GOOGLE.client(server, transport) as client:

        async def play(number: int) -> None:
            chance = random.Random(f"sdk:{seed}:{number}")
            run = _Run(number, tuple(REASONS)[number % len(REASONS)], chance, [])
            async with slots:
                results.append(await run.play(client, backend))

        slots = anyio.Semaphore(AT_ONCE)
        async with anyio.create_task_group() as group:
            for number in numbers:
                group.start_soon(play, number)
        open_requests = await anyio.to_thread.run_sync(_still_open, server, numbers)
    return [_with_open(result, open_requests) for result in results]


def _still_open(server: LocalGemini, numbers: Sequence[int]) -> set[int]:
    """Runs of which the server still has a request that it could not finish, and whose client has
    not left.
    """
    mine = set(numbers)
    found: set[int] = set()
    for request in tuple(server.requests):
        number = _run_of(request)
        if number in mine and not request.completed and _fault_of(request) not in CUT_BY_SERVER:
            try:
                server.wait_closed(request.number, timeout_s=LEFT_S)
            except TimeoutError:
                found.add(number)
    return found


def _with_open(result: Result, still_open: set[int]) -> Result:
    if result.number not in still_open:
        return result
    return Result(
        result.number, result.backend, result.faults, result.reason, (*result.violations, "a connection is open")
    )


def _run_of(request: ReceivedRequest) -> int:
    return int(request.path.partition("run-")[2].partition("-")[0])


def _fault_of(request: ReceivedRequest) -> str:
    return request.path.partition("run-")[2].partition("-")[2].partition(":")[0].replace("_", " ")


def soak_sdk(seed: int, runs: int) -> list[Result]:
    """So many runs on each backend and transport, some at the same time."""
    cells: tuple[tuple[Backend, Transport], ...] = (("asyncio", "aiohttp"), ("asyncio", "httpx2"), ("trio", "httpx2"))
    results: list[Result] = []
    with LocalGemini(lambda request: _script(_fault_of(request), request)) as server:
        for place, (backend, transport) in enumerate(cells):
            numbers = range(place * runs, (place + 1) * runs)
            arguments: tuple[Any, ...] = (server, transport, backend, seed, numbers)
            results += anyio.run(_batch, *arguments, backend=backend)
    return results

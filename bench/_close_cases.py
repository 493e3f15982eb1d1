"""One run that ends in a certain way, and what has to hold of it afterwards."""

from __future__ import annotations

import asyncio
import random
import string
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import anyio
import anyio.lowlevel
import anyio.to_thread

import monitor
from monitor.errors import TerminateReason
from monitor.events import Event, RunTerminated, StopDecided
from monitor.outcome import Outcome
from monitor.sinks import EventSink, MemorySink

Backend: TypeAlias = Literal["asyncio", "trio"]
HARNESS_LIMIT_S = 10.0
"""A run that takes longer hangs."""
UNSEEN_S = 1.0
"""A close that the server has not seen by then, it never sees."""
SAME_TICK_S = 0.01
"""The two equal deadlines: short, because every repetition waits for it."""
SENTENCE = "I will now check the configuration file again to be sure. "
Transport: TypeAlias = Literal["aiohttp", "httpx2"]


class _Stamp:
    """When the library decided, for endings that nobody else can date."""

    def __init__(self) -> None:
        self.at: float | None = None

    def emit(self, event: Event) -> None:
        """The moment of the decision."""
        if isinstance(event, StopDecided):
            self.at = time.perf_counter()


class FailingSink:
    """Crashes at one kind of event."""

    def __init__(self, kind: type[Event]) -> None:
        self._kind = kind

    def emit(self, event: Event) -> None:
        """Crash, if it is time."""
        if isinstance(event, self._kind):
            raise RuntimeError("the sink crashes")


class Case:
    """One run: when its end was decided, what came of it, and what was wrong."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.decided_at: float | None = None
        self.may_ask_nothing = False
        """The end may come before the request has been sent."""
        self.events = MemorySink()
        self._stamp = _Stamp()
        self._watched: monitor.guard.Watch[Any] | monitor.Guard | None = None
        self._waiting = anyio.Event()

    @property
    def outcome(self) -> Outcome:
        """How the run ended."""
        assert self._watched is not None, "nothing is watched yet"
        outcome = self._watched.outcome
        assert outcome is not None, "the run has no outcome"
        return outcome

    def watch(self, source: Any, *, sinks: Sequence[EventSink] = (), **options: Any) -> monitor.guard.Watch[Any]:
        """Watch the stream that this run is about."""
        watched = monitor.watch(source, sinks=[*sinks, self.events, self._stamp], **options)
        self._watched = watched
        return watched

    def guard(self, *, sinks: Sequence[EventSink] = (), **options: Any) -> monitor.Guard:
        """A guard for the run that this is about, where the loop is somebody else's."""
        guard = monitor.Guard(sinks=[*sinks, self.events, self._stamp], **options)
        self._watched = guard
        return guard

    def has_three(self) -> None:
        """The third chunk has come, which is the last one of a server that stalls."""
        self._waiting.set()

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
        before = cancelling()
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
        self.expect(that=cancelling() == before, what_else=f"cancelling() is {cancelling()} afterwards")


def cancelling() -> int:
    """Cancellations that this task was asked for and has not settled; trio does not count them."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return task.cancelling() if task is not None else 0


def on_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def cancelled_by(
    case: Case, task: asyncio.Task[None], cancel: Awaitable[None], *, came_second: bool = False
) -> None:
    """`came_second`: of two cancellations in one turn asyncio delivers the first one's message, and
    both count.
    """
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
    transport: str | None = None
    sdk: str | None = None
    runs: int = 0
    wrong: int = 0
    what: Counter[str] = field(default_factory=Counter)
    usable: int = 0
    unasked: int = 0
    """Runs that ended before the request had been sent: there is nothing for the server to see."""
    ms: list[float] = field(default_factory=list)
    """How long after the decision the server saw the client leave, where it did."""

    def add(self, case: Case) -> None:
        """One more run."""
        self.runs += 1
        self.wrong += bool(case.wrong)
        self.what.update(case.wrong)


async def read_cancelled(case: Case, watch: monitor.guard.Watch[Any]) -> None:
    """What the cancelled task of a caller does."""
    try:
        async with watch as watched:
            await case.read(watched)
        await anyio.lowlevel.checkpoint()
        case.wrong.append("the cancelled task's code went on")
    finally:
        case.expect(that=cancelling() == 1, what_else=f"cancelling() is {cancelling()} in the cancelled task")


def words(count: int) -> list[str]:
    """Words that never repeat, so that no detector has a say."""
    chance = random.Random(7)
    return ["".join(chance.choices(string.ascii_lowercase, k=9)) + " " for _ in range(count)]


class CountingDetector:
    """Counts the chunks that it has seen. A detector of a bench says what follows."""

    def __init__(self) -> None:
        self.seen = 0

    def reset(self) -> None:
        """Start again."""
        self.seen = 0

    def snapshot(self) -> dict[str, Any]:
        """Nobody asks."""
        return {"version": 1}

    def restore(self, state: object) -> None:
        """Nobody asks."""

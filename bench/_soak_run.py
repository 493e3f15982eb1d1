"""One soaked run: made from a seed and a number, driven by a simulated clock, and checked."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import anyio
import anyio.lowlevel
import trio.lowlevel

import monitor
from bench._soak_faults import (
    CAUSES,
    FAULTS,
    IDLE_S,
    LONG_S,
    FaultyModel,
    Ledger,
    RaisingCondition,
    RaisingDetector,
    RaisingPolicy,
    RaisingSink,
    Seen,
    SoakError,
    Tools,
)
from monitor.errors import TerminateReason
from monitor.testing import FakeClock

Backend: TypeAlias = Literal["asyncio", "trio"]

TICKS = 40
"""Turns of the event loop that everybody gets before the clock goes on: more than any reaction
takes.
"""
SETTLE_TICKS = 100
GRACE_S = 1.0
"""So much later than its deadline may a run end."""
LAST_TURN_S = 60.0
HANG_S = 20.0
"""Real seconds after which a run hangs."""


@dataclass(frozen=True)
class Result:
    """What became of one run."""

    number: int
    backend: Backend
    faults: tuple[str, ...]
    reason: str
    violations: tuple[str, ...]


class CallerError(Exception):
    """The caller's own."""


@dataclass
class SoakedRun:
    """A run, its faults, and what is checked of it."""

    seed: int
    number: int
    faults: tuple[str, ...] = ()
    """Given, or by chance one or two."""
    clock: FakeClock = field(default_factory=FakeClock)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = self.chance = random.Random(f"{self.seed}:{self.number}")
        self.backend: Backend = chance.choice(("asyncio", "trio"))
        self.faults = self.faults or tuple(chance.sample(FAULTS, chance.choice((1, 1, 2))))
        self.nested = chance.random() < 0.25
        """The faults of models and tools are those of a subagent."""
        self.limit_s = chance.uniform(5, 30) if "limit: time" in self.faults else LONG_S
        self.ledger = Ledger()
        self.child_ledger = Ledger()
        self.seen = Seen(self.ledger)
        self.tools = Tools(self.faults, self.ledger, self.clock)
        self.run = self._supervisor().stream("find it")
        self.cancel: Callable[[], object] = lambda: None
        self.cancelled_in_time = False

    # ------------------------------------------------------------------ making it

    def _supervisor(self) -> monitor.Supervisor:
        chance, faults, ledger = self.chance, self.faults, self.ledger
        inner = () if self.nested else faults
        tools: list[Any] = self.tools.given()
        if self.nested:
            tools = [self._subagent(tools).as_tool(name="ask", description="Ask a subagent.")]
        names = ["ask"] if self.nested else ["look", "count"]
        condition: monitor.Condition = monitor.Timeout(self.limit_s) | monitor.IdleTimeout(IDLE_S)
        budget = monitor.Budget(tokens=chance.randint(100, 400)) if "limit: budget" in faults else None
        ledger.struck |= {"limit: budget"} & set(faults)
        for fault, limit in {
            "limit: turns": monitor.MaxTurns(chance.randint(1, 2)),
            "limit: calls": monitor.MaxToolCalls(chance.randint(1, 2)),
            "limit: tokens": monitor.TokenLimit(chance.randint(100, 400)),
            "condition raises": RaisingCondition(chance.randint(1, 20), ledger),
        }.items():
            if fault in faults:
                condition |= limit
                if isinstance(limit, RaisingCondition):
                    continue  # that says so itself
                ledger.struck.add(fault)
        sinks: list[Any] = [self.seen, _Strikes(self)]
        if "sink raises" in faults:
            sinks.append(RaisingSink(chance.randint(1, 10), ledger))
        return monitor.Supervisor(
            FaultyModel(random.Random(chance.random()), inner, names, ledger, self.clock),
            tools=tools,
            outputs={"answer": str},
            stop_when=condition,
            budget=budget,
            detectors=[*monitor.default_detectors(), *self._detectors()],
            policy=RaisingPolicy(chance.randint(1, 3), ledger) if "policy raises" in faults else None,
            last_turn=monitor.LastTurn(LAST_TURN_S) if chance.random() < 0.5 else None,
            requests=monitor.runs.Requests(max_nudges=2),
            sinks=sinks,
            clock=self.clock,
        )

    def _detectors(self) -> list[Any]:
        return [RaisingDetector(self.chance.randint(1, 10), self.ledger)] if "detector raises" in self.faults else []

    def _subagent(self, tools: list[Any]) -> monitor.Supervisor:
        return monitor.Supervisor(
            FaultyModel(
                random.Random(self.chance.random()), self.faults, ["look", "count"], self.child_ledger, self.clock
            ),
            tools=tools,
            outputs={"answer": str},
            stop_when=monitor.MaxTurns(20) | monitor.IdleTimeout(IDLE_S),
            sinks=[Seen(self.child_ledger)],
        )

    # ------------------------------------------------------------------ driving it

    def play(self) -> Result:
        """Run it in an event loop of its own."""
        reason = "none"
        try:
            anyio.run(self._main, backend=self.backend)
            reason = self.run.outcome.reason.value
        except Exception as error:  # noqa: BLE001 - whatever gets out of a run is wrong
            self.wrong.append(f"{type(error).__name__}: {error}")
        finally:
            self.tools.let_go()
        return Result(self.number, self.backend, self.faults, reason, tuple(self.wrong))

    async def _main(self) -> None:
        before = open_tasks()
        with anyio.move_on_after(HANG_S) as hanging:
            async with anyio.create_task_group() as group:
                group.start_soon(self._time_goes_on)
                await self._drive()
                group.cancel_scope.cancel()
        self.tools.let_go()
        if hanging.cancelled_caught:
            self.wrong.append(f"it hangs: {self.seen.events[-1:]}")
            return
        for _ in range(SETTLE_TICKS):
            await anyio.lowlevel.checkpoint()
            if not open_tasks() - before:
                break
        else:
            self.wrong.append(f"tasks are left: {open_tasks() - before}")
        self._check()

    async def _time_goes_on(self) -> None:
        """Whenever nobody has anything to do, it is later."""
        while True:
            before = self._progress()
            for _tick in range(TICKS):
                await anyio.lowlevel.checkpoint()
            if self._progress() != before:
                continue
            due = self.clock.next_due
            if due is not None and self._in_threads() <= self.tools.hanging:
                self.clock.advance(max(0.0, due - self.clock.now()))
            else:
                await anyio.sleep(0.0005)

    def _progress(self) -> tuple[int, ...]:
        return len(self.seen.events), len(self.ledger.streams), len(self.child_ledger.streams), self._in_threads()

    def _in_threads(self) -> int:
        return self.ledger.in_threads + self.child_ledger.in_threads

    async def _drive(self) -> None:
        struck = self.ledger.struck
        timed = {"abort by time": self._abort, "cancelled by time": self._cancel, "task.cancel() by time": self._cancel}
        due = [strike for fault, strike in timed.items() if fault in self.faults]
        alarms = [self.clock.call_at(self.chance.uniform(0, 12), strike) for strike in due]
        if "abort before it begins" in self.faults:
            self._abort("abort before it begins")
        try:
            if "task.cancel() by time" in self.faults and self.backend == "asyncio":
                task = asyncio.create_task(self._read())
                self.cancel = task.cancel
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                self._expect(that=task.cancelled() or not self.cancelled_in_time, what_else="a cancelled task went on")
            else:
                went_on = False
                with anyio.CancelScope() as scope:
                    self.cancel = scope.cancel
                    await self._read()
                    await anyio.lowlevel.checkpoint()
                    went_on = True
                self._expect(that=not (scope.cancel_called and went_on), what_else="a cancelled scope's code went on")
        except CallerError:
            self._expect(that="the caller raises" in struck, what_else="an exception that nobody raised")
        finally:
            for alarm in alarms:
                alarm.cancel()

    async def _read(self) -> None:
        leaves_at = self.chance.randint(1, 25)
        async with self.run as run:
            count = 0
            async for _ in run:
                count += 1
                if count == leaves_at and "break" in self.faults:
                    self.ledger.struck.add("break")
                    break
                if count == leaves_at and "the caller raises" in self.faults:
                    self.ledger.struck.add("the caller raises")
                    raise CallerError

    def _abort(self, fault: str = "abort by time") -> None:
        self.ledger.struck.add(fault)
        self.run.abort(fault)
        self.ledger.aborted_in_time |= not self.ledger.decided

    def _cancel(self) -> None:
        self.ledger.struck |= set(self.faults) & CAUSES[TerminateReason.CANCELLED]
        self.cancelled_in_time |= not self.ledger.ended
        self.cancel()

    def strike(self) -> None:
        """An event at which something is to happen."""
        if "abort at an event" in self.faults:
            self._abort("abort at an event")
        if "abort from a thread" in self.faults:
            threading.Thread(target=self._abort, args=["abort from a thread"]).start()
        if "cancelled at an event" in self.faults:
            self._cancel()

    # ------------------------------------------------------------------ checking it

    def _expect(self, *, that: bool, what_else: str) -> None:
        if not that:
            self.wrong.append(what_else)

    def _check(self) -> None:
        ledger, outcome, events = self.ledger, self.run.outcome, self.seen.events
        endings = [event for event in events if isinstance(event, monitor.events.RunTerminated)]
        self._expect(
            that=len(endings) == 1 and endings[0] is events[-1] and endings[0].outcome is outcome,
            what_else=f"{len(endings)} endings",
        )
        child = self.child_ledger
        self._expect(that=child.began == child.ended, what_else=f"{child.began} nested runs began, {child.ended} ended")
        self._expect(that=self.clock.next_due is None, what_else="an alarm is still set")
        open_streams = sum(stream.open for stream in [*ledger.streams, *child.streams])
        self._expect(that=not open_streams, what_else=f"{open_streams} streams are open")
        deadline = self.limit_s + LAST_TURN_S * ledger.last_turns + GRACE_S
        self._expect(that=outcome.elapsed_s <= deadline, what_else=f"it took {outcome.elapsed_s:.3f} s")
        self._check_history()
        why = self._untrue(outcome)
        self._expect(that=not why, what_else=f"{outcome.reason.value} ({outcome.detail}): {why}")

    def _check_history(self) -> None:
        seen: list[str] = []
        for message in self.run.history:
            if isinstance(message, monitor.AssistantMessage):
                calls = [part.id for part in message.content if isinstance(part, monitor.chunks.ToolCall)]
                self._expect(
                    that=calls == [result.id for result in message.results],
                    what_else="a call without its result in the history",
                )
                seen += calls
                self._expect(that=bool(message.content), what_else="an empty message in the history")
        self._expect(that=len(seen) == len(set(seen)), what_else="a turn stands twice in the history")

    def _untrue(self, outcome: monitor.Outcome) -> str:
        """Why the reason is not true; empty: it is."""
        ledger, reason = self.ledger, outcome.reason
        if ledger.aborted_in_time and reason is not TerminateReason.ABORTED:
            return "it was aborted before"
        if (
            ledger.raised
            and not ledger.aborted_in_time
            and outcome.error not in ledger.raised
            and reason not in _FROM_OUTSIDE
        ):
            return f"{ledger.raised} had been raised"
        struck = ledger.struck | self.child_ledger.struck
        if reason in CAUSES:
            return "" if struck & CAUSES[reason] else f"only {sorted(struck)} came about"
        match reason:
            case TerminateReason.GOAL:
                return "" if outcome.output == {"answer": "42"} and outcome.ok else f"the output is {outcome.output}"
            case TerminateReason.TIMEOUT:
                return (
                    ""
                    if outcome.value is not None and outcome.limit == self.limit_s <= float(outcome.value) + 1e-3
                    else "it is too early"
                )
            case TerminateReason.MISSING_OUTPUTS:
                return "" if outcome.missing == ["answer"] else "nothing is missing"
            case TerminateReason.ERROR:
                return self._untrue_error(outcome.error)
            case _:
                return "no fault leads to it"

    def _untrue_error(self, error: BaseException | None) -> str:
        if isinstance(error, CallerError):
            return "" if "the caller raises" in self.ledger.struck else "the caller did not raise"
        if isinstance(error, SoakError) and error.args == ("not even a provider",):
            return ""
        if error in self.ledger.raised:
            return ""
        kind = getattr(error, "kind", None)
        return "" if kind is not None and f"model: {kind.value}" in self.ledger.struck else f"nobody raised {error!r}"


_FROM_OUTSIDE = {TerminateReason.CANCELLED, TerminateReason.CLOSED_BY_CALLER}


class _Strikes:
    """A sink at one of whose events something happens."""

    def __init__(self, run: SoakedRun) -> None:
        self._left = run.chance.randint(1, 25)
        self._run = run

    def emit(self, event: monitor.events.Event) -> None:
        self._left -= 1
        if self._left == 0 and not isinstance(event, monitor.events.RunTerminated):
            self._run.strike()


def open_tasks() -> set[Any]:
    try:
        return set(asyncio.all_tasks())
    except RuntimeError:
        pass
    found, todo = set(), [trio.lowlevel.current_root_task()]
    while todo:
        task = todo.pop()
        if task is not None:
            found.add(task)
            todo += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found


def soak(seed: int, number: int) -> Result:
    """The run with this number."""
    return SoakedRun(seed, number).play()

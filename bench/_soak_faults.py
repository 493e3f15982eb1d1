"""What goes wrong in a soaked run: a model, tools and other parts that fail as a seed tells them
to, and write down when they did.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel

import monitor
from monitor.chunks import ReasoningDelta, TextDelta, ToolCall, ToolResult, TurnFinished, UsageReport
from monitor.errors import FinishReason, TerminateReason
from monitor.models import ErrorKind, ModelError, ModelRequest
from monitor.testing import FakeClock

IDLE_S = 40.0
LONG_S = 10 * IDLE_S
SENTENCE = "And then the same thing is said once more. "
SNAG_LIMIT_S = 5.0
"""A thread that hangs is let go after so many real seconds, should the run never end."""

MODEL_FAULTS = (
    *(f"model: {kind.value}" for kind in ErrorKind),
    "model: stalls",
    "model: slow",
    "model: cut stream",
    "model: empty answer",
    "model: unreadable",
    "model: blocked",
    "model: output limit",
    "model: loops",
    "model: no model at all",
    "model: emits nothing",
    "model: terminates",
    "model: closes slowly",
)
TOOL_FAULTS = (
    "tool: crashes",
    "tool: slow",
    "tool: hangs",
    "tool: swallows a cancellation",
    "tool: crashes when cancelled",
    "tool: leaks a cancellation",
    "tool: thread",
    "tool: thread hangs",
    "tool: unknown",
    "tool: bad arguments",
)
PART_FAULTS = ("detector raises", "condition raises", "policy raises", "sink raises")
OUTSIDE_FAULTS = (
    "abort by time",
    "abort at an event",
    "abort from a thread",
    "abort before it begins",
    "cancelled by time",
    "cancelled at an event",
    "task.cancel() by time",
    "break",
    "the caller raises",
)
LIMIT_FAULTS = ("limit: turns", "limit: calls", "limit: tokens", "limit: time", "limit: budget")
FAULTS = ("nothing", *MODEL_FAULTS, *TOOL_FAULTS, *PART_FAULTS, *OUTSIDE_FAULTS, *LIMIT_FAULTS)


class SoakError(Exception):
    """What a part raises that was told to fail."""


class ProviderError(Exception):
    """What a model raises that was told to fail, with the kind that its adapter reads."""

    def __init__(self, kind: ErrorKind) -> None:
        super().__init__(kind.value)
        self.kind = kind


@dataclass
class Ledger:
    """What really happened, written down by those that did it."""

    struck: set[str] = field(default_factory=set)
    """Faults that came about."""
    raised: list[BaseException] = field(default_factory=list)
    """By a part whose failure ends the run, before anything else had."""
    decided: bool = False
    """The run has decided how it ends, or has ended."""
    aborted_in_time: bool = False
    """`abort()` had returned before that."""
    streams: list[FaultyStream] = field(default_factory=list)
    began: int = 0
    ended: int = 0
    last_turns: int = 0
    in_threads: int = 0
    """Calls of tools that run in a thread, asked for and not answered."""


class Seen:
    """A sink that keeps the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.events: list[monitor.events.Event] = []

    def emit(self, event: monitor.events.Event) -> None:
        self.events.append(event)
        ledger = self._ledger
        match event:
            case monitor.events.RunStarted():
                ledger.began += 1
            case monitor.events.StopDecided():
                ledger.decided = True
            case monitor.events.LastTurnStarted():
                ledger.last_turns += 1
                ledger.decided = False
            case monitor.events.ToolStarted(call=ToolCall(name="count")):
                ledger.in_threads += 1
            case monitor.events.ToolFinished(result=ToolResult(name="count")):
                ledger.in_threads -= 1
            case monitor.events.RunTerminated():
                ledger.ended += 1
                ledger.decided = True
                ledger.in_threads = 0
            case _:
                pass


async def sleep(clock: FakeClock, seconds: float) -> None:
    """By the simulated clock."""
    rung = anyio.Event()
    alarm = clock.call_at(clock.now() + seconds, rung.set)
    try:
        await rung.wait()
    finally:
        alarm.cancel()


@dataclass
class Wait:
    """A step of a stream: so many simulated seconds; `None`: for ever."""

    seconds: float | None


class FaultyStream(AsyncIterator[Any]):
    """Plays steps; as strict as an async generator. `opened` until it was read to its end, failed,
    was interrupted or closed.
    """

    def __init__(self, steps: Sequence[Any], clock: FakeClock, *, close_s: float) -> None:
        self._steps = iter(steps)
        self._clock = clock
        self._close_s = close_s
        self.open = True

    def __aiter__(self) -> FaultyStream:
        return self

    async def __anext__(self) -> Any:
        try:
            await anyio.lowlevel.checkpoint()
            for step in self._steps:
                match step:
                    case Wait(seconds=None):
                        await anyio.sleep_forever()
                    case Wait(seconds=float() as seconds):
                        await sleep(self._clock, seconds)
                    case BaseException():
                        raise step
                    case _:
                        return step
            raise StopAsyncIteration
        except BaseException:
            self.open = False
            raise

    async def aclose(self) -> None:
        if self.open and self._close_s:
            await sleep(self._clock, self._close_s)
        self.open = False


class FaultyAdapter:
    """Chunks as they are; a stream has to end with a finish reason."""

    needs_finish = True
    drains = False

    def __init__(self, index: int) -> None: ...

    def decode(self, item: Any) -> Sequence[Any]:
        return (item,)

    def finish(self) -> Sequence[Any]:
        return ()

    def classify(self, error: Exception) -> ModelError:
        return ModelError(error.kind if isinstance(error, ProviderError) else ErrorKind.UNKNOWN, str(error))


class FaultyModel:
    """Works through a few turns with tools, then emits its output; where its fault says so, it
    fails.
    """

    name = "soak:model"
    adapter = FaultyAdapter

    def __init__(
        self, chance: random.Random, faults: Sequence[str], tools: Sequence[str], ledger: Ledger, clock: FakeClock
    ) -> None:
        self._chance = chance
        self._faults = [fault for fault in faults if fault.startswith("model: ")]
        self._odd_calls = [fault for fault in faults if fault in ("tool: unknown", "tool: bad arguments")]
        self._tools = tools
        self._ledger = ledger
        self._clock = clock
        self._turns = chance.randint(1, 4)
        self._fails_at = chance.randint(0, self._turns)
        self._for_good = chance.random() < 0.5
        self._opens_slowly = chance.random() < 0.3
        self._requests = 0

    def stream(self, request: ModelRequest) -> Any:
        number, self._requests = self._requests, self._requests + 1
        steps = self._steps(number)
        if self._faults and (number == self._fails_at or (self._for_good and number > self._fails_at)):
            steps = self._failing(steps, number, self._chance.choice(self._faults))
        if self._opens_slowly:
            return self._opening(steps)
        return self._opened(steps)

    async def _opening(self, steps: Sequence[Any]) -> FaultyStream:
        await sleep(self._clock, self._chance.uniform(0, 2))
        return self._opened(steps)

    def _opened(self, steps: Sequence[Any]) -> FaultyStream:
        close_s = 0.0
        if "model: closes slowly" in self._faults:
            self._ledger.struck.add("model: closes slowly")
            close_s = 0.5
        stream = FaultyStream(steps, self._clock, close_s=close_s)
        self._ledger.streams.append(stream)
        return stream

    def _steps(self, number: int) -> list[Any]:
        chance = self._chance
        steps: list[Any] = [TextDelta(f"Step {number}: {chance.random()}. ") for _ in range(chance.randint(0, 3))]
        if chance.random() < 0.3:
            steps.insert(0, ReasoningDelta(f"thinking of {chance.random()}"))
        if chance.random() < 0.5:
            steps.insert(chance.randint(0, len(steps)), Wait(chance.uniform(0, 3)))
        if number < self._turns and self._tools:
            steps += [self._call(number, place) for place in range(chance.randint(1, 3))]
        elif "model: emits nothing" in self._faults:
            self._ledger.struck.add("model: emits nothing")
            steps.append(TextDelta("That is all."))
        elif chance.random() < 0.2:
            steps.append(TextDelta("Is that all?"))  # it has to be told to emit
        else:
            steps.append(ToolCall(f"emit_{number}", "emit_value", {"name": "answer", "value": "42"}))
        return [*steps, UsageReport(100, 50), TurnFinished(FinishReason.DONE)]

    def _call(self, number: int, place: int) -> ToolCall:
        name, arguments = self._chance.choice(self._tools), {"task": f"{number}.{place} {self._chance.random()}"}
        if self._odd_calls:
            fault = self._chance.choice(self._odd_calls)
            self._ledger.struck.add(fault)
            name, arguments = ("no_such_tool", arguments) if fault == "tool: unknown" else (name, {"nothing": "known"})
        return ToolCall(f"call_{number}_{place}", name, arguments)

    def _failing(self, steps: list[Any], number: int, fault: str) -> list[Any]:  # noqa: PLR0911 - one a fault
        place = self._chance.randint(0, len(steps) - 1)
        before = steps[:place]
        self._ledger.struck.add(fault)
        match fault.removeprefix("model: "):
            case "stalls":
                return [*before, Wait(None)]
            case "slow":
                return [*before, Wait(IDLE_S * 0.9), *steps[place:]]
            case "cut stream":
                return before
            case "empty answer":
                return [TurnFinished(FinishReason.DONE)]
            case "unreadable":
                return [*before, TurnFinished(FinishReason.MALFORMED)]
            case "blocked":
                return [*before, TurnFinished(FinishReason.BLOCKED)]
            case "output limit":
                return [*before, TurnFinished(FinishReason.LENGTH)]
            case "loops":
                return [TextDelta(SENTENCE) for _ in range(400)]
            case "no model at all":
                return [SoakError("not even a provider")]
            case "terminates":
                status = self._chance.choice(["success", "failure"])
                return [
                    ToolCall(f"end_{number}", "terminate", {"status": status, "reason": "so it is"}),
                    TurnFinished(FinishReason.DONE),
                ]
            case kind if kind in set(ErrorKind):
                return [*before, ProviderError(ErrorKind(kind))]
            case _:
                return steps


class Tools:
    """The tools of a run, some of which misbehave. `let_go()` frees the threads in which one
    hangs.
    """

    def __init__(self, faults: Sequence[str], ledger: Ledger, clock: FakeClock) -> None:
        self._faults = [fault for fault in faults if fault.startswith("tool: ")] or ["tool: fine"]
        self._ledger = ledger
        self._clock = clock
        self._over = threading.Event()
        self.hanging = 0
        """Threads that will not come back by themselves."""

    def let_go(self) -> None:
        self._over.set()

    def given(self) -> list[Callable[..., Any]]:
        return [self.look, self.count]

    async def look(self, task: str) -> str:
        """Look for something."""
        chance = random.Random(task)  # of its own, so that a replay does not depend on which call comes first
        fault = chance.choice(self._faults)
        await anyio.lowlevel.checkpoint()
        self._ledger.struck.add(fault)
        match fault.removeprefix("tool: "):
            case "crashes":
                raise SoakError(task)
            case "slow":
                await sleep(self._clock, chance.uniform(0, LONG_S / 5))
            case "hangs":
                await anyio.sleep_forever()
            case "swallows a cancellation":
                with contextlib.suppress(anyio.get_cancelled_exc_class()):
                    await sleep(self._clock, chance.uniform(0, LONG_S))
                await sleep(self._clock, chance.uniform(0, LONG_S))
            case "crashes when cancelled":
                try:
                    await sleep(self._clock, chance.uniform(0, LONG_S))
                except BaseException:  # noqa: BLE001 - that is the fault
                    raise SoakError("cleaning up") from None
            case "leaks a cancellation":
                with contextlib.suppress(RuntimeError):
                    asyncio.get_running_loop()
                    raise asyncio.CancelledError
            case _:
                pass
        return f"found {task}"

    def count(self, task: str) -> int:
        """Count something, in a thread."""
        fault = random.Random(task).choice(self._faults)
        self._ledger.struck.add(fault)
        if fault == "tool: thread hangs":
            self.hanging += 1
            self._over.wait(SNAG_LIMIT_S)
        return len(task)


class RaisingDetector:
    """Raises at the n-th chunk."""

    name = "RaisingDetector"

    def __init__(self, at: int, ledger: Ledger) -> None:
        self.params: dict[str, Any] = {}
        self._left = at
        self._ledger = ledger

    def __deepcopy__(self, memo: object) -> RaisingDetector:
        return self

    def observe(self, chunk: monitor.chunks.Chunk) -> Sequence[monitor.verdicts.Detection]:
        self._left -= 1
        if self._left == 0:
            raise crash(self._ledger, "detector raises")
        return ()

    def reset(self) -> None: ...

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Any) -> None: ...


class RaisingCondition(monitor.Condition):
    """Raises at the n-th look."""

    def __init__(self, at: int, ledger: Ledger) -> None:
        self._left = at
        self._ledger = ledger

    def evaluate(self, state: monitor.outcome.RunState) -> monitor.Stop | None:
        self._left -= 1
        if self._left == 0:
            raise crash(self._ledger, "condition raises")
        return None


class RaisingPolicy(monitor.Ladder):
    """Raises at the n-th turn."""

    def __init__(self, at: int, ledger: Ledger) -> None:
        super().__init__()
        self._left = at
        self._ledger = ledger

    def __deepcopy__(self, memo: object) -> RaisingPolicy:
        return self

    def turn_started(self) -> None:
        super().turn_started()
        self._left -= 1
        if self._left == 0:
            raise crash(self._ledger, "policy raises")


class RaisingSink:
    """Raises at the n-th event."""

    def __init__(self, at: int, ledger: Ledger) -> None:
        self._left = at
        self._ledger = ledger

    def emit(self, event: monitor.events.Event) -> None:
        self._left -= 1
        if self._left == 0:
            self._ledger.struck.add("sink raises")
            raise SoakError("sink")


def crash(ledger: Ledger, fault: str) -> SoakError:
    """The exception of a part; it goes into the ledger if nothing has ended the run before."""
    error = SoakError(fault)
    ledger.struck.add(fault)
    if not ledger.decided:
        ledger.raised.append(error)
    return error


CAUSES: dict[TerminateReason, set[str]] = {
    TerminateReason.PROMPT_TOO_LONG: {"model: overflow"},
    TerminateReason.RATE_LIMITED: {"model: rate_limited"},
    TerminateReason.INVALID_STREAM: {
        "model: malformed",
        "model: unreadable",
        "model: empty answer",
        "model: cut stream",
    },
    TerminateReason.BLOCKED: {"model: blocked"},
    TerminateReason.TRUNCATED: {"model: cut stream", "model: output limit"},
    TerminateReason.LOOP_DETECTED: {
        "model: loops",
        "model: terminates",
        "tool: unknown",
        "tool: bad arguments",
        "tool: crashes",
    },
    TerminateReason.TERMINATED: {"model: terminates"},
    TerminateReason.IDLE_TIMEOUT: {"model: stalls", "model: slow"},
    TerminateReason.MAX_TURNS: {"limit: turns"},
    TerminateReason.TOOL_CALL_LIMIT: {"limit: calls"},
    TerminateReason.TOKEN_LIMIT: {"limit: tokens", "limit: budget"},
    TerminateReason.CANCELLED: {"cancelled by time", "cancelled at an event", "task.cancel() by time"},
    TerminateReason.CLOSED_BY_CALLER: {"break"},
    TerminateReason.ABORTED: {"abort by time", "abort at an event", "abort from a thread", "abort before it begins"},
}
"""Reasons, and the faults of which one must have come about for them."""

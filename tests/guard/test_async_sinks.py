"""Asynchronous sinks: awaited one event after the other, beside the run."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import monitor
from monitor.events import Envelope, Event, RunTerminated, SinkFailed, TurnStarted
from monitor.guard.async_sinks import MOST_WAITING, fan_out
from monitor.sinks import FanOut, MemorySink
from monitor.testing import FakeClock, ScriptedModel, call
from tests.runs.test_delivery_envelopes import NAMES, assert_laws, by_run, family

pytestmark = pytest.mark.anyio


class Waiting:
    """Waits before it takes an event, and says if it is called before it has taken the last one."""

    def __init__(self, wait: Callable[[int], Any] | None = None) -> None:
        self.envelopes: list[Envelope] = []
        self.inside = 0
        self.most_inside = 0
        self._wait = wait or (lambda number: anyio.lowlevel.checkpoint())

    async def receive(self, envelope: Envelope) -> None:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        await self._wait(len(self.envelopes))
        self.envelopes.append(envelope)
        self.inside -= 1


class WaitingForEvents:
    def __init__(self) -> None:
        self.events: list[Event] = []

    async def emit(self, event: Event) -> None:
        await anyio.lowlevel.checkpoint()
        self.events.append(event)


async def uneven(number: int) -> None:
    for _ in range(number * 7 % 5):
        await anyio.lowlevel.checkpoint()


async def words() -> AsyncIterator[str]:
    for word in ("one ", "two ", "three "):
        yield word


async def look(at: str) -> str:
    """Look."""
    return at


def supervised(*sinks: Any, turns: int = 3, close_grace_s: float = 250, **options: Any) -> monitor.Supervisor:
    """`close_grace_s`: the time that a sink has for an event: more than a busy machine takes."""
    answers = [*([call("look", at=str(n))] for n in range(turns - 1)), "done"]
    return monitor.Supervisor(
        ScriptedModel(*answers),
        tools=[look],
        sinks=sinks,
        clock=FakeClock(),
        stop_when=monitor.MaxTurns(1_000),
        close_grace_s=close_grace_s,
        **options,
    )


# --- nothing is lost, nothing is out of order


async def test_a_sink_that_waits_has_every_event_in_order_when_the_run_is_over():
    waiting, memory = Waiting(uneven), MemorySink()
    outcome = await supervised(waiting, memory).run("go")
    assert outcome.ok
    assert waiting.envelopes == memory.envelopes
    assert waiting.most_inside == 1


async def test_a_sink_of_several_runs_at_once_is_called_once_at_a_time():
    waiting, memory = Waiting(uneven), MemorySink()
    await family([waiting, memory]).run("look everywhere")
    assert waiting.envelopes == memory.envelopes
    assert waiting.most_inside == 1
    assert_laws(waiting.envelopes)
    assert len(by_run(waiting.envelopes)) == 1 + len(NAMES)


async def test_a_sink_that_takes_events_may_wait_too():
    waiting, memory = WaitingForEvents(), MemorySink()
    await family([waiting, memory]).run("look everywhere")
    assert waiting.events == memory.of(memory.envelopes[0].run)


async def test_a_read_run_that_is_left_early_delivers_its_end():
    waiting = Waiting(uneven)
    async with supervised(waiting).stream("go") as run:
        async for event in run:
            if isinstance(event, TurnStarted):
                break
    assert isinstance(waiting.envelopes[-1].event, RunTerminated)
    assert_laws(waiting.envelopes)


async def test_a_guard_awaits_its_sinks():
    waiting, memory = Waiting(uneven), MemorySink()
    async with monitor.Guard(sinks=[waiting, memory]) as guard:
        for _ in range(3):
            async with guard.watch(words()) as watched:
                async for _ in watched:
                    pass
            guard.check()
    assert waiting.envelopes == memory.envelopes
    assert_laws(waiting.envelopes)


async def test_a_slow_sink_holds_up_the_run_and_not_the_memory():
    """More than `MOST_WAITING` events never wait, apart from those of one step."""
    gate = anyio.Event()
    waiting, memory = Waiting(lambda number: gate.wait()), MemorySink()
    supervisor = supervised(waiting, memory, turns=200)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(functools.partial(supervisor.run, "go"))
        while len(memory.envelopes) <= MOST_WAITING:  # a run that is between two turns looks blocked as well
            await anyio.wait_all_tasks_blocked()
        for _ in range(100):
            await anyio.wait_all_tasks_blocked()
        assert len(memory.envelopes) < MOST_WAITING + 20
        assert waiting.envelopes == []
        gate.set()
    assert waiting.envelopes == memory.envelopes


@pytest.mark.parametrize("steps", range(4))
async def test_an_event_that_comes_while_the_task_of_a_sink_ends_is_delivered(steps: int):
    """The last act of the sink wakes the task that has the next event."""

    class Waking(WaitingForEvents):
        async def emit(self, event: Event) -> None:
            self.events.append(event)
            taken.set()

    waking = Waking()
    fan, awaited = fan_out([waking], 0.5)
    for number in range(5):
        taken = anyio.Event()
        fan.emit(TurnStarted(float(number), number, number))
        await taken.wait()
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
    fan.emit(TurnStarted(5.0, 5, 5))
    await awaited.close()
    assert [event.at_s for event in waking.events] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


# --- a sink that fails, or hangs


async def test_a_sink_that_raises_is_taken_off_and_the_others_hear_of_it_once():
    async def wait(number: int) -> None:
        if number == 2:
            raise OSError("the socket is closed")

    waiting, memory = Waiting(wait), MemorySink()
    outcome = await supervised(waiting, memory).run("go")
    assert outcome.ok
    assert len(waiting.envelopes) == 2
    failed = [event for event in memory.events if isinstance(event, SinkFailed)]
    assert [(event.sink, event.why) for event in failed] == [("Waiting", "OSError: the socket is closed")]
    assert_laws(memory.envelopes)


@pytest.mark.parametrize("first_to_hang", [0, 5])
async def test_a_sink_that_hangs_does_not_hold_the_end_of_the_run(first_to_hang: int, caplog: pytest.LogCaptureFixture):
    async def wait(number: int) -> None:
        if number >= first_to_hang:
            await anyio.sleep_forever()

    waiting, memory = Waiting(wait), MemorySink()
    with anyio.fail_after(60):
        outcome = await supervised(waiting, memory, close_grace_s=0.01).run("go")
    assert outcome.ok
    assert isinstance(memory.events[-1], RunTerminated)
    assert len(waiting.envelopes) == first_to_hang
    assert f"took longer than 0.01 s for one event; {len(memory.events) - first_to_hang} were not" in caplog.text


async def test_a_sink_that_hangs_does_not_hold_a_long_run():
    waiting, memory = Waiting(lambda number: anyio.sleep_forever()), MemorySink()
    with anyio.fail_after(60):
        outcome = await supervised(waiting, memory, turns=200, close_grace_s=0.01).run("go")
    assert outcome.ok
    (failed,) = [event for event in memory.events if isinstance(event, SinkFailed)]
    assert "took longer" in failed.why
    assert_laws(memory.envelopes)


async def test_a_cancellation_from_outside_goes_through_and_the_sink_hears_the_end():
    waiting = Waiting(uneven)
    with anyio.move_on_after(60) as scope:
        async with supervised(waiting).stream("go") as run:
            async for event in run:
                if isinstance(event, TurnStarted):
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    (last,) = [envelope.event for envelope in waiting.envelopes if isinstance(envelope.event, RunTerminated)]
    assert last.outcome.reason is monitor.TerminateReason.CANCELLED


# --- where nobody can wait


async def test_without_an_event_loop_a_sink_that_waits_is_refused():
    with pytest.raises(monitor.ConfigError, match="asynchronous sink is awaited beside the run"):
        monitor.Guard(sinks=[Waiting()]).__enter__()
    with pytest.raises(monitor.ConfigError, match="Waiting is asynchronous"):
        FanOut([Waiting()])


async def test_an_awaitable_that_nobody_would_await_is_a_failure_of_the_sink():
    waiting = WaitingForEvents()

    class Hidden:
        def emit(self, event: Event) -> Any:
            return waiting.emit(event)

    memory = MemorySink()
    await supervised(Hidden(), memory).run("go")
    (failed,) = [event for event in memory.events if isinstance(event, SinkFailed)]
    assert "returned an awaitable" in failed.why


@pytest.mark.parametrize("sink", [3, Waiting, object(), "log"], ids=["a number", "a class", "an object", "a text"])
async def test_what_is_no_sink_is_refused_where_it_is_given(sink: Any):
    with pytest.raises(monitor.ConfigError):
        supervised(sink)

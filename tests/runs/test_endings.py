"""Law 3 for a supervised run: wherever it is and whatever ends it, there is one `RunTerminated`,
one outcome, a true reason, nothing left behind, and a history in which every call has its result.
Law 5: a cancellation from outside goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

import monitor
from monitor.chunks import TextDelta, TurnFinished
from monitor.errors import FinishReason
from monitor.guard.streams import wait as _wait
from monitor.testing import FakeClock, Pause, ScriptedModel, ScriptedStream, Stall
from monitor.testing.scripted import call

pytestmark = pytest.mark.anyio

Reason = monitor.TerminateReason
DONE = TurnFinished(FinishReason.DONE)
FOR_EVER = 1_000.0


class Model:
    """Answers with the given streams, in turn; a function opens one and may take its time."""

    name = "scripted:model"

    def __init__(self, *answers: ScriptedStream | Callable[[], Awaitable[ScriptedStream]]) -> None:
        self._answers = iter(answers)
        self.streams = [answer for answer in answers if isinstance(answer, ScriptedStream)]
        self.adapter: Any = None

    def stream(self, request: monitor.models.ModelRequest) -> Any:
        answer = next(self._answers)
        return answer if isinstance(answer, ScriptedStream) else answer()


class Case:
    """A supervised run with all that a test wants to look at afterwards."""

    def __init__(self, model: Any, **options: Any) -> None:
        self.model = model
        self.clock = FakeClock()
        self.sink = monitor.sinks.MemorySink()
        self.at_end: Callable[[], object] = lambda: None
        options = {"stop_when": monitor.Timeout(FOR_EVER), "last_turn": None} | options
        sinks = [self.sink, _AtEnd(lambda: self.at_end()), *options.pop("sinks", ())]  # noqa: PLW0108 - it is set later
        self.supervisor = monitor.Supervisor(model, clock=self.clock, sinks=sinks, **options)
        self.run = self.supervisor.stream("go")
        self.seen: list[monitor.events.Event] = []
        self.went_on = False
        self.tasks = _tasks()

    async def read(self) -> None:
        async with self.run as run:
            async for event in run:
                self.seen.append(event)
        await anyio.lowlevel.checkpoint()
        self.went_on = True

    def ended(self, reason: Reason, *, unopened: int = 0) -> monitor.Outcome:
        """There was exactly one ending, for `reason`, and it left nothing behind."""
        outcome = self.run.outcome
        assert outcome.reason is reason, outcome
        endings = [event for event in self.sink.events if isinstance(event, monitor.events.RunTerminated)]
        assert endings == [self.sink.events[-1]]
        assert endings[0].outcome is outcome
        assert self.clock.pending == 0
        streams = self.model.streams[: len(self.model.streams) - unopened]
        assert all(stream.closed or stream.exhausted for stream in streams)
        check_history(self.run.history)
        assert self.run.phase == ("error" if reason is Reason.ERROR else "finished")
        return outcome

    async def nothing_is_left(self) -> None:
        await _until(lambda: not _tasks() - self.tasks)


async def _until(is_so: Callable[[], bool]) -> None:
    """Let the others run until it is so."""
    with anyio.fail_after(60):
        while not is_so():
            await anyio.lowlevel.checkpoint()


async def _exhaust(run: AsyncIterator[monitor.events.Event]) -> None:
    async for _ in run:
        pass


def check_history(history: tuple[monitor.messages.Message, ...]) -> None:
    """Every call has its result, in the order of the calls, and no turn stands there twice."""
    seen: set[str] = set()
    for message in history:
        if isinstance(message, monitor.AssistantMessage):
            calls = [part.id for part in message.content if isinstance(part, monitor.chunks.ToolCall)]
            assert calls == [result.id for result in message.results]
            assert not seen.intersection(calls)
            seen.update(calls)


def _tasks() -> set[Any]:
    """All tasks of the event loop."""
    try:
        return set(asyncio.all_tasks())
    except RuntimeError:
        trio = pytest.importorskip("trio")
    found, todo = set(), [trio.lowlevel.current_root_task()]
    while todo:
        task = todo.pop()
        found.add(task)
        todo += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found


# ------------------------------------------------------------------ the moments at which a run can
# be struck

Moment = tuple[Case, Callable[[], Awaitable[None]]]


def opening(**options: Any) -> Moment:
    stall = Stall()

    async def opener() -> ScriptedStream:
        await stall.perform()
        return ScriptedStream("never")

    return Case(Model(opener), **options), stall.reached


def first_read(**options: Any) -> Moment:
    stall = Stall()
    return Case(Model(ScriptedStream(stall)), **options), stall.reached


def streaming(**options: Any) -> Moment:
    stall = Stall()
    return Case(Model(ScriptedStream(TextDelta("so far"), call("nothing"), stall)), **options), stall.reached


def in_a_tool(**options: Any) -> Moment:
    stall = Stall()

    async def quick() -> str:
        return "quickly"

    async def slow() -> None:
        await stall.perform()

    model = Model(ScriptedStream(TextDelta("I look"), call("quick"), call("slow"), DONE))
    return Case(model, tools=[quick, slow], **options), stall.reached


def in_a_thread(**options: Any) -> Moment:
    started, over = threading.Event(), threading.Event()

    def slow() -> None:
        started.set()
        over.wait(60)

    async def reached() -> None:
        await _until(started.is_set)

    case = Case(Model(ScriptedStream(call("slow"), DONE)), tools=[slow], **options)
    case.at_end = over.set
    return case, reached


def in_a_stubborn_tool(**options: Any) -> Moment:
    """The tool takes its first cancellation for something else, and waits again."""
    stall = Stall()

    async def stubborn() -> None:
        with contextlib.suppress(anyio.get_cancelled_exc_class()):
            await stall.perform()
        await anyio.sleep_forever()

    return Case(Model(ScriptedStream(call("stubborn"), DONE)), tools=[stubborn], **options), stall.reached


def in_two_tools(**options: Any) -> Moment:
    """One of them ends by the cancellation with an error of its own."""
    stall = Stall()

    async def breaks() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise RuntimeError("while it was cleaning up")

    async def slow() -> None:
        await stall.perform()

    return Case(
        Model(ScriptedStream(call("breaks"), call("slow"), DONE)), tools=[breaks, slow], **options
    ), stall.reached


def in_a_retry_delay(**options: Any) -> Moment:
    case = Case(
        Model(ScriptedStream(TextDelta("half"), ConnectionError("gone"))),
        requests=monitor.runs.Requests(retries=monitor.Retries(first_delay_s=60)),
        **options,
    )
    case.model.adapter = Failing

    async def reached() -> None:
        await _until(lambda: any(isinstance(event, monitor.events.RetryScheduled) for event in case.sink.events))
        await anyio.wait_all_tasks_blocked()

    return case, reached


def in_a_subagent(**options: Any) -> Moment:
    stall = Stall()
    model = ScriptedModel([TextDelta("deep"), stall])
    child = monitor.Supervisor(model, stop_when=monitor.Timeout(2 * FOR_EVER), clock=FakeClock())
    case = Case(
        Model(ScriptedStream(call("ask", task="dig"), DONE)),
        tools=[child.as_tool(name="ask", description="")],
        **options,
    )
    case.at_end = lambda: _all_closed(model)
    return case, stall.reached


def in_a_tool_of_a_subagent(**options: Any) -> Moment:
    stall = Stall()

    async def slow() -> None:
        await stall.perform()

    child = monitor.Supervisor(ScriptedModel(call("slow")), tools=[slow], clock=FakeClock())
    case = Case(
        Model(ScriptedStream(call("ask", task="dig"), DONE)),
        tools=[child.as_tool(name="ask", description="")],
        **options,
    )
    return case, stall.reached


def _all_closed(model: ScriptedModel) -> None:
    assert all(stream.closed or stream.exhausted for stream in model.streams)


class _AtEnd:
    """A sink that does something when the run has ended."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def emit(self, event: monitor.events.Event) -> None:
        if isinstance(event, monitor.events.RunTerminated):
            self._function()


class Failing:
    """An adapter of chunks that takes every exception for a broken connection."""

    needs_finish = False
    drains = False

    def __init__(self, index: int) -> None: ...

    def decode(self, item: Any) -> list[Any]:
        return [item]

    def finish(self) -> list[Any]:
        return []

    def classify(self, error: Exception) -> monitor.models.ModelError:
        return monitor.models.ModelError(monitor.models.ErrorKind.NETWORK, str(error))


MOMENTS = [
    opening,
    first_read,
    streaming,
    in_a_tool,
    in_a_thread,
    in_a_stubborn_tool,
    in_two_tools,
    in_a_retry_delay,
    in_a_subagent,
    in_a_tool_of_a_subagent,
]
at_every_moment = pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)


async def _strike(case: Case, reached: Callable[[], Awaitable[None]], strike: Callable[[], object]) -> None:
    """Let the run come to its moment, then strike."""
    async with anyio.create_task_group() as group:
        group.start_soon(case.read)
        await reached()
        await anyio.wait_all_tasks_blocked()
        strike()
    await case.nothing_is_left()


# ------------------------------------------------------------------ our own endings, at every
# moment


@at_every_moment
async def test_an_abort_ends_it(moment: Callable[..., Moment]) -> None:
    case, reached = moment()
    await _strike(case, reached, lambda: case.run.abort("enough"))
    outcome = case.ended(Reason.ABORTED)
    assert outcome.detail == "enough"
    assert outcome.source == "abort"
    assert case.went_on


@at_every_moment
async def test_an_abort_from_another_thread_ends_it(moment: Callable[..., Moment]) -> None:
    case, reached = moment()
    await _strike(case, reached, lambda: threading.Thread(target=case.run.abort, args=["from afar"]).start())
    assert case.ended(Reason.ABORTED).detail == "from afar"


@at_every_moment
async def test_the_first_of_two_aborts_counts(moment: Callable[..., Moment]) -> None:
    case, reached = moment()

    def twice() -> None:
        case.run.abort("first")
        case.run.abort("second")

    await _strike(case, reached, twice)
    case.run.abort("much too late")
    assert case.ended(Reason.ABORTED).detail == "first"


@at_every_moment
async def test_its_deadline_ends_it(moment: Callable[..., Moment]) -> None:
    case, reached = moment(stop_when=monitor.Timeout(30))
    await _strike(case, reached, lambda: case.clock.advance(31))
    assert case.ended(Reason.TIMEOUT).limit == 30


@at_every_moment
async def test_an_abort_wins_over_a_deadline_in_the_same_moment(moment: Callable[..., Moment]) -> None:
    case, reached = moment(stop_when=monitor.Timeout(30))

    def both() -> None:
        case.clock.advance(31)
        case.run.abort("mine")

    await _strike(case, reached, both)
    case.ended(Reason.ABORTED)


@at_every_moment
async def test_after_its_end_nothing_more_comes(moment: Callable[..., Moment]) -> None:
    case, reached = moment()
    await _strike(case, reached, case.run.abort)
    assert isinstance(case.seen[-1], monitor.events.RunTerminated)
    with pytest.raises(StopAsyncIteration):
        await anext(case.run)
    with pytest.raises(monitor.ConfigError, match="used once"):
        await case.run.__aenter__()
    case.ended(Reason.ABORTED)


# ------------------------------------------------------------------ cancellations from outside, at
# every moment


@at_every_moment
async def test_a_cancelled_scope_goes_through_it(moment: Callable[..., Moment]) -> None:
    case, reached = moment()
    with anyio.CancelScope() as scope:
        await _strike(case, reached, scope.cancel)
    assert scope.cancelled_caught
    assert not case.went_on
    await case.nothing_is_left()
    case.ended(Reason.CANCELLED)


@at_every_moment
async def test_a_cancelled_scope_goes_through_run(moment: Callable[..., Moment]) -> None:
    case, reached = moment()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(case.supervisor.run, "go")
            await reached()
            scope.cancel()
    await case.nothing_is_left()
    endings = [event for event in case.sink.events if isinstance(event, monitor.events.RunTerminated)]
    assert endings == [case.sink.events[-1]]
    assert endings[0].outcome.reason is Reason.CANCELLED


@at_every_moment
@pytest.mark.parametrize("abort_first", [True, False])
async def test_an_abort_and_a_cancellation_at_once(moment: Callable[..., Moment], *, abort_first: bool) -> None:
    case, reached = moment()

    def both() -> None:
        for strike in (case.run.abort, scope.cancel) if abort_first else (scope.cancel, case.run.abort):
            strike()

    with anyio.CancelScope() as scope:
        await _strike(case, reached, both)
    assert scope.cancelled_caught, "a foreign cancellation goes on, whatever the reason says"
    assert not case.went_on
    await case.nothing_is_left()
    case.ended(Reason.ABORTED)


class TestOnAsyncio:
    """What only asyncio has: cancelling a task, and timeouts that do."""

    pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio"])

    @at_every_moment
    async def test_a_cancelled_task(self, moment: Callable[..., Moment]) -> None:
        case, reached = moment()
        task = asyncio.create_task(case.read())
        await reached()
        await anyio.wait_all_tasks_blocked()
        task.cancel("mine")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert task.cancelling() == 1
        await case.nothing_is_left()
        case.ended(Reason.CANCELLED)

    @at_every_moment
    async def test_a_timeout_of_asyncio(self, moment: Callable[..., Moment]) -> None:
        case, reached = moment()
        task = asyncio.current_task()
        assert task is not None

        async def strike() -> None:
            await reached()
            await anyio.wait_all_tasks_blocked()
            limit.reschedule(0)

        striker = asyncio.create_task(strike())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit:
                await case.read()
        assert task.cancelling() == 0
        await striker
        await case.nothing_is_left()
        case.ended(Reason.CANCELLED)

    @at_every_moment
    async def test_wait_for(self, moment: Callable[..., Moment]) -> None:
        case, _ = moment()
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(case.read(), 0.02)
        assert task.cancelling() == 0
        await case.nothing_is_left()
        case.ended(Reason.CANCELLED)

    @at_every_moment
    async def test_our_own_end_leaves_no_mark_on_the_callers_task(self, moment: Callable[..., Moment]) -> None:
        case, reached = moment(stop_when=monitor.Timeout(30))
        task = asyncio.current_task()
        assert task is not None

        async def strike() -> None:
            await reached()
            await anyio.wait_all_tasks_blocked()
            case.clock.advance(31)

        striker = asyncio.create_task(strike())
        await case.read()
        assert task.cancelling() == 0
        await striker
        await asyncio.sleep(0)  # a cancellation that is still on its way would strike here
        case.ended(Reason.TIMEOUT)

    @at_every_moment
    @pytest.mark.parametrize("abort_first", [True, False])
    async def test_an_abort_and_a_cancelled_task_at_once(
        self, moment: Callable[..., Moment], *, abort_first: bool
    ) -> None:
        case, reached = moment()
        task = asyncio.create_task(case.read())
        await reached()
        await anyio.wait_all_tasks_blocked()
        for strike in (case.run.abort, task.cancel) if abort_first else (task.cancel, case.run.abort):
            strike()
        with pytest.raises(asyncio.CancelledError):
            await task
        await case.nothing_is_left()
        case.ended(Reason.ABORTED)

    @at_every_moment
    async def test_one_event_that_is_waited_for_too_long(self, moment: Callable[..., Moment]) -> None:
        """The caller goes on reading after a timeout of one read: the run is over, and does not
        pretend to have gone well.
        """
        case, _ = moment()
        async with case.run as run:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(_exhaust(run), 0.02)
            case.seen += [event async for event in run]
        await case.nothing_is_left()
        assert isinstance(case.seen[-1], monitor.events.RunTerminated)
        case.ended(Reason.CANCELLED)

    async def test_a_task_that_is_cancelled_before_its_first_step(self) -> None:
        case = Case(ScriptedModel("never"))
        task = asyncio.create_task(case.supervisor.run("go"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert case.sink.events == []
        assert case.model.requests == []

    async def test_a_cancellation_while_the_source_is_closed(self) -> None:
        closing = Pause()
        case = Case(Model(ScriptedStream(TextDelta("a"), Stall(), at_close=[closing])))
        task = asyncio.create_task(case.read())
        await anyio.wait_all_tasks_blocked()
        case.run.abort()
        await closing.reached()
        task.cancel()
        await anyio.wait_all_tasks_blocked()
        closing.release()
        with pytest.raises(asyncio.CancelledError):
            await task
        await case.nothing_is_left()
        case.ended(Reason.ABORTED)

    async def test_a_generator_around_the_run_that_is_collected(self) -> None:
        case, _ = streaming()

        async def wrapper() -> AsyncIterator[monitor.events.Event]:
            async with case.run as run:
                async for event in run:
                    yield event

        generator = wrapper()
        assert isinstance(await anext(generator), monitor.events.RunStarted)
        del generator
        gc.collect()
        await _until(lambda: case.run.phase != "running")
        await case.nothing_is_left()
        case.ended(Reason.CLOSED_BY_CALLER, unopened=1)


async def test_a_scope_that_is_cancelled_before_the_run_begins() -> None:
    case, _ = streaming()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await case.read()
    assert not case.went_on
    case.ended(Reason.CANCELLED)


async def test_a_scope_that_is_cancelled_while_the_source_is_closed() -> None:
    closing = Pause()
    case = Case(Model(ScriptedStream(TextDelta("a"), Stall(), at_close=[closing])))
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(case.read)
            await anyio.wait_all_tasks_blocked()
            case.run.abort()
            await closing.reached()
            scope.cancel()
            closing.release()
    await case.nothing_is_left()
    case.ended(Reason.ABORTED)
    assert case.model.streams[0].closed


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_a_cancellation_that_comes_out_of_a_nursery_of_the_sdk_in_a_group() -> None:
    trio = pytest.importorskip("trio")
    stall = Stall()

    async def opener() -> ScriptedStream:
        async with trio.open_nursery():
            await stall.perform()
        return ScriptedStream("never")

    case = Case(Model(opener))
    with anyio.CancelScope() as scope:
        await _strike(case, stall.reached, scope.cancel)
    await case.nothing_is_left()
    assert case.ended(Reason.CANCELLED).error is None


# ------------------------------------------------------------------ the caller


async def test_an_abort_before_it_begins() -> None:
    case = Case(ScriptedModel("never"))
    case.run.abort("changed my mind")
    await case.read()
    case.ended(Reason.ABORTED)
    assert case.model.requests == []


async def test_an_abort_in_the_block_before_it_is_read() -> None:
    case = Case(ScriptedModel("never"))
    async with case.run as run:
        run.abort()
        case.seen += [event async for event in run]
    case.ended(Reason.ABORTED)
    assert case.model.requests == []


def _turns() -> ScriptedModel:
    return ScriptedModel(["a", "b", call("look")], ["c", call("look")], "the end", suspends=True)


async def look() -> str:
    await anyio.lowlevel.checkpoint()
    return "seen"


def _kinds_of_a_whole_run() -> list[str]:
    """The events of a run, in their order, each place once."""

    async def run() -> list[monitor.events.Event]:
        case = Case(_turns(), tools=[look])
        await case.read()
        return case.seen

    return [f"{number}: {type(event).__name__}" for number, event in enumerate(anyio.run(run))]


PLACES = range(len(_kinds_of_a_whole_run()))
PLACE_NAMES = _kinds_of_a_whole_run()


@pytest.mark.parametrize("place", PLACES, ids=PLACE_NAMES)
async def test_the_caller_leaves_at_any_event(place: int) -> None:
    case = Case(_turns(), tools=[look])
    async with case.run as run:
        async for event in run:
            case.seen.append(event)
            if len(case.seen) > place:
                break
    await case.nothing_is_left()
    if isinstance(case.seen[-1], monitor.events.RunTerminated | monitor.events.StopDecided):
        assert case.ended(Reason.GOAL).ok
    else:
        assert not case.ended(Reason.CLOSED_BY_CALLER).ok


@pytest.mark.parametrize("place", PLACES, ids=PLACE_NAMES)
async def test_the_caller_aborts_at_any_event(place: int) -> None:
    case = Case(_turns(), tools=[look])
    async with case.run as run:
        async for event in run:
            case.seen.append(event)
            if len(case.seen) == place + 1:
                run.abort("at an event")
    await case.nothing_is_left()
    decided = any(
        isinstance(event, monitor.events.StopDecided) and event.stop.reason is Reason.GOAL for event in case.seen
    )
    case.ended(Reason.GOAL if decided else Reason.ABORTED)
    assert len([event for event in case.seen if isinstance(event, monitor.events.RunTerminated)]) == 1


@pytest.mark.parametrize("place", PLACES, ids=PLACE_NAMES)
async def test_the_caller_raises_at_any_event(place: int) -> None:
    case = Case(_turns(), tools=[look])
    error = ValueError("mine")

    async def raising() -> None:
        async with case.run as run:
            async for event in run:
                case.seen.append(event)
                if len(case.seen) > place:
                    raise error

    with pytest.raises(ValueError, match="mine") as caught:
        await raising()
    assert caught.value is error
    await case.nothing_is_left()
    if isinstance(case.seen[-1], monitor.events.RunTerminated | monitor.events.StopDecided):
        case.ended(Reason.GOAL)
    else:
        assert case.ended(Reason.ERROR).error is error


@pytest.mark.parametrize("place", PLACES, ids=PLACE_NAMES)
async def test_the_caller_is_cancelled_at_any_event(place: int) -> None:
    case = Case(_turns(), tools=[look])
    with anyio.CancelScope() as scope:
        async with case.run as run:
            async for event in run:
                case.seen.append(event)
                if len(case.seen) == place + 1:
                    scope.cancel()
            await anyio.lowlevel.checkpoint()
            case.went_on = True
    assert not case.went_on
    await case.nothing_is_left()
    if isinstance(case.seen[-1], monitor.events.RunTerminated):
        case.ended(Reason.GOAL)
    else:
        case.ended(Reason.CANCELLED)


async def test_it_is_left_before_it_is_read() -> None:
    case = Case(ScriptedModel("never"))
    async with case.run:
        pass
    case.ended(Reason.CLOSED_BY_CALLER)
    assert case.model.requests == []


async def test_what_came_before_the_caller_left_is_in_the_history() -> None:
    case = Case(_turns(), tools=[look])
    async with case.run as run:
        async for event in run:
            if isinstance(event, monitor.events.ToolFinished):
                break
    case.ended(Reason.CLOSED_BY_CALLER)
    last = case.run.history[-1]
    assert isinstance(last, monitor.AssistantMessage)
    assert [result.text for result in last.results] == ["seen"]


async def test_a_quick_tool_has_its_result_in_the_history_of_a_run_that_was_cancelled_in_a_slow_one() -> None:
    case, reached = in_a_tool()
    with anyio.CancelScope() as scope:
        await _strike(case, reached, scope.cancel)
    case.ended(Reason.CANCELLED)
    last = case.run.history[-1]
    assert isinstance(last, monitor.AssistantMessage)
    quick, slow = last.results
    assert (quick.text, quick.is_error) == ("quickly", False)
    assert slow.is_error


async def test_a_run_that_is_never_entered_is_nothing() -> None:
    case = Case(ScriptedModel("never"))
    with pytest.raises(monitor.ConfigError, match="enter the run"):
        await anext(case.run)
    with pytest.raises(monitor.ConfigError, match="has ended"):
        _ = case.run.outcome
    assert case.run.phase == "idle"
    assert case.sink.events == []
    assert case.model.requests == []


async def test_entering_it_twice_is_refused_and_does_no_harm() -> None:
    case = Case(ScriptedModel("fine"))
    async with case.run as run:
        with pytest.raises(monitor.ConfigError, match="used once"):
            await run.__aenter__()
        case.seen += [event async for event in run]
    case.ended(Reason.GOAL)


@at_every_moment
async def test_a_second_reader_is_refused_and_the_first_one_none_the_worse(moment: Callable[..., Moment]) -> None:
    case, reached = moment()
    async with anyio.create_task_group() as group:
        group.start_soon(case.read)
        await reached()
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(monitor.ConfigError, match="another task"):
            await anext(case.run)
        assert case.run.phase == "running"
        case.run.abort("now")
    case.ended(Reason.ABORTED)


@at_every_moment
async def test_the_block_is_left_while_another_task_reads(moment: Callable[..., Moment]) -> None:
    case, reached = moment()

    async def read() -> None:
        case.seen.extend([event async for event in case.run])

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            async with case.run:
                group.start_soon(read)
                await reached()
                await anyio.wait_all_tasks_blocked()
            before = len(case.sink.events)
    assert len(case.sink.events) == before, "nothing happens after the block"
    await case.nothing_is_left()
    case.ended(Reason.CLOSED_BY_CALLER)


async def test_an_exception_leaves_the_block_while_another_task_reads() -> None:
    case, reached = in_a_tool()
    error = ValueError("mine")

    async def read() -> None:
        case.seen.extend([event async for event in case.run])

    async def leave(group: anyio.abc.TaskGroup) -> None:
        async with case.run:
            group.start_soon(read)
            await reached()
            raise error

    async with anyio.create_task_group() as group:
        with pytest.raises(ValueError, match="mine"):
            await leave(group)
    assert case.ended(Reason.ERROR).error is error


# ------------------------------------------------------------------ limits

LIMITS: list[tuple[monitor.Condition, Reason]] = [
    (monitor.MaxTurns(2), Reason.MAX_TURNS),
    (monitor.MaxModelCalls(2), Reason.MODEL_CALL_LIMIT),
    (monitor.MaxToolCalls(2), Reason.TOOL_CALL_LIMIT),
    (monitor.TokenLimit(10), Reason.TOKEN_LIMIT),
    (monitor.CostLimit(0.00001), Reason.COST_LIMIT),
    (monitor.conditions.ToolCalled("look"), Reason.CONDITION_MET),
]


@pytest.mark.parametrize(("limit", "reason"), LIMITS, ids=[type(limit).__name__ for limit, _ in LIMITS])
@pytest.mark.parametrize("last_turn", [None, monitor.LastTurn(60)], ids=["", "with a last turn"])
async def test_every_limit(limit: monitor.Condition, reason: Reason, last_turn: monitor.LastTurn | None) -> None:
    model = ScriptedModel(lambda request: ["I look", call("look")])
    case = Case(model, tools=[look], stop_when=limit, last_turn=last_turn, prices=monitor.Price(1, 1), detectors=None)
    with anyio.fail_after(60):
        await case.read()
    await case.nothing_is_left()
    case.ended(reason)


@pytest.mark.parametrize("budget", [monitor.Budget(tokens=10), monitor.Budget(usd=0.00001)], ids=["tokens", "usd"])
async def test_a_budget(budget: monitor.Budget) -> None:
    model = ScriptedModel(lambda request: ["I look", call("look")])
    case = Case(model, tools=[look], budget=budget, prices=monitor.Price(1, 1), detectors=None)
    await case.read()
    case.ended(Reason.TOKEN_LIMIT if budget.tokens else Reason.COST_LIMIT)


async def test_a_loop() -> None:
    case = Case(ScriptedModel("The same sentence, once again. " * 100), policy=monitor.StopAtFirstLoop())
    await case.read()
    case.ended(Reason.LOOP_DETECTED)


async def test_a_model_that_never_gives_other_tasks_a_chance_can_be_cancelled() -> None:
    """Every answer is there at once and calls only a tool of the run's own: still other tasks get
    their turn.
    """
    model = ScriptedModel(lambda request: call("emit_value", name="x", value="text"))
    case = Case(model, outputs={"x": int}, detectors=None)
    with anyio.move_on_after(0.05) as scope:
        await case.read()
    assert scope.cancelled_caught
    case.ended(Reason.CANCELLED)


# ------------------------------------------------------------------ crashes


class Crash(Exception):
    """A part of the caller's that fails."""


class CrashingDetector:
    name = "CrashingDetector"

    def __init__(self, when: type) -> None:
        self.params: Any = {}
        self._when = when

    def observe(self, chunk: monitor.chunks.Chunk) -> list[monitor.verdicts.Detection]:
        if isinstance(chunk, self._when):
            raise Crash
        return []

    def reset(self) -> None:
        if self._when is type(None):
            raise Crash

    def snapshot(self) -> Any: ...

    def restore(self, state: Any) -> None: ...


class CrashingCondition(monitor.Condition):
    def __init__(self, phase: str) -> None:
        self._phase = phase

    def evaluate(self, state: monitor.outcome.RunState) -> monitor.Stop | None:
        if state.phase == self._phase:
            raise Crash
        return None


class CrashingPolicy:
    def __init__(self, method: str) -> None:
        self._method = method

    def _do(self, method: str) -> None:
        if method == self._method:
            raise Crash

    def reset(self) -> None:
        self._do("reset")

    def turn_started(self) -> None:
        self._do("turn_started")

    def decide(self, detection: monitor.verdicts.Detection) -> monitor.Verdict:
        self._do("decide")
        return monitor.Continue()


class CrashingSink:
    def emit(self, event: monitor.events.Event) -> None:
        raise Crash


@pytest.mark.parametrize(
    "when",
    [type(None), TextDelta, monitor.chunks.ToolCall, monitor.chunks.ToolResult, TurnFinished],
    ids=lambda when: when.__name__,
)
async def test_a_detector_that_crashes(when: type) -> None:
    case = Case(_turns(), tools=[look], detectors=[CrashingDetector(when)])
    await case.read()
    outcome = case.ended(Reason.ERROR)
    assert isinstance(outcome.error, Crash)
    assert outcome.source == "CrashingDetector"


@pytest.mark.parametrize("phase", ["before_call", "streaming", "after_call"])
async def test_a_condition_that_crashes(phase: str) -> None:
    case = Case(_turns(), tools=[look], stop_when=CrashingCondition(phase))
    await case.read()
    outcome = case.ended(Reason.ERROR)
    assert isinstance(outcome.error, Crash)
    assert outcome.source == "crashing_condition"


@pytest.mark.parametrize("method", ["reset", "turn_started", "decide"])
async def test_a_policy_that_crashes(method: str) -> None:
    case = Case(ScriptedModel("The same sentence, once again. " * 100), policy=CrashingPolicy(method))
    await case.read()
    outcome = case.ended(Reason.ERROR)
    assert isinstance(outcome.error, Crash)
    assert outcome.source == "CrashingPolicy"


async def test_a_sink_that_crashes_has_no_say() -> None:
    case = Case(_turns(), tools=[look], sinks=[CrashingSink()])
    await case.read()
    case.ended(Reason.GOAL)


async def test_a_tool_that_crashes_has_no_say() -> None:
    async def look() -> None:
        raise Crash

    case = Case(_turns(), tools=[look])
    await case.read()
    case.ended(Reason.GOAL)


async def test_a_model_that_crashes() -> None:
    def answer(request: monitor.models.ModelRequest) -> None:
        raise Crash

    case = Case(ScriptedModel(answer))
    await case.read()
    assert isinstance(case.ended(Reason.ERROR).error, Crash)


async def test_a_model_that_is_used_wrongly_tells_the_caller() -> None:
    def answer(request: monitor.models.ModelRequest) -> None:
        raise monitor.ConfigError("no such setting")

    case = Case(ScriptedModel(answer))
    with pytest.raises(monitor.ConfigError, match="no such setting"):
        await case.read()
    case.ended(Reason.ERROR)


@pytest.mark.parametrize("fatal", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("nested", [False, True], ids=["", "in a subagent"])
async def test_the_end_of_the_program_in_a_tool(fatal: type[BaseException], *, nested: bool) -> None:
    async def look() -> None:
        await anyio.lowlevel.checkpoint()
        raise fatal("stop it all")

    tools: list[Any] = [look]
    if nested:
        tools = [monitor.Supervisor(_turns(), tools=tools).as_tool(name="look", description="")]
        case = Case(ScriptedModel(call("look", task="dig")), tools=tools)
    else:
        case = Case(_turns(), tools=tools)
    with pytest.raises(fatal, match="stop it all"):
        await case.read()
    await case.nothing_is_left()
    case.ended(Reason.ERROR)


# ------------------------------------------------------------------ runs in runs


class Nested:
    """A run, and in it another one as a tool."""

    def __init__(self, child_model: ScriptedModel, child: dict[str, Any], **parent: Any) -> None:
        self.child_sink = monitor.sinks.MemorySink()
        self.child_model = child_model
        sinks = [self.child_sink, *child.pop("sinks", ())]
        self.child = monitor.Supervisor(child_model, sinks=sinks, **{"last_turn": None} | child)
        model = ScriptedModel([call("ask", task="dig")], "and so it was", suspends=True)
        self.parent = Case(model, tools=[self.child.as_tool(name="ask", description="Ask.")], **parent)

    def child_ended(self, reason: Reason) -> monitor.Outcome:
        endings = [event for event in self.child_sink.events if isinstance(event, monitor.events.RunTerminated)]
        assert endings == [self.child_sink.events[-1]]
        _all_closed(self.child_model)
        assert endings[0].outcome.reason is reason
        return endings[0].outcome

    @property
    def answer(self) -> monitor.chunks.ToolResult:
        return next(event.result for event in self.parent.sink.events if isinstance(event, monitor.events.ToolFinished))


async def test_a_subagent_that_reaches_its_goal() -> None:
    nested = Nested(ScriptedModel("gold"), {})
    await nested.parent.read()
    nested.child_ended(Reason.GOAL)
    nested.parent.ended(Reason.GOAL)
    assert nested.answer.text == "gold"


CHILD_ENDINGS: list[tuple[str, dict[str, Any], Reason]] = [
    ("limit", {"stop_when": monitor.MaxTurns(1)}, Reason.MAX_TURNS),
    ("detector", {"detectors": [CrashingDetector(TextDelta)]}, Reason.ERROR),
    ("condition", {"stop_when": CrashingCondition("streaming")}, Reason.ERROR),
    ("policy", {"policy": CrashingPolicy("turn_started")}, Reason.ERROR),
    ("outputs", {"outputs": {"x": int}, "requests": monitor.runs.Requests(max_nudges=0)}, Reason.MISSING_OUTPUTS),
]


@pytest.mark.parametrize(
    ("child", "reason"), [case[1:] for case in CHILD_ENDINGS], ids=[case[0] for case in CHILD_ENDINGS]
)
async def test_how_a_subagent_ends_is_an_answer_for_its_caller(child: dict[str, Any], reason: Reason) -> None:
    nested = Nested(_turns(), {"tools": [look]} | child)
    await nested.parent.read()
    await nested.parent.nothing_is_left()
    nested.child_ended(reason)
    nested.parent.ended(Reason.GOAL)
    assert nested.answer.is_error
    assert reason.value in nested.answer.text


async def test_a_model_of_a_subagent_that_crashes_is_an_answer_for_its_caller() -> None:
    nested = Nested(ScriptedModel(Crash()), {})
    await nested.parent.read()
    nested.child_ended(Reason.ERROR)
    nested.parent.ended(Reason.GOAL)
    assert "Crash" in nested.answer.text


@pytest.mark.parametrize("place", range(8))
async def test_an_abort_of_the_caller_reaches_the_subagent(place: int) -> None:
    class Aborts:
        seen = 0

        def emit(self, event: monitor.events.Event) -> None:
            self.seen += 1
            if self.seen == place + 1:
                nested.parent.run.abort("stop all")

    nested = Nested(_turns(), {"tools": [look], "sinks": [Aborts()]})
    await nested.parent.read()
    await nested.parent.nothing_is_left()
    nested.child_ended(Reason.ABORTED)
    nested.parent.ended(Reason.ABORTED)


async def test_a_limit_of_the_caller_ends_the_subagent_and_the_caller() -> None:
    nested = Nested(
        ScriptedModel(lambda request: ["I look", call("look")]),
        {"tools": [look], "detectors": None},
        stop_when=monitor.TokenLimit(40),
    )
    await nested.parent.read()
    await nested.parent.nothing_is_left()
    assert nested.child_ended(Reason.ABORTED).source == "token_limit"
    nested.parent.ended(Reason.TOKEN_LIMIT)


async def test_a_deadline_of_the_caller_ends_the_subagent_and_the_caller() -> None:
    stall = Stall()
    nested = Nested(ScriptedModel(["deep", stall]), {}, stop_when=monitor.Timeout(30))
    await _strike(nested.parent, stall.reached, lambda: nested.parent.clock.advance(31))
    nested.child_ended(Reason.ABORTED)
    nested.parent.ended(Reason.TIMEOUT)


async def test_the_caller_is_cancelled_in_a_subagent() -> None:
    stall = Stall()
    nested = Nested(ScriptedModel(["deep", stall]), {})
    with anyio.CancelScope() as scope:
        await _strike(nested.parent, stall.reached, scope.cancel)
    await nested.parent.nothing_is_left()
    nested.child_ended(Reason.CANCELLED)
    nested.parent.ended(Reason.CANCELLED)


async def test_two_subagents_at_once_of_which_one_overspends_for_both() -> None:
    def child() -> monitor.Supervisor:
        return monitor.Supervisor(ScriptedModel(lambda request: ["I look", call("look")]), tools=[look], detectors=None)

    tools = [child().as_tool(name=name, description="") for name in ("one", "two")]
    case = Case(
        ScriptedModel([call("one", task="dig"), call("two", task="dig")]),
        tools=tools,
        budget=monitor.Budget(tokens=100),
    )
    await case.read()
    await case.nothing_is_left()
    case.ended(Reason.TOKEN_LIMIT)


# ------------------------------------------------------------------ races with threads


async def test_no_abort_from_a_thread_is_missed() -> None:
    """Struck at every instant, between any two steps of the interpreter: the run ends."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(60):
            case, _reached = in_a_tool()
            thread = threading.Thread(target=case.run.abort)
            with anyio.fail_after(60):
                async with anyio.create_task_group() as group:
                    group.start_soon(case.read)
                    group.start_soon(anyio.to_thread.run_sync, partial(_start, thread))
            case.ended(Reason.ABORTED, unopened=1)
    finally:
        sys.setswitchinterval(before)


def _start(thread: threading.Thread) -> None:
    thread.start()
    thread.join()


async def test_an_abort_just_before_a_tool_is_waited_for_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The instant at which a thread could slip through: the limits have been looked at, and nobody
    waits yet.
    """
    case, _ = in_a_tool()
    make_wait = _wait.make_wait

    def made(*args: Any) -> Any:
        wait = make_wait(*args)
        threading.Thread(target=case.run.abort).run()
        return wait

    monkeypatch.setattr("monitor.guard.streams.ask.make_wait", made)
    with anyio.fail_after(60):
        await case.read()
    case.ended(Reason.ABORTED)

"""Law 3, one ending: however a run ends, there is one `RunTerminated`, one outcome, a true reason,
and a closed source. Law 5: the caller's code is never cancelled by us, and a foreign cancellation
is never swallowed.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import anyio
import pytest

import monitor
from monitor.adapters.parts import TextAdapter
from monitor.testing import Do, FakeClock, ScriptedStream

pytestmark = pytest.mark.anyio

Reason = monitor.TerminateReason


class Source:
    """Gives `pieces`, then stalls for ever; knows whether it was closed."""

    def __init__(self, *pieces: Any, ends: bool = False) -> None:
        self._pieces = iter(pieces)
        self._ends = ends
        self.closed = False
        self.pulled = 0

    def __aiter__(self) -> Source:
        return self

    async def __anext__(self) -> Any:
        await anyio.lowlevel.checkpoint()
        for piece in self._pieces:
            self.pulled += 1
            if isinstance(piece, Exception):
                raise piece
            return piece
        if not self._ends:
            await anyio.sleep_forever()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.closed = True


class Watching:
    """A watched source with all that a test wants to look at afterwards."""

    def __init__(self, source: Source, **options: Any) -> None:
        self.source = source
        self.sink = monitor.sinks.MemorySink()
        self.clock = FakeClock()
        self.watch = monitor.watch(source, clock=self.clock, sinks=[self.sink], **options)
        self.seen: list[Any] = []

    async def read(self) -> None:
        async with self.watch as watched:
            async for piece in watched:
                self.seen.append(piece)

    def ended(self, reason: Reason, *, closed: bool = True) -> monitor.Outcome:
        """There was exactly one ending, for `reason`."""
        outcome = self.watch.outcome
        assert outcome.reason is reason, outcome
        terminated = [event for event in self.sink.events if isinstance(event, monitor.events.RunTerminated)]
        assert terminated == [self.sink.events[-1]]
        assert terminated[0].outcome == outcome
        assert self.source.closed is closed
        assert self.clock.pending == 0
        return outcome


async def _while_waiting(action: Callable[[], object], *readers: Watching) -> None:
    """Run the readers, and `action` once all of them wait for their source."""
    async with anyio.create_task_group() as group:
        for reader in readers:
            group.start_soon(reader.read)
        await anyio.wait_all_tasks_blocked()
        action()


async def test_a_stream_that_ends_is_a_good_end() -> None:
    w = Watching(Source("a", "b", ends=True))
    await w.read()
    outcome = w.ended(Reason.STREAM_ENDED, closed=False)  # it ended by itself: there is nothing to close
    assert outcome.ok
    assert w.seen == ["a", "b"]
    assert outcome.text == "ab"
    assert outcome.closed


@pytest.mark.feature("ST-13")
async def test_leaving_by_break_closes_the_source() -> None:
    w = Watching(Source("a", "b"))
    async with w.watch as watched:
        async for _ in watched:
            break
    outcome = w.ended(Reason.CLOSED_BY_CALLER)
    assert not outcome.ok
    assert w.source.pulled == 1


async def test_leaving_before_reading_closes_the_source() -> None:
    w = Watching(Source("a"))
    async with w.watch:
        pass
    w.ended(Reason.CLOSED_BY_CALLER)


@pytest.mark.feature("ST-13")
async def test_the_callers_exception_goes_on_unchanged() -> None:
    w = Watching(Source("a"))
    error = ValueError("mine")

    async def read_and_raise() -> None:
        async with w.watch as watched:
            async for _ in watched:
                raise error

    with pytest.raises(ValueError, match="mine") as caught:
        await read_and_raise()
    assert caught.value is error
    assert caught.value.__cause__ is None
    outcome = w.ended(Reason.ERROR)
    assert outcome.error is error
    assert outcome.source == "caller"


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


async def test_an_exception_whose_message_cannot_be_read_is_an_ending_like_any_other() -> None:
    w = Watching(Source("a"))
    error = Mute()

    async def read_and_raise() -> None:
        async with w.watch as watched:
            async for _ in watched:
                raise error

    with pytest.raises(Mute) as caught:
        await read_and_raise()
    assert caught.value is error
    outcome = w.ended(Reason.ERROR)
    assert outcome.error is error
    assert monitor.Outcome.from_dict(outcome.to_dict()).reason is Reason.ERROR
    provider = Watching(Source("a", Mute()))
    await provider.read()
    assert provider.ended(Reason.ERROR).source == "provider"


@pytest.mark.feature("ST-13")
async def test_an_abort_interrupts_a_pending_read() -> None:
    w = Watching(Source("a"))
    await _while_waiting(lambda: w.watch.abort("enough"), w)
    outcome = w.ended(Reason.ABORTED)
    assert outcome.detail == "enough"
    assert w.seen == ["a"]


async def test_an_abort_from_another_thread_interrupts_a_pending_read() -> None:
    w = Watching(Source("a"))
    threads: list[threading.Thread] = []

    def abort() -> None:
        threads.append(threading.Thread(target=w.watch.abort, args=("from a thread",)))
        threads[0].start()

    with anyio.fail_after(60):
        await _while_waiting(abort, w)
    threads[0].join()
    assert w.ended(Reason.ABORTED).detail == "from a thread"


async def test_an_abort_from_a_signal_handler_interrupts_a_pending_read() -> None:
    w = Watching(Source("a"))
    before = signal.signal(signal.SIGUSR1, lambda *_: w.watch.abort("signal"))
    try:
        with anyio.fail_after(60):
            await _while_waiting(lambda: signal.raise_signal(signal.SIGUSR1), w)
    finally:
        signal.signal(signal.SIGUSR1, before)
    w.ended(Reason.ABORTED)


async def test_an_abort_in_the_body_ends_the_iteration() -> None:
    w = Watching(Source("a", "b", "c"))
    async with w.watch as watched:
        async for piece in watched:
            w.seen.append(piece)
            watched.abort("in the body")
            await anyio.lowlevel.checkpoint()  # the caller's own code is not cancelled
            w.seen.append("went on")
    w.ended(Reason.ABORTED)
    assert w.seen == ["a", "went on"]


async def test_an_abort_stops_a_source_that_never_suspends() -> None:
    async def busy() -> AsyncIterator[str]:
        while True:
            yield "some text that goes on "

    async with monitor.watch(busy(), detectors=None) as watched:
        threading.Timer(0.02, watched.abort).start()
        async for _ in watched:
            pass
    assert watched.outcome.reason is Reason.ABORTED


async def test_aborting_twice_and_after_the_end_changes_nothing() -> None:
    w = Watching(Source("a"))

    def twice() -> None:
        w.watch.abort("first")
        w.watch.abort("second")

    await _while_waiting(twice, w)
    w.watch.abort("third")
    assert w.ended(Reason.ABORTED).detail == "first"


@pytest.mark.feature("ST-13")
async def test_an_idle_provider_ends_the_run_at_the_idle_timeout() -> None:
    w = Watching(Source("a"), stop_when=monitor.IdleTimeout(30) | monitor.Timeout(300))
    await _while_waiting(lambda: w.clock.advance(30), w)
    outcome = w.ended(Reason.IDLE_TIMEOUT)
    assert (outcome.source, outcome.limit, outcome.value) == ("idle_timeout", 30, 30)
    assert w.seen == ["a"]


async def test_nothing_happens_just_before_the_deadline() -> None:
    w = Watching(Source("a"), stop_when=monitor.IdleTimeout(30))
    still_there: list[bool] = []

    def just_before() -> None:
        w.clock.advance(29.999)
        still_there.append(not any(isinstance(event, monitor.events.StopDecided) for event in w.sink.events))
        w.clock.advance(0.001)

    await _while_waiting(just_before, w)
    assert still_there == [True]
    w.ended(Reason.IDLE_TIMEOUT)


@pytest.mark.feature("ST-02")
async def test_the_whole_run_is_limited_by_the_timeout_while_it_waits() -> None:
    w = Watching(Source("a"), stop_when=monitor.IdleTimeout(30) | monitor.Timeout(20))
    await _while_waiting(lambda: w.clock.advance(20), w)
    assert w.ended(Reason.TIMEOUT).value == 20


async def test_a_first_chunk_that_does_not_come_ends_the_run() -> None:
    w = Watching(Source(), stop_when=monitor.FirstChunkTimeout(10))
    await _while_waiting(lambda: w.clock.advance(10), w)
    assert w.ended(Reason.IDLE_TIMEOUT).source == "first_chunk_timeout"


async def test_opening_is_under_the_deadline() -> None:
    async def never_opens() -> AsyncIterator[str]:
        await anyio.sleep_forever()
        raise AssertionError

    clock = FakeClock()
    watch = monitor.watch(never_opens, stop_when=monitor.Timeout(5), clock=clock)

    async def read() -> None:
        async with watch as watched:
            async for _ in watched:
                pass

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        clock.advance(5)
    assert watch.outcome.reason is Reason.TIMEOUT


async def test_a_chunk_that_arrives_after_the_deadline_is_not_delivered() -> None:
    clock = FakeClock()

    async def late() -> AsyncIterator[str]:
        yield "in time"
        clock.advance(60)  # a source that blocks the loop starves every timer
        yield "late"

    async with monitor.watch(late(), stop_when=monitor.Timeout(10), clock=clock) as watched:
        seen = [piece async for piece in watched]
    assert watched.outcome.reason is Reason.TIMEOUT
    assert seen == ["in time"]


@pytest.mark.feature("ST-02")
async def test_a_source_that_never_suspends_meets_its_deadline() -> None:
    clock = FakeClock()

    async def busy() -> AsyncIterator[str]:
        while True:
            clock.advance(1)
            yield "x y z "

    async with monitor.watch(busy(), stop_when=monitor.Timeout(10), detectors=None, clock=clock) as watched:
        count = 0
        async for _ in watched:
            count += 1
    assert watched.outcome.reason is Reason.TIMEOUT
    assert count == 9


async def test_a_slow_consumer_is_not_an_idle_provider() -> None:
    clock = FakeClock()
    source = Source("a", "b", "c", ends=True)
    seen = 0
    async with monitor.watch(source, stop_when=monitor.IdleTimeout(5), clock=clock) as watched:
        async for _ in watched:
            seen += 1
            clock.advance(60)
            await anyio.lowlevel.checkpoint()
    assert seen == 3
    assert watched.outcome.ok


async def test_a_slow_consumer_is_never_cancelled_and_meets_the_timeout_at_its_next_read() -> None:
    w = Watching(Source("a", "b"), stop_when=monitor.Timeout(5))
    async with w.watch as watched:
        async for piece in watched:
            w.clock.advance(60)
            await anyio.lowlevel.checkpoint()
            w.seen.append(piece)
    w.ended(Reason.TIMEOUT)
    assert w.seen == ["a"]


@pytest.mark.feature("ST-13")
async def test_an_outer_scope_goes_through_and_is_the_reason() -> None:
    w = Watching(Source("a"))
    went_on = False
    async with anyio.create_task_group() as group:

        async def read() -> None:
            nonlocal went_on
            await w.read()
            went_on = True

        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert not went_on
    w.ended(Reason.CANCELLED)


@pytest.mark.parametrize("ours_first", [True, False])
@pytest.mark.parametrize("ours", ["abort", "deadline"])
async def test_an_end_of_ours_and_an_outer_cancellation_in_the_same_tick(ours: str, ours_first: bool) -> None:
    w = Watching(Source("a"), stop_when=monitor.IdleTimeout(10))
    went_on = False
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def both() -> None:
                await anyio.wait_all_tasks_blocked()
                end: Callable[[], object] = partial(w.watch.abort, "mine")
                if ours == "deadline":
                    end = partial(w.clock.advance, 10)
                for act in [end, scope.cancel][:: 1 if ours_first else -1]:
                    act()

            group.start_soon(both)
            await w.read()
            await anyio.sleep_forever()
            went_on = True
    assert scope.cancelled_caught
    assert not went_on
    # The user's abort wins as a reason, a deadline may lose; the cancellation goes on all the same.
    reason = w.watch.outcome.reason
    assert reason in ({Reason.ABORTED} if ours == "abort" else {Reason.IDLE_TIMEOUT, Reason.CANCELLED})
    w.ended(reason)


async def test_an_abort_wins_over_a_deadline_in_the_same_tick() -> None:
    w = Watching(Source("a"), stop_when=monitor.Timeout(10))

    def both() -> None:
        w.clock.advance(10)
        w.watch.abort("mine")

    await _while_waiting(both, w)
    w.ended(Reason.ABORTED)


class Crashing:
    """A detector with a bug."""

    name = "crashing"

    def observe(self, chunk: monitor.chunks.Chunk) -> list[monitor.verdicts.Detection]:
        raise KeyError("bug")

    def reset(self) -> None: ...

    def snapshot(self) -> dict[str, Any]:
        return {"version": 1}

    def restore(self, state: Any) -> None: ...


@pytest.mark.feature("ST-13")
async def test_a_detector_that_crashes_ends_the_run_with_its_name() -> None:
    w = Watching(Source("a", "b"), detectors=[Crashing()])
    await w.read()
    outcome = w.ended(Reason.ERROR)
    assert outcome.source == "crashing"
    assert isinstance(outcome.error, KeyError)
    assert w.seen == ["a"]  # nothing is lost: the piece in which it crashed is delivered


async def test_a_sink_that_crashes_does_not_end_the_run() -> None:
    class Broken:
        def emit(self, event: monitor.events.Event) -> None:
            raise OSError("disk full")

    source, memory = Source("a", ends=True), monitor.sinks.MemorySink()
    async with monitor.watch(source, sinks=[Broken(), memory]) as watched:
        async for _ in watched:
            pass
    assert watched.outcome.ok
    assert [type(event) for event in memory.events][:2] == [monitor.events.RunStarted, monitor.events.SinkFailed]
    assert sum(isinstance(event, monitor.events.RunTerminated) for event in memory.events) == 1


async def test_a_predicate_that_crashes_ends_the_run() -> None:
    w = Watching(Source("a"), stop_when=monitor.Predicate(lambda _: 1 // 0 > 0, name="mine"))
    await w.read()
    outcome = w.ended(Reason.ERROR)
    assert isinstance(outcome.error, ZeroDivisionError)
    assert outcome.source == "mine"
    assert w.source.pulled == 0


async def test_an_exception_of_the_provider_is_an_outcome_with_the_exception_kept() -> None:
    error = ConnectionResetError("gone")
    w = Watching(Source("a", error))
    await w.read()
    outcome = w.ended(Reason.ERROR)
    assert outcome.error is error
    assert outcome.source == "provider"
    assert w.seen == ["a"]
    with pytest.raises(monitor.outcome.RunFailed) as caught:
        outcome.raise_for_reason()
    assert caught.value.__cause__ is error


@pytest.mark.feature("ST-13")
async def test_a_loop_delivers_the_piece_in_which_it_is_seen_and_nothing_after_it() -> None:
    sentence = "I will now check the configuration file again to be sure. "
    w = Watching(Source(*[sentence] * 60))
    await w.read()
    outcome = w.ended(Reason.LOOP_DETECTED)
    assert isinstance(outcome.evidence, monitor.verdicts.Detection)
    assert outcome.source == outcome.evidence.detector
    assert len(w.seen) == w.source.pulled < 15
    assert outcome.closed_after_s is not None


async def test_a_read_after_the_end_gives_nothing() -> None:
    w = Watching(Source("a", ends=True))
    async with w.watch as watched:
        async for _ in watched:
            pass
        assert [piece async for piece in watched] == []
    assert [piece async for piece in w.watch] == []
    w.ended(Reason.STREAM_ENDED, closed=False)


async def test_two_tasks_can_not_read_one_stream() -> None:
    w = Watching(Source("a"))
    async with anyio.create_task_group() as group:
        group.start_soon(w.read)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(monitor.ConfigError, match="another task"):
            await anext(w.watch)
        w.watch.abort()
    w.ended(Reason.ABORTED)


async def test_reads_may_come_from_different_tasks_one_after_the_other() -> None:
    w = Watching(Source("a", "b", "c", ends=True))
    async with w.watch as watched:

        async def one() -> None:
            w.seen.append(await anext(watched))

        for _ in range(3):
            async with anyio.create_task_group() as group:
                group.start_soon(one)
        assert [piece async for piece in watched] == []
    assert w.seen == ["a", "b", "c"]
    w.ended(Reason.STREAM_ENDED, closed=False)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
class TestNativeCancellation:
    """`task.cancel()` of asyncio."""

    async def test_it_goes_through_with_its_message(self, anyio_backend: str) -> None:
        w = Watching(Source("a"))
        task = asyncio.create_task(w.read())
        await anyio.wait_all_tasks_blocked()
        task.cancel("user")
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert caught.value.args == ("user",)
        w.ended(Reason.CANCELLED)

    @pytest.mark.parametrize("ours", ["abort", "deadline"])
    @pytest.mark.parametrize("ours_first", [True, False])
    async def test_it_is_not_swallowed_when_ours_comes_in_the_same_tick(
        self, anyio_backend: str, ours: str, ours_first: bool
    ) -> None:
        w = Watching(Source("a"), stop_when=monitor.Timeout(10))

        async def read_and_go_on() -> str:
            await w.read()
            await asyncio.sleep(3600)
            return "swallowed"

        task = asyncio.create_task(read_and_go_on())
        await anyio.wait_all_tasks_blocked()
        acts: list[Callable[[], object]] = [
            lambda: w.watch.abort("mine") if ours == "abort" else w.clock.advance(10),
            task.cancel,
        ]
        for act in acts if ours_first else reversed(acts):
            act()
        with pytest.raises(asyncio.CancelledError):
            await task
        w.ended(Reason.ABORTED if ours == "abort" else Reason.CANCELLED)

    async def test_one_that_comes_while_closing_goes_on_and_the_source_is_closed(self, anyio_backend: str) -> None:
        class Slow(Source):
            async def aclose(self) -> None:
                await asyncio.sleep(0.01)
                self.closed = True

        w = Watching(Slow("a"))
        task = asyncio.create_task(w.read())
        await anyio.wait_all_tasks_blocked()
        w.watch.abort("mine")
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # now it is closing
        task.cancel("user")
        with pytest.raises(asyncio.CancelledError):
            await task
        w.ended(Reason.ABORTED)

    async def test_ours_leaves_no_trace_in_the_task(self, anyio_backend: str) -> None:
        w = Watching(Source("a"), stop_when=monitor.Timeout(10))
        asyncio.get_running_loop().call_later(0, w.clock.advance, 10)
        async with asyncio.timeout(60):
            await w.read()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        w.ended(Reason.TIMEOUT)

    async def test_an_outer_asyncio_timeout_stays_a_timeout_error(self, anyio_backend: str) -> None:
        w = Watching(Source("a"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await w.read()
        w.ended(Reason.CANCELLED)

    async def test_a_stream_read_while_its_task_is_being_cancelled_still_meets_its_deadline(
        self, anyio_backend: str
    ) -> None:
        w = Watching(Source("a"), stop_when=monitor.Timeout(10))

        async def clean_up() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                await w.read()

        task = asyncio.create_task(clean_up())
        await asyncio.sleep(0)
        task.cancel("user")
        await anyio.wait_all_tasks_blocked()
        w.clock.advance(10)
        with pytest.raises(asyncio.CancelledError):
            await task
        w.ended(Reason.TIMEOUT)


async def test_a_source_that_aborts_its_own_run_leaves_no_cancellation_behind() -> None:
    w = Watching(Source("a"))
    stream = ScriptedStream("a", Do(lambda: w.watch.abort("from inside")), "b")
    w.watch = monitor.watch(stream, sinks=[w.sink])
    await w.read()
    for _ in range(5):
        await anyio.lowlevel.checkpoint()  # a stray cancellation would strike here
    assert w.watch.outcome.reason is Reason.ABORTED


async def test_a_source_that_swallows_its_interruption_is_interrupted_again() -> None:
    class Stubborn(Source):
        async def __anext__(self) -> Any:
            with contextlib.suppress(BaseException):  # as a badly written client does
                await anyio.sleep_forever()
            await anyio.sleep_forever()

    w = Watching(Stubborn(), stop_when=monitor.Timeout(10))
    with anyio.fail_after(60):
        await _while_waiting(lambda: w.clock.advance(10), w)
    w.ended(Reason.TIMEOUT)


async def test_a_read_cut_short_by_the_caller_makes_no_good_end() -> None:
    async def stalls() -> AsyncIterator[str]:
        yield "a"
        await anyio.sleep_forever()

    async with monitor.watch(stalls()) as watched:
        assert await anext(watched) == "a"
        with anyio.move_on_after(0.01):
            await anext(watched)
        assert [piece async for piece in watched] == []  # the cancellation has ended the generator
    assert watched.outcome.reason is Reason.CLOSED_BY_CALLER


async def test_leaving_the_block_sees_another_reader_out() -> None:
    w = Watching(Source("a"))
    async with anyio.create_task_group() as group, w.watch as watched:
        assert await anext(watched) == "a"

        async def read_on() -> None:
            w.seen.extend([piece async for piece in watched])
            w.seen.append("out")

        group.start_soon(read_on)
        await anyio.wait_all_tasks_blocked()
    assert w.seen == ["out"]
    w.ended(Reason.CLOSED_BY_CALLER)


async def test_an_iterable_that_is_no_iterator_is_closed_as_well() -> None:
    closed = []

    class Iterable:
        async def __aiter__(self) -> AsyncIterator[str]:
            try:
                yield "a"
                await anyio.sleep_forever()
            finally:
                closed.append(True)

    source: Any = Iterable()
    async with monitor.watch(source) as watched:
        async for _ in watched:
            break
    assert closed == [True]
    assert watched.outcome.closed


async def test_a_source_without_a_way_to_close_it_is_not_called_closed() -> None:
    class Endless:
        def __aiter__(self) -> Endless:
            return self

        async def __anext__(self) -> str:
            return "x"

    async with monitor.watch(Endless()) as watched:
        async for _ in watched:
            break
    assert not watched.outcome.closed


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_native_cancellation_while_the_block_is_left_still_closes_the_source(anyio_backend: str) -> None:
    closing = asyncio.Event()

    class Slow(Source):
        async def aclose(self) -> None:
            closing.set()
            await asyncio.sleep(0.01)
            self.closed = True

    w = Watching(Slow("a", "b"))

    async def leave() -> None:
        async with w.watch as watched:
            async for _ in watched:
                break

    task = asyncio.create_task(leave())
    await closing.wait()
    task.cancel("user")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert w.ended(Reason.CLOSED_BY_CALLER).closed


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_has_opened_the_stream_already_gives_it_up_to_be_closed(anyio_backend: str) -> None:
    source = Source("a")

    async def opens() -> Source:
        return source

    task = asyncio.create_task(opens())
    await task
    async with monitor.watch(task):
        pass
    assert source.closed


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_still_opens_the_stream_is_over_when_the_run_is(anyio_backend: str) -> None:
    asked = asyncio.Event()
    let_go = []

    async def opens() -> Source:
        try:
            asked.set()
            await anyio.sleep_forever()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            let_go.append(True)
        raise AssertionError

    task = asyncio.create_task(opens())
    await asked.wait()
    async with monitor.watch(task) as watched:
        pass
    assert let_go == [True]
    assert watched.outcome.closed


async def test_a_stream_of_the_wrong_kind_that_was_opened_is_closed() -> None:
    closed = []

    class Synchronous:
        def __next__(self) -> str:
            raise AssertionError

        def close(self) -> None:
            closed.append(True)

    async def opens() -> Any:
        return Synchronous()

    async def read() -> None:
        async with monitor.watch(opens) as watched:
            async for _ in watched:
                pass

    with pytest.raises(monitor.ConfigError, match="use the asynchronous client"):
        await read()
    assert closed == [True]


async def test_an_adapter_that_crashes_while_it_looks_behind_does_not_keep_a_read_from_being_interrupted() -> None:
    class Crashes(TextAdapter):
        def responses(self, source: object) -> list[Any]:
            raise RuntimeError("the adapter crashes")

    async def stalls() -> AsyncIterator[str]:
        yield "a"
        await anyio.sleep_forever()

    clock = FakeClock()
    watch = monitor.watch(stalls(), adapter=Crashes, clock=clock, stop_when=monitor.Timeout(10))
    async with anyio.create_task_group() as group, watch as watched:
        async for _ in watched:
            group.start_soon(_advance, clock)
    assert watch.outcome.reason is Reason.TIMEOUT


async def _advance(clock: FakeClock) -> None:
    await anyio.wait_all_tasks_blocked()
    clock.advance(20)


async def test_a_function_that_opens_streams_is_not_closed_itself() -> None:
    closed = []

    class Client:
        def __call__(self) -> Source:
            raise AssertionError

        def close(self) -> None:
            closed.append(True)

    async with monitor.watch(Client()):
        pass
    assert closed == []


async def test_a_watched_stream_may_be_watched_again_from_outside() -> None:
    source = Source("a", "b", ends=True)
    async with monitor.watch(source) as inner, monitor.watch(inner) as outer:
        assert [piece async for piece in outer] == ["a", "b"]
    assert inner.outcome.ok
    assert outer.outcome.ok


async def test_a_refused_second_reader_does_not_put_off_the_idle_timeout() -> None:
    w = Watching(Source("a"), stop_when=monitor.IdleTimeout(10))
    async with anyio.create_task_group() as group:
        group.start_soon(w.read)
        await anyio.wait_all_tasks_blocked()
        w.clock.advance(9)
        with pytest.raises(monitor.ConfigError, match="another task"):
            await anext(w.watch)
        w.clock.advance(1)
    w.ended(Reason.IDLE_TIMEOUT)


class Answers(monitor.Condition):
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def evaluate(self, state: monitor.outcome.RunState) -> Any:
        return self.answer


async def test_a_condition_that_answers_what_is_no_stop_ends_the_run_by_its_name() -> None:
    w = Watching(Source("a"), stop_when=Answers(True))
    await w.read()
    outcome = w.ended(Reason.ERROR)
    assert outcome.source == "answers"
    assert isinstance(outcome.error, TypeError)


async def test_a_condition_may_give_its_reason_as_a_word() -> None:
    stop = monitor.Stop("timeout", "late", "mine")
    w = Watching(Source("a"), stop_when=Answers(stop))
    await w.read()
    assert w.ended(Reason.TIMEOUT).reason is Reason.TIMEOUT


@pytest.mark.parametrize("answer", [None, "Stop", 3])
async def test_a_policy_that_answers_no_verdict_ends_the_run(answer: Any) -> None:
    class Odd(monitor.StopAtFirstLoop):
        def decide(self, detection: monitor.verdicts.Detection) -> Any:
            return answer

    w = Watching(Source(*["again and again. "] * 100), policy=Odd())
    await w.read()
    assert w.ended(Reason.ERROR).source == "Odd"


@pytest.mark.parametrize("answer", [["text"], 3, [monitor.Continue()]])
async def test_a_detector_that_answers_no_detections_ends_the_run_by_its_name(answer: Any) -> None:
    class Odd(Crashing):
        def observe(self, chunk: monitor.chunks.Chunk) -> Any:
            return answer

    w = Watching(Source("a", "b"), detectors=[Odd()])
    await w.read()
    assert w.ended(Reason.ERROR).source == "crashing"


async def test_a_detector_that_forgot_to_answer_found_nothing() -> None:
    class Silent(Crashing):
        def observe(self, chunk: monitor.chunks.Chunk) -> Any:
            return None

    async with monitor.Guard(detectors=[Silent()]) as guard:
        async with guard.watch(Source(monitor.chunks.ToolCall("c", "look", {}), ends=True)) as watched:
            async for _ in watched:
                pass
        guard.tool_result("c", "x")
    assert guard.outcome.ok


async def test_an_earlier_failed_call_is_not_the_error_behind_an_abort() -> None:
    async with monitor.Guard() as guard:
        async with guard.watch(Source(OSError("reset"))) as watched:
            async for _ in watched:
                pass
        guard.abort("enough")
    assert guard.outcome.reason is Reason.ABORTED
    assert guard.outcome.error is None

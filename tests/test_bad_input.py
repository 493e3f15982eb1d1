"""Law 12: bad input ends in a typed error or a typed reason, never in a hang, a crash of the loop
or silent loss.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

import monitor
from monitor.adapters.parts import TextAdapter
from monitor.testing import Do, FakeClock, ScriptedStream, Stall

pytestmark = pytest.mark.anyio

Reason = monitor.TerminateReason


async def watched_to_the_end(
    source: Any, **options: Any
) -> tuple[list[Any], monitor.Outcome, list[monitor.events.Event]]:
    sink = monitor.sinks.MemorySink()
    seen: list[Any] = []
    async with monitor.watch(source, sinks=[sink], **options) as watched:
        async for item in watched:
            seen.append(item)  # noqa: PERF401 - what came before an exception counts too
    assert sum(isinstance(event, monitor.events.RunTerminated) for event in sink.events) == 1
    return seen, watched.outcome, sink.events


@pytest.mark.parametrize("bad", [None, 3, b"bytes", object(), ["list"], monitor.chunks.TextDelta("a chunk")])
async def test_an_object_that_is_no_text_in_a_stream_of_text_is_an_invalid_stream(bad: object) -> None:
    seen, outcome, _ = await watched_to_the_end(ScriptedStream("good", bad, "never read"))
    assert seen == ["good", bad]
    assert outcome.reason is Reason.INVALID_STREAM
    assert isinstance(outcome.error, monitor.errors.AdapterError)
    assert outcome.text == "good"


@pytest.mark.parametrize("bad", [None, "text", monitor.chunks.TextDelta(None), monitor.chunks.TextDelta(3)])  # type: ignore[arg-type]
async def test_an_object_that_is_no_chunk_in_a_stream_of_chunks_is_an_invalid_stream(bad: object) -> None:
    seen, outcome, _ = await watched_to_the_end(ScriptedStream(monitor.chunks.TextDelta("good"), bad))
    assert seen[0] == monitor.chunks.TextDelta("good")
    assert outcome.reason is Reason.INVALID_STREAM
    assert outcome.text == "good"


@pytest.mark.parametrize(
    "bad",
    [
        monitor.chunks.ReasoningDelta(None),  # type: ignore[arg-type]
        monitor.chunks.ToolCallDelta("c", None, None),  # type: ignore[arg-type]
        monitor.chunks.ReasoningDelta(b"x"),  # type: ignore[arg-type]
    ],
)
async def test_a_chunk_whose_fields_are_of_the_wrong_type_is_an_invalid_stream(bad: object) -> None:
    _, outcome, _ = await watched_to_the_end(ScriptedStream(monitor.chunks.TextDelta("good"), bad))
    assert outcome.reason is Reason.INVALID_STREAM


async def test_a_stream_of_unknown_objects_says_which_and_what_to_do() -> None:
    source = ScriptedStream({"choices": []})
    with pytest.raises(monitor.ConfigError, match=r"builtins\.dict.*adapter="):
        await watched_to_the_end(source)
    assert source.closed


@pytest.mark.parametrize("source", [3, "a string", [1, 2], {"a": 1}, None])
async def test_what_is_no_stream_is_refused(source: object) -> None:
    with pytest.raises(monitor.ConfigError, match="async iterator"):
        await watched_to_the_end(source)


@pytest.mark.parametrize("text", ["lone \ud83d surrogate", "nul \0 byte", "", "\u202e right to left"])
async def test_odd_text_goes_through_whole(text: str) -> None:
    seen, outcome, _ = await watched_to_the_end(ScriptedStream(text, "", text))
    assert seen == [text, "", text]
    assert outcome.ok
    assert outcome.text == text * 2
    assert monitor.Outcome.from_dict(outcome.to_dict()) == outcome


CALLS = monitor.ToolCallRepetition()  # reads no text: a second for each 4 MB is the price of those that do


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # once: the event loop has no part in it
@pytest.mark.parametrize(
    ("megabytes", "options"), [(100, {"detectors": [CALLS]}), (3, {})], ids=["100 MB", "3 MB by all detectors"]
)
async def test_a_huge_delta_is_read_like_any_other(anyio_backend: str, megabytes: int, options: dict[str, Any]) -> None:
    line = "".join(f"line {number} of the log, with {number * 7919 % 100_003} in it\n" for number in range(2_500))
    huge = (line * 1_100)[: megabytes * 1_000_000]
    source = ScriptedStream("before", huge, "after")
    seen, outcome, _ = await watched_to_the_end(source, policy=monitor.policy.ObserveOnly(), **options)
    assert [len(piece) for piece in seen] == [6, megabytes * 1_000_000, 5]
    assert outcome.ok


async def test_a_flood_in_one_delta_is_not_read_beyond_where_the_run_ends() -> None:
    class Counting(monitor.ContentRepetition):
        fed = 0

        def feed_of(self, channel: Any) -> Any:
            feed = super().feed_of(channel)
            assert feed is not None
            counted, inner = self, feed.feed

            class Feed:
                need = 1

                def feed(self, text: str) -> Any:
                    counted.fed += len(text)
                    return inner(text)

            return Feed()

    detector = Counting()
    seen, outcome, _ = await watched_to_the_end(ScriptedStream("x" * 10_000_000, "after"), detectors=[detector])
    assert [len(piece) for piece in seen] == [10_000_000]
    assert outcome.reason is monitor.TerminateReason.LOOP_DETECTED
    assert detector.fed < 100_000


@pytest.mark.parametrize("arguments", ['{"half": ', None, 3, {"a": float("nan")}, {"a": {1, 2}}, "\ud83d"])
async def test_arguments_that_are_no_json_object_do_not_break_the_run(arguments: Any) -> None:
    calls = [monitor.chunks.ToolCall(f"c{n}", "tool", arguments) for n in range(3)]
    seen, outcome, _ = await watched_to_the_end(ScriptedStream(*calls))
    assert seen == calls
    assert outcome.ok


async def test_duplicate_and_missing_ids_do_not_break_the_run() -> None:
    async with monitor.Guard() as guard:
        for number in range(4):
            async with guard.watch(ScriptedStream(monitor.chunks.ToolCall("same", "tool", {"n": number}))) as watched:
                async for _ in watched:
                    pass
            guard.tool_result("same", f"result {number}")
        for named in ("never called", None, "same"):
            with pytest.raises(monitor.ConfigError, match="belongs to no open call"):
                guard.tool_result(named, "?")
    assert guard.outcome.ok


async def test_a_source_that_yields_after_its_end_is_not_read_again() -> None:
    class Undead:
        reads = 0

        def __aiter__(self) -> Undead:
            return self

        async def __anext__(self) -> str:
            self.reads += 1
            if self.reads == 2:
                raise StopAsyncIteration
            return "x"

    source = Undead()
    async with monitor.watch(source) as watched:
        assert [piece async for piece in watched] == ["x"]
        assert [piece async for piece in watched] == []
    assert source.reads == 2


async def test_a_source_whose_close_raises_is_said_and_hides_nothing() -> None:
    source = ScriptedStream("a", "b", at_close=[OSError("cannot close")])
    sink = monitor.sinks.MemorySink()
    async with monitor.watch(source, sinks=[sink]) as watched:
        async for _ in watched:
            break
    assert watched.outcome.reason is Reason.CLOSED_BY_CALLER
    assert not watched.outcome.closed
    notes = [event.note for event in sink.events if isinstance(event, monitor.events.StreamClosed)]
    assert notes == ["closing raised OSError: cannot close"]


async def test_a_source_whose_close_hangs_is_given_up_on() -> None:
    source = ScriptedStream("a", "b", at_close=[Stall()])
    with anyio.fail_after(60):
        async with monitor.watch(source, close_grace_s=0.01) as watched:
            async for _ in watched:
                break
    assert watched.outcome.reason is Reason.CLOSED_BY_CALLER
    assert not watched.outcome.closed


async def test_closing_goes_on_while_an_outer_scope_is_cancelled() -> None:
    closed = []

    async def close_slowly() -> None:
        await anyio.sleep(0.001)
        closed.append(True)

    class Slow(ScriptedStream):
        async def aclose(self) -> None:
            await close_slowly()

    with anyio.CancelScope() as scope:
        async with monitor.watch(Slow("a", Stall())) as watched:
            async for _ in watched:
                scope.cancel()
    assert closed == [True]
    assert watched.outcome.reason is Reason.CANCELLED
    assert watched.outcome.closed


async def test_a_coroutine_that_was_never_awaited_is_closed_without_a_warning() -> None:
    async def opens() -> AsyncIterator[str]:
        raise AssertionError

    async with monitor.watch(opening := opens()) as watched:
        pass
    assert watched.outcome.closed
    assert inspect.getcoroutinestate(opening) == inspect.CORO_CLOSED


async def test_a_source_that_turns_our_wake_up_into_an_error_of_its_own_still_gives_our_reason() -> None:
    clock = FakeClock()

    class Wraps:
        def __aiter__(self) -> Wraps:
            return self

        async def __anext__(self) -> str:
            clock.advance(10)
            try:
                await anyio.sleep_forever()
            except BaseException as error:
                raise RuntimeError("connection lost") from error
            raise AssertionError

    async with monitor.watch(Wraps(), stop_when=monitor.Timeout(10), clock=clock) as watched:
        assert [piece async for piece in watched] == []
    assert watched.outcome.reason is Reason.TIMEOUT


async def test_a_source_that_ends_when_it_is_woken_still_gives_our_reason() -> None:
    clock = FakeClock()

    class Ends:
        def __aiter__(self) -> Ends:
            return self

        async def __anext__(self) -> str:
            with anyio.CancelScope() as scope:
                scope.shield = False
                clock.advance(10)
                try:
                    await anyio.sleep_forever()
                except BaseException:  # noqa: BLE001 - as a badly written client does
                    raise StopAsyncIteration from None
            raise AssertionError

    async with monitor.watch(Ends(), stop_when=monitor.Timeout(10), clock=clock) as watched:
        assert [piece async for piece in watched] == []
    assert watched.outcome.reason is Reason.TIMEOUT


async def test_a_policy_that_crashes_ends_the_run() -> None:
    class Broken(monitor.StopAtFirstLoop):
        def decide(self, detection: monitor.verdicts.Detection) -> monitor.Verdict:
            raise LookupError("policy bug")

    seen, outcome, _ = await watched_to_the_end(ScriptedStream(*["again and again. "] * 100), policy=Broken())
    assert outcome.reason is Reason.ERROR
    assert outcome.source == "Broken"
    assert isinstance(outcome.error, LookupError)
    assert len(seen) < 100


async def test_an_error_of_the_source_before_its_first_item_is_an_outcome() -> None:
    seen, outcome, events = await watched_to_the_end(ScriptedStream(ConnectionRefusedError("no server")))
    assert seen == []
    assert isinstance(outcome.error, ConnectionRefusedError)
    failed = [event.error.kind for event in events if isinstance(event, monitor.events.StreamFailed)]
    assert failed == [monitor.models.ErrorKind.NETWORK]


async def test_an_opener_that_raises_is_an_outcome() -> None:
    def opener() -> AsyncIterator[str]:
        raise PermissionError("no key")

    seen, outcome, _ = await watched_to_the_end(opener)
    assert seen == []
    assert isinstance(outcome.error, PermissionError)


async def test_a_clock_that_jumps_ends_the_run_once() -> None:
    clock = FakeClock()
    source = ScriptedStream("a", Do(lambda: clock.advance(1e9)), "b", "c")
    seen, outcome, _ = await watched_to_the_end(
        source, clock=clock, stop_when=monitor.Timeout(10) | monitor.IdleTimeout(10)
    )
    assert seen == ["a"]
    assert outcome.reason in {Reason.TIMEOUT, Reason.IDLE_TIMEOUT}


async def test_a_flood_that_can_only_be_drained_is_given_up_on_and_not_called_closed() -> None:
    class Drained(TextAdapter):
        drains = True

    async def flood() -> AsyncIterator[str]:
        while True:
            yield "x"  # never suspends: everything is in a buffer already

    async with monitor.watch(flood(), adapter=Drained) as watched:
        async for _ in watched:
            break
    assert not watched.outcome.closed
    assert 0 < watched.outcome.chunks_after_decision <= 256


async def test_text_in_a_stream_of_chunks_is_told_how_to_be_one() -> None:
    _, outcome, _ = await watched_to_the_end(ScriptedStream(monitor.chunks.TextDelta("Hm. "), "text"))
    assert outcome.reason is Reason.INVALID_STREAM
    assert "expected a chunk of monitor, got str; yield TextDelta(...) for text" in outcome.detail


async def test_the_name_of_a_model_is_not_a_model() -> None:
    with pytest.raises(monitor.ConfigError, match=r"write model=monitor\.model\('google:gemini-2\.5-flash'\)"):
        monitor.Supervisor("google:gemini-2.5-flash")  # type: ignore[call-overload]


class Unprintable(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("nobody may read me")

    __str__ = __repr__


async def test_what_a_run_hands_out_can_be_printed_also_if_the_exception_behind_it_cannot() -> None:
    _, outcome, events = await watched_to_the_end(ScriptedStream("good", Unprintable()))
    assert isinstance(outcome.error, Unprintable)
    assert "Unprintable" in repr(outcome)
    assert all(map(repr, events))
    with pytest.raises(monitor.outcome.RunFailed, match="Unprintable"):
        outcome.raise_for_reason()

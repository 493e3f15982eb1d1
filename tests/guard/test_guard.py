"""A guard over the streams of a loop that the caller already has."""

from __future__ import annotations

import gc
import warnings
from contextlib import suppress
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import monitor
from monitor.testing import FakeClock, ScriptedStream

pytestmark = pytest.mark.anyio

Reason = monitor.TerminateReason
DONE = monitor.chunks.TurnFinished(monitor.FinishReason.DONE)
A = monitor.chunks.TextDelta("a")


def call(name: str = "search", *, id: str = "c1", **arguments: Any) -> monitor.chunks.ToolCall:
    return monitor.chunks.ToolCall(id, name, arguments)


async def read(guard: monitor.Guard, *items: Any) -> monitor.outcome.Turn:
    async with guard.watch(ScriptedStream(*items)) as watched:
        async for _ in watched:
            pass
    return watched.turn


async def test_the_sdks_own_objects_pass_through_unchanged() -> None:
    chunks = [monitor.chunks.TextDelta("a"), call(), DONE]
    async with monitor.Guard() as guard, guard.watch(ScriptedStream(*chunks)) as watched:
        seen = [chunk async for chunk in watched]
    assert all(a is b for a, b in zip(seen, chunks, strict=True))


async def test_a_turn_says_what_came() -> None:
    async with monitor.Guard() as guard:
        turn = await read(
            guard,
            monitor.chunks.ReasoningDelta("hm"),
            monitor.chunks.TextDelta("Hello "),
            monitor.chunks.TextDelta("there"),
            call(q="x"),
            monitor.chunks.UsageReport(input_tokens=10, output_tokens=5),
            DONE,
        )
    assert turn.number == 1
    assert turn.text == "Hello there"
    assert turn.tool_calls == (call(q="x"),)
    assert turn.usage == monitor.chunks.Usage(10, 5, 0, 0, 15)
    assert not turn.usage_estimated
    assert turn.finish_reason is monitor.FinishReason.DONE
    assert turn.stopped is None
    assert guard.outcome.reason is Reason.STREAM_ENDED
    assert guard.outcome.ok


async def test_usage_of_all_turns_is_added_up_and_an_estimate_is_said() -> None:
    async with monitor.Guard() as guard:
        text = monitor.chunks.TextDelta("".join(map(str, range(1_000)))[:400])
        await read(guard, text, monitor.chunks.UsageReport(output_tokens=90, input_tokens=1), DONE)
        await read(guard, text, DONE)
    assert guard.outcome.usage.output_tokens == 190
    assert guard.outcome.usage_estimated
    assert guard.outcome.turns == 2


async def test_evidence_lasts_from_turn_to_turn() -> None:
    async with monitor.Guard() as guard:
        turns = 0
        turn = await read(guard, call(id="c0", q="same"), DONE)
        while turn.stopped is None:
            turns += 1
            guard.tool_result(turn.tool_calls[0], "nothing found")
            assert guard.check() == monitor.Continue()
            turn = await read(guard, call(id=f"c{turns}", q="same"), DONE)
    assert turn.number == 5
    assert turn.stopped.reason is Reason.LOOP_DETECTED
    assert guard.outcome.reason is Reason.LOOP_DETECTED
    assert isinstance(guard.outcome.evidence, monitor.verdicts.Detection)
    assert guard.outcome.evidence.count == 5


@pytest.mark.parametrize("by", ["call", "id", "order", "raw", "mapping"])
async def test_polling_is_not_a_loop_however_the_result_names_its_call(by: str) -> None:
    async with monitor.Guard() as guard:
        for number in range(12):
            raw = object()
            made = monitor.chunks.ToolCall(f"c{number}", "status", {"job": 1}, raw)
            turn = await read(guard, made, DONE)
            assert turn.stopped is None
            named: Any = {"call": made, "id": made.id, "order": None, "raw": raw, "mapping": {"id": made.id}}[by]
            guard.tool_result(named, {"progress": number})
    assert guard.outcome.ok


async def test_a_result_of_an_object_that_names_no_call_is_refused() -> None:
    async with monitor.Guard() as guard:
        await read(guard, call(), DONE)
        with pytest.raises(monitor.ConfigError, match="which call"):
            guard.tool_result(3.5, "x")


@pytest.mark.feature("ST-01")
async def test_the_turn_after_the_last_is_refused_before_its_stream_is_opened() -> None:
    opened = 0

    def opener() -> ScriptedStream:
        nonlocal opened
        opened += 1
        return ScriptedStream(monitor.chunks.TextDelta("x"), DONE)

    async with monitor.Guard(stop_when=monitor.MaxTurns(2)) as guard:
        stopped = []
        for _ in range(3):
            async with guard.watch(opener) as watched:
                async for _chunk in watched:
                    pass
            stopped.append(watched.turn.stopped)
        assert stopped[-1] is not None
    assert opened == 2
    assert (guard.outcome.reason, guard.outcome.limit, guard.outcome.value) == (Reason.MAX_TURNS, 2, 2)
    assert guard.outcome.turns == 2


async def test_check_says_that_the_limit_is_reached_and_that_stands() -> None:
    async with monitor.Guard(stop_when=monitor.MaxTurns(1)) as guard:
        turn = await read(guard, call(), DONE)
        guard.tool_result(turn.tool_calls[0], "found")
        verdict = guard.check()
        assert isinstance(verdict, monitor.Stop)
        guard.finish()
    assert guard.outcome.reason is Reason.MAX_TURNS


@pytest.mark.parametrize(
    "limit", [monitor.MaxTurns(1), monitor.MaxModelCalls(1), monitor.MaxTurns(1) | monitor.Timeout(60)], ids=repr
)
async def test_the_answer_of_the_last_allowed_turn_is_the_goal_and_another_turn_is_refused(
    limit: monitor.Condition,
) -> None:
    for finishes in (True, False):
        async with monitor.Guard(stop_when=limit) as guard:
            turn = await read(guard, monitor.chunks.TextDelta("It is 42."), DONE)
            assert guard.check() == monitor.Continue()
            if finishes:
                guard.finish()
            else:
                turn = await read(guard, monitor.chunks.TextDelta("one too many"), DONE)
        assert guard.outcome.ok is finishes
        assert guard.outcome.reason in ((Reason.GOAL,) if finishes else (Reason.MAX_TURNS, Reason.MODEL_CALL_LIMIT))
        assert turn.number == int(finishes)


async def test_finish_is_the_goal() -> None:
    async with monitor.Guard() as guard:
        await read(guard, monitor.chunks.TextDelta("x"), DONE)
        guard.finish()
    assert guard.outcome.reason is Reason.GOAL
    assert guard.outcome.ok


NO_ANSWERS: dict[str, tuple[list[Any], Reason]] = {
    "connection lost": ([monitor.chunks.TextDelta("It is"), OSError("reset")], Reason.ERROR),
    "refused": ([OSError("401")], Reason.ERROR),
    "cut off": (
        [monitor.chunks.TextDelta("It is"), monitor.chunks.TurnFinished(monitor.FinishReason.LENGTH)],
        Reason.TRUNCATED,
    ),
    "malformed": ([monitor.chunks.TurnFinished(monitor.FinishReason.MALFORMED)], Reason.INVALID_STREAM),
    "blocked": (
        [monitor.chunks.TextDelta("It is"), monitor.chunks.TurnFinished(monitor.FinishReason.BLOCKED)],
        Reason.BLOCKED,
    ),
    "looped": ([monitor.chunks.TextDelta("Let me look at it once more. ") for _ in range(99)], Reason.LOOP_DETECTED),
    "unreadable": ([monitor.chunks.TextDelta("It is"), object()], Reason.INVALID_STREAM),
}
"""Turns that are no answer, and how a run ends whose last one they are."""


@given(
    before=st.lists(
        st.sampled_from(["good", "call", "check", "finish", "connection lost", "cut off", "malformed"]), max_size=5
    ),
    last=st.sampled_from(sorted(NO_ANSWERS)),
    after=st.lists(st.sampled_from(["check", "finish"]), max_size=4),
    nudges=st.booleans(),
)
async def test_no_order_of_finish_and_check_makes_a_success_of_a_turn_that_is_none(
    before: list[str], last: str, after: list[str], *, nudges: bool
) -> None:
    turn: monitor.outcome.Turn | None = None
    async with monitor.Guard(policy=monitor.Ladder() if nudges else None) as guard:
        for step in [*before, last, *after]:
            match step:
                case "check" if turn is not None:
                    with suppress(monitor.ConfigError):  # who was told of the end, and asks again, is told so
                        guard.check()
                case "check":
                    guard.check()
                case "finish":
                    guard.finish()
                case "good":
                    await read(guard, monitor.chunks.TextDelta("Fine."), DONE)
                case "call":
                    await read(guard, call(), DONE)
                case _:
                    turn = await read(guard, *NO_ANSWERS[step][0])
    assert turn is not None
    assert turn.stopped is not None
    assert (guard.outcome.ok, guard.outcome.reason) == (False, NO_ANSWERS[last][1])


@given(steps=st.lists(st.sampled_from(["good", "check", "finish", *NO_ANSWERS]), max_size=6))
async def test_the_run_ends_well_if_its_last_turn_does_and_only_then(steps: list[str]) -> None:
    async with monitor.Guard(policy=monitor.policy.ObserveOnly()) as guard:
        for step in steps:
            if step in ("check", "finish"):
                getattr(guard, step)()
            elif step != "unreadable":
                await read(
                    guard, *(NO_ANSWERS[step][0] if step in NO_ANSWERS else [monitor.chunks.TextDelta("Fine."), DONE])
                )
    turns = [step for step in steps if step not in ("check", "finish", "unreadable")]
    ends_well = turns[-1] in ("good", "looped") if turns else "finish" in steps
    assert guard.outcome.ok is ends_well
    assert guard.outcome.reason is Reason.GOAL or "finish" not in steps or not ends_well


async def test_a_guard_without_a_stream_was_left_by_its_caller() -> None:
    async with monitor.Guard() as guard:
        pass
    assert guard.outcome.reason is Reason.CLOSED_BY_CALLER


async def test_a_broken_off_last_stream_is_the_callers_end_an_earlier_one_is_not() -> None:
    async with monitor.Guard() as guard:
        async with guard.watch(ScriptedStream("a", "b")) as watched:
            async for _ in watched:
                break
        assert watched.turn.stopped is not None
        await read(guard, "a")
    assert guard.outcome.ok
    assert guard.outcome.turns == 2


async def test_a_failed_stream_may_be_tried_again_and_is_the_same_turn() -> None:
    async with monitor.Guard(stop_when=monitor.MaxTurns(1)) as guard:
        failed = await read(guard, "par", OSError("reset"))
        assert failed.stopped is not None
        assert failed.text == "par"
        verdict = guard.check()
        assert isinstance(verdict, monitor.Stop)
        assert verdict.reason is Reason.ERROR
        again = await read(guard, "partial no more")
    assert again.number == 1
    assert guard.outcome.turns == 1


async def test_a_failed_stream_that_is_not_tried_again_is_how_the_run_ends_even_if_finish_is_called() -> None:
    async with monitor.Guard() as guard:
        await read(guard, "par", OSError("reset"))
        verdict = guard.check()
        assert isinstance(verdict, monitor.Stop)
        guard.finish()
    assert guard.outcome.reason is Reason.ERROR
    assert isinstance(guard.outcome.error, OSError)


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        (monitor.FinishReason.LENGTH, Reason.TRUNCATED),
        (monitor.FinishReason.MALFORMED, Reason.INVALID_STREAM),
        (monitor.FinishReason.BLOCKED, Reason.BLOCKED),
        (monitor.FinishReason.REPETITION, Reason.LOOP_DETECTED),
    ],
)
async def test_a_bad_finish_reason_is_no_good_end(finish: monitor.FinishReason, reason: Reason) -> None:
    async with monitor.Guard() as guard:
        turn = await read(guard, monitor.chunks.TextDelta("x"), monitor.chunks.TurnFinished(finish, "THEIR_WORD"))
    assert guard.outcome.reason is reason
    assert "THEIR_WORD" in guard.outcome.detail
    assert turn.raw_finish_reason == "THEIR_WORD"


async def test_abort_between_turns_is_seen_by_check() -> None:
    async with monitor.Guard() as guard:
        await read(guard, "x")
        guard.abort("stop it")
        verdict = guard.check()
        assert isinstance(verdict, monitor.Stop)
        assert verdict.reason is Reason.ABORTED
    assert guard.outcome.reason is Reason.ABORTED


async def test_abort_of_the_guard_interrupts_its_running_stream() -> None:
    async with monitor.Guard() as guard, anyio.create_task_group() as group:

        async def abort() -> None:
            await anyio.wait_all_tasks_blocked()
            guard.abort("now")

        group.start_soon(abort)
        async with guard.watch(anyio_stall()) as watched:
            async for _ in watched:
                pass
    assert guard.outcome.reason is Reason.ABORTED


async def anyio_stall() -> Any:
    yield "x"
    await anyio.sleep_forever()


async def test_time_between_turns_counts_for_the_timeout_and_not_for_the_idle_timeout() -> None:
    clock = FakeClock()
    async with monitor.Guard(stop_when=monitor.Timeout(100) | monitor.IdleTimeout(10), clock=clock) as guard:
        await read(guard, "x")
        clock.advance(50)
        assert guard.check() == monitor.Continue()
        await read(guard, "x")
        clock.advance(50)
        verdict = guard.check()
    assert isinstance(verdict, monitor.Stop)
    assert verdict.reason is Reason.TIMEOUT


@pytest.mark.parametrize("limit", [3, 4])
async def test_the_tool_call_that_exceeds_the_limit_is_seen_before_it_is_carried_out(limit: int) -> None:
    async with monitor.Guard(stop_when=monitor.MaxToolCalls(limit)) as guard:
        turn = await read(guard, *[call(id=str(n), n=n) for n in range(4)], DONE)
    stopped = limit == 3
    assert (turn.stopped is not None) is stopped
    assert guard.outcome.ok is not stopped
    if stopped:
        assert (guard.outcome.reason, guard.outcome.value) == (Reason.TOOL_CALL_LIMIT, 4)


@pytest.mark.parametrize("piece", ["word ", "漢字", "x" * 1000])
async def test_a_token_limit_stops_the_stream_close_to_the_limit(piece: str) -> None:
    source = ScriptedStream(*[piece] * 20_000)
    async with (
        monitor.Guard(stop_when=monitor.TokenLimit(1_000), detectors=None) as guard,
        guard.watch(source) as watched,
    ):
        async for _ in watched:
            pass
    assert guard.outcome.reason is Reason.TOKEN_LIMIT
    assert guard.outcome.usage_estimated
    assert 1_000 < guard.outcome.usage.total_tokens <= 1_000 + max(2, len(piece))


async def test_reported_usage_makes_the_token_limit_exact() -> None:
    usage = [monitor.chunks.UsageReport(input_tokens=100, output_tokens=n) for n in (10, 20, 30)]
    async with (
        monitor.Guard(stop_when=monitor.TokenLimit(120)) as guard,
        guard.watch(ScriptedStream(*usage)) as watched,
    ):
        seen = [chunk async for chunk in watched]
    assert len(seen) == 3  # 120 is within the limit, 130 is not; the report that says so is delivered
    assert guard.outcome.value == 130
    assert not guard.outcome.usage_estimated


async def test_a_retried_stream_leaves_no_text_and_no_calls() -> None:
    async with monitor.Guard(stop_when=monitor.MaxToolCalls(1)) as guard:
        turn = await read(
            guard,
            monitor.chunks.TextDelta("void"),
            call(),
            monitor.chunks.StreamRetried("no finish reason"),
            monitor.chunks.TextDelta("good"),
            call(),
            DONE,
        )
    assert turn.text == "good"
    assert len(turn.tool_calls) == 1
    assert guard.outcome.ok


async def test_a_long_text_is_kept_to_its_bound_and_the_rest_is_counted() -> None:
    async with monitor.Guard(keep_text_chars=10) as guard:
        turn = await read(guard, "0123456", "789abc", "def")
    assert turn.text == guard.outcome.text == "0123456789"
    assert turn.text_chars == 16
    assert turn.text_truncated
    assert guard.outcome.text_truncated


@pytest.mark.parametrize("piece_chars", [7, 4_096])
async def test_what_is_called_text_is_all_of_it(piece_chars: int) -> None:
    text = " ".join(map(str, range(20_000)))
    pieces = [text[at : at + piece_chars] for at in range(0, len(text), piece_chars)]
    async with monitor.watch(ScriptedStream(*pieces), detectors=None) as watched:
        seen = [piece async for piece in watched]
    assert "".join(seen) == watched.turn.text == watched.outcome.text == text
    assert not watched.turn.text_truncated
    assert not watched.outcome.text_truncated


async def test_a_flood_is_cut_at_a_million_characters_and_that_is_said() -> None:
    pieces = [f"{number:06} " + "x" * 4_000 for number in range(300)]
    async with monitor.watch(ScriptedStream(*pieces), detectors=None) as watched:
        async for _ in watched:
            pass
    assert watched.outcome.text == "".join(pieces)[:1_000_000]
    assert watched.outcome.text_truncated
    assert watched.outcome.to_dict()["text_truncated"] is True


async def test_a_guard_is_one_run() -> None:
    async with monitor.Guard() as guard:
        pass
    with pytest.raises(monitor.ConfigError, match="one run"):
        async with guard:
            pass
    with pytest.raises(monitor.ConfigError, match="not running"):
        async with guard.watch(ScriptedStream()):
            pass


async def test_a_stream_beside_another_is_that_of_another_agent_of_the_run() -> None:
    async with monitor.Guard(stop_when=monitor.MaxTurns(2)) as guard, guard.watch(ScriptedStream(A, DONE)) as one:
        async with guard.watch(ScriptedStream(call(id="of b"), DONE)) as two:
            assert [type(chunk).__name__ async for chunk in two] == ["ToolCall", "TurnFinished"]
        guard.tool_result("of b", "found")
        async for _ in one:
            pass
    assert (one.turn.text, two.turn.tool_calls) == ("a", (call(id="of b"),))
    assert guard.outcome.turns == 2
    assert guard.outcome.ok


async def test_reading_without_entering_is_refused() -> None:
    with pytest.raises(monitor.ConfigError, match="async with"):
        await anext(monitor.watch(ScriptedStream("a")))


async def test_a_guard_that_is_dropped_open_warns() -> None:
    async def drop() -> None:
        guard = monitor.Guard()
        await guard.__aenter__()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        await drop()
        gc.collect()
    assert [w.category for w in caught] == [ResourceWarning]


async def test_leaving_the_guard_with_an_open_stream_closes_it() -> None:
    source = ScriptedStream("a", "b")
    async with monitor.Guard() as guard:
        watched = await guard.watch(source).__aenter__()
        await anext(watched)
    assert source.closed
    assert guard.outcome.reason is Reason.CLOSED_BY_CALLER


async def test_a_stop_when_that_is_no_condition_is_refused() -> None:
    with pytest.raises(monitor.ConfigError, match="stop_when"):
        monitor.Guard(stop_when=30)  # type: ignore[call-overload]


@pytest.mark.feature("GL-07")
async def test_detectors_none_is_off() -> None:
    async with monitor.watch(ScriptedStream(*["again and again. "] * 200), detectors=None) as watched:
        assert len([piece async for piece in watched]) == 200
    assert watched.outcome.ok


async def test_a_policy_that_only_observes_never_stops() -> None:
    sink = monitor.sinks.MemorySink()
    async with monitor.watch(
        ScriptedStream(*["again and again. "] * 200), policy=monitor.policy.ObserveOnly(), sinks=[sink]
    ) as watched:
        assert len([piece async for piece in watched]) == 200
    assert any(isinstance(event, monitor.events.DetectionRaised) for event in sink.events)
    assert watched.outcome.ok


@pytest.mark.feature("GL-07")
async def test_detection_can_be_off_for_one_tool() -> None:
    polling = monitor.ToolCallRepetition(exempt=["poll"])
    async with monitor.Guard(detectors=[polling]) as guard:
        for number in range(10):
            turn = await read(guard, call("poll", id=f"p{number}"), DONE)
            assert turn.stopped is None
        turns = [await read(guard, call("search", id=f"s{number}"), DONE) for number in range(5)]
    turn = turns[-1]
    assert turn.stopped is not None
    assert turn.stopped.reason is Reason.LOOP_DETECTED


async def test_turns_that_the_output_limit_cut_off_are_turns_of_their_own() -> None:
    async with monitor.Guard(stop_when=monitor.MaxTurns(3)) as guard:
        for _ in range(10):
            turn = await read(
                guard, monitor.chunks.TextDelta("more"), monitor.chunks.TurnFinished(monitor.FinishReason.LENGTH)
            )
            if turn.number == 0:
                break
            verdict = guard.check()
            if isinstance(verdict, monitor.Stop):
                break
    assert guard.outcome.reason is Reason.MAX_TURNS
    assert guard.outcome.turns == 3


async def test_calls_of_a_failed_attempt_do_not_count() -> None:
    async with monitor.Guard(stop_when=monitor.MaxToolCalls(1)) as guard:
        await read(guard, call(id="void"), OSError("reset"))
        turn = await read(guard, call(id="good"), DONE)
        assert turn.stopped is None
        guard.tool_result(None, "for the good one")
    assert guard.outcome.ok


async def test_a_result_may_come_while_the_stream_still_runs() -> None:
    raw = object()
    sink = monitor.sinks.MemorySink()
    async with (
        monitor.Guard(sinks=[sink]) as guard,
        guard.watch(ScriptedStream(monitor.chunks.ToolCall("c", "f", {}, raw), DONE)) as watched,
    ):
        async for chunk in watched:
            if isinstance(chunk, monitor.chunks.ToolCall):
                guard.tool_result(raw, "eager")
    assert not any(isinstance(event, monitor.events.ResultUnmatched) for event in sink.events)


async def test_calls_without_a_result_are_forgotten_with_their_turn() -> None:
    async with monitor.Guard(detectors=None) as guard:
        for number in range(50):
            await read(guard, call(id=f"c{number}"), DONE)
        assert [c.id for c in guard._core.open_calls] == ["c49"]


async def test_before_the_run_nothing_can_be_asked_or_told() -> None:
    guard = monitor.Guard(stop_when=monitor.Timeout(10))
    with pytest.raises(monitor.ConfigError, match="not begun"):
        guard.check()
    with pytest.raises(monitor.ConfigError, match="not begun"):
        guard.tool_result("c", "x")
    with pytest.raises(monitor.ConfigError, match="block"):
        _ = guard.outcome


async def test_after_the_run_nothing_changes_any_more() -> None:
    sink = monitor.sinks.MemorySink()
    async with monitor.Guard(sinks=[sink]) as guard:
        await read(guard, "x")
    guard.abort("late")
    guard.tool_result("c", "late")
    verdict = guard.check()
    assert isinstance(verdict, monitor.Stop)
    assert verdict.reason is guard.outcome.reason is Reason.STREAM_ENDED
    assert isinstance(sink.events[-1], monitor.events.RunTerminated)


async def test_arguments_of_a_complete_call_count_as_tokens() -> None:
    async with monitor.Guard(stop_when=monitor.TokenLimit(500)) as guard:
        await read(guard, call(text="word " * 1_000), DONE)
    assert guard.outcome.reason is Reason.TOKEN_LIMIT


async def test_a_result_that_is_an_object_looks_the_same_each_time() -> None:
    class Row:
        pass

    async with monitor.Guard() as guard:
        for number in range(10):
            turn = await read(guard, call(id=f"c{number}", q="same"), DONE)
            if turn.stopped is not None:
                break
            guard.tool_result(turn.tool_calls[0], Row())
    assert guard.outcome.reason is Reason.LOOP_DETECTED


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sinks": monitor.sinks.MemorySink()}, "sinks takes a list"),
        ({"detectors": monitor.ContentRepetition()}, "detectors takes a list"),
        ({"detectors": [monitor.ContentRepetition]}, r"write ContentRepetition\(\)"),
        ({"policy": monitor.StopAtFirstLoop}, r"write StopAtFirstLoop\(\)"),
        ({"sinks": [print]}, r"has no emit\(\)"),
        ({"detectors": [monitor.ContentRepetition(), monitor.ContentRepetition()]}, "two detectors"),
        ({"keep_text_chars": -5}, "keep_text_chars"),
        ({"keep_text_chars": "all"}, "keep_text_chars"),
        ({"close_grace_s": -1}, "close_grace_s"),
        ({"close_grace_s": "2"}, "close_grace_s"),
        ({"max_nudges": 1.5}, "max_nudges"),
        ({"prices": 3}, "prices takes the monitor.Price"),
        ({"prices": {"m": monitor.Price(1, 1)}}, "prices takes the monitor.Price"),
        ({"task": 3}, "task"),
        ({"clock": 3}, "clock"),
    ],
)
async def test_arguments_are_checked_where_they_are_given(options: dict[str, Any], says: str) -> None:
    with pytest.raises(monitor.ConfigError, match=says):
        monitor.Guard(**options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"stop_when": monitor.CostLimit(0.01)}, Reason.COST_LIMIT),
        ({"budget": monitor.Budget(usd=0.01)}, Reason.COST_LIMIT),
        ({"budget": monitor.Budget(tokens=10)}, Reason.TOKEN_LIMIT),
    ],
)
async def test_a_run_of_one_stream_has_limits_on_tokens_and_money_too(options: dict[str, Any], reason: Reason) -> None:
    words = ScriptedStream(*(f"word {n} " for n in range(1_000)))
    async with monitor.watch(words, prices=monitor.Price(1_000, 1_000), **options) as watched:
        async for _ in watched:
            pass
    assert watched.outcome.reason is reason
    assert words.pulled < 100


async def test_a_watched_stream_is_read_once() -> None:
    async with monitor.Guard() as guard:
        watched = guard.watch(ScriptedStream("a"))
        async with watched:
            pass
        with pytest.raises(monitor.ConfigError, match="read once"):
            async with watched:
                pass

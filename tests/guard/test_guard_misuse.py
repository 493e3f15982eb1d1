"""A guard that nobody obeys, results without a call, and parts that two live guards share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import monitor
from monitor.chunks import TextDelta, ToolCall, TurnFinished, UsageReport
from monitor.errors import FinishReason
from monitor.outcome import RunState
from monitor.testing import ScriptedStream

pytestmark = [pytest.mark.anyio, pytest.mark.feature("US-04")]

DONE = TurnFinished(FinishReason.DONE)
ENDED = r"the run has ended: max_turns after 1 turn \(1 turn is done, the limit is 1\); leave the loop where turn.stop"


def call(id: str, query: str = "rain") -> ToolCall:
    return ToolCall(id, "search", {"q": query})


def chunk(item: Any) -> Any:
    return TextDelta(item) if isinstance(item, str) else item


async def read(guard: monitor.Guard, *items: Any) -> monitor.outcome.Turn:
    async with guard.watch(ScriptedStream(*map(chunk, items))) as watched:
        async for _ in watched:
            pass
    return watched.turn


def read_sync(guard: monitor.Guard, *items: Any) -> monitor.outcome.Turn:
    with guard.watch(map(chunk, items)) as watched:
        list(watched)
    return watched.turn


# ------------------------------------------------------------------ a stop that is not obeyed


async def test_a_second_watch_after_the_end_raises_and_the_outcome_stays() -> None:
    opened: list[ScriptedStream] = []

    async def made() -> ScriptedStream:
        opened.append(ScriptedStream(TextDelta("x"), DONE))
        return opened[-1]

    async def disobedient() -> None:
        for _ in range(40):
            async with guard.watch(await made()) as watched:
                async for _chunk in watched:
                    pass

    guard = monitor.Guard(stop_when=monitor.MaxTurns(1))
    with pytest.raises(monitor.ConfigError, match=ENDED):
        async with guard:
            await disobedient()
    assert len(opened) == 3, "one turn, one that says that the run has ended, one that raises"
    assert all(stream.closed for stream in opened[1:])
    assert guard.outcome.reason is monitor.TerminateReason.MAX_TURNS


def test_a_second_synchronous_watch_after_the_end_raises() -> None:
    def disobedient() -> None:
        with guard:
            for _ in range(40):
                read_sync(guard, "x", DONE)

    guard = monitor.Guard(stop_when=monitor.MaxTurns(1))
    with pytest.raises(monitor.ConfigError, match=ENDED):
        disobedient()
    assert guard.outcome.turns == 1


async def test_whoever_ignores_the_stop_of_check_cannot_watch_or_check_or_pass_a_result() -> None:
    async with monitor.Guard(stop_when=monitor.MaxTurns(1)) as guard:
        turn = await read(guard, call("a"), DONE)
        assert isinstance(guard.check(), monitor.Stop)
        with pytest.raises(monitor.ConfigError, match=ENDED):
            await read(guard, "never opened")
        with pytest.raises(monitor.ConfigError, match=ENDED):
            guard.check()
        with pytest.raises(monitor.ConfigError, match=ENDED):
            guard.tool_result(turn.tool_calls[0], "found")
        assert guard.stop is not None, "that can be read at any time"
    guard.tool_result(turn.tool_calls[0], "a tool that was still running when the block was left")
    assert guard.outcome.reason is monitor.TerminateReason.MAX_TURNS


async def test_results_of_the_turn_in_which_the_run_ends_are_still_taken() -> None:
    async with monitor.Guard(detectors=[monitor.ToolCallRepetition(loop_at=2, suspect_at=None)]) as guard:
        turn = await read(guard, call("a"), call("b"), DONE)
        assert turn.stopped is not None
        for one in turn.tool_calls:
            guard.tool_result(one, "nothing")
        assert isinstance(guard.check(), monitor.Stop)


async def test_a_stop_that_came_between_two_turns_is_told_once_before_it_raises() -> None:
    async with monitor.Guard() as guard:
        await read(guard, "x", DONE)
        guard.abort("enough")
        assert (await read(guard, "never opened")).stopped is not None
        with pytest.raises(monitor.ConfigError, match="the run has ended: aborted"):
            await read(guard, "never opened")


async def test_the_last_turn_that_the_guard_asks_for_can_be_made() -> None:
    policy = monitor.Ladder(max_nudges=0)
    async with monitor.Guard(
        policy=policy, detectors=[monitor.ToolCallRepetition(loop_at=2, suspect_at=None)]
    ) as guard:
        verdicts: list[monitor.Verdict] = []
        while not any(isinstance(one, monitor.LastTurn | monitor.Stop) for one in verdicts):
            (one,) = (await read(guard, call(f"c{len(verdicts)}"), DONE)).tool_calls
            guard.tool_result(one, "nothing")
            verdicts.append(guard.check())
        assert isinstance(verdicts[-1], monitor.LastTurn)
        assert (await read(guard, "What I found.", DONE)).stopped is None
        assert guard.check() == monitor.Continue()
    assert guard.outcome.ok


async def test_an_agent_beside_the_one_that_was_told_is_told_as_well() -> None:
    async with monitor.Guard(stop_when=monitor.MaxTurns(1)) as guard, guard.child("other") as other:
        await read(guard, call("a"), DONE)
        assert isinstance(guard.check(), monitor.Stop)
        assert (await read(other, "never opened")).stopped is not None
        with pytest.raises(monitor.ConfigError, match="the run has ended: max_turns"):
            await read(other, "never opened")


# ------------------------------------------------------------------ an outcome that nobody reads


def failing() -> Iterator[str]:
    yield "The "
    raise ConnectionError("401 Unauthorized")


async def watched_once(**options: Any) -> monitor.guard.Watch[Any]:
    async with monitor.watch(ScriptedStream("The ", ConnectionError("401 Unauthorized")), **options) as watched:
        async for _ in watched:
            pass
    return watched


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_a_failed_outcome_that_nobody_reads_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """When the guard is dropped. A garbage collection could come in the middle of a log handler."""
    await watched_once()
    (line,) = said(caplog)
    assert "a run ended with error (ConnectionError: 401 Unauthorized), and nobody read its outcome" in line


def test_a_failed_outcome_of_a_synchronous_stream_is_logged_as_well(caplog: pytest.LogCaptureFixture) -> None:
    def watched() -> None:
        with monitor.watch(failing()) as chunks:
            list(chunks)

    watched()
    assert len(said(caplog)) == 1


async def test_an_outcome_that_is_read_or_told_or_the_callers_own_doing_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert not (await watched_once()).outcome.ok
    await watched_once(sinks=[monitor.sinks.MemorySink()])
    with pytest.raises(ConnectionError):
        await watched_once(reraise=True)
    async with monitor.watch(ScriptedStream("a", "b")) as left:
        async for _ in left:
            break
    del left
    async with monitor.Guard() as guard:
        await read(guard, "x", DONE)
        guard.abort("enough")
    del guard
    async with monitor.Guard() as good:
        await read(good, "x", DONE)
    del good
    assert said(caplog) == []


# ------------------------------------------------------------------ a result that matches no call


async def test_a_result_under_a_wrong_id_raises_and_lists_the_open_calls() -> None:
    async with monitor.Guard() as guard:
        await read(guard, call("c1"), call("c2", "snow"), UsageReport(10, 5), DONE)
        with pytest.raises(monitor.ConfigError, match=r"'mistyped' is none of search \('c1'\), search \('c2'\); write"):
            guard.tool_result("mistyped", "x")
        guard.tool_result("c1", "x")
        with pytest.raises(monitor.ConfigError, match=r"'c1' is none of search \('c2'\); write"):
            guard.tool_result("c1", "x")
    results = next(one for one in guard.coverage() if one.what == "results")
    assert not results.guarded
    assert results.detail.startswith("1 of 2 calls have their result")


@pytest.mark.parametrize("result", ["found", {"found": 3}, 3])
async def test_swapped_arguments_raise_and_say_so(result: object) -> None:
    with monitor.Guard() as guard:
        (one,) = read_sync(guard, call("c1"), DONE).tool_calls
        with pytest.raises(monitor.ConfigError, match=r"swapped: write guard.tool_result\(call, 'its text'\)"):
            guard.tool_result(result, one)
        guard.tool_result(one, result)


def test_a_result_without_any_open_call_raises() -> None:
    with monitor.Guard() as guard:
        read_sync(guard, "words", DONE)
        for named in (None, "c1"):
            with pytest.raises(monitor.ConfigError, match="belongs to no open call of the newest turn"):
                guard.tool_result(named, "x")


# ------------------------------------------------------------------ parts of two live guards


def polls(guard: monitor.Guard, number: int) -> None:
    """The same call as ever, in one guard."""
    (one,) = read_sync(guard, call(f"c{number}"), DONE).tool_calls
    guard.tool_result(one, "waiting")


def test_two_live_guards_do_not_count_together_with_one_list_of_detectors() -> None:
    detectors = [monitor.ToolCallRepetition(loop_at=5)]
    with monitor.Guard(detectors=detectors) as one, monitor.Guard(detectors=detectors) as other:
        for number in range(3):
            polls(one, number)
            polls(other, number)
    assert one.outcome.ok
    assert other.outcome.ok
    with monitor.Guard(detectors=detectors) as later:
        polls(later, 0)
    assert detectors[0].snapshot() != monitor.ToolCallRepetition(loop_at=5).snapshot(), "of one run after the other"


def test_two_live_guards_do_not_climb_one_ladder() -> None:
    ladder = monitor.Ladder(max_nudges=1)
    verdicts: list[monitor.Verdict] = []
    with monitor.Guard(policy=ladder) as one, monitor.Guard(policy=ladder) as other:
        for number in range(3):
            for guard in (one, other):
                polls(guard, number)
                verdicts.append(guard.check())
    assert [type(verdict) for verdict in verdicts[-2:]] == [monitor.Nudge, monitor.Nudge]


class Third(monitor.Condition):
    """A condition with a state, which it must not have."""

    def __init__(self, *, counts: bool) -> None:
        self.looks = 0
        self._counts = counts

    def evaluate(self, state: RunState) -> monitor.Stop | None:
        self.looks += self._counts
        return None


def test_a_condition_with_a_state_is_refused_in_a_second_live_guard_and_one_without_is_not() -> None:
    for counts in (True, False):
        limits = Third(counts=counts) | monitor.MaxTurns(3)
        with monitor.Guard(stop_when=limits) as guard, guard.child("agent"):
            again = monitor.Guard(stop_when=limits)
            if counts:
                with pytest.raises(monitor.ConfigError, match=r"a Third keeps a state.*: write Third\(\.\.\.\)"), again:
                    pass
            else:
                with again:
                    read_sync(again, "x", DONE)
        with monitor.Guard(stop_when=limits):
            pass


def test_a_budget_of_two_live_guards_counts_both() -> None:
    budget = monitor.Budget(tokens=100)
    with monitor.Guard(budget=budget) as one, monitor.Guard(budget=budget) as other:
        read_sync(one, "x", UsageReport(10, 5), DONE)
        read_sync(other, "x", UsageReport(10, 5), DONE)
    assert budget.spent_tokens == 30

"""A guard that knows the window says when the caller's history has nearly filled it. By the
provider's count: it has no other.
"""

from __future__ import annotations

from typing import Any

import pytest

import monitor
from monitor import Compact, Continue, Stop
from monitor.adapters.parts import ChunkAdapter
from monitor.chunks import TextDelta, UsageReport
from monitor.testing import FakeClock, ScriptedStream

pytestmark = pytest.mark.anyio

DONE = monitor.chunks.TurnFinished(monitor.FinishReason.DONE)
LENGTH = monitor.chunks.TurnFinished(monitor.FinishReason.LENGTH)
WINDOW = 100_000
"""Of which 85,000 may be used."""


def guarding(**options: Any) -> monitor.Guard:
    return monitor.Guard(**{"window": WINDOW, "clock": FakeClock(), "detectors": None, **options})


async def read(guard: monitor.Guard, *items: Any) -> monitor.outcome.Turn:
    async with guard.watch(ScriptedStream(*items)) as watched:
        async for _ in watched:
            pass
    return watched.turn


async def verdicts(*counted: int, **options: Any) -> list[str]:
    """What `check` says after turns of so many tokens."""
    said = []
    async with guarding(**options) as guard:
        for tokens in counted:
            await read(guard, TextDelta("hm"), UsageReport(tokens - 10, 10), DONE)
            said.append(type(guard.check()).__name__)
    return said


async def test_a_turn_that_comes_to_what_may_be_used_is_followed_by_compact():
    async with guarding() as guard:
        await read(guard, TextDelta("hm"), UsageReport(84_980, 10), DONE)
        assert isinstance(guard.check(), Continue)
        await read(guard, TextDelta("hm"), UsageReport(84_990, 10), DONE)
        verdict = guard.check()
        assert isinstance(verdict, Compact)
        assert (
            verdict.why
            == "the provider counted 85,000 tokens, the answer included; 85,000 of the window's 100,000 may be used"
        )
        assert isinstance(guard.check(), Continue)


async def test_it_is_said_once_until_a_smaller_count_has_been_seen():
    said = await verdicts(86_000, 88_000, 30_000, 60_000, 90_000, 91_000)
    assert said == ["Compact", "Continue", "Continue", "Continue", "Compact", "Continue"]


@pytest.mark.parametrize("window", [None, 1_000_000])
async def test_of_a_window_that_is_not_known_and_of_room_enough_nothing_is_said(window: int | None):
    assert await verdicts(99_000, 99_000, window=window) == ["Continue", "Continue"]


async def test_a_turn_that_nobody_counted_says_nothing():
    async with guarding() as guard:
        await read(guard, TextDelta("word" * 100_000), DONE)
        assert isinstance(guard.check(), Continue)


async def test_an_end_comes_before_it():
    async with guarding(stop_when=monitor.MaxTurns(1)) as guard:
        await read(guard, UsageReport(90_000, 10), TextDelta("hm"), monitor.chunks.ToolCall("c1", "look", {}), DONE)
        assert isinstance(guard.check(), Stop)


async def test_a_nudge_comes_before_it_and_it_is_said_the_next_time():
    async with guarding(outputs={"risk": float}) as guard:
        await read(guard, TextDelta("I am done."), UsageReport(90_000, 10), DONE)
        assert isinstance(guard.check(), monitor.Nudge)
        assert isinstance(guard.check(), Compact)


async def test_what_was_not_said_in_time_is_not_said_of_a_history_that_has_become_smaller():
    async with guarding(outputs={"risk": float}) as guard:
        await read(guard, TextDelta("I am done."), UsageReport(90_000, 10), DONE)
        assert isinstance(guard.check(), monitor.Nudge)
        await read(guard, monitor.chunks.ToolCall("1", "look", {}), UsageReport(20_000, 10), DONE)
        assert isinstance(guard.check(), Continue)


async def test_two_attempts_in_one_stream_are_not_taken_for_one():
    async with guarding() as guard:
        count = UsageReport(60_000, 10)
        turn = await read(
            guard,
            TextDelta("a"),
            count,
            monitor.chunks.StreamRetried("the SDK tries again"),
            TextDelta("b"),
            count,
            DONE,
        )
        assert turn.usage.input_tokens == 120_000
        assert isinstance(guard.check(), Continue)
        await read(guard, TextDelta("a"), UsageReport(90_000, 10), DONE)
        assert isinstance(guard.check(), Compact)


@pytest.mark.parametrize(
    ("usage", "finish", "why"),
    [
        (
            UsageReport(100_001, 10),
            DONE,
            "the provider answered a prompt that fills the window: it may not have read all of it",
        ),
        (UsageReport(80_000, 19_900), LENGTH, "the answer was cut off at the end of the window"),
    ],
)
async def test_an_overflow_without_an_error_is_seen(usage: UsageReport, finish: monitor.chunks.TurnFinished, why: str):
    async with guarding() as guard:
        await read(guard, TextDelta("hm"), usage, finish)
        verdict = guard.check()
        assert isinstance(verdict, Compact)
        assert verdict.why == why


class TooLong(ChunkAdapter):
    """Classes an error as an SDK's adapter does."""

    def classify(self, error: BaseException) -> monitor.models.ModelError:
        return monitor.models.ModelError(monitor.models.ErrorKind.OVERFLOW, str(error), status=400)


async def test_a_window_that_nobody_knew_is_learned_from_the_refusal():
    async with guarding(window=None) as guard:
        await read(guard, TextDelta("hm"), UsageReport(60_000, 10), DONE)
        assert isinstance(guard.check(), Continue)
        refusal = RuntimeError("prompt is too long: 70000 tokens > 64000 maximum")
        async with guard.watch(ScriptedStream(refusal), adapter=TooLong) as watched:
            async for _ in watched:
                pass
        assert isinstance(guard.check(), Stop)
        await read(guard, TextDelta("hm"), UsageReport(60_000, 10), DONE)
        verdict = guard.check()
        assert isinstance(verdict, Compact)
        assert verdict.why.endswith("54,400 of the window's 64,000 may be used")


async def test_a_call_that_was_refused_for_its_length_is_a_stop_and_may_be_tried_again_when_it_is_shorter():
    async with guarding() as guard:
        await read(guard, TextDelta("hm"), UsageReport(80_000, 10), DONE)
        assert isinstance(guard.check(), Continue)
        async with guard.watch(ScriptedStream(RuntimeError("prompt is too long")), adapter=TooLong) as watched:
            async for _ in watched:
                pass
        verdict = guard.check()
        assert isinstance(verdict, Stop)
        assert verdict.reason is monitor.TerminateReason.PROMPT_TOO_LONG
        await read(guard, TextDelta("hm"), UsageReport(20_000, 10), DONE)
        assert isinstance(guard.check(), Continue)
    assert guard.outcome.ok

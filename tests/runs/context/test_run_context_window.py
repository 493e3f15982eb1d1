"""A window in which no agent can work is refused before the first model call."""

from __future__ import annotations

import pytest

import monitor
from monitor.context.window import WindowSource, window_of
from monitor.testing import FakeClock, ScriptedModel, ScriptedStream, call
from tests.runs.driving import Drive, Reason, look

Report = monitor.chunks.UsageReport

pytestmark = [pytest.mark.anyio, pytest.mark.feature("CL-01")]


def gpt_4(*answers: str) -> ScriptedModel:
    """A scripted model that goes by another's name."""
    return ScriptedModel(*answers, name="openai:gpt-4")


async def test_a_small_window_ends_the_run_without_a_model_call():
    run = await Drive("never said", window=15_999).go()
    assert run.requests == []
    assert run.outcome.reason is Reason.WINDOW_TOO_SMALL
    assert (run.outcome.ok, run.outcome.turns, run.outcome.source) == (False, 0, "window")
    assert (run.outcome.limit, run.outcome.value) == (16_000, 15_999)
    assert "15,999 tokens (config)" in run.outcome.detail


async def test_by_the_table_of_known_models_as_well_which_the_caller_may_know_better():
    run = await Drive(model=gpt_4("never said")).go()
    assert run.outcome.reason is Reason.WINDOW_TOO_SMALL
    assert "8,192 tokens (model: the table of" in run.outcome.detail
    assert (await Drive(model=gpt_4("done"), window=64_000).go()).outcome.ok


@pytest.mark.parametrize(("window", "warnings"), [(16_000, 1), (31_999, 1), (32_000, 0), (None, 0)])
async def test_one_that_is_merely_small_is_warned_of_once(window: int | None, warnings: int):
    run = await Drive("done", window=window).go()
    assert run.outcome.ok
    assert len(run.of(monitor.events.WindowWarning)) == warnings
    assert all(
        event.tokens == window and "an agent soon forgets" in event.detail
        for event in run.of(monitor.events.WindowWarning)
    )


async def test_the_source_of_the_number_is_said():
    assert Drive("x").supervisor.window.source is WindowSource.UNKNOWN
    assert Drive(model=gpt_4()).supervisor.window.source is WindowSource.MODEL
    assert Drive("x", window=50_000).supervisor.window.source is WindowSource.CONFIG
    capped = window_of("openai:gpt-4o", agent_cap=8_000)
    run = await Drive("x", window=capped).go()
    assert run.outcome.reason is Reason.WINDOW_TOO_SMALL
    assert "agent_cap" in run.outcome.detail


async def test_a_guard_refuses_to_open_a_stream_as_well():
    opened: list[object] = []

    def source() -> ScriptedStream:
        opened.append(stream := ScriptedStream(["never read"]))
        return stream

    async with monitor.Guard(window=4_096, clock=FakeClock()) as guard:
        async with guard.watch(source) as watched:
            assert [chunk async for chunk in watched] == []
        assert isinstance(guard.check(), monitor.Stop)
    assert opened == []
    assert guard.outcome.reason is Reason.WINDOW_TOO_SMALL


async def test_what_is_no_window_is_refused_at_once():
    for bad in (0, "128k"):
        with pytest.raises(monitor.ConfigError, match="number of tokens above 0"):
            monitor.Guard(window=bad)  # type: ignore[arg-type]
        with pytest.raises(monitor.ConfigError, match="number of tokens above 0"):
            Drive("x", window=bad)


# --- a conversation that fills it


@pytest.mark.feature("OC-04")
async def test_before_a_turn_what_is_sent_is_measured():
    run = await Drive("done", task="word" * 90_000, window=100_000).go()
    (full,) = run.of(monitor.events.ContextFull)
    assert full.usable_tokens == 85_000
    assert full.tokens > 90_000
    assert "the next request has about" in full.detail
    kinds = run.kinds(monitor.events.ContextFull, monitor.events.FirstChunk)
    assert kinds == ["ContextFull", "FirstChunk"]
    assert run.outcome.ok


@pytest.mark.feature("OC-04")
async def test_when_a_stream_finishes_the_provider_s_count_is_looked_at():
    run = await Drive(
        [call("look", q="x"), Report(86_000, 10)], ["done", Report(87_000, 10)], tools=[look], window=100_000
    ).go()
    (full,) = run.of(monitor.events.ContextFull)
    assert (full.turn, full.tokens) == (1, 86_010)
    assert run.kinds(monitor.events.ContextFull, monitor.events.ToolStarted) == ["ContextFull", "ToolStarted"]


@pytest.mark.feature("OC-04")
async def test_of_a_window_that_is_not_known_and_of_room_enough_nothing_is_said():
    for window in (None, 100_000):
        run = await Drive(["done", Report(84_000, 10)], window=window).go()
        assert run.of(monitor.events.ContextFull) == []


@pytest.mark.feature("OC-04")
async def test_what_the_provider_counted_of_two_attempts_is_not_taken_for_one():
    answer = [
        "half",
        Report(60_000, 10),
        monitor.chunks.StreamRetried("the SDK tries again"),
        "whole",
        Report(60_000, 10),
    ]
    run = await Drive(answer, window=100_000).go()
    assert run.outcome.usage.input_tokens == 120_000
    assert run.of(monitor.events.ContextFull) == []

"""Events for the assertions of a test."""

from __future__ import annotations

import anyio
import anyio.to_thread
import pytest

import monitor
from monitor.errors import ConfigError
from monitor.testing import CapturedEvents, ScriptedModel, call, capture_events

pytestmark = pytest.mark.anyio


NUDGE = (
    "nudge: You stopped, but these outputs are missing: - `risk`: number "
    "Call the tool emit_value once for each of them, with `name` and `value`."
)


def search(query: str) -> str:
    """Search."""
    return f"nothing about {query}"


def agent() -> monitor.Supervisor:
    """What the code under test makes somewhere deep in it."""
    answers = ["Let me see.", call("search", query="x")], "I am done.", [call("emit_value", name="risk", value=0.5)]
    return monitor.Supervisor(ScriptedModel(*answers), tools=[search], outputs={"risk": float})


async def test_the_events_of_a_run_that_is_made_in_the_block_are_collected_without_a_sink():
    with capture_events() as events:
        await agent().run("x")
    assert isinstance(events[0], monitor.events.RunStarted)
    assert isinstance(events[-1], monitor.events.RunTerminated)
    assert [event.result.text for event in events.of(monitor.events.ToolFinished)] == ["nothing about x"]
    assert events.outcome.emitted == {"risk": 0.5}


async def test_a_summary_says_in_order_what_happened_and_holds_no_times():
    with capture_events() as events:
        await agent().run("x")
    with capture_events() as again:
        await agent().run("x")
    assert events.summary() == again.summary()
    assert events.summary()[1:] == [
        "turn 1",
        "said: Let me see.",
        'call search(query="x")',
        "result of search: nothing about x",
        "turn 2",
        "said: I am done.",
        NUDGE,
        "turn 3",
        "output risk = 0.5",
        "ended, goal: every declared output was emitted",
    ]
    assert "turn 3" in repr(events)


async def test_guards_and_watched_streams_count_as_well():
    async def text():
        yield "hello"

    with capture_events() as events:
        async with monitor.watch(text()) as watched:
            async for _ in watched:
                pass
    assert events.outcome is watched.outcome


async def test_a_run_before_or_after_the_block_is_not_in_it():
    await agent().run("x")
    with capture_events() as events:
        pass
    await agent().run("x")
    assert list(events) == []
    with pytest.raises(ConfigError, match="0 runs have ended"):
        _ = events.outcome


async def test_runs_of_tasks_and_threads_that_the_block_starts_are_in_it():
    with capture_events() as events:
        async with anyio.create_task_group() as group:
            group.start_soon(agent().run, "x")
        await anyio.to_thread.run_sync(lambda: anyio.run(agent().run, "x"))
    assert [outcome.reason for outcome in events.outcomes] == ["goal", "goal"]
    with pytest.raises(ConfigError, match="2 runs have ended"):
        _ = events.outcome


async def test_blocks_nest_and_each_sees_the_run():
    with capture_events() as outer:
        await agent().run("x")
        with capture_events() as inner:
            await agent().run("x")
    assert len(outer) == 2 * len(inner)


async def test_it_is_also_a_plain_sink_and_is_told_everything_once():
    events = CapturedEvents()
    sup = monitor.Supervisor(ScriptedModel("hello"), sinks=[events])
    await sup.run("x")
    assert events.outcome.text == "hello"
    assert len(events.of(monitor.events.RunTerminated)) == 1


async def test_a_sink_that_is_given_and_listening_hears_each_event_once():
    with capture_events() as events:
        await monitor.Supervisor(ScriptedModel("hello"), sinks=[events]).run("x")
    assert len(events.of(monitor.events.RunStarted)) == 1


async def test_long_texts_are_cut_in_a_summary_and_whole_on_demand():
    with capture_events() as events:
        await monitor.Supervisor(ScriptedModel("word " * 100), detectors=None).run("x")
    assert [len(line) for line in events.summary() if line.startswith("said")] == [200]
    assert [len(line) for line in events.summary(chars=None) if line.startswith("said")] == [505]

"""A session is compacted as such, without a run."""

from __future__ import annotations

from typing import Any

import pytest

import monitor
from monitor.context import CompactionError, Extractive
from monitor.errors import CompactionFailure
from monitor.messages import AssistantMessage
from monitor.sessions import InMemorySession, NodeKind, RunStage, SQLiteSession, compacted_of, message
from monitor.testing import ScriptedModel
from tests.runs.context.test_run_context_compaction import SUMMARY, read, reads

pytestmark = [pytest.mark.anyio, pytest.mark.feature("CL-12")]


async def talk(store: Any) -> None:
    """A conversation of about 60,000 tokens."""
    model = ScriptedModel(reads(20_000), reads(20_001), reads(19_999), "All is read.")
    outcome = await monitor.Supervisor(
        model, tools=[read], session=store, window=200_000, results=monitor.runs.Results(bound=None)
    ).run("read it all")
    assert outcome.ok


async def test_the_next_run_goes_on_from_the_summary_and_the_messages_stay(tmp_path: Any):
    model = ScriptedModel(SUMMARY)
    async with SQLiteSession(tmp_path / "a.session") as store:
        await talk(store)
        before = await store.active_path()
        result = await monitor.Compaction.pi().compact_session(store, model=model, window=200_000)
        assert result.tokens_after < result.tokens_before // 2
        context = await store.context()
        assert context.messages == result.messages
        assert (await store.active_path())[: len(before)] == before
        node = context.compaction
        assert node is not None
        assert (compacted_of(node).preset, compacted_of(node).reason) == ("pi", "manual")
        assert [run.purpose for run in await store.runs()] == ["main"]
        hidden = [run for run in await store.runs(hidden=True) if run.purpose == "compact"]
        assert {run.state for run in hidden} == {RunStage.ENDED}
        outer, inner = hidden
        assert (inner.parent_run, outer.parent_run) == (outer.id, None)
        assert [one.data["ok"] for one in hidden] == [True, True]
        assert (await store.active_path(f"run-{inner.id}"))[1:]
        assert await store.verify() == ()
    async with SQLiteSession(tmp_path / "a.session") as store:
        after = ScriptedModel("And so on.")
        await monitor.Supervisor(after, tools=[read], window=200_000, results=monitor.runs.Results(bound=None)).run(
            "more", session=store
        )
        assert after.requests[0].messages[:-1] == result.messages


async def test_a_second_compaction_brings_the_first_one_up_to_date():
    store = InMemorySession()
    await talk(store)
    extractive = monitor.Compaction(summarizer=Extractive())
    await extractive.compact_session(store, window=200_000)
    await talk(store)
    result = await extractive.compact_session(store, window=200_000)
    nodes = [compacted_of(node) for node in await store.nodes() if node.kind is NodeKind.COMPACTION]
    assert [node.stale for node in nodes] == [False, False]
    assert (await store.context()).messages == result.messages


async def test_steps_that_shorten_old_results_are_edits_of_the_session():
    store = InMemorySession()
    await talk(store)
    steps = (monitor.context.PruneResults(protect_tokens=2_000, more_than_tokens=1_000, protect_turns=0),)
    pruning = monitor.Compaction(steps=steps, summarizer=Extractive())
    result = await pruning.compact_session(store, window=60_000, reason="ceiling")
    assert result.record is None
    assert (await store.context()).messages == result.messages
    assert NodeKind.CONTEXT_EDIT in [node.kind for node in await store.nodes()]


async def test_a_session_whose_process_died_in_a_call_is_repaired_first():
    store = InMemorySession()
    await talk(store)
    await store.append(message(AssistantMessage((monitor.chunks.ToolCall("open", "read", {"n": 1}),))))
    result = await monitor.Compaction(summarizer=Extractive()).compact_session(store, window=200_000)
    assert result.record is not None
    newest = result.messages[-1]
    assert isinstance(newest, AssistantMessage)
    assert [one.id for one in newest.results] == ["open"]
    after = ScriptedModel("And so on.")
    assert (
        await monitor.Supervisor(after, tools=[read], window=200_000, results=monitor.runs.Results(bound=None)).run(
            "more", session=store
        )
    ).ok
    assert after.requests[0].messages[: len(result.messages)] == result.messages


@pytest.mark.parametrize("empty", [True, False])
async def test_a_failure_changes_nothing_and_leaves_no_open_run(empty: bool):
    store = InMemorySession()
    if not empty:
        await talk(store)
    before = (await store.context()).messages
    with pytest.raises(CompactionError) as raised:
        await monitor.Compaction.pi().compact_session(store, model=ScriptedModel("no", "no", "no"), window=10_000_000)
    assert raised.value.failure is (CompactionFailure.NOTHING_TO_COMPACT if empty else raised.value.failure)
    assert (await store.context()).messages == before
    assert all(run.state is RunStage.ENDED for run in await store.runs(hidden=True))
    assert not [node for node in await store.nodes() if node.kind is NodeKind.COMPACTION]

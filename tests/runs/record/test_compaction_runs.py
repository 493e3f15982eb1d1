"""The compactions of a run in its session: their nodes, and their hidden runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

import monitor
from monitor.context.compaction.hooks import CompactionRecord
from monitor.errors import CompactionFailure, StoreError
from monitor.events import CompactionFailed, CompactionFinished, CompactionStarted
from monitor.messages import AssistantMessage
from monitor.runs.record.compaction_runs import CUT_OFF, REQUEST
from monitor.sessions import Committed, InMemorySession, NodeKind, RunRecord, RunStage, SessionStore, SQLiteSession
from monitor.sessions.nodes import Node, compacted_of, read_body, said_of
from monitor.testing import Pause, ScriptedModel, call
from tests.examples import every_second
from tests.runs.context.test_run_context_compaction import SUMMARY, WINDOW, read, reads
from tests.runs.driving import Reason, text_of_user

pytestmark = pytest.mark.anyio

G = TypeVar("G")
T = TypeVar("T")
OPTIONS: dict[str, Any] = {
    "tools": [read],
    "results": monitor.runs.Results(bound=None),
    "window": WINDOW,
    "detectors": [],
    "policy": monitor.policy.ObserveOnly(),
}
ANSWERS = (reads(30_000, 30_000, 27_000), reads(9_000), SUMMARY, "done")
"""The run waits for one compaction, which asks its model once."""


class Disturbed:
    """A session with which something happens before its commit number `at`, or after it; `for_good`
    before every later one, too.
    """

    def __init__(
        self,
        store: SessionStore,
        at: int,
        happens: Callable[[], Awaitable[None]],
        *,
        after: bool,
        for_good: bool = False,
    ) -> None:
        self._store = store
        self._at = at
        self._happens = happens
        self._after = after
        self._for_good = for_good
        self.commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, changes: Any) -> Committed:
        self.commits += 1
        if (self._at < self.commits and self._for_good) or (self.commits == self._at and not self._after):
            await self._happens()
        done = await self._store.commit(changes)
        if self.commits == self._at and self._after:
            await self._happens()
        return done


async def compactions(store: SessionStore) -> list[RunRecord]:
    return [one for one in await store.runs(hidden=True) if one.purpose == "compact"]


async def compaction_nodes(store: SessionStore) -> list[Node]:
    return [one for one in await store.nodes() if one.kind is NodeKind.COMPACTION]


async def told(store: SessionStore, run: str, kind: type[T]) -> list[T]:
    return [one.event for one in await store.events(run) if isinstance(one.event, kind)]


async def compacted(store: Any, run: str = "r", answers: Any = ANSWERS, task: str = "do it") -> monitor.Outcome:
    return await monitor.Supervisor(ScriptedModel(*answers), session=store, **OPTIONS).run(task, run_id=run)


async def _checked(store: SessionStore) -> None:
    """What holds in every session, whatever has happened to it."""
    assert await store.verify() == ()
    numbers = [one.compaction for one in await told(store, "r", CompactionStarted)]
    assert numbers == sorted(set(numbers))
    runs = [one.id for one in await store.runs(hidden=True)]
    assert len(runs) == len(set(runs))
    ends = await told(store, "r", CompactionFinished)
    stale = [one for one in await told(store, "r", CompactionFailed) if one.failure is CompactionFailure.STALE]
    assert len(await compaction_nodes(store)) >= len(ends) + len(stale)  # none is told without a node


# ---------------------------------------------------------------------- the node


@pytest.mark.feature("AC-02")
async def test_the_node_of_a_run_has_the_summary_alone_its_details_and_its_preset():
    store = InMemorySession()
    records = monitor.context.InMemoryCompactions()
    supervisor = monitor.Supervisor(
        ScriptedModel(*ANSWERS), session=store, compaction=monitor.Compaction.pi(store=records), **OPTIONS
    )
    assert (await supervisor.run("do it", run_id="r")).ok
    (node,) = await compaction_nodes(store)
    done, (record,) = compacted_of(node), records.records()
    assert (done.summary, done.preset, done.reason, done.summarised_by) == (
        *(record.summary, "pi", record.reason.value, record.summarised_by),
    )
    assert done.summary in text_of_user(done.shown[0])
    assert done.summary != text_of_user(done.shown[0])
    assert set(done.details) == {"files_read", "files_modified", "artifacts", "tool_notes"}
    assert (done.tokens_before, done.tokens_after) == (record.tokens_before, record.tokens_after)
    assert done.shown == record.shown


@pytest.mark.feature("AC-02")
async def test_the_files_that_a_summary_is_about_stand_in_the_details_of_the_node():
    store = InMemorySession()

    def read_file(path: str, n: int) -> str:
        """Read a file."""
        return "word" * n

    first = [call("read_file", path=f"src/{n}.py", n=n) for n in (30_000, 29_999, 27_000)]
    model = ScriptedModel(first, [call("read_file", path="src/last.py", n=9_000)], SUMMARY, "done")
    outcome = await monitor.Supervisor(model, session=store, **{**OPTIONS, "tools": [read_file]}).run("go")
    assert outcome.ok
    (node,) = await compaction_nodes(store)
    assert "src/30000.py" in compacted_of(node).details["files_read"]


# ---------------------------------------------------------------------- the run


@pytest.mark.feature("AC-09")
@pytest.mark.parametrize("chunks", [False, True])
async def test_a_compaction_can_be_inspected_and_replayed_as_any_run(chunks: bool, tmp_path: Any):
    model = ScriptedModel(*ANSWERS)
    async with SQLiteSession(tmp_path / "a.session", chunks=chunks) as store:
        await monitor.Supervisor(model, session=store, **OPTIONS).run("do it", run_id="r")
        (child,) = await compactions(store)
        assert (child.state, child.data["ok"], child.parent_run) == (RunStage.ENDED, True, "r")
        assert child.data["usage"]["input_tokens"] > 0
        first, *said = await store.active_path(f"run-{child.id}")
        asked = model.requests[2]
        assert read_body(first)["name"] == REQUEST
        assert read_body(first)["data"]["instructions"] == asked.instructions
        messages = [said_of(node) for node in said]
        assert tuple(messages[:-1]) == asked.messages
        assert isinstance(messages[-1], AssistantMessage)
        assert "".join(part.text for part in messages[-1].content if isinstance(part, monitor.messages.Text)) == SUMMARY
        kinds = [type(one.event).__name__ for one in await store.events(child.id)]
        assert (kinds[0], kinds[-1]) == ("RunStarted", "RunTerminated")
        assert "TurnEnded" in kinds
        again = await monitor.replay(store, child.id)
        assert (again.exact, again.as_stored) == (chunks, True)
        assert again.outcome is not None
        assert again.outcome.ok
        assert (await monitor.replay(store)).as_stored
        assert {one.run for one in await store.calls()} == {"r"}


@pytest.mark.feature("AC-09")
async def test_every_request_of_a_compaction_is_stored_also_one_whose_answer_is_refused():
    store = InMemorySession()
    await compacted(store, answers=(*ANSWERS[:2], "This is no summary.", SUMMARY, "done"))
    requests = [
        node for node in await store.nodes() if node.kind is NodeKind.MARKER and read_body(node)["name"] == REQUEST
    ]
    (child,) = await compactions(store)
    ended = await told(store, child.id, monitor.events.RunTerminated)
    assert len(requests) == len(ended) >= 2
    assert {node.run for node in requests} == {child.id}
    assert await store.verify() == ()


@pytest.mark.feature("AC-07")
@pytest.mark.parametrize("name", ["{}-compact-1", "{}-compact-2", "run-{}", "active", "compact", "{}"])
async def test_no_name_of_a_run_is_taken_by_a_compaction(name: str):
    store = InMemorySession()
    taken = name.format("r")
    if taken != "r":
        await monitor.Supervisor(ScriptedModel("mine"), session=store).run("be there", run_id=taken)
    before = {one.id: one for one in await store.runs(hidden=True)}
    await compacted(store)
    after = {one.id: one for one in await store.runs(hidden=True)}
    assert {id: after[id] for id in before} == before
    assert len(await compactions(store)) == 1


# ---------------------------------------------------------------------- crash, switch, second life


async def commits_of_a_run() -> int:
    async def nothing() -> None: ...

    store = Disturbed(InMemorySession(), 0, nothing, after=False)
    await compacted(store)
    assert len(await compactions(store)) == 1
    return store.commits


@pytest.mark.feature("AC-07")
@pytest.mark.parametrize("after", [False, True])
async def test_wherever_the_session_is_switched_a_compaction_is_stored_as_stale_or_not_at_all(after: bool):
    for at in range(1, await commits_of_a_run() + 1):
        for back in every_second((None, 0, 1, 2, -1), odd=at % 2 == 0):
            inner = InMemorySession()

            async def switch(inner: SessionStore = inner, back: int | None = back) -> None:
                path = await inner.active_path()
                if back is not None and path:
                    await inner.switch_node(path[min(back, len(path) - 1)].id)
                elif back is None:
                    await inner.switch_node(None)

            store = Disturbed(inner, at, switch, after=after)
            outcome = await compacted(store, answers=(*ANSWERS[:3], SUMMARY, *ANSWERS[3:], *ANSWERS[3:]))
            if outcome.reason is Reason.ERROR:  # the session has no call for the result of the running turn
                assert "has no call" in outcome.detail
            await _checked(inner)
            assert all(one.state is RunStage.ENDED for one in await compactions(inner))


@pytest.mark.feature("AC-07")
async def test_a_switch_while_the_summary_is_written_leaves_a_stale_node_and_a_failed_event():
    store = InMemorySession()
    pause = Pause()
    model = ScriptedModel(*ANSWERS[:2], [pause, SUMMARY], SUMMARY, "done")
    async with monitor.Supervisor(model, session=store, **OPTIONS).stream("do it", run_id="r") as run:
        async for event in run:
            if isinstance(event, CompactionStarted) and event.compaction == 1:
                path = await store.active_path()
                await store.switch_node(path[0].id)
                pause.release()
    assert run.outcome.reason is not Reason.ERROR
    (failed,) = await told(store, "r", CompactionFailed)
    assert failed.failure is CompactionFailure.STALE
    assert len(run.stale_compactions) == 1
    stale = [compacted_of(one) for one in await compaction_nodes(store)]
    assert [one.stale for one in stale][:1] == [True]
    first = (await compactions(store))[0]
    assert (first.state, first.data["failure"]) == (RunStage.ENDED, "stale")
    assert await store.verify() == ()


@pytest.mark.feature("AC-07")
@pytest.mark.parametrize("after", [False, True])
async def test_wherever_a_process_dies_its_next_life_counts_on_and_leaves_nothing_open(after: bool):
    async def die() -> None:
        raise StoreError("nothing is stored any more, as if the process were gone")

    for at in every_second(range(1, await commits_of_a_run() + 1), odd=after):
        inner = InMemorySession()
        try:
            await compacted(Disturbed(inner, at, die, after=after, for_good=True))
        except StoreError:  # at its beginning
            assert at == 1
        if not await inner.runs():
            continue
        first = {one.id: one for one in await compactions(inner)}
        rest = ScriptedModel(*[reads(29_000) for _ in range(4)], "done", *["done"] * 3)
        if (await inner.runs())[0].state is RunStage.RUNNING:
            again = monitor.Supervisor(rest, session=inner, compaction=extractive(), **OPTIONS)
            await again.resume(inner, run="r")
        await _checked(inner)
        second = {one.id: one for one in await compactions(inner)}
        assert first.keys() <= second.keys()
        assert all(one.state is RunStage.ENDED for one in second.values())
        for id, one in first.items():
            if one.state is RunStage.RUNNING:
                assert second[id].data["detail"] == CUT_OFF


def extractive() -> monitor.Compaction:
    return monitor.Compaction(summarizer=monitor.context.Extractive())


@pytest.mark.feature("AC-07")
async def test_a_run_that_is_resumed_after_its_end_numbers_its_compactions_on():
    store = InMemorySession()
    await monitor.Supervisor(
        ScriptedModel(*ANSWERS[:3], reads(10)), session=store, stop_when=monitor.MaxTurns(3), **OPTIONS
    ).run("do it", run_id="r")
    (first,) = await compactions(store)
    model = ScriptedModel(reads(30_000, 30_000), reads(25_000), SUMMARY, "done")
    await monitor.Supervisor(model, session=store, **OPTIONS).resume(store, run="r")
    assert [one.compaction for one in await told(store, "r", CompactionStarted)] == [1, 2]
    assert (await compactions(store))[0] == first
    await _checked(store)


def test_a_record_of_a_compaction_has_every_field_that_its_node_has():
    node = {"first_kept_node_id", "base", "stale"}
    record = set(CompactionRecord.__slots__) - {"first_kept"}
    assert set(monitor.sessions.Compacted.__slots__) - node == record

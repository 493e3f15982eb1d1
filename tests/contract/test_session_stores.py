"""What holds for every store of a session. A new one needs a line in `MAKERS` and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import TextDelta, ToolCall, ToolResult
from monitor.errors import ConfigError, StoreError
from monitor.events import Nudged, PlanUpdated
from monitor.messages import ApprovalAnswer, AssistantMessage, CallLedger, CallState, Text, UserMessage
from monitor.sessions import (
    ACTIVE,
    ApprovalState,
    Changes,
    InMemorySession,
    NodeKind,
    PostgresSession,
    RunRecord,
    RunStage,
    SessionStore,
    SQLiteSession,
    TurnChunks,
    branch_note,
    compacted_of,
    compaction,
    context_edit,
    marker,
    message,
    said_of,
)
from tests import databases
from tests.sessions.making import assistant, call, request, result, says, summary, user

pytestmark = [pytest.mark.anyio, pytest.mark.feature("AC-01")]

MAKERS: dict[str, Callable[[Path], Any]] = {
    "memory": lambda _: InMemorySession(),
    "sqlite": lambda folder: SQLiteSession(folder / "a.session"),
    "postgres": lambda _: PostgresSession(SERVER[0], uuid4().hex),
}
SERVER: list[str] = []
"""The address of the PostgreSQL server of this file."""

STORES: tuple[type[SessionStore], ...] = (InMemorySession, SQLiteSession, PostgresSession)
LEDGERS: tuple[type[CallLedger], ...] = STORES
"""What a type checker proves: each is a whole store, and a ledger of calls."""


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with databases.postgres() as address:
        SERVER[:] = [address]
        yield


@pytest.fixture(params=list(MAKERS))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    return partial(MAKERS[request.param], tmp_path)


@asynccontextmanager
async def with_texts(opened: Callable[[], Any], *texts: str) -> AsyncIterator[tuple[SessionStore, list[str]]]:
    """A session with user messages, and the ids of their nodes."""
    async with opened() as session:
        yield session, [(await session.append(says(text)))[0].id for text in texts]


async def shown(session: SessionStore, branch: str = ACTIVE) -> list[str]:
    """The texts of the context."""
    return [
        "".join(part.text for part in one.content if isinstance(part, Text))
        for one in (await session.context(branch)).messages
    ]


# ------------------------------------------------------------------ nodes and paths


async def test_it_begins_empty_and_keeps_what_comes_in_its_order(opened: Any):
    async with opened() as session:
        assert (await session.context()).messages == ()
        assert (await session.heads(), await session.nodes(), await session.active_path()) == ({}, (), ())
        for count in range(1, 5):
            (node,) = await session.append(says(f"message {count}", turn=count, tokens=7))
            assert (node.seq, node.turn, node.tokens, node.kind) == (count, count, 7, NodeKind.MESSAGE)
            assert await session.find_node(node.id) == node
            assert await shown(session) == [f"message {number}" for number in range(1, count + 1)]
        assert await session.nodes() == await session.active_path()
        assert await session.heads() == {ACTIVE: (await session.nodes())[-1].id}
        assert await session.verify() == ()


async def test_ids_are_128_bits_and_begin_with_the_time(opened: Any):
    async with with_texts(opened, "a", "b") as (session, ids):
        assert {len(bytes.fromhex(id)) for id in [*ids, session.id]} == {16}
        assert len({*ids, session.id}) == 3
        first, second = await session.nodes()
        assert int(first.id[:12], 16) == first.at_ms
        assert ids == [first.id, second.id]


async def test_nodes_that_are_written_at_once_follow_each_other(opened: Any):
    async with opened() as session:
        first, second = await session.append(says("a"), says("b"))
        assert (first.parent, second.parent) == (None, first.id)


TEXTS = st.text(st.characters(exclude_categories=())) | st.sampled_from(
    ["", "\0", "\ud800", "\ud83d\ude00", "é\u0301", "\u2028\x7f", '"}{', "x" * 70_000, "漢" * 30_000]
)


@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_any_text_is_read_back_as_it_was_written(texts: list[str]):
    """Lone surrogates and NUL as well, in a row or, where the text is long, beside the file."""

    async def check(session: Any) -> None:
        async with session:
            await session.append(*(says(text) for text in texts))
            back = await shown(session)
            assert [one.encode("utf-16", "surrogatepass") for one in back] == [
                one.encode("utf-16", "surrogatepass") for one in texts
            ]
            assert await session.verify() == ()

    import tempfile

    for make in MAKERS.values():
        with tempfile.TemporaryDirectory() as folder:
            anyio.run(check, make(Path(folder)))


async def test_a_message_that_is_not_one_is_refused_and_nothing_is_written(opened: Any):
    async with with_texts(opened, "a") as (session, _):
        with pytest.raises(ConfigError, match="not str"):
            await session.append(message("hello"))  # type: ignore[arg-type]
        assert await shown(session) == ["a"]


async def test_a_step_that_does_not_fit_writes_nothing_of_itself(opened: Any):
    async with with_texts(opened, "a") as (session, _):
        before = (await session.nodes(), await session.heads(), await session.runs(), await session.calls())
        for wrong in (
            Changes(nodes=[says("b"), says("c", parent="f" * 32)]),
            Changes(nodes=[says("b")], runs=[RunRecord(id="r")], calls=[replace(call("c"), state=CallState.RUNNING)]),
            Changes(nodes=[says("b", run="nobody")]),
            Changes(nodes=[says("b")], events=[Nudged(1.0, 1, "go on")], events_run="nobody"),
            Changes(nodes=[says("b")], answers=[ApprovalAnswer(id="never asked", decision="approved")]),
            Changes(nodes=[says("b")], calls=[call("c")], chunks=[TurnChunks("nobody", 1, ())]),
        ):
            with pytest.raises(StoreError):
                await session.commit(wrong)
            after = (await session.nodes(), await session.heads(), await session.runs(), await session.calls())
            assert after == before
        assert (await session.append(says("b")))[0].seq == 2


@pytest.mark.feature("AC-11")
async def test_switching_carries_nothing_over_from_the_path_that_is_left(opened: Any):
    async with with_texts(opened, "a", "b", "left") as (session, ids):
        nodes = await session.nodes()
        await session.switch_node(ids[0])
        assert await shown(session) == ["a"]
        await session.append(says("other"))
        assert await shown(session) == ["a", "other"]
        assert (await session.nodes())[:3] == nodes
        assert len(await session.nodes()) == 4
        await session.switch_node(ids[2])
        assert await shown(session) == ["a", "b", "left"]
        await session.switch_node(None)
        assert await shown(session) == []
        with pytest.raises(StoreError, match="there is no node"):
            await session.switch_node("f" * 32)
        assert await session.verify() == ()


async def test_branches_grow_apart_and_have_heads_of_their_own(opened: Any):
    async with with_texts(opened, "a", "b") as (session, ids):
        await session.switch_node(ids[0], branch="try")
        await session.append(says("c"), branch="try")
        await session.append(says("alone"), branch="child")
        assert await shown(session) == ["a", "b"]
        assert await shown(session, "try") == ["a", "c"]
        assert await shown(session, "child") == ["alone"]
        assert list(await session.heads()) == [ACTIVE, "child", "try"]


async def test_the_newest_nodes_of_a_branch_and_those_of_one_run_are_read_alone(opened: Any):
    async with opened() as session:
        runs = ("r1", "r2", "r1", "r3")
        await session.commit(Changes(runs=[RunRecord(id=run) for run in {*runs, "idle"}]))
        for number, run in enumerate(runs):
            await session.append(says(f"{number}", run=run), says(f"{number} again", run=run))
            await session.append(says("elsewhere", run=run), branch="other")
        path = await session.active_path()
        for last in (0, 1, 3, len(path), 100):
            assert await session.active_path(last=last) == path[len(path) - min(last, len(path)) :]
        for run in {*runs, "idle", "nobody"}:
            of_run = tuple(one for one in path if one.run == run)
            assert await session.active_path(run=run) == of_run
            assert await session.active_path(run=run, last=1) == of_run[-1:]
        assert await session.active_path("nowhere", last=2) == ()


async def test_markers_and_notes_are_kept_and_not_shown(opened: Any):
    async with with_texts(opened, "a") as (session, _):
        mark, note = await session.append(marker("here", {"x": (1, float("nan"))}), branch_note("why"))
        assert mark.data == {"name": "here", "data": {"x": [1, "nan"]}}
        assert note.data == {"text": "why"}
        assert await shown(session) == ["a"]


async def test_results_that_are_stored_apart_join_their_message_in_the_order_of_its_calls(opened: Any):
    async with with_texts(opened, "a") as (session, _):
        (said,) = await session.append(message(assistant("looking", "1", "2")))
        (second,) = await session.append(message(result("2", "two")))
        (first,) = await session.append(message(result("1", "one")))
        entry = (await session.context()).entries[-1]
        assert isinstance(entry.message, AssistantMessage)
        assert [one.text for one in entry.message.results] == ["one", "two"]
        assert (entry.node, entry.result_nodes) == (said.id, (first.id, second.id))


async def test_a_result_without_its_call_or_a_second_one_is_refused(opened: Any):
    async with with_texts(opened, "a") as (session, _):
        with pytest.raises(StoreError, match="has no call"):
            await session.append(message(result("1")))
        await session.append(message(assistant("looking", "1")), message(result("1")))
        with pytest.raises(StoreError, match="has its result already"):
            await session.append(message(result("1")))
        await session.append(message(assistant("again", "2")))
        with pytest.raises(StoreError, match="has no call"):
            await session.append(message(result("1")))


# ------------------------------------------------------------------ compactions


@pytest.mark.feature("AC-02")
async def test_the_context_is_the_summary_the_kept_tail_and_what_follows(opened: Any):
    async with with_texts(opened, "a", "b", "c") as (session, ids):
        (node,) = await session.append(compaction(summary(ids[1])))
        await session.append(says("d"))
        context = await session.context()
        assert await shown(session) == ["a summary", "b", "c", "d"]
        assert context.compaction == node
        assert [entry.node for entry in context.entries[:2]] == [node.id, ids[1]]
        back = compacted_of(node)
        assert (back.summary, back.first_kept_node_id, back.tokens_before) == ("a summary", ids[1], 100)
        assert [said_of(one) for one in (await session.nodes())[:3]] == [user("a"), user("b"), user("c")]


@pytest.mark.feature("AC-02")
async def test_of_several_compactions_the_last_counts(opened: Any):
    async with with_texts(opened, "a", "b") as (session, ids):
        await session.append(compaction(summary(ids[1], text="first")), says("c"))
        await session.append(compaction(summary(ids[1], text="second")), says("d"))
        assert await shown(session) == ["second", "b", "c", "d"]
        await session.append(compaction(summary(None, text="third")), says("e"))
        assert await shown(session) == ["third", "e"]


@pytest.mark.feature("AC-02", "AC-11")
async def test_a_compaction_counts_only_on_its_branch(opened: Any):
    async with with_texts(opened, "a", "b", "c") as (session, ids):
        await session.append(compaction(summary(ids[2])))
        await session.switch_node(ids[1])
        assert await shown(session) == ["a", "b"]


@pytest.mark.feature("AC-07")
async def test_a_compaction_in_the_background_counts_while_its_base_is_on_the_path(opened: Any):
    async with with_texts(opened, "a", "b", "c") as (session, ids):
        await session.append(says("d"))
        await session.append(compaction(summary(ids[2], base=ids[2])))
        assert await shown(session) == ["a summary", "c", "d"]


@pytest.mark.feature("AC-07")
@pytest.mark.parametrize("how", ["switched", "covered"])
async def test_a_stale_compaction_is_kept_and_not_used(opened: Any, how: Any):
    async with with_texts(opened, "a", "b", "c") as (session, ids):
        if how == "switched":
            await session.switch_node(ids[0])
            await session.append(says("x"))
            expected = ["a", "x"]
        else:
            await session.append(compaction(summary(ids[2], text="newer")))
            expected = ["newer", "c"]
        head = (await session.heads())[ACTIVE]
        (late,) = await session.append(compaction(summary(ids[1], base=ids[2])))
        assert compacted_of(late).stale
        assert late.parent == ids[2]
        assert await session.find_node(late.id) == late
        assert (await session.heads())[ACTIVE] == head
        assert await shown(session) == expected
        await session.switch_node(late.id)  # also where somebody goes on behind it
        assert "a summary" not in await shown(session)
        assert await session.verify() == ()


@pytest.mark.feature("AC-10")
async def test_a_compaction_is_validated_before_anything_is_written(opened: Any):
    async with with_texts(opened, "a") as (session, ids):
        (said, answer) = await session.append(message(assistant("b", "1")), message(result("1")))
        await session.append(says("other"), branch="try")
        other = (await session.heads())["try"]
        nodes = await session.nodes()
        for wrong in (summary(other), summary("f" * 32), summary(answer.id), summary(None, base="f" * 32)):
            with pytest.raises(StoreError):
                await session.append(compaction(wrong))
        fields: tuple[dict[str, Any], ...] = ({"summary": " "}, {"shown": ()}, {"tokens_before": -1})
        for field in fields:
            with pytest.raises(ConfigError):
                replace(summary(ids[0]), **field)
        with pytest.raises(StoreError, match="needs a path"):
            await session.append(compaction(summary(None)), branch="empty")
        assert await session.nodes() == nodes
        assert (await session.append(compaction(summary(said.id))))[0].kind is NodeKind.COMPACTION


# ------------------------------------------------------------------ context edits


@pytest.mark.feature("CL-09")
async def test_an_edit_changes_what_is_shown_on_its_branch_and_nothing_that_is_stored(opened: Any):
    async with opened() as session:
        before, long = await session.append(message(assistant("looking", "1")), message(result("1", "long " * 99)))
        await session.switch_node(long.id, branch="whole")
        await session.append(context_edit(long.id, result("1", "short")))
        entry = (await session.context()).entries[0]
        assert isinstance(entry.message, AssistantMessage)
        assert entry.message.results == (result("1", "short"),)
        await session.append(context_edit(long.id, result("1", "shorter")))
        (last,) = (await session.context()).messages
        assert isinstance(last, AssistantMessage)
        assert last.results == (result("1", "shorter"),)  # the last one wins
        (whole,) = (await session.context("whole")).messages
        assert isinstance(whole, AssistantMessage)
        assert whole.results == (result("1", "long " * 99),)
        assert said_of(long) == result("1", "long " * 99)
        assert await session.find_node(long.id) == long
        assert before.seq == 1


@pytest.mark.feature("CL-09")
async def test_a_message_that_is_hidden_takes_its_results_along(opened: Any):
    async with with_texts(opened, "a") as (session, _):
        said, _ = await session.append(message(assistant("looking", "1")), message(result("1")))
        await session.append(says("b"), context_edit(said.id, None))
        assert await shown(session) == ["a", "b"]
        await session.append(context_edit(said.id, assistant("looked", "1")))
        assert await shown(session) == ["a", "looked", "b"]
        looked = (await session.context()).messages[1]
        assert isinstance(looked, AssistantMessage)
        assert len(looked.results) == 1


@pytest.mark.feature("CL-09")
async def test_an_edit_that_would_break_the_history_is_refused(opened: Any):
    async with with_texts(opened, "a", "b") as (session, ids):
        _, answer = await session.append(message(assistant("looking", "1")), message(result("1")))
        (mark,) = await session.append(marker("m"))
        await session.append(says("x"), branch="try")
        other = (await session.heads())["try"] or ""
        for target, replacement in (
            (answer.id, None),
            (answer.id, result("2")),
            (answer.id, user("x")),
            (ids[0], assistant("x")),
            (ids[0], result("1")),
            (mark.id, user("x")),
            (other, user("x")),
            ("f" * 32, user("x")),
        ):
            with pytest.raises(StoreError):
                await session.append(context_edit(target, replacement))


# ------------------------------------------------------------------ runs, calls, events


async def test_a_run_is_replaced_by_its_later_record_and_hidden_ones_are_not_listed(opened: Any):
    async with opened() as session:
        run = RunRecord(id="r", agent="coder", started_at_s=5.0, data={"task": "x"})
        await session.commit(Changes(runs=[run, RunRecord(id="c", parent_run="r", purpose="compact")]))
        ended = replace(run, state=RunStage.ENDED, ended_at_s=6.5)
        await session.commit(Changes(runs=[ended], nodes=[says("a", run="r")]))
        assert await session.runs() == (ended,)
        assert [one.id for one in await session.runs(hidden=True)] == ["r", "c"]
        assert (await session.nodes())[0].run == "r"


async def test_it_is_a_ledger_of_calls(opened: Any):
    async with opened() as session:
        one, two = call("1"), call("2")
        assert list(await session.intend([one, two])) == [one, two]
        assert list(await session.intend([replace(one, call_id="again")])) == [one]
        running = replace(one, state=CallState.RUNNING, attempt=1)
        assert await session.advance(running)
        assert not await session.advance(running)  # of two, only one enters
        assert list(await session.open_calls("r")) == [running, two]
        done = replace(running, state=CallState.DONE, text="\ud800 done")
        assert await session.advance(done)
        assert not await session.advance(replace(done, text="twice"))
        assert not await session.advance(call("never intended"))
        assert await session.find(one.key) == done
        assert await session.find("no key") is None
        assert list(await session.open_calls("r")) == [two]
        assert list(await session.open_calls("another run")) == []
        assert list(await session.calls()) == [done, two]


STATES = list(CallState)


@pytest.mark.parametrize("before", STATES)
async def test_its_steps_of_a_call_are_those_of_the_ledger_in_memory(opened: Any, before: Any):
    from monitor.tools.calls.call import InMemoryLedger

    async with opened() as session:
        memory = InMemoryLedger()
        for number, (after, attempt) in enumerate(product(STATES, [0, 1])):
            answers = []
            for ledger in (session, memory):
                one = call(str(number))
                await ledger.intend([replace(one, state=before)])
                step = replace(one, state=after, attempt=attempt)
                answers.append(
                    (
                        await ledger.advance(step),
                        await ledger.find(step.key),
                        list(await ledger.open_calls("r")),
                    )
                )
            assert answers[0] == answers[1], (after, attempt)


async def test_a_message_its_calls_and_the_events_are_one_step(opened: Any):
    async with opened() as session:
        await session.commit(Changes(runs=[RunRecord(id="r")]))
        await session.commit(Changes(nodes=[message(assistant("x", "1"), run="r", turn=1)], calls=[call("1")]))
        running = replace(call("1"), state=CallState.RUNNING, attempt=1)
        await session.commit(Changes(calls=[running]))
        done = replace(running, state=CallState.DONE, text="seen")
        step = Changes(
            nodes=[message(result("1"), run="r", turn=1)], calls=[done], events=[Nudged(1.0, 1, "x")], events_run="r"
        )
        await session.commit(step)
        before = await session.nodes()
        with pytest.raises(StoreError):  # another owner of the call had ended it: nothing of it is written
            await session.commit(step)
        assert (await session.nodes(), len(await session.events())) == (before, 1)
        assert await session.calls("r") == (done,)


async def test_a_call_may_take_several_steps_in_one_commit_and_each_must_be_allowed(opened: Any):
    def steps(id: str, *states: CallState, attempt: int = 1) -> list[Any]:
        return [replace(call(id), state=state, attempt=attempt * (state is not intended)) for state in states]

    intended, running, done, failed = CallState.INTENDED, CallState.RUNNING, CallState.DONE, CallState.FAILED
    async with opened() as session:
        await session.commit(Changes(calls=[*steps("1", intended, running), *steps("2", intended, running, failed)]))
        assert [one.state for one in await session.calls()] == [running, failed]
        await session.commit(Changes(calls=[*steps("1", done), *steps("2", intended, running, done, attempt=2)]))
        assert [(one.state, one.attempt) for one in await session.calls()] == [(done, 1), (done, 2)]
        before = await session.calls()
        for refused in (
            steps("3", running),  # never intended
            steps("1", intended, running),  # it has ended
            steps("3", intended, running, done, running),  # so has this one
            [*steps("3", intended, running), *steps("2", done)],
        ):
            with pytest.raises(StoreError, match="cannot become"):
                await session.commit(Changes(calls=refused))
            assert await session.calls() == before
        await session.commit(Changes(calls=steps("1", intended)))  # it is known, and stays as it is
        assert await session.calls() == before


async def test_a_question_waits_for_its_answer_and_has_only_one(opened: Any):
    async with opened() as session:
        await session.commit(Changes(requests=[request("q"), request("p")]))
        await session.commit(Changes(requests=[request("q")]))
        answer = ApprovalAnswer(id="q", decision="denied", reason="no", by="me")
        await session.commit(Changes(answers=[answer]))
        assert await session.approvals() == (ApprovalState(request("q"), answer), ApprovalState(request("p")))
        assert await session.approvals(only_open=True) == (ApprovalState(request("p")),)
        with pytest.raises(StoreError, match="already"):
            await session.commit(Changes(answers=[answer]))


async def test_events_and_chunks_are_kept_in_their_order_for_each_run(opened: Any):
    async with opened() as session:
        await session.commit(Changes(runs=[RunRecord(id="r"), RunRecord(id="s")]))
        for number, run in enumerate(("r", "s", "r")):
            await session.commit(Changes(events=[Nudged(number, 1, run), PlanUpdated(2.0, 1, "p")], events_run=run))
        pieces = TurnChunks("r", 3, ((0.5, TextDelta("a\0")), (0.75, ToolResult("1", "look", "\ud800"))))
        await session.commit(Changes(chunks=[pieces]))
        assert [one.seq for one in await session.events()] == [1, 2, 3, 4, 5, 6]
        assert [one.event.at_s for one in await session.events("r")] == [0, 2.0, 2, 2.0]
        assert (await session.chunks("r"), await session.chunks("s")) == ((pieces,), ())


async def test_what_it_answered_is_not_changed_by_what_comes_later_nor_by_the_caller(opened: Any):
    async with opened() as session:
        arguments = {"at": [1]}
        await session.intend([replace(call("1"), arguments=arguments)])
        calls, nodes = await session.calls(), await session.nodes()
        arguments["at"].append(2)
        await session.append(says("a"))
        assert (await session.calls())[0].arguments == {"at": [1]}
        assert (calls[0].arguments, nodes) == ({"at": [1]}, ())


async def test_tasks_side_by_side_write_everything_in_one_order(opened: Any):
    async with opened() as session:

        async def write(name: str) -> None:
            for number in range(10):
                await session.append(says(f"{name} {number}"), branch=name)

        async with anyio.create_task_group() as group:
            for name in "abcdefgh":
                group.start_soon(write, name)
        assert [node.seq for node in await session.nodes()] == list(range(1, 81))
        for name in "abcdefgh":
            assert await shown(session, name) == [f"{name} {number}" for number in range(10)]
        assert await session.verify() == ()


async def test_a_closed_one_takes_nothing_more(opened: Any):
    async with opened() as session:
        await session.append(says("a"))
    with pytest.raises(StoreError):
        await session.append(says("b"))
    await session.aclose()


# ------------------------------------------------------------------ the stores agree

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "result", "compact", "late", "edit", "hide", "switch", "mark", "name"]),
        st.integers(0, 99),
        st.sampled_from([ACTIVE, "b"]),
    ),
    max_size=25,
)


@given(steps=STEPS)
def test_all_stores_answer_the_same_to_any_sequence_of_steps(steps: Any):
    """The context is a history that pairs calls with results, whatever was done."""
    import tempfile

    told = []
    for make in MAKERS.values():
        with tempfile.TemporaryDirectory() as folder:
            told.append(anyio.run(_carry_out, make(Path(folder)), steps))
    assert all(one == told[0] for one in told)


async def _carry_out(made: Any, steps: Any) -> Any:
    told: list[Any] = []
    async with made as session:
        ids: list[str] = []
        for what, number, branch in steps:
            some = ids[number % len(ids)] if ids else "f" * 32
            try:
                match what:
                    case "user":
                        done = await session.append(says(f"u{number}"), branch=branch)
                    case "assistant":
                        done = await session.append(message(assistant("a", "1", f"{number}")), branch=branch)
                    case "result":
                        done = await session.append(message(result("1", f"{number}")), branch=branch)
                    case "compact":
                        done = await session.append(compaction(summary(some, text=f"s{number}")), branch=branch)
                    case "late":
                        done = await session.append(compaction(summary(None, base=some)), branch=branch)
                    case "edit":
                        done = await session.append(context_edit(some, user(f"e{number}")), branch=branch)
                    case "hide":
                        done = await session.append(context_edit(some, None), branch=branch)
                    case "mark":
                        done = await session.append(marker(f"m{number}"), branch=branch)
                    case _:
                        await session.switch_node(some, branch=branch if what == "switch" else f"name{number}")
                        done = ()
                ids += [node.id for node in done]
                told.append("written")
            except StoreError as error:
                told.append(type(error).__name__)
            context = await session.context(branch)
            told.append([ids.index(entry.node) for entry in context.entries])
            told.append(context.messages)
            for entry in context.messages:
                if isinstance(entry, AssistantMessage):
                    calls = [part.id for part in entry.content if isinstance(part, ToolCall)]
                    assert [one.id for one in entry.results if one.id not in calls] == []
                else:
                    assert isinstance(entry, UserMessage)
        assert await session.verify() == ()
        heads = await session.heads()
        told.append({name: ids.index(head) for name, head in heads.items() if head})
    return told


async def test_an_answer_of_a_person_is_spent_by_the_commit_in_which_a_call_begins(opened: Any):
    async with opened() as session:
        first, second = call("1", approval="q"), call("2", approval="q")
        await session.intend([first, second])
        assert await session.advance(replace(first, state=CallState.RUNNING, attempt=1))
        for _ in range(2):
            with pytest.raises(StoreError, match="is used up: another call was made with it"):
                await session.advance(replace(second, state=CallState.RUNNING, attempt=1))
        assert await session.advance(replace(first, state=CallState.FAILED, attempt=1, text="no"))
        assert await session.advance(replace(first, state=CallState.RUNNING, attempt=2))  # the same call again
        with pytest.raises(StoreError, match="is used up"):
            await session.commit(Changes(calls=[replace(second, state=CallState.RUNNING, attempt=1)]))
        assert await session.verify() == ()

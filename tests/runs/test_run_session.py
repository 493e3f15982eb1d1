"""A run with a session: what is stored when, and what a run finds that goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

import monitor
from monitor.chunks import ToolCall
from monitor.context.reduce import PruneResults
from monitor.errors import StoreError
from monitor.messages import ApprovalAnswer, AssistantMessage, CallRecord, CallState, Text, UserMessage
from monitor.runs.run_session import GO_ON
from monitor.sessions import Changes, Committed, InMemorySession, NodeKind, RunStage, SessionStore, SQLiteSession
from monitor.sessions.nodes import said_of
from monitor.testing import Pause, ScriptedModel, call
from monitor.testing.scripted import Do
from monitor.tools import PendingApprovals
from tests.runs.context.test_run_context_compaction import SUMMARY, WINDOW, driven, read, reads
from tests.runs.driving import Reason, look, text_of_user

pytestmark = pytest.mark.anyio

G = TypeVar("G")
T = TypeVar("T")


class Died(BaseException):
    """The process is gone: nothing after it is stored."""


class Mortal:
    """A session that stores `steps` steps. Then its process dies, before or after the next step."""

    def __init__(self, store: SessionStore, steps: int, *, after: bool) -> None:
        self._store = store
        self._left = steps
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, changes: Changes) -> Committed:
        return await self._step(self._store.commit, changes)

    async def intend(self, records: Sequence[CallRecord]) -> Sequence[CallRecord]:
        return await self._step(self._store.intend, records)

    async def advance(self, record: CallRecord) -> bool:
        return await self._step(self._store.advance, record)

    async def _step(self, step: Callable[[G], Awaitable[T]], given: G) -> T:
        if self._left <= 0:
            if self._left == 0 and self._after:
                self._left -= 1
                await step(given)
            raise Died
        self._left -= 1
        return await step(given)


class Full(Mortal):
    """A session whose disk is full after some steps."""

    async def _step(self, step: Callable[[G], Awaitable[T]], given: G) -> T:
        if self._left <= 0:
            if self._left == 0 and self._after:
                self._left -= 1
                await step(given)
            raise StoreError("the disk is full")
        self._left -= 1
        return await step(given)


def supervisor(*answers: Any, **options: Any) -> monitor.Supervisor:
    return monitor.Supervisor(ScriptedModel(*answers), **options)


def words(messages: Sequence[Any]) -> list[str]:
    return ["".join(part.text for part in one.content if isinstance(part, Text)) for one in messages]


async def replies_in(store: SessionStore) -> int:
    return sum(isinstance(one, AssistantMessage) for one in (await store.context()).messages)


# ---------------------------------------------------------------------- what is stored


async def test_a_run_stores_its_conversation_its_calls_its_events_and_its_end():
    store = InMemorySession()
    outcome = await supervisor(call("look", q="x"), "Done.", tools=[look], session=store).run("find x", run_id="r")
    assert outcome.ok
    context = await store.context()
    assert context.messages == outcome.history
    assert [node.kind for node in await store.nodes()] == [NodeKind.MESSAGE] * 4  # task, reply, result, answer
    (run,) = await store.runs()
    assert (run.id, run.state, run.purpose, run.data["reason"], run.data["task"]) == (
        "r",
        RunStage.ENDED,
        "main",
        "goal",
        "find x",
    )
    (record,) = await store.calls("r")
    assert (record.state, record.text) == (CallState.DONE, "found x")
    kinds = [type(one.event).__name__ for one in await store.events("r")]
    assert kinds[-1] == "RunTerminated"
    assert kinds.count("ToolFinished") == 1
    assert await store.verify() == ()


async def test_a_call_is_stored_with_its_message_before_its_tool_is_entered():
    store = InMemorySession()
    seen: list[Any] = []

    async def act() -> str:
        """Act."""
        path = await store.active_path()
        (record,) = await store.calls()
        seen.append((len(path), said_of(path[-1]), record.state))
        return "acted"

    await supervisor([call("act"), "I act."], "Done.", tools=[act], session=store).run("do it")
    ((length, reply, state),) = seen
    assert length == 2
    assert isinstance(reply, AssistantMessage)
    assert words([reply]) == ["I act."]
    assert state is CallState.RUNNING


@pytest.mark.feature("AC-01")
async def test_a_conversation_goes_on_in_its_session(tmp_path: Path):
    async with SQLiteSession(tmp_path / "s") as store:
        await supervisor("Because of Rayleigh.", session=store).run("Why is the sky blue?")
    async with SQLiteSession(tmp_path / "s") as store:
        model = ScriptedModel("As I said.")
        outcome = await monitor.Supervisor(model).run("Again?", session=store)
        asked = ["Why is the sky blue?", "Because of Rayleigh.", "Again?"]
        assert words(model.requests[0].messages) == asked
        assert words(outcome.history) == [*asked, "As I said."] == words((await store.context()).messages)
        assert len(await store.runs()) == 2
        assert await store.verify() == ()


async def test_a_history_without_a_session_can_be_gone_on_with_too():
    first = await supervisor("Four.").run("What is 2 + 2?")
    model = ScriptedModel("Five.")
    second = await monitor.Supervisor(model).run("And 2 + 3?", history=first.history)
    assert words(second.history) == ["What is 2 + 2?", "Four.", "And 2 + 3?", "Five."]
    assert "history" not in second.to_dict()


async def test_the_supervisors_own_history_begins_an_empty_session():
    store = InMemorySession()
    before = [UserMessage((Text("hello"),)), AssistantMessage((Text("hi"),))]
    options: dict[str, Any] = {"history": before, "session": store}
    await supervisor("one", **options).run("first")
    await supervisor("two", **options).run("second")
    assert words((await store.context()).messages) == ["hello", "hi", "first", "one", "second", "two"]


async def test_a_session_with_messages_takes_no_other_history():
    store = InMemorySession()
    await supervisor("one", session=store).run("first")
    with pytest.raises(monitor.ConfigError, match="holds a conversation"):
        await supervisor("two", session=store).run("second", history=[UserMessage((Text("x"),))])


async def test_two_runs_at_once_need_two_sessions_and_the_next_one_may_follow():
    store = InMemorySession()
    refused: list[str] = []

    async def again() -> str:
        """Run again."""
        try:
            await supervisor("mixed", session=store).run("meanwhile")
        except monitor.ConfigError as error:
            refused.append(str(error))
        return "done"

    assert (await supervisor(call("again"), "Done.", tools=[again], session=store).run("go")).ok
    assert ["another run writes to this session" in one for one in refused] == [True]
    assert (await supervisor("after", session=store).run("then")).ok


async def test_a_session_is_the_ledger():
    with pytest.raises(monitor.ConfigError, match="session= or ledger="):
        supervisor("x", session=InMemorySession(), calls=monitor.runs.ToolCalls(ledger=InMemorySession()))
    with pytest.raises(monitor.ConfigError, match="session"):
        supervisor("x", session="file.session")


async def test_a_run_whose_session_cannot_be_written_ends_with_the_error_and_makes_no_call():
    store = InMemorySession()
    made: list[str] = []

    async def act() -> str:
        """Act."""
        made.append("effect")
        return "acted"

    outcome = await supervisor(call("act"), "Done.", tools=[act], session=Full(store, 1, after=False)).run("do it")
    assert (outcome.reason, made) == (Reason.ERROR, [])
    assert "the disk is full" in outcome.detail


# ---------------------------------------------------------------------- nested runs and compactions


async def test_a_subagent_is_a_run_of_the_same_session_on_a_branch_of_its_own():
    store = InMemorySession()
    inner = supervisor(call("look", q="deep"), "Found deep.", tools=[look])
    tool = inner.as_tool(name="research", description="Looks things up.")
    outer = supervisor(call("research", task="go deep"), "Done.", tools=[tool], session=store)
    assert (await outer.run("do it", run_id="outer")).ok
    main, child = await store.runs()
    assert (main.id, main.parent_run) == ("outer", None)
    assert (child.parent_run, child.purpose, child.agent, child.state) == (
        "outer",
        "subagent",
        "research",
        RunStage.ENDED,
    )
    assert words((await store.context()).messages) == ["do it", "", "Done."]
    assert words((await store.context(f"run-{child.id}")).messages) == ["go deep", "", "Found deep."]
    assert {one.run for one in await store.calls()} == {"outer", child.id}


@pytest.mark.feature("AC-07", "AC-09", "AC-12")
async def test_a_compaction_is_a_hidden_run_and_a_node_that_shows_the_summary():
    store = InMemorySession()
    model = ScriptedModel(reads(30_000, 30_000, 27_000), reads(9_000), SUMMARY, "done")
    outcome = await monitor.Supervisor(
        model, tools=[read], results=monitor.runs.Results(bound=None), window=WINDOW, session=store
    ).run("do it", run_id="r")
    assert outcome.ok
    assert outcome.compaction_usage.input_tokens > 0
    assert [run.id for run in await store.runs()] == ["r"]
    hidden = [run for run in await store.runs(hidden=True) if run.purpose == "compact"]
    assert [(run.parent_run, run.state, run.data["ok"]) for run in hidden] == [("r", RunStage.ENDED, True)]
    summary = model.requests[2]
    assert summary.tools == ()
    assert "read" not in {part.name for one in summary.messages for part in one.content if isinstance(part, ToolCall)}
    context = await store.context()
    assert context.compaction is not None
    assert context.messages == outcome.history
    originals = [said_of(node) for node in await store.active_path() if node.kind is NodeKind.MESSAGE]
    assert len(originals) > len(context.messages)  # nothing original is changed or gone
    # and the conversation goes on from what the model is shown
    after = ScriptedModel("And so on.")
    await monitor.Supervisor(after, tools=[read], results=monitor.runs.Results(bound=None), window=WINDOW).run(
        "more", session=store
    )
    assert after.requests[0].messages[:-1] == outcome.history


@pytest.mark.feature("AC-07", "AC-09")
async def test_a_compaction_that_came_too_late_keeps_its_run_and_its_failed_event_and_is_not_used():
    store = InMemorySession()
    pause = Pause()
    run: monitor.Run

    def changed_meanwhile(_: monitor.models.ModelRequest) -> list[Any]:
        history = run._history
        history.commit(monitor.context.HistoryEdit(history.version, 1, 2, history.messages[1:2], "mine"))
        return [pause, SUMMARY]

    sizes = [[call("read", n=n)] for n in (20_000, 20_000, 20_000, 18_000, 8_000)]
    answers = [*sizes, [Do(pause.release), call("read", n=100)], call("read", n=100), "done"]
    d = driven(*answers, summaries=[changed_meanwhile, *[SUMMARY] * 9], session=store)
    run = d.run
    await d.go()
    late, again = [one for one in await store.runs(hidden=True) if one.purpose == "compact"]
    assert (late.state, late.data["ok"], late.data["failure"]) == (RunStage.ENDED, False, "stale")
    assert again.data["ok"]
    kinds = [type(one.event).__name__ for one in await store.events()]
    assert (kinds.count("CompactionStarted"), kinds.count("CompactionFailed")) == (2, 1)
    assert [node.kind for node in await store.active_path()].count(NodeKind.COMPACTION) == 1
    assert (await store.context()).messages == d.run.history


@pytest.mark.feature("CL-09")
async def test_results_that_are_cleared_are_edits_on_the_branch_and_the_originals_stay():
    store = InMemorySession()
    model = ScriptedModel(*[reads(20_000 + n) for n in range(7)], "done")
    prune = PruneResults(protect_tokens=2_000, more_than_tokens=1_000, protect_turns=0)
    compaction = monitor.Compaction.opencode(after_turn=(prune,))
    options: dict[str, Any] = {"compaction": compaction, "window": WINDOW, "session": store}
    outcome = await monitor.Supervisor(
        model, tools=[read], **{"results": monitor.runs.Results(bound=None), **options}
    ).run("do it")
    assert outcome.ok
    edits = [node for node in await store.active_path() if node.kind is NodeKind.CONTEXT_EDIT]
    assert edits
    assert (await store.context()).messages == outcome.history
    results = [said_of(node) for node in await store.active_path() if node.kind is NodeKind.MESSAGE]
    texts = [one.text for one in results if isinstance(one, monitor.chunks.ToolResult)]
    assert [len(text) for text in texts] == [4 * (20_000 + n) for n in range(7)]


# ---------------------------------------------------------------------- going on

SCRIPT: list[Any] = [
    [call("act", n=1), call("look_at", n=1)],
    call("emit_value", name="first", value="one"),
    [call("act", n=2), call("act", n=2), call("act", n=1)],
    "I have done it all.",
    call("emit_value", name="second", value="two"),
]
LONGEST = 12
"""More steps than the run makes, as a test below says."""


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("steps", range(LONGEST))
async def test_a_run_that_dies_at_any_step_goes_on_and_makes_no_effect_twice(steps: int, *, after: bool):
    store = InMemorySession()
    effects: list[int] = []
    reads_made: list[str] = []

    async def act(n: int) -> str:
        """Act."""
        effects.append(n)
        return f"acted {n}"

    @monitor.tool(idempotent=True)
    async def look_at(n: int) -> str:
        """Look."""
        reads_made.append(str(n))
        return f"saw {n}"

    options: dict[str, Any] = {"tools": [act, look_at], "outputs": {"first": str, "second": str}}
    try:
        outcome = await supervisor(*SCRIPT, session=Mortal(store, steps, after=after), **options).run("go", run_id="r")
    except Died:
        runs = await store.runs()
        if not runs or runs[0].state is RunStage.ENDED:
            return  # nothing is stored, or everything: there is nothing to go on with
        goes_on = supervisor(*SCRIPT[await replies_in(store) :], "Nothing is left.", session=store, **options)
        outcome = await goes_on.resume()
    assert outcome.ok
    assert outcome.output == {"first": "one", "second": "two"}
    assert Counter(effects) <= Counter({1: 2, 2: 2})  # never more often than the model has asked
    unknown = [one for one in await store.calls("r") if one.state is CallState.UNKNOWN]
    done = [one for one in await store.calls("r") if one.tool == "act" and one.state is CallState.DONE]
    assert len(done) + len(unknown) == 4  # each is known to be made, or said to be unknown
    assert len(done) <= len(effects)
    assert not [one for one in unknown if one.idempotent]
    assert [one.open for one in await store.calls("r")] == [False] * 5
    assert (await store.context()).messages == outcome.history
    assert (await store.runs())[0].state is RunStage.ENDED
    assert await store.verify() == ()


async def test_the_sweep_reaches_the_end_of_the_run():
    store = InMemorySession()

    async def act(n: int) -> str:
        """Act."""
        return f"acted {n}"

    outputs = {"first": str, "second": str}
    session = Mortal(store, LONGEST - 1, after=False)
    assert (await supervisor(*SCRIPT, tools=[act, look], outputs=outputs, session=session).run("go")).ok


async def test_the_model_is_told_that_an_effect_is_unknown_and_an_idempotent_call_is_made_again():
    store = InMemorySession()
    keys: list[str] = []
    alive = True

    async def send() -> str:
        """Send."""
        if alive:
            raise Died
        raise AssertionError("it may have been sent already")

    @monitor.tool(idempotent=True)
    async def put(context: monitor.ToolContext) -> str:
        """Put."""
        keys.append(context.idempotency_key)
        if alive:
            await anyio.sleep_forever()
        return "put"

    tools: list[Any] = [send, put]
    with pytest.raises(Died):
        await supervisor([call("put"), call("send")], session=store, tools=tools).run("go", run_id="r")
    alive = False
    # what a kill leaves: neither end was stored
    store._connection.execute("UPDATE monitor_calls SET state = 'running', body = json_set(body, '$.state', 'running')")
    run = (await store.runs())[0]
    await store.commit(Changes(runs=[monitor.sessions.RunRecord(id=run.id, data=run.data)]))
    model = ScriptedModel("I see.")
    outcome = await monitor.Supervisor(model, session=store, tools=tools).resume()
    assert outcome.ok
    (reply,) = [one for one in model.requests[0].messages if isinstance(one, AssistantMessage)]
    put_result, send_result = reply.results
    assert (put_result.text, put_result.is_error) == ("put", False)
    assert send_result.is_error
    assert "not known" in send_result.text or "unknown" in send_result.text
    assert len(keys) == 2
    assert keys[0] == keys[1]


async def test_a_run_whose_answer_is_stored_is_not_asked_again():
    store = InMemorySession()
    with pytest.raises(Died):
        await supervisor("It is blue.", session=Mortal(store, 2, after=False)).run("go")
    model = ScriptedModel()
    outcome = await monitor.Supervisor(model).resume(store)
    assert (outcome.ok, outcome.text, outcome.turns, model.requests) == (True, "It is blue.", 1, [])


async def test_a_run_that_had_ended_by_its_answer_is_told_to_go_on():
    store = InMemorySession()
    await supervisor("Half of", session=store).run("go", run_id="r")
    model = ScriptedModel("it.")
    assert (await monitor.Supervisor(model).resume(store, run="r")).ok
    assert text_of_user(model.requests[0].messages[-1]) == GO_ON


async def test_there_must_be_a_run_to_go_on_with():
    store = InMemorySession()
    with pytest.raises(monitor.ConfigError, match="this session is empty"):
        await supervisor("x", session=store).resume()
    with pytest.raises(monitor.ConfigError, match="needs a session"):
        await supervisor("x").resume()
    await supervisor("x", session=store).run("go")
    with pytest.raises(monitor.ConfigError, match="every run of this session has ended"):
        await supervisor("x", session=store).resume()


@pytest.mark.feature("CL-12")
async def test_a_damaged_conversation_is_repaired_and_the_repair_is_reported():
    store = InMemorySession()
    await supervisor("fine", session=store).run("go")
    orphan = AssistantMessage((call("look", q="lost"),))
    await store.append(monitor.sessions.message(orphan))
    model = ScriptedModel("Going on.")
    events: list[Any] = []
    async with monitor.Supervisor(model, tools=[look]).stream("next", session=store) as run:
        events += [event async for event in run]
    (repaired,) = [one for one in events if isinstance(one, monitor.events.HistoryRepaired)]
    assert "look" in str(repaired.repairs)
    assert run.outcome.ok
    assert (await store.context()).messages == run.outcome.history
    assert await store.verify() == ()


async def test_a_run_that_waits_for_an_approval_survives_its_process(tmp_path: Path):
    effects: list[str] = []

    @monitor.tool(needs_approval=True)
    async def delete(name: str) -> str:
        """Delete."""
        effects.append(name)
        return f"deleted {name}"

    options: dict[str, Any] = {"tools": [delete, look]}
    async with SQLiteSession(tmp_path / "s") as store:
        first = supervisor(
            [call("look", q="x"), call("delete", name="x")],
            calls=monitor.runs.ToolCalls(approver=PendingApprovals()),
            **options,
        )
        paused = await first.run("go", session=store)
        assert paused.reason is Reason.PAUSED
        assert (await store.runs())[0].state is RunStage.WAITING
    async with SQLiteSession(tmp_path / "s") as store:
        (asked,) = await store.approvals(only_open=True)
        assert asked.request == paused.pending[0]
        # nobody has answered yet: it waits further
        again = await supervisor(calls=monitor.runs.ToolCalls(approver=PendingApprovals()), **options).resume(store)
        assert (again.reason, effects) == (Reason.PAUSED, [])
        approver = PendingApprovals(requests=again.pending)
        approver.answer(ApprovalAnswer(id=again.pending[0].id, decision="approved"))
        model = ScriptedModel("Deleted.")
        last = await monitor.Supervisor(model, calls=monitor.runs.ToolCalls(approver=approver), **options).resume(store)
        assert (last.ok, effects) == (True, ["x"])
        (reply,) = [one for one in model.requests[0].messages if isinstance(one, AssistantMessage)]
        assert [result.text for result in reply.results] == ["found x", "deleted x"]
        assert [one.state for one in await store.calls()] == [CallState.DONE] * 2
        (question,) = await store.approvals()  # asked in three processes, and answered in the last one
        assert (question.request.id, question.answer and question.answer.decision) == (asked.request.id, "approved")
        assert (await store.context()).messages == last.history
        assert await store.verify() == ()

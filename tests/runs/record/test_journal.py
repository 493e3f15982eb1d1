"""What a run announces is stored before, and a turn costs few commits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest

import monitor
from monitor.errors import StoreError
from monitor.events import ToolCallChanged, event_codec
from monitor.messages import CallState
from monitor.runs.record.recorder import EFFECTS, NOT_STORED
from monitor.sessions import Changes, Committed, InMemorySession, NodeKind, RunStage, SQLiteSession
from monitor.sessions.nodes import said_of
from monitor.sessions.tables.rows import Rows
from monitor.testing import call
from tests.runs.driving import Reason, look
from tests.runs.test_run_session import SCRIPT, Full, Mortal, supervisor

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------------- what is announced is stored


class Heard(list[Any]):
    """A sink that keeps what it hears, and what the session had at that moment."""

    def __init__(self, store: InMemorySession) -> None:
        self._store = store
        self.too_early: list[Any] = []

    def emit(self, event: Any) -> None:
        self.append(event)
        if isinstance(event, EFFECTS) and not self._is_stored(event):
            self.too_early.append(event)

    def _is_stored(self, event: Any) -> bool:
        connection = self._store._connection
        if isinstance(event, ToolCallChanged):
            call = Rows(connection).find(event.record.key)
            if call is not None and call.state == event.record.state:
                return True
        return event_codec.dumps(event) in [event_codec.dumps(one.event) for one in Rows(connection).events()]


@pytest.mark.parametrize("streams", [False, True], ids=["run", "stream"])
@pytest.mark.parametrize("steps", [*range(10), 99])
async def test_what_a_sink_hears_is_stored_wherever_the_session_fails(steps: int, *, streams: bool):
    store = InMemorySession()
    sink = Heard(store)
    effects: list[int] = []

    @monitor.tool(needs_approval=True)
    async def act(n: int) -> str:
        """Act."""
        effects.append(n)
        return f"acted {n}"

    async def yes(request: monitor.messages.ApprovalRequest) -> bool:
        assert request.id in [one.request.id for one in await store.approvals()]
        return True

    given: dict[str, Any] = {
        "tools": [act, look],
        "outputs": {"first": str, "second": str},
        "calls": monitor.runs.ToolCalls(approver=yes),
    }
    one = supervisor(*SCRIPT[1:], **given, session=Full(store, steps, after=False), sinks=[sink])
    outcome: Any = None
    read: list[Any] = []
    try:
        if streams:
            async with one.stream("go") as run:
                read = [event async for event in run]
            outcome = run.outcome
        else:
            outcome = await one.run("go")
    except StoreError:
        assert steps == 0  # the run has not begun
        return
    unstored = [event for event in sink.too_early if not isinstance(event, monitor.events.RunTerminated)]
    assert unstored == []
    ends = [event for event in sink if isinstance(event, monitor.events.RunTerminated)]
    assert [event.outcome for event in ends] == [outcome]
    assert sink[-1] is ends[0]
    assert outcome.ok is (sink.too_early == [])
    assert outcome.ok or steps < 99
    if outcome.ok:
        assert (outcome.output, sorted(effects)) == ({"first": "one", "second": "two"}, [1, 2, 2])
        heard = [event_codec.dumps(event) for event in sink if not isinstance(event, NOT_STORED)]
        assert heard == [event_codec.dumps(stored.event) for stored in await store.events()]
    else:
        assert (outcome.reason, outcome.source) == (Reason.ERROR, outcome.source)
        assert "the disk is full" in outcome.detail
    if streams:
        assert [event for event in read if not isinstance(event, NOT_STORED)] == [
            event for event in sink if not isinstance(event, NOT_STORED)
        ]


async def test_the_output_of_a_tool_is_shown_while_it_runs_and_its_end_after_the_commit():
    store = InMemorySession()

    async def act(context: monitor.ToolContext) -> str:
        """Act."""
        await context.output("half")
        return "acted"

    one = supervisor(call("act"), "Done.", tools=[act], session=store)
    async with one.stream("go") as run:
        seen = [(type(event).__name__, len(await store.events())) async for event in run]
    kinds = [kind for kind, _ in seen]
    assert kinds.index("ToolStarted") < kinds.index("ToolOutput") < kinds.index("ToolFinished")
    stored = [type(one.event).__name__ for one in await store.events()]
    assert dict(seen)["ToolFinished"] > stored.index("ToolFinished")


async def test_a_run_whose_end_is_not_stored_says_so():
    store = InMemorySession()
    outcome = await supervisor("Done.", session=Full(store, 2, after=False)).run("go")
    assert (outcome.ok, outcome.reason, outcome.source) == (False, Reason.ERROR, "session")
    assert "the disk is full" in outcome.detail
    assert (await store.runs())[0].state is RunStage.RUNNING  # so it can be resumed


async def test_a_turn_costs_two_commits_whatever_the_number_of_its_calls():
    class Counting(Mortal):
        steps: list[Changes]

        async def commit(self, changes: Changes) -> Committed:
            self.steps.append(changes)
            return await self._store.commit(changes)

    store = Counting(InMemorySession(), 0, after=False)
    for number in (1, 3):
        store.steps = []
        await supervisor([call("look", q=str(n)) for n in range(number)], "Done.", tools=[look], session=store).run(
            "go"
        )
        begun, made, results, end = store.steps[:3] + store.steps[-1:]
        assert (len(begun.nodes), len(made.nodes), len(results.nodes)) == (1, 1, number)
        assert [one.state for one in made.calls] == [CallState.INTENDED] * number + [CallState.RUNNING] * number
        assert [one.state for one in results.calls] == [CallState.DONE] * number
        assert len(store.steps) == 5  # and the answer, and the end
        assert [run.state for run in end.runs] == [RunStage.ENDED]


async def test_a_call_that_ended_is_stored_while_another_one_takes_long():
    store = InMemorySession()
    ended: list[dict[str, str]] = []

    async def slow() -> str:
        """Slow."""
        await anyio.wait_all_tasks_blocked()
        ended.append({one.tool: one.state for one in await store.calls()})
        return "slow"

    assert (
        await supervisor([call("look", q="x"), call("slow")], "Done.", tools=[look, slow], session=store).run("go")
    ).ok
    assert ended == [{"look": CallState.DONE, "slow": CallState.RUNNING}]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_is_cancelled_while_a_step_is_stored_writes_it_once(tmp_path: Path):
    async def act() -> str:
        """Act."""
        return "acted"

    class Cancels(Mortal):
        async def commit(self, changes: Changes) -> Committed:
            self._left -= 1
            if self._left == -1 and (task := asyncio.current_task()) is not None:
                asyncio.get_running_loop().call_soon(task.cancel)
            return await self._store.commit(changes)

    for steps in range(6):
        async with SQLiteSession(tmp_path / f"{steps}.session") as store:
            one = supervisor(call("act"), "Done.", tools=[act], session=Cancels(store, steps, after=False))
            await asyncio.wait([asyncio.ensure_future(one.run("go"))])
            said = [said_of(node) for node in await store.nodes() if node.kind is NodeKind.MESSAGE]
            assert len({str(one) for one in said}) == len(said)
            assert await store.verify() == ()
            assert not [one for one in await store.calls() if one.open]

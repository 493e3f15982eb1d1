"""A fleet on DBOS: real workers on a real queue, on SQLite and once on PostgreSQL."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from monitor.chunks import ToolCall
from monitor.errors import (
    ConfigError,
    SessionBusy,
    SessionDamaged,
    SessionLost,
    SessionNotFound,
    SessionUnavailable,
    StoreError,
)
from monitor.fleet import (
    FolderControl,
    FolderSessions,
    PostgresControl,
    PostgresSessions,
    Receipt,
    StepPostponed,
    Supervisors,
    receipts_in,
    take_turn,
)
from monitor.fleet.control import RUN, TURN
from monitor.messages import ApprovalAnswer, AssistantMessage
from monitor.models import ModelRequest
from monitor.runs import ToolCalls
from monitor.testing import Pause, Stall
from monitor.tools import Approval
from tests.databases import postgres
from tests.fleet.fleets import Effects, supervisors

pytest.importorskip("dbos")

from monitor.integrations import _fleet_runs as fleet_runs
from monitor.integrations import dbos as integration
from monitor.integrations._fleet_runs import Heartbeats
from monitor.integrations.dbos import Fleet

pytestmark = pytest.mark.asyncio
POLL_S = 0.02


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    made = fleet_at(tmp_path)
    yield made
    await made.aclose()


def fleet_at(folder: Path, **options: Any) -> Fleet:
    control = FolderControl(folder)
    return Fleet(f"sqlite:///{folder / 'fleet.db'}", FolderSessions(folder), control=control, poll_s=POLL_S, **options)


def short(request: ModelRequest) -> Any:
    """A call, and then the answer."""
    said = any(isinstance(one, AssistantMessage) for one in request.messages)
    return "All is done." if said else ToolCall("1", "send", {"to": "Ada"})


def brief(effects: Effects) -> Supervisors:
    return supervisors(effects, model=short, outputs=None)


def slow(stall: Any, effects: Effects | None = None) -> Supervisors:
    return supervisors(effects or Effects(), model=lambda _: [stall, "Too late."])


async def test_each_run_ends_once_and_one_key_is_one_run(fleet: Fleet, tmp_path: Path):
    effects = Effects()
    ids = [await fleet.submit("writer", f"Write letter {n}.", key=f"letter {n}") for n in range(3)]
    assert await fleet.submit("writer", "Write letter 0.", key="letter 0") == ids[0]
    async with fleet.work(brief(effects), worker="w"):
        ends = [await fleet.result(id) for id in ids]
        assert await fleet.submit("writer", "Write letter 0.", key="letter 0") == ids[0]
        assert await fleet.result(ids[0]) == ends[0]
    assert [(one.next, one.ok, one.turn) for one in ends] == [("end", True, 2)] * 3
    assert len(effects.made) == len(set(effects.made)) == 3
    stored = [await receipts_in(FolderSessions(tmp_path), id) for id in ids]
    assert [one[-1] for one in stored] == ends
    with pytest.raises(ConfigError, match="another job"):
        await fleet.submit("writer", "Write something else.", key="letter 0")


async def test_a_worker_that_leaves_hands_its_runs_to_the_next_one(fleet: Fleet):
    stall = Stall()
    id = await fleet.submit("writer", "Write.", key="a")
    async with fleet.work(slow(stall), worker="w", grace_s=0.05):
        await stall.reached()
    async with fleet.work(supervisors(Effects()), worker="w"):
        receipt = await fleet.result(id)
    assert (receipt.ok, receipt.turns) == (True, 4)


async def test_a_worker_that_leaves_finishes_its_turns(fleet: Fleet, tmp_path: Path):
    pause = Pause()
    id = await fleet.submit("writer", "Write.", key="a")
    async with fleet.work(slow(pause), worker="w"):
        await pause.reached()
        pause.release()
    assert [one.turns for one in await receipts_in(FolderSessions(tmp_path), id)] == [1]


async def test_an_abort_ends_a_run_that_is_carried_out_and_one_that_waits_in_the_queue(fleet: Fleet):
    stall = Stall()
    ids = [await fleet.submit("writer", "Write.") for _ in range(2)]
    async with fleet.work(slow(stall), worker="w", concurrency=1):
        await stall.reached()
        async with anyio.create_task_group() as group:
            for id in ids:
                group.start_soon(fleet.abort, id, "not needed")
        receipts = [await fleet.result(id) for id in ids]
    assert {(one.next, one.reason, one.detail) for one in receipts} == {("end", "aborted", "not needed")}
    assert sorted(one.turns for one in receipts) == [0, 1]


async def test_a_run_that_waits_for_a_person_holds_no_place_in_the_queue(fleet: Fleet, tmp_path: Path):
    effects = Effects()
    known = supervisors(effects, model=short, outputs=None, calls=ToolCalls(approval="default"))
    answered, other = [await fleet.submit("writer", "Write.", key=key) for key in ("answered", "other")]
    async with fleet.work(known, worker="w", concurrency=1):
        assert [(await fleet.result(id)).next for id in (answered, other)] == ["wait", "wait"]
        async with FolderSessions(tmp_path).open(answered) as store:
            (asked,) = await store.approvals(only_open=True)
        await fleet.answer(answered, ApprovalAnswer(id=asked.request.id, decision="approved"))
        assert (await fleet.result(answered)).ok
        await fleet.abort(other, "nobody answers")
        assert (await fleet.result(other)).reason == "aborted"
    assert len(effects.made) == 1


async def test_a_question_that_expires_lets_the_run_go_on(fleet: Fleet, tmp_path: Path):
    effects = Effects()
    known = supervisors(
        effects, model=short, outputs=None, calls=ToolCalls(approval=Approval(mode="default", expires_s=0.3))
    )
    id = await fleet.submit("writer", "Write.")
    async with fleet.work(known, worker="w"):
        while (await fleet.result(id)).next != "end":  # noqa: ASYNC110 - a fleet has no event for it
            await anyio.sleep(POLL_S)
    receipts = await receipts_in(FolderSessions(tmp_path), id)
    assert receipts[0].next == "wait"
    assert (receipts[-1].ok, effects.made) == (True, [])


async def test_an_answer_that_comes_before_its_workflow_is_over_is_not_lost(fleet: Fleet, tmp_path: Path):
    known = supervisors(Effects(), model=short, outputs=None, calls=ToolCalls(approval="default"))
    id = await fleet.submit("writer", "Write.")
    async with fleet.work(known, worker="w"):
        assert (await fleet.result(id)).next == "wait"
        async with FolderSessions(tmp_path).open(id) as store:
            (asked,) = await store.approvals(only_open=True)
        states = iter(["PENDING"])
        goes_on = fleet._goes_on

        async def first_too_early(session: str) -> str:
            return next(states, None) or await goes_on(session)

        fleet._goes_on = first_too_early  # type: ignore[method-assign]
        await fleet.answer(id, ApprovalAnswer(id=asked.request.id, decision="approved"))
        assert (await fleet.result(id)).ok


async def test_a_run_whose_workflow_has_failed_goes_on_when_it_is_asked_to(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
):
    effects = Effects()
    id = await fleet.submit("writer", "Write.", key="a")
    turn = integration._Worker.turn

    async def fails_once(worker: Any, session: str, number: int) -> str:
        if number == 2 and len(effects.made) == 1 and not failed:
            failed.append(number)
            raise ConfigError("it fails")
        return await turn(worker, session, number)

    failed: list[int] = []
    monkeypatch.setattr(integration._Worker, "turn", fails_once)
    async with fleet.work(brief(effects), worker="w"):
        with pytest.raises(Exception, match="it fails"):
            await fleet.result(id)
        await fleet.go_on(id)
        assert (await fleet.result(id)).ok
    assert (failed, len(effects.made)) == ([2], 1)


async def test_a_store_that_is_away_for_long_ends_no_run(fleet: Fleet, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(integration, "POSTPONED_S", 0.001)
    away: list[StoreError] = [
        *[SessionBusy("a", None), SessionLost("taken over")] * 10,
        *[SessionUnavailable("the server is away"), StepPostponed("no budget")] * 15,
    ]

    async def taken(*args: Any, **options: Any) -> Receipt:
        if away:
            raise away.pop()
        return await take_turn(*args, **options)

    monkeypatch.setattr("monitor.integrations.dbos.take_turn", taken)
    effects = Effects()
    id = await fleet.submit("writer", "Write.")
    async with fleet.work(brief(effects), worker="w"):
        assert (await fleet.result(id)).ok
    assert (away, len(effects.made)) == ([], 1)


@pytest.mark.parametrize(
    "refusal", [SessionDamaged("it is damaged"), SessionNotFound("it is gone"), StoreError("no such value")], ids=repr
)
async def test_a_refusal_of_the_store_fails_its_run_at_once(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, refusal: StoreError
):
    async def refused(*_: Any, **__: Any) -> Receipt:
        raise refusal

    monkeypatch.setattr("monitor.integrations.dbos.take_turn", refused)
    id = await fleet.submit("writer", "Write.")
    async with fleet.work(brief(Effects()), worker="w"):
        with pytest.raises(type(refusal), match=str(refusal)):
            await fleet.result(id)
    assert [one.state for one in await fleet.list()] == ["failed"]


async def test_a_run_waits_for_a_worker_that_has_its_version(fleet: Fleet):
    id = await fleet.submit("writer", "Write.", version="2")
    async with fleet.work(brief(Effects()), worker="w"):
        with anyio.move_on_after(0.3):
            await fleet.result(id)
            pytest.fail("another version has carried out the run")
    newer = Supervisors()
    newer.add("writer", brief(Effects()).find("writer", "1"), version="3", also=["2"])
    async with fleet.work(newer, worker="w"):
        assert (await fleet.result(id)).ok


async def test_a_partition_is_given_where_runs_are_counted_by_partition(fleet: Fleet, tmp_path: Path):
    with pytest.raises(ConfigError, match="partition"):
        await fleet.submit("writer", "Write.", partition="tenant")
    parted = fleet_at(tmp_path, partition_concurrency=1)
    with pytest.raises(ConfigError, match="partition"):
        await parted.submit("writer", "Write.")
    ids = [await parted.submit("writer", "Write.", key=f"{n}", partition=f"tenant {n % 2}") for n in range(2)]
    async with parted.work(brief(Effects()), worker="w"):
        assert all([(await parted.result(id)).ok for id in ids])
    await parted.aclose()


async def test_a_run_that_was_never_submitted_is_not_found(fleet: Fleet):
    with pytest.raises(StoreError, match="has no run"):
        await fleet.result("0" * 32)


async def test_what_cannot_work_is_refused(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with pytest.raises(ConfigError, match="needs a supervisor"):
        async with fleet.work(Supervisors(), worker="w"):
            pass
    with pytest.raises(ConfigError, match="concurrency"):
        async with fleet.work(supervisors(Effects()), worker="w", concurrency=0):
            pass
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 40, 1))
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    with pytest.raises(ConfigError, match=r"SQLite 3\.42"):
        fleet_at(tmp_path)


async def test_the_names_in_the_database_stay_as_they_are():
    assert (RUN, TURN, integration.APP_VERSION) == (
        "agent_monitor.run",
        "agent_monitor.turn",
        "1",
    )
    assert integration.queue_of("writer", "2") == "writer/2"
    assert [integration.workflow_of("s", turn) for turn in (1, 4)] == ["s", "s.4"]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres() as address:
        yield address


async def test_a_fleet_on_postgresql(database: str, tmp_path: Path):
    effects = Effects()
    fleet = Fleet(database, FolderSessions(tmp_path), control=FolderControl(tmp_path), poll_s=POLL_S)
    stall = Stall()
    id = await fleet.submit("writer", "Write.", key="a")
    async with fleet.work(slow(stall), worker="w", grace_s=0.05):
        await stall.reached()
    async with fleet.work(supervisors(effects), worker="w"):
        receipt = await fleet.result(id)
    await fleet.aclose()
    assert (receipt.ok, receipt.turns, len(effects.made)) == (True, 4, 4)


@pytest.mark.parametrize("how", ["it has left", "it was killed"])
async def test_the_runs_of_a_worker_whose_name_never_comes_back_are_adopted(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fleet, effects, stall = fleet_at(tmp_path, silent_s=0.3), Effects(), Stall()
    if how == "it was killed":  # it says nothing any more
        monkeypatch.setattr(Heartbeats, "end", lambda *_: None)
    ids = [await fleet.submit("writer", "Write.", key=key) for key in "abc"]
    async with fleet.work(slow(stall), grace_s=0.05):
        await stall.reached()
    assert {one.state for one in await fleet.list()} <= {"running", "queued"}
    async with fleet.work(supervisors(effects)):
        receipts = [await fleet.result(id) for id in ids]
    await fleet.aclose()
    assert [(one.ok, one.turns) for one in receipts] == [(True, 4)] * 3
    assert len(effects.made) == len(set(effects.made)) == 12


async def test_runs_are_listed_by_their_state_and_go_on_when_they_are_asked_to(fleet: Fleet, tmp_path: Path):
    known = supervisors(Effects(), model=short, outputs=None, calls=ToolCalls(approval="default"))
    asks, other = [await fleet.submit("writer", "Write.", key=key) for key in ("asks", "other")]
    assert {(one.session, one.state, one.worker) for one in await fleet.list()} == {
        (asks, "queued", None),
        (other, "queued", None),
    }
    async with fleet.work(known, worker="w", concurrency=1):
        for id in (asks, other):
            await fleet.result(id)
        await fleet.abort(other, "not needed")
        await fleet.result(other)
        (waits,) = await fleet.list(state="waits")
        (ended,) = await fleet.list(state="ended")
        assert (waits.session, ended.session) == (asks, other)
        with pytest.MonkeyPatch.context() as paged:
            paged.setattr(fleet_runs, "PAGE", 1)
            assert list(await fleet.list()) == [*await fleet.list(state="ended"), *await fleet.list(state="waits")]
            assert [one.session for one in await fleet.list(state="waits", limit=1)] == [asks]
        assert waits.receipt is not None
        assert (waits.receipt.reason, waits.queue, waits.worker) == ("paused", "writer/1", "w")
        await fleet.go_on(asks)
        assert (await fleet.result(asks)).next == "wait", "nobody has answered"


async def test_a_fleet_with_its_sessions_on_postgresql_needs_no_folder(database: str):
    sessions, control, effects = PostgresSessions(database), PostgresControl(database), Effects()
    fleet = Fleet(database, sessions, control=control, poll_s=POLL_S)
    known = supervisors(effects, model=short, outputs=None, calls=ToolCalls(approval="default"))
    id = await fleet.submit("writer", "Write.")
    async with fleet.work(known):
        assert (await fleet.result(id)).next == "wait"
        async with sessions.open(id) as store:
            (asked,) = await store.approvals(only_open=True)
        await fleet.answer(id, ApprovalAnswer(id=asked.request.id, decision="approved"))
        assert (await fleet.result(id)).ok
    await fleet.aclose()
    sessions.close()
    control.close()
    assert len(effects.made) == 1

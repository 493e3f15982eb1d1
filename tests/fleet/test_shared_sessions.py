"""A fleet's sessions and what is said to them, in PostgreSQL: for workers on many hosts."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from monitor.errors import ConfigError, SessionBusy, StoreError
from monitor.fleet import (
    Control,
    FleetJob,
    PostgresControl,
    PostgresSessions,
    Sessions,
    enter,
    receipts_in,
    session_id,
    take_turn,
)
from monitor.fleet.jobs import job_of
from monitor.messages import ApprovalAnswer
from tests import databases
from tests.fleet.fleets import Effects, supervisors

pytestmark = pytest.mark.anyio
STORES: tuple[type[Sessions], type[Control]] = (PostgresSessions, PostgresControl)
"""What a type checker proves: each is whole."""
JOB = FleetJob(supervisor="writer", version="1", task="Write.")
ANSWERS = [ApprovalAnswer(id=str(n), decision="approved", reason="\ud800 why not") for n in range(3)]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with databases.postgres() as address:
        yield address


@pytest.fixture
def sessions(address: str) -> Iterator[PostgresSessions]:
    made = PostgresSessions(address)
    yield made
    made.close()


async def test_a_job_is_entered_once_and_seen_while_a_worker_has_it(sessions: PostgresSessions):
    id = session_id()
    assert await sessions.look(id) == ()
    with pytest.raises(StoreError, match="there is no session"):
        async with sessions.open(id):
            pass
    assert await enter(sessions, id, JOB)
    async with sessions.open(id):
        assert job_of(await sessions.look(id)) == JOB
        assert not await enter(sessions, id, JOB)
        with pytest.raises(SessionBusy):
            async with sessions.open(id):
                pass
    with pytest.raises(ConfigError, match="another job"):
        await enter(sessions, id, FleetJob(supervisor="writer", version="2", task="Write."))


async def test_turns_of_workers_on_two_hosts_follow_each_other(address: str, sessions: PostgresSessions):
    id, effects = session_id(), Effects()
    await enter(sessions, id, JOB)
    others = PostgresSessions(address)
    hosts = (others, sessions, others, sessions)
    receipts = [await take_turn(supervisors(effects), host, id, turn) for turn, host in enumerate(hosts, 1)]
    assert await take_turn(supervisors(effects), others, id, 2) == receipts[1]
    assert (receipts[-1].next, receipts[-1].ok, len(effects.made)) == ("end", True, 4)
    assert await receipts_in(sessions, id) == receipts
    others.close()


async def test_an_abort_that_another_host_has_stored_ends_the_run(address: str, sessions: PostgresSessions):
    id = session_id()
    await enter(sessions, id, JOB)
    said, heard = PostgresControl(address), PostgresControl(address)
    said.abort(id, "not needed")
    receipt = await take_turn(supervisors(Effects()), sessions, id, 1, control=heard)
    assert (receipt.next, receipt.reason, receipt.detail) == ("end", "aborted", "not needed")
    said.close()
    heard.close()


def test_what_one_process_says_another_one_reads(address: str):
    said, heard, session = PostgresControl(address), PostgresControl(address), uuid4().hex
    assert (heard.aborted(session), list(heard.answers(session))) == (None, [])
    said.abort(session, "enough")
    said.abort(session, "the first reason stays")
    for answer in ANSWERS:
        said.answer(session, answer)
    assert heard.aborted(session) == "enough"
    assert list(heard.answers(session)) == ANSWERS
    assert (heard.aborted("b"), list(heard.answers("b"))) == (None, [])
    for control in (said, heard):
        control.close()
    with pytest.raises(ConfigError):
        said.abort("a/b", "no name")

"""A session in PostgreSQL has one owner and takes no late write, wherever a process or a connection
dies.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import psycopg
import pytest

from monitor.errors import SessionBusy, SessionLost, SessionTooNew, SessionUnavailable, StoreError
from monitor.messages import CallState, SteerMessage
from monitor.sessions import Changes, PostgresSession, RunRecord
from monitor.sessions.postgres.postgres_session import this_boot
from monitor.sessions.postgres.statements import FORMAT
from tests import databases
from tests.sessions.making import call, says

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with databases.postgres() as address:
        yield address


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock files of owners stand in a folder of the test."""
    monkeypatch.setenv("AGENT_MONITOR_SESSIONS", str(tmp_path))


@pytest.fixture
def opened(address: str) -> Callable[..., PostgresSession]:
    name = uuid4().hex
    return lambda **options: PostgresSession(address, name, **options)


def asked(address: str, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Ask the server beside the session."""
    with psycopg.connect(address, autocommit=True) as db:
        done = db.execute(sql.encode(), values)
        return done.fetchall() if done.description else []


def end_lease(session: PostgresSession) -> None:
    """Let the lease end, as if its owner had been silent for 15 seconds."""
    asked(
        session.address,
        "update monitor_sessions set lease_until = clock_timestamp() - interval '1 ms' where name = %s",
        session.name,
    )


async def texts(session: PostgresSession) -> list[str]:
    return [node.data["content"][0]["text"] for node in await session.nodes()]


# ------------------------------------------------------------------ one owner


async def test_a_second_owner_is_told_who_has_it_and_gets_it_when_the_first_one_closes(opened: Any):
    async with opened() as first:
        await first.append(says("a"))
        with pytest.raises(SessionBusy, match=r"in use by process \d+ on .*: its lease ends in 1\d seconds"):
            await opened().__aenter__()
    async with opened() as second:
        assert (second.id, await texts(second)) == (first.id, ["a"])


async def test_of_many_that_want_the_session_of_a_dead_owner_one_gets_it(opened: Any):
    dead = opened()
    await dead.__aenter__()
    end_lease(dead)
    got: list[PostgresSession] = []

    async def take() -> None:
        session = opened()
        try:
            await session.__aenter__()
        except SessionBusy:
            return
        got.append(session)

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(take)
    assert len(got) == 1
    await got[0].aclose()
    await dead.aclose()


@pytest.mark.parametrize("how", ["its lease has ended", "it was taken over"])
async def test_an_owner_that_wakes_up_too_late_writes_nothing(opened: Any, how: str):
    async with opened() as old:
        await old.commit(Changes(nodes=[says("a")], runs=[RunRecord(id="r")]))
        if how == "its lease has ended":
            end_lease(old)
        async with opened(takeover=how == "it was taken over") as new:
            await new.append(says("b"))
            writes: list[Callable[[], Any]] = [
                lambda: old.append(says("late")),
                lambda: old.commit(Changes(runs=[RunRecord(id="late")])),
                lambda: old.intend([call("late")]),
                lambda: old.switch_node(None),
            ]
            for write in writes:
                with pytest.raises(SessionLost, match=r"was taken over by process \d+"):
                    await write()
            assert await texts(new) == ["a", "b"]
            assert [run.id for run in await new.runs()] == ["r"]
            assert await new.calls() == ()
        with pytest.raises(SessionLost):
            await old.append(says("later still"))


async def test_an_owner_whose_lease_has_ended_goes_on_while_nobody_has_taken_it(opened: Any):
    async with opened() as session:
        end_lease(session)
        await session.append(says("a"))
        with pytest.raises(SessionBusy):
            await opened().__aenter__()


_WRITES: Any = """
import anyio, os, sys
from monitor.sessions import PostgresSession
from tests.sessions.making import says

async def write():
    async with PostgresSession(sys.argv[1], sys.argv[2], wait_s=20) as session:
        stored = len(await session.nodes())
        while True:
            await session.append(says(str(stored)))
            stored += 1
            print(stored, flush=True)

for line in sys.stdin:
    if not (child := os.fork()):
        print(-os.getpid(), flush=True)
        anyio.run(write)
    os.waitpid(child, 0)
    print(0, flush=True)
"""
"""A process that has another one write nodes until it is killed, for each line that it reads."""


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_nothing_of_a_process_that_is_killed_while_it_writes_is_lost(opened: Any, address: str):
    kills, chance, stored = 20, random.Random(7), 0
    command = [sys.executable, "-c", _WRITES, address, opened().name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for _ in range(kills):
            print("write", file=writer.stdin, flush=True)
            acknowledged = chance.randrange(6)
            said = [int(writer.stdout.readline())]
            owner = -said[0]
            assert owner > 1
            while len(said) <= acknowledged:
                said.append(int(writer.stdout.readline()))
            if acknowledged > 3:
                with pytest.raises(SessionBusy, match=f"process {owner} "):
                    await opened().__aenter__()
            os.kill(owner, signal.SIGKILL)
            while said[-1] != 0:
                said.append(int(writer.stdout.readline()))
            stored = max(stored, *said)
            if not this_boot():  # the system does not say which kernel runs
                end_lease(opened())
        writer.stdin.close()
    async with opened() as session:
        found = await texts(session)
        assert found == [str(n) for n in range(len(found))]
        assert 0 < stored <= len(found) <= stored + kills
        assert await session.verify() == ()


async def test_a_waiting_owner_takes_the_session_when_its_lease_ends(opened: Any):
    found: list[str] = []
    async with opened() as old, anyio.create_task_group() as group:

        async def wait() -> None:
            async with opened(wait_s=30) as new:
                await new.append(says("taken"))
                found.extend(await texts(new))

        group.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        end_lease(old)
    assert found == ["taken"]


# ------------------------------------------------------------------ connections that break


async def test_a_step_whose_answer_was_lost_is_stored_once(opened: Any, monkeypatch: Any):
    async with opened() as session:
        database: Any = session._database
        once = database._once
        lost: list[Any] = []

        def lose(work: Any) -> Any:
            done = once(work)
            if not lost and "_store" in repr(work):
                lost.append(done)
                raise psycopg.OperationalError("the connection was lost")
            return done

        monkeypatch.setattr(database, "_once", lose)
        await session.append(says("a"))
        await session.append(says("b"))
        assert len(lost) == 1
        assert await texts(session) == ["a", "b"]
        assert await session.verify() == ()


async def test_connections_that_the_server_has_closed_are_made_anew(opened: Any, address: str):
    async with opened() as session:
        for number in range(4):
            await session.commit(Changes(nodes=[says(str(number))], calls=[call(str(number))]))
            asked(address, "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")
            assert await session.advance(call(str(number), state=CallState.RUNNING))
        assert await texts(session) == ["0", "1", "2", "3"]
        assert len(await session.calls()) == 4


async def test_a_step_that_does_not_fit_leaves_nothing_in_memory_either(opened: Any):
    async with opened() as session:
        await session.append(says("a"))
        with pytest.raises(StoreError, match="the run nobody is not in the session"):
            await session.commit(Changes(nodes=[says("b"), says("c", run="nobody")]))
        await session.append(says("d"))
        assert await texts(session) == ["a", "d"]
        assert await session.verify() == ()


async def test_a_cancelled_write_says_that_it_is_stored(opened: Any):
    async with opened() as session:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await session.append(says("a"))
        assert await texts(session) == ["a"]


async def test_a_server_that_is_not_there_is_said_at_once():
    with pytest.raises(SessionUnavailable, match="cannot be used"):
        await PostgresSession("postgresql://127.0.0.1:1/none", "a").__aenter__()


async def test_a_fork_does_not_use_the_connections_of_its_parent(opened: Any):
    async with opened() as session:
        session._database.pid += 1
        with pytest.raises(SessionLost, match="forked"):
            await session.append(says("a"))
        session._database.pid -= 1


# ------------------------------------------------------------------ the database


async def test_commits_reach_the_disk_whatever_the_role_has_set(opened: Any, address: str):
    asked(address, "alter role current_user set synchronous_commit = off")
    try:
        async with opened() as session:
            found = session._database.run(lambda one: one.execute("show synchronous_commit").fetchone())
            assert found == ("on",)
    finally:
        asked(address, "alter role current_user reset synchronous_commit")


async def test_tables_of_a_newer_version_are_left_alone(opened: Any, address: str):
    async with opened():
        pass
    asked(address, "update monitor_sessions_format set format = %s", FORMAT + 1)
    try:
        with pytest.raises(SessionTooNew):
            await opened().__aenter__()
    finally:
        asked(address, "update monitor_sessions_format set format = %s", FORMAT)


async def test_processes_that_begin_together_make_the_tables_once(address: str):
    name = f"fresh_{uuid4().hex}"
    asked(address, f"create database {name}")
    fresh = f"{address.partition('?')[0].rsplit('/', 1)[0]}/{name}?{address.partition('?')[2]}"
    program = (
        "from monitor.sessions.postgres.database import Database\n"
        f"one = Database({fresh!r})\n"
        "one.run(lambda db: None)\n"
        "one.close()\n"
    )
    programs = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]
    assert [await anyio.to_thread.run_sync(one.wait) for one in programs] == [0, 0, 0]
    assert asked(fresh, "select format from monitor_sessions_format") == [(FORMAT,)]


async def test_a_step_is_one_statement_and_the_cost_of_the_next_one_does_not_grow(opened: Any):
    async with opened() as session:
        database: Any = session._database
        said: list[str] = []
        connection = database._idle[0]
        execute = connection.execute

        def counted(sql: Any, *values: Any) -> Any:
            said.append(str(sql))
            return execute(sql, *values)

        connection.execute = counted
        await session.commit(Changes(nodes=[says("a")], runs=[RunRecord(id="r")]))
        for number in range(3):
            said.clear()
            await session.commit(Changes(nodes=[says("more", run="r", turn=number)]))
            assert len(said) == 1


async def test_a_letter_of_another_process_is_read_within_a_second_and_once(opened: Any):
    async with opened() as session:
        assert session.mailbox.letters() == []
        other = opened().mailbox
        other.connect(session._database)
        sent = await anyio.to_thread.run_sync(other.put, "r", SteerMessage(id="m", text="stop there"))
        await session.mailbox.look()
        found = session.mailbox.letters()
        assert found == [sent]
        session.mailbox.remove(found)
        assert session.mailbox.letters() == []
    async with opened() as session:
        rows = session._database.run(lambda one: one.execute("select * from monitor_letters").fetchall())
        assert rows == []


async def test_an_owner_without_a_folder_of_its_own_has_just_its_lease(opened: Any, monkeypatch: pytest.MonkeyPatch):
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("AGENT_MONITOR_SESSIONS")
    for name in ("XDG_STATE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    async with opened() as session:
        await session.append(says("a"))
        with pytest.raises(SessionBusy, match="its lease ends"):
            await opened().__aenter__()


@pytest.mark.parametrize("change", [{"boot": "another"}, {"boot": ""}, {"nonce": "../../x"}, {"nonce": "0" * 32}])
async def test_an_owner_of_which_nothing_is_known_has_its_lease(opened: Any, change: dict[str, str]):
    dead = opened()
    await dead.__aenter__()
    dead._proof.give_up()  # its process has gone
    row = json.loads(dead._holder) | change
    asked(dead.address, "update monitor_sessions set holder = %s where name = %s", json.dumps(row), dead.name)
    told: list[SessionBusy] = []
    with pytest.raises(SessionBusy):
        await opened(waits=told.append, wait_s=0.3).__aenter__()
    assert [one.why[:13] for one in told] == ["its lease end"]
    await dead.aclose()

"""One owner at a time: locks, takeovers, and what an owner that was replaced can still do."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from monitor.errors import SessionBusy, SessionLost, SessionOwner, SessionUnavailable, StoreError
from monitor.sessions import SessionReader, SQLiteSession
from monitor.sessions.lock import OwnerLock, live_owner, lock_path, owner_of, this_process
from tests.sessions.making import says

pytestmark = [pytest.mark.anyio, pytest.mark.feature("AC-01")]

OWNER = """
import sys
import anyio
from monitor.errors import StoreError
from monitor.sessions import SQLiteSession
from tests.sessions.making import says

async def main(path):
    async with SQLiteSession(path) as session:
        await session.append(says("of the first owner"))
        print("open", flush=True)
        for line in sys.stdin:
            try:
                await session.append(says(line.strip()))
                print("stored", flush=True)
            except StoreError as error:
                print(type(error).__name__, flush=True)

anyio.run(main, sys.argv[1])
"""
ROOT = Path(__file__).parents[2]


@contextmanager
def owner(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the session open."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


async def texts(session: Any) -> list[str]:
    return [node.data["content"][0]["text"] for node in await session.nodes()]


async def test_a_second_owner_is_refused_and_told_who_has_it(path: Path):
    with owner(path) as process:
        with pytest.raises(SessionBusy) as refused:
            await SQLiteSession(path).__aenter__()
        found = refused.value.owner
        assert found is not None
        assert found.pid == process.pid
        assert found.program == "-c"
        assert f"process {process.pid}" in str(refused.value)
        assert ask(process, "goes on") == "stored"


async def test_in_one_process_too_there_is_one_owner(path: Path):
    async with SQLiteSession(path):
        with pytest.raises(SessionBusy):
            await SQLiteSession(path).__aenter__()
    async with SQLiteSession(path) as session:
        with pytest.raises(StoreError, match="open already"):
            await session.__aenter__()


async def test_a_killed_owner_is_followed_at_once_and_nothing_is_lost(path: Path):
    with owner(path) as process:
        assert ask(process, "second") == "stored"
        process.kill()
        process.wait()
        async with SQLiteSession(path) as session:
            assert await texts(session) == ["of the first owner", "second"]
            assert await session.verify() == ()


async def test_who_waits_gets_the_session_when_the_owner_dies(path: Path):
    with owner(path) as process:
        async with anyio.create_task_group() as group:

            async def kill() -> None:
                await anyio.to_thread.run_sync(process.kill)

            group.start_soon(kill)
            async with SQLiteSession(path, wait_s=20) as session:
                assert await texts(session) == ["of the first owner"]


async def test_a_stopped_owner_that_wakes_up_writes_nothing(path: Path):
    with owner(path) as process:
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(SessionBusy):
            await SQLiteSession(path).__aenter__()
        async with SQLiteSession(path, takeover=True) as session:
            os.kill(process.pid, signal.SIGCONT)
            assert ask(process, "from the grave") == "SessionLost"
            assert ask(process, "once more") == "SessionLost"
            await session.append(says("of the new owner"))
            assert await texts(session) == ["of the first owner", "of the new owner"]
        process.communicate()  # it closes what it has, while nobody else has the file open
        async with SQLiteSession(path) as session:
            assert await texts(session) == ["of the first owner", "of the new owner"]
            assert await session.verify() == ()


async def test_taking_over_counts_at_once_and_not_at_the_first_write(path: Path):
    async with SQLiteSession(path) as old:
        await old.append(says("a"))
        async with SQLiteSession(path, takeover=True) as new:
            with pytest.raises(SessionLost, match="taken over by process"):
                await old.append(says("b"))
            await new.append(says("c"))
            assert await texts(new) == ["a", "c"]
            with pytest.raises(SessionBusy):
                await SQLiteSession(path).__aenter__()
        await old.aclose()
    with SessionReader(path) as reader:
        assert len(reader.nodes()) == 2
        assert reader.verify() == ()


RACER = (
    OWNER.replace("        for line in sys.stdin:", "        sys.stdin.read()\n        for line in ():").replace(
        "anyio.run(main, sys.argv[1])", "try:\n    anyio.run(main, sys.argv[1])"
    )
    + "except StoreError as error:\n    print(type(error).__name__, flush=True)\n"
)


def test_of_processes_that_race_one_wins(path: Path):
    """Exactly one is the owner, and what it stored is there."""
    command = [sys.executable, "-c", RACER, str(path)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    processes = [subprocess.Popen(command, **pipes) for _ in range(3)]
    said = [process.stdout.readline().strip() for process in processes if process.stdout]
    for process in processes:
        process.communicate()
    assert sorted(said) == ["SessionBusy", "SessionBusy", "open"]
    with SessionReader(path) as reader:
        assert len(reader.nodes()) == 1


def test_a_race_within_one_process_has_one_winner_each_time(path: Path):
    """A hundred rounds of what processes do: each opens the lock file by itself."""
    for _ in range(100):
        locks = [OwnerLock(lock_path(path), "a") for _ in range(2)]
        won: list[OwnerLock] = []

        def acquire(lock: OwnerLock, won: list[OwnerLock] = won) -> None:
            with contextlib.suppress(SessionBusy):
                lock.acquire()
                won.append(lock)

        with ThreadPoolExecutor() as threads:
            list(threads.map(acquire, locks))
        assert len(won) == 1
        won[0].release()


async def test_liveness_is_the_lock_and_no_host_name(path: Path):
    async with SQLiteSession(path) as session:
        await session.append(says("a"))
    lock = lock_path(path)
    owner = {"pid": 1, "started_at_s": 0.0, "host": "elsewhere", "program": "p"}
    lock.write_text(json.dumps({"agent_monitor": "the lock of a session", **owner}))
    assert owner_of(lock) == SessionOwner(pid=1, started_at_s=0.0, host="elsewhere", program="p")
    assert live_owner(lock) is None
    async with SQLiteSession(path) as session:  # a container that was restarted has another name
        assert await texts(session) == ["a"]
        assert live_owner(lock) == owner_of(lock) != None  # noqa: E711


def test_a_forked_child_keeps_no_lock(path: Path):
    lock = OwnerLock(lock_path(path), "a")
    lock.acquire()
    ours, theirs = os.pipe()
    begun, begins = os.pipe()
    if (child := os.fork()) == 0:  # it outlives its parent's session
        os.close(theirs)
        os.write(begins, b"x")
        os.read(ours, 1)
        os._exit(1 if lock.held else 0)
    os.read(begun, 1)
    lock.release()
    with OwnerLock(lock_path(path), "a") as next_owner:
        assert next_owner.held
    os.write(theirs, b"x")
    assert os.waitpid(child, 0)[1] == 0
    for end in (ours, theirs, begun, begins):
        os.close(end)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO])
async def test_a_disk_that_cannot_lock_is_named_and_what_to_do(path: Path, monkeypatch: Any, number: int):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("monitor.sessions.lock._lock", refuse)
    with pytest.raises(SessionUnavailable, match=r"local disk|does not answer") as refused:
        await SQLiteSession(path).__aenter__()
    assert "Nothing was changed" in str(refused.value)
    assert not path.exists()


async def test_the_lock_names_its_owner_only_while_there_is_one(path: Path):
    lock = OwnerLock(lock_path(path), "a")
    with lock:
        found = owner_of(lock_path(path))
        assert found is not None
        assert (found.pid, found.host) == (os.getpid(), this_process().host)
        assert lock.held
    assert owner_of(lock_path(path)) is None
    assert not lock.held


async def test_a_lock_file_that_is_a_link_is_not_followed(path: Path, tmp_path: Path):
    (tmp_path / "mine").write_text("precious")
    lock_path(path).symlink_to(tmp_path / "mine")
    with pytest.raises(StoreError, match="lock file"):
        await SQLiteSession(path).__aenter__()
    assert (tmp_path / "mine").read_text() == "precious"


async def test_a_process_that_was_forked_does_not_use_its_parent_s_session(path: Path, monkeypatch: Any):
    async with SQLiteSession(path) as session:
        here = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: here + 1)
        with pytest.raises(SessionLost, match="forked"):
            await session.append(says("a"))
        monkeypatch.undo()
        await session.append(says("b"))

"""The order of the statements of many sessions: it never keeps one of them from going on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from monitor.sessions import SessionReader, SQLiteSession
from monitor.sessions.tables import pacing
from monitor.sessions.tables.marked_folder import BlobFolder
from tests.sessions.making import says

pytestmark = [pytest.mark.feature("AC-01")]


@contextmanager
def a_session_whose_disk_hangs() -> Iterator[None]:
    begun, ended = threading.Event(), threading.Event()

    def hang() -> None:
        with pacing.one_at_a_time():
            begun.set()
            ended.wait()

    thread = threading.Thread(target=hang)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        ended.set()
        thread.join()


async def write(path: Path) -> None:
    async with SQLiteSession(path) as session:
        await session.append(says("hello"))


def test_a_session_goes_on_beside_one_whose_disk_hangs(path: Path):
    with a_session_whose_disk_hangs():
        anyio.run(write, path)
    with SessionReader(path) as reader:
        assert [node.data["content"][0]["text"] for node in reader.active_path()] == ["hello"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_in_the_middle_of_a_step_waits_for_nobody(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pacing, "LONGEST_S", 60.0)
    with a_session_whose_disk_hangs():
        child = os.fork()
        if child == 0:
            try:
                with pacing.one_at_a_time():
                    os._exit(0)
            finally:
                os._exit(1)
        until = time.monotonic() + 60
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < until:
            time.sleep(0.001)
        if ended[0] == 0:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert ended == (child, 0)


def test_a_long_body_is_synced_while_others_go_on(path: Path, monkeypatch: pytest.MonkeyPatch):
    free: list[bool] = []
    put = BlobFolder.put

    def watched(folder: BlobFolder, data: bytes) -> str:
        free.append(not pacing._one.locked())
        return put(folder, data)

    monkeypatch.setattr(BlobFolder, "put", watched)

    async def long() -> None:
        async with SQLiteSession(path) as session:
            await session.append(says("b" * 70_000))

    anyio.run(long)
    assert free == [True]

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from monitor.errors import ToolError, ToolErrorKind
from monitor.tools import workspace as folder_locks
from monitor.tools.workspace import FileContent, Workspace, only_writer

pytestmark = pytest.mark.feature("GT-09")


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    number = os.open(folder, os.O_RDONLY)
    try:
        yield number
    finally:
        os.close(number)


def test_only_one_thread_is_the_writer_of_a_folder(tmp_path: Path):
    within, most = 0, 0
    guard = threading.Lock()

    def write() -> None:
        nonlocal within, most
        with opened(tmp_path) as folder, only_writer(folder):
            with guard:
                within += 1
                most = max(most, within)
            (tmp_path / "file").write_text("x" * 10_000)
            with guard:
                within -= 1

    threads = [threading.Thread(target=write) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert within == 0


def test_a_writer_of_another_process_is_waited_for_and_then_named(tmp_path: Path):
    with opened(tmp_path) as theirs, opened(tmp_path) as mine:
        fcntl.flock(theirs, fcntl.LOCK_EX)  # another open file, as another process has it
        with pytest.raises(ToolError) as caught, only_writer(mine, wait_s=0):
            raise AssertionError("not the only one")
        assert caught.value.kind is ToolErrorKind.WRITE_FAILED
        fcntl.flock(theirs, fcntl.LOCK_UN)
        with only_writer(mine, wait_s=0), pytest.raises(BlockingIOError):
            fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_file_system_without_locks_keeps_the_threads_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError(95, "not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        opened(tmp_path) as one,
        opened(tmp_path) as other,
        only_writer(one),
        pytest.raises(ToolError),
        only_writer(other, wait_s=0),
    ):
        raise AssertionError("not the only one")


def test_no_lock_is_kept_for_a_folder_that_nobody_writes_in(tmp_path: Path):
    before = len(folder_locks._locks)
    with opened(tmp_path) as folder, only_writer(folder):
        assert len(folder_locks._locks) == before + 1
    assert len(folder_locks._locks) == before


def test_what_another_program_changes_meanwhile_is_not_overwritten(tmp_path: Path):
    workspace = Workspace(tmp_path)
    (tmp_path / "a").write_bytes(b"theirs")
    with pytest.raises(ToolError, match="has changed while"):
        workspace.write("a", b"mine", before=FileContent(b"before", 6))
    assert (tmp_path / "a").read_bytes() == b"theirs"
    assert [*tmp_path.iterdir()] == [tmp_path / "a"]
    workspace.write("a", b"mine", before=FileContent(b"theirs", 6))
    assert (tmp_path / "a").read_bytes() == b"mine"

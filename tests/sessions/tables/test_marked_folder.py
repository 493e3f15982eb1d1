"""Whole files in a folder of ours."""

from pathlib import Path

import pytest

from monitor.sessions.tables.marked_folder import write_whole


def test_a_file_is_replaced_and_nothing_stands_beside_it(tmp_path: Path):
    file = tmp_path / "one.json"
    write_whole(file, b"first")
    write_whole(file, b"second", half="half", mode=0o640)
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"second", 0o640)
    assert [*tmp_path.iterdir()] == [file]


def test_a_file_that_cannot_be_replaced_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "one.json"
    write_whole(file, b"first")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, b"second")
    assert [*tmp_path.iterdir()] == [file]
    assert file.read_bytes() == b"first"

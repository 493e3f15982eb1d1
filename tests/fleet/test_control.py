"""What is said beside a session, for the worker that has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.errors import ConfigError, StoreError
from monitor.fleet import FolderControl
from monitor.messages import ApprovalAnswer

ANSWERS = [ApprovalAnswer(id=str(n), decision="approved", reason="\ud800 why not") for n in range(2)]


def test_what_one_process_says_another_one_reads(tmp_path: Path):
    said, heard = FolderControl(tmp_path / "new"), FolderControl(tmp_path / "new")
    assert (heard.aborted("a"), list(heard.answers("a"))) == (None, [])
    said.abort("a", "enough")
    said.abort("a", "the first reason stays")
    for answer in ANSWERS:
        said.answer("a", answer)
    assert heard.aborted("a") == "enough"
    assert sorted(heard.answers("a"), key=lambda one: one.id) == ANSWERS
    assert (heard.aborted("b"), list(heard.answers("b"))) == (None, [])
    assert list((tmp_path / "new").rglob("*.new")) == []


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_file_that_cannot_be_read_is_a_typed_error(tmp_path: Path, text: str):
    (tmp_path / "a.abort").write_text(text)
    with pytest.raises(StoreError, match=r"a\.abort"):
        FolderControl(tmp_path).aborted("a")


def test_a_folder_that_cannot_be_written_is_a_typed_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        FolderControl(tmp_path / "file").abort("a", "why")


def test_answers_are_read_in_the_order_in_which_they_were_given(tmp_path: Path):
    control = FolderControl(tmp_path)
    for number in range(8):
        control.answer("s", ApprovalAnswer(id=str(number), decision="approved"))
    assert [one.id for one in control.answers("s")] == [str(number) for number in range(8)]


@pytest.mark.parametrize("session", ["../other", "a/b", "", "a\n"])
def test_what_is_no_id_names_no_file(session: str, tmp_path: Path):
    with pytest.raises(ConfigError, match="a name is"):
        FolderControl(tmp_path / "control").abort(session, "why")
    assert not (tmp_path / "control").exists()

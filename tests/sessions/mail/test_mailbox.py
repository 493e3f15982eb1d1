"""Messages of other processes wait in a folder beside the session."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.errors import ConfigError, SessionUnavailable
from monitor.messages import SteerMessage
from monitor.sessions import RunRecord, RunStage, SQLiteSession, copy_session, remove, tell
from monitor.sessions.closed_runs import Changes
from monitor.sessions.mail.mailbox import mailbox_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.session"


def test_letters_come_in_the_order_of_sending_and_go_when_they_are_removed(path: Path):
    mailbox = mailbox_of(path)
    assert mailbox.letters() == []
    sent = [mailbox.put("r", SteerMessage(id=f"m{number}", text="hello")) for number in range(30)]
    assert mailbox.letters() == sent
    mailbox.remove(sent[:29])
    mailbox.remove(sent[:29])
    assert mailbox.letters() == [sent[29]]
    with pytest.raises(ConfigError):
        mailbox.put("r", SteerMessage(id="m", text="\n"))


def test_what_is_no_letter_is_left_where_it_is(path: Path):
    mailbox, folder = mailbox_of(path), path.with_name("a.session.mail")
    sent = mailbox.put("r", SteerMessage(id="m", text="hello"))
    (folder / sent.file.replace(sent.file[:4], "9999")).write_text("no letter")
    (folder / "notes.txt").write_text("mine")
    assert mailbox.letters() == [sent]
    mailbox.discard()
    assert [one.name for one in folder.iterdir() if one.name != ".agent-monitor"] == ["notes.txt"]


def test_a_folder_of_somebody_else_is_not_touched(path: Path):
    folder = path.with_name("a.session.mail")
    folder.mkdir()
    with pytest.raises(SessionUnavailable, match="was not made by agent-monitor"):
        mailbox_of(path).put("r", SteerMessage(id="m", text="hello"))
    assert [*folder.iterdir()] == []
    assert mailbox_of(path).letters() == []


async def test_a_session_is_removed_with_its_letters_and_copied_without_them(path: Path):
    async with SQLiteSession(path) as session:
        await session.commit(Changes(runs=[RunRecord(id="r")]))
    assert tell(path, "hello").run == "r"
    copy_session(path, path.with_name("b.session"))
    assert mailbox_of(path.with_name("b.session")).letters() == []
    with pytest.raises(ConfigError, match="no run x"):
        tell(path, "hello", run="x")
    async with SQLiteSession(path) as session:
        await session.commit(Changes(runs=[RunRecord(id="r", state=RunStage.ENDED)]))
    with pytest.raises(ConfigError, match="has ended"):
        tell(path, "hello")
    remove(path)
    assert [one.name for one in path.parent.iterdir() if one.name.startswith("a.")] == []

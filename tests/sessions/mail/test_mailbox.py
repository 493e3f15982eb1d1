"""Messages of other processes wait in a folder beside the session."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.to_thread
import pytest

import monitor
from monitor.errors import ConfigError, SessionUnavailable, StoreError
from monitor.events import SteerReturned
from monitor.messages import SteerMessage
from monitor.sessions import Committed, RunRecord, RunStage, SessionReader, SQLiteSession, copy_session, remove, tell
from monitor.sessions.closed_runs import Changes
from monitor.sessions.mail.mailbox import Letter, MailFolder, mailbox_of
from monitor.testing import ScriptedModel

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
    (folder / f"{sent.file.replace(sent.file[:4], '9999')}.json").write_text("no letter")
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


async def test_a_message_to_a_run_that_ends_meanwhile_is_refused_and_not_left(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with SQLiteSession(path) as session:
        await session.commit(Changes(runs=[RunRecord(id="r")]))

    async def end() -> None:
        async with SQLiteSession(path) as session:
            await session.commit(Changes(runs=[RunRecord(id="r", state=RunStage.ENDED)]))

    put = MailFolder.put

    def ends_before(mailbox: MailFolder, run: str, message: SteerMessage) -> Letter:
        anyio.run(end)
        return put(mailbox, run, message)

    monkeypatch.setattr(MailFolder, "put", ends_before)
    with pytest.raises(ConfigError, match="has ended"):
        await anyio.to_thread.run_sync(tell, path, "hello")
    assert mailbox_of(path).letters() == []


@pytest.mark.parametrize("dies", [False, True])
async def test_a_message_that_comes_while_the_end_is_stored_is_returned(path: Path, *, dies: bool):
    """Also if the process dies between the end and the return: then the next run returns it."""
    late = SteerMessage(id="late", text="and b")

    class Slow(SQLiteSession):
        async def commit(self, changes: Changes) -> Committed:
            done = await super().commit(changes)
            if any(run.state is RunStage.ENDED for run in changes.runs) and not mailbox_of(path).letters():
                mailbox_of(path).put("r", late)
                if dies:
                    raise StoreError("the process is gone")
            return done

    async with Slow(path) as session:
        outcome = await monitor.Supervisor(ScriptedModel("Done."), session=session).run("do it", run_id="r")
    if dies:
        async with SQLiteSession(path) as again:
            await monitor.Supervisor(ScriptedModel("Done."), session=again).run("and now?")
    else:
        assert outcome.returned == (late,)
    assert mailbox_of(path).letters() == []
    with SessionReader(path) as reader:
        returned = [one.event.message for one in reader.events("r") if isinstance(one.event, SteerReturned)]
        assert returned == [late]
        assert reader.verify() == ()

"""`agent-monitor sessions inbox`: runs that wait for a person, and answers to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

import monitor
from monitor.errors import ConfigError
from monitor.messages import ApprovalAnswer, ApprovalRequest
from monitor.runs import ToolCalls
from monitor.sessions import Changes, RunRecord, RunStage, SQLiteSession, answer, found_in, inbox, sessions_in, tell
from monitor.testing import ScriptedModel, call
from monitor.tools import PendingApprovals
from tests.cli.stored import by_program, invoke, place

__all__ = ["place"]


@monitor.tool(needs_approval=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


OPTIONS: dict[str, Any] = {"tools": [send], "calls": ToolCalls(approver=PendingApprovals())}


@pytest.fixture
def folder(place: Path) -> Path:
    """One session whose run waits, one whose run has ended, and a file that is none."""
    place.mkdir(parents=True, exist_ok=True)
    by_program(place / "ended.session", "All is done.")
    by_program(place / "letters.session", [call("send", to="Ada"), call("send", to="Bob")], **OPTIONS)
    (place / "broken.session").write_text("no session")
    return place


def test_what_waits_is_listed_by_state_and_age_with_its_questions(folder: Path):
    listed = invoke("sessions", "inbox")
    assert listed.exit_code == 0, listed.output
    assert "letters" in listed.output
    assert "waiting" in listed.output
    assert f"1 run in {folder}" in listed.output
    (row,) = map(json.loads, invoke("sessions", "inbox", "--state", "waiting", "--json").output.splitlines())
    assert (row["session"], row["state"], len(row["questions"])) == ("letters", "waiting", 2)
    assert row["questions"][0]["arguments"] == {"to": "Ada"}
    assert "0 runs" in invoke("sessions", "inbox", "--state", "stopped").output
    assert "0 runs" in invoke("sessions", "inbox", "--older-than", "60").output
    assert "1 run " in invoke("sessions", "inbox", "--state", "ended").output
    assert invoke("sessions", "inbox", "--state", "lost").exit_code == 2
    whole = invoke("sessions", "inbox", "letters").output
    assert "May send be called?" in whole
    assert "to: Bob" in whole


def test_an_answer_is_stored_and_the_run_goes_on_with_it(folder: Path):
    assert "say --yes or --no" in invoke("sessions", "inbox", "letters", "--why", "so").output
    assert "name one of the open questions" in invoke("sessions", "inbox", "letters", "--yes").output
    (row,) = map(json.loads, invoke("sessions", "inbox", "letters", "--json").output.splitlines())
    first, second = (asked["id"] for asked in row["questions"])
    done = invoke("sessions", "inbox", "letters", "--yes", "--question", first)
    assert done.output == "approved; agent-monitor sessions resume letters goes on with the run\n"
    said = json.loads(
        invoke("sessions", "inbox", "letters", "--no", "--why", "Not Bob.", "--by", "Eve", "--json").output
    )
    assert said == {"question": second, "decision": "denied"}
    assert "no question is open" in invoke("sessions", "inbox", "letters", "--yes").output
    assert "say which session" in invoke("sessions", "inbox", "--yes").output

    async def resumed() -> monitor.Outcome:
        async with SQLiteSession(folder / "letters.session") as session:
            return await monitor.Supervisor(ScriptedModel("Done."), session=session, **OPTIONS).resume()

    outcome = anyio.run(resumed)
    results = [one.text for message in outcome.history for one in getattr(message, "results", ())]
    assert results[0] == "sent to Ada"
    assert "Not Bob." in results[1]


@pytest.mark.anyio
async def test_a_web_application_answers_through_the_same_function(folder: Path):
    (waits,) = inbox(folder)
    first, second = waits.questions
    async with SQLiteSession(waits.session) as session:
        await answer(session, first.id, "approved", by="Ada")
    with pytest.raises(ConfigError, match="no open question"):
        await answer(waits.session, first.id, "approved")
    with pytest.raises(ConfigError, match="none of the scopes"):
        await answer(waits.session, second.id, "approved", always="everything")
    tell(waits.session, "Write to Eve too.")
    (waits,) = inbox(folder)
    assert ([one.id for one in waits.questions], waits.letters[0].message.text) == ([second.id], "Write to Eve too.")


@pytest.mark.anyio
async def test_a_question_of_a_nested_run_is_that_of_its_caller_and_one_that_expired_takes_no_answer(tmp_path: Path):
    runs = [RunRecord(id="r", state=RunStage.WAITING), RunRecord(id="c", parent_run="r", purpose="subagent")]
    request = ApprovalRequest(
        id="q", run="c", call_id="1", tool="send", arguments={}, schema_hash="", bound_to="", why="", expires_at=1.0
    )
    async with SQLiteSession(tmp_path / "a.session") as session:
        await session.commit(Changes(runs=runs, requests=[request]))
        (waits,) = inbox(tmp_path)
        assert (waits.run.id, waits.state, waits.questions) == ("r", "waiting", (request,))
        with pytest.raises(ConfigError, match="expired"):
            await answer(session, "q", "approved")
        await session.commit(Changes(runs=[RunRecord(id="r")]))
        assert inbox(tmp_path)[0].state == "running"
    assert inbox(tmp_path)[0].state == "waiting"  # its process has gone, and its question is open
    async with SQLiteSession(tmp_path / "a.session") as session:
        await session.commit(Changes(answers=[ApprovalAnswer(id="q", decision="withdrawn")]))
    assert inbox(tmp_path)[0].state == "stopped"


def test_texts_are_searched_in_all_sessions(folder: Path):
    found = invoke("sessions", "find", "ALL IS")
    assert found.exit_code == 0, found.output
    assert "ended" in found.output
    assert "All is done." in found.output
    (row,) = map(json.loads, invoke("sessions", "find", "bob", "--json").output.splitlines())
    assert (row["session"], row["turn"]) == ("letters", 1)
    assert invoke("sessions", "find", "nowhere").exit_code == 1
    with pytest.raises(ConfigError):
        [*found_in((one.path for one in sessions_in(folder)), "")]

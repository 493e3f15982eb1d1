"""`agent-monitor sessions tell`: another process says something to a stored run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import monitor
from monitor.sessions import SQLiteSession
from monitor.sessions.mail.mailbox import mailbox_of
from monitor.testing import call
from tests.cli.stored import SENDS, by_program, invoke, place, recorded

pytestmark = pytest.mark.usefixtures("place")
__all__ = ["place"]


@pytest.fixture
def waits(place: Path) -> Path:
    """A session whose run waits for an approval."""
    place.mkdir(parents=True, exist_ok=True)
    path = place / "letters.session"

    @monitor.tool(needs_approval=True)
    def send(to: str) -> str:
        """Send a letter."""
        return f"sent to {to}"

    outcome = by_program(
        path,
        call("send", to="Ada"),
        tools=[send],
        calls=monitor.runs.ToolCalls(approver=monitor.tools.PendingApprovals()),
    )
    assert outcome.reason is monitor.TerminateReason.PAUSED
    return path


@pytest.mark.feature("GC-12")
def test_what_is_said_to_a_run_that_waits_is_left_in_its_mailbox(waits: Path):
    done = invoke("sessions", "tell", "letters", "Write to Bob too.", "--by", "Eve")
    assert done.exit_code == 0, done.output
    assert (
        done.output
        == "stored; no process carries the run out now: agent-monitor sessions resume letters goes on with it\n"
    )
    (letter,) = mailbox_of(waits).letters()
    assert (letter.message.text, letter.message.by, letter.message.kind) == ("Write to Bob too.", "Eve", "steer")
    said = json.loads(
        invoke("sessions", "tell", "letters", "-", "--later", "--json", "--id", "m7", said="Then rest.\n").output
    )
    assert (said["id"], said["state"], said["running"]) == ("m7", "accepted", False)
    late = invoke("sessions", "tell", "letters", "Hello?", "--wait", "0.01")
    assert late.exit_code == 1


def test_a_run_that_goes_on_reads_it(place: Path):
    model = recorded(*SENDS)
    assert invoke("run", "Write", "--model", model, "--session", "a", "--max-turns", "1", "--last-turn", "off",
                  "--tool", "kept_tools:send").exit_code == 3  # fmt: skip
    ended = invoke("sessions", "tell", "a", "Go on.")
    assert ended.exit_code == 2
    assert "has ended (max_turns), so it gets no message" in ended.output


@pytest.mark.anyio
async def test_two_that_contradict_each_other_are_refused(waits: Path):
    assert "give one of them" in invoke("sessions", "tell", "letters", "x", "--now", "--later").output
    assert invoke("sessions", "tell", "nobody", "x").exit_code == 2
    assert invoke("sessions", "tell", "letters", " ").exit_code == 2
    async with SQLiteSession(waits):  # a program has the session open
        assert (
            invoke("sessions", "tell", "letters", "Go on.").output
            == "stored; the run reads it before its next model call\n"
        )

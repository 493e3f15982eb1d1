"""`agent-monitor sessions deliver`: the result of a call whose run has paused for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

import monitor
from monitor.sessions import SQLiteSession, waiting_calls
from monitor.testing import ScriptedModel, call
from tests.cli.stored import by_program, invoke, place

__all__ = ["place"]


@monitor.tool
async def ask_office(question: str) -> monitor.tools.ToolAnswer:
    """Ask the office."""
    return monitor.tools.deferred("the office")


OPTIONS: dict[str, Any] = {"tools": [ask_office]}


@pytest.fixture
def folder(place: Path) -> Path:
    """A session that waits for one result, one that waits for two, and one that has ended."""
    place.mkdir(parents=True, exist_ok=True)
    by_program(place / "one.session", [call("ask_office", question="May we?")], **OPTIONS)
    by_program(place / "two.session", [call("ask_office", question="A?"), call("ask_office", question="B?")], **OPTIONS)
    by_program(place / "ended.session", "All is done.")
    return place


def rows(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in invoke("sessions", "deliver", *arguments, "--json").output.splitlines()]


async def resumed(path: Path) -> list[str]:
    """The results that the model reads when the run goes on."""
    async with SQLiteSession(path) as session:
        model = ScriptedModel("Done.")
        await monitor.Supervisor(model, **OPTIONS, session=session).resume()
        answers = [one for one in model.requests[-1].messages if isinstance(one, monitor.AssistantMessage)]
        return [result.text for one in answers for result in one.results]


def test_the_calls_that_wait_are_listed_with_their_keys(folder: Path):
    listed = invoke("sessions", "deliver", "one")
    assert listed.exit_code == 0, listed.output
    assert "ask_office" in listed.output
    assert "May we?" in listed.output
    assert [one["arguments"]["question"] for one in rows("two")] == ["A?", "B?"]
    assert invoke("sessions", "deliver", "ended").output == "no call waits for its result\n"
    assert rows("ended") == []


def test_a_run_goes_on_with_a_result_that_was_delivered(folder: Path):
    stored = invoke("sessions", "deliver", "one", "yes")
    assert stored.exit_code == 0, stored.output
    assert "agent-monitor sessions resume one" in stored.output
    assert anyio.run(resumed, folder / "one.session") == ["yes"]


def test_of_several_calls_one_is_named(folder: Path):
    first, second = rows("two")
    refused = invoke("sessions", "deliver", "two", "yes")
    assert refused.exit_code == 2
    assert first["call"] in refused.output
    assert invoke("sessions", "deliver", "two", "-", "--call", second["call"], said="from stdin\n").exit_code == 0
    assert invoke("sessions", "deliver", "two", "too late", "--failed").exit_code == 0
    assert anyio.run(resumed, folder / "two.session") == ["too late", "from stdin\n"]


def test_what_cannot_be_delivered_is_refused(folder: Path):
    no_key, no_session = ("one", "x", "--call", "other"), ("nowhere", "x")
    for arguments in (("ended", "x"), no_key, no_session, ("one", "--failed"), ("one", "--call", "x")):
        assert invoke("sessions", "deliver", *arguments).exit_code == 2, arguments
    assert len(rows("one")) == 1


def test_the_same_result_may_be_delivered_again_and_no_other(folder: Path):
    (waiting,) = rows("one")
    for _ in range(2):
        assert invoke("sessions", "deliver", "one", "yes", "--call", waiting["call"]).exit_code == 0
    assert invoke("sessions", "deliver", "one", "no", "--call", waiting["call"]).exit_code == 2
    assert anyio.run(resumed, folder / "one.session") == ["yes"]


def test_a_session_that_a_process_has_open_is_left_alone(folder: Path):
    async def held() -> int:
        async with SQLiteSession(folder / "one.session") as session:
            refused = await anyio.to_thread.run_sync(invoke, "deliver", "one", "yes")
            assert refused.exit_code == 2, refused.output
            return len(await waiting_calls(session))

    assert anyio.run(held) == 1

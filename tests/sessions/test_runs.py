"""A session as the ledger of a supervised run: each call has its row before its effect."""

from __future__ import annotations

from pathlib import Path

import pytest

import monitor
from monitor.chunks import ToolCall
from monitor.messages import CallState
from monitor.sessions import SessionReader, SQLiteSession
from monitor.testing import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.feature("AC-01")]


async def test_a_run_stores_each_call_before_its_tool_is_entered_and_its_end_afterwards(path: Path):
    seen: list[CallState] = []

    @monitor.tool
    def look(at: str) -> str:
        """Look at something."""
        with SessionReader(path) as reader:  # as another process would see it
            (record,) = [one for one in reader.calls() if one.arguments == {"at": at}]
        seen.append(record.state)
        if at == "nothing":
            raise monitor.ToolError("there is nothing to see")
        return f"{at} seen"

    calls = [ToolCall(f"c{number}", "look", {"at": at}) for number, at in enumerate(("here", "nothing"))]
    async with SQLiteSession(path) as session:
        outcome = await monitor.Supervisor(
            ScriptedModel(calls, "done"), tools=[look], calls=monitor.runs.ToolCalls(ledger=session)
        ).run("go")
        assert outcome.ok
        here, nothing = await session.calls()
    assert seen == [CallState.RUNNING] * 2
    assert (here.state, here.text) == (CallState.DONE, "here seen")
    assert (nothing.state, nothing.text) == (CallState.FAILED, "Error: there is nothing to see")
    with SessionReader(path) as reader:
        assert reader.calls() == (here, nothing)
        assert reader.verify() == ()

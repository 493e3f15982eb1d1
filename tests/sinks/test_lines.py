"""Events in words."""

from __future__ import annotations

import pytest

import monitor
from monitor.events import Event
from monitor.sinks import line_of
from monitor.testing import CapturedEvents, ScriptedModel, call


def nothing_new(query: str) -> str:
    """Search."""
    raise ValueError("no\nnetwork")


async def events_of_a_run() -> list[Event]:
    """A run with a failed call, a crashed tool, a refused and an accepted output, a plan, a nudge and a limit that is near."""
    sink = CapturedEvents()
    model = ScriptedModel(
        ConnectionError("gone"),
        [monitor.ReasoningDelta("Hm."), call("nothing_new", query="x"), call("emit_value", name="risk", value="much")],
        [call("update_plan", step=1, status="completed"), "well"],
        "done",
        [call("emit_value", name="risk", value=0.5)],
    )
    supervisor = monitor.Supervisor(
        model,
        tools=[nothing_new],
        outputs={"risk": float},
        plan=monitor.Plan(["look"]),
        stop_when=monitor.MaxTurns(4),
        retries=monitor.Retries(first_delay_s=0),
        sinks=[sink],
    )
    async with supervisor.stream("x") as run:
        return [event async for event in run]


@pytest.mark.anyio
async def test_every_event_is_one_line_that_holds_no_line_end():
    events = await events_of_a_run()
    lines = [line_of(event) for event in events]
    assert all(line and "\n" not in line and len(line) <= 200 for line in lines)
    assert 'call nothing_new(query="x")' in lines
    assert "error of nothing_new: Error: ValueError: no network" in lines
    assert "output risk = 0.5" in lines
    assert "limit near, max_turns: 4 of 4" in lines
    assert lines[-1] == "ended, goal: every declared output was emitted"


def test_what_was_repaired_is_counted_by_its_kind():
    added = [monitor.Repair(monitor.RepairKind.RESULT_ADDED, index, "for look") for index in (1, 3)]
    event = monitor.HistoryRepaired(0.0, 0, (*added, monitor.Repair(monitor.RepairKind.USER_ADDED, 0, "")), ("a role",))
    assert line_of(event) == "history repaired: result_added 2, user_added 1; it may be refused: a role"


def test_a_line_is_cut_to_its_length_or_not_at_all():
    event = monitor.Nudged(0.0, 1, "word " * 100)
    assert len(line_of(event, chars=40)) == 40
    assert line_of(event, chars=40).endswith("…")
    assert len(line_of(event, chars=None)) == len("nudge: ") + 499

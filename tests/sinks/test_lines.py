"""Events in words."""

from __future__ import annotations

import pytest

import monitor
from monitor.chunks import AskCost, ToolCall, ToolResult
from monitor.errors import CompactionFailure, CompactionReason
from monitor.events import Event, ToolFinished, ToolOutput, ToolStarted
from monitor.sinks import line_of
from monitor.testing import CapturedEvents, ScriptedModel, call


def nothing_new(query: str) -> str:
    """Search."""
    raise ValueError("no\nnetwork")


async def events_of_a_run() -> list[Event]:
    """A run with a failed call, a crashed tool, a refused and an accepted output, a plan, a nudge
    and a limit that is near.
    """
    sink = CapturedEvents()
    model = ScriptedModel(
        ConnectionError("gone"),
        [
            monitor.chunks.ReasoningDelta("Hm."),
            call("nothing_new", query="x"),
            call("emit_value", name="risk", value="much"),
        ],
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
        requests=monitor.runs.Requests(retries=monitor.Retries(first_delay_s=0)),
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
    added = [monitor.messages.Repair(monitor.messages.RepairKind.RESULT_ADDED, index, "for look") for index in (1, 3)]
    event = monitor.events.HistoryRepaired(
        0.0, 0, (*added, monitor.messages.Repair(monitor.messages.RepairKind.USER_ADDED, 0, "")), ("a role",)
    )
    assert line_of(event) == "history repaired: result_added 2, user_added 1; it may be refused: a role"


def test_a_line_is_cut_to_its_length_or_not_at_all():
    event = monitor.events.Nudged(0.0, 1, "word " * 100)
    assert len(line_of(event, chars=40)) == 40
    assert line_of(event, chars=40).endswith("…")
    assert len(line_of(event, chars=None)) == len("nudge: ") + 499


HIGH_WATER = CompactionReason.HIGH_WATER
COMPACTIONS = [
    (
        monitor.events.ContextNearlyFull(1.0, 3, 77_000, 85_000),
        "context nearly full: 77,000 tokens; it is compacted at 85,000",
    ),
    (
        monitor.events.HistoryReduced(
            at_s=1.0, turn=3, kind="prune", saved_tokens=21_000, reread_tokens=60_000, messages=7
        ),
        "history reduced: prune in 7 messages, 21,000 tokens less",
    ),
    (
        monitor.events.CompactionStarted(
            at_s=1.0, turn=3, compaction=1, reason=HIGH_WATER, preset="default", tokens=85_000, background=True
        ),
        "compaction begins (high_water) at 85,000 tokens, beside the run",
    ),
    (
        monitor.events.CompactionStarted(
            at_s=1.0,
            turn=3,
            compaction=2,
            reason=CompactionReason.OVERFLOW,
            preset="default",
            tokens=99_000,
            background=False,
            refill="instructions",
        ),
        "compaction begins (overflow) at 99,000 tokens, the run waits; filled again by instructions",
    ),
    (
        monitor.events.CompactionProgressed(at_s=1.0, turn=3, compaction=1, done_messages=40, of_messages=90),
        "compaction: 40 of 90 messages are in the summary",
    ),
    (
        monitor.events.CompactionFinished(
            at_s=1.0,
            turn=4,
            compaction=1,
            reason=HIGH_WATER,
            tokens_before=85_000,
            tokens_after=30_000,
            estimator="reported",
            kept_messages=12,
            kept_tokens=9_000,
            summarised_by="extractive",
            cost=AskCost(),
            reread_tokens=0,
            replayed=None,
            after_s=0.2,
            warnings=("no model answered",),
        ),
        "compacted by extractive: 85,000 -> 30,000 tokens, 12 messages kept; no model answered",
    ),
    (
        monitor.events.CompactionSkipped(
            at_s=1.0, turn=4, reason=HIGH_WATER, why=CompactionFailure.CANCELLED, detail="a hook cancelled it: not now"
        ),
        "no compaction (cancelled): a hook cancelled it: not now",
    ),
    (
        monitor.events.CompactionFailed(
            at_s=1.0,
            turn=4,
            compaction=2,
            failure=CompactionFailure.TIMEOUT,
            retryable=True,
            detail="60 s",
            cost=AskCost(),
            after_s=60.0,
        ),
        "compaction failed (timeout): 60 s",
    ),
]


@pytest.mark.parametrize(("event", "line"), COMPACTIONS, ids=lambda value: type(value).__name__)
def test_a_compaction_in_words(event: Event, line: str):
    assert line_of(event) == line


@pytest.mark.parametrize("text", ["\x1b[2K", "\x1b]0;title\x07", "\u202egnp.exe", "a\rb\x00"])
def test_nothing_in_a_line_acts_on_a_terminal(text: str):
    assert line_of(ToolOutput(0.0, 1, "c", "stdout", text)).isprintable()
    assert line_of(ToolStarted(0.0, 1, ToolCall("c", "shell", {"command": text}))).isprintable()
    result = ToolResult("c", "shell", text)
    assert line_of(ToolFinished(0.0, 1, result, 0.0)).isprintable()

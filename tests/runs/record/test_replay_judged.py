"""A run that its judge has steered, acquitted or ended replays as it was decided."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import monitor
from monitor.chunks import UsageReport
from monitor.events import DetectionRaised, JudgeAnswered, Nudged, ToolFinished
from monitor.sessions import InMemorySession
from monitor.testing import ScriptedModel, call
from monitor.testing.scripted import NOT_STUCK

pytestmark = pytest.mark.anyio

STUCK = '{"analysis": "The same page.", "confidence": 0.8}'


async def search(q: str) -> str:
    """Search the web."""
    await anyio.wait_all_tasks_blocked()  # the judge is quicker than the tool
    return "No results."


async def judged(task: str, replies: list[Any], questions: list[str]) -> InMemorySession:
    session = InMemorySession(chunks=True)
    model = ScriptedModel(
        *([call("search", q=one), UsageReport(input_tokens=50_000, output_tokens=9)] for one in questions),
        "Done.",
        judge_replies=replies,
    )
    await monitor.Supervisor(model, tools=[search], session=session).run(task)
    return session


@pytest.mark.feature("US-01")
@pytest.mark.parametrize(
    ("task", "replies", "questions"),
    [
        ("Find the rain.", [STUCK, NOT_STUCK], [f"wording {turn}" for turn in range(14)]),
        ("Find the rain.", [STUCK], [f"wording {turn}" for turn in range(20)]),
        ("Find the rain.", [STUCK], ["rain"] * 12),
        ("Run the search 3 times.", [NOT_STUCK], ["rain"] * 12),
        ("Run the search 3 times.", [STUCK], ["rain"] * 12),
    ],
)
async def test_a_judged_run_replays_as_it_was_decided(task: str, replies: list[Any], questions: list[str]):
    session = await judged(task, replies, questions)
    replayed = await monitor.replay(session)
    assert (replayed.exact, replayed.as_stored) == (True, True)
    kinds = {type(event) for event in replayed.events}
    assert JudgeAnswered in kinds
    assert kinds & {DetectionRaised, Nudged, ToolFinished}

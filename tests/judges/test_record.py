"""What the judge of a whole run reads beside the calls: the agent's rules, the tools that it leaves
alone, the clock, what people said later, and compactions.
"""

from __future__ import annotations

import anyio.lowlevel
import pytest

import monitor
from monitor.context import Extractive
from monitor.judges import Ask, JudgeInput, JudgeSchedule
from monitor.testing import FakeClock, ScriptedModel, call

pytestmark = pytest.mark.anyio


class Reader:
    """A judge that keeps what it reads, and finds nothing."""

    name, fact, threshold, timeout_s, counts = "reader", "loop", 1.0, 10.0, False

    def __init__(self) -> None:
        self.read: list[JudgeInput] = []

    def schedule(self) -> JudgeSchedule:
        return JudgeSchedule(first_turn=7)

    async def review(self, run: JudgeInput, ask: Ask) -> monitor.verdicts.Judgement:
        self.read.append(run)
        return monitor.verdicts.Judgement("it moves on", 0.0, found=False, judged_by=self.name)


async def test_the_rules_the_unused_tools_the_clock_the_users_words_and_a_compaction_are_read():
    judge, clock = Reader(), FakeClock()

    async def look(q: str, context: monitor.ToolContext) -> str:
        """Look something up."""
        clock.advance(40.0)
        if q == "page 2":
            await context.run.steer("Only the pages about May.", by="Ada")
        await anyio.lowlevel.checkpoint()
        return f"This is {q}. " + f"word of {q} " * 300

    async def ask_user(question: str) -> str:
        """Ask the user."""
        return question

    supervisor = monitor.Supervisor(
        ScriptedModel(*([call("look", q=f"page {n}")] for n in range(1, 8)), "Done."),
        instructions="You read pages. Never guess.",
        tools=[look, ask_user],
        judge=judge,
        detectors=None,
        compaction=monitor.Compaction(summarizer=Extractive()),
        clock=clock,
    )
    async with supervisor.stream("Read the pages.") as run:
        async for event in run:
            if isinstance(event, monitor.events.TurnStarted) and event.turn == 5:
                await run.compact()
    (told, *_) = judge.read
    lines = told.digest.splitlines()
    assert told.task == "Read the pages."
    assert lines[0].startswith("the agent's rules: \"You read pages. Never guess.")
    assert lines[1] == 'tools on offer that were not used: "terminate", "ask_user"'
    assert any(
        line.startswith('turn 3 at 80 s: request 3: "look" with {"q": "page 3"} got, 40.0 s later') for line in lines
    )
    assert 'turn 2: the user said "Only the pages about May."' in lines
    assert any("the history was compacted: " in line for line in lines)

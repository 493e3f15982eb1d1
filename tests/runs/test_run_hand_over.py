"""A run that its process leaves between two turns, and that another one goes on with."""

from __future__ import annotations

from typing import Any

import pytest

import monitor
from monitor.chunks import ToolCall, UsageReport
from monitor.errors import ConfigError
from monitor.events import CompactionFinished, CompactionStarted, JudgeAnswered, JudgeAsked, Nudged, TurnStarted
from monitor.models import ModelRequest
from monitor.sessions import InMemorySession, RunStage, SessionStore
from monitor.testing import ScriptedModel
from tests.guard.test_judge_tasks import often, says
from tests.runs.context.test_run_context_compaction import SUMMARY, WINDOW, read, reads
from tests.runs.driving import Reason

pytestmark = pytest.mark.anyio


def add(n: int) -> str:
    """Add."""
    return f"added {n}"


def slowly(answer: list[Any]) -> list[Any]:
    """An answer that takes many times as long as a turn of the run."""
    text, *rest = answer
    return [*text, *rest]


def judge(confidence: float, **options: Any) -> monitor.LoopJudge:
    answers = [slowly(says(confidence, "It goes round. " * 20)) for _ in range(9)]
    return often(ScriptedModel(*answers, suspends=True), **options)


class Adds:
    """Calls `add` with 1, 2, 3 ... and says at last that it is done."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.made = 0

    def __call__(self, request: ModelRequest) -> Any:
        self.made += 1
        return "All is done." if self.made > self.turns else ToolCall(f"c{self.made}", "add", {"n": self.made})


async def left_after_each_turn(supervisor: monitor.Supervisor, session: SessionStore) -> list[monitor.Outcome]:
    """Carry out a run in one process after the other, each of which leaves after one turn."""
    outcomes: list[monitor.Outcome] = []
    while not outcomes or outcomes[-1].reason is Reason.WORKER_STOPPING:
        run = await supervisor.resume_stream(session) if outcomes else supervisor.stream("Add.", session=session)
        run.hand_over(at_turn=len(outcomes) + 1)
        async with run:
            async for _ in run:
                pass
        outcomes.append(run.outcome)
    return outcomes


async def of(session: SessionStore, *kinds: type[Any]) -> list[Any]:
    return [one.event for one in await session.events() if isinstance(one.event, kinds)]


async def test_a_run_is_left_at_the_next_boundary_and_goes_on_with_resume():
    session, supervisor = InMemorySession(), monitor.Supervisor(ScriptedModel(Adds(3)), tools=[add])
    async with supervisor.stream("Add.", session=session) as run:
        async for event in run:
            if isinstance(event, TurnStarted) and event.turn == 2:
                run.hand_over()
    assert (run.outcome.reason, run.outcome.ok, run.outcome.turns) == (Reason.WORKER_STOPPING, False, 2)
    assert [one.state for one in await session.runs()] == [RunStage.RUNNING]
    outcome = await supervisor.resume(session)
    assert (outcome.ok, outcome.turns) == (True, 4)
    assert [one.state for one in await session.runs()] == [RunStage.ENDED]


async def test_a_run_that_ends_before_has_its_own_reason():
    run = monitor.Supervisor(ScriptedModel("Done.")).stream("Say it.")
    run.hand_over(at_turn=5)
    async with run:
        async for _ in run:
            pass
    assert run.outcome.reason is Reason.GOAL


async def test_a_nudge_is_said_before_the_run_is_left():
    session = InMemorySession()
    supervisor = monitor.Supervisor(
        ScriptedModel("Soon.", "Really soon."), outputs={"n": int}, requests=monitor.runs.Requests(max_nudges=1)
    )
    outcomes = await left_after_each_turn(supervisor, session)
    assert [one.reason for one in outcomes] == [Reason.WORKER_STOPPING, Reason.MISSING_OUTPUTS]
    assert len(await of(session, Nudged)) == 1


async def test_the_answer_of_a_judge_is_waited_for_and_the_next_question_comes_no_sooner():
    session = InMemorySession()
    supervisor = monitor.Supervisor(ScriptedModel(Adds(16)), tools=[add], judge=judge(0.1, first_turn=2))
    assert (await left_after_each_turn(supervisor, session))[-1].ok
    assert [one.turn for one in await of(session, JudgeAsked)] == [2, 16]
    assert [one.judgement.confidence for one in await of(session, JudgeAnswered)][:1] == [0.1]


async def test_what_a_judge_says_at_the_boundary_is_followed():
    supervisor = monitor.Supervisor(
        ScriptedModel(Adds(8)),
        tools=[add],
        judge=judge(0.99, first_turn=1),
        policy=monitor.StopAtFirstLoop(),
        last_turn=None,
    )
    outcomes = await left_after_each_turn(supervisor, InMemorySession())
    assert [one.reason for one in outcomes] == [Reason.LOOP_DETECTED]


async def test_a_compaction_beside_the_run_is_waited_for():
    session, sizes = InMemorySession(), iter([20_000, 20_000, 20_000, 18_000, 10, 10])

    def script(request: ModelRequest) -> Any:
        if not request.tools:
            return slowly([SUMMARY])
        size = next(sizes, None)
        if size is None:
            return "All is read."
        return [*reads(size), UsageReport(input_tokens=86_000, output_tokens=10)] if size == 10 else reads(size)

    supervisor = monitor.Supervisor(
        ScriptedModel(script, suspends=True), tools=[read], results=monitor.runs.Results(bound=None), window=WINDOW
    )
    outcomes = await left_after_each_turn(supervisor, session)
    assert outcomes[-1].ok
    started = await of(session, CompactionStarted)
    assert [one.background for one in started][:1] == [True]
    assert len(await of(session, CompactionFinished)) == len(started)


async def test_a_run_that_was_handed_over_replays_as_it_was_decided():
    session = InMemorySession(chunks=True)
    supervisor = monitor.Supervisor(ScriptedModel(Adds(2)), tools=[add])
    assert (await left_after_each_turn(supervisor, session))[-1].ok
    replayed = await monitor.replay(session)
    assert (replayed.exact, replayed.as_stored) == (True, True)


@pytest.mark.parametrize("at_turn", [-1, 1.5, True, "1"])
async def test_the_turn_is_a_number(at_turn: Any):
    with pytest.raises(ConfigError, match="at_turn"):
        monitor.Supervisor(ScriptedModel()).stream("x").hand_over(at_turn=at_turn)


@pytest.mark.feature("US-01")
async def test_an_agent_that_was_steered_in_one_process_is_convicted_in_another():
    session = InMemorySession()
    answers = [slowly(says(0.8)) for _ in range(20)]
    steering = monitor.LoopJudge(ScriptedModel(*answers, suspends=True), share=None)
    supervisor = monitor.Supervisor(
        ScriptedModel(Adds(20)),
        tools=[add],
        judge=steering,
        policy=monitor.StopAtFirstLoop(),
        last_turn=None,
    )
    outcomes = await left_after_each_turn(supervisor, session)
    first, second = [one.turn for one in await of(session, JudgeAsked)]
    assert first == 8
    assert second - first >= 3  # the answer may come a turn later
    assert len(await of(session, Nudged)) == 1
    assert (outcomes[-1].reason, outcomes[-1].source) == (Reason.LOOP_DETECTED, "loop_judge")

"""What a judge's answers lead to: acquittal, a sentence for the agent, the end; and who is asked by
default.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import monitor
from monitor.chunks import ToolCall, Usage, UsageReport
from monitor.events import DetectionRaised, JudgeAnswered, JudgeAsked, JudgeFailed, Nudged
from monitor.judges import Ask, JudgeInput, JudgeLines, JudgeSchedule
from monitor.judges.judge import Judge
from monitor.messages import UserMessage
from monitor.models import ModelRequest
from monitor.sinks.log import MemorySink
from monitor.testing import FakeClock, ScriptedModel, ScriptedStream, call
from monitor.testing.scripted import NOT_STUCK
from monitor.verdicts import Judgement

DONE = monitor.chunks.TurnFinished(monitor.FinishReason.DONE)
Reason = monitor.TerminateReason
pytestmark = pytest.mark.anyio


class Answers:
    """A judge whose answers are given: confidences, or exceptions."""

    name, fact, threshold, timeout_s, counts = "mine", "loop", 0.7, 10.0, False

    def __init__(self, *answers: float | Exception, first_turn: int = 8) -> None:
        self._answers = list(answers)
        self._first_turn = first_turn

    def schedule(self) -> JudgeSchedule:
        return JudgeSchedule(first_turn=self._first_turn, lines=JudgeLines())

    async def review(self, run: JudgeInput, ask: Ask) -> Judgement:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Judgement("One page.", answer, answer >= 0.7, "mine", advice="Open the third link.")


def judge(*answers: float | Exception, first_turn: int = 8) -> Judge:
    made: Any = Answers(*answers, first_turn=first_turn)
    return made  # type: ignore[no-any-return]


class Run:
    """A guarded run that makes a call a turn, with time for its judge."""

    def __init__(self, judge: Any, **options: Any) -> None:
        self.sink = MemorySink()
        self.verdicts: dict[int, monitor.Verdict] = {}
        self.guard = monitor.Guard(judge=judge, sinks=[self.sink], clock=FakeClock(), **options)

    async def make(self, turns: int, *, same: bool = False) -> None:
        async with self.guard:
            for turn in range(1, turns + 1):
                wanted = ToolCall(f"c{turn}", "search", {"q": "rain" if same else f"rain, wording {turn}"})
                async with self.guard.watch(ScriptedStream(wanted, DONE)) as watched:
                    async for _ in watched:
                        pass
                await anyio.wait_all_tasks_blocked()
                if watched.turn.stopped:
                    break
                self.guard.tool_result(wanted, "No results." if same else f"Page {turn} says {turn * 7919}.")
                verdict = self.guard.check()
                if verdict != monitor.Continue():
                    self.verdicts[turn] = verdict
                if isinstance(verdict, monitor.Stop):
                    break

    def turns_of(self, kind: type) -> list[int]:
        events: list[Any] = [event for event in self.sink.events if isinstance(event, kind)]
        return [event.turn for event in events]


@pytest.mark.feature("US-01")
async def test_a_first_finding_steers_and_a_second_one_three_calls_later_ends_the_run():
    run = Run(judge(0.75, 0.75), detectors=None)
    await run.make(20)
    assert run.turns_of(JudgeAsked) == [8, 11]
    ((turn, steered),) = [(turn, one) for turn, one in run.verdicts.items() if isinstance(one, monitor.Nudge)]
    assert turn == 8
    assert 'quoted: "Open the third link."' in steered.text
    outcome = run.guard.outcome
    assert (outcome.reason, outcome.source, outcome.value, outcome.turns) == (Reason.LOOP_DETECTED, "mine", 75, 11)
    assert isinstance(outcome.evidence, monitor.verdicts.Detection)
    assert outcome.evidence.evidence.excerpt == "One page."


@pytest.mark.feature("US-01")
async def test_an_agent_that_gets_on_after_the_sentence_is_acquitted():
    run = Run(judge(0.8, 0.2), detectors=None)
    await run.make(16)
    assert run.turns_of(JudgeAsked) == [8, 11]
    assert [*run.verdicts] == [8]
    assert run.guard.outcome.reason is Reason.STREAM_ENDED


@pytest.mark.feature("US-01")
async def test_where_counting_doubts_as_well_a_sure_judge_ends_the_run_at_once():
    for sure, reason in ((0.9, Reason.LOOP_DETECTED), (0.89, Reason.STREAM_ENDED)):
        run = Run(judge(sure, 0.0), detectors=[monitor.ToolCallRepetition(suspect_at=3, loop_at=50)])
        await run.make(7, same=True)
        assert run.turns_of(JudgeAsked)[0] == 6  # the doubt makes it be asked before turn 8
        assert run.guard.outcome.reason is reason


@pytest.mark.feature("US-01")
async def test_an_acquittal_takes_back_what_was_only_doubted():
    """The warning about a suspicion is not said, and the ladder begins at its first step."""
    for confidence, left in ((0.1, 0), (0.6, 1)):
        ladder = monitor.Ladder()
        run = Run(
            judge(confidence, confidence, 0.0, first_turn=3),
            policy=ladder,
            detectors=[monitor.ToolCallRepetition(suspect_at=2, loop_at=50)],
        )
        await run.make(3, same=True)
        assert ladder.snapshot()["nudges"] == left


@pytest.mark.feature("US-01")
async def test_a_judge_that_fails_never_ends_a_run_and_is_asked_less_often():
    run = Run(judge(*[TimeoutError("slow")] * 9), detectors=None)
    await run.make(50)
    assert run.turns_of(JudgeFailed) == [8, 20, 44]
    assert run.guard.outcome.reason is Reason.STREAM_ENDED


# ------------------------------------------------------------------ what the request allows


TASK = "Run the search 4 times, whatever it answers."


@pytest.mark.feature("US-01")
async def test_a_sure_finding_that_the_request_allows_waits_for_the_judge():
    loop_at = 5 + 4
    for answers, reason, ends in (
        ((0.0,), Reason.STREAM_ENDED, 18),
        ((0.0, 0.6), Reason.LOOP_DETECTED, 22),
        ((0.6, 0.6), Reason.LOOP_DETECTED, 10),
        ((ConnectionError("gone"),), Reason.LOOP_DETECTED, 10),
    ):
        run = Run(judge(*answers, first_turn=90), task=TASK, detectors=[monitor.ToolCallRepetition(suspect_at=None)])
        await run.make(18 if reason is Reason.STREAM_ENDED else 30, same=True)
        assert run.turns_of(JudgeAsked)[0] == loop_at + 1
        assert (run.guard.outcome.reason, run.guard.outcome.turns) == (reason, ends)
        assert run.guard.outcome.source in {"tool_call_repetition", "stream"} or reason is Reason.STREAM_ENDED


class Silent(Answers):
    """It never answers."""

    async def review(self, run: JudgeInput, ask: Ask) -> Judgement:
        await anyio.sleep_forever()
        raise AssertionError("it slept for ever")


@pytest.mark.feature("US-01")
async def test_if_the_judge_does_not_answer_in_time_the_sure_finding_stands():
    run = Run(Silent(first_turn=90), task=TASK, detectors=[monitor.ToolCallRepetition(suspect_at=None)])
    await run.make(30, same=True)
    assert (run.guard.outcome.reason, run.guard.outcome.turns) == (Reason.LOOP_DETECTED, 12)


@pytest.mark.feature("US-01")
async def test_without_a_judge_or_without_such_a_request_nothing_waits():
    for options in ({"judge": None, "task": TASK}, {"judge": judge(), "task": "Find the rain."}):
        run = Run(detectors=[monitor.ToolCallRepetition(suspect_at=None)], **options)
        await run.make(30, same=True)
        assert run.guard.outcome.reason is Reason.LOOP_DETECTED
        assert run.turns_of(JudgeAsked) == []


# ------------------------------------------------------------------ who is asked by default


USED = UsageReport(input_tokens=10_000, output_tokens=100)


def searches(goal: int) -> Any:
    """An agent that searches in other words until it has read an advice, or so many times."""

    def answer(request: ModelRequest) -> Any:
        turn = sum(isinstance(message, monitor.AssistantMessage) for message in request.messages)
        steered = any("Its note, quoted" in str(one) for one in request.messages if isinstance(one, UserMessage))
        return ["It rained 31 mm.", USED] if steered or turn >= goal else [call("search", q=f"wording {turn}"), USED]

    return answer


async def search(q: str) -> str:
    """Search the web."""
    await anyio.wait_all_tasks_blocked()  # the judge is quicker than the tool
    return "No results. Try other words."


STUCK = ['{"analysis": "The same page.", "confidence": 0.8}', UsageReport(input_tokens=1_000, output_tokens=100)]


@pytest.mark.feature("US-01")
async def test_a_supervisor_asks_its_own_model_by_default_and_the_agent_is_brought_to_its_goal():
    sink = MemorySink()
    model = ScriptedModel(searches(40), judge_replies=[STUCK, NOT_STUCK])
    supervisor = monitor.Supervisor(model, tools=[search], detectors=None, sinks=[sink], clock=FakeClock())
    outcome = await supervisor.run("How much did it rain in May?")
    assert (outcome.ok, outcome.text, outcome.turns) == (True, "It rained 31 mm.", 9)
    assert [event.turn for event in sink.events if isinstance(event, Nudged)] == [8]
    (question,) = model.judge_requests
    assert '"How much did it rain in May?"' in str(question.messages)
    # the question is no model call of the run, and no part of its history
    assert len(model.requests) == 9
    assert all("confidence" not in str(request.messages) for request in model.requests)
    assert outcome.judge_usage == Usage(1_000, 100, 0, 0, 1_100)
    assert outcome.judge_usage.total_tokens <= 0.03 * outcome.usage.total_tokens


@pytest.mark.feature("US-01")
async def test_none_switches_the_judge_off_and_another_one_stands_in_its_place():
    for given, asked, of_other in ((None, 0, 0), (ScriptedModel(lambda _: NOT_STUCK), 0, 1), ("own model", 1, 0)):
        model = ScriptedModel(searches(12))
        supervisor = monitor.Supervisor(model, tools=[search], judge=given, detectors=None, clock=FakeClock())
        assert (await supervisor.run("Find it.")).ok
        assert len(model.judge_requests) == asked
        assert len(given.requests if isinstance(given, ScriptedModel) else ()) == of_other


@pytest.mark.feature("US-01")
async def test_the_judge_costs_at_most_its_share_of_the_tokens():
    for used, asked in ((500, 0), (10_000, 3)):
        sink = MemorySink()
        answer = [UsageReport(input_tokens=900, output_tokens=100), NOT_STUCK]
        report = UsageReport(input_tokens=used, output_tokens=10)
        turns = [[call("search", q=f"wording {turn}"), report] for turn in range(30)]
        model = ScriptedModel(*turns, judge_replies=[answer])
        supervisor = monitor.Supervisor(
            model,
            tools=[search],
            detectors=None,
            sinks=[sink],
            stop_when=monitor.MaxTurns(30),
            last_turn=None,
            clock=FakeClock(),
        )
        outcome = await supervisor.run("Find it.")
        assert len([event for event in sink.events if isinstance(event, JudgeAnswered)]) == asked
        assert outcome.judge_usage.total_tokens <= 0.03 * outcome.usage.total_tokens


async def test_a_model_that_replays_a_run_is_not_asked_about_it(tmp_path: Any):
    path = tmp_path / "run.jsonl"
    path.write_text('{"type": "text_delta", "text": "hi"}\n{"type": "turn_finished", "finish_reason": "done"}\n')
    assert monitor.Supervisor(monitor.model(f"replay:{path}")).judges == ()
    assert [one.name for one in monitor.Supervisor(ScriptedModel("hi")).judges] == ["loop_judge"]


async def test_a_judge_found_nothing_where_only_an_event_is_wanted():
    run = Run(judge(0.75, 0.75), detectors=None, policy=monitor.policy.ObserveOnly())
    await run.make(12)
    levels = [event.detection.level for event in run.sink.events if isinstance(event, DetectionRaised)]
    assert levels == ["suspect", "loop"]
    assert run.verdicts == {}

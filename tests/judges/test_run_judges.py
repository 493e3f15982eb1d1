"""The judges' books."""

from __future__ import annotations

import pytest

import monitor
from monitor.chunks import AskCost, ToolCall, ToolResult, Usage
from monitor.errors import ConfigError
from monitor.judges.judge import EXCERPT_CHARS, JudgeInput, RunJudges, detection_of
from monitor.outcome import Turn
from monitor.testing import ScriptedModel
from monitor.verdicts import Detection, Evidence, Judgement, Level

MODEL = ScriptedModel()
TOLD = JudgeInput(None, "no calls", 30)


def test_without_judges_it_keeps_no_books():
    judges = RunJudges([])
    judges.add_turn(Turn(number=1, text="hello"))
    judges.add_result(ToolResult("c1", "look", "x"))
    judges.add_warning(1, "stop it")
    assert not judges
    assert judges.due(30) == []
    assert not hasattr(judges, "_digest")


def test_who_is_due_is_told_the_task_the_turn_and_the_record():
    judge = monitor.LoopJudge.article(MODEL)
    judges = RunJudges([judge], "Find it.")
    judges.add_turn(Turn(number=29, text="", tool_calls=(ToolCall("c1", "look", {}),)))
    judges.add_result(ToolResult("c1", "look", "nothing"))
    assert judges.due(29) == []
    ((asked, told),) = judges.due(30)
    assert asked is judge
    assert (told.task, told.turn) == ("Find it.", 30)
    assert 'request 1: "look" with {}' in told.digest
    assert judges.due(31) == judges.due(100) == []  # it is still at work


def test_two_judges_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="same name"):
        RunJudges([monitor.LoopJudge(MODEL), monitor.LoopJudge(MODEL)])
    both = RunJudges([monitor.LoopJudge(MODEL, share=None), monitor.LoopJudge(MODEL, share=None, name="other")])
    assert len(both.due(8)) == 2


def test_two_findings_of_a_judge_are_the_same_loop_and_those_of_two_judges_are_not():
    one, other = monitor.LoopJudge(MODEL), monitor.LoopJudge(MODEL, name="other")
    first = detection_of(one, TOLD, Judgement("It goes round.", 0.93, found=True, judged_by="m"), 30, "loop")
    second = detection_of(one, TOLD, Judgement("Round it goes, " * 100, 0.99, found=True, judged_by="m"), 36, "loop")
    third = detection_of(other, TOLD, Judgement("It goes round.", 0.93, found=True, judged_by="m"), 30, "loop")
    assert first.evidence.xxhash == second.evidence.xxhash != third.evidence.xxhash
    assert (first.kind, first.level, first.count, first.threshold) == ("judge", "loop", 93, 70)
    assert len(second.evidence.excerpt) == EXCERPT_CHARS


@pytest.mark.feature("US-01")
def test_a_suspicion_carries_the_sentence_for_the_agent_and_a_loop_the_reasons():
    judge = monitor.LoopJudge(MODEL)
    judgement = Judgement("The same page.", 0.8, True, "m", advice="Open the third link.", ask_person=True)
    steers = detection_of(judge, TOLD, judgement, 9, "suspect")
    assert steers.evidence.excerpt == "A person must be asked. Open the third link."
    assert detection_of(judge, TOLD, judgement, 12, "loop").evidence.excerpt == "The same page."


def loops(judges: RunJudges, turns: int) -> list[int]:
    """The turns at which they are asked, in a run with a result of 4,000 characters a turn."""
    asked = []
    for turn in range(1, turns + 1):
        if judges.due(turn):
            asked.append(turn)
            judges.answered(
                "loop_judge",
                Judgement("", 0.0, found=False, judged_by="m"),
                AskCost(Usage(1_500, 100, 0, 0, 1_600)),
            )
        judges.add_turn(Turn(number=turn, tool_calls=(ToolCall(f"c{turn}", "look", {"at": turn}),)))
        judges.add_result(ToolResult(f"c{turn}", "look", f"page {turn} " * 500))
    return asked


@pytest.mark.feature("US-01")
def test_the_share_holds_where_no_usage_is_known_by_what_was_sent():
    """The history grows by about 1,000 tokens a turn, and each request sends it again."""
    bounded = loops(RunJudges([monitor.LoopJudge(MODEL)]), 60)
    assert bounded[0] > 8
    for asked_before, turn in enumerate(bounded):
        sent = sum(1_100 * before for before in range(1, turn + 1))
        assert 1_600 * asked_before <= 0.03 * sent
    assert loops(RunJudges([monitor.LoopJudge(MODEL, share=None)]), 60)[0] == 8


@pytest.mark.feature("US-01")
def test_a_finding_of_a_detector_is_a_doubt_until_a_judge_acquits():
    judges = RunJudges([monitor.LoopJudge(MODEL, share=None)])
    for turn in range(1, 6):
        judges.add_turn(Turn(number=turn, tool_calls=(ToolCall(f"c{turn}", "look", {}),)))
        judges.add_result(ToolResult(f"c{turn}", "look", "nothing"))
    assert judges.due(6) == []
    judges.found(finding("suspect"))
    judges.found(finding("loop"))
    judges.found(finding("suspect"))
    assert judges.doubt == "loop"
    assert len(judges.due(6)) == 1
    acquittal = Judgement("", 0.1, found=False, judged_by="m")
    assert judges.answered("loop_judge", acquittal, AskCost()) == (None, True)
    assert judges.doubt is None


def finding(level: Level) -> Detection:
    return Detection("d", "identical_calls", "tools", level, 5, 5, 0, 5, Evidence("look({})", "0" * 16, 2), "again")

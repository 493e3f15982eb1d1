"""The judges' books."""

from __future__ import annotations

import pytest

import monitor
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ConfigError
from monitor.judges.judge import EXCERPT_CHARS, JudgeInput, RunJudges, detection_of
from monitor.outcome import Turn
from monitor.testing import ScriptedModel
from monitor.verdicts import Judgement

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
    judge = monitor.LoopJudge(MODEL)
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
    assert len(RunJudges([monitor.LoopJudge(MODEL), monitor.LoopJudge(MODEL, name="other")]).due(30)) == 2


def test_two_findings_of_a_judge_are_the_same_loop_and_those_of_two_judges_are_not():
    one, other = monitor.LoopJudge(MODEL), monitor.LoopJudge(MODEL, name="other")
    first = detection_of(one, TOLD, Judgement("It goes round.", 0.93, found=True, judged_by="m"), 30)
    second = detection_of(one, TOLD, Judgement("Round it goes, " * 100, 0.99, found=True, judged_by="m"), 36)
    third = detection_of(other, TOLD, Judgement("It goes round.", 0.93, found=True, judged_by="m"), 30)
    assert first.evidence.xxhash == second.evidence.xxhash != third.evidence.xxhash
    assert (first.kind, first.level, first.count, first.threshold) == ("judge", "loop", 93, 90)
    assert len(second.evidence.excerpt) == EXCERPT_CHARS

"""When a judge is asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from monitor.chunks import AskCost, Usage
from monitor.errors import ConfigError
from monitor.judges.judge import JudgeSchedule, checked, next_interval
from monitor.verdicts import Judgement


def asked_at(
    schedule: JudgeSchedule, turns: int, answers: Callable[[int], float | None], *, suspicion: float = 0.0
) -> list[int]:
    """The turns at which it is asked. `answers`: the confidence for the turn; `None`: it fails."""
    found = []
    for turn in range(1, turns + 1):
        if schedule.due(turn, suspicion):
            schedule.asked(turn)
            found.append(turn)
            confidence = answers(turn)
            if confidence is None:
                schedule.failed()
            else:
                schedule.answered(confidence)
    return found


@pytest.mark.feature("GL-05")
@pytest.mark.parametrize(
    ("confidence", "turns"),
    [(0.0, 15), (0.1, 14), (0.5, 10), (0.85, 7), (0.86, 6), (0.89, 6), (0.9, 6), (1.0, 5), (-3.0, 15), (7.0, 5)],
)
def test_the_surer_the_sooner_again(confidence: float, turns: int):
    assert next_interval(confidence) == turns


@pytest.mark.feature("GL-05")
def test_not_before_turn_30():
    assert asked_at(JudgeSchedule(), 29, lambda _: 0.0) == []
    assert asked_at(JudgeSchedule(), 30, lambda _: 0.1) == [30]


@pytest.mark.feature("GL-05")
@pytest.mark.parametrize(
    ("confidence", "turns"),
    [
        (0.0, [30, 45, 60]),
        (0.5, [30, 40, 50, 60]),
        (0.89, [30, 36, 42, 48, 54, 60]),
        (1.0, [30, 35, 40, 45, 50, 55, 60]),
    ],
)
def test_then_as_sure_as_it_is(confidence: float, turns: list[int]):
    assert asked_at(JudgeSchedule(), 60, lambda _: confidence) == turns


def test_who_fails_is_asked_half_as_often_each_time_and_forgiven_with_an_answer():
    assert asked_at(JudgeSchedule(), 300, lambda _: None) == [30, 50, 90, 150, 210, 270]
    assert asked_at(JudgeSchedule(), 100, lambda turn: None if turn == 30 else 1.0) == [30, *range(50, 101, 5)]


def test_failing_never_makes_it_be_asked_more_often():
    assert asked_at(JudgeSchedule(first_interval=100), 300, lambda _: None) == [30, 130, 230]


def test_one_question_at_a_time():
    schedule = JudgeSchedule()
    schedule.asked(30)
    assert [schedule.due(turn) for turn in (30, 31, 60, 500)] == [False] * 4
    schedule.answered(0.89)
    assert [schedule.due(turn) for turn in (35, 36)] == [False, True]


def test_a_suspicious_run_is_asked_about_earlier_but_never_under_5_turns():
    eager = JudgeSchedule(suspicion=0.6)
    assert asked_at(eager, 31, lambda _: 0.0, suspicion=0.7) == [5, 20]
    assert asked_at(JudgeSchedule(suspicion=0.6), 31, lambda _: 0.0, suspicion=0.5) == [30]
    assert asked_at(JudgeSchedule(), 31, lambda _: 0.0, suspicion=1.0) == [30]
    assert asked_at(JudgeSchedule(suspicion=0.6, min_turns=12), 12, lambda _: 0.0, suspicion=1.0) == [12]


@pytest.mark.parametrize("confidence", [-0.1, 1.1, math.nan, math.inf, True, "0.5", None])
def test_a_confidence_is_a_number_between_0_and_1(confidence: Any):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        checked(Judgement("", confidence, found=False, judged_by="m"))


def test_costs_add_up_and_an_estimate_stays_one():
    total = AskCost(Usage(1, 2, 0, 0, 3), estimated=True) + AskCost(Usage(10, 20, 0, 0, 30))
    assert total == AskCost(Usage(11, 22, 0, 0, 33), estimated=True)

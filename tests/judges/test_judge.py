"""When a judge is asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from monitor.chunks import AskCost, Usage
from monitor.errors import ConfigError
from monitor.judges.judge import JudgeLines, JudgeSchedule, checked, next_interval
from monitor.verdicts import Judgement


def says(confidence: float, threshold: float = 0.7) -> Judgement:
    return Judgement("", confidence, found=confidence >= threshold, judged_by="m")


def gemini(**options: Any) -> JudgeSchedule:
    """The numbers of Gemini CLI."""
    return JudgeSchedule(**{"first_turn": 30, "first_interval": 10, **options})


def asked_at(
    schedule: JudgeSchedule,
    turns: int,
    answers: Callable[[int], float | None],
    *,
    doubted: Callable[[int], bool] = lambda _: False,
    threshold: float = 0.7,
) -> list[int]:
    """The turns at which it is asked, with a call a turn. `answers`: the confidence for the turn;
    `None`: it fails.
    """
    found = []
    for turn in range(1, turns + 1):
        steps = turn - 1
        if schedule.due(turn, steps, doubted=doubted(turn)):
            schedule.asked(turn)
            found.append(turn)
            confidence = answers(turn)
            if confidence is None:
                schedule.failed()
            else:
                schedule.answered(says(confidence, threshold), steps=steps, doubted=doubted(turn))
    return found


# ------------------------------------------------------------------ with lines


@pytest.mark.feature("US-01")
def test_first_at_turn_8_and_then_in_gaps_that_grow_while_it_acquits():
    assert asked_at(JudgeSchedule(lines=JudgeLines()), 100, lambda _: 0.1) == [8, 14, 24, 40, 64, 98]


@pytest.mark.feature("US-01")
def test_a_doubt_makes_it_be_asked_earlier_but_not_before_five_steps():
    assert asked_at(JudgeSchedule(lines=JudgeLines()), 8, lambda _: 0.1, doubted=lambda turn: turn <= 6) == [6]
    assert asked_at(JudgeSchedule(lines=JudgeLines()), 8, lambda _: 0.1, doubted=lambda turn: turn <= 4) == [8]


def test_a_new_doubt_halves_the_gap():
    schedule = JudgeSchedule(lines=JudgeLines())
    assert asked_at(schedule, 30, lambda _: 0.1, doubted=lambda turn: turn > 8) == [8, 11, 16, 24]


@pytest.mark.feature("US-01")
def test_while_it_is_unsure_the_gap_shrinks():
    assert asked_at(JudgeSchedule(lines=JudgeLines()), 16, lambda _: 0.6) == [8, 11, 12, 13, 14, 15, 16]
    assert asked_at(JudgeSchedule(lines=JudgeLines()), 24, lambda turn: 0.6 if turn == 8 else 0.1) == [8, 11, 17]


@pytest.mark.feature("US-01")
def test_after_a_sentence_for_the_agent_it_is_asked_again_three_steps_later():
    assert asked_at(JudgeSchedule(lines=JudgeLines()), 20, lambda turn: 0.8 if turn < 12 else 0.0) == [8, 11, 14, 20]
    schedule = JudgeSchedule(lines=JudgeLines())
    schedule.asked(8)
    assert schedule.answered(says(0.8), steps=7) == "suspect"
    assert [schedule.due(20, steps) for steps in (9, 10)] == [False, True]


@pytest.mark.feature("US-01")
@pytest.mark.parametrize(
    ("answers", "doubted", "levels"),
    [
        ((0.49, 0.69), False, [None, None]),
        ((0.7, 0.7), False, ["suspect", "loop"]),
        ((0.7, 0.6, 0.7), False, ["suspect", None, "loop"]),
        ((0.7, 0.49, 0.7), False, ["suspect", None, "suspect"]),
        ((0.95, 0.95), False, ["suspect", "loop"]),
        ((0.9,), True, ["loop"]),
        ((0.89,), True, ["suspect"]),
    ],
)
def test_what_its_answers_mean(answers: tuple[float, ...], doubted: bool, levels: list[str | None]):
    schedule = JudgeSchedule(lines=JudgeLines())
    assert [schedule.answered(says(one), doubted=doubted) for one in answers] == levels


def test_the_lines_are_options():
    schedule = JudgeSchedule(lines=JudgeLines(unsure=0.2, sure=0.8))
    assert not schedule.acquits(says(0.3))
    assert schedule.answered(says(0.8), doubted=True) == "loop"


@pytest.mark.feature("US-01")
def test_a_question_is_put_only_if_the_judge_stays_below_its_share():
    schedule = JudgeSchedule(share=0.03)
    assert not schedule.can_pay(1_500, 49_000)
    assert schedule.can_pay(1_500, 50_000)
    schedule.answered(says(0.0), tokens=1_500)
    assert not schedule.can_pay(1_500, 99_000)
    assert schedule.can_pay(1_500, 100_000)
    schedule.failed(tokens=300)
    assert not schedule.can_pay(1_500, 100_000)
    assert JudgeSchedule().can_pay(10_000, 0)


# ------------------------------------------------------------------ without lines


@pytest.mark.feature("GL-05")
@pytest.mark.parametrize(
    ("confidence", "turns"),
    [(0.0, 15), (0.1, 14), (0.5, 10), (0.85, 7), (0.86, 6), (0.89, 6), (0.9, 6), (1.0, 5), (-3.0, 15), (7.0, 5)],
)
def test_the_surer_the_sooner_again(confidence: float, turns: int):
    assert next_interval(confidence) == turns


@pytest.mark.feature("GL-05")
def test_not_before_turn_30():
    assert asked_at(gemini(), 29, lambda _: 0.0, doubted=lambda _: True) == []
    assert asked_at(gemini(), 30, lambda _: 0.1) == [30]


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
    assert asked_at(gemini(), 60, lambda _: confidence) == turns


def test_who_fails_is_asked_half_as_often_each_time_and_forgiven_with_an_answer():
    assert asked_at(gemini(), 300, lambda _: None) == [30, 50, 90, 150, 210, 270]
    assert asked_at(gemini(), 100, lambda turn: None if turn == 30 else 1.0) == [30, *range(50, 101, 5)]
    assert asked_at(JudgeSchedule(lines=JudgeLines()), 100, lambda _: None) == [8, 20, 44, 92]


def test_failing_never_makes_it_be_asked_more_often():
    assert asked_at(gemini(first_interval=100), 300, lambda _: None) == [30, 130, 230]


def test_one_question_at_a_time():
    schedule = gemini()
    schedule.asked(30)
    assert [schedule.due(turn) for turn in (30, 31, 60, 500)] == [False] * 4
    schedule.answered(says(0.89, 0.9))
    assert [schedule.due(turn) for turn in (35, 36)] == [False, True]


def test_without_lines_each_finding_is_a_loop():
    assert [gemini().answered(says(one, 0.9)) for one in (0.89, 0.9)] == [None, "loop"]


@pytest.mark.parametrize("confidence", [-0.1, 1.1, math.nan, math.inf, True, "0.5", None])
def test_a_confidence_is_a_number_between_0_and_1(confidence: Any):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        checked(Judgement("", confidence, found=False, judged_by="m"))


def test_costs_add_up_and_an_estimate_stays_one():
    total = AskCost(Usage(1, 2, 0, 0, 3), estimated=True) + AskCost(Usage(10, 20, 0, 0, 30))
    assert total == AskCost(Usage(11, 22, 0, 0, 33), estimated=True)

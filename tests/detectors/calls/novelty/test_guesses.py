"""Guesses and walks: other items with one short answer, in words that no rule knows."""

from __future__ import annotations

import itertools
import random

import pytest

from monitor.detectors.calls.novelty.step_kind import share_of_answer, share_of_news
from tests.detectors.calls.novelty.steps import WORDS, Step, found, stopped

REFUSALS = (
    "Demande refusée : vous n'êtes pas habilité.",
    "Der Schrank lässt sich so nicht öffnen.",
    "Fel kod. Försök igen om en stund.",
    "Сейчас свободных мест больше нет, извините.",
    "該当するデータがありません",
    "Wrong. A new picture was loaded.",
    "The chest does not budge an inch.",
    "Nope, that one is taken as well.",
)


def walk(answer: str, items: list[str], tool: str = "try") -> list[Step]:
    return [(tool, {"item": item}, answer) for item in items]


@pytest.mark.parametrize("answer", REFUSALS)
def test_guesses_with_one_answer_are_a_loop_in_any_language(answer: str):
    assert stopped(walk(answer, WORDS[:14]))


@pytest.mark.parametrize("answer", REFUSALS)
@pytest.mark.parametrize("request_text", ["Try each of the words.", "Try these 18 words.", "Try " + ", ".join(WORDS)])
def test_the_request_asks_for_the_items(answer: str, request_text: str):
    assert not stopped(walk(answer, WORDS), request_text)


@pytest.mark.parametrize("answer", REFUSALS)
def test_without_a_request_guesses_that_are_no_error_are_no_evidence(answer: str):
    assert not found(walk(answer, WORDS), request="")


def test_the_more_an_answer_says_the_sooner_it_is_a_loop():
    steps = []
    for words in range(1, 8):
        answer = " ".join(WORDS[-words:])
        first = next(
            (count for count in range(1, 40) if stopped(walk(answer, [f"{one}{one}" for one in WORDS * 2][:count]))), 40
        )
        steps.append(first)
    assert steps == sorted(steps, reverse=True)
    assert steps[0] >= 2 * steps[-1]


@pytest.mark.parametrize("form", ["E{}", "P{}", "page-{}", "{}", "2026-10-{:02}"])
@pytest.mark.parametrize("step", [1, 2, 5])
def test_the_next_one_of_a_row_is_work(form: str, step: int):
    assert not stopped(walk("saved in the sheet", [form.format(at) for at in range(2, 2 + 30 * step, step)]))


def test_entries_between_keys_are_work():
    steps: list[Step] = []
    for word, other in zip(WORDS, reversed(WORDS), strict=True):
        steps += [("type", {"text": word}, "ok"), ("key", {"key": "Tab"}, "ok")]
        steps += [("type", {"text": other * 2}, "ok"), ("key", {"key": "Return"}, "ok")]
    assert not stopped(steps)


def test_silence_to_items_that_were_named_is_a_receipt():
    named: list[Step] = [("grep", {"pattern": "colour"}, "\n".join(f"src/{word}.js:7" for word in WORDS))]
    edits: list[Step] = [("sed", {"file": f"src/{word}.js", "by": "color"}, "") for word in WORDS]
    assert not stopped(named + edits)


@pytest.mark.parametrize("answer", ["2 right, 1 misplaced", "too {}", "{} in place, {} left"])
def test_a_guess_that_is_answered_by_another_number_is_a_search_with_feedback(answer: str):
    told = itertools.cycle((1, 3, 2, 1, 2, 3, 0))
    steps: list[Step] = [
        ("guess", {"code": word * 2}, answer.replace("2", "{}").format(next(told), next(told))) for word in WORDS
    ]
    assert not stopped(steps)


def test_of_a_long_answer_one_number_that_moves_is_no_news():
    def built(seconds: float) -> str:
        return f"#7 RUN npm ci\n#7 {seconds} npm says EINTEGRITY\n#7 the process did not complete, it ended with code 1"

    steps: list[Step] = [("build", {"tag": word}, built(3.5 + (7 * at % 5) / 2)) for at, word in enumerate(WORDS)]
    assert stopped(steps)


def test_a_window_of_a_log_may_show_the_same_ten_times():
    lines = "INFO the heartbeat of worker seven is fine\n" * 6
    steps: list[Step] = [("read", {"from": 200 * at, "to": 200 * at + 199}, lines) for at in range(12)]
    assert not stopped(steps)


def test_news_is_as_much_as_the_result_has_of_it():
    assert share_of_news(1, 5) == share_of_news(10, 100) == 1.0
    assert share_of_news(1, 100) == pytest.approx(0.1)
    assert share_of_answer(1) < share_of_answer(3) < share_of_answer(6) < share_of_answer(60)


def test_one_new_word_in_a_long_page_does_not_end_a_loop():
    page = " ".join(f"{one} {other}" for one in WORDS for other in WORDS[:6])
    steps: list[Step] = [("look", {"n": 1}, f"{page} {'x' * at if at % 3 == 2 else ''}") for at in range(16)]
    assert stopped(steps)


def test_what_each_answer_names_anew_is_one_thing():
    def page(at: int) -> str:
        return (
            f"dialog [ref=e{at}]: terms of use, a box 'I agree', a button to accept it, which is grey [ref=e{at + 2}]"
        )

    assert stopped([("click", {"ref": f"e{3 * at + 1}"}, page(3 * at + 2)) for at in range(1, 12)], "Accept the terms.")


def test_a_place_that_jitters_is_one_place():
    steps: list[Step] = []
    for at in range(16):
        place = f"({9.1 + at % 3 / 10:.1f}, {5.4 - at % 4 / 10:.1f})"
        here = f"hovering at {place}, wind from the west, the pad is not to be seen"
        steps.append(("fly_to", {"x": 12 + (at * 7 % 5) / 10, "y": 7 - (at * 3 % 4) / 10}, here))
    assert stopped(steps, "Land on the pad.")


@pytest.mark.parametrize("codes", ["random", "row", "grid"])
def test_numbers_that_follow_no_row_are_guesses(codes: str):
    rng = random.Random(codes)
    one = {
        "random": lambda _: rng.randint(1000, 9999),
        "row": lambda at: 1000 + 7 * at,
        "grid": lambda at: 100 * (at // 5) + at % 5,
    }
    steps: list[Step] = [
        ("open", {"gate": "A", "code": one[codes](at)}, "Fel kod. Försök igen snart.") for at in range(16)
    ]
    assert stopped(steps) is (codes == "random")

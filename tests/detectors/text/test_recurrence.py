from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import StreamRetried, TextDelta, ToolCallDelta, TurnFinished
from monitor.detectors import ContentRepetition, RecurrenceRule
from monitor.errors import ConfigError, FinishReason
from monitor.testing import cut
from tests.detectors import reference
from tests.detectors.made import REPETITIVE
from tests.detectors.rounds import LOOPS, jug_steps, loop, nearly_periodic
from tests.detectors.text.test_content_equivalence import pieces, watched
from tests.detectors.text.test_content_repetition import CUTS, found, prose
from tests.examples import at_least, every_second

MANY = at_least(60)


def words(chars: int, seed: int = 7) -> str:
    """Prose whose digits are letters."""
    return prose(chars, seed).translate({ord("0") + digit: chr(ord("a") + digit) for digit in range(10)})


def alone(**numbers: Any) -> ContentRepetition:
    return ContentRepetition(
        chant=None, tail=None, counted=None, information=None, recurrence=RecurrenceRule(**numbers)
    )


def kinds(text: str) -> set[str]:
    return {finding.kind for finding in found(text)}


# Loops with something new in every round


@pytest.mark.feature("ST-09", "GL-04")
@pytest.mark.parametrize("kind", LOOPS)
def test_a_loop_with_something_new_in_every_round_is_seen(kind: str):
    finding, *_ = found(prose(1000) + "\n\n" + loop(kind, 320 if kind == "jug steps" else 80))
    assert finding.kind in {"recurrence", "chant", "counted", "low_information"}
    assert finding.offset < 8000


@pytest.mark.parametrize("size", CUTS)
def test_what_a_finding_says(size: int):
    text = prose(1000) + "\n\n" + jug_steps(20)
    finding, *_ = watched(alone(), cut(text, size))
    assert (finding.kind, finding.level, finding.channel, finding.count, finding.threshold) == (
        "recurrence",
        "loop",
        "text",
        4,
        4,
    )
    assert finding.offset % 128 == 0
    assert finding.evidence.length == 20
    assert all(text[at : at + 20] == finding.evidence.excerpt for at in finding.evidence.offsets)
    assert finding.start_offset == finding.evidence.offsets[0] > 1000


def test_one_letter_for_fifteen_people_is_a_suspicion():
    names = "Anna Boris Clara David Elena Fritz Greta Hannes Ines Jonas Karla Ludwig Mara Nils Olga".split()  # noqa: SIM905
    letter = words(500, seed=3)
    to_somebody_else = watched(alone(), ["".join(f"Dear {name},\n\n{letter}\n\nYours\n\n" for name in names)])
    to_the_same_two = watched(alone(), ["".join(f"Dear {name},\n\n{letter}\n\nYours\n\n" for name in names[:2] * 8)])
    assert [finding.level for finding in to_somebody_else] == ["suspect"]
    assert to_the_same_two[-1].level == "loop"


def test_the_fourth_round_is_none_and_the_sixth_is_enough():
    plan = words(600, seed=3)
    text = "".join(f"\n\nAttempt {turn}. {plan}" for turn in range(7))
    assert watched(alone(), [text[: 4 * len(plan)]]) == []
    (finding,) = watched(alone(), [text])
    assert finding.offset <= 6 * (len(plan) + 13)


@pytest.mark.parametrize(("distance", "fires"), [(1200, True), (1700, False)])
def test_four_copies_have_to_lie_within_reach(distance: int, fires: bool):
    plan = words(distance, seed=3)
    assert bool(watched(alone(), [plan * 12])) is fires


@pytest.mark.parametrize(("share", "fires"), [(0.95, True), (0.5, False)])
def test_most_of_it_has_to_be_old(share: float, fires: bool):
    old = words(int(500 * share), seed=3)
    text = "".join(old + words(500 - len(old), seed=turn + 10) for turn in range(20))
    assert bool(watched(alone(), [text])) is fires


def test_rows_that_say_something_else_are_no_loop_but_a_counter_alone_says_nothing():
    names = [words(900, seed)[800:830] for seed in range(60)]
    rows = "".join(f"The request of the following customer was taken and handled: {name}\n" for name in names)
    assert watched(alone(), [rows]) == []
    assert watched(alone(), [loop("counter in lines", 60)])
    assert watched(alone(), ["".join(f"- {line}\n" for line in loop("counter in lines", 60).splitlines())]) == []


def test_of_code_everything_has_to_be_old_and_then_it_is_a_suspicion():
    accessors = "".join(
        f"  String get{name}{turn}() {{\n    return this.values[index.{name}{turn}];\n  }}\n\n"
        for turn in range(40)
        for name in "abcd"
    )
    assert watched(alone(), [accessors]) == []
    steps = "".join(
        f"  value[{turn % 8}] = compute_next_value(value, configuration, results);\n  assert value != previous_value;\n"
        for turn in range(400)
    )
    first, last, *_ = watched(alone(words_percent=60), [steps])
    assert (first.level, last.level) == ("suspect", "loop")
    assert last.offset - first.offset >= 2 * 36 * 64


def test_an_open_fence_makes_prose_no_code():
    assert watched(alone(), ["```\n" + jug_steps(16)])


def test_counted_lines_are_a_suspicion_first():
    rows = "".join(
        f"{turn}. Pour the water from the large jug into the small jug until it is full.\n" for turn in range(200)
    )
    first, last, *_ = watched(alone(), [rows])
    assert (first.level, last.level) == ("suspect", "loop")
    others = "".join(
        f"{turn}. Compute the area of a field of {turn * 7919 % 97} by {turn * 104729 % 89} metres, all of it.\n"
        for turn in range(200)
    )
    assert watched(alone(), [others]) == []


# Few words


@pytest.mark.parametrize("end", [" ", "\n", "\n\n"])
@pytest.mark.parametrize(
    "phrases",
    [
        "I'll do it.|Now.|I'll start.|OK.|Let's go.|I'll write the code.",
        "\u597d\u3002|\u6267\u884c\u3002|\u8f93\u51fa\u3002|\uff08\u771f\u7684\u8f93\u51fa\u3002\uff09",
    ],
)
def test_a_few_phrases_in_any_order_are_seen(phrases: str, end: str):
    rng = random.Random(3)
    text = prose(1000) + "\n\n" + "".join(rng.choice(phrases.split("|")) + end for _ in range(3000))
    findings = found(text[:14_000])
    assert findings[0].level == "suspect"
    assert any(finding.level == "loop" for finding in findings)


def test_what_is_said_of_few_words():
    rng = random.Random(3)
    finding, *_ = watched(
        alone(), ["".join(rng.choice(["Go. ", "Do it. ", "Now. ", "Run. ", "Output. "]) + "\n" for _ in range(800))]
    )
    assert (finding.kind, finding.level, finding.offset) == ("few_words", "suspect", 4096)
    # the last one is cut
    assert finding.message.startswith(f"{finding.count} words, only 7 of them different, within 4096")


def test_answers_to_a_test_and_boards_are_no_few_words():
    rng = random.Random(3)
    for choices in (
        ["True\n", "False\n"],
        ["C | ", "G | ", "Am | ", "F |\n"],
        ["x ", "o ", ". ", "\n"],
        ["0, ", "1, "],
    ):
        assert [f for f in watched(alone(), ["".join(rng.choices(choices, k=500))]) if f.level == "loop"] == []


def test_arguments_are_data():
    detector = ContentRepetition()
    for delta in cut('{"text": "' + jug_steps(30), 50):
        assert not detector.observe(ToolCallDelta("a", "write", delta))


def test_it_can_be_switched_off_and_numbers_that_mean_nothing_are_refused():
    assert watched(ContentRepetition(recurrence=None, counted=None, information=None), [jug_steps(30)]) == []
    one = {"samples": 1, "stale_samples": 1, "doubtful_samples": 1, "counting_samples": 1}
    for numbers in (
        {"copies": 2},
        {"stale_samples": 37},
        {"counting_samples": 0},
        one,
        {"sample_chars": 23},
        {"reach_chars": 10},
    ):
        with pytest.raises(ConfigError, match="RecurrenceRule"):
            RecurrenceRule(**numbers)


def test_a_retried_stream_takes_its_evidence_back():
    detector, plain = alone(), alone()
    for one in (detector, plain):
        one.observe(TextDelta(prose(900)))
        one.observe(TurnFinished(FinishReason.DONE))
    detector.observe(TextDelta(jug_steps(6)))
    detector.observe(StreamRetried("connection lost"))
    assert detector.snapshot() == plain.snapshot()


# Benign


@pytest.mark.feature("GL-03")
@pytest.mark.parametrize("kind", every_second(REPETITIVE))
def test_quiet_on(kind: str):
    assert found(f"Here it is:\n\n{REPETITIVE[kind]}\nThat was it.\n") == []


@pytest.mark.feature("GL-03")
@pytest.mark.parametrize("kind", every_second(REPETITIVE, odd=True))
def test_quiet_in_a_fence_as_well(kind: str):
    assert found(f"Here it is:\n\n```\n{REPETITIVE[kind]}\n```\nThat was it.\n") == []


# The same as the plain rule, for any cut


@MANY
@given(st.integers(0, 2**60), st.data())
@pytest.mark.feature("ST-09")
def test_it_is_the_plain_rule_however_the_text_is_cut(seed: int, data: st.DataObject):
    rng = random.Random(seed)
    text = nearly_periodic(rng)
    samples = data.draw(st.integers(2, 36))
    stale = data.draw(st.integers(1, samples))
    doubtful = data.draw(st.integers(1, stale))
    numbers = {
        "samples": samples,
        "stale_samples": stale,
        "doubtful_samples": doubtful,
        "counting_samples": data.draw(st.integers(1, doubtful)),
        "copies": data.draw(st.integers(3, 5)),
        "sample_chars": data.draw(st.integers(3, 22)),
        "reach_chars": data.draw(st.sampled_from([100, 700, 5000])),
        "words_percent": data.draw(st.sampled_from([0, 60, 77, 90])),
    }
    expected = list(reference.told(reference.recurrences(text, RecurrenceRule(**numbers))))
    found = [one for one in watched(alone(**numbers), pieces(rng, text)) if one.kind == "recurrence"]
    assert [(finding.offset, finding.evidence.offsets, finding.level) for finding in found] == expected
    detector = alone(**numbers)  # few words are found as well, by a rule of their own
    arrived = [at for at, letter in enumerate(text, 1) for one in detector.feed(letter) if one.kind == "recurrence"]
    assert arrived == [end for end, _, _ in expected]

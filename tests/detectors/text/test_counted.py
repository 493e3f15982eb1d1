"""Rounds in which nothing but a counter is new, in any script."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import ToolCallDelta
from monitor.detectors import ContentRepetition, CountedRule
from monitor.detectors.text.counted import NUMBER, value
from monitor.errors import ConfigError
from monitor.testing import cut
from tests.detectors import reference
from tests.detectors.numerals import NUMERALS, letters
from tests.detectors.rounds import counting
from tests.detectors.text.test_content_equivalence import assert_true_to_the_text, earliest_arrivals, pieces, watched
from tests.detectors.text.test_content_repetition import found, prose
from tests.examples import at_least, every_second

MANY = at_least(100)


SAID = "I look at the whole configuration again, and nothing has changed"
SCRIPTS = {name: write for name, write in NUMERALS.items() if name not in ("hexadecimal", "downwards", "letters")}
SCRIPTS["hexadecimal"] = hex
FORMS = (
    "Step @: {}.\n",
    "@. {}.\n",
    "- Step @: {}.\n",
    "## Step @\n\n{}.\n\n",
    "Step @: {}. ",
    "{} in step @.\n",
    "Step @/500: {}.\n",
)


def alone(**numbers: Any) -> ContentRepetition:
    return ContentRepetition(chant=None, tail=None, recurrence=None, information=None, counted=CountedRule(**numbers))


def levels(text: str, **numbers: Any) -> list[str]:
    return [finding.level for finding in watched(alone(**numbers), [text])]


def rounds(template: str, count: int, first: int = 1, by: int = 1) -> str:
    return prose(700) + "\n\n" + "".join(template.replace("@", str(first + by * turn)) for turn in range(count))


@pytest.mark.feature("ST-09", "GL-04")
@pytest.mark.parametrize(("script", "form"), every_second(product(SCRIPTS, FORMS)))
def test_a_sentence_with_a_counter_is_a_suspicion_and_then_a_loop(script: str, form: str):
    write = SCRIPTS[script]
    text = prose(700) + "\n\n" + "".join(form.format(SAID).replace("@", write(turn)) for turn in range(11, 60))
    found_alone = watched(alone(), [text])
    assert [finding.level for finding in found_alone] == ["suspect", "loop"]
    assert [finding.kind for finding in found_alone] == ["counted", "counted"]
    assert any(finding.level == "loop" for finding in found(text))


def test_letters_count_as_well():
    text = prose(700) + "\n\n" + "".join(f"{letters(turn)}. {SAID}.\n" for turn in range(1, 60))
    assert levels(text) == ["suspect", "loop"]


def test_figures_in_a_circle_count():
    circles = [*range(0x2460, 0x2474), *range(0x3251, 0x3260), *range(0x32B1, 0x32C0)]
    assert [value(chr(sign)) for sign in circles] == list(range(1, 51))
    text = prose(700) + "\n\n" + "".join(f"{chr(sign)} {SAID}.\n" for sign in circles)
    assert levels(text) == ["suspect", "loop"]


@pytest.mark.parametrize("by", [-1, 2, 10, 100])
def test_it_may_run_by_any_amount(by: int):
    assert levels(rounds(f"Step @: {SAID}.\n", 50, first=6000, by=by)) == ["suspect", "loop"]


@pytest.mark.parametrize(
    ("count", "expected"), [(20, []), (24, ["suspect"]), (39, ["suspect"]), (44, ["suspect", "loop"])]
)
def test_half_of_forty_rounds_is_a_suspicion(count: int, expected: list[str]):
    assert levels(rounds(f"Step @: {SAID}.\n", count)) == expected


def test_a_list_that_goes_on_counting_is_one_counter():
    lines = [f"I fill the {jug} jug, and pour it out into the other one" for jug in ("small", "large", "old")]
    text = prose(700) + "\n\n" + "".join(f"{turn + 1}. {lines[turn % 3]}.\n" for turn in range(60))
    assert levels(text) == ["suspect", "loop"]


@pytest.mark.parametrize(
    ("unit", "least"),
    [
        (f"**Attempt @**\n\n1. {SAID}\n2. Then I begin\n\n", 14),
        (f"| @ | {SAID} | no |\n", 40),
        ("Ticket @ is still open.\n", 40),
        ("Ticket @ open.\n", 64),
        ("item_@ = load()\n", 128),
        ('{"id": @, "state": "open", "note": null},\n', 128),
    ],
)
def test_how_many_rounds_are_enough_depends_on_what_is_said(unit: str, least: int):
    assert "loop" not in levels(rounds(unit, least))
    assert "loop" in levels(rounds(unit, least + 60))


def test_code_in_a_fence_may_count_further():
    row = "    ask the next worker for the task @\n"
    assert "loop" in levels(rounds(row, 60))
    assert levels("```\n" + rounds(row, 100)) == []
    assert "loop" in levels("```\n" + rounds(row, 160))


@pytest.mark.feature("GL-03")
@pytest.mark.parametrize(
    "row",
    [
        f"12:@:07 {SAID}\n",
        f"2024-05-@ {SAID}\n",
        f"Version 1.@ {SAID}\n",
        f"100/@ {SAID}\n",
        "@, ",
        "| @ |  |  |\n",
    ],
)
def test_times_versions_and_sums_do_not_count(row: str):
    assert levels(rounds(row, 90, first=10)) == []


TWICE = {
    "JSON": ('{"id": @, "name": "User @", "email": "user@ at example.com"},\n', 128),
    "minified JSON": ('{"id":@,"name":"Item @","url":"/items/@"},', 128),
    "table": ("| @ | Customer @ | Springfield | active |\n", 128),
    "SQL": ("INSERT INTO users (id, name) VALUES (@, 'user @');\n", 128),
    "assert": ('    self.assertEqual(convert(@), "item @")\n', 128),
    "function": ("def test_@():\n    assert run(@) is None\n\n", 128),
    "branch": ('    elif x == @:\n        return "value @"\n', 128),
    "YAML": ("  - id: @\n    name: node-@\n    host: node of rack @\n", 14),
    "CSV": ("@,user @,Lisbon,active\n", 128),
    "prose": ("In round @ I look at page @ again, and nothing has changed.\n", 40),
}


@pytest.mark.parametrize("kind", TWICE)
def test_a_counter_that_stands_twice_in_a_round_is_followed(kind: str):
    row, least = TWICE[kind]
    assert "loop" not in levels("".join(row.replace("@", str(number)) for number in range(1, least)))
    assert "loop" in levels("".join(row.replace("@", str(number)) for number in range(1, least + 200)))


@pytest.mark.parametrize(
    "row", ["INSERT INTO staff VALUES ({}, 'name{}', {});\n", '{{"id": {}, "name": "Product {}", "price": {}}},\n']
)
@pytest.mark.parametrize(("times", "more"), [(1, 20), (10, 0)])
def test_columns_that_count_apart_are_a_loop_after_128_rounds(row: str, times: int, more: int):
    rows = [row.format(number, number, times * number + more) for number in range(1, 260)]
    assert levels("".join(rows[:120])) == []
    assert "loop" in levels("".join(rows))


@pytest.mark.feature("GL-03")
def test_a_counted_song_has_more_than_one_number():
    line = "{n} bottles stand upon the wall,\n"
    verse = line + line + "and if one of them happens to fall,\n{m} bottles stand there.\n\n"
    assert levels("".join(verse.format(n=left, m=left - 1) for left in range(60, 0, -1))) == []


@pytest.mark.feature("GL-03")
@pytest.mark.parametrize("changes", ["number", "word"])
def test_rows_that_say_something_else_are_news(changes: str):
    rng = random.Random(3)
    new = (
        str(rng.randrange(10**6)) if changes == "number" else "".join(rng.choices("abcdefghij", k=6))
        for _ in range(200)
    )
    text = "".join(f"Request {turn} of customer {other}: {SAID}.\n" for turn, other in enumerate(new))
    assert levels(text) == []


def test_another_round_ends_the_count():
    before, after = rounds(f"Step @: {SAID}.\n", 30), rounds(f"Step @: {SAID}.\n", 30, first=200)
    assert levels(before + "Step 31: I have found it.\n" + after[702:]) == ["suspect", "suspect"]


def test_arguments_are_data():
    detector = alone()
    for delta in cut(rounds(f"Step @: {SAID}.\n", 90), 50):
        assert not detector.observe(ToolCallDelta("a", "write", delta))


def test_what_a_finding_says():
    text = rounds(f"Step @: {SAID}.\n", 60)
    suspicion, loop = watched(alone(), [text])
    assert (suspicion.threshold, loop.threshold) == (20, 40)
    assert loop.count >= 40
    assert loop.offset % 128 == 0
    assert loop.message.startswith(f"{loop.count} rounds in which nothing but a counter changed")
    assert_true_to_the_text(text, loop)


def test_numbers_of_all_scripts_are_read():
    for number in (1, 4, 9, 10, 19, 20, 40, 99, 101, 110, 399):
        for write in SCRIPTS.values():
            assert value(write(number)) == number
            assert NUMBER.fullmatch(write(number))
        assert value(letters(number)) == number
    assert value("二〇二四") == 2024
    assert value("7" * 400) == value("七" * 400) == int("7" * 15)
    assert value("两百") == 200


def test_numbers_that_mean_nothing_are_refused():
    for numbers in (
        {"rounds": 3},
        {"long_rounds": 41},
        {"short_rounds": 39},
        {"data_rounds": 63},
        {"reach_chars": 24},
        {"long_rounds": 3},
    ):
        with pytest.raises(ConfigError, match="CountedRule"):
            CountedRule(**numbers)


# The same as the plain rule, for any cut


@MANY
@given(st.integers(0, 2**60), st.data())
def test_it_is_the_plain_rule_however_the_text_is_cut(seed: int, data: st.DataObject):
    rng = random.Random(seed)
    text = counting(rng)
    least = data.draw(st.integers(4, 20))
    numbers = {
        "long_rounds": least,
        "rounds": least + data.draw(st.integers(0, 9)),
        "short_rounds": least + data.draw(st.integers(9, 19)),
        "data_rounds": least + data.draw(st.integers(19, 30)),
        "reach_chars": data.draw(st.sampled_from([60, 200, 640])),
        "min_chars": data.draw(st.sampled_from([0, 300, 900])),
    }
    expected = list(reference.told(reference.counters(text, CountedRule(**numbers))))
    found = watched(alone(**numbers), pieces(rng, text))
    assert [(finding.offset, finding.evidence.offsets, finding.level) for finding in found] == expected
    assert earliest_arrivals(alone(**numbers), text) == [end for end, _, _ in expected]

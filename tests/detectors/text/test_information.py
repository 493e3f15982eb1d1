"""Text that brings no news, in whatever words: the rate of information, and the kinds of text that
it knows.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.detectors import ContentRepetition, InformationRule
from monitor.detectors.text.structure import kind_of
from monitor.errors import ConfigError
from monitor.testing.loops import flood_of
from tests.detectors import reference
from tests.detectors.made import LISTS, REWORDED
from tests.detectors.rounds import nearly_periodic
from tests.detectors.text.test_content_equivalence import assert_true_to_the_text, earliest_arrivals, pieces, watched
from tests.detectors.text.test_content_repetition import prose
from tests.examples import FEWER_EACH, at_least

MANY = at_least(60)


def alone(**numbers: Any) -> ContentRepetition:
    return ContentRepetition(
        chant=None, tail=None, recurrence=None, counted=None, information=InformationRule(**numbers)
    )


def reworded(kind: str, seed: int, chars: int) -> tuple[str, int]:
    """The text, and where the loop begins."""
    text, ends = flood_of(REWORDED[kind], random.Random(f"{kind} {seed}"), LISTS, chars=chars)
    return text, ends[0]


@pytest.mark.feature("ST-09")
@pytest.mark.parametrize("kind", REWORDED)
def test_a_loop_in_ever_other_words_is_a_suspicion(kind: str):
    for seed in range(3):
        text, start = reworded(kind, seed, 10_000)
        found = watched(alone(), [text])
        assert found
        assert found[0].offset > start
        assert {one.kind for one in found} == {"low_information"}
        assert_true_to_the_text(text, found[0])


def test_what_a_finding_says():
    text, _ = reworded("two options in turn", 1, 6_000)
    finding, *_ = watched(alone(), [text])
    assert (finding.level, finding.channel, finding.count, finding.threshold) == ("suspect", "text", 4, 4)
    assert finding.message.startswith("only 0.")
    assert "bits a character are new, prose has at least 0.97, within 1536 in the answer" in finding.message


def test_a_suspicion_that_goes_on_is_told_once():
    text, _ = reworded("two options in turn", 1, 16_000)
    assert [one.level for one in watched(alone(), [text])] == ["suspect"]


@pytest.mark.feature("GL-03")
def test_a_passage_that_is_copied_once_is_quiet():
    once = prose(2_500)
    assert watched(alone(), [once + "\n\n" + once + "\n\n" + once]) == []


KINDS = {
    "prose": "I have read the settings of the service again, and I do not see at all what is wrong with them.\n" * 3,
    "verse": "The moon is out tonight,\nand every oar is dipping.\nWho rows so late alone?\nA lantern by the mill.\n",
    "list": "1. Read the settings\n2. Read the tests\n3. Read the log\n4. Run it once more\n5. Run it again\n",
    "table": "| step | state |\n| tests | failed |\n| lint | not run |\n| types | passed |\n",
    "markup": "<ul>\n<li>Read the settings again</li>\n<li>Run the tests once more</li>\n</ul>\n",
    "code": "def read(path):\n    with path.open() as file:\n        return file.read()[1:]\n",
    "data": "0x1f, 0x2e, 0x7a, 0x00,\n0x10, 0x2f, 0x7b, 0x01,\n",
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_a_text_is_told_by_its_layout(kind: str):
    assert kind_of(KINDS[kind]) == kind


def test_who_speaks_behind_a_name_makes_prose():
    said = "User: Thanks a lot!\nAssistant: My pleasure.\n"
    assert kind_of(said * 3) == "prose"
    assert kind_of("name: web\nimage: registry\nport: http\nhost: local\nzone: east\n") == "verse"


@pytest.mark.parametrize("kind", ["verse", "code", "data", "table"])
def test_what_repeats_by_nature_has_a_null_of_its_own(kind: str):
    rows = KINDS[kind].splitlines(keepends=True)
    rng = random.Random(4)
    text = "".join(row.replace("e", rng.choice("aeiou")) for row in rng.choices(rows, k=150))
    assert watched(alone(), [text]) == []


def test_numbers_that_mean_nothing_are_refused():
    for numbers in ({"code": 50}, {"prose": 500}, {"copies": 0}, {"places": 0}, {"reach_chars": 9}):
        with pytest.raises(ConfigError, match="InformationRule"):
            InformationRule(**numbers)


# The same as the plain rule, for any cut


@MANY
@given(st.integers(0, 2**60), st.data())
def test_it_is_the_plain_rule_however_the_text_is_cut(seed: int, data: st.DataObject):
    rng = random.Random(seed)
    kind = rng.choice([*REWORDED, ""])
    text = reworded(kind, seed, 9_000)[0] if kind else nearly_periodic(rng)
    code = data.draw(st.sampled_from([0, 40]))
    numbers = {
        "code": code,
        "lines": code + data.draw(st.sampled_from([0, 30])),
        "prose": data.draw(st.sampled_from([75, 97, 200])),
        "wide_prose": 200,
        "copies": data.draw(st.integers(1, 4)),
        "places": data.draw(st.integers(1, 30)),
        "reach_chars": data.draw(st.sampled_from([300, 1000, 4600])),
    }
    expected = list(reference.told(reference.informations(text, InformationRule(**numbers))))
    found = watched(alone(**numbers), pieces(rng, text))
    assert [(finding.offset, finding.evidence.offsets, finding.level) for finding in found] == expected


@FEWER_EACH
@given(st.integers(0, 2**60), st.sampled_from(list(REWORDED)))
def test_it_comes_at_its_character_and_survives_a_restart(seed: int, kind: str):
    text, _ = reworded(kind, seed, 6_000)
    whole = watched(alone(), [text])
    assert earliest_arrivals(alone(), text) == [finding.offset for finding in whole]
    first, second = alone(), alone()
    at = seed % len(text)
    before = list(first.feed(text[:at]))
    second.restore(json.loads(json.dumps(first.snapshot())))
    assert [*before, *second.feed(text[at:])] == whole

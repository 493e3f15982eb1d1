"""The same long text again and again, longer than any rule can hold."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from monitor.chunks import ToolCallDelta
from monitor.detectors import ContentRepetition, TailRule
from monitor.errors import ConfigError
from monitor.testing import cut
from tests.detectors.text.test_content_equivalence import assert_true_to_the_text, watched
from tests.detectors.text.test_content_repetition import prose

Make: TypeAlias = Callable[[int, int], str]


def words(chars: int, seed: int) -> str:
    """New words only, so that nothing repeats within."""
    rng = random.Random(seed)
    text = " ".join("".join(rng.choices("abcdefghiklmnoprstuvw", k=rng.randint(2, 9))) for _ in range(chars // 3))
    return text[: chars - 2] + ".\n"


def code(chars: int, seed: int) -> str:
    rng = random.Random(seed)
    lines = "".join(f"    total_{rng.randrange(10**6)} = count(rows[{n}])\n" for n in range(chars // 20))
    return "```python\n" + lines[: chars - 20] + "\n```\n\n"


def rows(chars: int, seed: int) -> str:
    """A table, whose rows begin alike."""
    rng = random.Random(seed)
    return "| a | b |\n|---|---|\n" + "".join(f"| open | {rng.randrange(99):02} |\n" for _ in range(chars // 14)) + "\n"


def alone(**numbers: Any) -> ContentRepetition:
    return ContentRepetition(chant=None, recurrence=None, counted=None, information=None, tail=TailRule(**numbers))


MAKERS: tuple[Make, ...] = (words, code, rows)


@pytest.mark.feature("ST-09", "GL-04")
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("chars", [1100, 2500, 12_000])
def test_a_text_of_any_length_that_is_written_over_and_over_is_a_loop(make: Make, chars: int):
    for before in (0, 3000):
        findings = watched(alone(), [words(before + 3, 1) + make(chars, 2) * (8 + 6000 // chars)])
        assert any(finding.level == "loop" for finding in findings), before


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_found_is_in_the_text_at_the_same_place_for_any_cut(make: Make):
    text = words(5000, 3) + make(2300, 4) * 12
    whole = watched(alone(), [text])
    assert [finding.level for finding in whole][:2] == ["suspect", "loop"]
    assert "times the same 23" in whole[0].message or make is not words
    for size in (9, 997):
        assert watched(alone(), cut(text, size)) == whole
    for finding in whole:
        assert finding.kind == "copies"
        assert_true_to_the_text(text, finding)
        run, length = (
            text[finding.start_offset : finding.offset],
            finding.evidence.offsets[1] - finding.evidence.offsets[0],
        )
        assert run[length:] == run[:-length]
        assert len(run) >= finding.count * length
        assert finding.evidence.length == length


@pytest.mark.feature("GL-03")
def test_texts_that_differ_are_no_copies():
    unit = words(2500, 5)
    changed = "".join(unit[:at] + "X" + unit[at + 1 :] for at in range(100, 2400, 150))
    assert watched(alone(), [changed]) == []
    assert watched(alone(), [prose(60_000)]) == []
    assert watched(alone(), [words(4000, 6) + unit * 4 + words(9000, 7)]) == []
    assert [one.level for one in watched(alone(), [unit * 5 + words(20_000, 8)])] == ["suspect"]
    assert watched(alone(longest_copy_chars=2048), [words(4000, 8) * 9]) == []


def test_a_file_that_is_written_may_repeat_more_often():
    def levels(times: int) -> list[str]:
        detector = ContentRepetition()
        pieces = cut(words(1500, 9) * times, 400)
        return [one.level for piece in pieces for one in detector.observe(ToolCallDelta("a", "write_file", piece))]

    assert levels(11) == []
    assert levels(16) == ["suspect"]
    assert levels(28) == ["suspect", "loop"]


def test_a_restored_channel_goes_on_as_if_nothing_had_happened():
    text = words(1500, 10) + words(2600, 11) * 8
    whole = watched(ContentRepetition(), [text])
    for at in (300, 4000, 9000, 13_500):
        first, second = ContentRepetition(), ContentRepetition()
        before = list(first.feed(text[:at]))
        second.restore(json.loads(json.dumps(first.snapshot())))
        assert [*before, *second.feed(text[at:])] == whole


def test_a_limit_below_what_is_hashed_at_once_is_refused():
    with pytest.raises(ConfigError, match="longest_copy_chars"):
        TailRule(longest_copy_chars=1000)
    text = words(2600, 11) * 9
    assert (
        watched(
            ContentRepetition(
                chant=None, recurrence=None, counted=None, information=None, tail=TailRule(longest_copy_chars=None)
            ),
            [text],
        )
        == []
    )

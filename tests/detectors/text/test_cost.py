"""The cost of text is linear, whatever rules are on. It is counted, not timed: the characters that
are copied or searched.
"""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any, SupportsIndex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import Chunk, TextDelta, ToolCallDelta
from monitor.detectors import ContentRepetition, CountedRule, InformationRule, RecurrenceRule, TailRule, WindowRule
from monitor.detectors.text.content_repetition import RULE_OPTIONS
from monitor.testing import cut
from tests.examples import FEWER_EACH

SUBSETS: list[dict[str, Any]] = [
    dict.fromkeys(off) for many in range(len(RULE_OPTIONS) + 1) for off in combinations(RULE_OPTIONS, many)
]
"""Which rules are switched off: from none to all."""
CHANNELS: dict[str, Any] = {
    "text": TextDelta,
    "arguments": lambda text: ToolCallDelta("a", "write", text),
}
SHORT, LONG = 20_000, 40_000


class Counted(str):
    """A text that counts the characters that its copies and searches touch. Its parts are such
    texts as well.
    """

    __slots__ = ()
    touched = 0

    def __add__(self, other: str) -> Counted:
        return self._count(str.__add__(self, other))

    def __radd__(self, other: str) -> Counted:
        return self._count(str.__add__(other, self))

    def __getitem__(self, part: SupportsIndex | slice) -> Counted:
        return self._count(str.__getitem__(self, part))

    def __contains__(self, part: object) -> bool:
        self._count(self)
        return str.__contains__(self, str(part))

    def find(self, part: str, start: Any = None, end: Any = None) -> int:
        Counted.touched += len(range(len(self))[start:end])
        return str.find(self, part, start, end)

    def rfind(self, part: str, start: Any = None, end: Any = None) -> int:
        Counted.touched += len(range(len(self))[start:end])
        return str.rfind(self, part, start, end)

    def count(self, part: str, start: Any = None, end: Any = None) -> int:
        Counted.touched += len(range(len(self))[start:end])
        return str.count(self, part, start, end)

    def _count(self, text: str) -> Counted:
        Counted.touched += len(text)
        return Counted(text)


def prose(chars: int) -> str:
    rng, words = random.Random(3), list[str]()
    while sum(map(len, words)) < chars:
        words += ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) + " " for _ in range(500)]
    return "".join(words)


TEXTS = {
    "prose": prose(LONG),
    "a file as JSON": "".join(f'{{"id": {n}, "name": "{n * n}", "text": "one line\\n"}},\n' for n in range(LONG // 40)),
    "one letter": "a" * LONG,
    "nearly a chant": "I will look at the file again, and then at the one that is after it in the folder.  " * 500,
}


def cost(detector: ContentRepetition, chunks: list[Chunk]) -> int:
    Counted.touched = 0
    for chunk in chunks:
        detector.observe(chunk)
    return Counted.touched


def chunks_of(text: str, channel: str, size: int) -> list[Chunk]:
    return [CHANNELS[channel](Counted(piece)) for piece in cut(text, size)]


@pytest.mark.parametrize("off", SUBSETS, ids=lambda off: " ".join(off) or "none")
@pytest.mark.parametrize("channel", CHANNELS)
def test_twice_the_text_costs_twice_as_much_whatever_is_switched_off(channel: str, off: dict[str, Any]):
    for name, text in TEXTS.items():
        short, long = (cost(ContentRepetition(**off), chunks_of(text[:chars], channel, 64)) for chars in (SHORT, LONG))
        assert short > SHORT, "the texts are counted"
        assert long < 2.4 * short, f"{name}: {short:,} for {SHORT:,} characters, {long:,} for {LONG:,}"


NUMBERS: dict[str, Any] = {
    "chant": st.builds(
        WindowRule,
        repeats=st.integers(2, 12),
        near_chars=st.integers(20, 100),
        far_chars=st.sampled_from([None, 250]),
        unit_chars=st.integers(1, 50),
        sample_chars=st.integers(1, 50),
        doubtful_rounds=st.integers(1, 5),
        any_text=st.booleans(),
    ),
    "tail": st.builds(
        TailRule, max_period_chars=st.integers(1, 1_024), longest_copy_chars=st.sampled_from([None, 2_048])
    ),
    "recurrence": st.builds(RecurrenceRule, copies=st.integers(3, 6)),
    "counted": st.builds(CountedRule, reach_chars=st.integers(30, 600)),
    "information": st.builds(InformationRule, copies=st.integers(1, 6), places=st.integers(1, 24)),
}


@FEWER_EACH
@given(
    rules=st.fixed_dictionaries({option: st.none() | NUMBERS[option] for option in RULE_OPTIONS}),
    channel=st.sampled_from([*CHANNELS]),
    name=st.sampled_from([*TEXTS]),
    size=st.sampled_from([16, 64, 300]),
)
def test_the_cost_is_linear_with_any_numbers(rules: dict[str, Any], channel: str, name: str, size: int):
    text = TEXTS[name]
    short, long = (cost(ContentRepetition(**rules), chunks_of(text[:chars], channel, size)) for chars in (SHORT, LONG))
    assert short > SHORT
    assert long < 2.4 * short


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_channel_without_rules_keeps_no_text(channel: str):
    detector = ContentRepetition(**SUBSETS[-1])
    for chunk in chunks_of(TEXTS["prose"], channel, 64):
        assert not detector.observe(chunk)
    (kept,) = detector.snapshot()["channels"].values()
    assert len(kept["text"]) + len(kept["pending"]) < 256
    assert kept["base"] + len(kept["text"]) + len(kept["pending"]) == len(TEXTS["prose"])

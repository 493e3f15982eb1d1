"""Texts made to be slow are where shortcuts are taken; the findings are those of the plain rules
all the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from bench import _worst_text, detectors
from monitor.detectors import ContentRepetition, WindowRule
from monitor.verdicts import Detection
from tests.detectors import reference

CYCLES = {**_worst_text.HAND_MADE, **_worst_text.FOUND}


@pytest.mark.parametrize("name", CYCLES)
def test_chants_of_slow_texts_are_those_of_the_plain_rule(name: str) -> None:
    text = _worst_text.written(CYCLES[name], 4_000)
    assert_chants(text, ContentRepetition(tail=None, recurrence=None, counted=None, information=None).feed(text))


@pytest.mark.parametrize("seed", range(25))
def test_chants_of_their_mutants_too_for_any_cut(seed: int) -> None:
    rng = random.Random(seed)
    text = _worst_text.written(_worst_text.changed(rng, rng.choice(list(CYCLES.values()))), 4_000)
    detector = ContentRepetition(tail=None, recurrence=None, counted=None, information=None)
    assert_chants(text, [finding for character in text for finding in detector.feed(character)])


def assert_chants(text: str, found: Sequence[Detection]) -> None:
    expected = list(reference.told(reference.chants(text, WindowRule())))
    assert [(finding.offset, finding.evidence.offsets, finding.level) for finding in found] == expected


def test_a_cycle_writes_the_same_text_again() -> None:
    for cycle in CYCLES.values():
        text = _worst_text.written(cycle, 2_000)
        assert len(text) == 2_000
        assert text == _worst_text.written(cycle, 2_000)


def test_the_search_ends_with_a_text_that_costs_something() -> None:
    cost, cycle = _worst_text.search(0.2, seed=1, chars=1_000)
    assert cost > 0
    assert _worst_text.described(cycle)


def test_the_tables_have_what_they_promise() -> None:
    prose = detectors.prose_of(detectors.recorded(), 40_000)
    held = {row["text"]: row["bytes"] for row in detectors.held(prose)}
    assert 10_000 < held["ASCII"] < 20_000  # how much exactly is the interpreter's business
    assert held["ASCII"] < held["Chinese"]
    rows = detectors.worst(1_000, seconds=0)
    assert {row["text"] for row in rows} == {*CYCLES, "found now"}
    slow = [
        {**row, "us_per_char_4096": 9.0 if row["text"] == "one letter" else 0.0, "us_per_char": 0.0} for row in rows
    ]
    assert detectors.show_rest(slow, [], []) == ["1.0 us per character in deltas of 4096: one letter"]

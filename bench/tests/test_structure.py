"""The made set of loops with structure: enough kinds, the same text for the same seed, and the
promise on a part of it.
"""

from __future__ import annotations

import random

import pytest
from rich.console import Console

from bench import structure
from bench.structure import LOOPS, QUIET
from bench.structure_kinds import FIRST, SECOND, WORDINGS, Wording, looping


def test_there_are_enough_kinds_and_two_wordings_that_share_no_word():
    assert len(LOOPS) >= 60
    assert len(QUIET) >= 120
    for group in ("nouns", "verbs", "kinds", "names", "places", "shapes", "step", "state", "tool", "speakers"):
        assert not set(getattr(FIRST, group)) & set(getattr(SECOND, group))
    assert all(not set(FIRST.foreign[code]) & set(SECOND.foreign[code]) for code in FIRST.foreign)


@pytest.mark.parametrize("words", WORDINGS, ids=lambda words: words.name)
def test_a_seed_writes_the_same_text_again(words: Wording):
    for kind, loop in LOOPS.items():
        assert looping(loop, random.Random(kind), words) == looping(loop, random.Random(kind), words)
    for make in QUIET.values():
        assert make(random.Random(3), words) == make(random.Random(3), words)


@pytest.mark.parametrize("words", WORDINGS, ids=lambda words: words.name)
def test_structure_raises_the_threshold_and_does_not_blind(words: Wording, capsys: pytest.CaptureFixture[str]):
    (part,) = structure.measure(1, [words])
    assert part.caught >= structure.LEAST_CAUGHT * part.loops
    assert part.stopped <= structure.MOST_STOPPED * part.good
    assert part.differing == []
    assert all(value >= limit if least else value <= limit for _, value, limit, least in part.goals())
    structure.show(Console(width=150), [part], explain=True)
    assert words.name in capsys.readouterr().out
    assert part.to_dict()["loops"] == len(LOOPS)

"""The made set of loops with structure: enough kinds, the same text for the same seed, and the
promise on a part of it.
"""

from __future__ import annotations

import random

import pytest
from rich.console import Console

from bench import structure
from bench.structure_kinds import LOOPS, QUIET, WORDINGS, looping


def test_there_are_enough_kinds_and_two_wordings_that_share_no_word():
    assert len(LOOPS) >= 60
    assert len(QUIET) >= 120
    one, other = WORDINGS.values()
    same = {name for name in one if one[name] == other[name]}
    assert same == {"n", "d", "x", "hex", "time", "yes", "done"}
    for name in one.keys() - same:
        assert not {str(word) for word in one[name]} & {str(word) for word in other[name]}


@pytest.mark.parametrize("name", WORDINGS)
def test_a_seed_writes_the_same_text_again(name: str):
    lists = WORDINGS[name]
    for kind, loop in LOOPS.items():
        assert looping(loop, random.Random(kind), lists) == looping(loop, random.Random(kind), lists)
    for make in QUIET.values():
        assert make(random.Random(3), lists) == make(random.Random(3), lists)


@pytest.mark.parametrize("name", WORDINGS)
def test_structure_raises_the_threshold_and_does_not_blind(name: str, capsys: pytest.CaptureFixture[str]):
    (part,) = structure.measure(1, {name: WORDINGS[name]})
    assert part.caught >= structure.LEAST_CAUGHT * part.loops
    assert part.stopped <= structure.MOST_STOPPED * part.good
    assert part.differing == []
    assert all(value >= limit if least else value <= limit for _, value, limit, least in part.goals())
    structure.show(Console(width=150), [part], explain=True)
    assert name in capsys.readouterr().out
    assert part.to_dict()["loops"] == len(LOOPS)

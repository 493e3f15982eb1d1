"""Sequences of calls that no recorded run holds: every kind of loop is stopped, or doubted so that
a judge is asked, and no good work is stopped.

`python -m bench.quality` counts the same kinds with other seeds.
"""

from __future__ import annotations

import pytest

from tests.detectors.made import RUNS, of_group, watched

LOOPS, GOOD = of_group(RUNS, "loop"), of_group(RUNS, "good")
MOST_DOUBTED = 0.25
"""The share of kinds of good work about which a judge may be asked."""
STOPPED = 0.5
"""The share of kinds of loops that counting alone stops: the others are for the judge."""


def test_there_are_enough_of_them():
    assert len(LOOPS) >= 30
    assert len(GOOD) >= 60


def levels(kind: str) -> list[set[str]]:
    """The levels of the findings, for two seeds."""
    return [{found.level for found in watched(RUNS[kind], f"{kind} {seed}")} for seed in range(2)]


@pytest.mark.feature("ST-07", "ST-08")
@pytest.mark.parametrize("kind", LOOPS)
def test_every_kind_of_loop_is_stopped_or_doubted(kind: str):
    assert all(levels(kind))


@pytest.mark.feature("ST-07", "ST-08")
def test_counting_alone_stops_half_of_the_kinds():
    stopped = [kind for kind in LOOPS if all("loop" in found for found in levels(kind))]
    assert len(stopped) >= STOPPED * len(LOOPS)


@pytest.mark.feature("ST-07", "ST-08")
@pytest.mark.parametrize("kind", GOOD)
def test_no_kind_of_good_work_is_stopped(kind: str):
    assert not any("loop" in found for found in levels(kind))


def test_few_kinds_of_good_work_are_doubted():
    assert len([kind for kind in GOOD if any(levels(kind))]) <= MOST_DOUBTED * len(GOOD)

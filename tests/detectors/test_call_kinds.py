"""Sequences of calls that no recorded run holds: every kind of loop is caught, and no good work is
stopped.

`python -m bench.quality` counts the same kinds with other seeds.
"""

from __future__ import annotations

import pytest

from tests.detectors.made import RUNS, of_group, watched

LOOPS, GOOD = of_group(RUNS, "loop"), of_group(RUNS, "good")
NUDGED = {
    "a job that waits",
    "sql rows by name",
    "scroll and look at once",
    "retries that recover",
    "sub-agents at once",
}
"""Good work that looks like a loop enough for a nudge: it waits, tries again, or says the same
several times at once.
"""


def test_there_are_enough_of_them():
    assert len(LOOPS) >= 30
    assert len(GOOD) >= 60


@pytest.mark.feature("ST-07", "ST-08")
@pytest.mark.parametrize("kind", LOOPS)
def test_every_kind_of_loop_is_caught(kind: str):
    for seed in range(2):
        assert any(found.level == "loop" for found in watched(RUNS[kind], f"{kind} {seed}"))


@pytest.mark.feature("ST-07", "ST-08")
@pytest.mark.parametrize("kind", GOOD)
def test_no_kind_of_good_work_is_stopped(kind: str):
    for seed in range(2):
        found = watched(RUNS[kind], f"{kind} {seed}")
        assert {one.level for one in found} <= ({"suspect"} if kind in NUDGED else set())

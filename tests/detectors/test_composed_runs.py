"""Runs that were composed to be hard: loops of different calls, and good work of equal calls. Each
has a shape of its own. The default detectors know the request. The runs by others were written
without a look at the detectors.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from monitor.transcripts.analysis.scan import watch_run
from monitor.transcripts.corpus import Corpus

FOLDER = Path(__file__).parents[2] / "fixtures" / "transcripts"
OWN, BY_OTHERS = "composed.jsonl.gz", "composed_by_others.jsonl.gz"


@cache
def stops(file: str) -> dict[str, dict[str, bool]]:
    """Whether each run of `file` is stopped, by label."""
    found: dict[str, dict[str, bool]] = {"loop": {}, "hard_negative": {}}
    for run in Corpus(FOLDER / file):
        found[str(run.label)][run.id] = watch_run(run).ended_by is not None
    return found


@cache
def doubts(file: str) -> dict[str, dict[str, bool]]:
    """Whether there is any finding in each run of `file`, so that a judge is asked, by label."""
    found: dict[str, dict[str, bool]] = {"loop": {}, "hard_negative": {}}
    for run in Corpus(FOLDER / file):
        found[str(run.label)][run.id] = bool(watch_run(run).findings)
    return found


@pytest.mark.parametrize(("file", "share"), [(OWN, 0.65), (BY_OTHERS, 0.8)])
def test_most_composed_loops_are_stopped_without_a_judge(file: str, share: float):
    loops = stops(file)["loop"]
    assert len(loops) >= 120
    assert sum(loops.values()) >= share * len(loops), [name for name, seen in loops.items() if not seen]


@pytest.mark.parametrize("file", [OWN, BY_OTHERS])
def test_a_judge_is_asked_about_nearly_every_composed_loop_and_few_good_runs(file: str):
    loops, good = doubts(file)["loop"], doubts(file)["hard_negative"]
    assert sum(loops.values()) >= 0.97 * len(loops), [name for name, seen in loops.items() if not seen]
    assert sum(good.values()) <= 0.16 * len(good), [name for name, seen in good.items() if seen]


@pytest.mark.parametrize(("file", "share"), [(OWN, 0.03), (BY_OTHERS, 0.05)])
def test_hardly_any_good_composed_run_is_stopped(file: str, share: float):
    good = stops(file)["hard_negative"]
    assert len(good) >= 120
    assert sum(good.values()) <= share * len(good), [name for name, seen in good.items() if seen]

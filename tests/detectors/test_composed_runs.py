"""Runs that were composed to be hard: loops of different calls, and good work of equal calls. Each
has a shape of its own. The default detectors know the request.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from monitor.transcripts.analysis.scan import watch_chunks
from monitor.transcripts.base import RecordedRun
from monitor.transcripts.corpus import Corpus

FILE = Path(__file__).parents[2] / "fixtures" / "transcripts" / "composed.jsonl.gz"


def stopped(run: RecordedRun) -> bool:
    """Whether the guard's default would have stopped the run."""
    return watch_chunks(run.chunks(), task=run.task).ended_by is not None


@cache
def stops() -> dict[str, dict[str, bool]]:
    """Whether each run is stopped, by label."""
    found: dict[str, dict[str, bool]] = {"loop": {}, "hard_negative": {}}
    for run in Corpus(FILE):
        found[str(run.label)][run.id] = stopped(run)
    return found


def test_most_composed_loops_are_stopped():
    loops = stops()["loop"]
    assert len(loops) >= 120
    assert sum(loops.values()) >= 0.87 * len(loops), [name for name, seen in loops.items() if not seen]


def test_hardly_any_good_composed_run_is_stopped():
    good = stops()["hard_negative"]
    assert len(good) >= 120
    assert sum(good.values()) <= 0.03 * len(good), [name for name, seen in good.items() if seen]

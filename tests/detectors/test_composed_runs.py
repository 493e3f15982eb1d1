"""Runs that were composed to be hard: loops of different calls, and good work of equal calls. Each
has a shape of its own. The default detectors know the request. The runs by others were written
without a look at the detectors.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from monitor.transcripts.analysis.scan import RunScanner
from monitor.transcripts.base import Chunker, RecordedRun
from monitor.transcripts.corpus import Corpus

FOLDER = Path(__file__).parents[2] / "fixtures" / "transcripts"
OWN, BY_OTHERS = "composed.jsonl.gz", "composed_by_others.jsonl.gz"


def stopped(run: RecordedRun) -> bool:
    """Whether the default would have stopped the run, which hears each request in its turn."""
    scanner, chunker = RunScanner(), Chunker()
    for index, message in enumerate(run.messages):
        if message.role == "user" and message.text:
            scanner.request(message.text)
        for chunk in chunker.chunks(message):
            scanner.take(index, chunk)
    return scanner.ended_by is not None


@cache
def stops(file: str) -> dict[str, dict[str, bool]]:
    """Whether each run of `file` is stopped, by label."""
    found: dict[str, dict[str, bool]] = {"loop": {}, "hard_negative": {}}
    for run in Corpus(FOLDER / file):
        found[str(run.label)][run.id] = stopped(run)
    return found


@pytest.mark.parametrize(("file", "share"), [(OWN, 0.87), (BY_OTHERS, 0.6)])
def test_most_composed_loops_are_stopped(file: str, share: float):
    loops = stops(file)["loop"]
    assert len(loops) >= 120
    assert sum(loops.values()) >= share * len(loops), [name for name, seen in loops.items() if not seen]


@pytest.mark.parametrize(("file", "share"), [(OWN, 0.03), (BY_OTHERS, 0.05)])
def test_hardly_any_good_composed_run_is_stopped(file: str, share: float):
    good = stops(file)["hard_negative"]
    assert len(good) >= 120
    assert sum(good.values()) <= share * len(good), [name for name, seen in good.items() if seen]

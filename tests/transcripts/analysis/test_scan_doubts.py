"""What the detectors find is a doubt, and a reason to ask a judge: of most loops, and of hardly any
other run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.judges import LoopJudge
from monitor.judges.judge import Judge, JudgeInput
from monitor.policy import ObserveOnly
from monitor.testing import ScriptedModel
from monitor.transcripts import Corpus, RecordedRun
from monitor.verdicts import Judgement
from tests.transcripts.scanned import scan_run

CORPUS = Path(__file__).parents[3] / "fixtures" / "transcripts" / "dev.jsonl.gz"


def is_asked_about(run: RecordedRun) -> bool:
    """Whether a judge is asked that only a doubt can call."""
    asked: list[int] = []

    def ask(judge: Judge, told: JudgeInput) -> Judgement:
        asked.append(told.turn)
        return Judgement("", 0.0, found=False, judged_by="m")

    judge = LoopJudge(ScriptedModel(), first_turn=1_000_000, share=None)
    scan_run(run, judge=judge, ask_judge=ask, policy=ObserveOnly())
    return bool(asked)


@pytest.mark.feature("US-01")
def test_on_recorded_runs_a_doubt_calls_the_judge_for_most_loops_and_few_others():
    runs = [run for run in Corpus(CORPUS) if sum(message.role == "assistant" for message in run.messages) >= 5]
    loops = [run for run in runs if run.loop is not None and run.loop.kind.startswith(("tool", "error"))]
    others = [run for run in runs if run.label in {"clean", "hard_negative"}]
    assert (len(loops), len(others)) == (79, 254)
    assert sum(map(is_asked_about, loops)) >= 74
    assert sum(map(is_asked_about, others[::4])) <= 1

"""A run in memory, watched as the runs of a file are."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.detectors.detector import Detector
from monitor.judges.judge import Judge
from monitor.policy import Policy
from monitor.transcripts import RecordedRun
from monitor.transcripts.analysis.scan import AskJudge
from monitor.transcripts.analysis.survey import SurveyedRun, WatchSettings
from monitor.transcripts.base import Began, Ended


def scan_run(
    run: RecordedRun,
    *,
    detectors: Sequence[Detector] | None = None,
    policy: Policy | None = None,
    judge: Judge | None = None,
    ask_judge: AskJudge | None = None,
) -> SurveyedRun:
    """What a scan finds in `run`."""
    made = None if detectors is None else (lambda: detectors)
    watcher = WatchSettings(made, lambda: policy, judge=judge, ask_judge=ask_judge).begin(Began(run=run.id))
    for message in run.messages:
        watcher.take(message)
    return watcher.run("runs.jsonl", "runs", Ended(run=run.id))

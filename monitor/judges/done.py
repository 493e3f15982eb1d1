"""DoneJudge: a model that says whether the task is complete. The condition `TaskDone` reads its
answer.
"""

from __future__ import annotations

from typing import Any

from monitor._util.explained_options import explains_options
from monitor.judges.loop import ModelJudge
from monitor.judges.prompts import DONE_INSTRUCTIONS
from monitor.models import Model
from monitor.verdicts import Fact


class DoneJudge(ModelJudge):
    """Says whether the task is complete. Use it with `stop_when=monitor.TaskDone()`.

    Asked from turn 2 on, because a task may be done at any turn. Asked again after `first_interval`
    turns, until it has given a confidence.
    """

    fact: Fact = "done"
    instructions = DONE_INSTRUCTIONS

    @explains_options(example="monitor.DoneJudge(monitor.model('google:gemini-2.5-flash'))")
    def __init__(self, model: Model, **options: Any) -> None:
        """The options are those of `LoopJudge`. The threshold is 0.8 here: a run that is stopped
        too early can be continued.
        """
        super().__init__(model, **{"first_turn": 2, "first_interval": 1, "threshold": 0.8, **options})

"""DoneJudge: a model that says whether the task is complete. Its answer is a fact of the run, which
the condition `TaskDone` reads.
"""

from __future__ import annotations

from typing import Any

from monitor.judges.loop import ModelJudge
from monitor.judges.prompts import DONE_INSTRUCTIONS
from monitor.models import Model


class DoneJudge(ModelJudge):
    """Says whether the task is complete. Use it with `stop_when=monitor.TaskDone()`.

    Asked from turn 2 on, because a task may be done at any turn, and again after `first_interval`
    turns until it has said how sure it is.
    """

    fact = "done"
    instructions = DONE_INSTRUCTIONS

    def __init__(self, model: Model, **options: Any) -> None:
        """Options are those of `LoopJudge`; the threshold is 0.8 here: what is stopped too early
        can be asked for again.
        """
        super().__init__(model, **{"first_turn": 2, "first_interval": 1, "threshold": 0.8, **options})

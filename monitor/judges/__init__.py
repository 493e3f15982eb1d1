"""Models that examine a run from outside, from time to time: is it stuck, is its task done?"""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.judges.base import Ask as Ask
    from monitor.judges.base import Judge as Judge
    from monitor.judges.base import JudgeInput as JudgeInput
    from monitor.judges.base import JudgeSchedule as JudgeSchedule
    from monitor.judges.base import as_judges as as_judges
    from monitor.judges.digest import Digest as Digest
    from monitor.judges.done import DoneJudge as DoneJudge
    from monitor.judges.loop import LoopJudge as LoopJudge

__all__ = [
    "Ask",
    "Digest",
    "DoneJudge",
    "Judge",
    "JudgeInput",
    "JudgeSchedule",
    "LoopJudge",
    "as_judges",
]

if not TYPE_CHECKING:  # a type checker would believe that every name is there
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Ask": "monitor.judges.base",
            "Digest": "monitor.judges.digest",
            "DoneJudge": "monitor.judges.done",
            "Judge": "monitor.judges.base",
            "JudgeInput": "monitor.judges.base",
            "JudgeSchedule": "monitor.judges.base",
            "LoopJudge": "monitor.judges.loop",
            "as_judges": "monitor.judges.base",
        },
    )

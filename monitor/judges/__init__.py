"""Models that examine a run from outside, from time to time: is it stuck, is its task done?"""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.judges.digest import Digest as Digest
    from monitor.judges.judge import Ask as Ask
    from monitor.judges.judge import Judge as Judge
    from monitor.judges.judge import JudgeInput as JudgeInput
    from monitor.judges.judge import JudgeLines as JudgeLines
    from monitor.judges.judge import JudgeSchedule as JudgeSchedule
    from monitor.judges.loop import DoneJudge as DoneJudge
    from monitor.judges.loop import LoopJudge as LoopJudge
    from monitor.judges.loop import as_judges as as_judges
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)

"""The goal of a run: the outputs that it must emit, its plan, and the tools with which the model
reports both.
"""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor._util.arguments import GoalAnswer as GoalAnswer
    from monitor.goal.outputs import Outputs as Outputs
    from monitor.goal.outputs import Terminate as Terminate
    from monitor.goal.plan import Plan as Plan
    from monitor.goal.plan import PlanState as PlanState
    from monitor.goal.plan import Step as Step
    from monitor.goal.plan import StepStatus as StepStatus
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)

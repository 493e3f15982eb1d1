"""The goal of a run: the outputs that it must emit, its plan, and the tools with which the model
reports both.
"""

from monitor._util.arguments import Answer as Answer
from monitor.goal.outputs import Outputs as Outputs
from monitor.goal.outputs import Terminate as Terminate
from monitor.goal.plan import Plan as Plan
from monitor.goal.plan import PlanState as PlanState
from monitor.goal.plan import Step as Step
from monitor.goal.plan import StepStatus as StepStatus

__all__ = ["Answer", "Outputs", "Plan", "PlanState", "Step", "StepStatus", "Terminate"]

"""Conditions that end a run: `MaxTurns(30) | Timeout(600)`."""

from monitor.conditions.base import AllOf as AllOf
from monitor.conditions.base import AnyOf as AnyOf
from monitor.conditions.base import Condition as Condition
from monitor.conditions.base import Not as Not
from monitor.conditions.base import condition_from_dict as condition_from_dict
from monitor.conditions.deadlines import FirstChunkTimeout as FirstChunkTimeout
from monitor.conditions.deadlines import IdleTimeout as IdleTimeout
from monitor.conditions.deadlines import Timeout as Timeout
from monitor.conditions.facts import OutputsComplete as OutputsComplete
from monitor.conditions.facts import PlanComplete as PlanComplete
from monitor.conditions.facts import Predicate as Predicate
from monitor.conditions.facts import TaskDone as TaskDone
from monitor.conditions.facts import ToolCalled as ToolCalled
from monitor.conditions.limits import CostLimit as CostLimit
from monitor.conditions.limits import MaxConsecutiveErrors as MaxConsecutiveErrors
from monitor.conditions.limits import MaxModelCalls as MaxModelCalls
from monitor.conditions.limits import MaxToolCalls as MaxToolCalls
from monitor.conditions.limits import MaxTurns as MaxTurns
from monitor.conditions.limits import TokenLimit as TokenLimit

__all__ = [
    "AllOf",
    "AnyOf",
    "Condition",
    "CostLimit",
    "FirstChunkTimeout",
    "IdleTimeout",
    "MaxConsecutiveErrors",
    "MaxModelCalls",
    "MaxToolCalls",
    "MaxTurns",
    "Not",
    "OutputsComplete",
    "PlanComplete",
    "Predicate",
    "TaskDone",
    "Timeout",
    "TokenLimit",
    "ToolCalled",
    "condition_from_dict",
]

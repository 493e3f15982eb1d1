"""Conditions that end a run: `MaxTurns(30) | Timeout(600)`."""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.conditions.condition import AllOf as AllOf
    from monitor.conditions.condition import AnyOf as AnyOf
    from monitor.conditions.condition import Condition as Condition
    from monitor.conditions.condition import Not as Not
    from monitor.conditions.condition import condition_from_dict as condition_from_dict
    from monitor.conditions.limits import CostLimit as CostLimit
    from monitor.conditions.limits import FirstChunkTimeout as FirstChunkTimeout
    from monitor.conditions.limits import IdleTimeout as IdleTimeout
    from monitor.conditions.limits import MaxConsecutiveErrors as MaxConsecutiveErrors
    from monitor.conditions.limits import MaxModelCalls as MaxModelCalls
    from monitor.conditions.limits import MaxToolCalls as MaxToolCalls
    from monitor.conditions.limits import MaxTurns as MaxTurns
    from monitor.conditions.limits import OutputsComplete as OutputsComplete
    from monitor.conditions.limits import PlanComplete as PlanComplete
    from monitor.conditions.limits import Predicate as Predicate
    from monitor.conditions.limits import TaskDone as TaskDone
    from monitor.conditions.limits import Timeout as Timeout
    from monitor.conditions.limits import TokenLimit as TokenLimit
    from monitor.conditions.limits import ToolCalled as ToolCalled
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)

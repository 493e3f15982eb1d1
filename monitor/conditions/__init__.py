"""Conditions that end a run: `MaxTurns(30) | Timeout(600)`."""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.conditions.condition import AllOf as AllOf
    from monitor.conditions.condition import AnyOf as AnyOf
    from monitor.conditions.condition import Condition as Condition
    from monitor.conditions.condition import Not as Not
    from monitor.conditions.condition import condition_from_dict as condition_from_dict
    from monitor.conditions.deadlines import FirstChunkTimeout as FirstChunkTimeout
    from monitor.conditions.deadlines import IdleTimeout as IdleTimeout
    from monitor.conditions.deadlines import Timeout as Timeout
    from monitor.conditions.facts import OutputsComplete as OutputsComplete
    from monitor.conditions.facts import PlanComplete as PlanComplete
    from monitor.conditions.facts import Predicate as Predicate
    from monitor.conditions.facts import TaskDone as TaskDone
    from monitor.conditions.facts import ToolCalled as ToolCalled
    from monitor.conditions.usage_limits import CostLimit as CostLimit
    from monitor.conditions.usage_limits import MaxConsecutiveErrors as MaxConsecutiveErrors
    from monitor.conditions.usage_limits import MaxModelCalls as MaxModelCalls
    from monitor.conditions.usage_limits import MaxToolCalls as MaxToolCalls
    from monitor.conditions.usage_limits import MaxTurns as MaxTurns
    from monitor.conditions.usage_limits import TokenLimit as TokenLimit
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)

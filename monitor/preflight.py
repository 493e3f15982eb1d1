"""What can be known before the first call: a run that could not end well is refused."""

from __future__ import annotations

from collections.abc import Collection

from monitor.errors import ConfigError
from monitor.outputs import EMIT, TERMINATE, Outputs
from monitor.plan import UPDATE_PLAN, Plan, PlanState

RESERVED = frozenset({EMIT, TERMINATE, UPDATE_PLAN})
"""The names of the monitor's own tools."""


def preflight(
    outputs: Outputs | None, plan: Plan | PlanState | None = None, tools: Collection[str] = (), tool_choice: str = "auto"
) -> None:
    """Raise `ConfigError` for outputs that no call can hand over, a plan that no call can update, or a tool whose name is taken.

    `tools`: the names of the caller's own tools. `tool_choice`: as it will be passed to the model.
    """
    taken = sorted(RESERVED.intersection(tools))
    if taken:
        raise ConfigError(f"the monitor has a tool of its own called {' and '.join(taken)}; give yours another name")
    if tool_choice != "none":
        return
    for declared, given, tool in (("outputs are", outputs, EMIT), ("a plan is", plan, UPDATE_PLAN)):
        if given is not None:
            raise ConfigError(
                f'{declared} declared, but tool_choice="none" keeps the model from calling {tool}; leave tool_choice at "auto"'
            )

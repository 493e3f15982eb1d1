"""The agents of one guarded run: what they have used together, and the one stop that ends them all.

Each agent has a `RunCore` of its own, with its own turn, open calls and detectors. The first one is
the run itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from monitor.events import StreamClosed
from monitor.outcome import RunState
from monitor.verdicts import Stop


class AgentCore(Protocol):
    """What `RunAgents` asks of a core."""

    deadline: float

    def own_state(self, now: float, *, waiting: bool, ended: bool = False) -> RunState:
        """The state of this agent alone. `ended`: its last turn counts, even if that failed."""
        ...

    def take_over(self, state: RunState, closing: StreamClosed | None) -> None:
        """Add what an agent has used that has ended, and how its last stream was closed."""
        ...

    def abort(self, why: str) -> None:
        """Request the end of the agent."""
        ...


class RunAgents:
    """The cores of one run. What an agent of them decides reaches the others at their next look.

    Agents may run in several threads, so an agent changes nothing in another one but `deadline`.
    """

    __slots__ = ("_cores", "_root", "stop")

    def __init__(self, root: AgentCore) -> None:
        self._root = root
        self._cores: dict[AgentCore, Callable[[], None]] = {}
        self.stop: Stop | None = None
        """Why the run ends, and every agent with it. `None`: not decided yet."""

    def add(self, core: AgentCore, wake: Callable[[], None]) -> None:
        """`core` belongs to the run. `wake`: makes its pending read look at its deadline; called
        from any thread.
        """
        self._cores[core] = wake

    def decided(self, stop: Stop, by: AgentCore) -> None:
        """An agent ends, and all the others end with it."""
        if self.stop is None:
            self.stop = stop
            for core, wake in [*self._cores.items()]:
                if core is not by:
                    core.deadline = -math.inf
                    wake()

    def abort(self, why: str) -> None:
        """End all agents. From any thread."""
        for core, wake in [*self._cores.items()]:
            core.abort(why)
            wake()

    def ended(self, core: AgentCore, closing: StreamClosed | None, now: float) -> None:
        """`core` has ended. What it has used still counts. `closing`: how its last stream was
        closed.
        """
        if self._cores.pop(core, None) is not None and core is not self._root:
            self._root.take_over(core.own_state(now, waiting=False, ended=True), closing)

    def shared(self, of: AgentCore, state: RunState, now: float) -> RunState:
        """`state` of the agent `of`, with the counts of the whole run. The stream and the errors in
        a row stay those of the agent.
        """
        others = [core.own_state(now, waiting=False) for core in [*self._cores] if core is not of]
        root = state if of is self._root else self._root.own_state(now, waiting=False)
        every = (state, *others)
        return replace(
            state,
            turns=sum(one.turns for one in every),
            model_calls=sum(one.model_calls for one in every),
            tool_calls=sum(one.tool_calls for one in every),
            usage=sum((one.usage for one in others), state.usage),
            usage_estimated=any(one.usage_estimated for one in every),
            cost_usd=_sum_known(one.cost_usd for one in every),
            tools_called=tuple(dict.fromkeys(name for one in every for name in one.tools_called)),
            missing_outputs=root.missing_outputs,
            plan_done=root.plan_done,
            task_done=root.task_done,
        )


def _sum_known(costs: Iterable[float | None]) -> float | None:
    """The sum. `None`: one of the costs is not known."""
    known = [*costs]
    return None if None in known else sum(cost for cost in known if cost is not None)

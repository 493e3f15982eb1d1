"""Guards that are made for you. `guarding` makes one for each run of an agent that is built once.
`AgentGuards` makes one for each agent that a framework starts by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, TypeAlias, Unpack

from monitor._util.explained_options import explains_options
from monitor.chunks import ToolCall
from monitor.errors import ConfigError
from monitor.goal.declared import Declaration
from monitor.guard.guard import Guard, fresh_parts
from monitor.guard.options import GuardOptions

_running: ContextVar[tuple[RunGuard, ...]] = ContextVar("running_guards", default=())


class Guarding:
    """Makes a fresh guard for each run. An agent that is built once, with this object in the place
    of a guard, serves many runs and requests side by side.

        guarded = monitor.guard.guarding(stop_when=monitor.MaxTurns(30))
        agent = Agent(GuardedModel(model, guarded))     # once

        async with guarded() as guard:                  # for each run
            result = await agent.run("...")
        guard.outcome

    All that runs inside the block belongs to its guard. So do the tasks that are started there, and
    the threads that get its context variables, as those of `asyncio.to_thread` do.
    """

    def __init__(self, pattern: Guard[Any]) -> None:
        """`pattern`: a guard that is never entered, with the options of all of them."""
        self._pattern = pattern

    def __call__(self) -> RunGuard:
        """The guard of the next run. Its detectors and its policy have seen nothing. A budget,
        sinks and prices are shared by all runs.
        """
        return RunGuard(self, **fresh_parts(self._pattern.options))

    if not TYPE_CHECKING:  # type checkers refuse `with` by themselves, if they know of no such methods

        def __enter__(self) -> Never:
            raise ConfigError("call it: write 'async with guarded() as guard:' or 'with guarded() as guard:'")

        __exit__ = __aexit__ = __aenter__ = __enter__

    @property
    def current(self) -> Guard[Any]:
        """The guard of the run that goes on here. Raises `ConfigError` outside of all runs."""
        for guard in reversed(_running.get()):
            if guard.kind is self:
                return guard
        raise ConfigError(
            "no guard of this monitor.guard.guarding(...) is running here: write 'async with guarded() as guard:'"
            " around the run"
        )


class RunGuard(Guard[Any]):
    """A guard of a `Guarding`. While its block is entered, it is the one that is `current`."""

    __slots__ = ("_token", "kind")

    def __init__(self, kind: Guarding, **options: Any) -> None:
        super().__init__(**options)
        self.kind = kind
        """The object that has made this guard."""
        self._token: Token[tuple[RunGuard, ...]] | None = None

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._token = _running.set((*_running.get(), self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave_context()
        await super().__aexit__(kind, error, trace)

    def __enter__(self) -> Self:
        super().__enter__()
        self._token = _running.set((*_running.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave_context()
        super().__exit__(kind, error, trace)

    def _leave_context(self) -> None:
        """The block is left, perhaps in another task than it was entered: its context is gone."""
        token, self._token = self._token, None
        if token is not None and self in _running.get():
            try:
                _running.reset(token)
            except ValueError:
                _running.set(tuple(guard for guard in _running.get() if guard is not self))


GuardSource: TypeAlias = Guard[Any] | Guarding
"""A guard, or what makes one for each run."""


def guard_here(source: GuardSource) -> Guard[Any]:
    """The guard of the run that goes on here."""
    return source.current if isinstance(source, Guarding) else source


@explains_options(example="monitor.guard.guarding(stop_when=monitor.MaxTurns(30))")
def guarding(*, outputs: Declaration | None = None, **options: Unpack[GuardOptions]) -> Guarding:
    """What makes a guard for each run, with these options of `Guard`; see `Guarding`. Raises
    `ConfigError` for options that a guard does not take.
    """
    pattern: Any = Guard
    return Guarding(pattern(outputs=outputs, **options))


# --------------------------------------------------------------------------------------------------
# The agents of a guarded run: the guard that each request of a framework belongs to.


@dataclass(slots=True, eq=False)
class GuardedAgent:
    """One agent of a framework, and its guard."""

    guard: Guard[Any]
    withdrawn: frozenset[str] = frozenset()
    """Tools that are no longer offered to the agent."""
    begun: bool = False
    """Whether it has made a request."""
    turn_at: int = 0
    """When it made its newest request, as a number that grows with each request of the run."""

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The agent's calls that have no result yet, oldest first."""
        return self.guard.open_calls

    @property
    def waits(self) -> bool:
        """Whether it neither writes nor has open calls: its next request may come at any time, or
        never.
        """
        return not self.guard.streaming and not self.open_calls


class AgentGuards:
    """Finds the guard of each request, and makes one for an agent that is new.

    The first agent has the guard itself. An agent is known by the framework's own key of its run,
    if the framework has one; else by the calls whose results its request brings. A request of
    neither kind goes to an agent that waits: agents that follow one another are one agent.
    """

    __slots__ = ("_agents", "_first", "_keys", "_lock", "_requests")

    def __init__(self, guard: Guard[Any]) -> None:
        self._first = GuardedAgent(guard)
        self._agents: list[GuardedAgent] = [self._first]
        self._keys: dict[Hashable, GuardedAgent] = {}
        self._requests = 0
        self._lock = threading.Lock()  # some frameworks run each agent in a thread

    def find(
        self,
        key: Hashable | None,
        results: Iterable[tuple[str | None, str | None]],
        *,
        continues: bool,
        name: str = "",
    ) -> GuardedAgent:
        """The agent that makes a request now.

        `key`: the framework's own key of the agent's run; `None`: it has none. `results`: the ids
        of the calls that the request answers, and the tools' names. `continues`: the request shows
        an answer of the model. `name`: the agent's, for the events of a new one.
        """
        with self._lock:
            found = self._known(key, [*results], continues=continues) or self._added(name)
            if key is not None:
                self._keys[key] = found
            self._requests += 1
            found.turn_at = self._requests
            self._end_children_of(found)
            return found

    def answered(self, key: Hashable | None, id: str | None, tool: str | None) -> GuardedAgent | None:
        """The agent that has an open call with this id or of this tool. `None`: no agent has."""
        with self._lock:
            known = self._keys.get(key) if key is not None else None
            return known or self._owner([(id, tool)])

    def _known(
        self, key: Hashable | None, results: list[tuple[str | None, str | None]], *, continues: bool
    ) -> GuardedAgent | None:
        if key is not None:
            known = self._keys.get(key)
            if known is not None and known in self._agents:
                return known
            return self._first if self._first.waits else None
        owner = self._owner(results)
        if owner is not None:
            return owner
        if self._first.waits:  # an agent whose tools are at work does not ask: one inside its tools does
            return self._first
        waiting = [agent for agent in self._agents if agent.waits]
        failed = [agent for agent in waiting if agent.guard.failed]
        return next(iter(failed or (waiting if continues else [])), None)

    def _owner(self, results: list[tuple[str | None, str | None]]) -> GuardedAgent | None:
        """The agent with the open calls that `results` answer. Of several, the one whose calls are
        all answered, and among these the one that has waited for the longest time.
        """

        def fit(agent: GuardedAgent) -> tuple[bool, int, int]:
            calls = agent.open_calls
            found = [sum(_answers(one, call) for call in calls) for one in results]
            return len(calls) == len(results) == sum(map(bool, found)), sum(found), -agent.turn_at

        fits = {agent: fit(agent) for agent in self._agents if not agent.guard.streaming}
        best = max(fits, key=lambda agent: fits[agent], default=None)
        return best if best is not None and fits[best][1] else None

    def _added(self, name: str) -> GuardedAgent:
        """A new agent, below the one that has called a tool most recently."""
        callers = [agent for agent in self._agents if agent.open_calls and not agent.guard.streaming]
        above = max(callers, key=lambda one: one.turn_at, default=self._first)
        agent = GuardedAgent(above.guard.begun_child(name))
        self._agents.append(agent)
        return agent

    def _end_children_of(self, agent: GuardedAgent) -> None:
        """The model of `agent` is asked again, so its tools are done, and the agents inside
        them.
        """
        for other in [*self._agents]:
            if other is not agent and other.waits and agent.guard.started(other.guard):
                other.guard.end_agent()
                self._agents.remove(other)
                self._keys = {key: one for key, one in self._keys.items() if one is not other}


def agents_of(guard: Guard[Any]) -> AgentGuards:
    """The agents of the run of `guard`."""
    run = guard.root
    if not isinstance(run.agents, AgentGuards):
        run.agents = AgentGuards(run)
    return run.agents


def _answers(result: tuple[str | None, str | None], call: ToolCall) -> int:
    """How well a result fits a call. Its id counts more than its tool: but a framework may change
    the ids, or have none.
    """
    id, tool = result
    if tool is not None and tool != call.name:
        return 0
    return 2 if id == call.id else int(tool is not None)

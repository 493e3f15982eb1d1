"""Guards that are made for you. `guarding` makes one for each run of an agent that is built once.
`AgentGuards` makes one for each agent that a framework starts by itself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, TypeAlias, Unpack

from monitor._util.explained_options import explains_options
from monitor._util.hashing import identity
from monitor.chunks import ToolCall
from monitor.errors import ConfigError
from monitor.goal.declared import Declaration
from monitor.guard.guard import Guard, fresh_parts
from monitor.guard.options import GuardOptions
from monitor.outcome import Turn

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
#
# The conversation decides, in this order. First, whose calls the request answers. Then, whose last
# answer stands in its history. Then the framework's own key. So a run that goes on after an
# approval, in another run of the framework, is still the same run.
#
# What the user asks for begins a task, unless the agent was asked for the same before. The evidence
# of calls and texts starts again with each task. Limits and budgets do not.


@dataclass(slots=True, frozen=True)
class Answered:
    """A tool result in the history of a request."""

    call_id: str | None
    result: object
    is_error: bool = False
    name: str | None = None
    """The tool. It says which call is meant where the framework has changed the id, or has none."""


@dataclass(slots=True, frozen=True)
class UserSaid:
    """A message of the user in the history of a request."""

    text: str


@dataclass(slots=True, frozen=True)
class ModelSaid:
    """An answer of the model in the history of a request."""

    text: str = ""
    calls: Sequence[str | None] = ()
    """The ids of its calls."""

    def is_of(self, turn: Turn | None) -> bool:
        """Whether it is the answer that `turn` has, by a call or by its whole text."""
        if turn is None:
            return False
        if any(call.id in self.calls for call in turn.tool_calls):
            return True
        return bool(self.text) and self.text.strip() == turn.text.strip()


HistoryPart: TypeAlias = Answered | UserSaid | ModelSaid


class HistoryEnd:
    """The end of a request's history: the model's last answer, and what follows it."""

    def __init__(self, newest_first: Iterable[HistoryPart]) -> None:
        """`newest_first`: the parts of the history. It is read up to the model's last answer."""
        self.results: list[Answered] = []
        self.said: ModelSaid | None = None
        """The model's last answer. `None`: the history has none."""
        words: list[str] = []
        for part in newest_first:
            match part:
                case Answered():
                    self.results.append(part)
                case UserSaid(text):
                    words.append(text)
                case ModelSaid():
                    self.said = part
                    break
        self.results.reverse()
        self.asked = "\n".join(reversed(words))
        """The words of the user since then."""


_TASKS_KEPT = 32
"""The newest tasks of an agent that are remembered. A task that comes again is not new: programs
whose agents ask one another in a circle would never be found to loop.
"""


@dataclass(slots=True, eq=False)
class GuardedAgent:
    """One agent of a framework, and its guard."""

    guard: Guard[Any]
    key: Hashable | None = None
    """The framework's own key, from its newest request that had one."""
    withdrawn: frozenset[str] = frozenset()
    """Tools that are no longer offered to the agent."""
    begun: bool = False
    """Whether it has made a request."""
    turn_at: int = 0
    """When it made its newest request, as a number that grows with each request of the run."""
    tasks: deque[str] = field(default_factory=lambda: deque(maxlen=_TASKS_KEPT))
    """Digests of what it was asked for, oldest first."""

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

    def take_task(self, end: HistoryEnd) -> None:
        """Begin the task of the request, if it has a new one."""
        if not end.asked or end.results or (end.said is not None and self.open_calls):
            return  # the model is at work: the words are added to its task
        digest = identity(end.asked)
        if digest not in self.tasks:
            self.tasks.append(digest)
            self.withdrawn = frozenset()
            if self.begun or not self.guard.options["task"]:  # else the caller has said what the first one is
                self.guard.new_task(end.asked)

    def fits(self, end: HistoryEnd, key: Hashable | None) -> tuple[int, bool, bool, bool]:
        """How well the request continues this agent's conversation. All 0: it does not."""
        turn = self.guard.turn
        calls = turn.tool_calls if turn is not None else ()
        found = [max((_answers(one, call) for call in calls), default=0) for one in end.results]
        whole = 0 < len(calls) == len(found) and all(found)
        continues = end.said is not None and end.said.is_of(turn)
        return sum(found), whole, continues, key is not None and key == self.key


class AgentGuards:
    """Finds the guard of each request, and makes one for an agent that is new. The first agent has
    the guard itself.
    """

    __slots__ = ("_agents", "_first", "_lock", "_requests")

    def __init__(self, guard: Guard[Any]) -> None:
        self._first = GuardedAgent(guard)
        self._agents: list[GuardedAgent] = [self._first]
        self._requests = 0
        self._lock = threading.Lock()  # some frameworks run each agent in a thread

    def find(
        self, end: HistoryEnd, key: Hashable | None = None, *, name: str = "", is_one_task: bool = False
    ) -> GuardedAgent:
        """The agent that makes a request now.

        `key`: the framework's own key of the agent or of its run; `None`: it has none.
        `is_one_task`: the user says nothing new while the key stays the same. `name`: the agent's,
        for the events of a new one.
        """
        with self._lock:
            found = self._best(end, key) or self._waiting(end, key) or self._added(name)
            goes_on = is_one_task and key is not None and key == found.key
            found.key = found.key if key is None else key
            self._requests += 1
            found.turn_at = self._requests
            self._end_children_of(found)
        if not goes_on:
            found.take_task(end)
        return found

    def answered(self, key: Hashable | None, one: Answered) -> GuardedAgent | None:
        """The agent that has an open call which `one` answers. `None`: no agent has."""
        with self._lock:
            return self._best(HistoryEnd([one]), key)

    def _best(self, end: HistoryEnd, key: Hashable | None) -> GuardedAgent | None:
        """The agent whose conversation the request continues. Of several, the one that has waited
        for the longest time.
        """
        fits = {agent: agent.fits(end, key) for agent in self._agents if not agent.guard.streaming}
        best = max(fits, key=lambda one: (fits[one], bool(one.open_calls), -one.turn_at), default=None)
        return best if best is not None and any(fits[best]) else None

    def _waiting(self, end: HistoryEnd, key: Hashable | None) -> GuardedAgent | None:
        """An agent that waits. Agents that follow one another are one agent."""
        if self._first.waits:  # an agent whose tools are at work does not ask: one inside its tools does
            return self._first
        waiting = [agent for agent in self._agents if agent.waits] if key is None else []
        failed = [agent for agent in waiting if agent.guard.failed]
        return next(iter(failed or (waiting if end.said is not None else [])), None)

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


def agents_of(guard: Guard[Any]) -> AgentGuards:
    """The agents of the run of `guard`."""
    run = guard.root
    if not isinstance(run.agents, AgentGuards):
        run.agents = AgentGuards(run)
    return run.agents


def _answers(result: Answered, call: ToolCall) -> int:
    """How well a result fits a call. Its id counts more than its tool: but a framework may change
    the ids, or have none.
    """
    if result.name is not None and result.name != call.name:
        return 0
    return 2 if result.call_id == call.id else int(result.name is not None)

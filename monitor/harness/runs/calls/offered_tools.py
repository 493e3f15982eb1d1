"""Knows which tools the model may call now, and answers a call of any other tool."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ConfigError
from monitor.goal.goal import Goal
from monitor.harness.runs.calls.call_options import Offer
from monitor.models import ToolSpec
from monitor.reasons import ToolErrorKind
from monitor.tools.calls.special_tools import SPECIAL
from monitor.tools.registry import Registry
from monitor.verdicts import VETO


class OfferedTools:
    """The run's own tools and the caller's, without those that the model may not call."""

    def __init__(self, tools: Registry, goal: Goal, offer: Offer | None) -> None:
        self._tools = tools
        self._goal = goal
        self._offer = offer
        self._withdrawn: set[str] = set()
        self._only: tuple[str, ...] | None = None
        self._turn_only: Collection[str] | None = None
        self._written: dict[str, str] = {}
        """For the id of a special tool's call: the name that the model wrote, where it differs."""

    def withdraw(self, name: str) -> None:
        """The model may not call the tool `name` any more."""
        self._withdrawn.add(name)

    def is_only(self, name: str) -> bool:
        """Whether the model may call no other of the caller's tools than `name`."""
        return all(other == name or other in self._withdrawn for other in self._tools)

    def allow_only(self, names: tuple[str, ...]) -> None:
        """The model may call only the tools `names`. `()`: only the tools with which it reaches its
        goal.
        """
        self._only = names or tuple(spec.name for spec in self._goal.last_tools)

    def choose(self, turn: int) -> None:
        """Choose what the model is offered in `turn`. A `ToolWarning` where that is too much."""
        names = list(self._tools)
        if self._offer is not None:
            chosen = self._offer(turn, names)
            if isinstance(chosen, str) or not set(chosen) <= set(names):
                raise ConfigError(f"offer answered {chosen!r}: give a list of names out of {', '.join(names)}")
            self._turn_only = frozenset(chosen)
        self._tools.warn_of_number(len(names if self._turn_only is None else self._turn_only))

    def specs(self) -> Iterator[ToolSpec]:
        """The tools of the next model call."""
        specs = [*self._goal.tools, *(entry.spec for entry in self._tools.entries().values())]
        return (spec for spec in specs if self.may_call(spec.name))

    def may_call(self, name: str) -> bool:
        """Whether the model may call the tool `name` now."""
        if self._is_gone(name):
            return False
        return self._turn_only is None or name in self._turn_only or name not in self._tools

    def refused(self, call: ToolCall) -> ToolResult:
        """The result of a call that the model may not make."""
        since = "any more" if self._is_gone(call.name) else "in this turn"
        text = f"{VETO} This call was not made: {call.name} is not available {since}."
        return ToolResult(call.id, call.name, text, is_error=True, vetoed=True, error_kind=ToolErrorKind.UNKNOWN_TOOL)

    def _is_gone(self, name: str) -> bool:
        return name in self._withdrawn or (self._only is not None and name not in self._only)

    def meant(self, call: ToolCall) -> ToolCall:
        """`call` under the name of the special tool that it means: `Terminate` is `terminate`."""
        name = call.name.lower()
        if name == call.name or name not in SPECIAL or call.name in self._tools:
            return call
        self._written[call.id] = call.name
        return replace(call, name=name)

    def written(self, call: ToolCall) -> str:
        """The name that the model wrote: a provider pairs a call and its result by it."""
        return self._written.get(call.id, call.name)

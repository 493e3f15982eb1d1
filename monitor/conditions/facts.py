"""Conditions on facts of the run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from monitor.conditions.condition import Condition
from monitor.errors import ConfigError
from monitor.reasons import TerminateReason
from monitor.state import RunState
from monitor.verdicts import Stop


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _checked(reason: object, whose: str) -> TerminateReason:
    if not isinstance(reason, str) or reason not in set(TerminateReason):
        raise ConfigError(f"{whose} takes a TerminateReason as its reason, not {reason!r}")
    return TerminateReason(reason)


@dataclass(frozen=True)
class Predicate(Condition):
    """The caller's own function of the `RunState`. Called at the transitions of a run (turns, tool
    calls, results, usage), not at every chunk.

    It has no JSON form, and is picklable only if `fn` is.
    """

    fn: Callable[[RunState], bool]
    reason: TerminateReason = field(default=TerminateReason.CONDITION_MET, kw_only=True)
    label: str | None = field(default=None, init=False, repr=False)

    def __init__(
        self,
        fn: Callable[[RunState], bool],
        *,
        reason: TerminateReason | str = TerminateReason.CONDITION_MET,
        name: str | None = None,
    ) -> None:
        if not callable(fn):
            raise ConfigError(
                f"Predicate takes a function of the run's state: write monitor.Predicate(lambda state: ...), not {fn!r}"
            )
        if inspect.iscoroutinefunction(fn):
            raise ConfigError(f"Predicate takes a plain function, and {fn!r} is asynchronous")
        try:
            inspect.signature(fn).bind(None)
        except TypeError:
            raise ConfigError(
                f"Predicate takes a function of the run's state: write monitor.Predicate(lambda state: ...), not {fn!r}"
            ) from None
        except ValueError:  # a function in C may not say
            pass
        object.__setattr__(self, "fn", fn)
        object.__setattr__(self, "reason", _checked(reason, "Predicate"))
        object.__setattr__(self, "label", name or getattr(fn, "__name__", None))

    @property
    def name(self) -> str:
        return self.label or "predicate"

    def evaluate(self, state: RunState) -> Stop | None:
        return Stop(self.reason, f"{self.name} is true", self.name) if self.fn(state) else None

    def to_dict(self) -> dict[str, Any]:
        raise ConfigError(f"Predicate {self.name!r} holds a Python function and has no JSON form")


@dataclass(frozen=True)
class ToolCalled(Condition):
    """The tool `tool` has answered, with or without an error. Checked after each result."""

    tool: str
    """The name of the tool."""
    reason: TerminateReason = field(default=TerminateReason.CONDITION_MET, kw_only=True)
    """The reason with which the run ends."""

    if TYPE_CHECKING:  # the reason may be given as a text

        def __init__(self, tool: str, *, reason: TerminateReason | str = TerminateReason.CONDITION_MET) -> None: ...

    def __post_init__(self) -> None:
        if not _is_name(self.tool):
            name = getattr(self.tool, "__name__", None) or "search"
            raise ConfigError(
                f"ToolCalled takes the name of a tool, not {self.tool!r:.60}: write monitor.ToolCalled({name!r})"
            )
        object.__setattr__(self, "reason", _checked(self.reason, "ToolCalled"))

    def evaluate(self, state: RunState) -> Stop | None:
        if self.tool not in state.tools_called:
            return None
        return Stop(self.reason, f"tool {self.tool!r} was called", self.name, value=self.tool)


@dataclass(frozen=True)
class OutputsComplete(Condition):
    """All declared outputs are emitted. Never true of a run that declares none."""

    def evaluate(self, state: RunState) -> Stop | None:
        if state.missing_outputs is None or state.missing_outputs:
            return None
        return Stop(TerminateReason.GOAL, "all declared outputs are emitted", self.name)


@dataclass(frozen=True)
class PlanComplete(Condition):
    """No step of the plan is left to do. Never true of a run without a plan."""

    def evaluate(self, state: RunState) -> Stop | None:
        return Stop(TerminateReason.GOAL, "no step of the plan is left to do", self.name) if state.plan_done else None


@dataclass(frozen=True)
class TaskDone(Condition):
    """A judge said that the task is done. Never true of a run without a judge."""

    def evaluate(self, state: RunState) -> Stop | None:
        return (
            Stop(TerminateReason.GOAL, "the judge said that the task is done", self.name) if state.task_done else None
        )

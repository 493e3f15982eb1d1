"""Conditions on facts of the run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from monitor.conditions.base import Condition
from monitor.errors import ConfigError
from monitor.reasons import TerminateReason
from monitor.state import RunState
from monitor.verdicts import Stop


@dataclass(frozen=True)
class Predicate(Condition):
    """The caller's own question. Asked at the transitions of a run (turns, tool calls, results, usage), not at every chunk.

    It has no JSON form, and is picklable only if `fn` is.
    """

    fn: Callable[[RunState], bool]
    reason: TerminateReason = field(default=TerminateReason.CONDITION_MET, kw_only=True)
    label: str | None = field(default=None, init=False, repr=False)

    def __init__(
        self, fn: Callable[[RunState], bool], *, reason: TerminateReason = TerminateReason.CONDITION_MET, name: str | None = None
    ) -> None:
        if not callable(fn):
            raise ConfigError(f"Predicate takes a function of the run's state, not {fn!r}")
        if inspect.iscoroutinefunction(fn):
            raise ConfigError(f"Predicate takes a plain function, and {fn!r} is asynchronous")
        if reason not in set(TerminateReason):
            raise ConfigError(f"Predicate takes a TerminateReason as its reason, not {reason!r}")
        object.__setattr__(self, "fn", fn)
        object.__setattr__(self, "reason", TerminateReason(reason))
        object.__setattr__(self, "label", name or getattr(fn, "__name__", None))

    @property
    def name(self) -> str:
        return self.label or "predicate"

    def evaluate(self, state: RunState) -> Stop | None:
        return Stop(self.reason, f"{self.name} is true", self.name) if self.fn(state) else None

    def to_dict(self) -> dict[str, Any]:
        raise ConfigError(f"Predicate {self.name!r} holds a Python function and has no JSON form")

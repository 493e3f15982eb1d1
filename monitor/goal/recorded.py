"""A goal as it was recorded. The types of its outputs are not on record, so whether a value is
accepted is taken from the record too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from monitor._util.arguments import GoalAnswer
from monitor.chunks import ToolCall
from monitor.goal.declared import EMIT, ByTypes, Declared, emit_spec
from monitor.goal.goal import Goal
from monitor.goal.outputs import Emitted, Outputs
from monitor.goal.plan import Plan, PlanState

NOT_RECORDED: Final[Any] = object()
"""Stands for a field that the record of an answer does not have."""


@dataclass(slots=True, frozen=True)
class RecordedAnswer:
    """What a goal answered to a call. With declared outputs, a good answer has their values too."""

    text: str
    is_error: bool
    emitted: Any = NOT_RECORDED
    output: Any = NOT_RECORDED
    last: Any = NOT_RECORDED


def described_goal(goal: Goal) -> dict[str, Any]:
    """`goal` at the beginning of a run, as JSON data."""
    declared = goal.outputs and goal.outputs._declared  # noqa: SLF001 - of the same room
    return {
        "outputs": declared and _described(declared),
        "plan": goal.plan and goal.plan.snapshot(),
        "first_step": goal._driven is not None,  # noqa: SLF001
        "max_nudges": goal._max_nudges,  # noqa: SLF001
    }


def _described(declared: Declared) -> dict[str, Any]:
    """Names and schemas, in their order, which JSON objects do not keep."""
    return {"schemas": [[*one] for one in declared.schemas.items()], "required": [*declared.required]}


class RecordedGoal(Goal):
    """A goal that answers as is recorded."""

    __slots__ = ("answers",)

    def __init__(self, data: Mapping[str, Any]) -> None:
        """`data`: of `described_goal`. Raises `KeyError` or `ValueError` for anything else."""
        outputs = RecordedOutputs(data["outputs"]) if data["outputs"] else None
        super().__init__(outputs, _plan(data["plan"]), max_nudges=data["max_nudges"])
        self.answers: deque[RecordedAnswer] = deque()
        """The recorded answers that come next, oldest first."""
        if data["first_step"]:
            self.first_step()

    def answer(self, call: ToolCall) -> GoalAnswer | None:
        recorded = self.answers.popleft() if self.answers else None
        if call.name.lower() != EMIT or not isinstance(self.outputs, RecordedOutputs):
            return super().answer(call)
        if recorded is None:
            return None
        self.outputs.take(recorded)
        return GoalAnswer(recorded.text, is_error=recorded.is_error)


def _plan(state: Mapping[str, Any] | None) -> PlanState | None:
    if not state:
        return None
    plan = Plan(["a step"]).fresh()  # a plan has one step at least; these are replaced
    plan.restore(state)
    return plan


class RecordedOutputs(Outputs):
    """Outputs whose values were accepted when they were recorded."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(_Recorded(data))

    def take(self, recorded: RecordedAnswer) -> None:
        """A call was answered as `recorded` says."""
        self._last = None
        if not recorded.is_error:
            self._values = self._json = dict(recorded.emitted)
            self._output = recorded.output
            self._last = Emitted(**recorded.last)


class _Recorded(ByTypes):
    """Declared outputs without their types."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._adapters = {}
        self.schemas = dict(data["schemas"])
        self.required = tuple(data["required"])
        self.texts = frozenset()
        self.spec = emit_spec(self.schemas, self.required)

"""The goal of a run: its declared outputs, its plan, and `terminate`, with which the model ends the
run.

The goal carries out the run's own tools: `emit_value`, `update_plan`, `terminate`. After each turn
it says whether the run is done, needs a nudge, or must end without its goal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from monitor._util.arguments import GoalAnswer, was_cut_off
from monitor.chunks import ToolCall
from monitor.errors import ConfigError, TerminateReason
from monitor.events import Event, OutputEmitted, PlanUpdated
from monitor.goal.declared import ByTypes, Declared, emit_spec
from monitor.goal.outputs import TERMINATE, Emitted, Outputs, Terminate
from monitor.goal.plan import UPDATE_PLAN, Plan, PlanState
from monitor.messages import CUT_OFF, EMIT
from monitor.models import ToolSpec
from monitor.outcome import Turn
from monitor.verdicts import Nudge, Stop, Verdict

MAX_NUDGES = 3
"""The most nudges for a model that stops with outputs missing. Without a limit the run could loop.
"""


class Goal:
    """The outputs, the plan and the end of one run, and what is still missing."""

    __slots__ = ("_driven", "_max_nudges", "_nudges", "_summary_asked", "outputs", "plan", "terminate")

    def __init__(
        self, outputs: Outputs | None = None, plan: PlanState | None = None, *, max_nudges: int | None = MAX_NUDGES
    ) -> None:
        self.outputs: Outputs | None = outputs
        self.plan: PlanState | None = plan
        self.terminate: Terminate = Terminate(outputs, partial(_open_step, plan))
        self._max_nudges = max_nudges
        self._nudges = 0
        self._driven: object = None
        self._summary_asked = False

    def first_step(self) -> str | None:
        """The message that names the first step of the plan. `None`: there is no plan."""
        if self.plan is None or self.plan.done:
            return None
        self._driven = self.plan.snapshot()
        return self.plan.step_text()

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The run's own tools."""
        return (*self.last_tools, *([self.plan.spec] if self.plan is not None else []))

    @property
    def last_tools(self) -> tuple[ToolSpec, ...]:
        """The run's own tools that may be called in a last turn."""
        return (*([self.outputs.spec] if self.outputs is not None else []), self.terminate.spec)

    def answer(self, call: ToolCall) -> GoalAnswer | None:
        """Carry out a call of one of the run's own tools. `None`: the call is of another tool."""
        for part in (self.outputs, self.plan, self.terminate):
            if part is not None and call.name.lower() == part.spec.name:
                return (
                    GoalAnswer(f"Error: {CUT_OFF}", is_error=True)
                    if was_cut_off(call.arguments)
                    else part.call(call.arguments)
                )
        return None

    def news(self, call: ToolCall, at_s: float, turn: int) -> Event | None:
        """The event for a call that was answered without an error."""
        name = call.name.lower()
        if self.outputs is not None and name == self.outputs.spec.name and (last := self.outputs.last) is not None:
            return OutputEmitted(at_s=at_s, turn=turn, name=last.name, value=last.json, overwritten=last.overwritten)
        if self.plan is not None and name == self.plan.spec.name:
            return PlanUpdated(at_s, turn, self.plan.render())
        return None

    def reached(self) -> Stop | None:
        """The `Stop` if every output is there, or the model has ended the run, else `None`."""
        if self.terminate.status == "failure":
            return self._terminated()
        if self.plan is not None and not self.plan.done:
            return None
        if self.outputs is not None and self.outputs.complete:
            return Stop(
                TerminateReason.GOAL,
                "every declared output was emitted",
                "outputs",
                value=", ".join(self.outputs.emitted),
            )
        return self._terminated() if self.terminate.status is not None else None

    def take_up(self, nudges: int, undecided: Turn | None) -> None:
        """The run goes on in another process. The model was asked `nudges` times before for the
        outputs that are missing. With a plan, asking is counted anew. `undecided`: the last turn,
        if nothing that follows from it is on record; only in it the model may have ended the run.
        """
        if undecided is None or all(call.name.lower() != TERMINATE for call in undecided.tool_calls):
            self.go_on()
        if self.plan is None:
            self._nudges = nudges

    def go_on(self) -> None:
        """The run goes on, although the model may have ended it."""
        self.terminate.status, self.terminate.reason = None, ""

    def stopped_calling(self, *, cut_off: Stop | None = None) -> Verdict:
        """The verdict after a turn without a call: the run ends, or something is missing.
        `cut_off`: why the turn's text is not a whole answer.
        """
        if self.plan is not None and not self.plan.done:
            return self._drive(self.plan)
        if self.outputs is not None and self.outputs.missing:
            missing = ", ".join(self.outputs.missing)
            return self._nudge(
                self.outputs.nudge_text(), f"the model stopped without emitting {missing}", "outputs", missing
            )
        if cut_off is not None:
            return cut_off
        if self.plan is not None and self.plan.steps and not self._summary_asked:
            self._summary_asked = True
            return Nudge(self.plan.summary_prompt())
        return Stop(TerminateReason.GOAL, self._reached(), "plan" if self.plan is not None else "model")

    def _terminated(self) -> Stop:
        status, reason = self.terminate.status, self.terminate.reason
        detail = f"the model ended the run with {status}{f': {reason}' if reason else ''}"
        return Stop(TerminateReason.TERMINATED, detail, "terminate", value=status)

    def _reached(self) -> str:
        if self.plan is None:
            return "the model gave its answer"
        blocked = ", ".join(step.text for step in self.plan.blocked)
        return f"the plan is done, apart from what was blocked: {blocked}" if blocked else "the plan is done"

    def _drive(self, plan: PlanState) -> Verdict:
        """The next active step drives the turn. If the plan has not changed, asking for the same
        step is a nudge like any other.
        """
        now = plan.snapshot()
        if now != self._driven:
            self._driven = now
            return Nudge(plan.step_text())
        step = plan.active.text if plan.active else "none"
        return self._nudge(plan.step_text(), f"the model stopped with its plan unfinished, at: {step}", "plan", step)

    def _nudge(self, text: str, detail: str, source: str, value: str) -> Verdict:
        if self._max_nudges is not None and self._nudges >= self._max_nudges:
            said = f"{detail}, after {self._nudges} nudges" if self._nudges else detail
            return Stop(TerminateReason.MISSING_OUTPUTS, said, source, limit=self._max_nudges, value=value)
        self._nudges += 1
        return Nudge(text)

    def last_words(self, stop: Stop) -> str:
        """The message to the model before its last turn."""
        return f"This is your last turn, because {stop.detail}. {self.how_to_end()}"

    def how_to_end(self) -> str:
        """The steps that are left to the model in a last turn, in words for the model."""
        if self.outputs is not None and self.outputs.missing:
            still = f"emit what you have for {', '.join(self.outputs.missing)} now, with {self.outputs.spec.name}"
        else:
            still = "give your final answer now"
        return (
            f"No other tools are available: {still}, or call {self.terminate.spec.name} with status failure and say"
            " why."
        )

    def result(self) -> Mapping[str, Any]:
        """The fields of the outcome: `output`, `emitted`, `missing`."""
        if self.outputs is None:
            return {}
        return {
            "output": self.outputs.output,
            "emitted": dict(self.outputs.emitted),
            "missing": list(self.outputs.missing),
        }


def _open_step(plan: PlanState | None) -> str | None:
    step = plan.active if plan is not None else None
    return step.text if step is not None else None


RESERVED = frozenset({EMIT, TERMINATE, UPDATE_PLAN})
"""The names of the monitor's own tools. Upper and lower case are the same in them."""


def preflight(
    outputs: Outputs | None,
    plan: Plan | PlanState | None = None,
    tools: Collection[str] = (),
    tool_choice: str = "auto",
) -> None:
    """Raise `ConfigError` for outputs that no call can emit, a plan that no call can update, or a
    tool whose name is taken.

    `tools`: the names of the caller's own tools. `tool_choice`: as it will be passed to the model.
    """
    taken = sorted(name for name in tools if name.lower() in RESERVED)
    if taken:
        raise ConfigError(f"the monitor has a tool of its own called {' and '.join(taken)}; give yours another name")
    if tool_choice != "none":
        return
    for declared, given, tool in (("outputs are", outputs, EMIT), ("a plan is", plan, UPDATE_PLAN)):
        if given is not None:
            raise ConfigError(
                f'{declared} declared, but tool_choice="none" keeps the model from calling {tool}; leave tool_choice at'
                ' "auto"'
            )


# --------------------------------------------------------------------------------------------------
# A goal as it was recorded. The types of its outputs are not on record, so whether a value is
# accepted is taken from the record too.

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

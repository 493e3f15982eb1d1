"""A plan that drives a run: steps with a status, the next active step, and the tool with which the
model reports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from monitor._util.arguments import GoalAnswer, arguments_in, closest, shown
from monitor._util.explained_options import explained
from monitor.errors import ConfigError
from monitor.goal.outputs import TERMINATE, Outputs
from monitor.messages import EMIT
from monitor.models import ToolSpec

UPDATE_PLAN = "update_plan"
"""The tool by which the model reports on the plan."""


class StepStatus(StrEnum):
    """The status of a step. `not_started` and `in_progress` are active; with the others the step is
    over.
    """

    NOT_STARTED = "not_started"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    BLOCKED = "blocked"
    """Cannot be done; the note says why."""


ACTIVE = frozenset({StepStatus.NOT_STARTED, StepStatus.IN_PROGRESS})

_MARKS = {
    StepStatus.NOT_STARTED: "[ ]",
    StepStatus.IN_PROGRESS: "[>]",
    StepStatus.COMPLETED: "[x]",
    StepStatus.BLOCKED: "[!]",
}
_STATUSES = ", ".join(StepStatus)


def _check_text(text: object) -> None:
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"a step must say in words what to do, not {text!r}")


def _status_of(status: object) -> StepStatus:
    if status is None:
        return StepStatus.NOT_STARTED
    if isinstance(status, str) and status in set(StepStatus):
        return StepStatus(status)
    raise ConfigError(f"the status of a step is one of {_STATUSES}, not {status!r}")


@dataclass(slots=True, frozen=True)
class Step:
    """One step of a plan. A missing status counts as not started."""

    text: str
    status: StepStatus = StepStatus.NOT_STARTED
    note: str | None = None
    """The result of the step, or what blocks it."""

    def __post_init__(self) -> None:
        _check_text(self.text)
        object.__setattr__(self, "status", _status_of(self.status))
        if not isinstance(self.note, str | None):
            raise ConfigError(f"the note of a step must be a string, not {self.note!r}")

    @property
    def active(self) -> bool:
        """Whether the step is not over yet."""
        return self.status in ACTIVE


@explained(example="monitor.Plan(['look', 'mend', 'test'])")
@dataclass(slots=True, frozen=True)
class Plan:
    """The steps of a task, in order. A description: `fresh()` gives the state of one run."""

    steps: Sequence[str | Step]
    """The steps in order, as texts or as `Step` objects."""
    title: str | None = None
    """The title of the plan. `None`: it has none."""

    def __post_init__(self) -> None:
        if isinstance(self.steps, str) or not isinstance(self.steps, Sequence):
            raise ConfigError(f"the steps of a plan are a list, not {self.steps!r}")
        if not self.steps:
            raise ConfigError("a plan needs one step at least")
        object.__setattr__(self, "steps", tuple(step if isinstance(step, Step) else Step(step) for step in self.steps))

    def fresh(self) -> PlanState:
        """The plan at the beginning of a run."""
        return PlanState(self)


class PlanState:
    """The state of a plan in one run. Steps are counted from 1, as the model sees them."""

    def __init__(self, plan: Plan) -> None:
        self.title = plan.title
        self._steps: list[Step] = [step if isinstance(step, Step) else Step(step) for step in plan.steps]

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps as they stand."""
        return tuple(self._steps)

    @property
    def active_number(self) -> int | None:
        """The number of the active step, from 1; `None`: the plan is done."""
        return next((number for number, step in enumerate(self._steps, 1) if step.active), None)

    @property
    def active(self) -> Step | None:
        """The first step that is not started or in progress; `None`: the plan is done."""
        number = self.active_number
        return None if number is None else self._steps[number - 1]

    @property
    def done(self) -> bool:
        """No step is active: each is completed or blocked."""
        return self.active_number is None

    @property
    def blocked(self) -> tuple[Step, ...]:
        """The steps that could not be done."""
        return tuple(step for step in self._steps if step.status is StepStatus.BLOCKED)

    def mark(self, number: int, status: StepStatus, note: str | None = None) -> None:
        """Set the status of step `number` (from 1). `note=None` keeps the old note. Raises
        `ConfigError` if there is no such step.
        """
        if not 1 <= number <= len(self._steps):
            raise ConfigError(f"there is no step {number}: the plan has {len(self._steps)}")
        step = self._steps[number - 1]
        self._steps[number - 1] = replace(step, status=status, note=step.note if note is None else note)

    # --- the tool

    @property
    def spec(self) -> ToolSpec:
        """The tool `update_plan`, as it is declared to the model."""
        return _SPEC

    def call(self, arguments: object) -> GoalAnswer:
        """Carry out one call of `update_plan`. Never raises; a refused call changes nothing."""
        try:
            given = arguments_in(arguments)
            number = self._number_in(given)
            status = self._status_in(given, number)
            note = _note_in(given)
            coming = _steps_in(given)
            if number is None and coming is None:
                raise ValueError("`step` and `status` are missing.")
        except ValueError as error:
            usage = f"Call {UPDATE_PLAN}(step=1..{len(self._steps)}, status=one of {_STATUSES})."
            return GoalAnswer(f"Error: {error} {usage}", is_error=True)
        said = []
        if number is not None and status is not None:
            self.mark(number, status, note)
            said.append(f"Step {number} is {status.value}.")
        if coming is not None:
            self._replace(coming)
            said.append(f"The plan is now:\n{self.render()}\n")
        return GoalAnswer(" ".join([*said, self._what_is_next()]))

    def _number_in(self, given: Mapping[str, Any]) -> int | None:
        value = given.get("step")
        if value is None:
            return None
        try:
            number = None if isinstance(value, bool) else int(value)
        except (TypeError, ValueError, OverflowError):
            number = None
        if number is None or (isinstance(value, float) and number != value) or not 1 <= number <= len(self._steps):
            raise ValueError(f"There is no step {shown(value)}: the plan has steps 1 to {len(self._steps)}.")
        return number

    def _status_in(self, given: Mapping[str, Any], number: int | None) -> StepStatus | None:
        value = given.get("status")
        if value is None and number is None:
            return None
        if number is None:
            raise ValueError("`step` is missing: which step has this status?")
        if value is None:
            raise ValueError(f"`status` is missing: how does step {number} stand?")
        if isinstance(value, str):
            bare = value.strip().lower().replace("-", "_").replace(" ", "_")
            if bare in set(StepStatus):
                return StepStatus(bare)
        meant = closest(value, StepStatus)
        raise ValueError(f"{shown(value)} is not a status.{f' Did you mean {meant}?' if meant else ''}")

    def _replace(self, coming: Sequence[str]) -> None:
        """Replace the steps that are not started by `coming`. Models often list the whole plan
        again, so existing steps are not added twice.
        """
        kept = [step for step in self._steps if step.status is not StepStatus.NOT_STARTED]
        known = {step.text.strip() for step in kept}
        self._steps = [*kept, *(Step(text) for text in dict.fromkeys(coming) if text not in known)]

    def _what_is_next(self) -> str:
        number, step = self.active_number, self.active
        if step is None:
            return "No step is left."
        return f"{'In progress' if step.status is StepStatus.IN_PROGRESS else 'Next'}: step {number}, {step.text}"

    # --- what the model reads

    def render(self) -> str:
        """The plan with its states, one line a step."""
        lines = [
            f"{number}. {_MARKS[step.status]} {step.text}{f' ({step.note})' if step.note else ''}"
            for number, step in enumerate(self._steps, 1)
        ]
        return "\n".join([*([f"Plan: {self.title}"] if self.title else ["Plan:"]), *lines])

    def step_text(self) -> str:
        """The user message that drives the active step. Raises `ConfigError` if no step is
        active.
        """
        number, step = self.active_number, self.active
        if step is None:
            raise ConfigError("no step is active any more: look at `done` first")
        return (
            f"{self.render()}\n\n"
            f"Now do step {number}: {step.text}\n"
            f'When it is done, call {UPDATE_PLAN}(step={number}, status="completed"). '
            f'If it cannot be done, call {UPDATE_PLAN}(step={number}, status="blocked") with a note that says why.'
        )

    def summary_prompt(self) -> str:
        """The user message that asks for a summary after the plan is over."""
        blocked = " and what the blocked steps leave open" if self.blocked else ""
        return (
            f"{self.render()}\n\nThe plan is over. Summarize for the user what was done, what came of it{blocked}. Call"
            " no tools."
        )

    # --- JSON

    def snapshot(self) -> dict[str, Any]:
        """The plan as JSON data."""
        steps = [{"text": step.text, "status": step.status.value, "note": step.note} for step in self._steps]
        return {"version": 1, "title": self.title, "steps": steps}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `snapshot` was taken; a step without a status is not started. Wrong data is a
        `ValueError`, and nothing changes.
        """
        if state.get("version") != 1:
            raise ValueError(f"plan: cannot restore version {state.get('version')!r}, only 1")
        try:
            plan = Plan(
                [Step(step["text"], step.get("status"), step.get("note")) for step in state["steps"]],
                state.get("title"),
            )
        except (ConfigError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"plan: {error}") from None
        self.title, self._steps = plan.title, list(PlanState(plan).steps)


_SPEC = ToolSpec(
    UPDATE_PLAN,
    "Report how a step of the plan stands. Call it when a step is completed or turns out to be blocked.",
    {
        "type": "object",
        "properties": {
            "step": {"type": "integer", "minimum": 1, "description": "The number of the step."},
            "status": {"type": "string", "enum": [status.value for status in StepStatus]},
            "note": {"type": "string", "description": "What came of it, or what blocks it. Optional."},
            "steps": {
                "type": "array",
                "items": {"type": "string"},
                "description": (
                    "Only to change the plan: the steps still to come, in order, in place of all that are not started."
                ),
            },
        },
        "required": ["step", "status"],
    },
)


def _note_in(given: Mapping[str, Any]) -> str | None:
    note = given.get("note")
    if note is None or isinstance(note, str):
        return (note or "").strip() or None
    return shown(note)


def _steps_in(given: Mapping[str, Any]) -> list[str] | None:
    steps = given.get("steps")
    if steps is None:
        return None
    if not isinstance(steps, list) or not all(isinstance(step, str) and step.strip() for step in steps):
        raise ValueError(f"`steps` must be an array of strings, not {shown(steps)}.")
    if not steps:
        raise ValueError("`steps` is empty. A step that is not needed is marked as blocked, with a note.")
    return [step.strip() for step in steps]


# --------------------------------------------------------------------------------------------------
# The instructions of a run: the user's own, with their variables filled in, and a short paragraph
# on how such a run ends.

_VARIABLE = re.compile(r"(\$+)(?:\{([^\W\d]\w*)\})?")
"""Dollars, and the name in braces after them, if there is one."""


def render(template: str, variables: Mapping[str, Any] | None = None) -> str:
    """`template` with each `${name}` replaced by `str(variables[name])`.

    `$${name}` stands for the text `${name}`. Any other dollar or brace is plain text, so JSON,
    prices and shell code need no escapes. Unused variables are ignored, and values are not searched
    for variables again. Raises `ConfigError` with the names of all missing variables.
    """
    if not isinstance(template, str):
        raise ConfigError(f"instructions must be a string, not {template!r}")
    if variables is not None and not isinstance(variables, Mapping):
        raise ConfigError(f"variables must be a dict, not {variables!r}")
    known = variables or {}
    missing: dict[str, None] = {}

    def filled(match: re.Match[str]) -> str:
        dollars: str = match[1]
        name: str | None = match[2]
        if name is None:
            return dollars
        literal = "$" * (len(dollars) // 2)
        if len(dollars) % 2 == 0:
            return f"{literal}{{{name}}}"
        if name not in known:
            missing[name] = None
            return ""
        return f"{literal}{known[name]}"

    text = _VARIABLE.sub(filled, template)
    if missing:
        names = ", ".join(missing)
        raise ConfigError(
            f"the instructions use variables that are not given: {names}. Add them to variables= (the command: --var), "
            "or write $${...} for the text itself"
        )
    return text


def run_instructions(
    instructions: str | None,
    outputs: Outputs | None = None,
    plan: Plan | PlanState | None = None,
    *,
    has_tools: bool = True,
) -> str:
    """The instructions for the model: the user's (rendered), then how to work through the plan,
    emit outputs, and end.

    They are the same for every call of a run, so that the provider's cached prefix stays valid;
    messages say how far the run is. `has_tools=False`: no tool may be called, not even the
    monitor's own, so none is mentioned.
    """
    lines = ["You work alone: nobody answers questions or confirms anything. Decide yourself."]
    if has_tools and plan is not None:
        lines.append(f"Work through the plan, one step after the other, and report each with `{UPDATE_PLAN}`.")
    if has_tools and outputs is not None:
        lines.append(
            f"Hand over each result with `{EMIT}` as soon as you have it; text alone does not count:"
            f" {', '.join(outputs.names)}."
        )
    if has_tools:
        ready = (
            "When every required output is emitted"
            if outputs is not None
            else "When the task is done and you have given your answer as text"
        )
        if outputs is not None or plan is None:
            lines.append(f'{ready}, call `{TERMINATE}` with status "success".')
        lines.append(
            f'If the task cannot be done, call `{TERMINATE}` with status "failure" and say why; do not go on trying.'
        )
    paragraph = "\n".join(lines)
    return f"{instructions.rstrip()}\n\n{paragraph}" if instructions and instructions.strip() else paragraph

"""The instructions of a run: the user's own, with their variables filled in, and a short paragraph
on how such a run ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from monitor.errors import ConfigError
from monitor.goal.declared import EMIT
from monitor.goal.outputs import TERMINATE, Outputs
from monitor.goal.plan import UPDATE_PLAN, Plan, PlanState

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

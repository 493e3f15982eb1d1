"""Special tools, which a model calls to change its run.

The first three of `SPECIAL` belong to the run, which offers them if it has declared outputs or a
plan. The others are ordinary tools for `tools=`. With `ToolContext.run` more such tools can be
written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from monitor.goal.goal import RESERVED
from monitor.messages import Message
from monitor.tools.base import ToolContext
from monitor.tools.functions import FunctionTool

SPECIAL: Final[Mapping[str, str]] = {
    "terminate": "ends the run, with success or failure",
    "emit_value": "hands over a declared output",
    "update_plan": "changes the plan, or the state of a step",
    "pause": "stands still until a person says how it goes on",
    "checkpoint": "stores the conversation so far",
}
"""The effect of each special tool on the run."""

assert set(SPECIAL) >= RESERVED  # noqa: S101 - the table names every tool of the run itself


def pause_tool() -> FunctionTool[..., Any]:
    """A tool by which the model asks a person before it goes on.

    The question goes to the run's approver: approved, the model goes on; refused, it reads the
    reason. With `PendingApprovals` the run ends as `paused`. Without an approver the call is
    refused.
    """

    async def pause(question: str) -> str:  # noqa: ARG001 - the person reads it
        """Stop and ask a person. Use it when you cannot decide by yourself."""
        return "A person has read this and says: go on."

    return FunctionTool(pause, needs_approval=True, alone=True)


def checkpoint_tool(save: Callable[[tuple[Message, ...], str], Any]) -> FunctionTool[..., Any]:
    """A tool by which the model stores the conversation before a risky step.

    `save` is called with the messages so far and the model's note; it may be async.
    """

    async def checkpoint(note: str, context: ToolContext) -> str:
        """Store the conversation so far, with a note on what comes next."""
        saved = save(context.run.history, note)
        if inspect.isawaitable(saved):
            await saved
        return "The conversation is stored."

    return FunctionTool(checkpoint, alone=True)

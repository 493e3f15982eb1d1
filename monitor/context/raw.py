"""A history as it lies around: in a provider's order, in pieces, with results anywhere. `repair`
makes messages of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from monitor.chunks import ToolCall, ToolResult
from monitor.messages import Media, Reasoning, Text
from monitor.reasons import FinishReason


@dataclass(slots=True, frozen=True)
class Unread:
    """A part that has no neutral form. `what` says which, for the report."""

    what: str


RawPart: TypeAlias = Text | Reasoning | Media | ToolCall | ToolResult | Unread
"""One piece of a message that is not repaired yet."""


@dataclass(slots=True, frozen=True)
class RawMessage:
    """One record of somebody's history. Nothing is promised about it.

    A call without an id has the id `""`, one without arguments the arguments `None`; a result
    without the id of its call has `""`.
    """

    role: Literal["user", "assistant", "tool", "system"]
    parts: tuple[RawPart, ...] = ()
    interrupted: bool = False
    """The turn was aborted, or failed: what it left open was never to be carried out."""
    finish_reason: FinishReason | None = None
    partial: bool = False
    """A recorded chunk, one item of several: what the assistant says right behind it is the same
    turn.
    """

"""A history before its repair: in a provider's order, in pieces, with results anywhere. `repair`
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
    """A part that has no neutral form. `what` describes the part, for the report."""

    what: str


RawPart: TypeAlias = Text | Reasoning | Media | ToolCall | ToolResult | Unread
"""One piece of a message that is not repaired yet."""


@dataclass(slots=True, frozen=True)
class RawMessage:
    """One record of a history, which may be invalid in any way.

    A call without an id has the id `""`, one without arguments the arguments `None`; a result
    without the id of its call has `""`.
    """

    role: Literal["user", "assistant", "tool", "system"]
    parts: tuple[RawPart, ...] = ()
    interrupted: bool = False
    """The turn was aborted or failed, so its open calls were never to be carried out."""
    finish_reason: FinishReason | None = None
    partial: bool = False
    """The record is one chunk or item of several: the assistant's next record belongs to the same
    turn.
    """

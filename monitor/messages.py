"""Provider-neutral history: user messages, and assistant messages together with the results of their calls.

A result has no place but beside its call, so an orphan cannot be expressed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from monitor._codec import Codec
from monitor.chunks import ToolCall, ToolResult
from monitor.reasons import FinishReason

NOT_CARRIED_OUT = "The call was not carried out."
"""The result of a call that has none: no provider takes a history that leaves a call open."""
CUT_OFF = "The call was cut off while its arguments were being written, and was not carried out."
"""The same, of a call whose arguments are not whole."""


@dataclass(slots=True, frozen=True)
class Text:
    """Visible text."""

    text: str


@dataclass(slots=True, frozen=True)
class Reasoning:
    """The model's thinking, with the signature the provider wants back."""

    text: str
    signature: str | None = None


@dataclass(slots=True, frozen=True)
class Media:
    """An image, a document, a sound: by its bytes (base64) or by its address."""

    mime_type: str
    data: str | None = None
    uri: str | None = None
    name: str | None = None


@dataclass(slots=True, frozen=True)
class UserMessage:
    """What the user, or the monitor as a nudge, said."""

    content: tuple[Text | Media, ...]
    synthetic: bool = field(default=False, compare=False)
    """The monitor said it, not a person: a nudge, a summary, a word to go on. The model is sent the same either way."""


@dataclass(slots=True, frozen=True)
class AssistantMessage:
    """What the model said in one turn, and what its calls returned, in call order."""

    content: tuple[Text | Reasoning | ToolCall, ...]
    results: tuple[ToolResult, ...] = ()
    finish_reason: FinishReason | None = None


Message: TypeAlias = UserMessage | AssistantMessage

message_codec: Codec[Message] = Codec(UserMessage, AssistantMessage)
"""JSON form of a message."""

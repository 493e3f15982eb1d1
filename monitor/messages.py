"""Provider-neutral history: user messages, and assistant messages together with the results of
their calls.

A result has no place but beside its call, so an orphan cannot be expressed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from monitor._util.codec import Codec
from monitor.chunks import Media, ToolCall, ToolResult
from monitor.reasons import FinishReason

__all__ = [
    "AssistantMessage",
    "Media",
    "Message",
    "Reasoning",
    "Repair",
    "RepairKind",
    "RepairReport",
    "Text",
    "UserMessage",
    "message_codec",
]

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
    origin: str | None = field(default=None, compare=False)
    """Who signed it, e.g. `anthropic:claude-sonnet-4-5`: nobody else is sent the signature. `None`:
    nobody said, so it is sent.
    """


@dataclass(slots=True, frozen=True)
class UserMessage:
    """What the user, or the monitor as a nudge, said."""

    content: tuple[Text | Media, ...]
    synthetic: bool = field(default=False, compare=False)
    """The monitor said it, not a person: a nudge, a summary, a word to go on. The model is sent the
    same either way.
    """


@dataclass(slots=True, frozen=True)
class AssistantMessage:
    """What the model said in one turn, and what its calls returned, in call order."""

    content: tuple[Text | Reasoning | ToolCall, ...]
    results: tuple[ToolResult, ...] = ()
    finish_reason: FinishReason | None = None
    synthetic: bool = field(default=False, compare=False)
    """The monitor put it there, so that roles alternate. The model is sent the same either way."""


Message: TypeAlias = UserMessage | AssistantMessage
"""One entry of a history."""

message_codec: Codec[Message] = Codec(UserMessage, AssistantMessage)
"""JSON form of a message."""


class RepairKind(StrEnum):
    """What was done to a history."""

    RESULT_MOVED = "result_moved"
    """It stood elsewhere, and stands behind its call now."""
    RESULT_ADDED = "result_added"
    """The call had none: an error says so."""
    RESULT_REPLACED = "result_replaced"
    """A real result came after such an error."""
    RESULT_ORPHANED = "result_orphaned"
    """It answered no call, and was dropped."""
    RESULT_REPEATED = "result_repeated"
    """The call had been answered: the second answer was dropped."""
    CALL_DROPPED = "call_dropped"
    """Nothing to call, or nothing to call it with, or of an interrupted turn."""
    ID_REWRITTEN = "id_rewritten"
    """It was blank, used before, or none that the provider takes. Of the call and of its result."""
    NAME_REWRITTEN = "name_rewritten"
    """The provider takes no such name of a tool."""
    ARGUMENTS_READ = "arguments_read"
    """They were JSON in a string, or there were none where the call was answered all the same."""
    MESSAGE_DROPPED = "message_dropped"
    """It said nothing, or nothing of it was left."""
    PART_DROPPED = "part_dropped"
    """It has no form in which it could be sent."""
    SYSTEM_MOVED = "system_moved"
    """A system message in the middle: the user says it now."""
    USER_ADDED = "user_added"
    """The history began with the model."""


@dataclass(slots=True, frozen=True)
class Repair:
    """One thing that was done."""

    kind: RepairKind
    index: int
    """Of the message, as it was given."""
    note: str
    """For people: which call, which part."""


@dataclass(slots=True, frozen=True)
class RepairReport:
    """All that was done. False if nothing was."""

    repairs: tuple[Repair, ...] = ()
    instructions: str | None = None
    """The system messages at the head, which are no part of a neutral history."""

    def __bool__(self) -> bool:
        return bool(self.repairs)

    @property
    def counts(self) -> Mapping[RepairKind, int]:
        """How often each was done."""
        return Counter(one.kind for one in self.repairs)

"""Provider-neutral history: user messages, and assistant messages together with the results of
their calls.

A result stands only beside its call, so a result without a call cannot be expressed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from monitor._util.codec import Codec
from monitor.chunks import Media, ToolCall, ToolResult
from monitor.errors import ConfigError
from monitor.reasons import FinishReason

__all__ = [
    "AssistantMessage",
    "Media",
    "Message",
    "Reasoning",
    "Repair",
    "RepairKind",
    "RepairReport",
    "SteerKind",
    "SteerMessage",
    "SteerReceipt",
    "SteerState",
    "Text",
    "UserMessage",
    "message_codec",
]
__dir__ = __all__.copy

NOT_CARRIED_OUT = "The call was not carried out."
"""Stands as the result of a call without one: no provider accepts a history that leaves a call
open.
"""
CUT_OFF = "The call was cut off while its arguments were being written, and was not carried out."
"""The result that stands for a call whose arguments are not complete."""


@dataclass(slots=True, frozen=True)
class Text:
    """Visible text."""

    text: str


@dataclass(slots=True, frozen=True)
class Reasoning:
    """The model's thinking, with the signature that the provider needs back."""

    text: str
    signature: str | None = None
    origin: str | None = field(default=None, compare=False)
    """The signer, e.g. `anthropic:claude-sonnet-4-5`. Only that model gets the signature back.
    `None`: unknown, so every model gets it.
    """


@dataclass(slots=True, frozen=True)
class UserMessage:
    """A message of the user, or of the monitor, e.g. a nudge."""

    content: tuple[Text | Media, ...]
    """The parts of the message, in order."""
    synthetic: bool = field(default=False, compare=False)
    """The monitor wrote it, not a person: a nudge, a summary, a word to go on. The model receives
    the same in both cases.
    """
    metadata: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """JSON data of the caller's, such as the agent, the model or the format that the message is
    for. It stays with the message, also where it is shortened or sent once more. No provider gets
    it; a `Model` of your own can read it.
    """

    def __post_init__(self) -> None:
        _check_parts(self)


@dataclass(slots=True, frozen=True)
class AssistantMessage:
    """The model's message of one turn, and the results of its calls, in call order."""

    content: tuple[Text | Reasoning | ToolCall, ...]
    """The parts of the message, in order."""
    results: tuple[ToolResult, ...] = ()
    """The results of the calls in `content`, in their order."""
    finish_reason: FinishReason | None = None
    """How the model ended the turn. `None`: it is not known."""
    synthetic: bool = field(default=False, compare=False)
    """The monitor added it, so that roles alternate. The model receives the same in both cases."""

    def __post_init__(self) -> None:
        _check_parts(self)


def _check_parts(message: UserMessage | AssistantMessage) -> None:
    """Raise `ConfigError` for a text in the place of the parts of a message."""
    content: object = message.content
    if isinstance(content, str):
        kind = type(message).__name__
        raise ConfigError(
            f"{kind}.content takes parts, not a text: write monitor.{kind}((monitor.Text({content!r:.80}),))"
        )


Message: TypeAlias = UserMessage | AssistantMessage
"""One entry of a history."""

message_codec: Codec[Message] = Codec(UserMessage, AssistantMessage)
"""The JSON form of a message."""


SteerKind: TypeAlias = Literal["steer", "follow_up"]
"""A `steer` enters the run before its next model call. A `follow_up` enters it where it would end.
"""
SteerState: TypeAlias = Literal["accepted", "delivered", "returned"]
"""A message waits (`accepted`), is in the history (`delivered`), or is back with its sender
(`returned`), because the run ended first.
"""


@dataclass(slots=True, frozen=True, kw_only=True)
class SteerMessage:
    """The word of a person, or of a program, to a run that goes on."""

    id: str
    """A message is accepted once, however often it is sent with the same id."""
    text: str
    kind: SteerKind = "steer"
    now: bool = False
    """The stream of the present turn is ended for it. What the model has said is kept."""
    by: str = ""
    """The name of the sender. Empty: unknown."""
    data: bool = False
    """A program's result, such as that of a background task. The model reads it as data, without a
    person's authority.
    """


@dataclass(slots=True, frozen=True)
class SteerReceipt:
    """The state of a message that was sent to a run."""

    id: str
    run: str
    """The id of the run that it was sent to."""
    state: SteerState


class RepairKind(StrEnum):
    """The kinds of changes that a repair makes in a history."""

    RESULT_MOVED = "result_moved"
    """A result stood away from its call, and was moved behind it."""
    RESULT_ADDED = "result_added"
    """A call had no result: an error was added as its result."""
    RESULT_REPLACED = "result_replaced"
    """A real result came after such an error, and replaced it."""
    RESULT_ORPHANED = "result_orphaned"
    """A result without a call was dropped."""
    RESULT_REPEATED = "result_repeated"
    """A second result of the same call was dropped."""
    CALL_DROPPED = "call_dropped"
    """A call was dropped: it had no name or no arguments, or its turn was interrupted."""
    ID_REWRITTEN = "id_rewritten"
    """An id was blank, used before, or in a form that the provider refuses. It was rewritten in the
    call and in its result.
    """
    NAME_REWRITTEN = "name_rewritten"
    """The name of a tool was rewritten, because the provider refuses such a name."""
    ARGUMENTS_READ = "arguments_read"
    """Arguments were JSON in a string and were read, or were missing in a call that has a result.
    """
    MESSAGE_DROPPED = "message_dropped"
    """A message was dropped: it was empty, or nothing of it was left."""
    PART_DROPPED = "part_dropped"
    """A part was dropped, because it cannot be sent in any form."""
    SYSTEM_MOVED = "system_moved"
    """A system message in the middle of the history became a user message."""
    USER_ADDED = "user_added"
    """The history began with an assistant message; a user message was put before it."""


@dataclass(slots=True, frozen=True)
class Repair:
    """One change in a history."""

    kind: RepairKind
    index: int
    """Index of the message, in the history as it was given."""
    note: str
    """For people: which call, which part."""


@dataclass(slots=True, frozen=True)
class RepairReport:
    """All changes of one repair. False if nothing was changed."""

    repairs: tuple[Repair, ...] = ()
    instructions: str | None = None
    """The system messages at the head, which are not part of a neutral history."""

    def __bool__(self) -> bool:
        return bool(self.repairs)

    @property
    def counts(self) -> Mapping[RepairKind, int]:
        """The number of times that each kind of change was made."""
        return Counter(one.kind for one in self.repairs)

"""Provider-neutral history: user messages, and assistant messages together with the results of
their calls.

A result stands only beside its call, so a result without a call cannot be expressed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias

from monitor._util.checked_words import checked
from monitor._util.codec import Codec
from monitor._util.hashing import canonical_json, identity
from monitor.chunks import Media, ToolCall, ToolResult
from monitor.errors import ConfigError, FinishReason, ToolErrorKind
from monitor.verdicts import Detection

__all__ = [
    "OPEN",
    "ApprovalAnswer",
    "ApprovalDecision",
    "ApprovalRequest",
    "AssistantMessage",
    "CallLedger",
    "CallRecord",
    "CallState",
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
    "answer_codec",
    "bound_hash",
    "call_codec",
    "call_key",
    "message_codec",
    "request_codec",
]
__dir__ = __all__.copy

NOT_CARRIED_OUT = "The call was not carried out."
"""Stands as the result of a call without one: no provider accepts a history that leaves a call
open.
"""
CUT_OFF = "The call was cut off while its arguments were being written, and was not carried out."
"""The result that stands for a call whose arguments are not complete."""
EMIT = "emit_value"
"""The tool with which the model emits one declared output."""


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
@checked
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
            f"{kind}.content takes parts, not a text: write monitor.{kind}((monitor.messages.Text({content!r:.80}),))"
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
@checked
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
@checked
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
@checked
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


# --------------------------------------------------------------------------------------------------
# Tool calls as records: the rows of a ledger, the questions to an approver and the answers.
#
# A record of a call is stored before the step that it names happens: `intended` before anything
# else, `awaiting_approval` before a person is asked, `running` before the tool is entered. So
# after a crash a ledger knows which calls may have had an effect: those that were running. They
# become `unknown`.


class CallState(StrEnum):
    """Where a call stands. `intended`, `awaiting_approval`, `running` and `awaiting_result` are
    open, the others are ends.
    """

    INTENDED = "intended"
    """The model has made the call; nothing was done for it yet."""
    AWAITING_APPROVAL = "awaiting_approval"
    """A person is asked whether the call may be made; its tool was not entered."""
    RUNNING = "running"
    """The tool is being carried out."""
    AWAITING_RESULT = "awaiting_result"
    """The tool has begun something, and its result comes later, from outside of the run."""
    DONE = "done"
    FAILED = "failed"
    """The tool, or a check before it, answered with an error."""
    DENIED = "denied"
    """A person or a rule refused the call: the tool was not entered."""
    CANCELLED = "cancelled"
    """The call was ended from outside, before its tool was entered or while it ran."""
    EXPIRED = "expired"
    """Nobody answered the question whether the call may be made. That is no refusal."""
    UNKNOWN = "unknown"
    """The tool was entered, and it is not known how far it came: the process died, or the tool
    could not be stopped.
    """


UNENTERED = frozenset({CallState.INTENDED, CallState.AWAITING_APPROVAL})
"""The open states in which the tool of a call was not entered: any process may go on with it."""
OPEN = UNENTERED | {CallState.RUNNING, CallState.AWAITING_RESULT}
"""The states that are not ends."""
AGAIN = frozenset({CallState.FAILED, CallState.UNKNOWN})
"""Ends after which the tool of a call may be entered again, if somebody decides that."""


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class CallRecord:
    """One call at one moment. Each step replaces the record under its `key`."""

    run: str
    """Id of the run; a run that goes on in another process keeps it."""
    call_id: str
    """The provider's id of the call."""
    tool: str
    arguments: Any
    """JSON data, as the tool gets them."""
    key: str
    """The identity of the action, see `call_key`. It is the same in every process, and does not
    depend on `call_id`.
    """
    state: CallState = CallState.INTENDED
    turn: int = 0
    index: int = 0
    """Place among the calls of its turn, from 0."""
    idempotent: bool = False
    """The tool may be run again with the same key: that has no second effect."""
    attempt: int = 0
    """The number of times that the tool was entered."""
    started_at_s: float | None = None
    """When the tool was entered, in seconds since the run began."""
    ended_at_s: float | None = None
    text: str | None = None
    """The result, as the model reads it. `None`: there is none yet."""
    is_error: bool = False
    error_kind: ToolErrorKind | None = None
    vetoed: bool = False
    """The monitor wrote `text`: the call was not carried out, or was stopped."""
    artifact: str | None = None
    """Reference of the full text, where `text` is cut."""
    approval: str | None = None
    """Id of the `ApprovalRequest` that was made for this call."""

    @property
    def open(self) -> bool:
        """Whether the call has not ended."""
        return self.state in OPEN


class CallLedger(Protocol):
    """Where calls are recorded before they have an effect. One ledger may serve many runs and
    processes.
    """

    async def intend(self, records: Sequence[CallRecord], /) -> Sequence[CallRecord]:
        """Store the calls of one response, all or none.

        Returns the record that now stands under each key: the given one, or an older one, which is
        left as it is.
        """
        ...

    async def advance(self, record: CallRecord, /) -> bool:
        """Replace the record under `record.key`, before the step happens.

        False: somebody else has taken this step or has ended the call, and nothing is stored. So of
        two processes that hold the same intended call only one may run it. A call that ended stays
        as it is. The one exception: `unknown` or `failed` becomes `running` for another attempt.
        """
        ...

    async def find(self, key: str, /) -> CallRecord | None:
        """The record under `key`."""
        ...

    async def open_calls(self, run: str, /) -> Sequence[CallRecord]:
        """The calls of `run` that have not ended, in the order in which they were intended."""
        ...


def may_follow(record: CallRecord, state: CallState | None, attempt: int) -> bool:
    """Whether `record` is a step that may follow this `state` of its call, in this `attempt`.
    `None`: the call is not known. Every store of calls uses this.

    Only one process may enter a call: `running` follows `intended` or `awaiting_approval`. With a
    higher `attempt` it may also follow a failure or an unknown outcome. A person may be asked again
    until the tool is entered. Only a call that is running begins to await its result. An end may
    follow only an open state.
    """
    if record.state is CallState.AWAITING_RESULT:
        return state is CallState.RUNNING
    if record.state is CallState.AWAITING_APPROVAL:
        return state in UNENTERED
    if record.state is CallState.RUNNING:
        again = state in AGAIN or state is CallState.RUNNING
        return state in UNENTERED or (again and record.attempt > attempt)
    return state in OPEN


def comes_after(record: CallRecord, before: CallRecord | None) -> bool:
    """`may_follow` for the record that stands in the ledger."""
    return before is not None and may_follow(record, before.state, before.attempt)


def call_key(run: str, tool: str, arguments: object, occurrence: int) -> str:
    """The identity of an action: 16 hexadecimal digits of run, tool, normalised arguments and
    `occurrence`.

    `occurrence`: how often the run has made this very call before, from 0. The place of a call in
    its response, and the id that a provider gave it, are no part of it.
    """
    return key_of(run, tool, canonical_json(arguments), occurrence)


def key_of(run: str, tool: str, canonical: str, occurrence: int) -> str:
    """`call_key` of arguments that are in their canonical form already."""
    return identity("\0".join((run, tool, canonical, str(occurrence))))


_FIELDS = tuple(field.name for field in fields(CallRecord))


def stepped(record: CallRecord, **changes: Any) -> CallRecord:
    """A copy of `record` with `changes`, made in half the time of `dataclasses.replace`."""
    made = object.__new__(CallRecord)
    for name in _FIELDS:
        object.__setattr__(made, name, changes[name] if name in changes else getattr(record, name))
    return made


def bound_hash(tool: str, arguments: object, schema: object) -> str:
    """Names the call that an approval is for: 16 hexadecimal digits of the tool, its arguments as
    they were shown, and its description and schema.
    """
    return identity(canonical_json([tool, arguments, schema]))


ApprovalDecision: TypeAlias = Literal["approved", "denied", "expired", "withdrawn"]
"""The ends of a question. `expired`: nobody answered, which is no refusal. `withdrawn`: its run was
closed, so nobody waits for an answer.
"""


@dataclass(slots=True, frozen=True, kw_only=True)
class ApprovalRequest:
    """A question to a person: may this call be made? Or, with `evidence`: may this run go on?"""

    id: str
    run: str
    call_id: str
    """The call that is asked for. `""`: the whole run is held."""
    tool: str
    arguments: Any
    """The arguments as the person sees them. In the place of a secret that is one plain word stands
    a text such as `<secret of 24 characters>`.
    """
    schema_hash: str
    """The hash of the tool's description and schema."""
    bound_to: str
    """An answer holds only for a call with this hash, see `bound_hash`."""
    why: str
    """For people: the rule that asks, with its name and reason, or the tool itself."""
    scopes: tuple[str, ...] = ()
    """The scopes that "always" could have here, the narrowest first: `git push`, `shell`. See
    `ApprovalAnswer.always`.
    """
    asked_at: float = 0.0
    """Unix time, in seconds: a question may outlive its process."""
    expires_at: float | None = None
    """Unix time. `None`: it does not expire."""
    preview: str = ""
    """The change that the call would make, if its tool can say: the difference of a file."""
    evidence: Detection | None = None
    """The detection, if the run is held for one."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The files that the call names and that decide what it does, with a hash of their content: the
    script that runs, the file that a write replaces. If one of them has changed, the person is
    asked again.
    """
    key: str = ""
    """`CallRecord.key` of the call: its identity in its run, in every process. The answer is spent
    with the record that sets this call to `running`.
    """


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class ApprovalAnswer:
    """The answer to an `ApprovalRequest`."""

    id: str
    """The `id` of the request."""
    decision: ApprovalDecision
    reason: str = ""
    """Why it was denied, for the model, or withdrawn; what to do differently, for a run that was
    held.
    """
    arguments: Mapping[str, Any] | None = None
    """The arguments to use in the place of the model's. `None`: as they are."""
    always: str | None = None
    """One of the request's `scopes`: do not ask again for it in this run. `None`: this once."""
    bound_to: str = ""
    """`ApprovalRequest.bound_to`. If it is given, the answer holds for no other call."""
    by: str = ""
    """The one who answered: a person, or a part of the program, e.g. `approver_failed`."""

    @property
    def approved(self) -> bool:
        """Whether the call may be made."""
        return self.decision == "approved"


call_codec: Codec[CallRecord] = Codec(CallRecord)
"""The JSON form of the record of a call."""
request_codec: Codec[ApprovalRequest] = Codec(ApprovalRequest)
"""The JSON form of the question for an approval."""
answer_codec: Codec[ApprovalAnswer] = Codec(ApprovalAnswer)
"""The JSON form of the answer to a question."""

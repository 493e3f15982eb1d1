"""Tool calls as records: the rows of a ledger, the questions to an approver and the answers.

A record of a call is stored before the step that it names happens: `intended` before anything else,
`awaiting_approval` before a person is asked, `running` before the tool is entered. So after a crash
a ledger knows which calls may have had an effect: those that were running. They become `unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias

from monitor._util.codec import Codec
from monitor._util.hashing import canonical_json, identity
from monitor.reasons import ToolErrorKind
from monitor.verdicts import Detection

__all__ = [
    "OPEN",
    "ApprovalAnswer",
    "ApprovalDecision",
    "ApprovalRequest",
    "CallLedger",
    "CallRecord",
    "CallState",
    "answer_codec",
    "bound_hash",
    "call_codec",
    "call_key",
    "request_codec",
]
__dir__ = __all__.copy


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
    """The arguments as the person sees them, with secrets masked."""
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
    """The files that decide what the call does, with a hash of their content: the script that runs,
    the file that a write replaces. If one of them has changed, the person is asked again.
    """


@dataclass(slots=True, frozen=True, kw_only=True)
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

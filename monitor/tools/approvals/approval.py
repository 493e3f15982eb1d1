"""Decides whether a call may be made: by modes, by rules, and by a question to a person.

Each run has one `Approvals`, which every call passes that may need an approval. These decide, in
this order: the mode `plan`; the rules; `needs_approval` of the tool; the mode. If nobody can answer
a question, the call is refused, and the refusal names the rule, tool or mode that asked. An answer
holds only for the call that was shown: its tool, its arguments, its schema, and the content of the
files that decide what it does.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, cast

import anyio

from monitor._util.argument_checks import check_word
from monitor._util.explained_options import explained
from monitor._util.text import foreign
from monitor.errors import ConfigError, describe
from monitor.messages import ApprovalAnswer, ApprovalRequest, CallState, bound_hash
from monitor.tools.approvals.approvers import Grants, schema_hash, scopes_of
from monitor.tools.approvals.judged_call import JudgedCall, deciding_files, judged
from monitor.tools.approvals.rules import Rules
from monitor.tools.base import ADMITTED, EVERYTHING, SOMETHING, Admission, CallingRun, CallListener, Clock, ToolContext
from monitor.tools.masking import masked, restored, secrets_in, with_texts
from monitor.tools.registry import ToolEntry
from monitor.tools.sandbox.confinement import SandboxFound
from monitor.verdicts import VETO, Detection

Mode: TypeAlias = Literal["default", "auto_edit", "yolo", "plan"]
"""`default`: reads run, all else asks. `auto_edit`: edits run too. `yolo`: everything runs except
calls that a rule denies. `plan`: reads run, all else is refused.
"""


class Approver(Protocol):
    """Asks a person whether a call may be made."""

    async def ask(self, request: ApprovalRequest, /) -> ApprovalAnswer | None:
        """The answer. `None`: not now; the run ends as paused, and the question stays open."""
        ...


AskFunction: TypeAlias = Callable[[ApprovalRequest], Awaitable[ApprovalAnswer | bool | None]]


@explained(example="monitor.tools.Approval(mode='default')")
@dataclass(frozen=True, kw_only=True)
class Approval:
    """The settings of approval, for `Supervisor(approval=...)`."""

    mode: Mode | None = None
    """`None`: there is no mode, and only rules and tools ask."""
    rules: Rules | str | Path | None = None
    """Rules, or the path of a TOML file with rules."""
    expires_s: float | None = None
    """Seconds after which a question is given up. `None`: it waits."""

    def __post_init__(self) -> None:
        if self.mode is not None:
            check_word("approval", self.mode, Mode)
        if self.rules is not None and not isinstance(self.rules, Rules):
            object.__setattr__(self, "rules", Rules.load(self.rules))
        if self.expires_s is not None and not self.expires_s > 0:
            raise ConfigError(f"expires_s={self.expires_s!r}: give seconds above 0, or None")


def approval_of(given: Approval | Mode | None) -> Approval:
    """`given` as an `Approval`; a mode may stand for one."""
    if given is None or isinstance(given, str):
        return Approval(mode=given)
    if not isinstance(given, Approval):
        raise ConfigError(f"approval takes a mode or an Approval, not {given!r}")
    return given


def check_boxes(approval: Approval, boxes: Iterable[object]) -> None:
    """Raise `ConfigError` if nobody is asked and a sandbox that is wanted does not hold."""
    for found in boxes:
        if approval.mode == "yolo" and isinstance(found, SandboxFound) and not found.holds:
            raise ConfigError(
                f"approval='yolo' asks nobody, and no sandbox holds here: {found.detail}."
                " Write sandbox=None (--sandbox off) to run commands without one"
            )


def approver_of(given: Approver | AskFunction | None) -> AskFunction | None:
    """The function that is called with each question, and awaited. `None`: nobody is asked."""
    if given is None:
        return None
    ask: Any = getattr(given, "ask", given)
    if not callable(ask) or isinstance(given, type):
        raise ConfigError(f"approver takes an object with ask(), or an async function, not {given!r}")
    return cast("AskFunction", ask)


ELICITATION: Final = "elicitation"
"""Takes the place of a tool's name where a server asks a person, and no call is approved."""
_IN_RUN: Final = " in this run"
"""The end of a scope that opens the sandbox for a run."""
WAITS: Final = f"{VETO} This call waits for an approval. It was not made yet; do not repeat it."
EXPIRED: Final = (
    f"{VETO} This call was not made: nobody answered whether it may be. That is no refusal; you may ask again later."
)


class Approvals:
    """Decides about the calls of one run. The scheduler asks it before each."""

    opened: frozenset[str] = frozenset()
    """What a person has allowed beyond the sandbox, for this run."""

    def __init__(
        self,
        approval: Approval,
        ask: AskFunction | None,
        *,
        run: CallingRun,
        run_id: str,
        listener: CallListener,
        clock: Clock,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._mode = approval.mode
        self._rules = approval.rules if isinstance(approval.rules, Rules) else Rules()
        self._expires_s = approval.expires_s
        self._ask = ask
        self._run = run
        self._run_id = run_id
        self._listener = listener
        self._clock = clock
        self._wall = wall
        self._grants = Grants()
        self.pending: list[ApprovalRequest] = []
        """Questions that stay open when the run ends."""
        self._asked_before: dict[tuple[str, str], str] = {}
        """The id of a question by the key of its call and its hash: another process of this run has
        asked it.
        """
        self._answered_before: dict[str, ApprovalAnswer] = {}
        """The answers on record to such questions, by their ids. They are not asked again."""

    def recall(self, request: ApprovalRequest, answer: ApprovalAnswer | None, *, spent: bool) -> None:
        """Another process of this run has asked `request`, and has perhaps got this `answer`.
        `spent`: its call was made or has ended, so the answer holds for no call that is to come.
        """
        if answer is not None and answer.approved:
            self._allow(request, answer.always)
        if spent:
            return
        self._asked_before[request.key, request.bound_to] = request.id
        if answer is not None:
            self._answered_before[request.id] = answer

    def _allow(self, request: ApprovalRequest, always: str | None) -> None:
        if always is not None and always.endswith(_IN_RUN) and always in request.scopes:
            self.opened |= {always.removesuffix(_IN_RUN)}
        else:
            self._grants.add(request, always)

    # ------------------------------------------------------------------ the gate

    def admit(
        self, entry: ToolEntry, arguments: Mapping[str, Any], context: ToolContext
    ) -> Admission | ApprovalRequest:
        """The decision about a call, or the question to a person that it depends on."""
        if self._mode is None and not self._rules.rules and not entry.traits.needs_approval:
            return ADMITTED
        call = judged(entry, arguments)
        why = self._asks(entry, call, context)
        if isinstance(why, Admission):
            return why
        if self._grants.cover(entry, call):
            return Admission(overruled=not call.place.boxed)
        if self._ask is None:
            return _denied(f"nobody can approve it here, and it has to be approved ({why})")
        return self._request(entry, call, context, why)

    async def ask(self, request: ApprovalRequest, entry: ToolEntry, arguments: Mapping[str, Any]) -> Admission:
        """The decision that a person has made about a call. If a file that decides what the call
        does has changed since the question, the person is asked again.
        """
        while True:
            answer = await self._answer(request)
            if answer is None:
                self.pending.append(request)
                return Admission(CallState.AWAITING_APPROVAL, WAITS, approval=request.id)
            if answer.decision == "expired":
                return Admission(CallState.EXPIRED, EXPIRED, approval=request.id)
            if not answer.approved:
                return _refused(request, answer)
            if answer.arguments is not None:
                return self._edited(entry, arguments, answer.arguments, request)
            call = judged(entry, arguments)
            files = deciding_files(call)
            if files == request.files:
                self._allow(request, answer.always)
                return Admission(approval=request.id)
            request = self._asked_again(request, entry, call, files)

    def _asked_again(
        self, request: ApprovalRequest, entry: ToolEntry, call: JudgedCall, files: Mapping[str, str]
    ) -> ApprovalRequest:
        """The question about the same call, after a file has changed."""
        changed = sorted(name for name in {*files, *request.files} if files.get(name) != request.files.get(name))
        return replace(
            request,
            id=uuid.uuid4().hex,
            bound_to=_bound_to(entry, call, request.schema_hash, files),
            files=files,
            why=f"{changed[0]} has changed since it was asked: {request.why.rpartition(' since it was asked: ')[2]}",
            preview=_preview(entry, call.arguments),
            asked_at=self._wall(),
            expires_at=self._expires_at(),
        )

    def _edited(
        self, entry: ToolEntry, arguments: Mapping[str, Any], given: Mapping[str, Any], request: ApprovalRequest
    ) -> Admission:
        """The admission of a call with the arguments of a person. A rule that refuses those holds
        for a person too.
        """
        try:
            edited = restored(given, arguments)
        except ConfigError as error:
            return replace(_denied(str(error)), approval=request.id)
        ruling = self._rules.ruling(judged(entry, edited))
        if ruling is not None and ruling.decision == "deny":
            return replace(_denied(str(ruling)), approval=request.id)
        return Admission(arguments=edited, approval=request.id)

    async def outside(
        self, entry: ToolEntry, arguments: Mapping[str, Any], context: ToolContext, kept_from: str
    ) -> tuple[frozenset[str], str]:
        """The sandbox has kept a call from `kept_from`: what a person opens, so that it is made
        once more, and a sentence for the model. Nothing is opened if they refuse, or cannot answer
        now.
        """
        if self._ask is None or EVERYTHING in context.opened:
            return frozenset(), ""
        why = f"the sandbox kept it from {kept_from}; may it run once more, outside of the sandbox?"
        scopes = (f"{kept_from}{_IN_RUN}",) if kept_from not in self.opened and kept_from != SOMETHING else ()
        request = self._request(entry, judged(entry, arguments), context, why)
        request = replace(request, scopes=scopes, key="", bound_to=bound_hash(request.bound_to, kept_from, why))
        answer = await self._answer(request)
        if answer is None:  # the call has its end now, so nobody waits for a later answer
            answer = ApprovalAnswer(id=request.id, decision="withdrawn", bound_to=request.bound_to)
            await self._listener.answered(answer)
        said = f"{VETO} The sandbox kept this call from {kept_from}."
        if not answer.approved:
            reason = f" The reason: {foreign(answer.reason)}" if answer.reason else ""
            return frozenset(), f"{said} Nobody has allowed it to run outside.{reason}"
        self._allow(request, answer.always if answer.always in scopes else None)
        if self.opened - context.opened:
            return self.opened, f"{said} A person has allowed {kept_from} for this run, and it was made once more."
        return self.opened | {EVERYTHING}, f"{said} A person let it run once outside, and this is what it did there."

    async def hold(self, detection: Detection) -> ApprovalAnswer | None:
        """Ask whether the run may go on after `detection`. `None`: nobody can answer."""
        if self._ask is None:
            return None
        evidence = [detection.message, detection.evidence.excerpt]
        bound_to = bound_hash("", evidence, None)
        id = self._asked_before.pop(("", bound_to), "") or uuid.uuid4().hex
        request = self._beside_calls(id, bound_to, why=detection.message, tool="", arguments={}, evidence=detection)
        answer = await self._answer(request)
        if answer is None:
            self.pending.append(request)
        return answer

    async def elicit(self, message: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Ask a person what an MCP server wants to know: `message`, and the schema of the answer.
        `ApprovalAnswer.arguments` is what the person says. `None`: refused, or nobody answers now.
        """
        if self._ask is None:
            return None
        fields: dict[str, Any] = dict.fromkeys(schema.get("properties") or {})
        bound_to = bound_hash(ELICITATION, [message, fields], None)
        why = f"an MCP server asks: {message}"
        request = self._beside_calls(uuid.uuid4().hex, bound_to, why=why, tool=ELICITATION, arguments=fields)
        answer = await self._answer(request)
        if answer is None or not answer.approved:
            return None
        content = {name: value for name, value in (answer.arguments or {}).items() if value is not None}
        return content if set(schema.get("required") or ()) <= set(content) else None

    # ------------------------------------------------------------------ what asks

    def _asks(self, entry: ToolEntry, call: JudgedCall, context: ToolContext) -> Admission | str:
        """A decision; or, if a person has to be asked, the reason in words."""
        kind = entry.traits.kind
        ruling = self._rules.ruling(call, self._grants.prefixes(entry))
        if ruling is not None and ruling.decision == "deny":
            return _denied(str(ruling))
        if self._mode == "plan":
            return ADMITTED if kind == "read" else _denied("only tools that read may be called in the mode 'plan'")
        if ruling is not None and ruling.unsure:
            return str(ruling)
        if ruling is not None and ruling.decision == "allow":
            return Admission(overruled=not call.place.boxed)
        if self._mode == "yolo":
            return ADMITTED
        if ruling is not None:
            return str(ruling)
        if (why := _needs_approval(entry, call.arguments, context)) is not None:
            return why
        if self._mode is None or kind == "read" or (self._mode == "auto_edit" and kind == "edit"):
            return ADMITTED
        return f"the mode {self._mode!r} asks before a tool of the kind {kind!r}"

    # ------------------------------------------------------------------ the question

    def _request(self, entry: ToolEntry, call: JudgedCall, context: ToolContext, why: str) -> ApprovalRequest:
        """The question about a call. One that another process has asked keeps its id."""
        schema = schema_hash(entry)
        files = deciding_files(call)
        bound_to = _bound_to(entry, call, schema, files)
        return ApprovalRequest(
            id=self._asked_before.pop((context.idempotency_key, bound_to), "") or uuid.uuid4().hex,
            run=self._run_id,
            call_id=context.call.id,
            tool=entry.spec.name,
            arguments=with_texts(call.arguments, secrets_in(call.arguments)),
            schema_hash=schema,
            bound_to=bound_to,
            files=files,
            why=why,
            scopes=scopes_of(entry, call),
            preview=_preview(entry, call.arguments),
            asked_at=self._wall(),
            expires_at=self._expires_at(),
            key=context.idempotency_key,
        )

    def _beside_calls(self, id: str, bound_to: str, **facts: Any) -> ApprovalRequest:
        """A question that is about no call."""
        now, until = self._wall(), self._expires_at()
        return ApprovalRequest(
            id=id,
            run=self._run_id,
            call_id="",
            schema_hash="",
            bound_to=bound_to,
            asked_at=now,
            expires_at=until,
            **facts,
        )

    def _expires_at(self) -> float | None:
        return None if self._expires_s is None else self._wall() + self._expires_s

    async def _answer(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Ask, and wait for the answer. Deadlines stand still meanwhile."""
        assert self._ask is not None  # noqa: S101 - asked only then
        if (known := self._answered_before.pop(request.id, None)) is not None:
            return known
        await self._listener.requested(request)
        answer: ApprovalAnswer | None = ApprovalAnswer(
            id=request.id, decision="expired", bound_to=request.bound_to, by="the clock"
        )
        with self._run.paused(), anyio.CancelScope() as scope:
            alarm = None
            if self._expires_s is not None:
                alarm = self._clock.call_at(self._clock.now() + self._expires_s, scope.cancel)
            try:
                answer = _checked(await self._ask(request), request)
            except Exception as error:  # noqa: BLE001 - an approver may raise anything: that is no approval
                answer = ApprovalAnswer(
                    id=request.id,
                    decision="denied",
                    reason=f"approver_failed: {describe(error)}",
                    bound_to=request.bound_to,
                    by="approver_failed",
                )
            finally:
                if alarm is not None:
                    alarm.cancel()
        if answer is not None:
            await self._listener.answered(replace(answer, arguments=masked(answer.arguments)))
        return answer


def _checked(answer: object, request: ApprovalRequest) -> ApprovalAnswer | None:
    """`answer`, if it holds for `request`. Any other answer becomes a refusal."""
    if answer is None:
        return None
    if isinstance(answer, bool):
        return ApprovalAnswer(id=request.id, decision="approved" if answer else "denied", bound_to=request.bound_to)
    if not isinstance(answer, ApprovalAnswer):
        raise ConfigError(f"an approver answers with an ApprovalAnswer, a bool or None, not {answer!r}")
    if answer.id != request.id or (answer.bound_to and answer.bound_to != request.bound_to):
        return ApprovalAnswer(
            id=request.id,
            decision="denied",
            reason="the answer was given for another call, or for other arguments",
            bound_to=request.bound_to,
            by="agent-monitor",
        )
    return replace(answer, bound_to=request.bound_to)


def _bound_to(entry: ToolEntry, call: JudgedCall, schema: str, files: Mapping[str, str]) -> str:
    """Names the call and the files that decide what it does. Without files it is the hash of the
    call alone.
    """
    return bound_hash(entry.spec.name, call.arguments, [schema, files] if files else schema)


def _refused(request: ApprovalRequest, answer: ApprovalAnswer) -> Admission:
    reason = f" The reason: {foreign(answer.reason)}" if answer.reason else ""
    text = f"{VETO} This call was not made: {answer.by or 'the person who was asked'} refused it.{reason}"
    return Admission(CallState.DENIED, text, approval=request.id)


def _denied(why: str) -> Admission:
    return Admission(CallState.DENIED, f"{VETO} This call was not made: {why}.")


def _needs_approval(entry: ToolEntry, arguments: Mapping[str, Any], context: ToolContext) -> str | None:
    needs = entry.traits.needs_approval
    if callable(needs):
        try:
            needs = bool(needs(arguments, context))
        except Exception as error:  # noqa: BLE001 - a function of the caller's: if it fails, a person is asked
            return f"needs_approval of {entry.spec.name} raised {describe(error)}"
    return f"the tool {entry.spec.name} asks to be approved" if needs else None


def _preview(entry: ToolEntry, arguments: Mapping[str, Any]) -> str:
    """The change that the call would make, as its tool describes it. If `preview` fails, this is
    empty: the call will then say what is wrong.
    """
    preview = getattr(entry.tool, "preview", None)
    if callable(preview):
        with contextlib.suppress(Exception):
            return str(with_texts(preview(arguments), secrets_in(arguments)))
    return ""

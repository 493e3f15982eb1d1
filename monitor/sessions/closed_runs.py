"""Closes a run that nobody will go on with: its calls, its questions and its record end together.

Failure answered: a run is begun beside one that has died. Its calls stay open, and a person is
asked for something that nobody waits for any more.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from monitor.calls import UNENTERED, ApprovalAnswer, ApprovalRequest, CallRecord, CallState, stepped
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ConfigError, StoreError
from monitor.events import Event, SteerAccepted, SteerDelivered, SteerReturned
from monitor.messages import AssistantMessage, SteerMessage
from monitor.reasons import ToolErrorKind
from monitor.sessions.nodes import Draft, NodeKind, context_edit, message, said_of
from monitor.sessions.run_records import MAIN, Changes, RunRecord, RunStage
from monitor.sessions.session_store import SessionStore
from monitor.sessions.tree import ACTIVE, new_ids
from monitor.verdicts import VETO

SUPERSEDED: Final = "superseded"
"""The reason in the record of a run that was closed: no process has ended it."""


async def close_run(store: SessionStore, run: str, why: str) -> None:
    """End the run with the id `run`, and the runs that it has called, without going on with it.

    Its record says `superseded`, and `why`. Its open questions are withdrawn. Each call that was
    left open ends, and the conversation says what is known of it: it was not made, or its effect is
    unknown. A run that has ended stays as it is. Raises `StoreError` if there is no such run, and
    `ConfigError` for an empty `why`.

    No process may carry out the run: its owner aborts it instead.
    """
    if not why.strip():
        raise ConfigError('say why the run is closed: write await close_run(session, run, "nobody needs it any more")')
    runs = await store.runs(hidden=True)
    found = next((one for one in runs if one.id == run), None)
    if found is None:
        raise StoreError(f"there is no run {run} to close")
    for child in runs:
        if child.parent_run == run and child.state is not RunStage.ENDED:
            await close_run(store, child.id, why)
    if found.state is not RunStage.ENDED:
        await store.commit(await _end(store, found, why))


def branch_of(run: RunRecord) -> str:
    """The branch that a run writes to."""
    return ACTIVE if run.purpose == MAIN else f"run-{run.id}"


async def _end(store: SessionStore, run: RunRecord, why: str) -> Changes:
    """The end of a run as one step."""
    asked = [one for one in await store.approvals() if one.request.run == run.id]
    approved = {one.request.call_id for one in asked if one.answer is not None and one.answer.approved}
    ends = [closed_call(one, why, approved=one.call_id in approved) for one in await store.open_calls(run.id)]
    data = {**run.data, "reason": SUPERSEDED, "detail": why, "ok": False}
    return Changes(
        nodes=await _told(store, run, ends, why),
        branch=branch_of(run),
        runs=[replace(run, state=RunStage.ENDED, ended_at_s=time.time(), data=data)],
        calls=ends,
        answers=[withdrawn(one.request, why) for one in asked if one.answer is None],
        events=await _returned(store, run.id, why),
        events_run=run.id,
    )


async def _returned(store: SessionStore, run: str, why: str) -> list[Event]:
    """The return of the messages that the run has not delivered."""
    waiting: dict[str, SteerMessage] = {}
    at_s, turn = 0.0, 0
    for stored in await store.events(run):
        event = stored.event
        at_s = max(at_s, event.at_s)
        if isinstance(event, SteerAccepted):
            waiting[event.message.id], turn = event.message, event.turn
        elif isinstance(event, SteerDelivered | SteerReturned):
            waiting.pop(event.message.id, None)
    return [SteerReturned(at_s, turn, message, why) for message in waiting.values()]


def withdrawn(request: ApprovalRequest, why: str) -> ApprovalAnswer:
    """The end of a question whose answer nobody needs any more."""
    return ApprovalAnswer(
        id=request.id, decision="withdrawn", reason=why, bound_to=request.bound_to, by="agent-monitor"
    )


def closed_call(record: CallRecord, why: str, *, approved: bool = False) -> CallRecord:
    """The end of a call that nobody goes on with."""
    if record.state in UNENTERED:
        state = CallState.CANCELLED
        text = f"{VETO} This call was not made{', although it was approved' if approved else ''}: {why}."
    else:
        state = CallState.UNKNOWN
        text = f"{VETO} The outcome of this call is unknown: it was begun, and its end was not recorded, because {why}."
    return stepped(record, state=state, text=text, is_error=True, error_kind=ToolErrorKind.CANCELLED, vetoed=True)


async def _told(store: SessionStore, run: RunRecord, ends: Sequence[CallRecord], why: str) -> list[Draft]:
    """Drafts of the results of the calls that were left open, if the branch ends with them."""
    context = await store.context(branch_of(run))
    entry = next((one for one in reversed(context.entries) if isinstance(one.message, AssistantMessage)), None)
    node = await store.find_node(entry.node) if entry is not None else None
    if entry is None or node is None or node.run != run.id or node.kind is not NodeKind.MESSAGE:
        return []
    original, shown = said_of(node), entry.message
    if not isinstance(original, AssistantMessage) or not isinstance(shown, AssistantMessage):
        return []
    stored = {new: old for old, new in new_ids(original, shown).items()}
    known = {one.call_id: one for one in await store.calls(run.id)} | {one.call_id: one for one in ends}
    before = {one.id: one for one in shown.results}
    results = dict(before)
    for call in (part for part in shown.content if isinstance(part, ToolCall)):
        record = known.get(stored.get(call.id, call.id))
        if call.id not in before or record in ends:
            text = f"{VETO} This call was not made: {why}." if record is None else record.text
            results[call.id] = _result(call, record, text or "")
    new = [one for id, one in results.items() if before.get(id) is not one]
    if new and (stored or any(one.id in before for one in new)):
        return [context_edit(node.id, replace(shown, results=(*results.values(),)), run=run.id, turn=node.turn)]
    return [message(one, run=run.id, turn=node.turn) for one in new]


def _result(call: ToolCall, record: CallRecord | None, text: str) -> ToolResult:
    if record is None or record.vetoed:
        kind = ToolErrorKind.CANCELLED if record is None else record.error_kind
        return ToolResult(call.id, call.name, text, is_error=True, vetoed=True, error_kind=kind)
    return ToolResult(call.id, call.name, text, record.is_error, error_kind=record.error_kind, artifact=record.artifact)

"""What a run reads from its session: answers of other processes, its past, and its nested runs.

Failure answered: the program of a paused run has its session open, so nobody else can store the
answer that the run waits for. It comes by the mailbox.
"""

from __future__ import annotations

from typing import Any, Final

import anyio

from monitor.chunks import NO_COST, AskCost
from monitor.core.replay.resumed import ResumedRun, resumed_run
from monitor.events import RunTerminated, TurnEnded
from monitor.guard.streams.wait import Clock
from monitor.messages import ApprovalAnswer, ApprovalRequest
from monitor.outcome import Outcome
from monitor.runs.record.compaction_runs import USAGE
from monitor.sessions.closed_runs import COMPACT, SUBAGENT, Changes, RunRecord, RunStage, SessionStore, return_late
from monitor.sessions.mail.mailbox import Mailbox
from monitor.tools.approvals.approval import AskFunction
from monitor.tools.base import wait_until

LOOK_S: Final = 0.5
"""Seconds between two looks into the mailbox while a person is asked."""


async def store_answers(store: SessionStore) -> None:
    """Store the answers in the mailbox of `store` to its open questions. Any other answer came too
    late, and is removed.
    """
    mailbox = store.mailbox
    if mailbox is None:
        return
    await return_late(store, "the run had ended")  # its process died before it could return them
    if not (letters := mailbox.answers()):
        return
    asked = {one.request.id for one in await store.approvals(only_open=True)}
    answers = {one.answer.id: one.answer for one in reversed(letters) if one.answer.id in asked}  # the first counts
    if answers:
        await store.commit(Changes(answers=[*answers.values()]))
    mailbox.remove(letters)


def remove_answers(mailbox: Mailbox, question: str) -> None:
    """Remove the answers to a question whose answer is on record."""
    if letters := [one for one in mailbox.answers() if one.answer.id == question]:
        mailbox.remove(letters)


def or_by_mail(ask: AskFunction, mailbox: Mailbox, clock: Clock) -> AskFunction:
    """`ask`, which ends as soon as the answer of another process is in the mailbox."""

    async def by_mail(request: ApprovalRequest) -> ApprovalAnswer:
        while (answer := _answer_in(mailbox, request)) is None:
            await wait_until(clock, clock.now() + LOOK_S, anyio.Event())
        return answer

    async def asked(request: ApprovalRequest) -> Any:
        if (known := _answer_in(mailbox, request)) is not None:
            return known
        found: list[Any] = []
        raised: list[Exception] = []

        async def first(one: AskFunction) -> None:
            try:
                found.append(await one(request))
            except Exception as error:  # noqa: BLE001 - raised below, outside of the group
                raised.append(error)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(first, by_mail)
            group.start_soon(first, ask)
        if raised and not found:
            raise raised[0]
        return found[0]

    return asked


def _answer_in(mailbox: Mailbox, request: ApprovalRequest) -> ApprovalAnswer | None:
    return next((one.answer for one in mailbox.answers() if one.answer.id == request.id), None)


CALL = "call"
"""The key, in the data of a nested run's record, of the call that began it."""


async def past_in(store: SessionStore, run: str) -> ResumedRun:
    """The past of a run. A nested run that has not ended goes on by itself, and counts then."""
    past = resumed_run([stored.event for stored in await store.events(run)])
    of_run = [one for one in await store.runs(hidden=True) if one.parent_run == run]
    outcomes = [await outcome_in(store, one.id) for one in of_run if not one.hidden and one.state is RunStage.ENDED]
    past.nested = [(one.usage, one.cost_usd) for one in outcomes if one is not None]
    for child in of_run:
        if child.purpose == COMPACT and USAGE not in child.data:  # the process ended before its event was stored
            turns = (one.event.turn for one in await store.events(child.id) if isinstance(one.event, TurnEnded))
            past.compaction_cost += sum((AskCost(turn.usage, turn.usage_estimated) for turn in turns), NO_COST)
    return past


async def outcome_in(store: SessionStore, run: str) -> Outcome | None:
    """How a run has ended. `None`: the session does not say."""
    ends = [one.event.outcome for one in await store.events(run) if isinstance(one.event, RunTerminated)]
    return ends[-1] if ends else None


async def nested_in(store: SessionStore, caller: str, call: str) -> RunRecord | None:
    """The nested run that the call with the key `call` began before the process died."""
    began = (one for one in await store.runs() if one.parent_run == caller and one.purpose == SUBAGENT)
    return next((one for one in began if one.data.get(CALL) == call), None)

"""Answers of other processes to the questions of a session, from its mailbox.

Failure answered: the program of a paused run has its session open, so nobody else can store the
answer that the run waits for.
"""

from __future__ import annotations

from typing import Any, Final

import anyio

from monitor.calls import ApprovalAnswer, ApprovalRequest
from monitor.harness.streams.clock import Alarm, Clock
from monitor.sessions.beside.mailbox import Mailbox
from monitor.sessions.run_records import Changes
from monitor.sessions.session_store import SessionStore
from monitor.tools.approvals.approval import AskFunction

LOOK_S: Final = 0.5
"""Seconds between two looks into the mailbox while a person is asked."""


async def store_answers(store: SessionStore) -> None:
    """Store the answers in the mailbox of `store` to its open questions. Any other answer came too
    late, and is removed.
    """
    mailbox = store.mailbox
    if mailbox is None:
        return
    await mailbox.look()
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

    async def asked(request: ApprovalRequest) -> Any:
        found: list[Any] = []
        raised: list[Exception] = []
        alarm: Alarm | None = None

        async def of_approver() -> None:
            try:
                found.append(await ask(request))
            except Exception as error:  # noqa: BLE001 - raised below, outside of the group
                raised.append(error)
            group.cancel_scope.cancel()

        def look() -> None:
            nonlocal alarm
            if (answer := _answer_in(mailbox, request)) is not None:
                found.append(answer)
                group.cancel_scope.cancel()
            else:
                alarm = clock.call_at(clock.now() + LOOK_S, look)

        try:
            async with anyio.create_task_group() as group:
                look()
                if not found:
                    group.start_soon(of_approver)
        finally:
            if alarm is not None:
                alarm.cancel()
        if raised and not found:
            raise raised[0]
        return found[0]

    return asked


def _answer_in(mailbox: Mailbox, request: ApprovalRequest) -> ApprovalAnswer | None:
    return next((one.answer for one in mailbox.answers() if one.answer.id == request.id), None)

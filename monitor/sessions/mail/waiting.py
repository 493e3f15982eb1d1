"""Runs of many sessions that wait for a person, their questions, and the answers to them.

A command and a web application use the same functions: `inbox` lists, `answer` stores an answer,
`found_in` searches. None of them carries a run out: `Supervisor.resume` does.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from anyio import to_thread

from monitor._util.checked_words import checked
from monitor.errors import ConfigError, MonitorError, SessionBusy, ToolErrorKind
from monitor.messages import (
    ApprovalAnswer,
    ApprovalDecision,
    ApprovalRequest,
    CallRecord,
    CallState,
    SteerKind,
    SteerMessage,
    stepped,
)
from monitor.sessions.closed_runs import MAIN, ApprovalState, Changes, RunRecord, RunStage, SessionStore
from monitor.sessions.mail.mailbox import Letter
from monitor.sessions.nodes import Node, canonical
from monitor.sessions.postgres.postgres_session import owner_at, reader_at, sessions_at
from monitor.sessions.reader import default_folder

RunState: TypeAlias = Literal["running", "waiting", "stopped", "ended"]
"""A process carries the run out (`running`), or it waits for an answer (`waiting`). Its process has
gone (`stopped`), or it has ended (`ended`).
"""
AROUND: Final = 60
"""Code points of a text that are shown on each side of a passage that was searched for."""


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class WaitingRun:
    """A run of a session that was started from outside, as a person looks at it."""

    session: Path | str
    """The file of its session, or `postgresql://user@host/db#name`."""
    run: RunRecord
    state: RunState
    changed_s: float
    """The time of the last write to the session, in seconds since 1970."""
    questions: tuple[ApprovalRequest, ...] = ()
    """The open questions of the run and of its nested runs, oldest first."""
    letters: tuple[Letter, ...] = ()
    """Messages of other processes that the run has not taken in."""


def inbox(folder: str | PathLike[str] | None = None, *, ended: bool = False) -> list[WaitingRun]:
    """The runs of the sessions in `folder` that have not ended. The session that was written last
    is at the end. `folder`: by default that of this user. The address of a database is one as well,
    `postgresql://user@host/db`. `ended`: also those that have.

    A session that cannot be read is left out: `agent-monitor sessions verify` says why.
    """
    found: list[WaitingRun] = []
    for place, changed_s in sessions_at(default_folder() if folder is None else folder):
        try:
            found += runs_of(place, changed_s)
        except MonitorError:
            continue
    return [one for one in found if ended or one.state != "ended"]


def runs_of(place: Path | str, changed_s: float) -> list[WaitingRun]:
    """The runs of one session. Raises `StoreError` if it cannot be read."""
    with reader_at(place) as session, session.snapshot():
        runs = session.runs(hidden=True)
        answered = {one.answer.id for one in session.mailbox.answers()}
        asked = [one.request for one in session.approvals() if one.answer is None and one.request.id not in answered]
        owned = session.owner is not None
        letters = session.mailbox.letters()
    found: list[WaitingRun] = []
    for run in (one for one in runs if one.purpose == MAIN):
        questions = tuple(one for one in asked if one.run in _family(run.id, runs))
        state = _state(run, owned=owned, asks=bool(questions))
        of_run = tuple(one for one in letters if one.run == run.id)
        found.append(
            WaitingRun(session=place, run=run, state=state, changed_s=changed_s, questions=questions, letters=of_run)
        )
    return found


def _state(run: RunRecord, *, owned: bool, asks: bool) -> RunState:
    if run.state is RunStage.ENDED:
        return "ended"
    if run.state is RunStage.WAITING or (asks and not owned):
        return "waiting"
    return "running" if owned else "stopped"


def _family(run: str, runs: Sequence[RunRecord]) -> set[str]:
    """The ids of a run and of all runs below it. A run stands behind the one that began it."""
    family = {run}
    for one in runs:
        if one.parent_run in family:
            family.add(one.id)
    return family


async def answer(
    session: SessionStore | str | PathLike[str],
    question: str,
    decision: ApprovalDecision,
    *,
    reason: str = "",
    by: str = "",
    always: str | None = None,
) -> ApprovalAnswer:
    """Store the answer to the open question with the id `question`. The run goes on with
    `Supervisor.resume`, in any process.

    `session`: an open session, its file, or `postgresql://user@host/db#name`. While another process
    has it open, the answer is left for that process. A run that waits for a person takes it within
    a second, and a paused one when it is resumed. See `ApprovalAnswer` for the other arguments.

    Raises `ConfigError` if no such question is open, or it has expired.
    """
    given = ApprovalAnswer(id=question, decision=decision, reason=reason, always=always, by=by)
    if not isinstance(session, str | PathLike):
        return await _stored(session, given)
    try:
        opened = owner_at(session, create=False)
        async with opened:
            return await _stored(opened, given)
    except SessionBusy:
        return await to_thread.run_sync(_left, session, given)


async def _stored(session: SessionStore, given: ApprovalAnswer) -> ApprovalAnswer:
    said = _checked(given, await session.approvals(only_open=True))
    await session.commit(Changes(answers=[said]))
    return said


def _left(place: str | PathLike[str], given: ApprovalAnswer) -> ApprovalAnswer:
    """Leave the answer for the owner of the session."""
    with reader_at(place) as session:
        waiting = {one.answer.id for one in session.mailbox.answers()}
        said = _checked(given, [one for one in session.approvals() if one.request.id not in waiting])
        session.mailbox.put_answer(said)
    return said


def _checked(given: ApprovalAnswer, asked: Sequence[ApprovalState]) -> ApprovalAnswer:
    """The answer, bound to its question. Raises `ConfigError` for one that does not fit."""
    question, always = given.id, given.always
    request = next((one.request for one in asked if one.answer is None and one.request.id == question), None)
    if request is None:
        raise ConfigError(f"no open question has the id {question!r}: it is answered, or was never asked")
    if request.expires_at is not None and time.time() >= request.expires_at:
        raise ConfigError(f"the question {question!r} has expired; the run asks it again")
    if always is not None and always not in request.scopes:
        raise ConfigError(f"always={always!r} is none of the scopes of the question: {', '.join(request.scopes)}")
    return replace(given, bound_to=request.bound_to)


@dataclass(slots=True, frozen=True, kw_only=True)
class Passage:
    """A place in a session where a text stands."""

    session: Path | str
    """The file of the session, or `postgresql://user@host/db#name`."""
    node: str
    """The id of the node."""
    run: str | None
    turn: int | None
    at_ms: int
    excerpt: str
    """The text with some characters around it, as JSON writes it."""


def found_in(places: Iterable[Path | str], text: str) -> Iterator[Passage]:
    """The nodes in which `text` stands, in messages, calls and results, in upper or lower case.
    `places`: files of sessions, or `postgresql://user@host/db#name`. A session that cannot be
    read is left out. Raises `ConfigError` for an empty text.
    """
    wanted = canonical(text)[1:-1].casefold()
    if not wanted:
        raise ConfigError("say which text to search for")
    for place in places:
        try:
            with reader_at(place) as session:
                nodes = session.nodes()
        except MonitorError:
            continue
        for node in nodes:
            if (excerpt := _excerpt(node, wanted)) is not None:
                yield Passage(
                    session=place, node=node.id, run=node.run, turn=node.turn, at_ms=node.at_ms, excerpt=excerpt
                )


def _excerpt(node: Node, wanted: str) -> str | None:
    """The first place of a node's texts where `wanted` stands. `None`: it stands in none."""
    if wanted not in node.body.casefold():
        return None
    try:
        data = node.data
    except MonitorError:
        return None
    for text in map(canonical, _texts_in(data)):
        at = text[1:-1].casefold().find(wanted)
        if at >= 0:
            return text[1:-1][max(0, at - AROUND) : at + len(wanted) + AROUND]
    return None


def _texts_in(data: Any, *, ours: bool = True) -> Iterator[str]:
    """The texts that somebody has said. `ours`: the keys of `data` are those of our own records."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for key, value in data.items():
            if not ours:
                yield key
            if not ours or key not in _RECORD_FIELDS:
                yield from _texts_in(value, ours=ours and key not in {"arguments", "data"})
    elif isinstance(data, list):
        for value in data:
            yield from _texts_in(value, ours=ours)


_RECORD_FIELDS: Final = frozenset({"type", "id", "finish_reason", "error_kind", "base", "first_kept_node_id", "target"})
"""Fields of stored messages that name something, and were said by nobody."""


# --------------------------------------------------------------------------------------------------
# Says something to a run of a session from another process.


def tell(
    path: str | PathLike[str],
    text: str,
    *,
    kind: SteerKind = "steer",
    now: bool = False,
    by: str = "",
    data: bool = False,
    id: str | None = None,
    run: str | None = None,
) -> Letter:
    """Say something to a run of the session at `path`, from any process: see `Run.steer`. `path`:
    its file, or `postgresql://user@host/db#name`.

    `run`: its id, also of a nested run; by default the run that has not ended and was started from
    outside. The message is stored when this returns,
    and the run gets it within a second, or when it is resumed.

    Raises `ConfigError` for an empty text, and if there is no such run or it has ended.
    """
    message = SteerMessage(id=id or uuid.uuid4().hex, text=text, kind=kind, now=now, by=by, data=data)
    with reader_at(path) as session:
        letter = session.mailbox.put(_going(session.runs(), run).id, message)
        try:
            _going(session.runs(), letter.run)
        except ConfigError:
            if session.mailbox.take_back(letter):  # else its owner has returned it
                raise
        return letter


def _going(runs: Sequence[RunRecord], run: str | None) -> RunRecord:
    """The run that gets a message."""
    of_user = [one for one in runs if (one.purpose == MAIN if run is None else one.id == run)]
    going = [one for one in of_user if one.state is not RunStage.ENDED]
    if going:
        return going[-1]
    if not of_user:
        raise ConfigError("the session has no run" if run is None else f"the session has no run {run}")
    last = of_user[-1]
    raise ConfigError(f"the run {last.id} has ended ({last.data.get('reason')}), so it gets no message")


# --------------------------------------------------------------------------------------------------
# Results of calls that come from outside, after the run that made the calls has paused.


async def waiting_calls(session: SessionStore) -> list[CallRecord]:
    """The calls of the session whose results come from outside and are not there yet."""
    return [one for one in await session.calls() if one.state is CallState.AWAITING_RESULT]


async def deliver(session: SessionStore, key: str, text: str, *, is_error: bool = False) -> CallRecord:
    """Store `text` as the result of the call with this key, for which its run waits. Then
    `supervisor.resume(session)` goes on with it. `is_error`: the call has failed.

    The key is `context.idempotency_key` of the tool, and `CallRecord.key`. Delivering the same
    result again changes nothing. Raises `ConfigError` if no such call waits for its result.
    """
    known = await session.find(key)
    if known is not None and (known.text, known.is_error) == (text, is_error):
        return known
    if known is None or known.state is not CallState.AWAITING_RESULT:
        state = "there is none" if known is None else f"it is {known.state.value}"
        raise ConfigError(f"no call with the key {key!r} waits for its result: {state}")
    kind = ToolErrorKind.EXECUTION_FAILED if is_error else None
    state = CallState.FAILED if is_error else CallState.DONE
    ended = stepped(known, state=state, text=text, is_error=is_error, error_kind=kind)
    await session.commit(Changes(calls=[ended]))
    return ended

"""`replay`: a stored run decided again, from the inputs that it had (law 2).

    replayed = await monitor.replay(session)
    for event in replayed.events: ...

The core decides all over again: findings, verdicts, limits, the end. What came from outside is
taken from the record: chunks, results of tools, answers of judges and people, summaries, times.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from monitor._util.argument_checks import check_part, check_parts
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, TurnFinished, UsageReport
from monitor.conditions.condition import Condition, check_condition
from monitor.core.replay import inputs
from monitor.core.replay.inputs import CoreInput, LoggedInput, joined
from monitor.core.replay.recorded_parts import NotRecorded, parts_to_json
from monitor.core.replay.replayed import ReplayedRun
from monitor.detectors import default_detectors
from monitor.detectors.detector import Detector
from monitor.errors import ConfigError, SessionDamaged
from monitor.events import (
    AttemptRetried,
    ChunkReceived,
    CompactionFailed,
    CompactionFinished,
    DetectionRaised,
    Event,
    FirstChunk,
    LimitWarning,
    Paused,
    ResultUnmatched,
    Resumed,
    RunStarted,
    RunTerminated,
    SteerAccepted,
    SteerDelivered,
    SteerReturned,
    StopDecided,
    StreamClosed,
    StreamContinued,
    StreamFailed,
    ToolFinished,
    TurnEnded,
    TurnStarted,
    event_codec,
)
from monitor.guard.options import check_session
from monitor.messages import AssistantMessage, Reasoning, Text
from monitor.outcome import Outcome, Turn
from monitor.policy import Ladder, Policy
from monitor.sessions.closed_runs import MAIN, RunRecord, SessionStore, TurnChunks
from monitor.sessions.nodes import Node, NodeKind, said_of
from monitor.sessions.postgres.postgres_reader import AnyReader, PostgresReader
from monitor.sessions.reader import SessionReader
from monitor.sessions.sqlite_session import SQLiteSession
from monitor.tools.masking import MaskedChunks, Secrets
from monitor.verdicts import Stop

# --------------------------------------------------------------------------------------------------
# The inputs of a run, as far as its events have them: for a run whose chunks are not stored.

_DECIDED_AGAIN = (
    AttemptRetried, DetectionRaised, FirstChunk, LimitWarning, Paused, ResultUnmatched, Resumed, RunStarted,
    RunTerminated, SteerAccepted, SteerDelivered, SteerReturned, StopDecided, StreamClosed, StreamContinued,
    StreamFailed, TurnEnded, TurnStarted,
)  # fmt: skip
"""Events of the core. All others are shown as they are."""


def inputs_of_events(
    events: Sequence[Event], replies: Mapping[int, AssistantMessage], task: str | None = None
) -> list[LoggedInput]:
    """The inputs of one life of a run. `replies`: the message of each turn. `task`: the user's
    request.
    """
    entries: list[LoggedInput] = []
    for number, event in enumerate(events):
        entries += ((event.at_s, one) for one in _inputs(event, replies, task))
        if not isinstance(event, _DECIDED_AGAIN):
            entries.append((0.0, inputs.FactNote(number, sys.maxsize)))
    return entries


def with_pieces(events: Sequence[Event], replies: Mapping[int, AssistantMessage]) -> Iterator[Event]:
    """The events, with the parts of each answer before the end of its turn."""
    for event in events:
        if isinstance(event, TurnEnded):
            for chunk in _chunks(event.turn, replies.get(event.turn.number)):
                yield ChunkReceived(event.at_s, event.turn.number, chunk)
        yield event


def _inputs(event: Event, replies: Mapping[int, AssistantMessage], task: str | None) -> Iterator[Chunk | CoreInput]:
    match event:
        case RunStarted():
            told = {
                "detectors": default_detectors(),
                "policy": Ladder(),
                "cuts": True,
                "supervised": True,
                "task": task,
            }
            yield inputs.BeginInput(parts_to_json(told))
        case TurnStarted():
            yield inputs.CheckInput()
            yield inputs.BeginTurnInput()
        case FirstChunk():
            yield inputs.FirstChunkInput()
        case StreamContinued():
            yield inputs.ContinuedInput()
        case TurnEnded(turn=turn):
            yield from _chunks(turn, replies.get(turn.number))
            whole = turn.model_error is None and turn.error is None and turn.stopped is None
            yield inputs.EndTurnInput(
                whole, must_finish=False, gave=turn.gave, error=turn.error, model_error=turn.model_error
            )
        case StreamClosed():
            yield inputs.SourceClosedInput(event.at_s - event.after_s, event.closed, event.chunks_dropped, event.note)
        case ToolFinished(result=result):
            yield inputs.ToolResultInput(result.id, result.text, result.is_error, result.vetoed, result.progress)
        case CompactionFinished(cost=cost) | CompactionFailed(cost=cost):
            yield inputs.ChargeCompactionInput(cost)
        case SteerAccepted(message=message):
            yield inputs.SteerInput(message)
        case SteerDelivered():
            yield inputs.DeliverInput()
        case Paused():
            yield inputs.PauseInput()
        case Resumed():
            yield inputs.ResumeInput()
        case RunTerminated(outcome=one):
            stop = Stop(one.reason, one.detail, one.source, one.limit, one.value, one.evidence)
            yield inputs.TerminateInput(stop, one.error, pending=())


def _chunks(turn: Turn, reply: AssistantMessage | None) -> Iterator[Chunk]:
    """The parts of the message in their order, if they are all of the turn's text."""
    parts = reply.content if reply is not None else ()
    whole = turn.text == "".join(part.text for part in parts if isinstance(part, Text))
    for part in parts:
        if isinstance(part, Reasoning):
            yield ReasoningDelta(part.text)
        elif whole and isinstance(part, Text):
            yield TextDelta(part.text)
        elif whole and isinstance(part, ToolCall):
            yield part
    if not whole:
        yield TextDelta(turn.text)
        yield from turn.tool_calls
    if not turn.usage_estimated:
        used = turn.usage
        yield UsageReport(
            used.input_tokens, used.output_tokens, used.reasoning_tokens, used.cached_tokens, used.total_tokens
        )
    if turn.finish_reason is not None:
        yield TurnFinished(turn.finish_reason, turn.raw_finish_reason)


_AS_RECORDED: Any = object()
NO_CHUNKS: Final = (
    "the chunks of this run are not stored: the events are shown as they were stored, and nothing was decided again"
)
FROM_TURNS: Final = (
    "the chunks of this run are not stored: each turn is read as one piece, at the time of its end. Limits on silence"
    " see no piece in between, and failed attempts have no text"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A stored run that was decided again."""

    run: RunRecord
    """The record of the run in its session."""
    events: tuple[Event, ...]
    outcome: Outcome | None
    """How the run ended. `None`: its record ends before the run does, because its process died."""
    exact: bool
    """Everything was decided again, from all inputs of the run."""
    as_stored: bool
    """The events are the stored ones, byte for byte."""
    departed: str | None = None
    """Why the run would have gone another way than the recorded one, so that `events` end there.
    `None`: it would not.
    """
    remark: str | None = None
    """Says for people why the replay is not exact."""


async def replay(
    session: SessionStore | AnyReader,
    run: str | None = None,
    *,
    detectors: Sequence[Detector] | None = _AS_RECORDED,
    stop_when: Condition | None = _AS_RECORDED,
    policy: Policy = _AS_RECORDED,
    pieces: bool = False,
) -> Replay:
    """Decide a run of `session` again. `run`: its id; by default the newest one that was started
    from outside.

    `detectors`, `stop_when`, `policy`: parts in the place of the recorded ones, to see what they
    would have said. The events end where the run would have gone another way. `None` is none.
    `pieces`: the pieces of the answers are among the events, as `Supervisor.stream` yields them.

    The session must have been opened with `chunks=True` when the run was made. Otherwise the stored
    events are the result, or, with other parts, what these say of the stored turns: `exact` is then
    `False`. Raises `ConfigError` if there is no such run, and for a part of the run that is Python
    code and is not given.
    """
    given = _checked(detectors, stop_when, policy)
    if isinstance(session, SessionReader | PostgresReader):
        return replay_of(session, run, pieces=pieces, **given)
    if isinstance(session, SQLiteSession):  # its runs may be writing
        with session.reader() as reader:
            return replay_of(reader, run, pieces=pieces, **given)
    check_session(session, "runs")
    runs = await session.runs(hidden=True)
    record = chosen(runs, run)
    events = [one.event for one in await session.events(record.id)]
    return _replayed(record, events, await session.chunks(record.id), await session.nodes(), given=given, pieces=pieces)


def replay_of(session: AnyReader, run: str | None = None, *, pieces: bool = False, **given: Any) -> Replay:
    """`replay` for a program without an event loop. `given`: the parts that were checked."""
    with session.snapshot():
        record = chosen(session.runs(hidden=True), run)
        events = [one.event for one in session.events(record.id)]
        return _replayed(record, events, session.chunks(record.id), session.nodes(), given=given, pieces=pieces)


def _checked(detectors: Any, stop_when: Any, policy: Any) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if detectors is not _AS_RECORDED:
        given["detectors"] = check_parts("detectors", () if detectors is None else detectors, "observe")
    if stop_when is not _AS_RECORDED:
        check_condition("stop_when", stop_when, "monitor.MaxTurns(30)")
        given["stop_when"] = stop_when
    if policy is not _AS_RECORDED:
        check_part("policy", policy, "decide")
        given["policy"] = policy
    return given


def chosen(runs: Sequence[RunRecord], id: str | None) -> RunRecord:
    """The run with this id, or the newest one from outside. Raises `ConfigError`."""
    found = [run for run in runs if (run.purpose == MAIN if id is None else run.id == id)]
    if not found:
        raise ConfigError("this session has no run" if id is None else f"this session has no run {id}")
    return found[-1]


@dataclass(slots=True)
class _Life:
    """The part of a run that one process has stored, from its start to its end, or to that of the
    process.
    """

    events: list[Event]
    inputs: list[LoggedInput]


def _replayed(
    record: RunRecord,
    events: Sequence[Event],
    chunks: Iterable[TurnChunks],
    nodes: Iterable[Node],
    *,
    given: Mapping[str, Any],
    pieces: bool,
) -> Replay:
    with _damage_named():
        lives = _lives(events, chunks)
    if not lives:
        raise ConfigError(f"nothing of the run {record.id} is stored, so there is nothing to replay")
    exact = all(life.inputs for life in lives)
    task = str(record.data.get("task", "")) or None
    replies = {} if exact or not (given or pieces) else _replies(nodes, record.id)
    again: list[Event] = []
    departed = None
    before: list[Event] = []
    for life in lives:
        if life.inputs or given:
            events_again, departed = _decided_again(life, before, given, replies, pieces=pieces, task=task)
            again += _as_delivered(events_again)
        else:
            again += with_pieces(life.events, replies) if pieces else life.events
        before += life.events
        if departed is not None:
            break
    last = again[-1] if again else None
    decided = [event for event in again if not isinstance(event, ChunkReceived)]
    return Replay(
        run=record,
        events=tuple(again),
        outcome=last.outcome if isinstance(last, RunTerminated) else None,
        exact=exact,
        as_stored=[*map(event_codec.dumps, decided)] == [*map(event_codec.dumps, events)],
        departed=departed,
        remark=None if exact else FROM_TURNS if given else NO_CHUNKS,
    )


def _decided_again(
    life: _Life,
    before: Sequence[Event],
    given: Mapping[str, Any],
    replies: Mapping[int, AssistantMessage],
    *,
    pieces: bool,
    task: str | None,
) -> tuple[list[Event], str | None]:
    """The events, and why the run departs from its record."""
    with _damage_named():
        entries = life.inputs or inputs_of_events(life.events, replies, task)
        again = ReplayedRun(entries, life.events, given, before=before, pieces=pieces)
        return list(again), again.departed


@contextmanager
def _damage_named() -> Iterator[None]:
    """Raises `SessionDamaged` for inputs that cannot be read."""
    try:
        yield
    except NotRecorded:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise SessionDamaged(f"the stored chunks of this run cannot be read: {error!r}") from error


def _as_delivered(events: Iterable[Event]) -> Iterator[Event]:
    """The events of one process as they are handed out, and as they are read from a session."""
    secrets = Secrets()
    chunks = MaskedChunks(secrets)
    at_s, turn = 0.0, 0
    for event in events:
        if isinstance(event, ChunkReceived):
            at_s, turn = event.at_s, event.turn
            yield from (ChunkReceived(at_s, turn, chunk) for chunk in chunks.feed(event.chunk))
            continue
        yield from (ChunkReceived(at_s, turn, chunk) for chunk in chunks.flush())
        yield event_codec.from_dict(event_codec.to_dict(secrets.event(event)))


def _lives(events: Sequence[Event], chunks: Iterable[TurnChunks]) -> list[_Life]:
    """The lives of a run. Each may have its chunks stored or not."""
    lives: list[_Life] = []
    for event in events:
        if isinstance(event, RunStarted):
            lives.append(_Life([], []))
        if lives:
            lives[-1].events.append(event)
    for number, log in _logs(chunks):
        if number < len(lives):
            lives[number].inputs = log
    return lives


def _logs(chunks: Iterable[TurnChunks]) -> Iterator[tuple[int, list[LoggedInput]]]:
    """The inputs of each life, with the number of the life."""
    logs: list[list[LoggedInput]] = []
    early: list[LoggedInput] = []  # an abort may come before the run begins
    for some in chunks:
        for entry in joined(some.chunks, some.inputs):
            if isinstance(entry[1], inputs.BeginInput):
                logs.append(early)
                early = []
            (logs[-1] if logs else early).append(entry)
    for log in logs:
        lives = [one.number for _, one in log if isinstance(one, inputs.LifeNote)]
        yield (lives[0] if lives else 0), log


def _replies(nodes: Iterable[Node], run: str) -> dict[int, AssistantMessage]:
    """The message of the model in each turn of a run."""
    replies: dict[int, AssistantMessage] = {}
    for node in nodes:
        if node.run == run and node.turn is not None and node.kind is NodeKind.MESSAGE:
            said = said_of(node)
            if isinstance(said, AssistantMessage):
                replies[node.turn] = said
    return replies

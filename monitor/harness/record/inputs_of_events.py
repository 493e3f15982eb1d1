"""The inputs of a run, as far as its events have them: for a run whose chunks are not stored."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, TurnFinished, UsageReport
from monitor.core import inputs
from monitor.core.inputs import CoreInput, LoggedInput
from monitor.core.replay.recorded_parts import parts_to_json
from monitor.detectors import default_detectors
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
)
from monitor.messages import AssistantMessage, Reasoning, Text
from monitor.outcome import Turn
from monitor.policy import Ladder
from monitor.verdicts import Stop

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

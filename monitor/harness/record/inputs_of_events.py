"""The inputs of a run, as far as its events have them: for a run whose chunks are not stored."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, TurnFinished, UsageReport
from monitor.core.described import described
from monitor.core.tape import EVENT, Entry, Input, error_plain, plain
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
    RunTerminated, StopDecided, StreamClosed, StreamContinued, StreamFailed, TurnEnded, TurnStarted,
)  # fmt: skip
"""Events of the core. All others are shown as they are."""


def inputs_of_events(events: Sequence[Event], replies: Mapping[int, AssistantMessage]) -> list[Entry]:
    """A tape of one life of a run. `replies`: the message of each turn."""
    entries: list[Entry] = []
    for number, event in enumerate(events):
        entries += _inputs(event, replies)
        if not isinstance(event, _DECIDED_AGAIN):
            entries.append(Input(EVENT, 0.0, {"number": number, "behind": sys.maxsize, "fact": True}))
    return entries


def with_pieces(events: Sequence[Event], replies: Mapping[int, AssistantMessage]) -> Iterator[Event]:
    """The events, with the parts of each answer before the end of its turn."""
    for event in events:
        if isinstance(event, TurnEnded):
            for chunk in _chunks(event.turn, replies.get(event.turn.number)):
                yield ChunkReceived(event.at_s, event.turn.number, chunk)
        yield event


def _inputs(event: Event, replies: Mapping[int, AssistantMessage]) -> Iterator[Entry]:
    at = event.at_s
    match event:
        case RunStarted():
            parts = {"detectors": default_detectors(), "policy": Ladder(), "cuts": True, "supervised": True}
            yield Input("begin", at, {"parts": described(parts)})
        case TurnStarted():
            yield Input("check", at)
            yield Input("begin_turn", at)
        case FirstChunk():
            yield Input("first_chunk", at)
        case StreamContinued():
            yield Input("continued", at)
        case TurnEnded(turn=turn):
            yield from ((at, chunk) for chunk in _chunks(turn, replies.get(turn.number)))
            yield Input("end_turn", at, _end_of(turn))
        case StreamClosed():
            facts = {"closed": event.closed, "chunks_dropped": event.chunks_dropped, "note": event.note}
            yield Input("source_closed", at, {"since": at - event.after_s, **facts})
        case ToolFinished(result=result):
            names = ("text", "is_error", "vetoed", "progress")
            yield Input("tool_result", at, {"call": result.id, **{name: getattr(result, name) for name in names}})
        case CompactionFinished(cost=cost) | CompactionFailed(cost=cost):
            yield Input("charge_compaction", at, {"cost": plain(cost)})
        case Paused():
            yield Input("pause", at)
        case Resumed():
            yield Input("resume", at)
        case RunTerminated(outcome=one):
            stop = Stop(one.reason, one.detail, one.source, one.limit, one.value, one.evidence)
            yield Input("terminate", at, {"fallback": plain(stop), "error": error_plain(one.error), "pending": []})


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


def _end_of(turn: Turn) -> dict[str, Any]:
    failed = turn.model_error is not None or turn.error is not None
    return {
        "finished": not failed and turn.stopped is None,
        "must_finish": False,
        "gave": list(turn.gave),
        "error": error_plain(turn.error),
        "model_error": plain(turn.model_error),
    }

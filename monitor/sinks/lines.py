"""Events in words: one line each, for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from monitor._util.codec import to_plain
from monitor._util.quoting import printable
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta
from monitor.events import (
    AbortRequested,
    ApprovalAnswered,
    ApprovalRequested,
    AttemptRetried,
    BudgetLost,
    ChunkReceived,
    CompactionFailed,
    CompactionFinished,
    CompactionProgressed,
    CompactionSkipped,
    CompactionStarted,
    ContextFull,
    ContextNearlyFull,
    DetectionRaised,
    Event,
    FirstChunk,
    HistoryReduced,
    HistoryRepaired,
    JudgeAnswered,
    JudgeAsked,
    JudgeFailed,
    LastTurnStarted,
    LimitWarning,
    Nudged,
    OutageEnded,
    OutageFound,
    OutagesLost,
    OutputEmitted,
    Paused,
    PlanUpdated,
    ResultUnmatched,
    Resumed,
    RetryScheduled,
    RunHeld,
    RunReleased,
    RunStarted,
    RunTerminated,
    SinkFailed,
    StopDecided,
    StreamClosed,
    StreamContinued,
    StreamFailed,
    ToolCallChanged,
    ToolFinished,
    ToolOutput,
    ToolProgressed,
    ToolResultDropped,
    ToolStarted,
    ToolWithdrawn,
    TurnEnded,
    TurnStarted,
    WindowWarning,
)

LINE_CHARS = 200
"""The length of a line for people; the event has the whole text."""


def line_of(event: Event, *, chars: int | None = LINE_CHARS) -> str:
    """`event` as one line of at most `chars` characters (`None`: no limit). It has no times, so
    equal runs have equal lines. Characters that a terminal would obey are escaped.
    """
    line = printable(" ".join(_words(event).split()))
    return line if chars is None or len(line) <= chars else f"{line[: chars - 1]}…"


def call_in_words(call: ToolCall) -> str:
    """`search(query="x", limit=3)`."""
    given: Any = to_plain(call.arguments)
    arguments = (
        [f"{key}={_json(value)}" for key, value in given.items()] if isinstance(given, Mapping) else [_json(given)]
    )
    return f"{call.name}({', '.join(arguments)})"


def _words(event: Event) -> str:
    for words_of in (_of_stream, _of_calls, _of_decisions, _of_outages, _of_context):
        if (words := words_of(event)) is not None:
            return words
    raise AssertionError(event)


def _of_stream(event: Event) -> str | None:  # noqa: PLR0911 - one case for each event
    """The run, its turns and its streams."""
    match event:
        case RunStarted(detectors=detectors, stop_when=stop_when):
            return f"run started, until {stop_when or 'it ends'}, watched by {', '.join(detectors) or 'no detector'}"
        case TurnStarted(turn=turn):
            return f"turn {turn}"
        case FirstChunk():
            return "the first chunk came"
        case ChunkReceived(chunk=chunk):
            return f"chunk: {_chunk(chunk)}"
        case AttemptRetried(why=why):
            return f"once more: {why}"
        case StreamContinued(model_call=number):
            return f"model call {number} in the same stream"
        case ResultUnmatched(call=call):
            return f"a result without a call: {call or 'no call was open'}"
        case StreamFailed(error=error):
            return f"model call failed, {error.kind.value}: {error.message}"
        case RetryScheduled(attempt=attempt, after_s=after_s, why=why):
            return f"attempt {attempt} {f'in {after_s:g} s' if after_s else 'at once'}: {why}"
        case StreamClosed(closed=closed, chunks_dropped=dropped):
            return (
                "stream"
                f" {'closed' if closed else 'left open'}{f', {dropped} buffered chunks dropped' if dropped else ''}"
            )
        case TurnEnded(turn=ended):
            return f"said: {ended.text}" if ended.text.strip() else "said nothing"
        case RunTerminated(outcome=outcome):
            return f"ended, {outcome.reason.value}: {outcome.detail}"
    return None


def _of_calls(event: Event) -> str | None:  # noqa: PLR0911 - one case for each event
    """Calls, their results, and who allows them."""
    match event:
        case ToolStarted(call=call):
            return f"call {call_in_words(call)}"
        case ToolFinished(result=result):
            return f"{'error' if result.is_error else 'result'} of {result.name}: {result.text}"
        case ToolCallChanged(record=record):
            return f"call {record.call_id} of {record.tool}: {record.state.value}"
        case ToolOutput(call_id=call, stream=stream, text=text):
            return f"{stream} of {call}: {text}"
        case ToolProgressed(call_id=call, done=done, total=total, note=note):
            of = f" of {total:g}" if total is not None else ""
            return f"progress of {call}: {'' if done is None else f'{done:g}{of} '}{note}"
        case ToolResultDropped(tool=tool, why=why):
            return f"a late answer of {tool} was dropped: {why}"
        case ApprovalRequested(request=request):
            return f"may {request.tool or 'the run go on'}? {request.why}"
        case ApprovalAnswered(answer=answer):
            return f"{answer.decision}{f' by {answer.by}' if answer.by else ''}: {answer.reason}".rstrip(": ")
        case OutputEmitted(name=name, value=value, overwritten=overwritten):
            return f"output {name} = {_json(value)}{', in place of another' if overwritten else ''}"
        case PlanUpdated(plan=plan):
            return plan
    return None


def _of_decisions(event: Event) -> str | None:  # noqa: PLR0911 - one case for each event
    """Findings, and what follows from them."""
    match event:
        case DetectionRaised(detection=found):
            return f"{found.level}, {found.detector}: {found.message}"
        case Nudged(text=text):
            return f"nudge: {text}"
        case ToolWithdrawn(tool=tool):
            return f"{tool} is not offered any more"
        case LastTurnStarted(reason=reason, seconds=seconds):
            return f"last turn after {reason.value}, {seconds:g} s"
        case JudgeAsked(judge=judge):
            return f"{judge} looks at the run"
        case JudgeAnswered(judge=judge, fact=fact, judgement=judgement):
            return f"{judge}, {fact}? {'yes' if judgement.found else 'no'}: {judgement.analysis}"
        case JudgeFailed(judge=judge, why=why):
            return f"{judge} gave no answer: {why}"
        case Paused():
            return "paused"
        case Resumed():
            return "resumed"
        case LimitWarning(source=source, value=value, limit=limit):
            return f"limit near, {source}: {value:g} of {limit:g}"
        case BudgetLost(budget=budget, detail=detail, goes_on=goes_on):
            return f"shared budget {budget}: {detail}; {'going on without it' if goes_on else 'no further call'}"
        case AbortRequested(why=why):
            return f"abort: {why}"
        case StopDecided(stop=stop):
            return f"stop, {stop.reason.value}: {stop.detail}"
        case SinkFailed(sink=sink, why=why):
            return f"sink {sink} failed: {why}"
    return None


def _of_outages(event: Event) -> str | None:
    """What fails in many runs."""
    match event:
        case OutageFound(finding=finding) | OutageEnded(finding=finding):
            return f"outage, {finding.message}"
        case RunHeld(finding=finding):
            return f"waiting for {finding.what}, which fails in {finding.runs} runs: {finding.error}"
        case RunReleased(what=what, why=why, after_s=after_s):
            return f"waited {after_s:.0f} s for {what}: {why.replace('_', ' ')}"
        case OutagesLost(detail=detail):
            return f"{detail}; going on without waiting for outages"
    return None


def _of_context(event: Event) -> str | None:  # noqa: PLR0911 - one case for each event
    """The window, the history and compactions."""
    match event:
        case WindowWarning(detail=detail):
            return detail
        case ContextFull(detail=detail):
            return f"context full: {detail}"
        case ContextNearlyFull(tokens=tokens, limit_tokens=limit):
            return f"context nearly full: {tokens:,} tokens; it is compacted at {limit:,}"
        case HistoryReduced(kind=kind, saved_tokens=saved, messages=messages):
            return f"history reduced: {kind} in {messages} messages, {saved:,} tokens less"
        case CompactionStarted(reason=why, tokens=tokens, background=background, refill=refill):
            how = "beside the run" if background else "the run waits"
            return (
                f"compaction begins ({why.value}) at {tokens:,} tokens,"
                f" {how}{f'; filled again by {refill}' if refill else ''}"
            )
        case CompactionProgressed(done_messages=done, of_messages=total):
            return f"compaction: {done} of {total} messages are in the summary"
        case CompactionFinished(
            tokens_before=before, tokens_after=after, kept_messages=kept, summarised_by=by, warnings=warnings
        ):
            sizes = f"{before:,} -> {after:,} tokens"
            return f"compacted by {by}: {sizes}, {kept} messages kept{''.join(f'; {warning}' for warning in warnings)}"
        case CompactionSkipped(why=failure, detail=detail):
            return f"no compaction ({failure.value}): {detail}"
        case CompactionFailed(failure=failure, detail=detail):
            return f"compaction failed ({failure.value}): {detail}"
        case HistoryRepaired(repairs=repairs, problems=problems):
            told = [f"{kind.value} {number}" for kind, number in Counter(repair.kind for repair in repairs).items()]
            left = [f"it may be refused: {problem}" for problem in problems]
            return f"history repaired: {'; '.join([', '.join(told) or 'nothing', *left])}"
    return None


def _chunk(chunk: Chunk) -> str:
    match chunk:
        case TextDelta(text=text) | ReasoningDelta(text=text) | ToolCallDelta(arguments_text=text):
            return f"{type(chunk).__name__} {_json(text)}"
        case ToolCall():
            return f"ToolCall {call_in_words(chunk)}"
    return type(chunk).__name__


def _json(value: object) -> str:
    return json.dumps(to_plain(value), ensure_ascii=False)

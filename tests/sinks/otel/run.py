"""The events of one run that has everything that a span or an event is made of."""

from __future__ import annotations

from typing import Any

from monitor import events
from monitor.chunks import AskCost, ToolCall, ToolResult, Usage
from monitor.errors import CompactionReason, FinishReason, TerminateReason
from monitor.messages import ApprovalAnswer, ApprovalRequest, CallRecord
from monitor.outcome import Outcome, Turn
from monitor.verdicts import Detection, Evidence, Judgement, Stop


def outcome(reason: TerminateReason = TerminateReason.GOAL, **more: Any) -> Outcome:
    ok = reason in {TerminateReason.GOAL, TerminateReason.STREAM_ENDED}
    return Outcome(ok=ok, reason=reason, detail=reason.value, source="s", **more)


DETECTION = Detection(
    "content_repetition", "chant", "text", "loop", 12, 10, 0, 60, Evidence("secret chant", "ab" * 8, 35), "it repeats"
)
STARTED = events.RunStarted(0.0, ("content_repetition",), "max_turns")
CALL = ToolCall("c1", "search", {"q": "sk-abcdefghijklmnopqrstuvwxyz"})
USAGE = Usage(100, 20, 5, 40, 120)


def whole_run() -> list[events.Event]:
    """Everything that a span or an event is made of."""
    record = CallRecord(run="run-1", call_id="c1", tool="search", arguments={}, key="k", turn=1)
    request = ApprovalRequest(
        id="q1", run="run-1", call_id="c1", tool="search", arguments={}, schema_hash="s", bound_to="b", why="a rule"
    )
    judgement = Judgement("it goes in circles", 0.95, found=True, judged_by="openai:judge-1")
    stop = Stop(TerminateReason.LOOP_DETECTED, "it repeats", "content_repetition", 10, 12)
    return [
        STARTED,
        events.TurnStarted(1.0, 1, 1),
        events.FirstChunk(1.5, 1, 0.5),
        events.TurnEnded(
            2.0,
            Turn(number=1, text="I search.", tool_calls=(CALL,), usage=USAGE, finish_reason=FinishReason.DONE),
        ),
        events.ToolStarted(2.0, 1, CALL),
        events.ToolCallChanged(2.0, 1, record),
        events.ApprovalRequested(2.1, 1, request),
        events.ApprovalAnswered(4.1, 1, ApprovalAnswer(id="q1", decision="approved", by="Ada")),
        events.ToolFinished(5.0, 1, ToolResult("c1", "search", "found", is_error=False), 3.0),
        events.Nudged(5.0, 1, "try something else"),
        events.JudgeAsked(5.0, 1, "loop_judge"),
        events.CompactionStarted(
            at_s=5.0,
            turn=1,
            compaction=1,
            reason=CompactionReason.HIGH_WATER,
            preset="default",
            tokens=900,
            background=False,
        ),
        events.CompactionFinished(
            at_s=6.0,
            turn=1,
            compaction=1,
            reason=CompactionReason.HIGH_WATER,
            tokens_before=900,
            tokens_after=300,
            estimator="reported",
            kept_messages=2,
            kept_tokens=100,
            summarised_by="openai:small",
            cost=AskCost(Usage(50, 10, 0, 0, 60)),
            reread_tokens=0,
            replayed=None,
            after_s=1.0,
        ),
        events.JudgeAnswered(at_s=6.5, turn=1, judge="loop_judge", fact="loop", judgement=judgement),
        events.TurnStarted(7.0, 2, 2),
        events.DetectionRaised(8.0, 2, DETECTION),
        events.StopDecided(8.0, stop),
        events.StreamClosed(at_s=8.1, turn=2, closed=True, after_s=0.1, chunks_dropped=3),
        events.TurnEnded(
            8.1, Turn(number=2, text="again again", usage=USAGE, usage_estimated=True, stopped=stop, loop_offset=0)
        ),
        events.RunTerminated(
            8.2,
            outcome(
                TerminateReason.LOOP_DETECTED,
                usage=USAGE + USAGE,
                usage_estimated=True,
                turns=2,
                elapsed_s=8.2,
                limit=10,
                value=12,
                chunks_after_decision=3,
            ),
        ),
    ]

"""What happens at one moment of a run, as a name and attributes.

The values of an attribute are few: a repeated text is its hash and length, never the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from monitor import events
from monitor.verdicts import FleetFinding


@dataclass(slots=True, frozen=True)
class Note:
    """A moment of a run. `guardrail`: the monitor has found or done something."""

    name: str
    attributes: dict[str, Any]
    guardrail: bool = False


def _detection(event: events.DetectionRaised) -> Note:
    found = event.detection
    return Note(
        "monitor.detection",
        {
            "monitor.turn": event.turn,
            "monitor.detector": found.detector,
            "monitor.kind": found.kind,
            "monitor.channel": found.channel,
            "monitor.level": found.level,
            "monitor.count": found.count,
            "monitor.threshold": found.threshold,
            "monitor.evidence.hash": found.evidence.xxhash,
            "monitor.evidence.length": found.evidence.length,
        },
        guardrail=True,
    )


def _stop(event: events.StopDecided) -> Note:
    stop = event.stop
    return Note("monitor.stop", {"monitor.reason": stop.reason.value, "monitor.source": stop.source}, guardrail=True)


def _limit(event: events.LimitWarning) -> Note:
    given = {"monitor.source": event.source, "monitor.value": event.value, "monitor.limit": event.limit}
    return Note("monitor.limit_warning", given, guardrail=True)


def _of_outage(name: str, found: FleetFinding) -> Note:
    given = {"monitor.outage": found.outage, "monitor.runs": found.runs, "monitor.failures": found.failures}
    return Note(name, given, guardrail=True)


def _approval_asked(event: events.ApprovalRequested) -> Note:
    asked = event.request
    return Note("monitor.approval", {"monitor.approval": "asked", "monitor.approval.tool": asked.tool}, guardrail=True)


def _approval_answered(event: events.ApprovalAnswered) -> Note:
    return Note("monitor.approval", {"monitor.approval": event.answer.decision}, guardrail=True)


def _repaired(event: events.HistoryRepaired) -> Note:
    kinds = sorted({repair.kind.value for repair in event.repairs})
    return Note("monitor.history_repaired", {"monitor.turn": event.turn, "monitor.repairs": kinds})


def _reduced(event: events.HistoryReduced) -> Note:
    given = {"monitor.turn": event.turn, "monitor.kind": event.kind, "monitor.saved_tokens": event.saved_tokens}
    return Note("monitor.history_reduced", given)


def _skipped(event: events.CompactionSkipped) -> Note:
    given = {"monitor.compaction.reason": event.reason.value, "monitor.compaction.status": event.why.value}
    return Note("monitor.compaction_skipped", given)


def _failed(event: events.StreamFailed) -> Note:
    return Note("monitor.stream_failed", {"monitor.turn": event.turn, "error.type": event.error.kind.value})


NOTES: Final[Mapping[type, Callable[[Any], Note]]] = {
    events.DetectionRaised: _detection,
    events.StopDecided: _stop,
    events.LimitWarning: _limit,
    events.ApprovalRequested: _approval_asked,
    events.ApprovalAnswered: _approval_answered,
    events.HistoryRepaired: _repaired,
    events.HistoryReduced: _reduced,
    events.CompactionSkipped: _skipped,
    events.StreamFailed: _failed,
    events.Nudged: lambda event: Note("monitor.nudge", {"monitor.turn": event.turn}, guardrail=True),
    events.ToolWithdrawn: lambda event: Note(
        "monitor.tool_withdrawn", {"monitor.turn": event.turn, "monitor.tool": event.tool}, guardrail=True
    ),
    events.LastTurnStarted: lambda event: Note(
        "monitor.last_turn", {"monitor.reason": event.reason.value}, guardrail=True
    ),
    events.AbortRequested: lambda _: Note("monitor.abort", {}, guardrail=True),
    events.AttemptRetried: lambda event: Note("monitor.attempt_retried", {"monitor.turn": event.turn}),
    events.StreamContinued: lambda event: Note(
        "monitor.stream_continued", {"monitor.turn": event.turn, "monitor.model_call": event.model_call}
    ),
    events.WindowWarning: lambda event: Note("monitor.window_warning", {"monitor.tokens": event.tokens or 0}),
    events.BudgetLost: lambda event: Note(
        "monitor.budget_lost", {"monitor.budget": event.budget, "monitor.goes_on": event.goes_on}, guardrail=True
    ),
    events.OutageFound: lambda event: _of_outage("monitor.outage_found", event.finding),
    events.OutageEnded: lambda event: _of_outage("monitor.outage_ended", event.finding),
    events.RunHeld: lambda event: _of_outage("monitor.run_held", event.finding),
    events.RunReleased: lambda event: Note(
        "monitor.run_released",
        {"monitor.outage": event.outage, "monitor.why": event.why, "monitor.after_s": event.after_s},
        guardrail=True,
    ),
    events.OutagesLost: lambda _: Note("monitor.outages_lost", {}, guardrail=True),
    events.ContextNearlyFull: lambda event: Note(
        "monitor.context_nearly_full", {"monitor.tokens": event.tokens, "monitor.limit": event.limit_tokens}
    ),
    events.ContextFull: lambda event: Note(
        "monitor.context_full", {"monitor.tokens": event.tokens, "monitor.limit": event.usable_tokens}
    ),
    events.OutputEmitted: lambda event: Note("monitor.output", {"monitor.output": event.name}),
    events.SinkFailed: lambda event: Note("monitor.sink_failed", {"monitor.sink": event.sink}),
}
"""Events without a note: those that are spans, and those of a tool's own output."""

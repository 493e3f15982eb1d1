"""The past of a run whose process ended, read from its events. A run that goes on begins with it.
So its limits, its budgets and its detectors are as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from monitor.chunks import NO_COST, AskCost, Usage
from monitor.core.counters import Counters
from monitor.core.ending import SteerQueue, end_of
from monitor.errors import PASSING_REASONS, TerminateReason
from monitor.events import (
    AttemptRetried,
    CompactionFailed,
    CompactionFinished,
    DetectionRaised,
    Event,
    JudgeAnswered,
    JudgeAsked,
    JudgeFailed,
    LastTurnStarted,
    Nudged,
    OutputEmitted,
    Paused,
    Resumed,
    RunTerminated,
    SteerAccepted,
    SteerDelivered,
    SteerReturned,
    StopDecided,
    StreamContinued,
    ToolFinished,
    ToolWithdrawn,
    TurnEnded,
    TurnStarted,
)
from monitor.outcome import Turn
from monitor.verdicts import Stop

SEEN_AGAIN: Final = 200
"""The detectors are shown this many of the newest turns again. No default detector looks further
back.
"""
SEEN_EVENTS: Final = (
    AttemptRetried,
    DetectionRaised,
    JudgeAnswered,
    JudgeAsked,
    JudgeFailed,
    LastTurnStarted,
    Nudged,
    RunTerminated,
    SteerDelivered,
    ToolFinished,
    ToolWithdrawn,
    TurnEnded,
    TurnStarted,
)
"""Events that the detectors, the policy and the schedules of the judges follow again."""
_LEAVES: Final = frozenset(
    {
        *PASSING_REASONS,
        TerminateReason.PAUSED,
        TerminateReason.WORKER_STOPPING,
        TerminateReason.CANCELLED,
        TerminateReason.CLOSED_BY_CALLER,
        TerminateReason.ERROR,
    }
)
"""Reasons for which a process has left its run. They decide nothing for the next one."""


@dataclass(slots=True, kw_only=True)
class ResumedRun:
    """The numbers of a run so far, and what its detectors and its policy have to see again."""

    elapsed_s: float = 0.0
    """Up to the last event, without the time in which no process had the run."""
    counters: Counters = field(default_factory=Counters)
    requests: tuple[Usage, ...] = ()
    """The tokens of each of the run's own model calls."""
    estimated: bool = False
    judge_costs: tuple[tuple[str, AskCost], ...] = ()
    """For each answer of a judge, the judge's name and the cost."""
    compaction_cost: AskCost = NO_COST
    nested: Sequence[tuple[Usage, float | None]] = ()
    """For each nested run that has ended, what it used, and its cost in US dollars. `None`: the
    cost is not known.
    """
    nudges: int = 0
    """The number of times that the model was asked for the rest of its goal."""
    withdrawn: tuple[str, ...] = ()
    """Tools that the model may not call any more."""
    seen: Sequence[Event] = ()
    turn: Turn | None = None
    """The newest turn, or the newest attempt at one."""
    undecided: bool = False
    """Nothing that follows from this turn is on record: the process ended before."""
    stop: Stop | None = None
    """Why the run ends, if that was decided before its process ended."""
    last_turn: LastTurnStarted | None = None
    """The run has one more turn instead of its end."""
    last_turn_cause: Stop | None = None
    """The end that the last turn delays. `None`: a detection was behind it."""
    last_turn_due_s: float = 0.0
    """The time limit of the last turn, in seconds of the run without its pauses."""
    steers: SteerQueue = field(default_factory=SteerQueue)
    """The messages to the run: what has become of each."""
    answered: frozenset[str] = frozenset()
    """The ids of its calls that were made to their end."""


def resumed_run(events: Sequence[Event]) -> ResumedRun:
    """The past of a run, from its events in their order."""
    past = ResumedRun()
    for event in events:
        past.elapsed_s = max(past.elapsed_s, event.at_s)
        _hear(past.steers, event)
        _count(past, event)
        _follow(past, event)
    if past.counters.pauses.running:
        past.counters.pauses.end(past.elapsed_s)
    warned = {event.turn for event in events if isinstance(event, DetectionRaised)}
    past.nudges = sum(isinstance(event, Nudged) and event.turn not in warned for event in events)
    past.seen = _newest([event for event in events if isinstance(event, SEEN_EVENTS)], past.counters.turns)
    return past


def _count(past: ResumedRun, event: Event) -> None:
    counters = past.counters
    match event:
        case TurnStarted():
            counters.turns, counters.model_calls = event.turn, event.model_call
            counters.errors.turn_started()
        case StreamContinued():
            counters.model_calls = event.model_call
        case TurnEnded(turn=turn):
            past.requests += (turn.usage,)
            past.estimated |= turn.usage_estimated
            if end_of(turn).void:
                counters.errors.add(is_error=True)
            else:
                counters.tool_calls += len(turn.tool_calls)
        case ToolFinished(result=result):
            counters.tool_answered(result.name)
            if not result.vetoed:
                counters.errors.add(is_error=result.is_error)
        case OutputEmitted():
            counters.errors.add(is_error=False)
        case JudgeAnswered() | JudgeFailed():
            past.judge_costs += ((event.judge, event.cost),)
        case CompactionFinished() | CompactionFailed():
            past.compaction_cost += event.cost
        case Paused():
            counters.pauses.begin(event.at_s)
        case Resumed() if counters.pauses.running:
            counters.pauses.end(event.at_s)
        case ToolWithdrawn():
            past.withdrawn += (event.tool,)
        case _:
            pass


def _hear(steers: SteerQueue, event: Event) -> None:
    match event:
        case SteerAccepted(message=message):
            steers.accept(message)
        case SteerDelivered(message=message):
            steers.leave((message,), "delivered")
        case SteerReturned(message=message):
            steers.leave((message,), "returned")
        case _:
            pass


def _follow(past: ResumedRun, event: Event) -> None:
    """Note what the newest turn was, and what was decided since."""
    match event:
        case TurnStarted():
            past.undecided, past.stop = False, None
        case TurnEnded(turn=turn):
            past.turn, past.answered, past.undecided = turn, frozenset(), True
        case ToolFinished(result=result) if not result.vetoed:
            past.answered |= {result.id}
        case ToolWithdrawn() | Nudged() | SteerDelivered():
            past.undecided = False
        case StopDecided(stop=stop):
            past.stop = stop if stop.reason not in _LEAVES else None
        case LastTurnStarted():
            past.last_turn, past.last_turn_cause = event, past.stop
            past.last_turn_due_s = event.at_s - past.counters.pauses.total_s(event.at_s) + event.seconds
            past.undecided, past.stop = False, None
        case RunTerminated(outcome=outcome):
            past.undecided &= outcome.reason is not TerminateReason.WORKER_STOPPING
        case _:
            pass


def _newest(seen: Sequence[Event], turns: int) -> Sequence[Event]:
    """The part of `seen` that belongs to the newest turns."""
    first = turns - SEEN_AGAIN
    for at, event in enumerate(seen):
        if isinstance(event, TurnStarted) and event.turn > first:
            return seen[at:]
    return ()

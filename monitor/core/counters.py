"""The counters of a run, and their values at one moment, as a `RunState`."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Final

from monitor._util.part_options import frozen
from monitor.chunks import NO_COST, NO_USAGE, AskCost, Usage
from monitor.core.ending import SteerQueue, end_of
from monitor.core.limits import Spending
from monitor.core.turn import TurnTally
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
from monitor.goal.goal import Goal
from monitor.outcome import Phase, RunState, StateDraft, Turn
from monitor.verdicts import Stop


class Pauses:
    """The pauses of one run. Pauses nest; the run's time stands still while any is open."""

    __slots__ = ("_count", "_done_s", "_since")

    def __init__(self) -> None:
        self._count, self._since, self._done_s = 0, 0.0, 0.0

    @property
    def running(self) -> bool:
        """True while a pause of the run is open."""
        return self._count > 0

    def begin(self, now: float) -> bool:
        """Open a pause. True: it is the outermost one."""
        self._count += 1
        if self._count == 1:
            self._since = now
        return self._count == 1

    def end(self, now: float) -> float | None:
        """Close a pause. If it was the outermost, answers how long it lasted, in seconds; else
        `None`.
        """
        self._count -= 1
        if self._count:
            return None
        self._done_s += now - self._since
        return now - self._since

    def total_s(self, now: float) -> float:
        """The length of all pauses up to `now`, in seconds."""
        return self._done_s + (now - self._since if self.running else 0.0)


class ErrorStreak:
    """Counts the turns in a row that failed: the model call failed, or a tool did and none
    succeeded. Tools of one turn that fail together are one error.
    """

    __slots__ = ("_failed", "_succeeded", "count")

    def __init__(self) -> None:
        self.count = 0
        self._failed = self._succeeded = False

    def turn_started(self) -> None:
        """Another turn begins, or another attempt at one. If nothing failed in the turn before, the
        streak is over.
        """
        if not self._failed:
            self.count = 0
        self._failed = self._succeeded = False

    def add(self, *, is_error: bool) -> None:
        """A tool result, or a model call that failed."""
        if not is_error:
            self.count, self._failed, self._succeeded = 0, False, True
        elif not self._failed and not self._succeeded:
            self.count, self._failed = self.count + 1, True


class Counters:
    """The counters of one run. `RunCore` changes them in place."""

    __slots__ = (
        "began",
        "errors",
        "model_calls",
        "others_model_calls",
        "others_turns",
        "pauses",
        "phase",
        "results_inside",
        "retry_delay_s",
        "task_done",
        "tool_calls",
        "tools_called",
        "turns",
    )

    def __init__(self) -> None:
        self.began = 0.0
        """When the run began, in the harness's clock."""
        self.phase: Phase = "before_call"
        self.turns = 0
        self.model_calls = 0
        self.others_turns = self.others_model_calls = 0
        """Counts of other agents of the run that have ended. Own turns are numbered without
        them.
        """
        self.results_inside = 0
        self.tool_calls = 0
        self.tools_called: tuple[str, ...] = ()
        self.errors = ErrorStreak()
        self.pauses = Pauses()
        self.retry_delay_s = 0.0
        self.task_done: bool | None = None

    def copy(self) -> Counters:
        """Other counters with the same values."""
        copied = copy(self)
        copied.errors, copied.pauses = copy(self.errors), copy(self.pauses)
        return copied

    def at(self, now: float) -> float:
        """The number of seconds since the run began."""
        return now - self.began

    def tool_answered(self, name: str) -> None:
        """The tool `name` has answered."""
        if name not in self.tools_called:
            self.tools_called += (name,)

    def take_over(self, state: RunState) -> None:
        """Add the counts of another agent of the run, which has ended."""
        self.others_turns += state.turns
        self.others_model_calls += state.model_calls
        self.tool_calls += state.tool_calls
        for name in state.tools_called:
            self.tool_answered(name)

    def state(
        self,
        now: float,
        *,
        tally: TurnTally,
        spending: Spending,
        goal: Goal | None,
        void: bool,
        waiting_since: float | None,
    ) -> RunState:
        """The run at `now`. `tally`: of the present turn. `void`: the last stream was a failed
        attempt at that turn. `waiting_since`: when the pending read began; `None`: no read is
        pending.
        """
        streaming = self.phase == "streaming"
        usage, cost_usd = spending.total(tally.usage if streaming else NO_USAGE)
        outputs, plan = (goal.outputs, goal.plan) if goal is not None else (None, None)
        draft = StateDraft(
            elapsed_s=now - self.began,
            phase=self.phase,
            turns=self.turns - void + self.others_turns,
            model_calls=self.model_calls + self.others_model_calls,
            tool_calls=self.tool_calls,
            consecutive_errors=self.errors.count,
            usage=usage,
            usage_estimated=spending.estimated or (streaming and tally.usage_estimated),
            cost_usd=cost_usd,
            paused_s=self.pauses.total_s(now),
            paused=self.pauses.running,
            retry_delay_s=self.retry_delay_s,
            tools_called=self.tools_called,
            missing_outputs=tuple(outputs.missing) if outputs is not None else None,
            plan_done=plan.done if plan is not None else None,
            task_done=self.task_done,
            stream_started_s=tally.started_at - self.began if streaming else None,
            first_chunk_seen=streaming and tally.first_chunk_seen,
            waiting_since_s=waiting_since - self.began if streaming and waiting_since is not None else None,
        )
        return frozen(draft, RunState)


# --------------------------------------------------------------------------------------------------
# The past of a run whose process ended, read from its events. A run that goes on begins with it,
# so that its limits, its budgets and its detectors are as they were.

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

"""How a stream ended, whether a last turn replaces the end, and how the run ends: its one reason
and its outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from monitor._util.hashing import identity
from monitor._util.part_options import frozen
from monitor.core.counters import Spending
from monitor.core.turn import RunningTurn
from monitor.errors import FinishReason, TerminateReason
from monitor.events import StreamClosed
from monitor.goal.goal import Goal
from monitor.messages import ApprovalRequest, Message, SteerMessage, SteerState
from monitor.models import ModelError
from monitor.outcome import Outcome, OutcomeDraft, Turn, is_success
from monitor.policy import stop_for
from monitor.verdicts import Continue, Detection, LastTurn, Stop, Verdict
from monitor.wires.fields import PAUSED

_BAD_FINISH = {
    FinishReason.LENGTH: (TerminateReason.TRUNCATED, "the output limit cut the answer off"),
    FinishReason.MALFORMED: (TerminateReason.INVALID_STREAM, "the provider could not read what its model wrote"),
    FinishReason.BLOCKED: (TerminateReason.BLOCKED, "a filter of the provider refused the prompt or the answer"),
    FinishReason.INTERRUPTED: (TerminateReason.TRUNCATED, "the answer was ended before it was whole"),
    FinishReason.UNKNOWN: (
        TerminateReason.TRUNCATED,
        "the answer may not be whole: it ended with a finish reason that is not known",
    ),
}
_MAY_GO_ON = {FinishReason.LENGTH, FinishReason.INTERRUPTED, FinishReason.UNKNOWN}
"""The model may be asked to go on with such an answer."""


@dataclass(slots=True, frozen=True)
class StreamEnd:
    """How the last stream ended."""

    failure: Stop | None = None
    """Why the stream failed. `None`: it ended well."""
    error: BaseException | None = None
    """The exception behind `failure`."""
    void: bool = False
    """The attempt failed: the next stream is the same turn again, and this stream does not count.
    """
    left: bool = False
    """The caller left the stream before its end."""
    may_go_on: bool = False
    """The run cannot end here, but the model may be asked to go on: its output limit, or its loop,
    cut the answer off.
    """
    paused: bool = False
    """The service goes on with the answer once it gets it back: the model is not to be asked for
    it.
    """


SPOKEN_OVER = Stop(TerminateReason.CLOSED_BY_CALLER, "the stream was ended for a message to the run", "steer")
"""Why a stream was ended for a message. The run goes on."""
_GOOD_END = StreamEnd()
_SPOKEN_OVER = StreamEnd(SPOKEN_OVER, may_go_on=True)


def stream_end(
    running: RunningTurn,
    *,
    finished: bool,
    error: BaseException | None,
    model_error: ModelError | None,
    must_finish: bool,
) -> StreamEnd:
    """How the stream of a turn ended. `finished`: it ended by itself; else it failed, or was left:
    for a loop, for a message, or by the caller.
    """
    if model_error is not None:
        return failed(error, model_error)
    if running.spoken_over and running.cut is None:
        return _SPOKEN_OVER
    if running.cut is not None or not finished:
        return left(running.cut)
    return ended(running, must_finish=must_finish, blank=running.is_blank(must_finish=must_finish))


def failed(error: BaseException | None, model_error: ModelError) -> StreamEnd:
    """The end of a stream whose model call failed."""
    wait = f"; it asks to wait {model_error.retry_after_s:g} s" if model_error.retry_after_s is not None else ""
    said = model_error.code or model_error.status
    return StreamEnd(Stop(model_error.reason, model_error.message + wait, "provider", value=said), error, void=True)


def left(cut: Detection | None) -> StreamEnd:
    """The end of a stream that was left early: because of the loop `cut`, or by the caller."""
    if cut is not None:
        return StreamEnd(stop_for(cut), may_go_on=True)
    return StreamEnd(
        Stop(TerminateReason.CLOSED_BY_CALLER, "the caller left before the stream had ended", "caller"), left=True
    )


def ended(running: RunningTurn, *, must_finish: bool, blank: bool) -> StreamEnd:
    """The end of a stream that ended by itself. `must_finish`: it should have given a finish
    reason. `blank`: an answer was expected, and nothing in it is visible.
    """
    finish = running.finish
    if finish is None and must_finish:
        detail = "the stream stopped without a finish reason: the answer is not complete"
        return StreamEnd(Stop(TerminateReason.TRUNCATED, detail, "provider"), void=True)
    says_why = finish is not None and (must_finish or finish.finish_reason is not FinishReason.UNKNOWN)
    if finish is not None and says_why and finish.finish_reason in _BAD_FINISH:
        reason, detail = _BAD_FINISH[finish.finish_reason]
        return StreamEnd(
            Stop(reason, f"{detail} ({finish.raw_finish_reason or finish.finish_reason.value})", "provider"),
            void=finish.finish_reason is FinishReason.MALFORMED,
            may_go_on=finish.finish_reason in _MAY_GO_ON,
            paused=finish.raw_finish_reason in PAUSED and not blank,
        )
    if blank:
        what = "it thought, and said nothing" if running.reasoning_chars else "it said nothing"
        return StreamEnd(
            Stop(TerminateReason.INVALID_STREAM, f"the model's answer is empty: {what}", "provider"), void=True
        )
    return _GOOD_END


def end_of(turn: Turn) -> StreamEnd:
    """How the stream of a stored turn ended."""
    stop = turn.stopped
    if turn.model_error is not None:
        return failed(turn.error, turn.model_error)
    if stop is None:
        return _GOOD_END
    if stop.reason is TerminateReason.LOOP_DETECTED:
        return StreamEnd(stop, may_go_on=True)
    if stop == SPOKEN_OVER:
        return _SPOKEN_OVER
    if stop.source != "provider":  # the run was stopped in the middle of it
        return left(None)
    may_go_on = turn.finish_reason in _MAY_GO_ON
    void = stop.reason in {TerminateReason.TRUNCATED, TerminateReason.INVALID_STREAM} and not may_go_on
    return StreamEnd(
        stop, turn.error, void=void, may_go_on=may_go_on, paused=may_go_on and turn.raw_finish_reason in PAUSED
    )


def outcome_of(
    stop: Stop,
    *,
    error: BaseException | None,
    turn: Turn | None,
    turns: int,
    elapsed_s: float,
    goal: Goal | None,
    spending: Spending,
    recovered_from: Stop | None,
    closing: StreamClosed | None,
    pending: tuple[ApprovalRequest, ...] = (),
    returned: tuple[SteerMessage, ...] = (),
    history: tuple[Message, ...] = (),
) -> Outcome:
    """The outcome of a run that ends by `stop`. `turn`: its last one. `recovered_from`: the end
    that a last turn replaced.
    """
    ok = is_success(stop)
    usage, cost_usd = spending.total()
    result = goal.result() if goal is not None else {}
    draft = OutcomeDraft(
        ok=ok,
        reason=stop.reason,
        detail=stop.detail,
        source=stop.source,
        limit=stop.limit,
        value=stop.value,
        evidence=stop.evidence,
        output=result.get("output"),
        emitted=result.get("emitted", {}),
        missing=result.get("missing", []),
        text=turn.text if turn else "",
        text_truncated=turn is not None and turn.text_truncated,
        usage=usage,
        usage_estimated=spending.estimated,
        cost_usd=cost_usd,
        judge_usage=spending.judges.usage,
        judge_usage_estimated=spending.judges.estimated,
        compaction_usage=spending.compactions.usage,
        turns=turns,
        elapsed_s=elapsed_s,
        recovered_from=recovered_from.reason if recovered_from is not None and ok else None,
        closed=closing.closed if closing else True,
        chunks_after_decision=closing.chunks_dropped if closing else 0,
        closed_after_s=closing.after_s if closing else None,
        pending=pending,
        returned=returned,
        history=history,
        error=None if ok else error,
    )
    return frozen(draft, Outcome)


# --------------------------------------------------------------------------------------------------
# The messages of people and programs to one run: which of them wait, and whose turn it is.


@dataclass(slots=True)
class SteerQueue:
    """The messages to one run, and the state of each.

    - Every `steer` that waits enters the history before the next model call, in the order of their
      acceptance. A `follow_up` waits until the run would end; then the oldest one enters.
    - A run that would end by its goal goes on while messages wait. A limit, a loop, an error or an
      abort ends it all the same, and they are returned.
    - A person's word is progress, unless the person has said the same before.
    """

    waiting: tuple[SteerMessage, ...] = ()
    """The messages that wait, in the order of their acceptance."""
    states: dict[str, SteerState] = field(default_factory=dict)
    """The state of each message that was accepted, by its id."""
    said: set[str] = field(default_factory=set)
    """The hashes of what people have said."""
    run_would_end: bool = False
    """The goal is reached, and the run goes on only for the messages that wait."""

    def accept(self, message: SteerMessage) -> bool:
        """Let `message` wait. False: its id is known."""
        if message.id in self.states:
            return False
        self.states[message.id] = "accepted"
        self.waiting += (message,)
        return True

    def due(self) -> tuple[SteerMessage, ...]:
        """The messages that enter the history now. They wait no longer."""
        due = tuple(one for one in self.waiting if one.kind == "steer")
        if not due and self.run_would_end:
            due = self.waiting[:1]
        if due:
            self.run_would_end = False
            self.leave(due, "delivered")
        return due

    def give_back(self) -> tuple[SteerMessage, ...]:
        """The messages that the end of the run returns to their senders."""
        left = self.waiting
        self.leave(left, "returned")
        return left

    def is_progress(self, message: SteerMessage) -> bool:
        """Whether a delivered message is a person's, and says what none before has said."""
        hashed = identity(" ".join(message.text.split()))
        if message.data or hashed in self.said:
            return False
        self.said.add(hashed)
        return True

    def leave(self, messages: Sequence[SteerMessage], state: SteerState) -> None:
        """The messages do not wait any more."""
        ids = {one.id for one in messages}
        self.waiting = tuple(one for one in self.waiting if one.id not in ids)
        self.states |= dict.fromkeys(ids, state)

    def copy(self) -> SteerQueue:
        """Another queue in the same state."""
        return replace(self, states=dict(self.states), said=set(self.said))


# --------------------------------------------------------------------------------------------------
# The goal of one run: whether the run ends by it, and the last turn before it ends without it.

_OWN_WORD = frozenset(
    {
        TerminateReason.GOAL,
        TerminateReason.ABORTED,
        TerminateReason.CANCELLED,
        TerminateReason.CLOSED_BY_CALLER,
        TerminateReason.ERROR,
    }
)
"""Reasons of a last turn that become the reason of the run. After any other, and after a failed
model call, the run ends for the reason it had before its last turn.
"""


class RunGoal:
    """The goal of one run. `rule`: which endings get a last turn. `None`: no ending does."""

    __slots__ = ("_rule", "cause", "goal", "reached")

    def __init__(self, rule: LastTurn | None, goal: Goal | None) -> None:
        self._rule = rule
        self.goal = goal
        self.reached: str | None = None
        """What the caller says that was reached. `None`: nothing."""
        self.cause: Stop | None = None
        """The reason of the run if its last turn does not reach the goal. `None`: it is not in its
        last turn.
        """

    def instead_of(self, stop: Stop) -> LastTurn | None:
        """The last turn that the run gets before it ends by `stop`. `None`: none, because it had
        one or the rule gives none for this reason.
        """
        rule, goal = self._rule, self.goal
        if rule is None or goal is None or self.cause is not None or stop.reason not in rule.after:
            return None
        return replace(rule, text=goal.last_words(stop))

    def by_policy(self, verdict: LastTurn, loop: Stop) -> LastTurn | Stop:
        """A policy's last turn, with the time that the run's own rule gives. Without a rule the run
        gets no last turn: `loop`.
        """
        if self._rule is None:
            return loop
        ways_out = [self.goal.how_to_end()] if self.goal is not None and not verdict.tools else []
        return replace(verdict, text=" ".join([verdict.text, *ways_out]), seconds=self._rule.seconds)

    def judged(self, verdict: Verdict, cause: Stop) -> Stop:
        """How the run ends after its last turn: by the goal if `verdict` says that it was reached,
        else by `cause`, the end that the last turn delayed.
        """
        if isinstance(verdict, Stop):
            if verdict.reason is TerminateReason.TERMINATED and verdict.value == "success":
                return replace(verdict, reason=TerminateReason.GOAL)
            if verdict.reason is TerminateReason.GOAL:
                return verdict
        return cause

    def instead_of_limit(self, stop: Stop) -> Stop | None:
        """The end of a run whose goal was reached in the turn that exceeded the limit `stop`.
        `None`: the run ends by `stop`.
        """
        reached = self.goal.reached() if self.goal is not None and stop.reason in LIMITS else None
        if reached is None:
            return None
        self.cause = self.cause or stop
        return self.judged(reached, self.cause)

    def verdict_on(self, turn: Turn, last: StreamEnd, cut: Detection | None, steers: SteerQueue | None) -> Verdict:
        """The verdict after a turn whose stream ended as `last`, or was left for the loop `cut`.
        Where messages wait in `steers`, a goal that is reached does not end the run.
        """
        goal = self.goal
        if goal is None:
            return Continue()
        verdict: Verdict = goal.reached() or Continue()
        stopped_well = cut is None and (last.failure is None or last.may_go_on) and not last.paused
        if isinstance(verdict, Continue) and not turn.tool_calls and stopped_well:
            verdict = goal.stopped_calling(cut_off=last.failure)
        if self.cause is not None:
            return self.judged(verdict, self.cause)
        if isinstance(verdict, Stop) and steers is not None and steers.waiting:
            steers.run_would_end = True
            goal.go_on()
            return Continue()
        return verdict

    def ending(self, stop: Stop | None, last: StreamEnd | None) -> Stop:
        """The end of a run that `stop` would end. `None`: nothing has ended it. `last`: how its
        last stream ended.
        """
        stop = stop or undecided_end(last, self.reached, goal=self.goal)
        hidden = stop.reason not in _OWN_WORD or (last is not None and stop is last.failure)
        return self.cause if self.cause is not None and hidden else stop


LIMITS = frozenset(
    {
        TerminateReason.MAX_TURNS,
        TerminateReason.TIMEOUT,
        TerminateReason.IDLE_TIMEOUT,
        TerminateReason.MODEL_CALL_LIMIT,
        TerminateReason.TOOL_CALL_LIMIT,
        TerminateReason.TOKEN_LIMIT,
        TerminateReason.COST_LIMIT,
        TerminateReason.BUDGET_UNREACHABLE,
        TerminateReason.BUDGET_BUSY,
    }
)
"""Limits. Outputs that the model has emitted in the turn that exceeds one still count."""


def undecided_end(last: StreamEnd | None, reached: str | None, *, goal: Goal | None) -> Stop:
    """The reason of a run that nothing has ended: it follows from its last stream, or from the
    caller who left.

    `reached`: the caller says that this was reached. It does not turn a failed last stream, or
    missing outputs, into a success.
    """
    if last is not None and not last.left and last.failure is not None:
        return last.failure
    missing = ", ".join(goal.result().get("missing", ())) if goal is not None else ""
    if missing and (reached is not None or (last is not None and not last.left)):
        return Stop(TerminateReason.MISSING_OUTPUTS, f"the run ended without {missing}", "outputs", value=missing)
    if reached is not None:
        return Stop(TerminateReason.GOAL, reached, "caller")
    if last is None or last.left:
        where = "before any stream was read" if last is None else "before the stream had ended"
        return Stop(TerminateReason.CLOSED_BY_CALLER, f"the caller left {where}", "caller")
    return Stop(TerminateReason.STREAM_ENDED, "the stream came to its end", "provider")

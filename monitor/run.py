"""RunCore: one run, decided without I/O.

Facts go in (chunks, tool results, time as a number), decisions and events come out. It never reads a clock and never
awaits, so guard, supervisor, `scan` and a replay all run the same code and mean the same thing.

The rules of this file:

1. One ending. `stop` is set once; `terminate` answers once. When several things are true at the same look, the user's
   abort wins, then loops, then limits; over a limit wins a goal that is reached in the same turn.
2. Cheap per chunk. A delta costs a few integer operations and the detectors' own work; a `RunState` is built only at
   transitions, and `deadline` says when the next look is due.
3. A stream may be over before the run is: `ends_stream` is set with `stop`, and where a policy that nudges met text that loops.
4. `deadline` is a lower bound in the harness's clock: before it, no condition can have become true by time alone. After
   it, `must_stop(now)` looks for real and either ends the run or moves `deadline` on. An abort sets it to minus infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from monitor.assignment import Assignment
from monitor.bank import DetectorBank, DetectorCrash
from monitor.budget import Budget
from monitor.chunks import Chunk, ReasoningDelta, StreamRetried, TextDelta, ToolCall, ToolCallDelta, ToolResult, TurnFinished, UsageReport
from monitor.chunks import check as check_chunk
from monitor.conditions.base import Condition
from monitor.conditions.deadlines import Timeout
from monitor.context.window import TOO_SMALL_TOKENS, Window
from monitor.detectors.base import Detector
from monitor.errors import AdapterError, describe
from monitor.events import (
    AbortRequested,
    AttemptRetried,
    DetectionRaised,
    Event,
    FirstChunk,
    JudgeAnswered,
    JudgeAsked,
    JudgeFailed,
    LastTurnStarted,
    OutputEmitted,
    Paused,
    PlanUpdated,
    ResultUnmatched,
    Resumed,
    RunStarted,
    RunTerminated,
    StopDecided,
    StreamClosed,
    StreamContinued,
    StreamFailed,
    TurnEnded,
    TurnStarted,
    WindowWarning,
)
from monitor.judging import Judge, JudgeCost, JudgeInput, Judgement
from monitor.models import ModelError
from monitor.outcome import Outcome, Turn, succeeded
from monitor.panel import Panel, detection_of
from monitor.pauses import Pauses
from monitor.policy import Policy, TurnPolicy, stop_for
from monitor.prices import Price
from monitor.reasons import REPETITION_WORDS, FinishReason, TerminateReason
from monitor.reply import LoopedText, Part, Reply, loop_start
from monitor.schedule import Schedule
from monitor.spending import NOTHING, Spending
from monitor.state import Phase, RunState, Usage
from monitor.stream_end import StreamEnd, failed, left
from monitor.stream_end import finished as ended
from monitor.tally import ErrorStreak, TurnTally, keep_limit
from monitor.verdicts import VETO, Channel, Compact, Continue, Detection, LastTurn, Nudge, Stop, Verdict, WithdrawTool
from monitor.warner import Warner

T = TypeVar("T")

HOLD_CHARS = 256
"""Visible text is held back no longer than this, so that little is held: the pieces of a delta stream weigh ten times their text."""

PIECE_CHARS = 65_536
"""A longer text is shown to the detectors in pieces, so that one in which the run ends is not read to its end: a second a megabyte."""

_WRITTEN = ("text", "reasoning", "arguments")
"""Channels in which a loop goes on for as long as the stream does."""
_LIMITS = frozenset(
    {
        TerminateReason.MAX_TURNS,
        TerminateReason.TIMEOUT,
        TerminateReason.IDLE_TIMEOUT,
        TerminateReason.MODEL_CALL_LIMIT,
        TerminateReason.TOOL_CALL_LIMIT,
        TerminateReason.TOKEN_LIMIT,
        TerminateReason.COST_LIMIT,
    }
)
"""Endings that say nothing against what the model has handed over in the same turn."""
_OWN_WORD = frozenset(
    {
        TerminateReason.GOAL,
        TerminateReason.ABORTED,
        TerminateReason.CANCELLED,
        TerminateReason.CLOSED_BY_CALLER,
        TerminateReason.ERROR,
    }
)
"""Endings of a last turn that are the run's; after any other, and a failure of its model, the run ends as it would have without it."""


class RunCore:
    """The state of one run and every decision about it. `emit` receives the events, in order."""

    __slots__ = (
        "_abort_told",
        "_abort_why",
        "_assignment",
        "_bank",
        "_before",
        "_began",
        "_closing",
        "_condition",
        "_cut",
        "_cuts",
        "_decided_at",
        "_emit",
        "_errors",
        "_found",
        "_free_chars",
        "_goal",
        "_judge_cost",
        "_keep_chars",
        "_last",
        "_last_turn",
        "_loop",
        "_model_calls",
        "_offsets",
        "_outcome",
        "_panel",
        "_parent",
        "_pauses",
        "_phase",
        "_policy",
        "_recovering",
        "_reply",
        "_retry_delay_s",
        "_schedule",
        "_spending",
        "_stop_error",
        "_supervised",
        "_tally",
        "_task_done",
        "_told",
        "_tool_calls",
        "_tools_called",
        "_turn_policy",
        "_turns",
        "_unweighed",
        "_verdicts",
        "_warner",
        "_window",
        "deadline",
        "ends_stream",
        "open_calls",
        "replanned",
        "stop",
        "stopped",
        "turn",
        "turn_began",
        "waiting_since",
    )

    def __init__(  # noqa: PLR0915 - the state of a run is what it is
        self,
        *,
        stop_when: Condition | None = None,
        detectors: Sequence[Detector] = (),
        policy: Policy,
        emit: Callable[[Event], None],
        keep_text_chars: int | None = None,
        price: Price | None = None,
        budgets: Sequence[Budget] = (),
        assignment: Assignment | None = None,
        last_turn: LastTurn | None = None,
        cuts: bool = False,
        supervised: bool = False,
        parent: RunCore | None = None,
        judges: Sequence[Judge] = (),
        task: str | None = None,
        window: Window | None = None,
    ) -> None:
        """`cuts`: there is somebody to act on a verdict, so a stream in which text loops is left although the run goes on.
        `supervised`: the harness makes the model calls itself, so replies are put together, and an empty one is a failed attempt.
        `parent`: the run whose tool this one is. `task`: the user's request, for the judges. `window`: of the model that is asked.
        """
        self.deadline = math.inf
        """When to look again, in the harness's clock."""
        self.waiting_since = 0.0
        """When the pending read began, in the harness's clock; the harness sets it before every read."""
        self.stop: Stop | None = None
        """Why the run ends, once that is decided."""
        self.ends_stream = False
        """The running stream is to be left: the run ends, or the turn is cut."""
        self.turn: Turn | None = None
        """The last turn that ended."""
        self.open_calls: list[ToolCall] = []
        """Calls of the present turn that have no result yet, oldest first."""
        self.replanned: Callable[[], None] = _nothing
        """Called when `deadline` may have come closer; the harness moves its alarm."""
        self.turn_began: Callable[[], None] = _nothing
        """Called when a model call is about to be made; the harness asks the judges that are due."""
        self.stopped: Callable[[], None] = _nothing
        """Called when it is decided that the run ends; nobody waits for a judge any more."""

        self._condition = stop_when
        self._schedule = Schedule(stop_when, price=price, budgets=budgets, nested=parent is not None)
        self._warner = Warner()
        self._window = window
        self._bank = DetectorBank(detectors)
        self._policy = policy
        self._turn_policy = policy if isinstance(policy, TurnPolicy) else None
        self._emit = emit
        self._keep_chars = keep_limit(keep_text_chars)
        self._spending = Spending(price, budgets)
        self._assignment = assignment
        self._last_turn = last_turn
        self._cuts = cuts
        self._supervised = supervised
        self._parent = parent
        self._panel = Panel(judges, task)
        self._judge_cost = JudgeCost()

        self._began = 0.0
        self._phase: Phase = "before_call"
        self._turns = self._model_calls = self._tool_calls = 0
        self._tools_called: tuple[str, ...] = ()
        self._pauses = Pauses()
        self._retry_delay_s = 0.0
        self._task_done: bool | None = None
        self._errors = ErrorStreak()
        self._verdicts: list[Verdict] = []
        self._before: tuple[Mapping[str, Any] | None, int] | None = (
            None  # the policy, and how many verdicts, before the turn's first finding
        )
        self._goal: str | None = None
        self._abort_why: str | None = None
        self._abort_told = False
        self._last: StreamEnd | None = None
        self._unweighed: Turn | None = None  # the assignment has not seen it yet
        self._told = False  # somebody has been told by `check` how the last stream failed
        self._found: Stop | None = None  # the loop behind the policy's latest verdict
        self._recovering: Stop | None = None  # how the run ends if its last turn does not reach the goal
        self._stop_error: BaseException | None = None
        self._decided_at = 0.0
        self._closing: StreamClosed | None = None
        self._outcome: Outcome | None = None

        self._tally = TurnTally(number=0, keep_chars=self._keep_chars, started_at=0.0)
        self._free_chars = 0
        self._cut: Detection | None = None  # the loop that the running turn is cut for
        self._loop: Detection | None = None  # the loop in the running turn's text, whatever follows from it
        self._offsets: dict[Channel, int] = {"text": 0, "reasoning": 0}  # of the channels, where the running turn began
        self._reply = Reply(self._offsets)

    # ------------------------------------------------------------------ the run

    def begin(self, now: float) -> None:
        """The run starts; all times in events and reasons count from here."""
        self._began = now
        self._emit(RunStarted(0.0, self._bank.names, self._condition.name if self._condition else None))
        try:
            self._policy.reset()
            self._bank.reset()
        except DetectorCrash as crash:
            self.fail(crash.error, crash.name, now)
        except Exception as error:  # noqa: BLE001 - a policy may be the caller's code
            self.fail(error, type(self._policy).__name__, now)
        self._measure(now)

    def _measure(self, now: float) -> None:
        """A window in which no agent can work is refused before the first model call."""
        window = self._window
        if window is None or window.tokens is None or self.stop is not None:
            return
        if window.problem is not None:
            reason = TerminateReason.WINDOW_TOO_SMALL
            self._decide(Stop(reason, window.problem, "window", limit=TOO_SMALL_TOKENS, value=window.tokens), now)
        elif window.warning is not None:
            self._emit(WindowWarning(self.at(now), window.tokens, window.warning))

    def begin_turn(self, now: float) -> bool:
        """A stream is about to be opened. False: the run is over, do not open it."""
        self._phase = "before_call"
        self._look(now, waiting=False)
        if self.stop is not None:
            return False
        before, self._last = self._last, None
        retried = before.failure if before is not None and before.void else None
        self._told, self._closing = False, None
        self._cut = self._loop = None
        self.ends_stream = False
        if retried is not None:
            self._tool_calls -= len(self._tally.calls)
            self._unsay(now)
            self._find(self._bank.fact, StreamRetried(retried.reason.value), now)
            self._emit(AttemptRetried(self.at(now), self._turns, retried.detail))
        else:
            self._turns += 1
            self._before = None
            self._tell_policy(now)
        self._model_calls += 1
        self._errors.turn_started()
        self.open_calls.clear()
        self._phase = "streaming"
        self._tally = TurnTally(number=self._turns, keep_chars=self._keep_chars, started_at=now)
        self._reply = Reply(dict(self._offsets))
        self._emit(TurnStarted(self.at(now), self._turns, self._model_calls))
        self.waiting_since = now
        self._warn(self._look(now, waiting=True), now)
        if self.stop is None:
            self.turn_began()
        return True

    def begin_last_turn(self, last: LastTurn, now: float) -> None:
        """One more turn for a run that is about to end: conditions are off, but for the last turn's own time. Budgets and an abort
        still count.
        """
        cause = self.stop or self._found
        assert cause is not None  # noqa: S101 - `check` has answered with a LastTurn
        self._recovering = cause
        self.stop, self.ends_stream = None, False
        if self._last is not None:
            self._last = replace(self._last, may_go_on=True)  # it may have failed just before, and is not what this turn is judged by
        self._verdicts.clear()
        self._condition = Timeout(self.at(now) - self._pauses.total_s(now) + last.seconds)
        self._schedule = Schedule(self._condition, self._schedule.price, self._spending.budgets, nested=self._parent is not None)
        self.deadline = math.inf
        self._emit(LastTurnStarted(self.at(now), cause.reason, last.seconds))
        self._look(now, waiting=False)

    def first_chunk(self, now: float) -> None:
        """The stream delivered its first object."""
        self._tally.first_chunk_seen = True
        self._emit(FirstChunk(self.at(now), self._turns, now - self._tally.started_at))

    def continued(self, now: float) -> None:
        """The SDK has made another model call inside the running stream, by itself."""
        self._model_calls += 1
        self._emit(StreamContinued(self.at(now), self._turns, self._model_calls))
        self._look(now, waiting=False)

    def feed(self, chunk: Chunk, now: float) -> None:
        """The next chunk of the running stream. Raises `AdapterError` for what is none."""
        if isinstance(chunk, TextDelta):
            self.feed_text(chunk.text, now)
            return
        check_chunk(chunk)
        if isinstance(chunk, ReasoningDelta):
            if self._supervised:
                self._take_text(now)
                self._reply.add_reasoning(chunk)
            self._tally.reasoning_chars += len(chunk.text)
            self._find(self._bank.reasoning, chunk, now)
            self._spend(self._tally.count(chunk.text), now)
        elif isinstance(chunk, ToolCallDelta):
            self._find(self._bank.arguments, chunk, now)
            self._spend(self._tally.count_arguments(chunk), now)
        else:
            self._feed_fact(chunk, now)

    def feed_text(self, text: str, now: float) -> None:
        """The next piece of visible text: the same as a `TextDelta`, without the object."""
        if type(text) is not str and not isinstance(text, str):
            raise AdapterError(f"expected a piece of text, got {type(text).__name__}")
        self._tally.parts.append(text)
        self._free_chars -= len(text)
        if self._free_chars <= 0:
            self._take_text(now)

    def tool_result(self, call: str | None, text: str, now: float, *, is_error: bool = False) -> None:
        """A tool answered. `call`: the id; `None`: the oldest call of the turn that has no answer yet."""
        if self._outcome is not None:
            return  # a tool that was still running when the run ended
        known = next((c for c in self.open_calls if call is None or c.id == call), None)
        if known is not None:
            self.open_calls.remove(known)
            if known.name not in self._tools_called:
                self._tools_called += (known.name,)
            result = ToolResult(known.id, known.name, text, is_error)
            if not text.startswith(VETO):
                self._errors.add(is_error=is_error)
        else:
            self._emit(ResultUnmatched(self.at(now), call))
            result = ToolResult(call or "", "", text, is_error)
        self._panel.add_result(result)
        self._find(self._bank.fact, result, now)
        self._warn(self._look(now, waiting=False), now)

    def end_turn(
        self,
        now: float,
        *,
        finished: bool,
        must_finish: bool = False,
        error: BaseException | None = None,
        model_error: ModelError | None = None,
    ) -> Turn:
        """The stream is over.

        `finished`: it came to its own end; else somebody left it, or it failed with `error`, classed as `model_error`.
        `must_finish`: a stream of this kind closes with a finish reason, so one without it was truncated.
        """
        self._take_text(now)
        if self._abort_why is not None:
            self._look(now, waiting=False)
        if model_error is not None:
            self._emit(StreamFailed(self.at(now), self._turns, model_error))
        tally = self._tally
        if model_error is not None:
            last = failed(error, model_error)
        elif self._cut is not None or not finished:
            last = left(self._cut)
        else:
            last = ended(tally, must_finish=must_finish, blank=self._supervised and self._reply.blank)
        self._last = last
        if last.void:
            self._errors.add(is_error=True)
        self._spending.settle(tally.usage, estimated=tally.usage_estimated)
        loop_offset = loop_start(self._loop, self._offsets["text"]) if self._loop is not None and self._loop.channel == "text" else None
        self.turn = turn = tally.ended(stopped=self.stop or last.failure, error=error, model_error=model_error, loop_offset=loop_offset)
        self._phase = "after_call"
        self._emit(TurnEnded(self.at(now), turn))
        if not last.void:
            self._panel.add_turn(turn)
            self._unweighed = turn
            self._offsets["text"] += tally.text_chars
            self._offsets["reasoning"] += tally.reasoning_chars
            if tally.finish is None and self.stop is None:
                self._find(self._bank.fact, TurnFinished(FinishReason.DONE), now)  # a turn that was cut is over for the detectors as well
        return turn

    def source_closed(self, now: float, *, since: float, closed: bool, chunks_dropped: int, note: str | None) -> None:
        """The source had to be closed, and was (or not). `since`: when somebody began to close it."""
        since = self._decided_at if self.stop is not None else since
        self._closing = StreamClosed(self.at(now), self._turns, closed, now - since, chunks_dropped, note)
        self._emit(self._closing)

    def answer(self, call: ToolCall, now: float) -> ToolResult | None:
        """Carry out a call of one of the run's own tools, and take its result in; `None`: it is none of them."""
        assignment = self._assignment
        answer = assignment.answer(call) if assignment is not None else None
        if assignment is None or answer is None:
            return None
        if not answer.is_error:
            self._tell_of(assignment, call, now)
        self.tool_result(call.id, answer.text, now, is_error=answer.is_error)
        return ToolResult(call.id, call.name, answer.text, answer.is_error)

    def _tell_of(self, assignment: Assignment, call: ToolCall, now: float) -> None:
        if assignment.outputs is not None and call.name == assignment.outputs.spec.name and assignment.outputs.last is not None:
            emitted = assignment.outputs.last
            self._emit(OutputEmitted(self.at(now), self._turns, emitted.name, emitted.json, emitted.overwritten))
        elif assignment.plan is not None and call.name == assignment.plan.spec.name:
            self._emit(PlanUpdated(self.at(now), self._turns, assignment.plan.render()))

    @property
    def turns(self) -> int:
        """Turns started."""
        return self._turns

    @property
    def failed_attempt(self) -> Stop | None:
        """Why the last stream was no turn but a failed attempt at one; `None`: it was one, or the run ends anyway."""
        return self._last.failure if self._last is not None and self._last.void and self.stop is None else None

    @property
    def void(self) -> bool:
        """The last stream was a failed attempt: nothing of it counts, whatever the run goes on with."""
        return self._last is not None and self._last.void

    @property
    def takes_own_calls(self) -> bool:
        """The calls of the last turn that the run answers itself count: it is neither cut for a loop nor over for more than a limit."""
        return self._cut is None and self._abort_why is None and (self.stop is None or self.stop.reason in _LIMITS)

    def at(self, now: float) -> float:
        """Seconds since the run began."""
        return now - self._began

    def take_reply(self, looped: LoopedText = "trim") -> tuple[Part, ...]:
        """The parts of the last turn's message, fit for the history, once. Only where the run is supervised; none of a failed attempt."""
        parts = self._reply.parts(loop=self._loop, looped=looped)
        self._reply.restart()
        return () if self._last is None or self.void else parts

    def pause(self, now: float) -> None:
        """A person is being asked: deadlines stand still until `resume`, also those of the runs above. Pauses nest."""
        if self._parent is not None:
            self._parent.pause(now)
        if self._pauses.begin(now):
            self._emit(Paused(self.at(now)))
            self._look(now, waiting=False)

    def resume(self, now: float) -> None:
        """The person has answered."""
        if self._parent is not None:
            self._parent.resume(now)
        paused_s = self._pauses.end(now)
        if paused_s is not None:
            self._tally.started_at += paused_s
            self.waiting_since += paused_s
            self._emit(Resumed(self.at(now)))
            self._look(now, waiting=False)

    def will_retry(self, delay_s: float) -> None:
        """The next attempt at the failed turn begins in so many seconds."""
        self._retry_delay_s += delay_s

    def judges_due(self, now: float) -> list[tuple[Judge, JudgeInput]]:
        """Which judges the harness is to ask now, beside the stream, and what it tells them."""
        due = self._panel.due(self._turns) if self.stop is None and self._recovering is None else []
        for judge, told in due:
            self._emit(JudgeAsked(self.at(now), told.turn, judge.name))
        return due

    def judge_answer(self, judge: Judge, told: JudgeInput, judgement: Judgement, now: float, *, cost: JudgeCost) -> None:
        """A judge has answered; also in the middle of a stream. A last turn is not ended for what came before it."""
        if self._outcome is not None:
            return
        self._panel.answered(judge, judgement)
        self._emit(JudgeAnswered(self.at(now), told.turn, judge.name, judge.fact, judgement, cost))
        if judge.fact == "done":
            self._task_done = judgement.found
        elif judgement.found and self._recovering is None:
            self._take(detection_of(judge, told, judgement, self._turns), now)
        self._charge(judge, cost, now)

    def judge_failed(self, judge: Judge, told: JudgeInput, why: str, now: float, *, cost: JudgeCost) -> None:
        """A judge gave no answer. That is no reason to end a run."""
        if self._outcome is None:
            self._panel.failed(judge)
            self._emit(JudgeFailed(self.at(now), told.turn, judge.name, why, cost))
            self._charge(judge, cost, now)

    def _charge(self, judge: Judge, cost: JudgeCost, now: float) -> None:
        self._judge_cost += cost
        if judge.counts:
            self._spending.settle(cost.usage, estimated=cost.estimated)
        self._look(now, waiting=False)

    def check(self, now: float) -> Verdict:
        """Between turns: what to do now. A `Stop` that it tells stands, but a failed stream may still be tried again."""
        if self._outcome is not None:
            return self._ending(None)
        if self._phase != "streaming":
            self._phase = "before_call"
            self._weigh(now)
        self._look(now, waiting=False)
        if self.stop is not None:
            return self._last_chance() or self.stop
        last = self._last
        if last is not None and not last.left and last.failure is not None and not last.may_go_on:
            self._told = True
            return last.failure
        verdict = self._verdicts.pop(0) if self._verdicts else Continue()
        if isinstance(verdict, Nudge | WithdrawTool):
            self._panel.add_warning(self._turns, verdict.text)
        return self._last_by_policy(verdict, now) if self._supervised and isinstance(verdict, LastTurn) else verdict

    def abort(self, why: str) -> None:
        """The user wants the run to end. Only notes it, so that it may be called from any thread; the next look decides."""
        if self._abort_why is None:
            self._abort_why = why
        self.deadline = -math.inf

    def finish(self, detail: str) -> None:
        """The goal is reached. Does not change an end that is already decided."""
        self._goal = detail

    def fail(self, error: BaseException, source: str, now: float) -> None:
        """Something of ours or of the caller's crashed: the run cannot be watched any more, so it ends."""
        if self.stop is None:
            self._stop_error = error
        reason = TerminateReason.INVALID_STREAM if isinstance(error, AdapterError) else TerminateReason.ERROR
        self._decide(Stop(reason, f"{source} raised {describe(error)}", source), now)

    def leave(self, ending: Stop, error: BaseException | None, now: float) -> None:
        """The caller leaves, perhaps by `error`, while another task of theirs is still at work in the run."""
        if self.stop is None:
            self._stop_error = error
        self._decide(ending, now)

    def _weigh(self, now: float) -> None:
        """Has the turn that just ended got the run where it should be? A goal that is reached wins over a limit that is, too."""
        turn, self._unweighed = self._unweighed, None
        assignment, last = self._assignment, self._last
        if turn is None or last is None or assignment is None or self._abort_why is not None:
            return
        reached = assignment.reached()
        if self.stop is not None:
            if reached is not None and self.stop.reason in _LIMITS:
                self._recovering, self.stop = self._recovering or self.stop, None
                self._decide(self._recovered(reached), now)
            return
        verdict: Verdict = reached or Continue()
        if isinstance(verdict, Continue) and not turn.tool_calls and self._cut is None and (last.failure is None or last.may_go_on):
            verdict = assignment.stopped_calling(cut_off=last.failure)
        if self._recovering is not None:
            verdict = self._recovered(verdict)
        self._follow(verdict, now)

    def _recovered(self, verdict: Verdict) -> Stop:
        """The turn that was to be the last is over: the goal, or what was to be the end without it."""
        assert self._recovering is not None  # noqa: S101 - the caller has looked
        if isinstance(verdict, Stop) and verdict.reason is TerminateReason.TERMINATED and verdict.value == "success":
            return replace(verdict, reason=TerminateReason.GOAL)
        return verdict if isinstance(verdict, Stop) and verdict.reason is TerminateReason.GOAL else self._recovering

    def _last_chance(self) -> LastTurn | None:
        """A last turn instead of the end, once, where the rule has one for this end."""
        rule, stop = self._last_turn, self.stop
        if rule is None or stop is None or self._assignment is None or self._recovering is not None or stop.reason not in rule.after:
            return None
        return replace(rule, text=self._assignment.last_words(stop))

    def _last_by_policy(self, verdict: LastTurn, now: float) -> Verdict:
        """A policy's last turn is like any other: as long as the run gives one, or none at all."""
        rule, found, assignment = self._last_turn, self._found, self._assignment
        assert found is not None  # noqa: S101 - a detection is behind it
        if rule is None:
            self._decide(found, now)
            return found
        said = [verdict.text, *([assignment.how_to_end()] if assignment is not None and not verdict.tools else [])]
        return replace(verdict, text=" ".join(said), seconds=rule.seconds)

    def terminate(self, now: float, fallback: Stop | None = None, error: BaseException | None = None) -> Outcome:
        """The run is over: its one outcome. `fallback`, with `error`: how it ended if nothing was decided before."""
        if self._outcome is not None:
            return self._outcome
        if self._abort_why is not None or self._parent is not None:
            self._look(now, waiting=False)
        stop = self._ending(fallback)
        if stop is self.stop:
            error = self._stop_error
        elif stop is not fallback:
            error = self._last.error if self._last is not None else None
        closing, turn = self._closing, self.turn
        ok = succeeded(stop.reason) or (stop.reason is TerminateReason.TERMINATED and stop.value == "success")
        self._spending.post()
        usage, cost_usd = self._spending.total()
        if self._parent is not None:
            self._parent.nested_ended(self, usage, cost_usd, now)
        self._outcome = Outcome(
            ok=ok,
            reason=stop.reason,
            detail=stop.detail,
            source=stop.source,
            limit=stop.limit,
            value=stop.value,
            evidence=stop.evidence,
            **(self._assignment.result() if self._assignment is not None else {}),
            text=turn.text if turn else "",
            usage=usage,
            usage_estimated=self._spending.estimated,
            cost_usd=cost_usd,
            judge_usage=self._judge_cost.usage,
            judge_usage_estimated=self._judge_cost.estimated,
            turns=self._turns,
            elapsed_s=self.at(now),
            recovered_from=self._recovering.reason if self._recovering is not None and ok else None,
            closed=closing.closed if closing else True,
            chunks_after_decision=closing.chunks_dropped if closing else 0,
            closed_after_s=closing.after_s if closing else None,
            error=None if ok else error,
        )
        self._emit(RunTerminated(self.at(now), self._outcome))
        return self._outcome

    # ------------------------------------------------------------------ time

    def must_stop(self, now: float) -> bool:
        """A read is about to begin or has just ended, and `deadline` has passed: look, and move it on if nothing is true."""
        self._look(now, waiting=True)
        return self.stop is not None

    def refresh(self, now: float) -> float:
        """`deadline`, made exact for the read that is pending since `waiting_since`. Decides nothing, and never raises."""
        if self.stop is None and self._abort_why is None and self._condition is not None:
            state = self.state(now, waiting=True)
            try:
                self._plan(state)
                if self.deadline <= now and self._condition.evaluate(state) is None and self._abort_why is None:
                    self.deadline = now + 0.001  # a condition of the caller's whose deadline it does not confirm: keep asking
            except Exception:  # noqa: BLE001 - the look that follows meets the same error, and names it
                self.deadline = -math.inf
        return self.deadline

    def state(self, now: float, *, waiting: bool) -> RunState:
        """The run as numbers. `waiting`: a read is pending since `waiting_since`."""
        tally = self._tally if self._phase == "streaming" else None
        usage, cost_usd = self._spending.total(tally.usage if tally else NOTHING)
        outputs, plan = (self._assignment.outputs, self._assignment.plan) if self._assignment is not None else (None, None)
        return RunState(
            elapsed_s=now - self._began,
            phase=self._phase,
            turns=self._turns - (self._last is not None and self._last.void),
            model_calls=self._model_calls,
            tool_calls=self._tool_calls,
            consecutive_errors=self._errors.count,
            usage=usage,
            usage_estimated=self._spending.estimated or (tally is not None and tally.usage_estimated),
            cost_usd=cost_usd,
            paused_s=self._pauses.total_s(now),
            paused=self._pauses.running,
            retry_delay_s=self._retry_delay_s,
            tools_called=self._tools_called,
            missing_outputs=tuple(outputs.missing) if outputs is not None else None,
            plan_done=plan.done if plan is not None else None,
            task_done=self._task_done,
            stream_started_s=tally.started_at - self._began if tally else None,
            first_chunk_seen=tally is not None and tally.first_chunk_seen,
            waiting_since_s=self.waiting_since - self._began if waiting and tally else None,
        )

    def _look(self, now: float, *, waiting: bool) -> RunState | None:
        """Evaluate everything that may be true now, then plan the next look. Answers what was looked at, if the run goes on."""
        if self.stop is not None or self._outcome is not None:
            return None
        if self._abort_why is not None:
            if not self._abort_told:
                self._abort_told = True
                self._emit(AbortRequested(self.at(now), self._abort_why))
            self._decide(Stop(TerminateReason.ABORTED, self._abort_why, "abort"), now)
            return None
        overspent = self._spent(now)
        if self._condition is None and not self._spending.budgets and self._parent is None:
            return None
        state = self.state(now, waiting=waiting)
        try:
            stop = (self._condition.evaluate(state) if self._condition is not None else None) or overspent
            if stop is None:
                # The next read can begin now at the earliest: planning for that gives the lower bound that `deadline` promises.
                if not waiting and self._phase == "streaming":
                    object.__setattr__(state, "waiting_since_s", state.elapsed_s)  # it is ours alone, and a copy costs as much as a look
                self._plan(state)
            elif not isinstance(stop, Stop):
                raise TypeError(f"expected a Stop or None, got {stop!r}")
        except Exception as error:  # noqa: BLE001 - a condition may be the caller's code: whatever it raises ends the run
            self.fail(error, self._condition.name if self._condition is not None else "budget", now)
            return None
        if stop is not None:
            self._decide(stop, now)
        self.replanned()
        return state if stop is None else None

    def _spent(self, now: float) -> Stop | None:
        """What was used, told to the budgets and to the run whose tool this one is. A limit of theirs ends this run as well."""
        running = self._tally.usage if self._phase == "streaming" else NOTHING
        stop = self._spending.post(running)
        parent = self._parent
        ending = parent.nested(self, *self._spending.total(running), now) if parent is not None else None
        if ending is not None:
            detail = f"the run that called this one ends: {ending.detail}"
            return Stop(TerminateReason.ABORTED, detail, ending.source, ending.limit, ending.value)
        return stop

    def nested(self, child: RunCore, usage: Usage, usd: float, now: float) -> Stop | None:
        """A run that a tool of this one started has used so much by now. Why this run ends, if it does."""
        self._spending.nested(id(child), usage, usd)
        self._look(now, waiting=False)
        return self.stop

    def nested_ended(self, child: RunCore, usage: Usage, usd: float, now: float) -> None:
        """It has ended."""
        self.nested(child, usage, usd, now)
        self._spending.nested_ended(id(child))

    def _warn(self, state: RunState | None, now: float) -> None:
        """Tell which limits are nearly used up. Asked at the steps of a run, not at each look."""
        if state is None or self.stop is not None:
            return
        try:
            warnings = self._warner.look(self._condition, self._spending.budgets, state)
        except Exception as error:  # noqa: BLE001 - a condition may be the caller's code
            self.fail(error, self._condition.name if self._condition is not None else "budget", now)
        else:
            for warning in warnings:
                self._emit(warning)

    def _plan(self, state: RunState) -> None:
        self._schedule.plan(state)
        self.deadline = self._schedule.deadline_s + self._began
        if self._abort_why is not None:  # it may have come from another thread since the look began
            self.deadline = -math.inf

    def _decide(self, stop: Stop, now: float) -> None:
        if self.stop is None:
            self.stop = stop
            self.ends_stream = True
            self.deadline = -math.inf
            self._decided_at = now
            self._emit(StopDecided(self.at(now), stop))
            self.stopped()

    def _ending(self, fallback: Stop | None) -> Stop:
        stop = self._how_it_ends(fallback)
        if self._recovering is not None and (stop.reason not in _OWN_WORD or (self._last is not None and stop is self._last.failure)):
            return self._recovering
        return stop

    def _how_it_ends(self, fallback: Stop | None) -> Stop:
        if self.stop is not None:
            return self.stop
        if fallback is not None:
            return fallback
        last = self._last
        if last is not None and not last.left and last.failure is not None and (self._goal is None or self._told):
            return last.failure
        if self._goal is not None:
            return Stop(TerminateReason.GOAL, self._goal, "caller")
        if last is None or last.left:
            where = "before any stream was read" if last is None else "before the stream had ended"
            return Stop(TerminateReason.CLOSED_BY_CALLER, f"the caller left {where}", "caller")
        missing = ", ".join(self._assignment.result().get("missing", ())) if self._assignment is not None else ""
        if missing:
            return Stop(TerminateReason.MISSING_OUTPUTS, f"the run ended without {missing}", "outputs", value=missing)
        return Stop(TerminateReason.STREAM_ENDED, "the stream came to its end", "provider")

    # ------------------------------------------------------------------ chunks

    def _feed_fact(self, chunk: Chunk, now: float) -> None:
        self._take_text(now)
        tally = self._tally
        if isinstance(chunk, ToolCall):
            if self._supervised:
                chunk = tally.with_own_id(chunk)
            self._tool_calls += 1
            self.open_calls.append(chunk)
            self._reply.add_call(chunk)
            self._spend(tally.add_call(chunk), now)
        elif isinstance(chunk, UsageReport):
            tally.report(chunk)
        elif isinstance(chunk, TurnFinished):
            tally.finish = chunk
        elif isinstance(chunk, StreamRetried):
            self._tool_calls -= len(tally.calls)
            self.open_calls.clear()
            tally.roll_back()
            self._reply.restart()
            self._loop = None
            self._unsay(now)
            self._emit(AttemptRetried(self.at(now), self._turns, chunk.reason))
        if not isinstance(chunk, TurnFinished) or chunk.finish_reason is not FinishReason.MALFORMED:  # void: what comes next takes it back
            self._find(self._bank.fact, chunk, now)
        if isinstance(chunk, TurnFinished) and (
            chunk.finish_reason is FinishReason.REPETITION or chunk.raw_finish_reason in REPETITION_WORDS
        ):
            detail = f"the provider stopped its model for repetition ({chunk.raw_finish_reason or chunk.finish_reason.value})"
            self._decide(Stop(TerminateReason.LOOP_DETECTED, detail, "provider"), now)
        self._look(now, waiting=False)

    def _find(self, ask: Callable[[T], Sequence[Detection]], what: T, now: float) -> None:
        """Ask the detectors, and take their findings one by one with what the policy makes of them."""
        try:
            found = ask(what)
        except DetectorCrash as crash:
            self.fail(crash.error, crash.name, now)
            return
        for detection in found:
            if self.ends_stream and detection.channel in _WRITTEN:
                break  # in smaller pieces it would not have come any more
            self._take(detection, now)

    def _take(self, detection: Detection, now: float) -> None:
        self._emit(DetectionRaised(self.at(now), self._turns, detection))
        if detection.level == "loop" and detection.channel in _WRITTEN:
            self._loop = detection
        self._follow(self._verdict_on(detection, now), now, detection)

    def _verdict_on(self, detection: Detection, now: float) -> Verdict:
        try:
            if self._before is None:
                snapshot = getattr(self._policy, "snapshot", None)  # a small policy of the caller's may do without
                self._before = snapshot() if snapshot is not None else None, len(self._verdicts)
            verdict = self._policy.decide(detection)
            if not isinstance(verdict, Continue | Nudge | WithdrawTool | Compact | LastTurn | Stop):
                raise TypeError(f"expected a verdict, got {verdict!r}")
        except Exception as error:  # noqa: BLE001 - a policy may be the caller's code
            self.fail(error, type(self._policy).__name__, now)
            return Continue()
        return verdict

    def _unsay(self, now: float) -> None:
        """What was to follow from the findings of an attempt that is void does not: the model has never seen what it would be told of."""
        if self._before is not None:
            state, said = self._before
            del self._verdicts[said:]
            self._before = None
            try:
                if state is not None:
                    self._policy.restore(state)
            except Exception as error:  # noqa: BLE001 - a policy may be the caller's code
                self.fail(error, type(self._policy).__name__, now)

    def _follow(self, verdict: Verdict, now: float, detection: Detection | None = None) -> None:
        if isinstance(verdict, Stop):
            if self._abort_why is None:  # the user's abort wins
                self._decide(verdict, now)
        elif not isinstance(verdict, Continue):
            if detection is not None and isinstance(verdict, Nudge) and self._nudged_while_writing(detection):
                self._verdicts.pop()  # nobody has read it: one message is enough
            self._verdicts.append(verdict)
            if detection is None:
                return
            self._found = stop_for(detection)
            if self._cuts and self._phase == "streaming" and detection.level == "loop" and detection.channel in _WRITTEN:
                self._cut = detection
                self.ends_stream = True

    def _nudged_while_writing(self, detection: Detection) -> bool:
        """The latest verdict is a nudge for what the same detector saw before in the same running text."""
        before = self._found.evidence if self._found is not None and self._verdicts else None
        return (
            isinstance(before, Detection)
            and isinstance(self._verdicts[-1], Nudge)
            and (before.detector, before.channel) == (detection.detector, detection.channel)
            and detection.channel in _WRITTEN
        )

    def _tell_policy(self, now: float) -> None:
        if self._turn_policy is not None:
            try:
                self._turn_policy.turn_started()
            except Exception as error:  # noqa: BLE001 - a policy may be the caller's code
                self.fail(error, type(self._policy).__name__, now)

    def _take_text(self, now: float) -> None:
        """Visible text is held back until somebody needs it: a detector, a token limit, or the next fact."""
        text = self._tally.take()
        if text:
            if self._supervised:
                self._reply.add_text(text)
            for start in range(0, len(text), PIECE_CHARS):
                self._find(self._bank.text, text[start : start + PIECE_CHARS], now)
                if self.stop is not None:
                    break  # the run is over: nobody reads the rest of a flood
            self._spend(self._tally.count(text), now)
        self._free_chars = min(self._schedule.free_chars, self._bank.need, HOLD_CHARS)

    def _spend(self, eighths: int, now: float) -> None:
        """Output tokens have come."""
        if self._schedule.spend(eighths):
            self._warn(self._look(now, waiting=False), now)
        elif self._schedule.free_chars < self._free_chars:
            self._free_chars = 0


def _nothing() -> None:
    """Nobody wants to know yet."""

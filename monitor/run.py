"""RunCore: one run, decided without I/O.

Facts go in (chunks, tool results, time as a number), decisions and events come out. It never reads a clock and never
awaits, so guard, supervisor, `scan` and a replay all run the same code and mean the same thing.

The rules of this file:

1. One ending. `stop` is set once; `terminate` answers once. When several things are true at the same look, the user's
   abort wins, then loops, then limits.
2. Cheap per chunk. A delta costs a few integer operations and the detectors' own work; a `RunState` is built only at
   transitions, and `deadline` says when the next look is due.
3. `deadline` is a lower bound in the harness's clock: before it, no condition can have become true by time alone. After
   it, `must_stop(now)` looks for real and either ends the run or moves `deadline` on. An abort sets it to minus infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from monitor.bank import DetectorBank, DetectorCrash
from monitor.chunks import Chunk, ReasoningDelta, StreamRetried, TextDelta, ToolCall, ToolCallDelta, ToolResult, TurnFinished, UsageReport
from monitor.chunks import check as check_chunk
from monitor.conditions.base import Condition
from monitor.detectors.base import Detector
from monitor.errors import AdapterError, describe
from monitor.events import (
    AbortRequested,
    AttemptRetried,
    DetectionRaised,
    Event,
    FirstChunk,
    ResultUnmatched,
    RunStarted,
    RunTerminated,
    StopDecided,
    StreamClosed,
    StreamContinued,
    StreamFailed,
    TurnEnded,
    TurnStarted,
)
from monitor.models import ModelError
from monitor.outcome import Outcome, Turn, succeeded
from monitor.policy import Policy, TurnPolicy
from monitor.reasons import REPETITION_WORDS, FinishReason, TerminateReason
from monitor.schedule import Schedule
from monitor.state import Phase, RunState, Usage
from monitor.tally import ErrorStreak, TurnTally, keep_limit
from monitor.verdicts import VETO, Compact, Continue, Detection, LastTurn, Nudge, Stop, Verdict, WithdrawTool

T = TypeVar("T")

HOLD_CHARS = 256
"""Visible text is held back no longer than this, so that little is held: the pieces of a delta stream weigh ten times their text."""

_BAD_FINISH = {
    FinishReason.LENGTH: (TerminateReason.TRUNCATED, "the output limit cut the answer off"),
    FinishReason.MALFORMED: (TerminateReason.INVALID_STREAM, "the provider could not read what its model wrote"),
    FinishReason.BLOCKED: (TerminateReason.BLOCKED, "a filter of the provider refused the prompt or the answer"),
}


@dataclass(slots=True, frozen=True)
class StreamEnd:
    """How the last stream ended."""

    failure: Stop | None = None
    """Why that was no good end."""
    error: BaseException | None = None
    """The exception behind it."""
    void: bool = False
    """The attempt failed as such: the next stream is the same turn again, and what this one contributed does not count."""
    left: bool = False
    """The caller left it before its end."""
    may_go_on: bool = False
    """It is no good end of a run, but the model may well be asked to go on: its output limit cut it off."""


class RunCore:
    """The state of one run and every decision about it. `emit` receives the events, in order."""

    __slots__ = (
        "_abort_told",
        "_abort_why",
        "_bank",
        "_began",
        "_closing",
        "_condition",
        "_decided_at",
        "_emit",
        "_errors",
        "_free_chars",
        "_goal",
        "_keep_chars",
        "_last",
        "_model_calls",
        "_outcome",
        "_phase",
        "_policy",
        "_schedule",
        "_stop_error",
        "_tally",
        "_told",
        "_tool_calls",
        "_turns",
        "_usage",
        "_usage_estimated",
        "_verdicts",
        "deadline",
        "open_calls",
        "replanned",
        "stop",
        "turn",
        "waiting_since",
    )

    def __init__(
        self,
        *,
        stop_when: Condition | None = None,
        detectors: Sequence[Detector] = (),
        policy: Policy,
        emit: Callable[[Event], None],
        keep_text_chars: int | None = None,
    ) -> None:
        self.deadline = math.inf
        """When to look again, in the harness's clock."""
        self.waiting_since = 0.0
        """When the pending read began, in the harness's clock; the harness sets it before every read."""
        self.stop: Stop | None = None
        """Why the run ends, once that is decided."""
        self.turn: Turn | None = None
        """The last turn that ended."""
        self.open_calls: list[ToolCall] = []
        """Calls of the present turn that have no result yet, oldest first."""
        self.replanned: Callable[[], None] = _nothing
        """Called when `deadline` may have come closer; the harness moves its alarm."""

        self._condition = stop_when
        self._schedule = Schedule(stop_when)
        self._bank = DetectorBank(detectors)
        self._policy = policy
        self._emit = emit
        self._keep_chars = keep_limit(keep_text_chars)

        self._began = 0.0
        self._phase: Phase = "before_call"
        self._turns = self._model_calls = self._tool_calls = 0
        self._errors = ErrorStreak()
        self._usage = Usage()
        self._usage_estimated = False
        self._verdicts: list[Verdict] = []
        self._goal: str | None = None
        self._abort_why: str | None = None
        self._abort_told = False
        self._last: StreamEnd | None = None
        self._told = False  # somebody has been told by `check` how the last stream failed
        self._stop_error: BaseException | None = None
        self._decided_at = 0.0
        self._closing: StreamClosed | None = None
        self._outcome: Outcome | None = None

        self._tally = TurnTally(number=0, keep_chars=self._keep_chars, started_at=0.0)
        self._free_chars = 0

    # ------------------------------------------------------------------ the run

    def begin(self, now: float) -> None:
        """The run starts; all times in events and reasons count from here."""
        self._began = now
        self._policy.reset()
        self._bank.reset()
        self._emit(RunStarted(0.0, self._bank.names, self._condition.name if self._condition else None))

    def begin_turn(self, now: float) -> bool:
        """A stream is about to be opened. False: the run is over, do not open it."""
        self._phase = "before_call"
        self._look(now, waiting=False)
        if self.stop is not None:
            return False
        before, self._last = self._last, None
        retried = before.failure if before is not None and before.void else None
        self._told, self._closing = False, None
        if retried is not None:
            self._tool_calls -= len(self._tally.calls)
            self._find(self._bank.fact, StreamRetried(retried.reason.value), now)
            self._emit(AttemptRetried(self._at(now), self._turns, retried.detail))
        else:
            self._turns += 1
            self._tell_policy(now)
        self._model_calls += 1
        self._errors.turn_started()
        self.open_calls.clear()
        self._phase = "streaming"
        self._tally = TurnTally(number=self._turns, keep_chars=self._keep_chars, started_at=now)
        self._emit(TurnStarted(self._at(now), self._turns, self._model_calls))
        self.waiting_since = now
        self._look(now, waiting=True)
        return True

    def first_chunk(self, now: float) -> None:
        """The stream delivered its first object."""
        self._tally.first_chunk_seen = True
        self._emit(FirstChunk(self._at(now), self._turns, now - self._tally.started_at))

    def continued(self, now: float) -> None:
        """The SDK has made another model call inside the running stream, by itself."""
        self._model_calls += 1
        self._emit(StreamContinued(self._at(now), self._turns, self._model_calls))
        self._look(now, waiting=False)

    def feed(self, chunk: Chunk, now: float) -> None:
        """The next chunk of the running stream. Raises `AdapterError` for what is none."""
        if isinstance(chunk, TextDelta):
            self.feed_text(chunk.text, now)
            return
        check_chunk(chunk)
        if isinstance(chunk, ReasoningDelta):
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
            result = ToolResult(known.id, known.name, text, is_error)
            if not text.startswith(VETO):
                self._errors.add(is_error=is_error)
        else:
            self._emit(ResultUnmatched(self._at(now), call))
            result = ToolResult(call or "", "", text, is_error)
        self._find(self._bank.fact, result, now)
        self._look(now, waiting=False)

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
            self._emit(StreamFailed(self._at(now), self._turns, model_error))
        self._last = self._stream_end(finished=finished, must_finish=must_finish, error=error, model_error=model_error)
        if self._last.void:
            self._errors.add(is_error=True)
        tally = self._tally
        self._usage += tally.usage
        self._usage_estimated |= tally.usage_estimated
        self.turn = tally.ended(stopped=self.stop or self._last.failure, error=error, model_error=model_error)
        self._phase = "after_call"
        self._emit(TurnEnded(self._at(now), self.turn))
        return self.turn

    def source_closed(self, now: float, *, since: float, closed: bool, chunks_dropped: int, note: str | None) -> None:
        """The source had to be closed, and was (or not). `since`: when somebody began to close it."""
        since = self._decided_at if self.stop is not None else since
        self._closing = StreamClosed(self._at(now), self._turns, closed, now - since, chunks_dropped, note)
        self._emit(self._closing)

    def check(self, now: float) -> Verdict:
        """Between turns: what to do now. A `Stop` that it tells stands, but a failed stream may still be tried again."""
        if self._outcome is not None:
            return self._ending(None)
        if self._phase != "streaming":
            self._phase = "before_call"
        self._look(now, waiting=False)
        if self.stop is not None:
            return self.stop
        last = self._last
        if last is not None and not last.left and last.failure is not None and not last.may_go_on:
            self._told = True
            return last.failure
        return self._verdicts.pop(0) if self._verdicts else Continue()

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

    def terminate(self, now: float, fallback: Stop | None = None, error: BaseException | None = None) -> Outcome:
        """The run is over: its one outcome. `fallback`, with `error`: how it ended if nothing was decided before."""
        if self._outcome is not None:
            return self._outcome
        if self._abort_why is not None:
            self._look(now, waiting=False)
        stop = self._ending(fallback)
        if stop is self.stop:
            error = self._stop_error
        elif stop is not fallback:
            error = self._last.error if self._last is not None else None
        closing, turn = self._closing, self.turn
        self._outcome = Outcome(
            ok=succeeded(stop.reason),
            reason=stop.reason,
            detail=stop.detail,
            source=stop.source,
            limit=stop.limit,
            value=stop.value,
            evidence=stop.evidence,
            text=turn.text if turn else "",
            usage=self._usage,
            usage_estimated=self._usage_estimated,
            turns=self._turns,
            elapsed_s=self._at(now),
            closed=closing.closed if closing else True,
            chunks_after_decision=closing.chunks_dropped if closing else 0,
            closed_after_s=closing.after_s if closing else None,
            error=None if succeeded(stop.reason) else error,
        )
        self._emit(RunTerminated(self._at(now), self._outcome))
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
        return RunState(
            elapsed_s=now - self._began,
            phase=self._phase,
            turns=self._turns - (self._last is not None and self._last.void),
            model_calls=self._model_calls,
            tool_calls=self._tool_calls,
            consecutive_errors=self._errors.count,
            usage=self._usage + tally.usage if tally else self._usage,
            usage_estimated=self._usage_estimated or (tally is not None and tally.usage_estimated),
            stream_started_s=tally.started_at - self._began if tally else None,
            first_chunk_seen=tally is not None and tally.first_chunk_seen,
            waiting_since_s=self.waiting_since - self._began if waiting and tally else None,
        )

    def _at(self, now: float) -> float:
        return now - self._began

    def _look(self, now: float, *, waiting: bool) -> None:
        """Evaluate everything that may be true now, then plan the next look."""
        if self.stop is not None or self._outcome is not None:
            return
        if self._abort_why is not None:
            if not self._abort_told:
                self._abort_told = True
                self._emit(AbortRequested(self._at(now), self._abort_why))
            self._decide(Stop(TerminateReason.ABORTED, self._abort_why, "abort"), now)
            return
        if self._condition is None:
            return
        state = self.state(now, waiting=waiting)
        try:
            stop = self._condition.evaluate(state)
            if stop is None:
                # The next read can begin now at the earliest: planning for that gives the lower bound that `deadline` promises.
                self._plan(state if waiting else replace(state, waiting_since_s=state.elapsed_s))
            elif not isinstance(stop, Stop):
                raise TypeError(f"expected a Stop or None, got {stop!r}")
        except Exception as error:  # noqa: BLE001 - a condition may be the caller's code: whatever it raises ends the run
            self.fail(error, self._condition.name, now)
        else:
            if stop is not None:
                self._decide(stop, now)
            self.replanned()

    def _plan(self, state: RunState) -> None:
        self._schedule.plan(state)
        self.deadline = self._schedule.deadline_s + self._began
        if self._abort_why is not None:  # it may have come from another thread since the look began
            self.deadline = -math.inf

    def _decide(self, stop: Stop, now: float) -> None:
        if self.stop is None:
            self.stop = stop
            self.deadline = -math.inf
            self._decided_at = now
            self._emit(StopDecided(self._at(now), stop))

    def _ending(self, fallback: Stop | None) -> Stop:
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
        return Stop(TerminateReason.STREAM_ENDED, "the stream came to its end", "provider")

    def _stream_end(self, *, finished: bool, must_finish: bool, error: BaseException | None, model_error: ModelError | None) -> StreamEnd:
        if model_error is not None:
            wait = f"; it asks to wait {model_error.retry_after_s:g} s" if model_error.retry_after_s is not None else ""
            said = model_error.code or model_error.status
            return StreamEnd(Stop(model_error.reason, model_error.message + wait, "provider", value=said), error, void=True)
        if not finished:
            return StreamEnd(Stop(TerminateReason.CLOSED_BY_CALLER, "the caller left before the stream had ended", "caller"), left=True)
        finish = self._tally.finish
        if finish is None:
            detail = "the stream stopped without a finish reason: the answer is not complete"
            return StreamEnd(Stop(TerminateReason.TRUNCATED, detail, "provider"), void=True) if must_finish else StreamEnd()
        if finish.finish_reason not in _BAD_FINISH:
            return StreamEnd()
        reason, detail = _BAD_FINISH[finish.finish_reason]
        said = finish.raw_finish_reason or finish.finish_reason.value
        return StreamEnd(
            Stop(reason, f"{detail} ({said})", "provider"),
            void=finish.finish_reason is FinishReason.MALFORMED,
            may_go_on=finish.finish_reason is FinishReason.LENGTH,
        )

    # ------------------------------------------------------------------ chunks

    def _feed_fact(self, chunk: Chunk, now: float) -> None:
        self._take_text(now)
        tally = self._tally
        if isinstance(chunk, ToolCall):
            self._tool_calls += 1
            self.open_calls.append(chunk)
            self._spend(tally.add_call(chunk), now)
        elif isinstance(chunk, UsageReport):
            tally.report(chunk)
        elif isinstance(chunk, TurnFinished):
            tally.finish = chunk
        elif isinstance(chunk, StreamRetried):
            self._tool_calls -= len(tally.calls)
            self.open_calls.clear()
            tally.roll_back()
            self._emit(AttemptRetried(self._at(now), self._turns, chunk.reason))
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
            self._emit(DetectionRaised(self._at(now), self._turns, detection))
            self._follow(self._verdict_on(detection, now), now)

    def _verdict_on(self, detection: Detection, now: float) -> Verdict:
        try:
            verdict = self._policy.decide(detection)
            if not isinstance(verdict, Continue | Nudge | WithdrawTool | Compact | LastTurn | Stop):
                raise TypeError(f"expected a verdict, got {verdict!r}")
        except Exception as error:  # noqa: BLE001 - a policy may be the caller's code
            self.fail(error, type(self._policy).__name__, now)
            return Continue()
        return verdict

    def _follow(self, verdict: Verdict, now: float) -> None:
        if isinstance(verdict, Stop):
            if self._abort_why is None:  # the user's abort wins
                self._decide(verdict, now)
        elif not isinstance(verdict, Continue):
            self._verdicts.append(verdict)

    def _tell_policy(self, now: float) -> None:
        if isinstance(self._policy, TurnPolicy):
            try:
                self._policy.turn_started()
            except Exception as error:  # noqa: BLE001 - a policy may be the caller's code
                self.fail(error, type(self._policy).__name__, now)

    def _take_text(self, now: float) -> None:
        """Visible text is held back until somebody needs it: a detector, a token limit, or the next fact."""
        text = self._tally.take()
        if text:
            self._find(self._bank.text, text, now)
            self._spend(self._tally.count(text), now)
        self._free_chars = min(self._schedule.free_chars, self._bank.need, HOLD_CHARS)

    def _spend(self, eighths: int, now: float) -> None:
        """Output tokens have come."""
        if self._schedule.spend(eighths):
            self._look(now, waiting=False)
        elif self._schedule.free_chars < self._free_chars:
            self._free_chars = 0


def _nothing() -> None:
    """No alarm to move yet."""

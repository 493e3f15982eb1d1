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

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from monitor._tokens import MOST_TOKENS_PER_CHAR, estimate_tokens
from monitor.chunks import (
    Chunk,
    ReasoningDelta,
    StreamRetried,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    TurnFinished,
    UsageReport,
)
from monitor.conditions.base import Condition
from monitor.conditions.deadlines import split_idle
from monitor.detectors.base import ChannelDetector, Detector, Feed, wants_deltas
from monitor.errors import AdapterError
from monitor.events import (
    AbortRequested,
    AttemptRetried,
    DetectionRaised,
    Event,
    FirstChunk,
    RunStarted,
    RunTerminated,
    StopDecided,
    StreamClosed,
    StreamFailed,
    TurnEnded,
    TurnStarted,
)
from monitor.models import ModelError
from monitor.outcome import Outcome, Turn, succeeded
from monitor.policy import Policy
from monitor.reasons import FinishReason, TerminateReason
from monitor.state import Phase, RunState, Usage
from monitor.verdicts import Channel, Continue, Detection, Stop, Verdict

FOLD_CHARS = 512
"""Visible text is looked at for its token estimate, and packed, once in so many characters: far below any sensible limit."""

_BAD_FINISH = {
    FinishReason.LENGTH: (TerminateReason.TRUNCATED, "the output limit cut the answer off"),
    FinishReason.MALFORMED: (TerminateReason.INVALID_STREAM, "the provider could not read what its model wrote"),
    FinishReason.BLOCKED: (TerminateReason.BLOCKED, "a filter of the provider refused the prompt or the answer"),
}


class RunCore:
    """The state of one run and every decision about it. `emit` receives the events, in order."""

    def __init__(
        self,
        *,
        stop_when: Condition | None,
        detectors: Sequence[Detector],
        policy: Policy,
        emit: Callable[[Event], None],
        keep_text_chars: int | None,
    ) -> None:
        self.deadline = math.inf
        """When to look again, in the harness's clock."""
        self.waiting_since = 0.0
        """When the pending read began, in the harness's clock; the harness sets it before every read."""
        self.stop: Stop | None = None
        """Why the run ends, once that is decided."""
        self.decided_at = 0.0
        self.turn: Turn | None = None
        """The last turn that ended."""
        self.open_calls: list[ToolCall] = []
        """Calls of ended turns that have no result yet, oldest first."""
        self.replanned: Callable[[], None] = _nothing
        """Called when `deadline` may have come closer; the harness moves its alarm."""

        self._condition = stop_when
        self._follows_reads = stop_when is not None and stop_when.follows_reads
        self._idle_s, self._events_condition = (stop_when and split_idle(stop_when)) or (None, None)
        self._events_deadline = math.inf
        self._detectors = list(detectors)
        self._policy = policy
        self._emit = emit
        self._keep_chars = math.inf if keep_text_chars is None else keep_text_chars

        self._began = 0.0
        self._phase: Phase = "before_call"
        self._turns = self._model_calls = self._tool_calls = 0
        self._usage = Usage()
        self._usage_estimated = False
        self._verdicts: list[Verdict] = []
        self._abort_why: str | None = None
        self._goal: str | None = None
        self._failed: Stop | None = None
        self._failure_told = False
        self._error: BaseException | None = None
        self._closing: StreamClosed | None = None
        self._outcome: Outcome | None = None

        self._wire_detectors()
        self._reset_turn()

    # ------------------------------------------------------------------ the run

    def begin(self, now: float) -> None:
        """The run starts; all times in events and reasons count from here."""
        self._began = now
        self._policy.reset()
        for detector in self._detectors:
            detector.reset()
        names = tuple(detector.name for detector in self._detectors)
        self._emit(RunStarted(0.0, names, self._condition.name if self._condition else None))

    def begin_turn(self, now: float) -> bool:
        """A stream is about to be opened. False: the run is over, do not open it."""
        self._phase = "before_call"
        self._look(now, waiting=False)
        if self.stop is not None:
            return False
        retried = self._failed
        self._failed, self._failure_told, self._error = None, False, None
        self._reset_turn()
        self._turns += retried is None
        self._model_calls += 1
        self._phase = "streaming"
        self._stream_started = now
        if retried is not None:
            self._observe(StreamRetried(retried.reason.value), now)
            self._emit(AttemptRetried(self._at(now), self._turns, retried.detail))
        self._emit(TurnStarted(self._at(now), self._turns, self._model_calls))
        self._plan(self.state(now, waiting=True))
        return True

    def first_chunk(self, now: float) -> None:
        """The stream delivered its first object."""
        self._first_chunk_seen = True
        self._emit(FirstChunk(self._at(now), self._turns, now - self._stream_started))

    def feed(self, chunk: Chunk, now: float) -> None:
        """The next chunk of the running stream."""
        if isinstance(chunk, TextDelta):
            self.feed_text(chunk.text, now)
        elif isinstance(chunk, ReasoningDelta):
            self._feed_reasoning(chunk, now)
        elif isinstance(chunk, ToolCallDelta):
            self._feed_arguments(chunk, now)
        else:
            self._feed_fact(chunk, now)

    def feed_text(self, text: str, now: float) -> None:
        """The next piece of visible text: the same as a `TextDelta`, without the object."""
        if type(text) is not str and not isinstance(text, str):
            raise AdapterError(f"expected a piece of text, got {type(text).__name__}")
        self._parts.append(text)
        self._until_fold -= len(text)
        try:
            for feed in self._text_feeds:
                found = feed(text)
                if found:
                    self._raise(found, now)
        except Exception as error:  # noqa: BLE001 - a detector may be the caller's code
            self.fail(error, self._owners[feed], now)
        if self._until_fold < 0:
            self._fold(now)

    def tool_result(self, call: str | None, text: str, now: float, *, is_error: bool = False) -> None:
        """A tool answered. `call`: the id; `None`: the oldest call that has no answer yet. Unknown ids are kept as they are."""
        known = next((c for c in self.open_calls if call is None or c.id == call), None)
        if known is not None:
            self.open_calls.remove(known)
        name = known.name if known else ""
        call_id = known.id if known else (call or "")
        self._observe(ToolResult(call_id, name, text, is_error), now)
        self._look(now, waiting=False)

    def end_turn(
        self, now: float, *, finished: bool, error: BaseException | None = None, model_error: ModelError | None = None, must_finish: bool = True
    ) -> None:
        """The stream is over.

        `finished`: it came to its own end; else somebody left it or it failed with `error`.
        `must_finish`: a stream of this kind closes with a finish reason, so one without it was truncated.
        """
        self._fold(now)
        if self._abort_why is not None:
            self._look(now, waiting=False)
        if model_error is not None:
            self._emit(StreamFailed(self._at(now), self._turns, model_error))
        stopped = self.stop or self._turn_failure(finished=finished, model_error=model_error, must_finish=must_finish)
        if self.stop is None and finished | (model_error is not None):
            self._failed = stopped
        self._turn_left = not finished and model_error is None
        usage, estimated = self._turn_usage()
        self._usage += usage
        self._usage_estimated |= estimated
        self.turn = Turn(
            number=self._turns,
            text="".join(self._kept),
            text_chars=self._text_chars,
            tool_calls=tuple(self._calls),
            usage=usage,
            usage_estimated=estimated,
            finish_reason=self._finish.finish_reason if self._finish else None,
            raw_finish_reason=self._finish.raw_finish_reason if self._finish else None,
            stopped=stopped,
            model_error=model_error,
            error=error,
        )
        if error is not None:
            self._error = error
        self.open_calls.extend(self._calls)
        self._reset_stream()
        self._phase = "after_call"
        self._emit(TurnEnded(self._at(now), self.turn))

    def source_closed(self, now: float, *, since: float, closed: bool, chunks_dropped: int, note: str | None) -> None:
        """The source had to be closed, and was (or not). `since`: when somebody began to close it."""
        since = self.decided_at if self.stop is not None else since
        self._closing = StreamClosed(self._at(now), self._turns, closed, now - since, chunks_dropped, note)
        self._emit(self._closing)

    def check(self, now: float) -> Verdict:
        """Between turns: what to do now. A `Stop` that it tells stands (a failed stream may still be tried again)."""
        if self._phase != "streaming":
            self._phase = "before_call"
        self._look(now, waiting=False)
        if self.stop is not None:
            return self.stop
        if self._failed is not None:
            self._failure_told = True
            return self._failed
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
        """Something of ours or of the user's crashed: the run can not be watched any more, so it ends."""
        reason = TerminateReason.INVALID_STREAM if isinstance(error, AdapterError) else TerminateReason.ERROR
        self._error = error
        self._decide(Stop(reason, f"{source} raised {type(error).__name__}: {error}", source), now)

    def terminate(self, now: float, fallback: Stop | None = None, error: BaseException | None = None) -> Outcome:
        """The run is over: its one outcome. `fallback`: how it ended if nothing was decided before."""
        if self._outcome is not None:
            return self._outcome
        if self.stop is None and self._abort_why is not None:
            self._look(now, waiting=False)
        stop = self._ending(fallback)
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
            error=None if succeeded(stop.reason) else error if stop is fallback else self._error,
        )
        self._emit(RunTerminated(self._at(now), self._outcome))
        return self._outcome

    # ------------------------------------------------------------------ time

    def must_stop(self, now: float) -> bool:
        """A read is about to begin or has just ended, and `deadline` has passed: look, and move `deadline` on if nothing is true."""
        self._look(now, waiting=True)
        return self.stop is not None

    def refresh(self, now: float) -> float:
        """`deadline`, made exact for the read that is pending since `waiting_since`. Decides nothing."""
        if self.stop is None and self._abort_why is None and self._condition is not None:
            state = self.state(now, waiting=True)
            self._plan(state)
            if self.deadline <= now and self._condition.evaluate(state) is None:
                self.deadline = now + 0.001  # a condition of the caller's whose deadline it does not confirm: keep asking
        return self.deadline

    def exact_deadline(self) -> float:
        """`deadline` of a read that begins at `waiting_since`, exactly: for a harness that cannot move an alarm on."""
        if self.deadline == -math.inf or not self._follows_reads:
            return self.deadline
        if self._idle_s is None:
            return self.refresh(self.waiting_since)
        return min(self._events_deadline, self.waiting_since + self._idle_s)

    def state(self, now: float, *, waiting: bool) -> RunState:
        """The run as numbers. `waiting`: a read is pending since `waiting_since`."""
        usage, estimated = self._turn_usage() if self._phase == "streaming" else (Usage(), False)
        streaming = self._phase == "streaming"
        return RunState(
            elapsed_s=now - self._began,
            phase=self._phase,
            turns=self._turns,
            model_calls=self._model_calls,
            tool_calls=self._tool_calls,
            usage=self._usage + usage,
            usage_estimated=self._usage_estimated | estimated,
            stream_started_s=self._stream_started - self._began if streaming else None,
            first_chunk_seen=self._first_chunk_seen,
            waiting_since_s=self.waiting_since - self._began if waiting and streaming else None,
        )

    def _at(self, now: float) -> float:
        return now - self._began

    def _moment(self, at_s: float | None) -> float:
        return math.inf if at_s is None else at_s + self._began

    def _look(self, now: float, *, waiting: bool) -> None:
        """Evaluate everything that may be true now, then plan the next look."""
        if self.stop is not None:
            return
        if self._abort_why is not None:
            self._emit(AbortRequested(self._at(now), self._abort_why))
            self._decide(Stop(TerminateReason.ABORTED, self._abort_why, "abort"), now)
            return
        condition = self._condition
        if condition is None:
            return
        state = self.state(now, waiting=waiting)
        try:
            stop = condition.evaluate(state)
        except Exception as error:  # noqa: BLE001 - a predicate is the caller's code: whatever it raises ends the run
            self.fail(error, condition.name, now)
            return
        if stop is not None:
            self._decide(stop, now)
        else:
            # The next read can begin now at the earliest: planning for that gives the lower bound that `deadline` promises.
            self._plan(state if waiting else replace(state, waiting_since_s=state.elapsed_s))

    def _plan(self, state: RunState) -> None:
        condition = self._condition
        if condition is None:
            return
        if self._idle_s is None:
            self.deadline = self._moment(condition.deadline(state))
        else:
            self._events_deadline = self._moment(self._events_condition and self._events_condition.deadline(state))
            idle = math.inf if state.waiting_since_s is None else state.waiting_since_s + self._began + self._idle_s
            self.deadline = min(self._events_deadline, idle)
        self._headroom = condition.token_headroom(state)
        self._since_plan = 0
        self._set_fold(pending=self._fold_after - self._until_fold)
        if self._abort_why is not None:  # it may have come from another thread since the look began
            self.deadline = -math.inf
        self.replanned()

    def _decide(self, stop: Stop, now: float) -> None:
        if self.stop is None:
            self.stop = stop
            self.decided_at = now
            self.deadline = -math.inf
            self._emit(StopDecided(self._at(now), stop))

    def _ending(self, fallback: Stop | None) -> Stop:
        if self.stop is not None:
            return self.stop
        if fallback is not None:
            return fallback
        if self._failed is not None and (self._goal is None or self._failure_told):
            return self._failed
        if self._goal is not None:
            return Stop(TerminateReason.GOAL, self._goal, "caller")
        if self.turn is None or self._turn_left:
            where = "before any stream was read" if self.turn is None else "before the stream had ended"
            return Stop(TerminateReason.CLOSED_BY_CALLER, f"the caller left {where}", "caller")
        return Stop(TerminateReason.STREAM_ENDED, "the stream came to its end", "provider")

    # ------------------------------------------------------------------ chunks

    def _feed_reasoning(self, chunk: ReasoningDelta, now: float) -> None:
        self._count_tokens(estimate_tokens(chunk.text), now)
        try:
            for feed in self._reasoning_feeds:
                if found := feed(chunk.text):
                    self._raise(found, now)
        except Exception as error:  # noqa: BLE001 - a detector may be the caller's code
            self.fail(error, self._owners[feed], now)
        self._observe(chunk, now, self._delta_observers)

    def _feed_arguments(self, chunk: ToolCallDelta, now: float) -> None:
        self._count_tokens(estimate_tokens(chunk.arguments_text), now)
        self._observe(chunk, now, self._argument_observers)

    def _feed_fact(self, chunk: Chunk, now: float) -> None:
        self._fold(now)
        if isinstance(chunk, ToolCall):
            self._tool_calls += 1
            self._calls.append(chunk)
        elif isinstance(chunk, UsageReport):
            self._reported = self._reported.merged(chunk)
            self._unreported = 0 if chunk.output_tokens is not None else self._unreported
            self._has_report = True
        elif isinstance(chunk, TurnFinished):
            self._finish = chunk
        elif isinstance(chunk, StreamRetried):
            self._roll_back(chunk, now)
        elif not isinstance(chunk, ToolResult):
            raise AdapterError(f"expected a chunk, got {type(chunk).__name__}")
        self._observe(chunk, now)
        if isinstance(chunk, TurnFinished) and chunk.finish_reason is FinishReason.REPETITION:
            detail = f"the provider stopped its model for repetition ({chunk.raw_finish_reason})"
            self._decide(Stop(TerminateReason.LOOP_DETECTED, detail, "provider"), now)
        self._look(now, waiting=False)

    def _roll_back(self, chunk: StreamRetried, now: float) -> None:
        """A void attempt leaves no text and no calls; the tokens it cost were spent."""
        self._tool_calls -= len(self._calls)
        self._calls.clear()
        self._kept.clear()
        self._text_chars = 0
        self._finish = None
        self._emit(AttemptRetried(self._at(now), self._turns, chunk.reason))

    def _observe(self, chunk: Chunk, now: float, detectors: Sequence[Detector] | None = None) -> None:
        for detector in self._detectors if detectors is None else detectors:
            try:
                found = detector.observe(chunk)
            except Exception as error:  # noqa: BLE001 - a detector may be the caller's code
                self.fail(error, detector.name, now)
                return
            if found:
                self._raise(found, now)

    def _raise(self, found: Sequence[Detection], now: float) -> None:
        for detection in found:
            self._emit(DetectionRaised(self._at(now), self._turns, detection))
            verdict = self._policy.decide(detection)
            if isinstance(verdict, Stop):
                if self._abort_why is None:  # the user's abort wins
                    self._decide(verdict, now)
            elif not isinstance(verdict, Continue):
                self._verdicts.append(verdict)

    def _fold(self, now: float) -> None:
        """Pack the text since the last fold and count its tokens."""
        text = "".join(self._parts)
        self._parts.clear()
        room = self._keep_chars - self._text_chars
        if text and room > 0:
            self._kept.append(text if len(text) <= room else text[: int(room)])
        self._text_chars += len(text)
        self._count_tokens(estimate_tokens(text), now)
        self._set_fold(pending=0)

    def _count_tokens(self, tokens: int, now: float) -> None:
        self._unreported += tokens
        self._since_plan += tokens
        if self._headroom is not None and self._since_plan > self._headroom:
            self._look(now, waiting=False)

    def _set_fold(self, *, pending: int) -> None:
        """After how many characters the text is looked at again, so that no token limit is overrun unseen."""
        self._fold_after = FOLD_CHARS
        if self._headroom is not None:
            self._fold_after = min(FOLD_CHARS, int((self._headroom - self._since_plan) / MOST_TOKENS_PER_CHAR))
        self._until_fold = self._fold_after - pending

    # ------------------------------------------------------------------ turns

    def _reset_turn(self) -> None:
        self._parts: list[str] = []
        self._kept: list[str] = []
        self._calls: list[ToolCall] = []
        self._text_chars = 0
        self._finish: TurnFinished | None = None
        self._turn_left = False
        self._closing = None
        self._reset_stream()

    def _reset_stream(self) -> None:
        self._fold_after = self._until_fold = FOLD_CHARS
        self._reported = Usage()
        self._has_report = False
        self._unreported = 0
        self._since_plan = 0
        self._headroom: int | None = None
        self._stream_started = 0.0
        self._first_chunk_seen = False

    def _turn_usage(self) -> tuple[Usage, bool]:
        """Tokens of the running turn, and whether part of them is an estimate."""
        if not self._unreported:
            return self._reported, not self._has_report and self._phase == "streaming"
        return self._reported + Usage(output_tokens=self._unreported, total_tokens=self._unreported), True

    def _turn_failure(self, *, finished: bool, model_error: ModelError | None, must_finish: bool) -> Stop | None:
        """Why the turn that just ended is not a good one."""
        if model_error is not None:
            return Stop(model_error.reason, model_error.message, "provider", value=model_error.code or model_error.status)
        if not finished:
            return Stop(TerminateReason.CLOSED_BY_CALLER, "the caller left before the stream had ended", "caller")
        if self._finish is None:
            if not must_finish:
                return None
            detail = "the stream stopped without a finish reason: the answer is not complete"
            return Stop(TerminateReason.TRUNCATED, detail, "provider")
        bad = _BAD_FINISH.get(self._finish.finish_reason)
        if bad is None:
            return None
        reason, detail = bad
        return Stop(reason, f"{detail} ({self._finish.raw_finish_reason or self._finish.finish_reason.value})", "provider")

    def _wire_detectors(self) -> None:
        """Detectors of characters are fed text directly; of the others, only those that want deltas are shown them."""
        self._owners: dict[Feed, str] = {}
        channel_detectors = [d for d in self._detectors if isinstance(d, ChannelDetector)]
        self._delta_observers = [d for d in self._detectors if d not in channel_detectors and wants_deltas(d)]
        self._argument_observers = channel_detectors + self._delta_observers
        self._reasoning_feeds = self._feeds_of("reasoning", channel_detectors)
        self._text_feeds = self._feeds_of("text", channel_detectors) + tuple(map(self._delta_feed, self._delta_observers))

    def _feeds_of(self, channel: Channel, detectors: Sequence[ChannelDetector]) -> tuple[Feed, ...]:
        feeds = {feed: detector.name for detector in detectors if (feed := detector.feed_of(channel)) is not None}
        self._owners.update(feeds)
        return tuple(feeds)

    def _delta_feed(self, detector: Detector) -> Feed:
        def feed(text: str) -> Sequence[Detection]:
            return detector.observe(TextDelta(text))

        self._owners[feed] = detector.name
        return feed


def text_of(result: Any) -> str:
    """What the model will read of a tool's answer: text as it is, anything else as JSON."""
    if isinstance(result, str):
        return result
    try:
        return json.dumps(result, ensure_ascii=False, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):
        return repr(result)


def _nothing() -> None:
    """No alarm to move yet."""

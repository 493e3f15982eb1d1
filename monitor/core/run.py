"""RunCore: one run, decided without I/O.

Facts go in (chunks, tool results, time as a number), decisions and events come out. RunCore never
reads a clock and never awaits, so guard, supervisor, `scan` and a replay run the same code.

The rules of this file:

1. One ending. `stop` is set once, and `terminate` always returns the same outcome. When several
   things are true at the same look, the user's abort wins, then loops, then limits. A goal that is
   reached in the same turn wins over a limit.

2. Cheap per chunk. A delta costs a few integer operations and the detectors' own work. A `RunState`
   is built only at transitions, and `deadline` says when the next look is due.

3. A stream may end before the run does. `ends_stream` is set with `stop`, and also when text loops
   and a policy answers with a nudge.

4. `deadline` is a lower bound in the harness's clock: before it, no condition can become true by
   time alone. After it, `must_stop(now)` evaluates the conditions, and either ends the run or moves
   `deadline` on. An abort sets `deadline` to minus infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from monitor import events
from monitor.budget import Budget
from monitor.chunks import (
    PIECE_CHARS,
    Chunk,
    Delta,
    Price,
    ReasoningDelta,
    StreamRetried,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    TurnFinished,
    UsageReport,
    pieces_of,
)
from monitor.chunks import check as check_chunk
from monitor.conditions.condition import Condition
from monitor.conditions.limits import Timeout
from monitor.context.window import TOO_SMALL_TOKENS, Window
from monitor.core.detector_bank import abridged_arguments
from monitor.core.ending import LIMITS, SPOKEN_OVER, RunGoal, StreamEnd, end_of, outcome_of, stream_end
from monitor.core.limited_run import Limits
from monitor.core.observers import ObservedRun, Observers
from monitor.core.turn import LoopedText, Part, RunningTurn, keep_limit
from monitor.detectors.detector import Detector, MadeLate
from monitor.errors import REPETITION_WORDS, RESUMABLE, AdapterError, FinishReason, TerminateReason
from monitor.events import Event
from monitor.goal.goal import Goal
from monitor.judges.judge import Judge
from monitor.messages import ApprovalRequest, Message
from monitor.models import ModelError
from monitor.outcome import Outcome, Turn
from monitor.policy import Policy
from monitor.verdicts import VETO, Channel, Detection, LastTurn, Stop, Verdict

if TYPE_CHECKING:
    from monitor.core.replay.resumed import ResumedRun

T = TypeVar("T")

HOLD_CHARS = 256
"""Visible text is collected up to this length before detectors get it. Holding more would cost
memory: pieces of a delta stream weigh ten times their text.
"""

SAME_MOMENT_S = 0.001
"""Two looks count as one if nothing but this much time, in seconds, lies between them."""


_LOST = StreamEnd(Stop(TerminateReason.ERROR, "the process ended before the answer was stored", "session"), void=True)
"""The end of an attempt of which only the events are stored."""


class RunCore(ObservedRun):
    """The state of one run and all decisions about it. `emit` receives the events, in order.

    `LimitedRun` decides what ends the run by itself. `ObservedRun`, in observers.py, adds what
    follows from findings. This class adds the streams: turns, chunks, results, and the end.
    """

    __slots__ = (
        "_ended_inside",
        "_free_chars",
        "_keep_chars",
        "_sdk_calls",
        "_supervised",
        "_unweighed",
        "_window",
        "left",
        "pending",
        "piecewise",
        "turn",
    )

    def __init__(
        self,
        *,
        stop_when: Condition | None = None,
        detectors: Sequence[Detector] = (),
        of_calls: MadeLate | None = None,
        policy: Policy,
        emit: Callable[[Event], None],
        keep_text_chars: int | None = None,
        price: Price | None = None,
        budgets: Sequence[Budget] = (),
        goal: Goal | None = None,
        last_turn: LastTurn | None = None,
        cuts: bool = False,
        supervised: bool = False,
        parent: RunCore | None = None,
        judges: Sequence[Judge] = (),
        task: str | None = None,
        window: Window | None = None,
        loop_key: Callable[[str, Any], Any] | None = None,
    ) -> None:
        """`of_calls`: further detectors, which are made with the first call. `cuts`: a stream in
        which text loops is left although the run goes on, because the harness acts on the verdict.
        `supervised`: the harness makes the model calls itself, so replies are built, and an empty
        reply is a failed attempt. `parent`: the run whose tool this run is. `task`: the user's
        request, for the judges and for detectors that read it. `window`: of the model.
        `loop_key`: what identifies a call for the detectors, by the name of its tool and its
        arguments.
        """
        keep_chars = keep_limit(keep_text_chars)
        super().__init__(
            Limits(stop_when, price=price, budgets=budgets, nested=parent is not None),
            RunGoal(last_turn, goal),
            RunningTurn(number=0, keep_chars=keep_chars, started_at=0.0, keeps_message=supervised),
            Observers(detectors, of_calls, policy=policy, judges=judges, task=task, loop_key=loop_key),
            emit=emit,
            parent=parent,
            cuts=cuts,
        )
        self.turn: Turn | None = None
        """The newest of the turns that have ended."""
        self.pending: tuple[ApprovalRequest, ...] = ()
        """Questions that stay open when the run ends. The harness sets it."""
        self.piecewise = False
        """The harness checks the clock between the pieces of a huge delta, and calls `catch_up`
        until `left` is empty. False: a huge delta is examined at once.
        """
        self.left: list[Delta] | tuple[()] = ()
        """Pieces of the last delta that are not examined yet, the last piece first."""

        self._window = window
        self._supervised = supervised
        self._keep_chars = keep_chars
        self._free_chars = 0
        self._unweighed: Turn | None = None  # a turn that the goal has not examined yet
        self._sdk_calls = False
        self._ended_inside = False  # between two turns of one stream

    def begin(self, now: float) -> None:
        """The run starts. All times in events and reasons count from `now`."""
        if self._agents is None:
            self._counters.began = now
        limits = self._limits.all() if self._limits else ()
        self._emit(
            events.RunStarted(self.at(now), self._observers.detectors.names, self._limits.condition_name, limits)
        )
        self._tell(self._observers.reset, now)
        self._tell(self._observers.tell_task, now)
        self._measure(now)

    def _measure(self, now: float) -> None:
        """End the run before its first model call if its window is too small for any agent; warn if
        it is small.
        """
        window = self._window
        if window is None or window.tokens is None or self.stop is not None:
            return
        if window.problem is not None:
            reason = TerminateReason.WINDOW_TOO_SMALL
            self._decide(Stop(reason, window.problem, "window", limit=TOO_SMALL_TOKENS, value=window.tokens), now)
        elif window.warning is not None:
            self._emit(events.WindowWarning(self.at(now), window.tokens, window.warning))

    def take_up(self, past: ResumedRun, run: str, now: float, *, decides: bool = False, lost: bool = False) -> None:
        """The run `run` goes on where it was when its process ended. What it had decided holds.

        `decides`: what follows from the last turn is not on record. It is decided now, or when the
        calls that were left open have their results. `lost`: the answer of the last turn was
        not stored, so the turn is made again.
        """
        self._counters = past.counters.copy()
        self._counters.began = now - past.elapsed_s
        spending = self._limits.spending
        for judge, cost in past.judge_costs:
            spending.charge_judge(cost, counts=self._observers.judges.counts(judge))
        spending.charge_compaction(past.compaction_cost)
        spending.take_up(run, past.requests, past.nested, estimated=past.estimated)
        if self._run_goal.goal is not None:
            self._run_goal.goal.take_up(past.nudges, past.turn if past.undecided else None)
        self._steers = past.steers.copy() if past.steers.states else None
        self._tell(self._observers.tell_task, now)
        self._tell(partial(self._see_again, past.seen, now), now)
        if past.last_turn is not None:
            self._run_goal.cause = past.last_turn_cause or self._observers.verdicts.loop
            self._limits.only(Timeout(past.last_turn_due_s))
        self.turn = past.turn
        if past.turn is not None and (decides or lost):
            self._take_up_turn(past.turn, past.answered, lost=lost)
        if past.stop is not None and not lost:
            self._decide(past.stop, now)
        self._look(now, waiting=False)

    def _take_up_turn(self, turn: Turn, answered: Collection[str], *, lost: bool) -> None:
        """What follows from `turn` is decided in this process."""
        self._last = last = _LOST if lost else end_of(turn)
        if lost and not end_of(turn).void:
            self._counters.tool_calls -= len(turn.tool_calls)
        if last.void:
            self._last = replace(last, may_go_on=True)  # it is made again, whatever its failure was
            return
        self._unweighed = turn
        self._counters.phase = "after_call"
        self._running.open_calls = [call for call in turn.tool_calls if call.id not in answered]
        if last.may_go_on and last.failure is not None and isinstance(last.failure.evidence, Detection):
            self._running.cut = last.failure.evidence
        self._running.spoken_over = last.failure == SPOKEN_OVER

    def _see_again(self, seen: Sequence[Event], now: float) -> None:
        said, stop = self._observers.see_again(seen, self._hear)
        if stop is not None:
            self._decide(stop, now)
        self._running = self._another_turn({"text": said, "reasoning": 0}, 0.0)

    # ------------------------------------------------------------------ its turns

    def begin_turn(self, now: float) -> bool:
        """A stream is about to be opened. False: the run is over, do not open the stream."""
        counters = self._counters
        looked = (
            counters.phase == "before_call"
            and now - self._looked_at < SAME_MOMENT_S
            and now < self.deadline
            and self._agents is None
        )
        counters.phase = "before_call"
        if not looked:
            self._look(now, waiting=False, plan=False)
        if self.stop is not None:
            return False
        # The stream is another attempt at the same turn, or the first one of a new turn.
        before, self._last = self._last, None
        self._closing = None
        self.ends_stream = False
        if before is not None and before.void and before.failure is not None:
            counters.tool_calls -= len(self._running.calls)
            self._find(self._observers.retried, before.failure.reason.value, now)
            self._emit(events.AttemptRetried(self.at(now), counters.turns, before.failure.detail))
            offsets = self._running.offsets
        else:
            counters.turns += 1
            offsets = self._running.next_offsets if before is not None else self._running.offsets
            self._tell(self._observers.verdicts.turn_started, now)
        # From here on the turn is running.
        counters.model_calls += 1
        counters.errors.turn_started()
        counters.phase = "streaming"
        if counters.model_calls > 1:
            self._running = self._another_turn(offsets, now)
        else:  # what was made for the run is still as it was
            self._running.number, self._running.started_at = counters.turns, now
        self._emit(events.TurnStarted(self.at(now), counters.turns, counters.model_calls))
        self.waiting_since = now
        self._look(now, waiting=True, warn=True)
        self._hold_text()
        if self.stop is None:
            for work in self.background_work:
                work.turn_began()
        return True

    def _another_turn(self, offsets: dict[Channel, int], now: float) -> RunningTurn:
        return RunningTurn(
            number=self._counters.turns,
            keep_chars=self._keep_chars,
            started_at=now,
            offsets=offsets,
            keeps_message=self._supervised,
        )

    def begin_last_turn(self, last: LastTurn, now: float) -> None:
        """Begin one more turn of a run that is about to end. Only the last turn's own time and
        limits on silence count, and budgets and an abort.
        """
        cause = self.stop or self._observers.verdicts.loop
        assert cause is not None  # noqa: S101 - `check` has answered with a LastTurn
        self._run_goal.cause = cause
        self.stop, self.ends_stream = None, False
        if self._last is not None:
            # The stream before may have failed: that must not end the last turn.
            self._last = replace(self._last, may_go_on=True)
        self._observers.verdicts.clear()
        self._limits.only(Timeout(self.at(now) - self._counters.pauses.total_s(now) + last.seconds))
        self.deadline = math.inf
        self._emit(events.LastTurnStarted(self.at(now), cause.reason, last.seconds, last.tools))
        self._look(now, waiting=False)

    def new_task(self, text: str, now: float) -> None:
        """The user asks for something else. Detectors and policy begin again; counts, limits and
        budgets go on.
        """
        if not self._counters.model_calls:
            self.request(text, now)
            return
        self._weigh(now)
        self._last = None
        self._running = self._another_turn({"text": 0, "reasoning": 0}, now)
        self._counters.errors.add(is_error=False)
        self._tell(partial(self._observers.new_task, text), now)

    def first_chunk(self, now: float) -> None:
        """The stream delivered its first object."""
        running = self._running
        running.first_chunk_seen = True
        self._emit(events.FirstChunk(self.at(now), self._counters.turns, now - running.started_at))

    def continued(self, now: float) -> None:
        """The SDK has made another model call inside the running stream, by itself."""
        self._counters.model_calls += 1
        self._emit(events.StreamContinued(self.at(now), self._counters.turns, self._counters.model_calls))
        self._look(now, waiting=False)

    def next_turn(self, results: Sequence[ToolResult], now: float) -> None:
        """The SDK has carried out the calls of the running turn by itself, and the model answers
        again in the same stream. `results`: what the calls gave, where the SDK shows it.
        """
        if self._supervised:
            raise AdapterError(
                "the SDK has carried out calls by itself inside the stream of a supervised run, which carries them out:"
                " switch automatic function calling off"
            )
        self.end_turn(now, finished=True)
        for result in results:
            calls = [call for call in self.open_calls if call.name == result.name]
            call = next((call for call in calls if call.id == result.id), calls[0] if calls else None)
            if call is not None:
                self._counters.results_inside += 1
                self.tool_result(call.id, result.text, now, is_error=result.is_error)
        self._sdk_calls = True
        if not self.begin_turn(now):
            self._ended_inside = True

    def broke_off(self) -> None:
        """The running stream is over, but broke off inside an answer that began after the last
        finished one.
        """
        self._running.finish = None

    def end_turn(
        self,
        now: float,
        *,
        finished: bool,
        must_finish: bool = False,
        error: BaseException | None = None,
        model_error: ModelError | None = None,
        gave: tuple[str, ...] = (),
    ) -> Turn:
        """The stream is over.

        `finished`: it ended by itself; else it was left, or it failed with `error`, classified as
        `model_error`. `must_finish`: such a stream closes with a finish reason, so without one it
        was truncated. `gave`: the kinds of parts that came beside text, thinking and calls.
        """
        if self._ended_inside and self.turn is not None:
            self.turn = replace(self.turn, stopped=self.stop)
            return self.turn
        self._catch_up_wholly(now)
        self._take_text(now)
        if self._must_look:
            self._look(now, waiting=False)
        if model_error is not None:
            self._emit(events.StreamFailed(self.at(now), self._counters.turns, model_error))
        # Was it a turn, or only a failed attempt at one?
        running = self._running
        running.spoken_over &= not finished
        running.gave = gave
        self._last = last = stream_end(
            running, finished=finished, error=error, model_error=model_error, must_finish=must_finish
        )
        if last.void:
            self._counters.errors.add(is_error=True)
        # What it cost counts in either case.
        self.turn = turn = running.ended(stopped=self.stop or last.failure, error=error, model_error=model_error)
        self._limits.spending.settle(turn.usage, estimated=turn.usage_estimated)
        self._counters.phase = "after_call"
        self._emit(events.TurnEnded(self.at(now), turn))
        if not last.void:
            self._observers.judges.add_turn(turn, self.at(now))
            self._unweighed = turn
            if running.finish is None and self.stop is None:
                # A turn that was cut is over for the detectors too.
                self._find(self._observers.detectors.fact, TurnFinished(FinishReason.DONE), now)
        return turn

    def source_closed(self, now: float, *, since: float, closed: bool, chunks_dropped: int, note: str | None) -> None:
        """The harness tried to close the source; `closed` says whether it is closed. `since`: when
        closing began.
        """
        since = self._decided_at if self.stop is not None else since
        self._closing = events.StreamClosed(
            at_s=self.at(now),
            turn=self._counters.turns,
            closed=closed,
            after_s=now - since,
            chunks_dropped=chunks_dropped,
            note=note,
        )
        self._emit(self._closing)

    def retract(self) -> None:
        """The last stream was cut off for lack of room. The same turn will be made again with more
        room, and nothing of this stream counts.
        """
        if self._last is not None and self._last.failure is not None and self.stop is None:
            self._last = replace(self._last, void=True)
            self._unweighed = None

    def will_retry(self, delay_s: float) -> None:
        """The next attempt at the failed turn begins in `delay_s` seconds."""
        self._counters.retry_delay_s += delay_s

    # ------------------------------------------------------------------ how it stands

    @property
    def results_inside(self) -> int:
        """Results that came from the SDK, which has carried out the calls by itself."""
        return self._counters.results_inside

    @property
    def open_calls(self) -> Sequence[ToolCall]:
        """Calls of the present turn that have no result yet, oldest first."""
        return self._running.open_calls

    @property
    def failed_attempt(self) -> Stop | None:
        """Why the last stream was a failed attempt at its turn. `None`: it was not, or the run ends
        anyway.
        """
        return self._last.failure if self._last is not None and self._last.void and self.stop is None else None

    @property
    def spoken_over(self) -> bool:
        """Whether the last stream was ended for a message to the run."""
        return self._running.spoken_over

    @property
    def in_last_turn(self) -> bool:
        """A limit has been reached, and the run has one more turn instead of its end."""
        return self._run_goal.cause is not None

    @property
    def takes_own_calls(self) -> bool:
        """Whether the last turn's calls of the run's own tools count. They do unless the turn was
        cut for a loop, or the run ends for more than a limit.
        """
        return (
            self._running.cut is None
            and not self._running.spoken_over
            and self._abort_why is None
            and (self.stop is None or self.stop.reason in LIMITS)
        )

    def reply(self, looped: LoopedText = "trim") -> tuple[Part, ...]:
        """The parts of the last turn's message, as `take_reply` will return them."""
        return () if self._last is None or self.void else self._running.message(looped)

    def take_reply(self, looped: LoopedText = "trim") -> tuple[Part, ...]:
        """Return the parts of the last turn's message, fit for the history, and clear them. Only
        for a supervised run. A failed attempt has none.
        """
        parts = self._running.take_message(looped)
        return () if self._last is None or self.void else parts

    # ------------------------------------------------------------------ chunks

    def feed(self, chunk: Chunk, now: float) -> None:
        """Take in the next chunk of the running stream. Raises `AdapterError` for anything that is
        not a chunk.
        """
        if isinstance(chunk, TextDelta):
            self.feed_text(chunk.text, now)
            return
        check_chunk(chunk)
        if self.left:
            self._catch_up_wholly(now)
        if not isinstance(chunk, ReasoningDelta | ToolCallDelta):
            self._feed_fact(chunk, now)
        elif len(chunk.text if isinstance(chunk, ReasoningDelta) else chunk.arguments_text) > PIECE_CHARS:
            self._pour(chunk, now)
        else:
            self._feed_piece(chunk, now)

    def feed_text(self, text: str, now: float) -> bool:
        """Take in the next piece of visible text, as a `TextDelta` without the object. True: pieces
        of it are `left`.
        """
        if type(text) is not str and not isinstance(text, str):
            raise AdapterError(
                f"expected a piece of text, got {type(text).__name__}; in a stream of chunks, text is a TextDelta"
            )
        self._running.parts.append(text)
        self._free_chars -= len(text)
        if self._free_chars <= 0:
            if self.left or len(text) > PIECE_CHARS:
                self._running.parts.pop()
                if self.left:
                    self._catch_up_wholly(now)
                self._pour(TextDelta(text), now)
                return bool(self.left)
            self._take_text(now)
        return False

    def catch_up(self, now: float) -> None:
        """Examine one more piece of a huge delta."""
        if self.left:
            self._feed_piece(self.left.pop(), now)

    def _catch_up_wholly(self, now: float) -> None:
        while self.left:
            self._feed_piece(self.left.pop(), now)

    def _pour(self, delta: Delta, now: float) -> None:
        """Examine a huge delta piece by piece."""
        self.left = [*pieces_of(delta)][::-1]
        self._free_chars = 0
        if self.piecewise:
            self.catch_up(now)
        else:
            self._catch_up_wholly(now)

    def _feed_piece(self, delta: Delta, now: float) -> None:
        running = self._running
        if isinstance(delta, TextDelta):
            running.parts.append(delta.text)
            if self.stop is None:
                self._take_text(now)
            else:  # the run is over: nobody reads the rest of a flood
                self._spend(running.count(running.take_text()), now)
        elif isinstance(delta, ReasoningDelta):
            if self._supervised:
                self._take_text(now)
            eighths = running.add_reasoning(delta)
            if self.stop is None:
                self._find(self._observers.detectors.reasoning, delta, now)
            self._spend(eighths, now)
        else:
            if self.stop is None:
                self._find(self._observers.detectors.arguments, delta, now)
            self._spend(running.count_arguments(delta), now)

    def _feed_fact(self, chunk: Chunk, now: float) -> None:
        self._take_text(now)
        running, fact = self._running, self._observers.detectors.fact
        match chunk:
            case ToolCall():
                self._feed_call(chunk, now)
            case TurnFinished():
                running.finish = chunk
                # A malformed end makes the attempt void: what came in it is taken back later.
                if chunk.finish_reason is not FinishReason.MALFORMED:
                    self._find(fact, chunk, now)
                self._feed_end(chunk, now)
                return
            case StreamRetried():
                self._counters.tool_calls -= len(running.calls)
                self._running.restart()
                self._emit(events.AttemptRetried(self.at(now), self.turns, chunk.reason))
                self._find(self._observers.retried, chunk.reason, now)
            case UsageReport():
                running.report(chunk)
                self._find(fact, chunk, now)
            case _:
                self._find(fact, chunk, now)
        self._look(now, waiting=False)

    def _feed_call(self, call: ToolCall, now: float) -> None:
        self._counters.tool_calls += 1
        abridged = abridged_arguments(call.arguments)
        call, eighths = self._running.add_call(call, abridged[1] if abridged is not None else None)
        self._spend(eighths, now)
        self._called = call.id
        self._find(partial(self._observers.call, abridged=abridged), call, now)
        self._called = None

    def _feed_end(self, end: TurnFinished, now: float) -> None:
        """The model's answer is finished, and perhaps the stream goes on."""
        if end.finish_reason is FinishReason.REPETITION or end.raw_finish_reason in REPETITION_WORDS:
            said = end.raw_finish_reason or end.finish_reason.value
            detail = f"the provider stopped its model for repetition ({said})"
            self._decide(Stop(TerminateReason.LOOP_DETECTED, detail, "provider"), now)
        elif self._sdk_calls and self._running.calls:
            # The SDK makes the next model call with the next read: its limits are checked now.
            self._counters.phase = "before_call"
            self._look(now, waiting=False)
            self._counters.phase = "streaming"

    def _take_text(self, now: float) -> None:
        """Give the collected visible text to the detectors, and count it.

        Called when a detector, a token limit or the next fact needs the text.
        """
        running = self._running
        text = running.take_text()
        if text:
            for start in range(0, len(text), PIECE_CHARS):
                self._find(self._observers.detectors.text, text[start : start + PIECE_CHARS], now)
                if self.stop is not None:
                    break  # the run is over: nobody reads the rest of a flood
            self._spend(running.count(text), now)
        self._hold_text()

    def _hold_text(self) -> None:
        """Collect visible text until a detector, a limit or the memory needs it."""
        self._free_chars = min(self._limits.free_chars, self._observers.detectors.need, HOLD_CHARS)

    def _spend(self, eighths: int, now: float) -> None:
        """Count output tokens, and check the limits if one may be exceeded."""
        if self._limits.spend(eighths):
            self._look(now, waiting=False, warn=True)
        elif self._limits.free_chars < self._free_chars:
            self._free_chars = 0

    # ------------------------------------------------------------------ calls

    def tool_result(
        self,
        call: str | None,
        text: str,
        now: float,
        *,
        is_error: bool = False,
        vetoed: bool = False,
        progress: float | None = None,
    ) -> None:
        """A tool answered. `call`: the id of the call. `None`: the oldest call of the turn without
        an answer.

        `vetoed`: the call was not carried out, and `text` is the monitor's message instead. It
        counts neither as an error nor as a success. `progress`: the tool's number that is to be
        lowered.
        """
        if self._outcome is not None:
            return  # a tool that was still running when the run ended
        known = self._running.take_call(call)
        if known is not None:
            self._counters.tool_answered(known.name)
            if not vetoed:
                self._counters.errors.add(is_error=is_error)
        else:
            self._emit(events.ResultUnmatched(self.at(now), call))
        of, name = (known.id, known.name) if known is not None else (call or "", "")
        result = ToolResult(of, name, text, is_error, vetoed=vetoed, progress=progress)
        self._find(partial(self._observers.result, at_s=self.at(now)), result, now)
        self._look(now, waiting=False)

    def answer_call(self, call: ToolCall, now: float) -> ToolResult | None:
        """Answer a call that is refused, or one of the run's own tools, and take in the result.
        `None`: somebody else has to carry it out.
        """
        if (words := self._observers.verdicts.refuse(call.id)) is not None:
            text = f"{VETO} This call was not carried out. {words}"
            self.tool_result(call.id, text, now, is_error=True, vetoed=True)
            return ToolResult(call.id, call.name, text, is_error=True, vetoed=True)
        goal = self._run_goal.goal
        answer = goal.answer(call) if goal is not None else None
        if goal is None or answer is None:
            return None
        news = goal.news(call, self.at(now), self.turns) if not answer.is_error else None
        if news is not None:
            self._emit(news)
        self.tool_result(call.id, answer.text, now, is_error=answer.is_error)
        return ToolResult(call.id, call.name, answer.text, answer.is_error)

    # ------------------------------------------------------------------ findings and verdicts

    def check(self, now: float) -> Verdict:
        """The verdict for now, between turns. A `Stop` of a failed stream is not final: the turn
        may be tried again. Any other `Stop` is.
        """
        if self._outcome is not None:
            return self._ending(None)
        if self._counters.phase != "streaming":
            self._counters.phase = "after_call" if self._has_answered else "before_call"
            self._weigh(now)
        self._look(now, waiting=False)
        if self.stop is not None:
            return self._run_goal.instead_of(self.stop) or self.stop
        last = self._last
        if last is not None and not last.left and last.failure is not None and not last.may_go_on:
            return last.failure
        verdict = self._observers.next_verdict(self.turns)
        if isinstance(verdict, LastTurn) and self._supervised:
            loop = self._observers.verdicts.loop
            assert loop is not None  # noqa: S101 - a detection is behind it
            verdict = self._run_goal.by_policy(verdict, loop)
            if isinstance(verdict, Stop):
                self._decide(verdict, now)
        return verdict

    @property
    def _has_answered(self) -> bool:
        """Whether the last turn is a complete answer in the caller's own loop, which may end with
        it. Limits on turns are then checked when the next turn begins.
        """
        if self._supervised or self._run_goal.goal is not None or self.turn is None or self.turn.tool_calls:
            return False
        return self._last is not None and not self._last.left and self._last.failure is None

    def _weigh(self, now: float) -> None:
        """Ask the goal about the turn that just ended. A goal that is reached wins over a limit
        that is exceeded in the same turn.
        """
        turn, self._unweighed = self._unweighed, None
        last, running = self._last, self._running
        if turn is None or last is None or self._abort_why is not None:
            return
        if self.stop is not None:
            end = self._run_goal.instead_of_limit(self.stop)
            if end is not None:
                self.stop = None
                self._decide(end, now)
        elif not running.spoken_over:  # else the answer is not whole, and the model reads a message next
            self._follow(self._run_goal.verdict_on(turn, last, running.cut, self._steers), now)

    def finish(self, detail: str) -> None:
        """The caller says that the goal is reached. That changes no decided end, and no failure
        into a success.
        """
        self._run_goal.reached = detail

    def terminate(
        self,
        now: float,
        fallback: Stop | None = None,
        error: BaseException | None = None,
        *,
        history: tuple[Message, ...] = (),
    ) -> Outcome:
        """End the run and return its one outcome. `fallback`, with `error`: the reason if nothing
        was decided before. `history`: see `Outcome.history`.
        """
        if self._outcome is not None:
            return self._outcome
        if self._must_look or self._parent is not None:
            self._look(now, waiting=False)
        stop = self._ending(fallback)
        returned = self._steers.give_back() if self._steers is not None and stop.reason not in RESUMABLE else ()
        for message in returned:
            self._emit(events.SteerReturned(self.at(now), self.turns, message, stop.detail))
        if stop is self.stop:
            error = self._stop_error
        elif stop is not fallback:
            error = self._last.error if self._last is not None else None
        self._limits.spending.post()
        if self._parent is not None:
            self._parent.nested_ended(self, *self._limits.spending.total(), now)
        self._outcome = outcome_of(
            stop,
            error=error,
            turn=self.turn,
            turns=self.turns + self._counters.others_turns,
            elapsed_s=self.at(now),
            goal=self._run_goal.goal,
            spending=self._limits.spending,
            recovered_from=self._run_goal.cause,
            closing=self._closing,
            pending=self.pending,
            returned=returned,
            history=history,
        )
        if self._agents is not None:
            self._agents.ended(self, self._closing, now)
        self._emit(events.RunTerminated(self.at(now), self._outcome))
        self._emit = _nobody  # nothing happens in a run that is over, and the listener may be freed
        return self._outcome

    def _ending(self, fallback: Stop | None) -> Stop:
        return self._run_goal.ending(self.stop or fallback, self._last)


def _nobody(event: Event) -> None:
    """The listener of a run that is over."""

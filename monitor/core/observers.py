"""What a run is watched by, and what follows from a finding.

`Observers` are the detectors, the policy and the judges: what one of them is shown, the others are
shown too. `VerdictQueue` keeps the verdicts until the harness performs them. `ObservedRun` takes in
findings, judgements and messages, and follows the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from monitor import events
from monitor.chunks import AskCost, StreamRetried, ToolCall, ToolResult, TurnFinished
from monitor.core.detector_bank import DetectorBank, PartCrash, abridged_arguments, abridged_text
from monitor.core.ending import RunGoal, SteerQueue
from monitor.core.limited_run import LimitedRun, Limits
from monitor.core.turn import WRITTEN, RunningTurn, is_written_loop
from monitor.detectors.calls.allowance import Allowance
from monitor.detectors.detector import Detector, MadeLate
from monitor.errors import FinishReason, TerminateReason
from monitor.events import Event
from monitor.judges.judge import NO_JUDGES, Judge, JudgeInput, RunJudges, detection_of
from monitor.messages import SteerMessage, SteerState
from monitor.outcome import Turn
from monitor.policy import Policy, TurnPolicy, stop_for
from monitor.verdicts import (
    Compact,
    Continue,
    Detection,
    Fact,
    Hold,
    Judgement,
    LastTurn,
    Level,
    Nudge,
    RefuseCall,
    Stop,
    Verdict,
    WithdrawTool,
)

T = TypeVar("T")

_ANSWERS = (
    events.Nudged,
    events.SteerDelivered,
    events.ToolWithdrawn,
    events.TurnStarted,
    events.LastTurnStarted,
)
"""Events after which the verdicts before them were performed."""


ANSWERED_WITHIN = 3
"""Findings of a loop that the request allows, until they stand without a judge's answer."""


class AllowedLoops:
    """Sure findings about calls that the user's request plainly allows: "20 times", "wait until".
    A judge of loops is asked before they have consequences.
    """

    __slots__ = ("_allowance", "_spared", "_waited", "waiting")

    def __init__(self) -> None:
        self._allowance = Allowance()
        self._spared: dict[str, int] = {}
        """For a loop of an acquitted run: the count up to which it has no consequences."""
        self._waited = 0
        self.waiting: Detection | None = None
        """The newest finding that waits for a judge."""

    def request(self, text: str) -> None:
        """Read a request of the user."""
        self._allowance.add(text)

    def holds(self, detection: Detection) -> bool:
        """Whether `detection` has no consequences now: it waits for a judge, or a judge has
        acquitted the run before.
        """
        if detection.level != "loop" or detection.channel != "tools":
            return False
        if not self._allowance.repetitions(without_arguments=False):
            return False
        if detection.count <= self._spared.get(detection.evidence.xxhash, 0):
            return True
        self._waited += 1
        self.waiting = detection if self._waited <= ANSWERED_WITHIN else None
        return self.waiting is not None

    def answered(self, *, acquitted: bool) -> Detection | None:
        """A judge has answered, or has failed. Returns the finding that stands now. After an
        acquittal the loop may grow to twice its count.
        """
        found, self.waiting, self._waited = self.waiting, None, 0
        if found is not None and acquitted:
            self._spared[found.evidence.xxhash] = 2 * found.count
            return None
        return found


class Observers:
    """The detectors, the policy and the judges of one run. All methods raise `PartCrash` if a part
    fails.
    """

    __slots__ = ("_loop_key", "_task", "allowed", "detectors", "judges", "verdicts")

    def __init__(
        self,
        detectors: Sequence[Detector],
        of_calls: MadeLate | None,
        *,
        policy: Policy,
        judges: Sequence[Judge],
        task: str | None,
        loop_key: Callable[[str, Any], Any] | None,
    ) -> None:
        """See `RunCore`."""
        self.detectors = DetectorBank(detectors, of_calls)
        self.verdicts = VerdictQueue(policy)
        self.judges = _run_judges(judges, task) if judges else NO_JUDGES
        self.allowed: AllowedLoops | None = AllowedLoops() if self.judges.judge_loops else None
        self._task = task
        self._loop_key = loop_key

    def reset(self) -> None:
        """A new run begins, of which nothing is known."""
        self.verdicts.reset()
        self.detectors.reset()

    def tell_task(self) -> None:
        """Show the detectors the user's request, if there is one. The judges have it."""
        if self._task:
            self._read_request(self._task)

    def _read_request(self, text: str) -> None:
        self.detectors.request(text)
        if self.allowed is not None:
            self.allowed.request(text)

    def request(self, text: str) -> None:
        """The user asks for something more."""
        self.judges.request(text)
        self._read_request(text)

    def new_task(self, text: str) -> None:
        """The user asks for something else: detectors and policy begin again."""
        self.reset()
        self.verdicts.clear()
        self.request(text)

    def hear(self, message: SteerMessage, turn: int, *, is_progress: bool) -> None:
        """A message to the run. `is_progress`: a person has said something new."""
        if is_progress:
            self.request(message.text)
            self.detectors.forget_streaks()
            self.verdicts.forgive()
        else:
            self.judges.add_warning(turn, message.text)

    def call(self, call: ToolCall, abridged: tuple[Any, int] | None) -> Sequence[Detection]:
        """The model calls a tool. `abridged`: see `abridged_arguments`."""
        if self._loop_key is not None and (key := self._loop_key(call.name, call.arguments)) is not None:
            call = replace(call, loop_key=key)
        return self.detectors.fact(call if abridged is None else replace(call, arguments=abridged[0]))

    def result(self, result: ToolResult, at_s: float | None = None) -> Sequence[Detection]:
        """A tool has answered, `at_s` seconds after the run began."""
        result = replace(result, text=abridged_text(result.text))
        self.judges.add_result(result, at_s)
        return self.detectors.fact(result)

    def verdict_on(self, detection: Detection) -> Verdict:
        """The verdict on a finding, which may have to wait for a judge."""
        if detection.kind != "judge":
            self.judges.found(detection)
            if self.allowed is not None and self.allowed.holds(detection):
                return Continue()
        return self.verdicts.verdict_on(detection)

    def judged(self, name: str, judgement: Judgement | None, cost: AskCost) -> tuple[Level | None, Detection | None]:
        """The judge `name` has answered, or has failed. Returns the level of its finding, and the
        finding of a detector that has waited for it and stands. An acquittal takes back what was
        only doubted.
        """
        doubt = self.judges.doubt
        level, acquitted = self.judges.answered(name, judgement, cost)
        if acquitted and doubt == "suspect":
            self.verdicts.forgive()
        if self.allowed is None or acquitted is None:
            return level, None
        return level, self.allowed.answered(acquitted=acquitted)

    def retried(self, why: str) -> Sequence[Detection]:
        """The attempt is void, and the model tries again."""
        self.verdicts.take_back()
        return self.detectors.fact(StreamRetried(why))

    def next_verdict(self, turn: int) -> Verdict:
        """Remove and return the next verdict to perform. The judges see its text for the model."""
        verdict = self.verdicts.pop()
        if isinstance(verdict, Nudge | RefuseCall | WithdrawTool):
            self.judges.add_warning(turn, verdict.text)
        return verdict

    def see_again(self, seen: Iterable[Event], hear: Callable[[SteerMessage, int], None]) -> tuple[int, Stop | None]:
        """Show all parts what they have seen before. What they find again was answered then, but
        for the last verdicts. `hear` takes a message and its turn.

        Answers the code points of the text, and the end that the policy decides last.
        """
        said, stop = 0, None
        for event in seen:
            match event:
                case events.DetectionRaised(detection=detection):
                    stop = self._follow_again(self.verdict_on(detection), detection) or stop
                case events.JudgeAnswered() | events.JudgeFailed() if self.judges.knows(event.judge):
                    judgement = event.judgement if isinstance(event, events.JudgeAnswered) else None
                    _, stands = self.judged(event.judge, judgement, event.cost)
                    if stands is not None:
                        stop = self._follow_again(self.verdicts.verdict_on(stands), stands) or stop
                case events.SteerDelivered(turn=turn, message=message):
                    hear(message, turn)
                case events.TurnEnded(turn=turn):
                    said += turn.text_chars
                    self._see_turn_again(turn, event.at_s)
                case _:
                    self._see_event_again(event)
            if isinstance(event, _ANSWERS) or _handed_over(event):
                self.verdicts.clear()
                stop = None
        self.judges.left_alone()
        return said, stop

    def _follow_again(self, verdict: Verdict, detection: Detection) -> Stop | None:
        if isinstance(verdict, Stop):
            return verdict
        if not isinstance(verdict, Continue):
            self.verdicts.add(verdict, detection)
        return None

    def _see_turn_again(self, turn: Turn, at_s: float) -> None:
        self.judges.add_turn(turn, at_s)
        self.detectors.text(turn.text)
        for call in turn.tool_calls:
            self.call(call, abridged_arguments(call.arguments))
        self.detectors.fact(TurnFinished(turn.finish_reason or FinishReason.DONE))

    def _see_event_again(self, event: Event) -> None:
        match event:
            case events.TurnStarted():
                self.verdicts.turn_started()
            case events.ToolFinished(result=result):
                self.result(result, event.at_s)
            case events.CompactionFinished():
                self.judges.add_compaction(event)
            case events.AttemptRetried(why=why):
                self.retried(why)
            case events.JudgeAsked(turn=turn, judge=name) if self.judges.knows(name):
                self.judges.asked(name, turn)
            case _:
                pass


def _handed_over(event: Event) -> bool:
    """Whether a process has left the run between two turns, where every verdict was performed."""
    return isinstance(event, events.RunTerminated) and event.outcome.reason is TerminateReason.WORKER_STOPPING


def _run_judges(judges: Sequence[Judge], task: str | None) -> RunJudges:
    # only a run with a judge needs these
    from monitor.detectors.calls.learned_evidence import LearnedEvidence  # noqa: PLC0415
    from monitor.judges.digest import IdleSteps  # noqa: PLC0415

    return RunJudges(judges, task, idle_steps=IdleSteps(LearnedEvidence(), task))


class VerdictQueue:
    """The policy of one run, and its verdicts that the harness has not performed yet, oldest first.

    All methods that call the policy raise `PartCrash` if it fails.
    """

    __slots__ = ("_before", "_policy", "_turn_policy", "_waiting", "loop", "refused")

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        # By the name of the method: checking a whole protocol takes 20 us.
        self._turn_policy = cast("TurnPolicy", policy) if callable(getattr(policy, "turn_started", None)) else None
        self._waiting: tuple[tuple[Verdict, Detection | None], ...] = ()
        self._before: tuple[Mapping[str, Any] | None, int] | None = None
        """The policy's snapshot, and how many verdicts were waiting, before the turn's first
        finding.
        """
        self.loop: Stop | None = None
        """The stop for the loop behind the latest verdict."""
        self.refused: dict[str, RefuseCall] = {}
        """By the id of a call of this turn: it is not to be carried out."""

    def reset(self) -> None:
        """A new run begins, of which nothing is known."""
        try:
            self._policy.reset()
        except Exception as error:
            raise PartCrash(type(self._policy).__name__, error) from error

    def forgive(self) -> None:
        """A person has said something new to the model: what it did before has no consequences."""
        self.take_back()
        self.reset()

    def turn_started(self) -> None:
        """The model answers again, and has received all verdicts so far."""
        self._before = None
        self.refused.clear()
        if self._turn_policy is not None:
            try:
                self._turn_policy.turn_started()
            except Exception as error:
                raise PartCrash(type(self._policy).__name__, error) from error

    def verdict_on(self, detection: Detection) -> Verdict:
        """The policy's verdict on a finding."""
        try:
            if self._before is None:
                snapshot = getattr(self._policy, "snapshot", None)  # a small policy of the caller's may do without
                self._before = snapshot() if snapshot is not None else None, len(self._waiting)
            verdict = self._policy.decide(detection)
            if not isinstance(verdict, Continue | Nudge | RefuseCall | WithdrawTool | Hold | Compact | LastTurn | Stop):
                raise TypeError(f"expected a verdict, got {verdict!r}")
        except Exception as error:
            raise PartCrash(type(self._policy).__name__, error) from error
        return verdict

    def add(self, verdict: Verdict, detection: Detection | None = None) -> None:
        """Keep `verdict` to be performed between turns. `detection`: the finding it follows from,
        if it is the policy's. A loop removes a waiting nudge about a mere suspicion in the same
        text.
        """
        if detection is not None:
            self.loop = stop_for(detection)
            if detection.level == "loop":
                self._waiting = tuple(waiting for waiting in self._waiting if not _suspects(*waiting, detection))
        self._waiting += ((verdict, detection),)

    def refuse(self, call_id: str) -> str | None:
        """Perform the verdict on this call: the words to answer it with. `None`: there is none."""
        verdict = self.refused.pop(call_id, None)
        self._waiting = tuple(waiting for waiting in self._waiting if verdict is None or waiting[0] is not verdict)
        return verdict.text if verdict is not None else None

    def pop(self) -> Verdict:
        """Remove and return the next verdict to perform. `Continue`: there is none."""
        if not self._waiting:
            return Continue()
        (verdict, _), self._waiting = self._waiting[0], self._waiting[1:]
        return verdict

    def clear(self) -> None:
        """Drop all verdicts that still wait."""
        self._waiting = ()

    def take_back(self) -> None:
        """The attempt is void: drop the verdicts on its findings, and restore the policy's state.
        The model never saw the text that they are about.
        """
        self.refused.clear()
        if self._before is not None:
            state, waiting = self._before
            self._before = None
            self._waiting = self._waiting[:waiting]
            try:
                if state is not None:
                    self._policy.restore(state)
            except Exception as error:
                raise PartCrash(type(self._policy).__name__, error) from error


def _suspects(verdict: Verdict, suspicion: Detection | None, loop: Detection) -> bool:
    """Whether `verdict` only warns of a suspicion in the text in which `loop` was found."""
    return (
        isinstance(verdict, Nudge)
        and suspicion is not None
        and suspicion.level == "suspect"
        and suspicion.channel == loop.channel
    )


class ObservedRun(LimitedRun):
    """A limited run with its detectors, its policy, its judges, and the messages to it."""

    __slots__ = ("_called", "_cuts", "_observers", "_steers")

    def __init__(
        self,
        limits: Limits,
        goal: RunGoal,
        running: RunningTurn,
        observers: Observers,
        *,
        emit: Callable[[Event], None],
        parent: LimitedRun | None,
        cuts: bool,
    ) -> None:
        """`cuts`: a stream in which text loops is left although the run goes on."""
        super().__init__(limits, goal, running, emit=emit, parent=parent)
        self._observers = observers
        self._cuts = cuts
        self._called: str | None = None  # the id of the call that the detectors are being shown
        self._steers: SteerQueue | None = None  # most runs get no message

    def snapshots(self) -> dict[str, Any]:
        """The snapshots of the detectors, by their names."""
        return self._observers.detectors.snapshots()

    # ------------------------------------------------------------------ findings and verdicts

    def found(self, detection: Detection, now: float) -> None:
        """Take in a detection of the harness itself."""
        self._tell(lambda: self._take(detection, now), now)

    def _find(self, ask: Callable[[T], Sequence[Detection]], what: T, now: float) -> None:
        """Call the detectors with `ask(what)`, and take their findings one by one, each with the
        policy's verdict.
        """
        try:
            for detection in ask(what):
                if self.ends_stream and detection.channel in WRITTEN:
                    break  # the stream is being left: later findings in the same piece are dropped
                self._take(detection, now)
        except PartCrash as crash:
            self.fail(crash.error, crash.name, now)

    def _take(self, detection: Detection, now: float) -> None:
        """Take one finding, and follow the policy's verdict on it. Raises `PartCrash` if the policy
        fails.
        """
        self._emit(events.DetectionRaised(self.at(now), self.turns, detection))
        if is_written_loop(detection):
            self._running.loop = detection
        self._follow(self._observers.verdict_on(detection), now, detection)

    def _tell(self, part: Callable[[], None], now: float) -> None:
        """Call `part`, a method of the detectors or the policy. If it fails, the run ends."""
        try:
            part()
        except PartCrash as crash:
            self.fail(crash.error, crash.name, now)

    def _follow(self, verdict: Verdict, now: float, detection: Detection | None = None) -> None:
        if isinstance(verdict, Stop):
            if self._abort_why is None:  # the user's abort wins
                self._decide(verdict, now)
        elif not isinstance(verdict, Continue):
            self._observers.verdicts.add(verdict, detection)
            if isinstance(verdict, RefuseCall) and self._called is not None:
                self._observers.verdicts.refused[self._called] = verdict
            if (
                detection is not None
                and self._cuts
                and self._counters.phase == "streaming"
                and is_written_loop(detection)
            ):
                self._running.cut = detection
                self.ends_stream = True

    # ------------------------------------------------------------------ messages

    def request(self, text: str, now: float) -> None:
        """The user asks for something more."""
        self._tell(partial(self._observers.request, text), now)

    def steer(self, message: SteerMessage, now: float) -> SteerState:
        """Accept the word of a person or a program to the run, and say what has become of it. A
        message whose id is known stays what it is. After the end of the run it is returned.
        """
        if self._steers is None:
            self._steers = SteerQueue()
        if self._outcome is None and self._steers.accept(message):
            self._emit(events.SteerAccepted(self.at(now), self.turns, message))
            if message.now and self._counters.phase == "streaming" and self.stop is None:
                self._running.spoken_over = self.ends_stream = True
        return self._steers.states.get(message.id, "returned")

    def deliver(self, now: float) -> Sequence[SteerMessage]:
        """The messages that enter the history now, before the next model call."""
        due = self._steers.due() if self._steers is not None and self.stop is None else ()
        for message in due:
            self._emit(events.SteerDelivered(self.at(now), self.turns, message))
            self._tell(partial(self._hear, message, self.turns), now)
        return due

    def _hear(self, message: SteerMessage, turn: int) -> None:
        """Everyone hears a message to the run. A person's word is progress."""
        assert self._steers is not None  # noqa: S101 - the message was in it
        is_progress = self._steers.is_progress(message)
        self._observers.hear(message, turn, is_progress=is_progress)
        if is_progress:
            self._counters.errors.add(is_error=False)

    # ------------------------------------------------------------------ judges

    def set_scene(self, rules: str, tools: Iterable[str]) -> None:
        """What the agent works with, for the judges: its rules and the names of its tools."""
        self._observers.judges.set_scene(rules, tools)

    def compacted(self, event: events.CompactionFinished) -> None:
        """The history was compacted, which the judges read."""
        self._observers.judges.add_compaction(event)

    def judges_due(self, now: float) -> list[tuple[Judge, JudgeInput]]:
        """The judges that the harness must ask now, beside the stream, each with its input."""
        judges = self._observers.judges
        if not judges:
            return []
        if self.stop is not None or self._run_goal.cause is not None:
            return []
        allowed, (used, _) = self._observers.allowed, self._limits.spending.total()
        at_once = allowed is not None and allowed.waiting is not None
        due = judges.due(self.turns, used.total_tokens, at_once=at_once)
        for judge, told in due:
            self._emit(events.JudgeAsked(self.at(now), told.turn, judge.name))
        return due

    def judge_answer(self, judge: Judge, told: JudgeInput, judgement: Judgement, now: float, *, cost: AskCost) -> None:
        """A judge has answered, perhaps in the middle of a stream. In a last turn its finding has
        no effect.
        """
        if self._outcome is not None:
            return
        fact: Fact = "done" if judge.fact == "done" else "loop"  # no judge is taken in that has another
        self._emit(
            events.JudgeAnswered(
                at_s=self.at(now), turn=told.turn, judge=judge.name, fact=fact, judgement=judgement, cost=cost
            )
        )
        if fact == "done":
            self._counters.task_done = judgement.found
        self._judged(judge, told, judgement, cost, now)

    def judge_failed(self, judge: Judge, told: JudgeInput, why: str, now: float, *, cost: AskCost) -> None:
        """A judge gave no answer. The run goes on."""
        if self._outcome is None:
            self._emit(events.JudgeFailed(at_s=self.at(now), turn=told.turn, judge=judge.name, why=why, cost=cost))
            self._judged(judge, told, None, cost, now)

    def _judged(self, judge: Judge, told: JudgeInput, judgement: Judgement | None, cost: AskCost, now: float) -> None:
        """What follows from an answer. `None`: there was none."""
        try:
            level, stands = self._observers.judged(judge.name, judgement, cost)
            if self._run_goal.cause is None:
                if stands is not None:
                    self._follow(self._observers.verdicts.verdict_on(stands), now, stands)
                if level is not None and judgement is not None:
                    self._take(detection_of(judge, told, judgement, self.turns, level), now)
        except PartCrash as crash:
            self.fail(crash.error, crash.name, now)
        self._limits.spending.charge_judge(cost, counts=judge.counts)
        self._look(now, waiting=False)

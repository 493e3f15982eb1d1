"""A recorded run through the core that watches live ones: would it have been stopped, where, and
what would that have saved?

The policy is the guard's default unless another is given, so the first sure loop ends the run.
Where a recording was cut into pieces makes no difference to the detectors, so its text is fed in
long slices; what counts as saved is counted from the exact offset.

A judge, where there is one, is asked at the turns at which it would be asked live, and counts as
answering at once.

A recording does not answer to a warning: the model goes on as it did. A policy that warns first
shows here how far it would have had to go, not what the warning would have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from monitor.chunks import Chunk, TextDelta, ToolCall, ToolResult, TurnFinished
from monitor.core.run import RunCore
from monitor.detectors import default_detectors
from monitor.detectors.base import Detector
from monitor.events import Event
from monitor.judges.base import Judge, JudgeInput
from monitor.policy import Policy, StopAtFirstLoop, TurnPolicy
from monitor.reasons import TerminateReason
from monitor.transcripts.base import RecordedRun
from monitor.usage import AskCost
from monitor.verdicts import Compact, Continue, Detection, Hold, Judgement, LastTurn, Nudge, Stop, Verdict, WithdrawTool

SLICE_CHARS = 4_096
"""The length of the slices in which text is fed. A loop at the start of a huge message is found
before all of the message is read.
"""
KEPT_FOR_JUDGES = 2_000
"""Code points of a turn's text that are kept for a judge, as a guard keeps them."""

AskJudge: TypeAlias = Callable[[Judge, JudgeInput], Judgement | str]
"""Puts a question to a judge and waits; a text says why there is no answer."""

Rung: TypeAlias = Literal["observe", "nudge", "withdraw", "hold", "compact", "last_turn", "stop"]
_RUNGS: Mapping[type[Verdict], Rung] = {
    Continue: "observe",
    Nudge: "nudge",
    WithdrawTool: "withdraw",
    Hold: "hold",
    Compact: "compact",
    LastTurn: "last_turn",
    Stop: "stop",
}


@dataclass(slots=True, frozen=True)
class Amount:
    """How much a model produced."""

    chars: int = 0
    """Code points of visible text."""
    tool_calls: int = 0
    turns: int = 0
    """Model responses."""

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.chars + other.chars, self.tool_calls + other.tool_calls, self.turns + other.turns)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.chars - other.chars, self.tool_calls - other.tool_calls, self.turns - other.turns)


@dataclass(slots=True, frozen=True)
class Finding:
    """What a detector saw in a run, and what the policy did about it."""

    detection: Detection
    verdict: Verdict
    turn: int
    """The model response in which it was seen, counted from 1."""
    message: int
    """The index of the message in which it was seen."""
    char: int | None
    """For text: how many code points of that message were needed to see it."""
    start_char: int | None
    """For text: how many code points of that message stand before the first repetition."""

    @property
    def rung(self) -> Rung:
        """What the policy did, in one word."""
        return _RUNGS[type(self.verdict)]

    @property
    def told(self) -> str | None:
        """The text that the model would have got."""
        return self.verdict.text if isinstance(self.verdict, Nudge | WithdrawTool | LastTurn) else None


@dataclass(slots=True)
class ScannedRun:
    """What came of feeding a run to the core."""

    findings: list[Finding] = field(default_factory=list[Finding])
    """Everything that was seen, in the order of the run."""
    ended_by: Finding | None = None
    """What would have ended the run: a stop, or a last turn, which the recording then goes past."""
    produced: Amount = field(default_factory=Amount)
    """What was produced until then; the whole run if nothing ended it."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ScanResult:
    """What the core and the policy said about one recorded run."""

    run: RecordedRun
    findings: tuple[Finding, ...] = ()
    """Everything that was seen, in the order of the run, up to its end."""
    ended_by: Finding | None = None
    """What would have ended the run; `None`: it would have gone on to where the recording ends."""
    total: Amount
    """What was recorded."""
    saved: Amount = Amount()
    """What would not have been produced: everything after the end."""

    @property
    def finding(self) -> Finding | None:
        """The one that counts: what ended the run, else the first sure loop."""
        return self.ended_by or next((finding for finding in self.findings if finding.detection.level == "loop"), None)

    @property
    def loops(self) -> bool:
        """A sure loop was seen, or the run was ended for a suspicion."""
        return self.finding is not None

    @property
    def detection(self) -> Detection | None:
        """The loop of the finding that counts."""
        return self.finding.detection if self.finding else None

    @property
    def message(self) -> int | None:
        """The index of the message in which it was seen."""
        return self.finding.message if self.finding else None

    @property
    def char(self) -> int | None:
        """For text: how many code points of that message were needed to see it."""
        return self.finding.char if self.finding else None


def scan_run(
    run: RecordedRun,
    *,
    detectors: Sequence[Detector] | None = None,
    policy: Policy | None = None,
    judge: Judge | None = None,
    ask_judge: AskJudge | None = None,
) -> ScanResult:
    """Feed `run` to the core until the policy ends it. `detectors`, `policy`: the guard's default
    ones if `None`; they are reset first. `ask_judge`: who asks the judge, where there is one.

    Raises `RunFailed` if a detector or the policy crashed: such a run must not pass for one without
    a loop.
    """
    watched = watch_chunks(
        run.chunks(), detectors=detectors, policy=policy, judge=judge, ask_judge=ask_judge, task=run.task
    )
    total = _total(run)
    return ScanResult(
        run=run,
        findings=tuple(watched.findings),
        ended_by=watched.ended_by,
        total=total,
        saved=total - watched.produced,
    )


def watch_chunks(
    chunks: Iterable[tuple[int, Chunk]],
    *,
    detectors: Sequence[Detector] | None = None,
    policy: Policy | None = None,
    judge: Judge | None = None,
    ask_judge: AskJudge | None = None,
    task: str | None = None,
) -> ScannedRun:
    """Feed the chunks of a run, each with the index of its message, to the core until the policy
    ends it; the rest is not asked for. `task`: the user's request, for the judge.

    Raises `RunFailed` if a detector or the policy crashed.
    """
    policy = StopAtFirstLoop() if policy is None else policy
    # the core names a policy that crashes by its class
    listener = type(type(policy).__name__, (_Listener,), {})(policy)
    core = RunCore(
        stop_when=None,
        detectors=default_detectors() if detectors is None else detectors,
        policy=listener,
        emit=_ignore,
        keep_text_chars=0 if judge is None else KEPT_FOR_JUDGES,
        judges=() if judge is None else (judge,),
        task=task,
    )
    core.begin(0.0)
    watched = ScannedRun()
    before = Amount()
    turn: int | None = None

    def note(index: int) -> None:
        for detection, verdict in listener.take():
            finding = _finding(detection, verdict, index, before)
            watched.findings.append(finding)
            if isinstance(verdict, Stop) or (isinstance(verdict, LastTurn | Hold) and watched.ended_by is None):
                watched.ended_by = finding
            if isinstance(verdict, Stop):
                break  # what else the same piece of text holds was never written

    for index, chunk in chunks:
        if not isinstance(chunk, ToolResult) and turn != index:
            if watched.ended_by is not None and watched.produced.turns > watched.ended_by.turn:
                return watched  # the last turn has been taken
            core.begin_turn(0.0)
            turn, before = index, watched.produced
            if ask_judge is not None:
                _ask_due(core, ask_judge)
                note(index)
                if core.stop is not None:
                    return _stopped(core, watched)
            watched.produced += Amount(turns=1)
        for piece in _pieces(chunk):
            _feed(core, piece)
            watched.produced += _amount(piece)
            note(index)
            if core.stop is not None:
                return _stopped(core, watched)
    return watched


def _ask_due(core: RunCore, ask_judge: AskJudge) -> None:
    """What a question costs is counted by who asks."""
    for judge, told in core.judges_due(0.0):
        answer = ask_judge(judge, told)
        if isinstance(answer, Judgement):
            core.judge_answer(judge, told, answer, 0.0, cost=AskCost())
        else:
            core.judge_failed(judge, told, answer, 0.0, cost=AskCost())


def _finding(detection: Detection, verdict: Verdict, message: int, before: Amount) -> Finding:
    """`before`: what had been produced when the turn of the message began."""
    text = detection.channel == "text"
    return Finding(
        detection,
        verdict,
        turn=before.turns + 1,
        message=message,
        char=detection.offset - before.chars if text else None,
        start_char=detection.start_offset - before.chars if text else None,
    )


def _stopped(core: RunCore, watched: ScannedRun) -> ScannedRun:
    assert core.stop is not None  # noqa: S101 - called only then
    if core.stop.reason is not TerminateReason.LOOP_DETECTED or watched.ended_by is None:
        core.terminate(0.0).raise_for_reason()
        raise AssertionError(core.stop)
    detection = watched.ended_by.detection
    if detection.channel == "text":
        watched.produced = Amount(detection.offset, watched.produced.tool_calls, watched.produced.turns)
    return watched


class _Listener:
    """The policy, and what it was asked and said."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._heard: list[tuple[Detection, Verdict]] = []

    def take(self) -> list[tuple[Detection, Verdict]]:
        """What was said since the last time."""
        if not self._heard:
            return self._heard
        heard, self._heard = self._heard, []
        return heard

    def decide(self, detection: Detection) -> Verdict:
        verdict = self._policy.decide(detection)
        if type(verdict) in _RUNGS:  # the core complains of anything else
            self._heard.append((detection, verdict))
        return verdict

    def turn_started(self) -> None:
        if isinstance(self._policy, TurnPolicy):
            self._policy.turn_started()

    def reset(self) -> None:
        self._policy.reset()

    def snapshot(self) -> dict[str, Any]:
        return self._policy.snapshot()

    def restore(self, state: Mapping[str, Any]) -> None:
        self._policy.restore(state)


def _feed(core: RunCore, chunk: Chunk) -> None:
    if isinstance(chunk, ToolResult):
        core.tool_result(chunk.id, chunk.text, 0.0, is_error=chunk.is_error, vetoed=chunk.vetoed)
        return
    core.feed(chunk, 0.0)
    if isinstance(chunk, TurnFinished):
        core.end_turn(0.0, finished=True)


def _pieces(chunk: Chunk) -> Iterator[Chunk]:
    if not isinstance(chunk, TextDelta):
        yield chunk
        return
    for start in range(0, len(chunk.text), SLICE_CHARS):
        yield TextDelta(chunk.text[start : start + SLICE_CHARS])


def _amount(chunk: Chunk) -> Amount:
    if isinstance(chunk, TextDelta):
        return Amount(chars=len(chunk.text))
    return Amount(tool_calls=1) if isinstance(chunk, ToolCall) else Amount()


def _total(run: RecordedRun) -> Amount:
    own = [message for message in run.messages if message.role == "assistant"]
    return Amount(sum(len(message.text) for message in own), sum(len(message.tool_calls) for message in own), len(own))


def _ignore(event: Event) -> None:
    """The result says all that is asked for."""

"""A recorded run through the core that watches live ones: would it have been stopped, where, and what would that have saved?

The policy is the guard's default, so the first sure loop ends the run. Where a recording was cut into pieces makes no
difference to the detectors, so its text is fed in long slices; what counts as saved is counted from the exact offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from monitor.chunks import Chunk, TextDelta, ToolCall, ToolResult, TurnFinished
from monitor.detectors import default_detectors
from monitor.detectors.base import Detector
from monitor.events import Event
from monitor.policy import StopAtFirstLoop
from monitor.reasons import TerminateReason
from monitor.run import RunCore
from monitor.transcripts.base import RecordedRun
from monitor.verdicts import Detection

SLICE_CHARS = 4_096
"""Text is fed in slices of this length, so that a loop at the start of a huge message does not cost reading all of it."""


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


@dataclass(slots=True, frozen=True, kw_only=True)
class ScanResult:
    """What the core said about one recorded run."""

    run: RecordedRun
    detection: Detection | None
    """The loop that would have ended the run; `None`: it would have been left alone."""
    message: int | None = None
    """The index of the message in which the loop was seen."""
    char: int | None = None
    """For text: how many code points of that message were needed to see it."""
    total: Amount
    """What was recorded."""
    saved: Amount = Amount()
    """What would not have been produced: everything after the moment at which the loop was seen."""

    @property
    def loops(self) -> bool:
        """The run would have been stopped."""
        return self.detection is not None


def scan_run(run: RecordedRun, *, detectors: Sequence[Detector] | None = None) -> ScanResult:
    """Feed `run` to the core until a loop ends it. `detectors`: the default ones if `None`; they are reset first.

    Raises `RunFailed` if a detector crashed: such a run must not pass for one without a loop.
    """
    total = _total(run)
    core = RunCore(
        stop_when=None,
        detectors=default_detectors() if detectors is None else detectors,
        policy=StopAtFirstLoop(),
        emit=_ignore,
        keep_text_chars=0,
    )
    core.begin(0.0)
    seen = before = Amount()
    turn: int | None = None
    for index, chunk in run.chunks():
        if not isinstance(chunk, ToolResult) and turn != index:
            core.begin_turn(0.0)
            turn, before = index, seen
            seen += Amount(turns=1)
        for piece in _pieces(chunk):
            _feed(core, piece)
            seen += _amount(piece)
            if core.stop is not None:
                return _stopped(run, core, message=index, total=total, before=before, seen=seen)
    return ScanResult(run=run, detection=None, total=total)


def _stopped(run: RecordedRun, core: RunCore, *, message: int, total: Amount, before: Amount, seen: Amount) -> ScanResult:
    """`before`: what had been produced when the turn of `message` began; `seen`: when the core stopped."""
    assert core.stop is not None  # noqa: S101 - called only then
    detection = core.stop.evidence
    if core.stop.reason is not TerminateReason.LOOP_DETECTED or not isinstance(detection, Detection):
        core.terminate(0.0).raise_for_reason()
        raise AssertionError(core.stop)
    char = None
    if detection.channel == "text":
        char = detection.offset - before.chars
        seen = Amount(detection.offset, seen.tool_calls, seen.turns)
    return ScanResult(run=run, detection=detection, message=message, char=char, total=total, saved=total - seen)


def _feed(core: RunCore, chunk: Chunk) -> None:
    if isinstance(chunk, ToolResult):
        core.tool_result(chunk.id, chunk.text, 0.0, is_error=chunk.is_error)
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

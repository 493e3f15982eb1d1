"""Feeds a recorded run to the core that watches live runs. The result says whether and where the
run would have been stopped, and what that would have saved.

The policy is the guard's default unless another is given, so the first sure loop ends the run.
Detectors find the same however text is cut. So text is fed in long slices, and the saving is
counted from the exact offset.

A judge is asked at the same turns as in a live run, and its answer counts at once.

A recording cannot react to a warning: the model goes on as it did. With a policy that warns first,
the result shows the steps of the policy, but not the effect of its warnings.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast

from monitor.chunks import AskCost, Chunk, ReasoningDelta, TextDelta, ToolCall, ToolResult, TurnFinished
from monitor.core.run import RunCore
from monitor.detectors import default_detectors
from monitor.detectors.detector import Detector
from monitor.events import Event
from monitor.judges.judge import Judge, JudgeInput
from monitor.policy import Policy, StopAtFirstLoop, TurnPolicy
from monitor.transcripts.base import Chunker, RecordedRun
from monitor.verdicts import (
    Channel,
    Compact,
    Continue,
    Detection,
    Hold,
    Judgement,
    LastTurn,
    Nudge,
    RefuseCall,
    Stop,
    Verdict,
    WithdrawTool,
)

SLICE_CHARS = 4_096
"""The length of the slices in which text is fed. A loop at the start of a huge message is found
before all of the message is read.
"""
KEPT_FOR_JUDGES = 2_000
"""How much of a turn's text is kept for a judge, in code points."""

AskJudge: TypeAlias = Callable[[Judge, JudgeInput], Judgement | str]
"""Asks a judge and waits. A returned text is the reason why there is no answer."""

Rung: TypeAlias = Literal["observe", "nudge", "refuse", "withdraw", "hold", "compact", "last_turn", "stop"]
_RUNGS: Mapping[type[Verdict], Rung] = {
    Continue: "observe",
    Nudge: "nudge",
    RefuseCall: "refuse",
    WithdrawTool: "withdraw",
    Hold: "hold",
    Compact: "compact",
    LastTurn: "last_turn",
    Stop: "stop",
}


@dataclass(slots=True, frozen=True)
class ModelOutput:
    """The amount of text and calls that a model produced."""

    chars: int = 0
    """The code points of visible text."""
    tool_calls: int = 0
    turns: int = 0
    """The number of the model's responses."""

    def __add__(self, other: ModelOutput) -> ModelOutput:
        return ModelOutput(self.chars + other.chars, self.tool_calls + other.tool_calls, self.turns + other.turns)

    def __sub__(self, other: ModelOutput) -> ModelOutput:
        return ModelOutput(self.chars - other.chars, self.tool_calls - other.tool_calls, self.turns - other.turns)


@dataclass(slots=True, frozen=True)
class Finding:
    """A finding of a detector in a run, and the policy's answer."""

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
        """The policy's answer, in one word."""
        return _RUNGS[type(self.verdict)]

    @property
    def told(self) -> str | None:
        """The text that the model would have got."""
        return self.verdict.text if isinstance(self.verdict, Nudge | RefuseCall | WithdrawTool | LastTurn) else None


@dataclass(slots=True, frozen=True)
class LoopExtent:
    """A loop in the whole run, also behind the place of a stop."""

    count: int
    """How often the repeated thing is there: calls, rounds, messages or passages."""
    first_turn: int
    last_turn: int
    """The model responses with the first and the last repetition, counted from 1."""


class WholeLoop:
    """Follows one loop to the end of its run. A loop that breaks off and begins again is the same
    one if it repeats the same thing.
    """

    def __init__(self, found: Detection) -> None:
        self._found = found
        self._counts: list[int] = []
        """The count of each stretch without a break."""
        self._start = self._end = -1
        self._first_turn = self._last_turn = 0

    def add(self, found: Detection, first_turn: int, last_turn: int, base: int) -> None:
        """A further detection. `base`: where its offsets begin to count."""
        start, end = base + found.start_offset, base + found.offset
        goes_on = bool(self._counts) and start <= self._end
        if not self.is_of(found, goes_on=goes_on):
            return
        if goes_on:
            self._counts[-1] = max(self._counts[-1], found.count)
        else:
            self._counts.append(found.count)
            self._start = start
            self._first_turn = self._first_turn or first_turn
        self._end, self._last_turn = end, max(last_turn, self._last_turn)

    @property
    def channel(self) -> Channel:
        """Where it is repeated."""
        return self._found.channel

    def written(self, text: str, turn: int, *, goes_on: bool) -> None:
        """Count the passage of a loop of text in the rest of a run, where no detector reads it.
        `goes_on`: `text` is the one in which the loop was seen.
        """
        number = text.count(self._found.evidence.excerpt)
        if goes_on:
            self._counts[-1] = max(self._counts[-1], number)
        elif number > 1:
            self._counts.append(number)
            self._last_turn = turn

    def is_of(self, found: Detection, *, goes_on: bool = False) -> bool:
        """Whether `found` is of this loop. `goes_on`: it is where the loop was seen last."""
        mine = self._found
        same = (found.detector, found.kind) == (mine.detector, mine.kind)
        return same and (goes_on or found.evidence.xxhash == mine.evidence.xxhash)

    @property
    def extent(self) -> LoopExtent:
        """The loop as far as it was followed."""
        return LoopExtent(sum(self._counts), self._first_turn, self._last_turn)


TURNS_KEPT = 512
"""The newest turns and calls in which the beginning of a loop is looked for."""
REQUESTS_KEPT = 8
"""How many of the newest requests a new core gets, after a compaction."""


class RunScanner:
    """Watches a recorded run as it comes, a chunk at a time, and keeps nothing of it.

    `detectors`, `policy`: the guard's default ones if `None`. They are reset first. `ask_judge`:
    who asks the judge, where there is one. `task`: the user's request, for judge and detectors.
    `whole`: the rest of a run that the policy ends is watched as well, for `loop` and `later`.

    Each method raises `RunFailed` if a detector or the policy crashed.
    """

    def __init__(
        self,
        *,
        detectors: Sequence[Detector] | None = None,
        policy: Policy | None = None,
        judge: Judge | None = None,
        ask_judge: AskJudge | None = None,
        task: str | None = None,
        whole: bool = False,
    ) -> None:
        self.findings: list[Finding] = []
        """Everything that was seen, in the order of the run."""
        self.ended_by: Finding | None = None
        """The finding that would have ended the run: by a stop, or by a last turn. The recording
        itself goes on after it.
        """
        self.later: list[Detection] = []
        """The loops that were seen after that."""
        self._seen = self._produced = ModelOutput()
        self.over = False
        """Whether the policy has ended the run. Then the rest need not be watched."""
        self._whole = whole
        self._loop: WholeLoop | None = None
        self._call_turns = deque[int](maxlen=TURNS_KEPT)
        """The turns of the newest calls."""
        self._text_starts = deque[int](maxlen=TURNS_KEPT)
        """The code points before each of the newest turns."""
        policy = StopAtFirstLoop() if policy is None else policy
        self._listener = _listener_to(policy)
        self._detectors = default_detectors() if detectors is None else detectors
        self._judge, self._ask_judge, self._task = judge, ask_judge, task
        self._requests: tuple[str, ...] = ()
        self._turn: int | None = None
        self._before = ModelOutput()
        self._begin()

    @property
    def produced(self) -> ModelOutput:
        """The amount produced up to the end that the policy would have made."""
        return self._produced

    @property
    def loop(self) -> LoopExtent | None:
        """The decisive loop, in the part of the run that was watched. `None`: there is none."""
        return None if self._loop is None else self._loop.extent

    def _begin(self) -> None:
        """Make a core without a history. Its offsets begin to count here."""
        self._base = self._seen
        self._core = RunCore(
            stop_when=None,
            detectors=self._detectors,
            policy=self._listener,
            emit=_ignore,
            keep_text_chars=0 if self._judge is None else KEPT_FOR_JUDGES,
            judges=() if self._judge is None else (self._judge,),
            task=self._task,
        )
        self._core.begin(0.0)
        for text in self._requests:
            self._core.request(text, 0.0)

    def request(self, text: str) -> None:
        """The user asks for something. The first request is the judge's task."""
        if self._judge is not None and not self._requests and self._turn is None:
            self._task = text
            self._begin()
        self._requests = (*self._requests, text)[-REQUESTS_KEPT:]
        if self._follows:
            self._core.request(text, 0.0)

    @property
    def _follows(self) -> bool:
        """Whether the next part of the run is watched."""
        return self._whole or not self.over

    def compacted(self) -> None:
        """The history was replaced by a summary. The same calls after it are a new start."""
        if self._follows:
            self._turn = None
            self._begin()

    def take(self, index: int, chunk: Chunk) -> None:
        """Watch the next chunk, which is part of the message `index`."""
        if not self._follows:
            return
        if not isinstance(chunk, ToolResult) and self._turn != index:
            if self.ended_by is not None and self._produced.turns > self.ended_by.turn:
                self.over = True  # the last turn has been taken
                if not self._whole:
                    return
            self._begin_turn(index)
            self._add(ModelOutput(turns=1))
        if self.over and isinstance(chunk, TextDelta | ReasoningDelta):
            self._written_later(chunk)
            self._note(index)
            return
        if not isinstance(chunk, TextDelta):
            _feed(self._core, chunk)
            if isinstance(chunk, ToolCall):
                self._call_turns.append(self._seen.turns)
                self._add(ModelOutput(tool_calls=1))
            self._note(index)
            if self.over and isinstance(chunk, ReasoningDelta):
                self._count_written(chunk, goes_on=True)
            return
        for start in range(0, len(chunk.text), SLICE_CHARS):
            piece = chunk.text[start : start + SLICE_CHARS]
            self._core.feed_text(piece, 0.0)
            self._add(ModelOutput(chars=len(piece)))
            self._note(index)
            if self.over:
                self._count_written(chunk, goes_on=True)
                return

    def _written_later(self, chunk: TextDelta | ReasoningDelta) -> None:
        """Text behind the end that the policy would have made. A detector may find very many
        repetitions in it. So only messages that are compared as a whole are read, and only their
        beginning.
        """
        if self._loop is not None and self._loop.channel == "messages" and isinstance(chunk, TextDelta):
            self._core.feed_text(chunk.text[:SLICE_CHARS], 0.0)
        self._count_written(chunk, goes_on=False)

    def _count_written(self, chunk: TextDelta | ReasoningDelta, *, goes_on: bool) -> None:
        channel = "text" if isinstance(chunk, TextDelta) else "reasoning"
        if self._whole and self._loop is not None and self._loop.channel == channel:
            self._loop.written(chunk.text, self._seen.turns, goes_on=goes_on)

    def _add(self, output: ModelOutput) -> None:
        self._seen += output
        if not self.over:
            self._produced += output

    def _begin_turn(self, index: int) -> None:
        self._core.begin_turn(0.0)
        self._turn, self._before = index, self._seen
        self._text_starts.append(self._seen.chars)
        if self._ask_judge is not None and self.ended_by is None:
            _ask_due(self._core, self._ask_judge)
            self._note(index)

    def _note(self, index: int) -> None:
        """Keep the findings. The core goes on when the policy has ended the run."""
        for detection, verdict in self._listener.take():
            if self.over:
                self.later += [detection] if detection.level == "loop" else []
            else:
                self._decide(_finding(detection, verdict, index, self._before, self._base))
            self._follow(detection)
        if self._core.stop is not None:
            self._core.terminate(0.0).raise_for_reason()

    def _decide(self, finding: Finding) -> None:
        self.findings.append(finding)
        if isinstance(finding.verdict, Stop) or (
            isinstance(finding.verdict, LastTurn | Hold) and self.ended_by is None
        ):
            self.ended_by = finding
            if self._loop is not None and not self._loop.is_of(finding.detection):
                self._loop = None  # another one has decided
        if isinstance(finding.verdict, Stop):
            self.over = True  # the rest of this piece of text would never have been written
            if finding.detection.channel == "text":
                self._produced = replace(self._produced, chars=self._base.chars + finding.detection.offset)

    def _follow(self, found: Detection) -> None:
        """Count the decisive loop on: the one that has ended the run, else the first sure one."""
        if found.kind == "judge" or not (found.level == "loop" or self.ended_by is not None):
            return
        self._loop = self._loop or WholeLoop(found)
        base, first, last = 0, self._seen.turns, self._seen.turns
        if found.channel == "tools":
            base = self._base.tool_calls
            back = self._seen.tool_calls - (base + found.start_offset)
            first = self._call_turns[-min(back, len(self._call_turns))]
        elif found.channel == "text":
            base = self._base.chars
            known = len(self._text_starts)
            first += bisect_right(self._text_starts, base + found.start_offset) - known
        self._loop.add(found, first, last, base)


def watch_chunks(
    chunks: Iterable[tuple[int, Chunk]],
    *,
    detectors: Sequence[Detector] | None = None,
    policy: Policy | None = None,
) -> RunScanner:
    """Feed the chunks of a run, each with the index of its message, to a scanner until the policy
    ends the run. The rest is not asked for.

    Raises `RunFailed` if a detector or the policy crashed.
    """
    scanner = RunScanner(detectors=detectors, policy=policy)
    for index, chunk in chunks:
        scanner.take(index, chunk)
        if scanner.over:
            break
    return scanner


def watch_run(run: RecordedRun) -> RunScanner:
    """Feed a recorded run to a scanner with the guard's defaults, which hears each request in its
    turn.

    Raises `RunFailed` if a detector crashed.
    """
    scanner, chunker = RunScanner(), Chunker()
    for index, message in enumerate(run.messages):
        if message.role == "user" and message.text:
            scanner.request(message.text)
        for chunk in chunker.chunks(message):
            scanner.take(index, chunk)
    return scanner


def _ask_due(core: RunCore, ask_judge: AskJudge) -> None:
    """Ask the judge if it is due. Ignores the cost of a question, which `ask` counts."""
    for judge, told in core.judges_due(0.0):
        answer = ask_judge(judge, told)
        if isinstance(answer, Judgement):
            core.judge_answer(judge, told, answer, 0.0, cost=AskCost())
        else:
            core.judge_failed(judge, told, answer, 0.0, cost=AskCost())


def _finding(detection: Detection, verdict: Verdict, message: int, before: ModelOutput, base: ModelOutput) -> Finding:
    """The finding for `detection`. `before`: the amount when the turn of the message began. `base`:
    the amount at which the offsets of the detections begin to count.
    """
    text = detection.channel == "text"
    chars = base.chars - before.chars
    return Finding(
        detection,
        verdict,
        turn=before.turns + 1,
        message=message,
        char=detection.offset + chars if text else None,
        start_char=detection.start_offset + chars if text else None,
    )


class _RecordedPolicy:
    """A policy that keeps its findings and verdicts."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        # By the name of the method: checking a whole protocol takes 20 us.
        self._of_turns = cast("TurnPolicy", policy) if callable(getattr(policy, "turn_started", None)) else None
        self._heard: list[tuple[Detection, Verdict]] = []
        self._ended = False

    def __reduce__(self) -> tuple[Any, ...]:
        """For `pickle`, which finds no class that was made for one policy."""
        return _listener_to, (self._policy,), self.__dict__

    def take(self) -> list[tuple[Detection, Verdict]]:
        """The findings and verdicts since the last call."""
        if not self._heard:
            return self._heard
        heard, self._heard = self._heard, []
        return heard

    def decide(self, detection: Detection) -> Verdict:
        verdict = self._policy.decide(detection) if not self._ended else Continue()
        if type(verdict) in _RUNGS:  # the core complains of anything else
            self._heard.append((detection, verdict))
        self._ended = self._ended or isinstance(verdict, Stop)
        return Continue() if isinstance(verdict, Stop | LastTurn | Hold) else verdict  # so that the core goes on

    def turn_started(self) -> None:
        if self._of_turns is not None:
            self._of_turns.turn_started()

    def reset(self) -> None:
        self._policy.reset()

    def snapshot(self) -> dict[str, Any]:
        return self._policy.snapshot()

    def restore(self, state: Mapping[str, Any]) -> None:
        self._policy.restore(state)


def _listener_to(policy: Policy) -> _RecordedPolicy:
    """A listener of a class of its own: the core names a policy that crashes by its class."""
    return _listener_named(type(policy).__name__)(policy)


@lru_cache(maxsize=64)
def _listener_named(name: str) -> type[_RecordedPolicy]:
    return type(name, (_RecordedPolicy,), {})


def _feed(core: RunCore, chunk: Chunk) -> None:
    if isinstance(chunk, ToolResult):
        core.tool_result(
            chunk.id, chunk.text, 0.0, is_error=chunk.is_error, vetoed=chunk.vetoed, progress=chunk.progress
        )
        return
    core.feed(chunk, 0.0)
    if isinstance(chunk, TurnFinished):
        core.end_turn(0.0, finished=True)


def _ignore(event: Event) -> None:
    """Ignores events: the result has everything that a scan needs."""

"""Where settings of several levels would have stopped a recorded run: watched in one reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Final

from monitor._util.hashing import identity
from monitor.chunks import Chunk
from monitor.detectors.calls.learned_evidence import LearnedEvidence
from monitor.detectors.detector import Detector
from monitor.outcome import RunFailed
from monitor.policy import ObserveOnly, Policy, StopAtFirstLoop
from monitor.transcripts.analysis.calibration import NEVER, StopPlace, Trace
from monitor.transcripts.analysis.scan import Finding, RunScanner
from monitor.transcripts.analysis.survey import SurveyedRun, Watcher
from monitor.transcripts.base import Began, Chunker, Ended, RecordedMessage
from monitor.verdicts import Stop

CHARS_PER_TOKEN: Final = 4
"""Where a recording counts no tokens: the usual estimate for English and code."""
ALL: Final = ""
"""The name of all detectors together, under the policy."""
UNREACHED: Final = 1e9
"""A threshold that no evidence comes to: nothing is cut off before it is measured."""


@dataclass(slots=True, frozen=True)
class Level:
    """Settings of one level: what makes new detectors, and a new policy, for a run."""

    detectors: Callable[[], Sequence[Detector]]
    policy: Callable[[], Policy | None]


@dataclass(slots=True, frozen=True)
class Gauge:
    """How evidence that is weighed is measured once, and not once for each level."""

    detector: Callable[[], LearnedEvidence]
    """Makes a detector whose threshold is `UNREACHED`."""
    height: Callable[[float], float]
    """From nats to levels."""


@dataclass(slots=True, frozen=True, kw_only=True)
class TracedRun(SurveyedRun):
    """A run, and where each level would have stopped it."""

    traces: Mapping[str, Trace]
    """The traces by the class of the detector. `ALL`: all detectors, under the policy."""
    estimated: bool
    """The recording counts no tokens: they are estimated from the length of the texts."""
    content: str
    """The identity of all that was said, called and answered: equal runs have equal ones."""


class _LevelScan:
    """Watches a run with the settings of one level: each detector alone, and all together."""

    def __init__(self, level: Level, *, is_weighed: bool) -> None:
        made = [one for one in level.detectors() if not (is_weighed and isinstance(one, LearnedEvidence))]
        self.names = {detector.name: type(detector).__name__ for detector in made}
        self.alone = _observed(made)
        policy = level.policy()
        first = policy is None or isinstance(policy, StopAtFirstLoop)
        self.together = None if first else RunScanner(detectors=level.detectors(), policy=policy)
        """`None`: the policy stops at the first loop, which is seen without it."""
        self.stops: dict[str, StopPlace] = {}

    def take(self, at: int, chunks: Sequence[Chunk]) -> str:
        """Watch the next message. Returns why a detector or the policy crashed."""
        try:
            for chunk in chunks:
                self.alone.take(at, chunk)
                if self.together is not None:
                    self.together.take(at, chunk)
        except RunFailed as error:
            return str(error)
        return ""

    def note(self, stopped: Callable[[int | None], StopPlace]) -> None:
        """Note the stops in the message that was watched. `stopped`: the place of a stop in it."""
        for finding in self.alone.findings:
            if finding.detection.level == "loop":
                name = self.names.get(finding.detection.detector, finding.detection.detector)
                for one in (name,) if self.together is not None else (name, ALL):
                    self.stops.setdefault(one, stopped(finding.char))
        self.alone.findings.clear()
        ended = None if self.together is None else self.together.ended_by
        if ended is not None and isinstance(ended.verdict, Stop):
            self.stops.setdefault(ALL, stopped(ended.char))


class TraceWatcher(Watcher):
    """Watches a run with all levels at once."""

    def __init__(
        self, began: Began, scanner: RunScanner, *, levels: Sequence[Level], gauge: Gauge | None = None
    ) -> None:
        super().__init__(began, scanner)
        self._content = ""
        self._height = None if gauge is None else gauge.height
        self._weigher = None if gauge is None else gauge.detector()
        self._peaks: list[tuple[float, StopPlace]] = []
        self._weighing = None if self._weigher is None else _observed([self._weigher])
        self._chunks = Chunker()
        self._costs: list[float] = []
        self._context = self._spent_tokens = 0.0
        self._counted = False
        self._levels = [_LevelScan(level, is_weighed=gauge is not None) for level in levels]
        self._crashed = ""

    def take(self, message: RecordedMessage) -> Sequence[Finding]:
        at = self._index
        found = super().take(message)
        stopped = partial(self._stopped, message, before=self._spent_tokens)
        self._count_tokens(message)
        self._content = identity(self._content + _said(message))
        chunks = list(self._chunks.chunks(message))
        self._weigh(at, chunks, stopped)
        for level in self._levels:
            self._crashed = level.take(at, chunks) or self._crashed
            level.note(stopped)
        return found

    def _weigh(self, at: int, chunks: Sequence[Chunk], stopped: Callable[[int | None], StopPlace]) -> None:
        """Measure the evidence that is weighed."""
        if self._weighing is None or self._weigher is None or self._height is None:
            return
        try:
            for chunk in chunks:
                self._weighing.take(at, chunk)
        except RunFailed as error:
            self._crashed = str(error)
        height = self._height(self._weigher.highest)
        if height >= 0 and height > max((known for known, _ in self._peaks), default=NEVER):
            self._peaks.append((height, stopped(None)))

    def _scanners(self) -> Iterator[RunScanner]:
        """Everything that watches the run beside its own scanner."""
        yield from (level.alone for level in self._levels)
        yield from filter(None, (*(level.together for level in self._levels), self._weighing))

    def request(self, text: str) -> None:
        super().request(text)
        for scanner in self._scanners():
            scanner.request(text)

    def _count_tokens(self, message: RecordedMessage) -> None:
        arguments = sum(len(str(call.arguments)) for call in message.tool_calls)
        own = len(message.text) + len(message.reasoning) + arguments
        results = sum(result.length or len(result.text) for result in message.tool_results)
        if message.role == "assistant":
            if message.usage is not None:
                self._counted = True
                self._spent_tokens += message.usage.total_tokens
            else:
                self._spent_tokens += (self._context + own) / CHARS_PER_TOKEN
            self._costs.append(self._spent_tokens)
        self._context += own + results

    def _stopped(self, message: RecordedMessage, char: int | None, before: float) -> StopPlace:
        """`before`: the tokens before the message. Of a text only what was written until then."""
        turn, spent = max(1, len(self._costs)), self._spent_tokens
        if char is not None and message.role == "assistant":
            left = max(0, len(message.text) - char)
            spent = max(before, spent - left / CHARS_PER_TOKEN)
        return StopPlace(turn, spent)

    def compacted(self) -> None:
        super().compacted()
        self._context = 0.0
        for scanner in self._scanners():
            scanner.compacted()

    def run(self, file: str, kind: str, ended: Ended) -> TracedRun:
        run = super().run(file, kind, ended)
        costs = tuple(self._costs)
        for level in self._levels:
            together = level.together
            if together is not None and together.ended_by is not None and ALL not in level.stops:
                turn = max(1, min(together.produced.turns, len(costs)))  # of the last turn that was granted
                level.stops[ALL] = StopPlace(turn, costs[turn - 1] if costs else 0.0)
        self._reach_levels()
        first = all(level.together is None for level in self._levels)
        weighed = LearnedEvidence.__name__
        peaks = {weighed: tuple(self._peaks), ALL: tuple(self._peaks) if first else ()}
        names = dict.fromkeys(name for level in self._levels for name in level.names.values())
        traces = {
            name: Trace(costs, tuple(level.stops.get(name) for level in self._levels), peaks.get(name, ()))
            for name in (ALL, *names, *(() if self._weigher is None else (weighed,)))
        }
        told = {one.name: getattr(run, one.name) for one in fields(SurveyedRun)}
        told["failed"] = run.failed or self._crashed
        return TracedRun(**told, traces=traces, estimated=not self._counted, content=self._content)

    def _reach_levels(self) -> None:
        """Note where the weighed evidence came to each level."""
        for number, level in enumerate(self._levels):
            place = next((place for height, place in self._peaks if height >= number), None)
            if place is not None:
                level.stops[LearnedEvidence.__name__] = place
                if level.together is None:
                    level.stops[ALL] = min(place, level.stops.get(ALL, place), key=lambda one: one.spent)


def _observed(detectors: Sequence[Detector]) -> RunScanner:
    return RunScanner(detectors=detectors, policy=ObserveOnly())


def _said(message: RecordedMessage) -> str:
    """All that a message holds, without its ids."""
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    results = [(one.name, one.text, one.length, one.sha1, one.is_error) for one in message.tool_results]
    return repr((message.role, message.text, message.reasoning, calls, results))

"""Where settings of several levels would have stopped a recorded run: watched in one reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from monitor._util.hashing import identity
from monitor.chunks import Chunk
from monitor.detectors.calls.novelty.state_novelty import StateNovelty
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

    detector: Callable[[], StateNovelty]
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
        self._context = self._spent = 0.0
        self._counted = False
        self._alone: list[RunScanner] = []
        self._names: list[dict[str, str]] = []
        self._together: list[RunScanner | None] = []
        """`None`: the policy stops at the first loop, which is seen without it."""
        for level in levels:
            made = [one for one in level.detectors() if gauge is None or not isinstance(one, StateNovelty)]
            self._names.append({detector.name: type(detector).__name__ for detector in made})
            self._alone.append(_observed(made))
            policy = level.policy()
            first = policy is None or isinstance(policy, StopAtFirstLoop)
            self._together.append(None if first else RunScanner(detectors=level.detectors(), policy=policy))
        self._detectors = list(dict.fromkeys(name for names in self._names for name in names.values()))
        if gauge is not None:
            self._detectors.append(StateNovelty.__name__)
        self._stops: list[dict[str, StopPlace]] = [{} for _ in levels]
        self._crashed = ""

    def take(self, message: RecordedMessage) -> Sequence[Finding]:
        at = self._index
        found = super().take(message)
        before = self._spent
        self._count_tokens(message)
        self._content = identity(self._content + _said(message))
        chunks = list(self._chunks.chunks(message))
        self._weigh(at, message, chunks, before)
        for level, (alone, together) in enumerate(zip(self._alone, self._together, strict=True)):
            try:
                for chunk in chunks:
                    alone.take(at, chunk)
                    if together is not None:
                        together.take(at, chunk)
            except RunFailed as error:
                self._crashed = str(error)
            for finding in alone.findings:
                if finding.detection.level == "loop":
                    name = self._names[level].get(finding.detection.detector, finding.detection.detector)
                    stopped = self._stopped(message, finding.char, before)
                    self._stops[level].setdefault(name, stopped)
                    if together is None:
                        self._stops[level].setdefault(ALL, stopped)
            alone.findings.clear()
            if together is None:
                continue
            ended = together.ended_by
            if ended is not None and isinstance(ended.verdict, Stop) and ALL not in self._stops[level]:
                self._stops[level][ALL] = self._stopped(message, ended.char, before)
        return found

    def _weigh(self, at: int, message: RecordedMessage, chunks: Sequence[Chunk], before: float) -> None:
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
            self._peaks.append((height, self._stopped(message, None, before)))

    def request(self, text: str) -> None:
        super().request(text)
        for scanner in filter(None, (*self._alone, *self._together, self._weighing)):
            scanner.request(text)

    def _count_tokens(self, message: RecordedMessage) -> None:
        arguments = sum(len(str(call.arguments)) for call in message.tool_calls)
        own = len(message.text) + len(message.reasoning) + arguments
        results = sum(result.length or len(result.text) for result in message.tool_results)
        if message.role == "assistant":
            if message.usage is not None:
                self._counted = True
                self._spent += message.usage.total_tokens
            else:
                self._spent += (self._context + own) / CHARS_PER_TOKEN
            self._costs.append(self._spent)
        self._context += own + results

    def _stopped(self, message: RecordedMessage, char: int | None, before: float) -> StopPlace:
        """`before`: the tokens before the message. Of a text only what was written until then."""
        turn, spent = max(1, len(self._costs)), self._spent
        if char is not None and message.role == "assistant":
            left = max(0, len(message.text) - char)
            spent = max(before, spent - left / CHARS_PER_TOKEN)
        return StopPlace(turn, spent)

    def compacted(self) -> None:
        super().compacted()
        self._context = 0.0
        for scanner in filter(None, (*self._alone, *self._together, self._weighing)):
            scanner.compacted()

    def run(self, file: str, kind: str, ended: Ended) -> TracedRun:
        run = super().run(file, kind, ended)
        costs = tuple(self._costs)
        for together, stops in zip(self._together, self._stops, strict=True):
            if together is not None and together.ended_by is not None and ALL not in stops:
                turn = max(1, min(together.produced.turns, len(costs)))  # of the last turn that was granted
                stops[ALL] = StopPlace(turn, costs[turn - 1] if costs else 0.0)
        first = all(together is None for together in self._together)
        self._reach_levels()
        peaks = {StateNovelty.__name__: tuple(self._peaks), ALL: tuple(self._peaks) if first else ()}
        traces = {
            name: Trace(costs, tuple(stops.get(name) for stops in self._stops), peaks.get(name, ()))
            for name in (ALL, *self._detectors)
        }
        told = {one.name: getattr(run, one.name) for one in fields(SurveyedRun)}
        told["failed"] = run.failed or self._crashed
        return TracedRun(**told, traces=traces, estimated=not self._counted, content=self._content)

    def _reach_levels(self) -> None:
        """Note where the weighed evidence came to each level."""
        for level, stops in enumerate(self._stops):
            place = next((place for height, place in self._peaks if height >= level), None)
            if place is not None:
                stops[StateNovelty.__name__] = place
                if self._together[level] is None:
                    stops[ALL] = min(place, stops.get(ALL, place), key=lambda one: one.spent)


def _observed(detectors: Sequence[Detector]) -> RunScanner:
    return RunScanner(detectors=detectors, policy=ObserveOnly())


def _said(message: RecordedMessage) -> str:
    """All that a message holds, without its ids."""
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    results = [(one.name, one.text, one.length, one.sha1, one.is_error) for one in message.tool_results]
    return repr((message.role, message.text, message.reasoning, calls, results))

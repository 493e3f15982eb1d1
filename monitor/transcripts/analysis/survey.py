"""Reads and watches a transcript in one pass: the numbers of its runs, their loops, and the saving
of a stop. Only the numbers and the findings of a run are kept, however large it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from monitor.detectors.detector import Detector
from monitor.errors import MissingExtra
from monitor.judges.judge import Judge
from monitor.outcome import RunFailed
from monitor.policy import Policy
from monitor.transcripts.analysis.cost import UNKNOWN_COST, RunCost
from monitor.transcripts.analysis.recorded_steps import NO_STEPS, RecordedSteps, StepLog
from monitor.transcripts.analysis.scan import AskJudge, Finding, ModelOutput, RunScanner
from monitor.transcripts.base import Chunker, RecordedMessage
from monitor.transcripts.entries import Began, CompactionSeen, Ended, EndState, ReadReport, Said, TranscriptEntry
from monitor.transcripts.readers.base import TranscriptReader
from monitor.transcripts.readers.registry import reader_of
from monitor.transcripts.source import Source
from monitor.usage import Usage
from monitor.verdicts import Detection

EXCERPT_CHARS = 400
"""How much of a task and of a result is kept, to be shown."""
NOTHING = ModelOutput()


@dataclass(slots=True, frozen=True, kw_only=True)
class SurveyedRun:
    """One run of a transcript, in numbers."""

    file: str
    format: str
    began: Began
    ended: Ended
    task: str = ""
    """The beginning of what a person asked for first."""
    first_at: float | None = None
    last_at: float | None = None
    """The times of its first and its last message, in seconds since 1970. `None`: the recording
    does not say.
    """
    total: ModelOutput = NOTHING
    """The amount that its model produced."""
    errors: int = 0
    """The number of results that are errors."""
    usage: Usage | None = None
    """`None`: the recording does not say."""
    cost_usd: float | None = None
    """The cost of the run in US dollars, as the recording says, else by list prices. `None`: it is
    not known.
    """
    cost_partial: bool = False
    """Some of the tokens have no known price, so the cost is at least `cost_usd`."""
    cost_listed: bool = False
    """Part of `cost_usd` was worked out by list prices."""
    compactions: int = 0
    findings: tuple[Finding, ...] = ()
    ended_by: Finding | None = None
    """The finding that would have ended the run. `None`: it would have gone on."""
    saved: ModelOutput = NOTHING
    """The amount after that finding, which would not have been produced."""
    saved_tokens: int | None = None
    """Tokens of the model calls after that finding, input and output. `None`: the recording does
    not say.
    """
    saved_usd: float | None = None
    result: str = ""
    """The beginning of the result that came last before the loop was seen: often it says why."""
    failed: str = ""
    """The error, if a detector or the policy crashed. Such a run does not count as without a loop.
    """
    steps: RecordedSteps = field(default=NO_STEPS, compare=False, repr=False)
    """The steps of the run, to find copies of them in other runs."""
    copied_turns: int = 0
    """The number of the run's responses that were counted as those of another run, of which this
    one has a copy. The numbers above leave them out.
    """
    goes_on: bool = False
    """The other run was the beginning of this one, under the same id. Both count as one run."""

    @property
    def id(self) -> str:
        """The id of the run, as its recording has it."""
        return self.began.run

    @property
    def finding(self) -> Finding | None:
        """The decisive finding: the one that ended the run, else the first sure loop."""
        return self.ended_by or next((finding for finding in self.findings if finding.detection.level == "loop"), None)

    @property
    def detection(self) -> Detection | None:
        """The detection of the decisive finding."""
        return self.finding.detection if self.finding else None

    @property
    def loops(self) -> bool:
        """Whether a sure loop was seen, or a suspicion ended the run."""
        return self.finding is not None

    @property
    def silent(self) -> bool:
        """Whether its model says and does nothing, so there was nothing to look at."""
        return not self.copied_turns and self.total == ModelOutput(turns=self.total.turns)


@dataclass(slots=True, frozen=True, kw_only=True)
class SurveyedFile:
    """One transcript, read to its end."""

    file: str
    format: str | None
    """The format of the file. `None`: the format is unknown."""
    runs: tuple[SurveyedRun, ...] = ()
    report: ReadReport = field(default_factory=ReadReport)
    error: str = ""
    """Why the file could not be read at all."""


class Watcher:
    """Watches one run of a transcript while it is read."""

    def __init__(self, began: Began, scanner: RunScanner) -> None:
        self.began = began
        self._scanner = scanner
        self._chunker = Chunker()
        self._index = 0
        self._task = ""
        self._result = self._result_then = ""
        self._first_at: float | None = None
        self._last_at: float | None = None
        self._all_chars = self._all_calls = self._all_turns = 0
        self._errors = self._compactions = 0
        self._usage: Usage | None = None
        self._usage_then: Usage | None = None
        self._cost = self._cost_then = UNKNOWN_COST
        self._failed = ""

    @property
    def finding(self) -> Finding | None:
        """The latest finding in the run."""
        return self._scanner.findings[-1] if self._scanner.findings else None

    def take(self, message: RecordedMessage) -> Sequence[Finding]:
        """Watch the next message. Returns the findings in it."""
        self._count(message)
        known, over = len(self._scanner.findings), self._scanner.over
        if not over and not self._failed:
            try:
                if message.role == "user" and not message.synthetic and message.text:
                    self.request(message.text)
                for chunk in self._chunker.chunks(message):
                    self._scanner.take(self._index, chunk)
            except RunFailed as error:
                self._failed = str(error)
        found = self._scanner.findings[known:]
        if self._result_then == "" and any(finding.detection.level == "loop" for finding in found):
            self._result_then = self._result
        if self._scanner.ended_by is not None and self._usage_then is None:
            self._usage_then, self._cost_then = self._usage, self._cost
        if message.tool_results:
            self._result = message.tool_results[-1].text[:EXCERPT_CHARS]
        self._index += 1
        return found

    def request(self, text: str) -> None:
        """A person asks for something."""
        self._scanner.request(text)

    def _count(self, message: RecordedMessage) -> None:
        if message.at is not None:
            self._last_at = message.at
            if self._first_at is None:
                self._first_at = message.at
        if message.role == "user" and not message.synthetic and not self._task:
            self._task = message.text[:EXCERPT_CHARS]
        for result in message.tool_results:
            self._errors += result.is_error
        if message.role == "assistant":
            self._all_chars += len(message.text)
            self._all_calls += len(message.tool_calls)
            self._all_turns += 1
        if message.usage is not None:
            self._usage = message.usage if self._usage is None else self._usage + message.usage
        self._cost = self._cost.plus(message, self.began.model)

    def compacted(self) -> None:
        """The history was replaced by a summary."""
        self._compactions += 1
        self._scanner.compacted()

    def run(self, file: str, kind: str, ended: Ended) -> SurveyedRun:
        """The numbers of the run, which is over. `kind`: the format of its file."""
        scanner, totals = self._scanner, ended.totals
        produced = ModelOutput(self._all_chars, self._all_calls, self._all_turns)
        usage, cost = self._usage, self._cost
        if totals is not None:
            usage = totals.tokens or usage
            summed = RunCost.of_totals(totals, self.began.model, self._last_at)
            cost = summed if summed.usd is not None else cost
        stopped = scanner.ended_by is not None
        tokens = self._usage.total_tokens if self._usage else 0
        then = self._usage_then.total_tokens if self._usage_then else 0
        return SurveyedRun(
            file=file,
            format=kind,
            began=self.began,
            ended=ended,
            task=self._task,
            first_at=self._first_at,
            last_at=self._last_at,
            total=produced,
            errors=self._errors,
            usage=usage,
            cost_usd=cost.usd,
            cost_partial=cost.partial,
            cost_listed=cost.listed,
            compactions=self._compactions,
            findings=tuple(scanner.findings),
            ended_by=scanner.ended_by,
            saved=produced - scanner.produced if stopped else ModelOutput(),
            saved_tokens=None if self._usage is None else tokens - then if stopped else 0,
            saved_usd=self._cost.since(self._cost_then) if stopped else 0.0,
            result=self._result_then or (self._result if scanner.findings else ""),
            failed=self._failed,
        )


@dataclass(slots=True, frozen=True)
class WatchSettings:
    """The parts that watch runs. `detectors`, `policy`: functions that make new ones for each run;
    `None`: the guard's default ones. `watcher`: what is kept of a run. `ask_judge`: who asks
    `judge`, where there is one.
    """

    detectors: Callable[[], Sequence[Detector]] | None = None
    policy: Callable[[], Policy | None] | None = None
    watcher: Callable[[Began, RunScanner], Watcher] = Watcher
    judge: Judge | None = None
    ask_judge: AskJudge | None = None

    def begin(self, began: Began) -> Watcher:
        """Begin to watch one more run."""
        scanner = RunScanner(
            detectors=self.detectors() if self.detectors is not None else None,
            policy=self.policy() if self.policy is not None else None,
            judge=self.judge,
            ask_judge=self.ask_judge,
            task=began.title or None,
        )
        return self.watcher(began, scanner)


class Survey:
    """The runs of one transcript that are open. It can be stored with `pickle`; then `watched` is
    to be set again.
    """

    def __init__(self, file: str, kind: str, watched: WatchSettings) -> None:
        self.watched = watched
        self._file, self._kind = file, kind
        self._open: dict[str, Watcher] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "watched": None}

    def take(self, entry: TranscriptEntry) -> SurveyedRun | None:
        """The run that ends with `entry`."""
        match entry:
            case Began():
                self._open[entry.run] = self.watched.begin(entry)
            case Said():
                self._open[entry.run].take(entry.message)
            case CompactionSeen():
                self._open[entry.run].compacted()
            case Ended():
                return self._open.pop(entry.run).run(self._file, self._kind, entry)
        return None

    def take_all(self, entries: Iterable[TranscriptEntry]) -> list[SurveyedRun]:
        """The runs that end among `entries`."""
        return [run for entry in entries if (run := self.take(entry)) is not None]


def survey(
    source: Source,
    report: ReadReport | None = None,
    *,
    detectors: Callable[[], Sequence[Detector]] | None = None,
    policy: Callable[[], Policy | None] | None = None,
    watcher: Callable[[Began, RunScanner], Watcher] = Watcher,
) -> Iterator[SurveyedRun]:
    """The runs of one transcript, each when it is over. `detectors`, `policy`: functions that make
    new ones for each run; `None`: the guard's default ones. Unreadable parts are noted in `report`.
    `watcher`: who watches a run, and says what is kept of it.

    Nothing is yielded for a transcript of an unknown format.
    """
    reader = reader_of(source)
    if reader is not None:
        yield from _surveyed(
            reader, source, ReadReport() if report is None else report, WatchSettings(detectors, policy, watcher)
        )


def _surveyed(
    reader: TranscriptReader, source: Source, report: ReadReport, watched: WatchSettings
) -> Iterator[SurveyedRun]:
    open_runs = Survey(source.name, reader.format, watched)
    logs: dict[str, StepLog] = {}
    for entry in reader.read(source, report):
        match entry:
            case Began():
                logs[entry.run] = StepLog(entry, source)
            case Said() if not logs[entry.run].take(entry.message):
                report.repeated += 1
                continue
            case _:
                pass
        if (run := open_runs.take(entry)) is not None:
            yield replace(run, steps=logs.pop(run.id).end())


def survey_file(source: Source, *, watched: WatchSettings | None = None) -> SurveyedFile:
    """One transcript, read to its end. Its content never raises an error. `watched`: the guard's
    default detectors and policy if `None`.
    """
    report = ReadReport()
    try:
        reader = reader_of(source)
        found = () if reader is None else tuple(_surveyed(reader, source, report, watched or WatchSettings()))
    except (OSError, MissingExtra) as error:
        return SurveyedFile(file=source.name, format=None, report=report, error=why_unread(error))
    if reader is None and source.fault:
        return SurveyedFile(file=source.name, format=None, report=report, error=source.fault)
    return SurveyedFile(file=source.name, format=reader.format if reader else None, runs=found, report=report)


def why_unread(error: OSError | MissingExtra) -> str:
    """Why a file cannot be read at all."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


__all__ = [
    "EndState",
    "Survey",
    "SurveyedFile",
    "SurveyedRun",
    "WatchSettings",
    "Watcher",
    "survey",
    "survey_file",
    "why_unread",
]

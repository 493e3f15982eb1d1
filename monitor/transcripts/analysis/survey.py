"""Reads and watches a transcript in one pass: the numbers of its runs, their loops, and the saving
of a stop. Only the numbers and the findings of a run are kept, however large it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from monitor.chunks import Usage
from monitor.detectors.detector import Detector
from monitor.errors import MissingExtra
from monitor.judges.judge import Judge
from monitor.outcome import RunFailed
from monitor.policy import Policy
from monitor.transcripts.analysis.recorded_steps import (
    NO_STEPS,
    NOTHING_SPENT,
    RecordedSteps,
    Spent,
    StepLog,
    known_sum,
)
from monitor.transcripts.analysis.scan import TURNS_KEPT, AskJudge, Finding, LoopExtent, ModelOutput, RunScanner
from monitor.transcripts.base import (
    Began,
    Chunker,
    CompactionSeen,
    Ended,
    ReadReport,
    RecordedMessage,
    Said,
    TranscriptEntry,
)
from monitor.transcripts.readers.base import TranscriptReader
from monitor.transcripts.readers.registry import reader_of
from monitor.transcripts.source import Source
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
    answered_by: str = ""
    """The model that the first response with a name names."""
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
    loop: LoopExtent | None = None
    """The decisive loop in the whole run, also behind that finding. `None`: there is none, or a
    judge has found it.
    """
    loop_usd: float | None = None
    """The cost of the responses from the first repetition to the last. `None`: it is not known."""
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
    def count(self) -> int:
        """How often the repeated thing is there in the whole run; 0 without a loop."""
        if self.loop is not None:
            return self.loop.count
        return self.detection.count if self.detection else 0

    @property
    def model(self) -> str:
        """The model of the run, as far as its recording names one."""
        return self.began.model or self.answered_by

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
        self._total = NOTHING
        self._errors = self._compactions = 0
        self._spent = self._spent_then = NOTHING_SPENT
        self._spent_before = deque[Spent](maxlen=TURNS_KEPT)
        """What the run had cost before each of the newest responses."""
        self._loop_from: Spent | None = None
        self._loop_to = NOTHING_SPENT
        """What it had cost before the first repetition of the loop, and after the last."""
        self._answered_by = ""
        self._failed = ""

    @property
    def finding(self) -> Finding | None:
        """The latest finding in the run."""
        return self._scanner.findings[-1] if self._scanner.findings else None

    def take(self, message: RecordedMessage) -> Sequence[Finding]:
        """Watch the next message. Returns the findings in it."""
        self._count(message)
        known, over = len(self._scanner.findings), self._scanner.over
        self._scanner.later.clear()
        if not self._failed:
            try:
                if message.role == "user" and not message.synthetic and message.text:
                    self.request(message.text)
                for chunk in self._chunker.chunks(message):
                    self._scanner.take(self._index, chunk)
            except RunFailed as error:
                self._failed = "" if over else str(error)  # what follows a stop decides nothing
        found = self._scanner.findings[known:]
        if self._result_then == "" and any(finding.detection.level == "loop" for finding in found):
            self._result_then = self._result
        if self._scanner.ended_by is not None and self._spent_then.usage is None:
            self._spent_then = self._spent
        if self._scanner.loop is not None and (found or self._scanner.later):
            self._price(self._scanner.loop)
        if message.tool_results:
            self._result = message.tool_results[-1].text[:EXCERPT_CHARS]
        self._index += 1
        return found

    def _price(self, loop: LoopExtent) -> None:
        """Note what the run had cost at both ends of the loop."""
        if self._loop_from is None and self._spent_before:
            back = min(self._total.turns - loop.first_turn + 1, len(self._spent_before))
            self._loop_from = self._spent_before[-back]
        if loop.last_turn == self._total.turns:
            self._loop_to = self._spent

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
        self._errors += sum(result.is_error for result in message.tool_results)
        if message.role == "assistant":
            self._total += ModelOutput(len(message.text), len(message.tool_calls), 1)
            self._spent_before.append(self._spent)
            self._answered_by = self._answered_by or message.model
        self._spent = self._spent.plus(message, self.began.model)

    def compacted(self) -> None:
        """The history was replaced by a summary."""
        self._compactions += 1
        self._scanner.compacted()

    def run(self, file: str, kind: str, ended: Ended) -> SurveyedRun:
        """The numbers of the run, which is over. `kind`: the format of its file."""
        scanner, spent, stopped = self._scanner, self._spent, self._scanner.ended_by is not None
        whole = spent.or_totals(ended.totals, self.began.model, self._last_at)
        saved_tokens = spent.tokens - self._spent_then.tokens if stopped else 0
        return SurveyedRun(
            file=file,
            format=kind,
            began=self.began,
            ended=ended,
            task=self._task,
            answered_by=self._answered_by,
            first_at=self._first_at,
            last_at=self._last_at,
            total=self._total,
            errors=self._errors,
            usage=whole.usage,
            cost_usd=whole.usd,
            cost_partial=whole.partial,
            cost_listed=whole.listed,
            compactions=self._compactions,
            findings=tuple(scanner.findings),
            ended_by=scanner.ended_by,
            loop=scanner.loop,
            loop_usd=None if self._loop_from is None else self._loop_to.usd_since(self._loop_from),
            saved=self._total - scanner.produced if stopped else NOTHING,
            saved_tokens=None if spent.usage is None else saved_tokens,
            saved_usd=spent.usd_since(self._spent_then) if stopped else 0.0,
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
            whole=True,
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


# --------------------------------------------------------------------------------------------------
# What a scan found, in one sentence for people: how many runs looped, and the costliest of them.
#
# It names tools and numbers, and no other word of a transcript, so it can be shared.

_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "identical_calls": ("the same call again and again", "{tool} {count} times with the same arguments"),
    "cycle": ("a few calls in a ring", "{count} rounds of the same calls"),
    "stalled": ("a number that does not go down", "{tool} {count} times without getting on"),
    "no_news": ("calls that add nothing new", "{count} calls that added nothing new"),
    "same_error": ("the same error again and again", "{tool} {count} times with the same error"),
    "unknown_tool": ("calls of a tool that does not exist", "{tool} {count} times, a tool that does not exist"),
    "equal_messages": ("the same message again and again", "the same message {count} times"),
    "similar_messages": ("almost the same message again and again", "almost the same message {count} times"),
    "message_cycle": ("a few messages in turn", "{count} rounds of the same messages"),
}
"""For each kind of a finding: its name, and the words about one run."""
_TEXT: Final = "the same text again and again", "the same text {count} times"
_OTHER: Final = "another kind of loop", "a loop with a count of {count}"
"""A kind that a detector of the user's has."""
_LEAST_USD: Final = 0.01
"""A smaller sum that is not 0 is not shown as 0."""


def kind_in_words(found: Detection) -> str:
    """The kind of a loop, in words for people."""
    return _words_of(found)[0]


def loop_in_words(found: Detection, count: int | None = None) -> str:
    """The loop of one run, in words for people. `count`: that of the whole run."""
    tool = found.evidence.excerpt.partition("(")[0].strip() if found.channel == "tools" else ""
    return _words_of(found)[1].format(tool=tool or "a tool", count=f"{count or found.count:,}")


def stretch_in_words(run: SurveyedRun) -> str:
    """The steps of the loop of a run, and their cost."""
    loop = run.loop
    if loop is None:
        return ""
    steps = f"{loop.first_turn:,}" + (f" to {loop.last_turn:,}" if loop.last_turn > loop.first_turn else "")
    cost = cost_in_words(run.loop_usd, partial=run.cost_partial, listed=run.cost_listed)
    return f"step {steps}, {cost}"


def avoided_in_words(run: SurveyedRun) -> str:
    """What a stop would have avoided, and where it would have come. Empty: there is none."""
    finding = run.ended_by
    if finding is None:
        return ""
    place = f"step {finding.turn:,}" if finding.detection.kind == "judge" else _ordinal(finding.detection.count)
    if run.saved_usd:
        least = "less than " if run.saved_usd < _LEAST_USD else ""
        return f"a stop at {place} would have avoided {least}${max(run.saved_usd, _LEAST_USD):,.2f}"
    return f"a stop at {place} would have avoided {run.saved.turns:,} {'step' if run.saved.turns == 1 else 'steps'}"


def loop_of_run(run: SurveyedRun, *, avoided: bool = True) -> str:
    """The loop of a whole run: what was repeated, where, and at what cost. `avoided`: also what a
    stop would have avoided. Empty: the run has no loop.
    """
    if run.detection is None:
        return ""
    told = loop_in_words(run.detection, run.count)
    if run.loop is not None:
        told += f", {stretch_in_words(run)}"
    return f"{told}; {stop}" if avoided and (stop := avoided_in_words(run)) else told


def _ordinal(number: int) -> str:
    words = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
    return f"the {words[number - 1]}" if 0 < number <= len(words) else f"repetition {number:,}"


def _words_of(found: Detection) -> tuple[str, str]:
    return _WORDS.get(found.kind, _TEXT if found.channel in {"text", "reasoning"} else _OTHER)


def cost_in_words(usd: float | None, *, partial: bool, listed: bool) -> str:
    """A cost: as the recording says, about so much by list prices, or unknown. `partial`: some
    tokens have no known price.
    """
    if usd is None:
        return "at an unknown cost"
    if 0 < usd < _LEAST_USD and not partial:
        return f"for less than ${_LEAST_USD:,.2f}"
    return f"{'at least' if partial else 'about' if listed else 'for'} ${usd:,.2f}"


@dataclass(slots=True)
class Card:
    """Counts the runs, adds up what they cost, and keeps the one whose loop cost the most."""

    runs: int = 0
    loops: int = 0
    costliest: SurveyedRun | None = None
    usd: float | None = None
    """The cost of all runs in US dollars, as far as it is known. `None`: of none of them."""
    saved_usd: float | None = None
    """The part of `usd` that stops would have saved."""
    saved_tokens: int | None = None
    partial: bool = False
    """The cost of a run, or of a part of it, is not known, so the sums are at least these."""
    first_at: float | None = None
    last_at: float | None = None
    """The times of the first and the last message of all runs, in seconds since 1970."""

    def add(self, run: SurveyedRun) -> None:
        """Count one more run."""
        self.runs += not run.goes_on
        self.partial |= run.cost_partial or (run.cost_usd is None and not run.silent)
        self.usd = known_sum(self.usd, run.cost_usd)
        times = [at for at in (self.first_at, self.last_at, run.first_at, run.last_at) if at is not None]
        self.first_at, self.last_at = min(times, default=None), max(times, default=None)
        if run.ended_by is not None:
            self.saved_usd = known_sum(self.saved_usd, run.saved_usd)
            self.saved_tokens = known_sum(self.saved_tokens, run.saved_tokens)
        if run.loops:
            self.loops += 1
            if self.costliest is None or _rank(run) > _rank(self.costliest):
                self.costliest = run

    @property
    def headline(self) -> str:
        """How many runs looped."""
        if not self.loops:
            return f"{self.runs:,} {'run' if self.runs == 1 else 'runs'}, and none looped"
        return "1 run looped" if self.runs == 1 else f"{self.loops:,} of {self.runs:,} runs looped"

    def said(self) -> str:
        """The sentence."""
        run = self.costliest
        if run is None or run.finding is None:
            return self.headline
        return f"{self.headline}{': ' if self.loops == 1 else '. The costliest: '}{loop_of_run(run)}"

    @property
    def about(self) -> tuple[str, str, str] | None:
        """The costliest run: its loop, its length and cost, and what a stop would have avoided."""
        run = self.costliest
        if run is None:
            return None
        loop = f"{'It was' if self.loops == 1 else 'The costliest:'} {loop_of_run(run, avoided=False)}"
        stop = avoided_in_words(run) or "the policy would not have stopped it"
        return loop, f"The run: {self.costs_in_words(run)}", f"{stop[0].upper()}{stop[1:]}."

    @staticmethod
    def costs_in_words(run: SurveyedRun) -> str:
        """The length and the cost of a run."""
        steps = f"{run.total.turns:,} {'step' if run.total.turns == 1 else 'steps'}"
        return f"{steps}, {cost_in_words(run.cost_usd, partial=run.cost_partial, listed=run.cost_listed)}"

    def sum_in_words(self, usd: float | None) -> str:
        """A sum over all runs, in US dollars. The cost of some may not be known."""
        if usd is None:
            return "unknown cost"
        if 0 < usd < _LEAST_USD and not self.partial:
            return f"< ${_LEAST_USD:,.2f}"
        return f"{'≥ ' if self.partial else ''}${usd:,.2f}"


def _rank(run: SurveyedRun) -> tuple[float, int, int]:
    return run.saved_usd or 0.0, run.saved_tokens or 0, run.saved.turns

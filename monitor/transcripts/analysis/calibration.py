"""A stop line with a promise, from good runs: of future ones that are like them, at most a given
share is stopped. Pure arithmetic.

The method is split conformal prediction. Each good run has a score: how far it went towards a stop.
The line is the k-th smallest of n scores, k = ceil((n + 1) (1 - at_most)). A run is stopped if its
score is above the line. If a new run is exchangeable with the n, each rank among the n + 1 has the
same chance. So it is above the line with a chance of at most `at_most`. Nothing is assumed of the
scores. The promise is about the average over draws of the n runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from monitor.chunks import ToolCall, ToolResult
from monitor.detectors.calls.learned_evidence import LearnedEvidence
from monitor.errors import ConfigError
from monitor.judges.digest import Digest, IdleSteps
from monitor.judges.judge import LEAST_STEPS, JudgeInput
from monitor.outcome import Turn
from monitor.transcripts.analysis.scan import KEPT_FOR_JUDGES
from monitor.transcripts.base import Chunker, RecordedRun

NEVER: int = -1
"""The evidence of a run that no level of settings stops."""


@dataclass(slots=True, frozen=True)
class StopPlace:
    """Where a run would have been stopped."""

    turn: int
    """The model response, counted from 1."""
    spent: float
    """Tokens that were spent up to the stop."""


@dataclass(slots=True, frozen=True)
class Trace:
    """The costs of a run, and where each level of settings would have stopped it."""

    costs: tuple[float, ...]
    """Tokens spent up to the end of each turn."""
    stops: tuple[StopPlace | None, ...]
    """For each level, the strictest first. `None`: it does not stop the run."""
    peaks: tuple[tuple[float, StopPlace], ...] = ()
    """Where evidence that is weighed became higher than before, and its height in levels, also
    between two of them: a line at that height stops the run no more.
    """

    @property
    def total(self) -> float:
        """The tokens that the whole run spent."""
        return self.costs[-1] if self.costs else 0.0

    @property
    def turns(self) -> int:
        """The number of the model's responses."""
        return len(self.costs)

    @property
    def evidence(self) -> float:
        """The most lenient level that stops the run, or the highest peak; `NEVER`: nothing does."""
        return max((height for height, _ in self.events), default=NEVER)

    @property
    def events(self) -> list[tuple[float, StopPlace]]:
        """The stops by levels, and the peaks."""
        levels = [(float(level), stop) for level, stop in enumerate(self.stops) if stop is not None]
        return [*levels, *self.peaks]

    def before(self, turn: int) -> float:
        """Tokens spent before the turn, counted from 1."""
        return self.costs[turn - 2] if turn > 1 else 0.0


def needed(at_most: float) -> int:
    """The smallest number of runs from which a line can be drawn: 19 for 0.05.

    Raises `ConfigError` if `at_most` is not between 0 and 1.
    """
    return math.ceil(1 / _share(at_most)) - 1


def line(scores: Sequence[float], at_most: float) -> float:
    """The k-th smallest score. A run above it is stopped.

    Raises `ConfigError` if there are fewer runs than `needed`.
    """
    share = _share(at_most)
    if len(scores) < (least := needed(at_most)):
        raise ConfigError(
            f"{len(scores)} good runs are too few to promise {at_most:.3g}: {least} are needed,"
            f" and {least - len(scores)} more"
        )
    return sorted(scores)[math.ceil((len(scores) + 1) * (1 - share)) - 1]


def _share(at_most: float) -> Fraction:
    """Return `at_most` as an exact number: 0.05 is 1/20, and 20 runs are then not one too few."""
    if not 0 < at_most < 1:
        raise ConfigError(f"at_most={at_most!r}: give a share between 0 and 1, e.g. 0.05")
    return Fraction(str(at_most))


@dataclass(slots=True, frozen=True)
class ScoringRule:
    """A way to score runs, and where a line on its score stops one."""

    name: str
    score: Callable[[Trace], float]
    stop: Callable[[Trace, float], float | None]
    """Tokens spent up to the stop with this line; `None`: the run is not stopped."""


def _evidence_stop(trace: Trace, at: float) -> float | None:
    return min((stop.spent for height, stop in trace.events if height > at), default=None)


def _length_stop(trace: Trace, at: float) -> float | None:
    return trace.before(int(at) + 1) if trace.turns > at else None


EVIDENCE = ScoringRule("evidence", lambda trace: trace.evidence, _evidence_stop)
"""The settings above the line."""
LENGTH = ScoringRule("length alone", lambda trace: float(trace.turns), _length_stop)
"""The baseline: a number of turns, whatever they do."""


def evidence_and_length(scale: float) -> ScoringRule:
    """Evidence in levels, and each `scale` turns count like one level more."""

    def stop(trace: Trace, at: float) -> float | None:
        events = sorted(((found.turn, found.spent, height) for height, found in trace.events), reverse=True)
        highest: float = NEVER
        for turn in range(1, trace.turns + 1):
            if highest + turn / scale > at:
                return trace.before(turn)
            while events and events[-1][0] <= turn:
                _, spent, height = events.pop()
                highest = max(highest, height)
                if highest + turn / scale > at:
                    return spent
        return None

    return ScoringRule("evidence + length", lambda trace: trace.evidence + trace.turns / scale, stop)


def usual_length(traces: Sequence[Trace]) -> float:
    """A scale for `evidence_and_length`: the number of turns that 95 of 100 runs stay below."""
    turns = sorted(trace.turns for trace in traces)
    return float(max(1, turns[math.ceil(0.95 * len(turns)) - 1])) if turns else 1.0


@dataclass(slots=True, frozen=True)
class LineOutcome:
    """The effect of a line on runs that it was not drawn from."""

    rule: str
    at: float
    stopped: int
    """The number of good runs that the line stops."""
    good: int
    caught: int
    """The number of bad runs that the line stops."""
    bad: int
    saved: float
    """Tokens of the bad runs after the stop."""
    lost: float
    """Tokens of the good runs after the stop: work that would be missing."""
    of_bad: float
    """All tokens of the bad runs, before and after a stop."""


def tried(
    rule: ScoringRule, fit: Sequence[Trace], good: Sequence[Trace], bad: Sequence[Trace], at_most: float
) -> LineOutcome:
    """Draw the line from `fit`, and use it on `good` and `bad`."""
    at = line([rule.score(trace) for trace in fit], at_most)
    good_stops = [(trace, spent) for trace in good if (spent := rule.stop(trace, at)) is not None]
    bad_stops = [(trace, spent) for trace in bad if (spent := rule.stop(trace, at)) is not None]
    return LineOutcome(
        rule.name,
        at,
        len(good_stops),
        len(good),
        len(bad_stops),
        len(bad),
        sum(trace.total - spent for trace, spent in bad_stops),
        sum(trace.total - spent for trace, spent in good_stops),
        sum(trace.total for trace in bad),
    )


# --------------------------------------------------------------------------------------------------
# A recorded run as the input of a judge: up to the repetition at which the labelled loop is
# evident, else the whole run.

STUCK = "loop"
"""The label that a corpus gives to stuck runs."""
NOT_STUCK = ("clean", "hard_negative")
"""The labels of other runs. Any further label, such as `borderline`, is not counted."""
WITHIN_ONE_MESSAGE = "text_"
"""Prefix of the kinds of loops within one message. Detectors of characters see them while they are
written, long before a judge is asked. A judge sees only the opening and the end of a message.
"""


def is_stuck(run: RecordedRun) -> bool | None:
    """Whether the label says that the run is stuck. `None`: the label does not decide."""
    if run.label == STUCK:
        return None if run.loop is not None and run.loop.kind.startswith(WITHIN_ONE_MESSAGE) else True
    return False if run.label in NOT_STUCK else None


def question_on(run: RecordedRun, until: int | None = None) -> JudgeInput | None:
    """The judge's input for `run`. `None`: the run is too short.

    `until`: the index of the message whose calls are the last that have an answer. `None`: the
    labelled loop decides.
    """
    if until is None and run.loop is not None:
        until = run.loop.turn_3 if run.loop.turn_5 is None else run.loop.turn_5
    digest, idle_steps, chunker = Digest(), IdleSteps(LearnedEvidence(), run.task), Chunker()
    turns, asked = 0, False
    began = next((message.at for message in run.messages if message.at is not None), None)
    for index, message in enumerate(run.messages):
        if until is not None and index > until and message.role == "assistant":
            break
        at_s = message.at - began if message.at is not None and began is not None else None
        if message.role == "system":
            digest.set_scene(message.text)
        elif message.role == "user" and message.text:
            if message.synthetic:
                digest.add_warning(turns, message.text)
            elif asked:
                digest.add_request(message.text)
                idle_steps.request(message.text)
            asked = True
        chunks = list(chunker.chunks(message))
        if message.role == "assistant":
            turns += 1
            calls = tuple(chunk for chunk in chunks if isinstance(chunk, ToolCall))
            text = message.text[:KEPT_FOR_JUDGES]
            turn = Turn(number=turns, text=text, text_chars=len(message.text), tool_calls=calls)
            digest.add_turn(turn, at_s)
            idle_steps.add_turn(turn)
        for result in chunks:
            if isinstance(result, ToolResult):
                digest.add_result(result, at_s)
                idle_steps.add_result(result)
    if turns < LEAST_STEPS:
        return None
    record = digest.render()
    return JudgeInput(run.task, record, turns + 1, idle_steps.render(digest.turns_shown))

"""What a scan found, in one sentence for people: how many runs looped, and the costliest of them.

It names tools and numbers, and no other word of a transcript, so it can be shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from monitor.transcripts.analysis.cost import known_sum
from monitor.transcripts.analysis.survey import SurveyedRun
from monitor.verdicts import Detection

_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "identical_calls": ("the same call again and again", "{tool} {count} times with the same arguments"),
    "cycle": ("a few calls in a ring", "{count} rounds of the same calls"),
    "stalled": ("a number that does not go down", "{tool} {count} times without getting on"),
    "no_news": ("calls that add nothing new", "{count} calls that added nothing new"),
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


def loop_in_words(found: Detection) -> str:
    """The loop of one run, in words for people, with its count."""
    tool = found.evidence.excerpt.partition("(")[0].strip() if found.channel == "tools" else ""
    return _words_of(found)[1].format(tool=tool or "a tool", count=f"{found.count:,}")


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
        stop = f"could have stopped at step {run.finding.turn:,}"
        told = [loop_in_words(run.finding.detection), self.costs_in_words(run), stop]
        return f"{self.headline}{': ' if self.loops == 1 else '. The costliest: '}{', '.join(told)}"

    @property
    def about(self) -> tuple[str, str, str] | None:
        """The costliest run: its loop, its length and cost, and the place of a stop."""
        run = self.costliest
        if run is None or run.finding is None:
            return None
        loop = f"{'It was' if self.loops == 1 else 'The costliest:'} {loop_in_words(run.finding.detection)}"
        stop = f"A stop would have come at step {run.finding.turn:,} of {run.total.turns:,}."
        return loop, self.costs_in_words(run), stop

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

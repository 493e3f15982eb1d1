"""The promise holds for what is exchangeable, and is refused where it cannot be given."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.detectors import LearnedEvidence
from monitor.errors import ConfigError
from monitor.transcripts.analysis.calibration import (
    EVIDENCE,
    LENGTH,
    NEVER,
    ScoringRule,
    StopPlace,
    Trace,
    evidence_and_length,
    line,
    needed,
    tried,
    usual_length,
)
from monitor.transcripts.analysis.traces import UNREACHED
from monitor.transcripts.corpus import Corpus
from tests.examples import tries

LEVELS = 6


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    costs: list[float] = []
    for own in draw(st.lists(st.integers(1, 1_000), min_size=1, max_size=30)):
        costs.append((costs[-1] if costs else 0.0) + own)
    # a more lenient level stops later, or not at all
    turns = sorted(draw(st.lists(st.integers(1, len(costs)), max_size=LEVELS)))
    stops = [StopPlace(turn, costs[turn - 1]) for turn in turns]
    heights = sorted(draw(st.sets(st.floats(0, 8), max_size=4)))
    seen = sorted(draw(st.lists(st.integers(1, len(costs)), min_size=len(heights), max_size=len(heights))))
    peaks = [(height, StopPlace(turn, costs[turn - 1])) for height, turn in zip(heights, seen, strict=True)]
    return Trace(tuple(costs), (*stops, *[None] * (LEVELS - len(stops))), tuple(peaks))


RULES = st.sampled_from([EVIDENCE, LENGTH, evidence_and_length(7.0), evidence_and_length(1.0)])


@pytest.mark.parametrize(("at_most", "least"), [(0.05, 19), (0.1, 9), (0.01, 99), (0.5, 1), (0.3, 3)])
def test_so_many_good_runs_are_needed(at_most: float, least: int):
    assert needed(at_most) == least
    line([1.0] * least, at_most)
    with pytest.raises(ConfigError, match=f"{least - 1} good runs are too few .* {least} are needed, and 1 more"):
        line([1.0] * (least - 1), at_most)


@pytest.mark.parametrize("at_most", [0.0, 1.0, -0.1, 2.0])
def test_a_share_that_is_none_is_refused(at_most: float):
    with pytest.raises(ConfigError):
        needed(at_most)


@given(st.lists(st.integers(-5, 50), min_size=19, max_size=300), st.sampled_from([0.05, 0.1, 0.2, 0.5]))
def test_of_a_run_and_its_calibration_runs_at_most_the_promised_share_is_above_its_line(
    scores: list[int], at_most: float
):
    """The law itself: each of the n + 1 runs in turn is the new one."""
    if len(scores) - 1 < needed(at_most):
        return
    above = sum(score > line([*scores[:place], *scores[place + 1 :]], at_most) for place, score in enumerate(scores))
    assert above <= at_most * len(scores)


@pytest.mark.parametrize("at_most", [0.05, 0.2])
def test_the_promise_holds_on_average_over_many_draws(at_most: float):
    chance = random.Random(7)
    stopped = 0
    for _ in range(2_000):
        scores = [chance.paretovariate(1.1) for _ in range(41)]
        stopped += scores[-1] > line(scores[:-1], at_most)
    assert stopped / 2_000 <= at_most + 0.015  # three standard errors
    assert stopped / 2_000 >= at_most / 3  # and it is no line that stops nobody


FIXTURES = Path(__file__).parents[3] / "fixtures" / "transcripts"


@cache
def evidence_of_good_runs() -> list[float]:
    """The highest evidence of each good run of calls, recorded and composed."""
    found: list[float] = []
    for run in (run for name in ("dev.jsonl.gz", "composed.jsonl.gz") for run in Corpus(FIXTURES / name)):
        if run.label in {"clean", "hard_negative"}:
            gauge = LearnedEvidence(stop=UNREACHED)
            gauge.request(run.task or "")
            for _, chunk in run.chunks():
                gauge.observe(chunk)
            found.append(gauge.highest)
    return found


@pytest.mark.parametrize("at_most", [0.05, 0.02, 0.005])
def test_the_promise_holds_of_the_evidence_of_real_runs_over_resampled_halves(at_most: float):
    """Half of the good runs draws the line, of the other half no more than promised is above it."""
    evidence = evidence_of_good_runs()
    assert len(evidence) > 750
    chance, shares = random.Random(11), list[float]()
    for _ in range(tries(400)):
        halves = chance.sample(evidence, len(evidence))
        at = line(halves[::2], at_most)
        rest = halves[1::2]
        shares.append(sum(score > at for score in rest) / len(rest))
    assert sum(shares) / len(shares) <= at_most + 0.003  # three standard errors
    if at_most > 0.01:
        assert sum(shares) / len(shares) >= at_most / 3, "it is no line that nobody comes to"


def test_a_share_counts_as_it_is_written():
    """As a float, 0.15 is a little less than 15 of 100."""
    assert line([*range(1, 20)], 0.15) == 17


@given(traces(), RULES, st.integers(NEVER, 8) | st.none())
def test_a_run_is_stopped_only_above_the_line_and_before_its_end_is_paid(
    trace: Trace, rule: ScoringRule, drawn: int | None
):
    at = rule.score(trace) if drawn is None else float(drawn)
    spent = rule.stop(trace, at)
    assert (spent is not None) == (rule.score(trace) > at)
    if spent is not None:
        assert 0 <= spent <= trace.total


@given(traces(), RULES)
def test_a_higher_line_never_stops_sooner(trace: Trace, rule: ScoringRule):
    stops = [rule.stop(trace, float(at)) for at in range(-1, 40)]
    spent = [trace.total + 1 if stop is None else stop for stop in stops]
    assert spent == sorted(spent)


@given(st.lists(traces(), min_size=19, max_size=40), RULES)
def test_the_runs_that_drew_the_line_keep_the_promise_themselves(runs: list[Trace], rule: ScoringRule):
    done = tried(rule, runs, runs, [], 0.05)
    assert done.stopped <= 0.05 * (len(runs) + 1)


def test_evidence_saves_what_comes_after_the_stop():
    quiet = [Trace((10.0, 20.0), (None, None)) for _ in range(19)]
    stuck = Trace((10.0, 20.0, 100.0), (StopPlace(2, 20.0), StopPlace(3, 100.0)))
    done = tried(EVIDENCE, quiet, quiet, [stuck], 0.05)
    assert (done.at, done.stopped, done.caught, done.saved, done.of_bad) == (NEVER, 0, 1, 80.0, 100.0)


def test_what_good_runs_lose_and_all_that_loops_spent_is_told():
    calm, stopped = Trace((10.0, 20.0), (None,)), Trace((10.0, 20.0, 50.0), (StopPlace(2, 20.0),))
    done = tried(EVIDENCE, [calm] * 19, [calm, stopped], [calm, stopped], 0.05)
    assert (done.stopped, done.lost, done.caught, done.saved, done.of_bad) == (1, 30.0, 1, 30.0, 70.0)


def test_a_turn_above_a_line_of_turns_is_not_paid():
    trace = Trace((10.0, 20.0, 100.0), ())
    assert [LENGTH.stop(trace, at) for at in (0.0, 1.0, 2.0, 3.0)] == [0.0, 10.0, 20.0, None]
    assert [evidence_and_length(2.0).stop(trace, at) for at in (-0.5, 0.0, 0.5)] == [10.0, 20.0, None]


def test_a_line_lies_between_two_levels_where_the_evidence_is_weighed():
    peaks = ((0.2, StopPlace(1, 10.0)), (2.5, StopPlace(2, 20.0)))
    trace = Trace((10.0, 20.0), (None,) * 4, peaks)
    assert trace.evidence == 2.5
    assert [EVIDENCE.stop(trace, at) for at in (0.1, 0.2, 2.4, 2.5)] == [10.0, 20.0, 20.0, None]


def test_the_usual_length_is_that_of_the_95th_of_100():
    assert usual_length([Trace(tuple(map(float, range(1, n + 1))), ()) for n in range(1, 101)]) == 95
    assert usual_length([]) == 1

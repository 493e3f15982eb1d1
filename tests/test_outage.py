"""When the failures of many runs are one outage."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import ConfigError
from monitor.outage import ERRORS_KEPT, RESULTS_KEPT, Failure, OutageRule, Trouble

RULE = OutageRule(runs=3, window_s=60.0, probe_every_s=10.0, probe_lease_s=30.0)


def failure(error: str = "503") -> Failure:
    return Failure("tool search", "tool search", error, f"the index answered {error}")


def found_outage() -> Trouble:
    """Found at 2 s."""
    trouble = Trouble()
    for at in range(3):
        RULE.failed(trouble, failure(), f"run-{at}", float(at))
    assert trouble.outage is not None
    return trouble


def test_one_error_in_many_runs_is_one_outage_and_told_once():
    trouble = Trouble()
    told = [RULE.failed(trouble, failure(), f"run-{at}", float(at)) for at in range(6)]
    assert [one is not None for one in told] == [False, False, True, False, False, False]
    finding = told[2]
    assert finding is not None
    assert (finding.runs, finding.failures, finding.since_s, finding.found_s) == (3, 3, 0.0, 2.0)
    assert finding.message == ("tool search failed in 3 runs within 2 s: the index answered 503")


def test_failures_in_a_row_are_an_outage_whatever_worked_before():
    trouble = Trouble()
    for at in range(20):
        RULE.succeeded(trouble, f"worked-{at}", float(at), float(at))
    told = [RULE.failed(trouble, failure(), f"run-{at}", 20.0 + at) for at in range(3)]
    assert [one is not None for one in told] == [False, False, True]


@pytest.mark.parametrize(
    "run_of", [lambda _: "always the same run", lambda at: f"run-{at % 2}"], ids=["one run", "two runs"]
)
def test_failures_of_too_few_runs_are_none(run_of: Any):
    trouble = Trouble()
    assert not any(RULE.failed(trouble, failure(), run_of(at), float(at)) for at in range(50))


def test_different_errors_are_none():
    trouble = Trouble()
    assert not any(RULE.failed(trouble, failure(f"error {at}"), f"run-{at}", float(at)) for at in range(50))
    assert len(trouble.streaks) == ERRORS_KEPT


def test_failures_further_apart_than_the_window_are_none():
    trouble = Trouble()
    assert not any(RULE.failed(trouble, failure(), f"run-{at}", 31.0 * at) for at in range(50))


def test_a_success_between_failures_restarts_the_count():
    trouble = Trouble()
    for at in range(50):
        assert RULE.failed(trouble, failure(), f"run-{at}", float(at)) is None
        if at % 2:
            assert RULE.succeeded(trouble, f"run-{at}", float(at), float(at)) is None
    assert trouble.outage is None


def test_one_run_at_a_time_tries_and_each_failed_probe_doubles_the_wait():
    trouble, now, runs = found_outage(), 2.0, [f"run-{number}" for number in range(9)]
    probes: list[float] = []
    while now < 400:
        goers = [run for run in runs if RULE.may_go(trouble, run, now)]
        if goers:
            assert goers == [runs[len(probes)]]  # those that have not tried go first
            probes.append(now)
            RULE.failed(trouble, failure(), goers[0], now)
        now += 1.0
    assert [after - before for before, after in zip([2.0, *probes], probes, strict=False)] == [
        10,
        20,
        40,
        80,
        80,
        80,
        80,
    ]


def test_the_last_run_of_a_fleet_tries_again_and_again():
    trouble, now, probes = found_outage(), 2.0, 0
    while now < 200:
        if RULE.may_go(trouble, "only", now):
            probes += 1
            RULE.failed(trouble, failure(), "only", now)
        now += 1.0
    assert probes == 4


def test_a_probe_that_never_reports_is_given_up_after_its_lease():
    trouble = found_outage()
    assert RULE.may_go(trouble, "lost", 12.0)
    assert RULE.may_go(trouble, "lost", 20.0)  # it still is the probe
    assert not RULE.may_go(trouble, "next", 41.9)
    assert RULE.may_go(trouble, "next", 42.0)


def test_the_success_of_a_probe_ends_the_outage_and_one_from_before_does_not():
    trouble = found_outage()
    assert RULE.succeeded(trouble, "a", began_s=1.0, now=8.0) is None
    assert not RULE.may_go(trouble, "a", 8.0)
    assert RULE.may_go(trouble, "a", 12.0)
    finding = RULE.succeeded(trouble, "a", began_s=12.0, now=14.0)
    assert finding is not None
    assert (finding.ended_s, finding.message) == (14.0, "tool search works again after 14 s")
    assert RULE.may_go(trouble, "b", 14.0)
    assert RULE.is_over(trouble, 14.0)


steps = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["fails", "other", "works"]), st.floats(0.0, 30.0)), max_size=60
)


@given(steps)
def test_an_outage_is_found_exactly_if_enough_runs_fail_alike_without_a_success_between(steps: Any):
    """Against the plain reading of the rule: in a row, or in most runs."""
    trouble, now = Trouble(), 0.0
    past: list[tuple[int, str, float]] = []
    for run, what, after in steps:
        now += after
        past.append((run, what, now))
        newest = {one: result for one, result, at in past if at > now - RULE.window_s}
        if what == "works":
            RULE.succeeded(trouble, f"run-{run}", now, now)
            if set(newest.values()) == {"works"}:
                past.clear()  # successes count only beside failures
            continue
        since = max((at for at, (_, result, _) in enumerate(past) if result == "works"), default=-1)
        in_a_row = {one for one, error, at in past[since + 1 :] if error == what and at > now - RULE.window_s}
        failing, working = (sum(result == one for result in newest.values()) for one in (what, "works"))
        most = failing - working >= RULE.runs and failing >= RULE.share * len(newest)
        finding = RULE.failed(trouble, failure(what), f"run-{run}", now)
        assert (finding is not None) == (len(in_a_row) >= RULE.runs or most)
        if finding is not None:
            return


@given(steps)
def test_a_stored_trouble_goes_on_as_the_one_in_memory(steps: Any):
    live, stored, now = Trouble(), Trouble(), 0.0
    for run, what, after in steps:
        now += after
        stored = Trouble.from_dict(json.loads(json.dumps(stored.to_dict())))
        assert stored == live
        for one in (live, stored):
            if what == "works":
                RULE.succeeded(one, f"run-{run}", now - 5.0, now)
            elif RULE.may_go(one, f"run-{run}", now):
                RULE.failed(one, failure(what), f"run-{run}", now)


@pytest.mark.parametrize("runs", [12, 30, 100, 1000])
@pytest.mark.parametrize("rate", [0.7, 0.8, 0.95])
def test_a_thing_that_fails_in_seven_of_ten_calls_has_an_outage(rate: float, runs: int):
    rule, late = OutageRule(), 0
    for seed in range(20):
        chance, trouble = random.Random(seed), Trouble()
        for at in range(10 * max(runs, 30)):
            run = f"run-{chance.randrange(runs)}"
            if chance.random() >= rate:
                rule.succeeded(trouble, run, at * 0.05, at * 0.05)
            elif rule.failed(trouble, failure(), run, at * 0.05) is not None:
                break
        else:
            late += 1
    assert late == 0


def test_successes_between_do_not_end_an_outage_of_most_runs_and_several_in_a_row_do():
    trouble = Trouble()
    finding = None
    for at in range(30):
        RULE.succeeded(trouble, f"works-{at % 3}", float(at), float(at))
        finding = finding or RULE.failed(trouble, failure(), f"fails-{at}", float(at))
        if finding is not None:
            break
    assert finding is not None
    assert finding.runs == 6, "three more than the three that work"
    assert trouble.outage is not None
    found = trouble.outage.found_s
    for round_ in range(3):
        for number in range(3):
            assert RULE.succeeded(trouble, f"a-{number}", found + 1, found + 1 + round_) is None
        RULE.failed(trouble, failure(), "b", found + 1 + round_)
    told = [RULE.succeeded(trouble, "c", found + 9, found + 9) for _ in range(4)]
    assert [one is not None for one in told] == [False, False, False, True]


def test_a_probe_that_works_in_an_outage_of_most_runs_lets_the_next_try_at_once():
    trouble = Trouble()
    for at in range(12):
        RULE.succeeded(trouble, f"works-{at % 3}", float(at), float(at))
        RULE.failed(trouble, failure(), f"fails-{at}", float(at))
    outage = trouble.outage
    assert outage is not None
    now = outage.next_probe_s
    assert RULE.may_go(trouble, "one", now)
    assert not RULE.may_go(trouble, "two", now)
    assert RULE.succeeded(trouble, "one", now, now + 1) is None
    assert RULE.may_go(trouble, "two", now + 1)


def test_the_results_that_are_kept_are_bounded():
    trouble, rule = Trouble(), OutageRule(runs=2, share=1.0)
    for at in range(5_000):
        rule.succeeded(trouble, f"works-{at}", 0.0, at * 0.001)
        rule.failed(trouble, failure(f"error {at}"), f"fails-{at}", at * 0.001)
    assert len(trouble.latest) == RESULTS_KEPT


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.1])
def test_a_fleet_whose_calls_fail_independently_has_no_outage(rate: float):
    """100 runs with 200 calls each, all of one tool and with one error: the worst case."""
    rule, chance = OutageRule(), random.Random(19)
    for _ in range(3):
        trouble, now = Trouble(), 0.0
        for _ in range(20_000):
            now += 0.05
            if chance.random() < rate:
                assert rule.failed(trouble, failure(), f"run-{chance.randrange(100)}", now) is None
            else:
                rule.succeeded(trouble, f"run-{chance.randrange(100)}", now - 1.0, now)


@pytest.mark.parametrize(
    "wrong",
    [
        {"runs": 1},
        {"share": 0.4},
        {"share": 1.1},
        {"share": float("nan")},
        {"runs": 2.5},
        {"window_s": 0},
        {"probe_every_s": -1},
        {"probe_lease_s": float("inf")},
    ],
)
def test_what_is_no_rule_is_refused(wrong: dict[str, Any]):
    with pytest.raises(ConfigError):
        OutageRule(**wrong)

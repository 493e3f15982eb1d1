"""How a run ends."""

from __future__ import annotations

import pytest

from monitor.core.counters import Spending
from monitor.core.ending import StreamEnd, outcome_of, undecided_end
from monitor.errors import TerminateReason
from monitor.goal.goal import Goal
from monitor.goal.outputs import Outputs
from monitor.outcome import Outcome
from monitor.verdicts import Stop

Reason = TerminateReason
BUSY = Stop(Reason.RATE_LIMITED, "the provider is busy", "provider")
FAILED = StreamEnd(BUSY, void=True)
LEFT = StreamEnd(Stop(Reason.CLOSED_BY_CALLER, "left", "caller"), left=True)
TRUNCATED = StreamEnd(Stop(Reason.TRUNCATED, "the output limit cut the answer off", "provider"), may_go_on=True)
GOOD = StreamEnd()


@pytest.mark.parametrize(
    ("last", "reached", "reason"),
    [
        (GOOD, None, Reason.STREAM_ENDED),
        (GOOD, "found", Reason.GOAL),
        (FAILED, None, Reason.RATE_LIMITED),
        (FAILED, "found", Reason.RATE_LIMITED),
        (TRUNCATED, None, Reason.TRUNCATED),
        (TRUNCATED, "found", Reason.TRUNCATED),
        (LEFT, None, Reason.CLOSED_BY_CALLER),
        (LEFT, "found", Reason.GOAL),
        (None, None, Reason.CLOSED_BY_CALLER),
        (None, "found", Reason.GOAL),
    ],
)
def test_a_run_that_nothing_has_ended(last: StreamEnd | None, reached: str | None, reason: TerminateReason):
    assert undecided_end(last, reached, goal=None).reason is reason


@pytest.mark.parametrize("reached", [None, "found"])
def test_a_run_without_its_outputs_is_no_good_end_whatever_its_caller_says(reached: str | None):
    stop = undecided_end(GOOD, reached, goal=Goal(Outputs({"summary": str}).fresh()))
    assert (stop.reason, stop.value) == (Reason.MISSING_OUTPUTS, "summary")


def outcome(stop: Stop, *, error: BaseException | None = None, recovered_from: Stop | None = None) -> Outcome:
    return outcome_of(
        stop,
        error=error,
        turn=None,
        turns=2,
        elapsed_s=1.5,
        goal=None,
        spending=Spending(),
        recovered_from=recovered_from,
        closing=None,
    )


@pytest.mark.parametrize(("status", "ok"), [("success", True), ("failure", False)])
def test_the_models_own_word_is_a_good_end_if_it_says_so(status: str, ok: bool):
    assert outcome(Stop(Reason.TERMINATED, "it said so", "terminate", value=status)).ok is ok


def test_only_a_bad_end_has_an_error():
    error = ValueError("no")
    assert outcome(BUSY, error=error).error is error
    assert outcome(Stop(Reason.GOAL, "found", "caller"), error=error).error is None


def test_a_run_has_recovered_only_if_it_reached_its_goal():
    assert outcome(Stop(Reason.GOAL, "found", "model"), recovered_from=BUSY).recovered_from is Reason.RATE_LIMITED
    assert outcome(BUSY, recovered_from=BUSY).recovered_from is None

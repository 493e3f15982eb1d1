"""The verdicts of a policy that wait to be performed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from monitor.core.detector_bank import PartCrash
from monitor.core.observers import VerdictQueue
from monitor.errors import TerminateReason
from monitor.policy import Ladder, StopAtFirstLoop
from monitor.verdicts import Continue, Detection, Nudge, Stop, Verdict
from tests.core.finding import LOOP


class _Broken:
    """Fails wherever it is asked."""

    def decide(self, detection: Detection) -> Verdict:
        raise ValueError("no")

    def reset(self) -> None:
        raise ValueError("no")

    def turn_started(self) -> None:
        raise ValueError("no")

    def snapshot(self) -> dict[str, Any]:
        raise ValueError("no")

    def restore(self, state: Mapping[str, Any]) -> None:
        raise ValueError("no")


def test_verdicts_come_out_in_the_order_in_which_they_came_in():
    queue = VerdictQueue(StopAtFirstLoop())
    queue.add(Nudge("one"))
    queue.add(Nudge("two"))
    assert [queue.pop(), queue.pop(), queue.pop()] == [Nudge("one"), Nudge("two"), Continue()]


def test_only_what_follows_from_a_finding_is_a_loop_to_end_by():
    queue = VerdictQueue(Ladder())
    queue.add(Nudge("the model has stopped too early"))
    ends = [queue.loop]
    queue.add(queue.verdict_on(LOOP), LOOP)
    ends.append(queue.loop)
    assert [(end.reason, end.evidence) if end else None for end in ends] == [
        None,
        (TerminateReason.LOOP_DETECTED, LOOP),
    ]


def test_what_was_said_of_a_void_attempt_is_taken_back_and_the_policy_with_it():
    queue = VerdictQueue(Ladder())
    first = queue.verdict_on(LOOP)
    queue.add(Nudge("said before the turn"))
    queue.turn_started()
    second = queue.verdict_on(LOOP)
    queue.add(second, LOOP)
    assert second != first
    queue.take_back()
    queue.take_back()
    assert queue.verdict_on(LOOP) == second
    assert [queue.pop(), queue.pop()] == [Nudge("said before the turn"), Continue()]


def test_a_turn_without_a_finding_has_nothing_to_take_back():
    queue = VerdictQueue(Ladder())
    queue.add(Nudge("stays"))
    queue.turn_started()
    queue.take_back()
    assert queue.pop() == Nudge("stays")


@pytest.mark.parametrize("ask", [VerdictQueue.reset, VerdictQueue.turn_started, lambda queue: queue.verdict_on(LOOP)])
def test_a_policy_that_fails_is_named(ask: Callable[[VerdictQueue], object]):
    with pytest.raises(PartCrash) as crash:
        ask(VerdictQueue(_Broken()))
    assert crash.value.name == "_Broken"
    assert isinstance(crash.value.error, ValueError)


def test_what_is_no_verdict_is_a_crash():
    class Mute(StopAtFirstLoop):
        def decide(self, detection: Detection) -> Stop | Continue:
            return "stop"  # type: ignore[return-value]

    with pytest.raises(PartCrash, match="Mute"):
        VerdictQueue(Mute()).verdict_on(LOOP)

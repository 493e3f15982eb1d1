from __future__ import annotations

import json
from typing import Any

import pytest

from monitor.policy import ObserveOnly, Policy, StopAtFirstLoop, stop_for
from monitor.reasons import TerminateReason
from monitor.verdicts import Continue, Detection, Evidence, Level, Stop


def detection(level: Level, count: int = 10) -> Detection:
    evidence = Evidence("la la ", "00" * 8, 6, (0, 6, 12))
    return Detection("content_repetition", "chant", "text", level, count, 10, 0, 60, evidence, "'la la ' came 10 times")


POLICIES: list[Policy] = [StopAtFirstLoop(), ObserveOnly()]


def test_a_sure_loop_ends_the_run_and_the_stop_carries_the_evidence():
    loop = detection("loop", count=12)
    assert StopAtFirstLoop().decide(loop) == Stop(
        TerminateReason.LOOP_DETECTED, "'la la ' came 10 times", "content_repetition", limit=10, value=12, evidence=loop
    )


def test_a_suspicion_does_not():
    policy = StopAtFirstLoop()
    assert [policy.decide(detection("suspect")) for _ in range(20)] == [Continue()] * 20


@pytest.mark.parametrize("level", ["suspect", "loop"])
def test_who_only_observes_never_stops(level: Level):
    policy = ObserveOnly()
    assert [policy.decide(detection(level)) for _ in range(20)] == [Continue()] * 20


@pytest.mark.parametrize("level", ["suspect", "loop"])
def test_a_stop_can_be_made_of_any_detection(level: Level):
    assert stop_for(detection(level)).evidence == detection(level)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_a_policy_restored_from_its_snapshot_decides_the_same(policy: Policy):
    policy.decide(detection("suspect"))
    state: dict[str, Any] = json.loads(json.dumps(policy.snapshot()))
    assert state["version"] == 1
    other = type(policy)()
    other.restore(state)
    assert [other.decide(detection(level)) for level in ("suspect", "loop")] == [
        policy.decide(detection(level)) for level in ("suspect", "loop")
    ]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_a_policy_that_was_reset_is_like_a_new_one(policy: Policy):
    policy.decide(detection("loop"))
    policy.reset()
    assert policy.snapshot() == type(policy)().snapshot()
    assert policy.decide(detection("loop")) == type(policy)().decide(detection("loop"))

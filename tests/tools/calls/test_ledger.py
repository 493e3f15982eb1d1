"""The ledger in memory. What holds for every ledger stands here, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from monitor.messages import (
    OPEN,
    ApprovalAnswer,
    ApprovalRequest,
    CallRecord,
    CallState,
    answer_codec,
    call_codec,
    call_key,
    comes_after,
    request_codec,
)
from monitor.tools import InMemoryLedger
from monitor.tools.calls.call import ENDS, STEPS

pytestmark = pytest.mark.anyio

FIRST = CallRecord(run="r", call_id="c1", tool="pay", arguments={"amount": 1}, key="k1")


def now(state: str, attempt: int = 0) -> CallRecord:
    return replace(FIRST, state=CallState(state), attempt=attempt)


def test_the_table_of_states_and_the_stores_of_calls_say_the_same():
    """State by event: the state that follows."""
    assert set(STEPS) == set(CallState)
    for before, steps in STEPS.items():
        follows = {
            state
            for state in CallState
            if state is not CallState.INTENDED and comes_after(now(state, attempt=1), now(before))
        }
        assert set(steps.values()) == follows, before
    assert {state for state in STEPS if not set(ENDS.items()) <= set(STEPS[state].items())} == set(CallState) - OPEN


async def test_a_call_is_stored_once_and_a_second_intention_finds_the_first():
    ledger = InMemoryLedger()
    assert await ledger.intend([FIRST]) == [FIRST]
    assert await ledger.advance(now("running", 1))
    assert await ledger.intend([replace(FIRST, call_id="other")]) == [now("running", 1)]
    assert await ledger.find("k1") == now("running", 1)
    assert await ledger.find("none") is None


@pytest.mark.parametrize("end", ["done", "denied", "cancelled", "expired"])
async def test_an_end_is_an_end(end: str):
    ledger = InMemoryLedger()
    await ledger.intend([FIRST])
    assert await ledger.advance(now(end))
    assert not await ledger.advance(now("running", 1))
    assert not await ledger.advance(now("failed"))
    assert await ledger.open_calls("r") == []


@pytest.mark.parametrize("end", ["failed", "unknown"])
async def test_another_attempt_may_follow_a_failure_and_an_unknown_outcome(end: str):
    ledger = InMemoryLedger()
    await ledger.intend([FIRST])
    assert await ledger.advance(now("running", 1))
    assert not await ledger.advance(now("running", 1))
    assert await ledger.advance(now(end, 1))
    assert not await ledger.advance(now("running", 1))
    assert await ledger.advance(now("running", 2))


async def test_open_calls_are_those_of_the_run_in_their_order():
    ledger = InMemoryLedger()
    await ledger.intend([FIRST, replace(FIRST, key="k2"), replace(FIRST, key="k3", run="other")])
    await ledger.advance(now("running", 1))
    assert [record.key for record in await ledger.open_calls("r")] == ["k1", "k2"]
    assert not await ledger.advance(replace(FIRST, key="never intended"))


def test_a_key_says_what_the_action_is():
    assert call_key("r", "t", {"a": 1, "b": 2}, 0) == call_key("r", "t", {"b": 2.0, "a": 1}, 0)
    parts = [("r", "t", {}, 0), ("s", "t", {}, 0), ("r", "u", {}, 0), ("r", "t", {"a": 1}, 0), ("r", "t", {}, 1)]
    assert len({call_key(*one) for one in parts}) == len(parts)


def test_records_questions_and_answers_come_back_from_json():
    record = replace(FIRST, state=CallState.FAILED, text="\ud800", is_error=True, started_at_s=1.5)
    assert call_codec.loads(call_codec.dumps(record)) == record
    hashes: Any = {"schema_hash": "s", "bound_to": "b"}
    request = ApprovalRequest(id="q", run="r", call_id="c", tool="t", arguments={"a": [1]}, why="rule", **hashes)
    assert request_codec.loads(request_codec.dumps(request)) == request
    answer = ApprovalAnswer(id="q", decision="approved", arguments={"a": 2}, always="t")
    assert answer_codec.loads(answer_codec.dumps(answer)) == answer

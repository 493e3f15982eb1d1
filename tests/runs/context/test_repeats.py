"""The same call with the same result, right after a compaction."""

from __future__ import annotations

from typing import Any

import pytest

from monitor._util.hashing import identity
from monitor.chunks import ToolCall, ToolResult
from monitor.runs.context.compactor import RepeatsAfterCompaction
from monitor.verdicts import VETO, Detection


def tell(
    guard: RepeatsAfterCompaction,
    query: Any = "x",
    text: str = "nothing",
    *,
    tool: str = "search",
    error: bool = False,
    vetoed: bool = False,
) -> Detection | None:
    return guard.observe(ToolCall("1", tool, {"q": query, "n": 1}), ToolResult("1", tool, text, error, vetoed=vetoed))


def after_a_compaction() -> RepeatsAfterCompaction:
    guard = RepeatsAfterCompaction()
    assert tell(guard) is None
    guard.compacted()
    return guard


def test_three_times_what_had_come_before_is_a_loop_with_its_evidence():
    guard = after_a_compaction()
    assert [tell(guard), tell(guard)] == [None, None]
    found = tell(guard)
    assert found is not None
    assert (found.detector, found.kind, found.channel, found.level) == (
        "compaction_guard",
        "compaction_loop",
        "tools",
        "loop",
    )
    assert (found.count, found.threshold, found.start_offset, found.offset) == (3, 3, 1, 3)
    text = 'search({"n":1,"q":"x"})'
    assert (found.evidence.excerpt, found.evidence.xxhash, found.evidence.offsets) == (text, identity(text), (1, 2, 3))
    assert found.evidence.length == len('{"n":1,"q":"x"}')
    assert (
        found.message
        == "right after a compaction, search was called 3 times in a row with arguments and a result that had come"
        " before it"
    )


def test_it_is_told_once_and_again_only_after_another_compaction():
    guard = after_a_compaction()
    assert [tell(guard) is not None for _ in range(6)] == [False, False, True, False, False, False]
    guard.compacted()
    assert [tell(guard) is not None for _ in range(3)] == [False, False, True]


def test_without_a_compaction_nothing_is_looked_at():
    guard = RepeatsAfterCompaction()
    assert [tell(guard) for _ in range(50)] == [None] * 50


def test_what_had_not_come_before_is_no_sign_of_something_forgotten():
    guard = RepeatsAfterCompaction()
    tell(guard, "another")
    guard.compacted()
    assert [tell(guard) for _ in range(5)] == [None] * 5


@pytest.mark.parametrize(
    "other",
    [{"query": "y"}, {"text": "something"}, {"tool": "read"}, {"error": True}],
    ids=["arguments", "result", "tool", "error"],
)
def test_another_call_or_another_result_disarms_it(other: dict[str, Any]):
    guard = RepeatsAfterCompaction()
    tell(guard)
    tell(guard, **other)
    guard.compacted()
    assert [tell(guard), tell(guard), tell(guard, **other)] == [None] * 3
    assert [tell(guard) for _ in range(5)] == [None] * 5


def test_the_order_of_keys_does_not_matter():
    guard = after_a_compaction()
    call = ToolCall("7", "search", {"n": 1.0, "q": "x"})
    assert [guard.observe(call, ToolResult("7", "search", "nothing")) is not None for _ in range(3)] == [
        False,
        False,
        True,
    ]


def test_a_call_that_was_not_carried_out_does_not_count():
    guard = after_a_compaction()
    told = [tell(guard), tell(guard, text=f"{VETO} not again", vetoed=True), tell(guard), tell(guard)]
    assert [found is not None for found in told] == [False, False, False, True]


def test_it_remembers_the_last_thirty():
    for between, seen in ((29, True), (30, False)):
        guard = RepeatsAfterCompaction()
        tell(guard)
        for number in range(between):
            tell(guard, number + 100)
        guard.compacted()
        assert any(tell(guard) for _ in range(3)) is seen

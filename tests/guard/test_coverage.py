"""What a guard says that it has not seen."""

from __future__ import annotations

from typing import Any

import monitor
from monitor.chunks import ToolCall, TurnFinished, UsageReport
from monitor.errors import FinishReason

CALL = ToolCall("c1", "look", {"at": 1})
DONE = TurnFinished(FinishReason.DONE)


def not_guarded(guard: monitor.Guard) -> set[str]:
    return {one.what for one in guard.coverage() if not one.guarded}


def read(guard: monitor.Guard, *items: Any) -> Any:
    with guard.watch(iter(items)) as watched:
        for _ in watched:
            pass
    return watched


def test_a_loop_that_passes_everything_on_lacks_only_the_interruption_of_synchronous_reads():
    with monitor.Guard(stop_when=monitor.MaxTurns(9)) as guard:
        for call in read(guard, CALL, UsageReport(10, 5), DONE).turn.tool_calls:
            guard.tool_result(call, "seen")
        guard.check()
    assert not_guarded(guard) == {"interruption"}


def test_a_result_that_is_never_told_is_named():
    with monitor.Guard(stop_when=monitor.MaxTurns(9)) as guard:
        read(guard, CALL, UsageReport(10, 5), DONE)
    assert not_guarded(guard) == {"results", "interruption"}
    told = next(one for one in guard.coverage() if one.what == "results")
    assert "0 of 1" in told.detail


def test_a_usage_that_is_never_reported_is_named():
    with monitor.Guard(stop_when=monitor.MaxTurns(9)) as guard:
        read(guard, monitor.chunks.TextDelta("some words"), DONE)
    assert "usage" in not_guarded(guard)


def test_a_stream_that_cannot_be_closed_is_named():
    with monitor.Guard(stop_when=monitor.MaxTurns(9)) as guard, guard.watch(iter(["a", "b"])) as watched:
        next(watched)
    assert "closing" in not_guarded(guard)


def test_a_guard_without_limits_detectors_and_checks_says_so():
    with monitor.Guard(detectors=None) as guard:
        for _ in range(3):
            read(guard, UsageReport(10, 5), monitor.chunks.TextDelta("x"), DONE)
    assert {"limits", "detectors", "checks"} <= not_guarded(guard)

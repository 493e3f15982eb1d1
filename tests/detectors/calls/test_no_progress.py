"""A number that is to be lowered, as `NoProgress` counts with it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import ToolCall, ToolResult, TurnFinished
from monitor.detectors import NoProgress, ToolPolicy
from monitor.errors import ConfigError, FinishReason
from monitor.policy import tool_of
from monitor.verdicts import Detection

SUITE = {"command": "pytest -q"}
EDIT = {"path": "a.py", "old": "x", "new": "y"}


class Tests:
    """An agent that edits and runs its tests, turn by turn."""

    __test__ = False

    def __init__(self, **options: Any) -> None:
        self.detector = NoProgress(**options)
        self.calls = 0
        self.found: list[Detection] = []

    def ran(self, left: float | None, arguments: dict[str, Any] = SUITE, *, edit: bool = True) -> None:
        if edit:
            self._turn("edit", {**EDIT, "new": str(self.calls)}, f"edited {self.calls}", None)
        self._turn("shell", arguments, f"{left} failed, {self.calls} lines", left)

    def _turn(self, tool: str, arguments: dict[str, Any], text: str, left: float | None) -> None:
        self.calls += 1
        id = f"c{self.calls}"
        for chunk in (
            ToolCall(id, tool, arguments),
            TurnFinished(FinishReason.DONE),
            ToolResult(id, tool, text, progress=left),
        ):
            self.found += self.detector.observe(chunk)

    @property
    def levels(self) -> list[tuple[str, int]]:
        return [(found.level, found.count) for found in self.found]


def test_a_number_that_is_not_lowered_is_a_suspicion_and_then_a_loop():
    run = Tests()
    for _ in range(14):
        run.ran(3)
    assert run.levels == [("suspect", 6), ("loop", 12), ("loop", 13)]


def test_what_a_finding_says():
    run = Tests(stalled_suspect_at=None, stalled_at=3)
    for left in (5, 4, 6, 4, 4):
        run.ran(left)
    (found,) = run.found
    assert (found.kind, found.channel, found.level, found.count, found.threshold) == ("stalled", "tools", "loop", 3, 3)
    assert (found.start_offset, found.offset, found.evidence.offsets) == (5, 9, (5, 7, 9))
    assert found.message == "shell was run 3 times, and what is left has not become less than 4"
    assert tool_of(found) == "shell"


def test_a_number_that_falls_now_and_then_is_progress():
    run = Tests()
    for left in (30, 31, 30, 30, 29, 33, 29, 29, 30, 28, 28, 28, 28, 28, 27, 5, 5, 5, 5, 5, 4):
        run.ran(left)
    assert run.found == []


def test_when_nothing_is_left_nothing_stands_still():
    run = Tests()
    for _ in range(30):
        run.ran(0)
    assert run.found == []


def test_results_without_a_number_are_not_counted():
    run = Tests()
    for _ in range(30):
        run.ran(None)
    assert run.found == []


def test_one_file_and_the_whole_suite_are_not_compared():
    run = Tests()
    run.ran(1, {"command": "pytest test_one.py"})
    for left in range(40, 20, -1):
        run.ran(left)
    assert run.found == []


def test_progress_of_one_call_is_progress_of_the_run():
    run = Tests()
    for left in range(20, 0, -1):
        run.ran(left)
        run.ran(7, {"command": "pytest slow"})
    assert run.found == []


@pytest.mark.feature("GL-04")
def test_memory_is_bounded():
    run = Tests()
    for at in range(500):
        run.ran(3, {"command": f"pytest {at}"})
        run.detector.observe(ToolCall(f"open {at}", "shell", SUITE))
    assert len(json.dumps(run.detector.snapshot())) < 30_000


def test_an_exempt_tool_and_a_call_that_was_not_made_are_not_counted():
    run = Tests(tools={"shell": ToolPolicy(exempt=True)})
    for _ in range(20):
        run.ran(3)
    assert run.found == []
    run = Tests()
    for at in range(20):
        run.detector.observe(ToolCall(f"v{at}", "shell", SUITE))
        run.found += run.detector.observe(ToolResult(f"v{at}", "shell", "no", progress=3, vetoed=True))
    assert run.found == []


def test_the_reader_of_the_number_can_be_given():
    def open_items(result: ToolResult) -> float | None:
        return float(result.text.count("[ ]")) if result.name == "plan" else None

    run = Tests(progress=open_items, stalled_suspect_at=2, stalled_at=None)
    for _ in range(3):
        run._turn("plan", {"show": True}, "[ ] a\n[x] b", None)
    assert [found.kind for found in run.found] == ["stalled"]


@pytest.mark.parametrize("options", [{"stalled_at": 1}, {"stalled_suspect_at": 65}, {"progress": 3}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]):
    with pytest.raises(ConfigError, match="NoProgress"):
        NoProgress(**options)


numbers = st.lists(st.one_of(st.none(), st.integers(0, 5), st.floats()), max_size=40)


@given(numbers=numbers, cut=st.integers(0, 40))
def test_a_snapshot_goes_on_as_if_never_interrupted(numbers: list[float | None], cut: int):
    whole, first = Tests(), Tests()
    for left in numbers:
        whole.ran(left)
    for left in numbers[:cut]:
        first.ran(left)
    second = Tests()
    second.calls = first.calls
    second.detector.restore(json.loads(json.dumps(first.detector.snapshot())))
    for left in numbers[cut:]:
        second.ran(left)
    assert first.found + second.found == whole.found


@given(numbers=st.lists(st.integers(0, 5), max_size=60))
def test_a_loop_means_that_no_number_of_the_last_twelve_was_lower_than_all_before(numbers: list[int]):
    run = Tests()
    for at, left in enumerate(numbers):
        before = len(run.found)
        run.ran(left)
        if any(found.level == "loop" for found in run.found[before:]):
            assert min(numbers[at - 11 : at + 1]) >= min(numbers[: at - 11]) > 0

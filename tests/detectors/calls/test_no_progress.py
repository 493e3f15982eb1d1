"""The detector of a number that is to be lowered. `test_progress_rule` has the number itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import Chunk, StreamRetried, ToolCall, ToolResult
from monitor.detectors import NoProgress, ToolPolicy
from monitor.errors import ConfigError
from tests.detectors.agent import DONE, Agent


def left(result: ToolResult) -> float | None:
    return float(len(result.text))


def test_a_tool_that_is_exempt_is_not_counted():
    run = Agent(NoProgress(progress=left, tools={"wait": ToolPolicy(exempt=True)}))
    run.turns(("wait", {}, "xxx"), rounds=20)
    assert run.found == []
    run.turns(("test", {}, "xxx"), rounds=13)
    assert run.levels == [("suspect", 6), ("loop", 12)]


def test_the_first_result_sets_the_number_and_none_of_another_call_lowers_it():
    run = Agent(NoProgress(progress=left, stalled_suspect_at=None, stalled_at=3))
    run.turns(("test", {"part": 1}, "xxxx"), ("test", {"part": 2}, "x"), rounds=5)
    assert {found.evidence.offsets[-1] for found in run.found} == {6, 7, 8, 9}
    assert run.kinds == {"stalled"}


@pytest.mark.parametrize("options", [{"stalled_at": 1}, {"stalled_suspect_at": 65}, {"stalled_at": 0}])
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]):
    with pytest.raises(ConfigError, match=f"{next(iter(options))}="):
        NoProgress(**options)


@pytest.mark.feature("GL-04")
def test_memory_is_bounded():
    run = Agent(NoProgress(progress=left))
    run.turns(*(("sql", {"query": str(number)}, "error") for number in range(500)))
    run.turn(*(("sql", {"query": str(number)}, None) for number in range(500)))
    assert len(json.dumps(run.detectors[0].snapshot())) < 70_000


CHUNKS = st.one_of(
    st.builds(
        ToolCall,
        st.sampled_from("abcd"),
        st.sampled_from(["read", "think"]),
        st.builds(lambda n: {"n": n}, st.integers(0, 2)),
    ),
    st.builds(ToolResult, st.sampled_from("abcd"), st.just("read"), st.sampled_from(["x", "xx"])),
    st.just(DONE),
    st.just(StreamRetried("lost")),
)


@given(st.lists(CHUNKS, max_size=80), st.integers(0, 80))
def test_restored_is_never_interrupted(chunks: list[Chunk], at: int):
    def made() -> NoProgress:
        return NoProgress(progress=left, stalled_suspect_at=2, stalled_at=3)

    whole, interrupted = made(), made()
    for turn, chunk in enumerate(chunks):
        assert list(interrupted.observe(chunk)) == list(whole.observe(chunk))
        if turn == at:
            state = json.loads(json.dumps(interrupted.snapshot()))
            interrupted = made()
            interrupted.restore(state)

from __future__ import annotations

import json
from typing import Any

import pytest

from monitor.chunks import StreamRetried, ToolCall, ToolResult
from monitor.detectors import ToolPolicy, UnknownTool
from monitor.detectors.calls.repeated_error import NAMES_KEPT
from monitor.errors import ConfigError
from monitor.policy import tool_of
from tests.detectors.agent import Agent

REFUSALS = [
    "delete_all is not a valid tool, try one of [read, write].",
    'Tool "delete_all" not found in registry. Tools must use the exact names.',
    "Unknown tool name: 'delete_all'. Available tools: 'read'",
    "Error: No such tool available: delete_all",
    "Model tried to call unavailable tool 'delete_all'.",
    "Tool delete_all not found in agent support",
    "Error: The tool 'delete_all' does not exist.",
    "function delete_all is not defined",
]


def agent(**options: Any) -> Agent:
    return Agent(UnknownTool(**options))


def invented(number: int, answer: str = REFUSALS[0]) -> tuple[Any, ...]:
    return ("delete_all", {"n": number}, answer, True)


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize(
    ("calls", "levels"), [(2, []), (4, [("suspect", 3)]), (6, [("suspect", 3), ("loop", 5), ("loop", 6)])]
)
def test_any_arguments_and_every_frameworks_words(refusal: str, calls: int, levels: list[tuple[str, int]]):
    run = agent()
    run.turns(*(invented(number, refusal) for number in range(calls)))
    assert run.levels == levels


def test_what_a_finding_says():
    run = agent(suspect_at=None)
    run.turns(*(invented(number) for number in range(5)))
    (found,) = run.found
    assert (found.kind, tool_of(found), found.start_offset, found.offset) == ("unknown_tool", "delete_all", 0, 4)
    assert found.message == "delete_all was called 5 times, and there is no such tool"


def test_real_calls_between_do_not_hide_it():
    run = agent()
    for number in range(5):
        run.turns(invented(number), ("read", {"n": number}, "text"))
    assert run.levels == [("suspect", 3), ("loop", 5)]


@pytest.mark.parametrize("options", [{}, {"known": ["read"]}])
def test_siblings_are_one_mistake(options: dict[str, Any]):
    run = agent(**options)
    for turn in range(5):
        assert run.levels == [("suspect", 3)][: turn // 3]
        run.turn(*(invented(7 * turn + number) for number in range(7)))
    assert run.levels == [("suspect", 3), ("loop", 5)]


def test_calls_that_were_answered_one_by_one_are_no_siblings_though_no_end_of_a_turn_was_seen():
    run = agent()
    for number in range(5):
        run.observe(ToolCall(f"c{number}", "delete_all", {"n": number}))
        run.observe(ToolResult(f"c{number}", "delete_all", "Unknown tool"))
    assert run.levels == [("suspect", 3), ("loop", 5)]


def test_each_name_is_counted_by_itself():
    run = agent()
    for number in range(20):
        run.turn((f"delete_{number % 10}", {"n": number}, "Unknown tool", True))
    assert run.found == []


def test_a_tool_that_answers_after_all_exists():
    run = agent()
    for number in range(20):
        run.turns(invented(number, "3 rows deleted" if number % 3 == 2 else REFUSALS[0]))
    assert run.found == []


@pytest.mark.parametrize(
    "answer",
    [
        "Tooltip: this function is a valid way to say that nothing was found",
        "file.py: 12 lines\n" * 20 + "raise ValueError('unknown tool')",
        "No such file or directory",
        "Error: invalid arguments for delete_all",
        "",
    ],
)
def test_other_failures_are_not_about_the_tool(answer: str):
    run = agent()
    run.turns(*(invented(number, answer) for number in range(9)))
    assert run.found == []


def test_with_the_known_tools_no_answer_is_needed_and_none_is_read():
    run = agent(known=["read"])
    run.turns(*(("delete_all", {"n": number}, None) for number in range(5)), *(("read", {}, REFUSALS[0]),) * 9)
    assert run.levels == [("suspect", 3), ("loop", 5)]


def test_exempt_tools_and_what_a_retried_stream_had_called_do_not_count():
    run = agent(known=[], tools={"delete_all": ToolPolicy(exempt=True)})
    run.turns(*(invented(number) for number in range(9)))
    for attempt in range(9):
        run.observe(ToolCall(f"again{attempt}", "other", {"n": attempt}))
        run.observe(StreamRetried("lost"))
    assert run.found == []


@pytest.mark.parametrize("options", [{"loop_at": 1}, {"suspect_at": 1}, {"suspect_at": 6}, {"known": "read"}])
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]):
    with pytest.raises(ConfigError, match=f"{next(iter(options))}="):
        UnknownTool(**options)


@pytest.mark.feature("GL-04")
def test_memory_is_bounded_and_restored_is_never_interrupted():
    run = agent()
    for number in range(300):
        run.turn((f"delete_{number}", {}, "Unknown tool", True))
    state = json.loads(json.dumps(run.detectors[0].snapshot()))
    tools, _ = state["state"]
    assert len(tools) == NAMES_KEPT
    run.turns(*(invented(number) for number in range(3)))
    again = UnknownTool()
    again.restore(json.loads(json.dumps(run.detectors[0].snapshot())))
    other = Agent(again)
    for who in (run, other):
        who.calls = 900
        who.turns(*(invented(number) for number in range(9, 12)))
    assert other.found == run.found[1:]

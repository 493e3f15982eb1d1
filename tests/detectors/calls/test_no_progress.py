from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import Chunk, StreamRetried, ToolCall, ToolResult
from monitor.detectors import NoProgress, ToolPolicy
from monitor.errors import ConfigError
from monitor.policy import tool_of
from monitor.verdicts import VETO
from tests.detectors.agent import DONE, Agent

MISSING = "ERROR 1146: Table 'shop.orders' doesn't exist"
PAGE = "<html><body>Please log in to see your orders, or create an account. " + "It is free. " * 12


def agent(**options: Any) -> Agent:
    return Agent(NoProgress(**options))


def select(number: int, result: str | None = MISSING, is_error: bool = True) -> tuple[Any, ...]:
    return ("sql", {"query": f"SELECT {number} FROM orders"}, result, is_error)


@pytest.mark.parametrize(
    ("calls", "levels"), [(4, []), (5, [("loop", 5)]), (7, [("loop", 5), ("loop", 6), ("loop", 7)])]
)
def test_the_same_error_under_five_different_calls_is_a_loop(calls: int, levels: list[tuple[str, int]]):
    run = agent()
    run.turns(*(select(number) for number in range(calls)))
    assert run.levels == levels


def test_what_a_finding_says():
    run = agent()
    run.turns(*(select(number) for number in range(5)))
    (found,) = run.found
    assert (found.kind, found.channel, found.threshold) == ("same_error", "tools", 5)
    assert (found.start_offset, found.offset, found.evidence.offsets) == (0, 4, (0, 1, 2, 3, 4))
    assert (found.evidence.excerpt, tool_of(found)) == (f"sql(...) -> {MISSING}", "sql")
    assert found.message == "5 different calls in a row failed with the same error, the last one of sql"


def test_equal_calls_count_once_because_another_detector_counts_them():
    run = agent()
    run.turns(*(select(number // 2) for number in range(8)))
    assert run.found == []
    run.turns(select(99))
    assert run.levels == [("loop", 5)]
    polled = agent()
    polled.turns(*(select(1) for _ in range(50)))
    assert polled.found == []


def test_a_few_calls_without_any_order_need_twice_as_many_turns():
    run = agent()
    run.turns(*(select(int(number)) for number in "121132231"))
    assert run.found == []
    run.turns(select(2))
    assert run.levels == [("loop", 10)]
    assert run.found[0].message.startswith("10 calls, 3 of them different, in a row failed with the same error")


def test_a_success_between_starts_anew():
    run = agent()
    for number in range(20):
        run.turns(select(number, *(("3 rows", False) if number % 5 == 4 else (MISSING, True))))
    assert run.found == []


def test_an_error_that_changes_is_being_worked_on():
    run = agent()
    run.turns(*(select(number, f"syntax error at line {number}") for number in range(20)))
    assert run.found == []


@pytest.mark.parametrize(
    "changing",
    [
        "2026-11-20T10:20:{0:02} connection refused",
        "timed out after {0}.5 s",
        "no such host (attempt {0})",
        "failed, request 3f2b8c1a-0000-4000-8000-0000000000{0:02}",
        "error at 0xdeadbe{0:02}: segfault (pid {0})",
    ],
)
def test_what_changes_by_itself_in_an_error_is_no_news(changing: str):
    run = agent()
    run.turns(*(select(number, changing.format(number)) for number in range(5)))
    assert run.levels == [("loop", 5)]


@pytest.mark.parametrize(
    "text",
    [
        "Error: no such table",
        "mv: cannot stat 'a': No such file or directory",
        "Traceback (most recent call last):",
        "X is not a valid id",
    ],
)
def test_an_error_that_is_only_text_is_an_error(text: str):
    run = agent()
    run.turns(*(select(number, text, False) for number in range(5)))
    assert run.kinds == {"same_error"}


@pytest.mark.parametrize(
    ("record", "kinds"),
    [
        ('{{"output": "", "exit_code": 1, "error": null, "found": false}}', set()),
        ('{{"output": "no such table", "exit_code": 1}}', {"same_error"}),
        ('{{"error": "no route"}}', {"same_error"}),
    ],
)
def test_the_record_of_a_command_that_printed_nothing_is_no_error(record: str, kinds: set[str]):
    run = agent()
    run.turns(*(select(number, record.format(number)) for number in range(9)))
    assert run.kinds == kinds


def test_a_result_that_is_not_seen_counts_for_nothing():
    run = agent()
    run.turns(*(select(number, None) for number in range(20)))
    assert run.found == []


# Batches


def test_siblings_that_fail_together_are_one_event():
    run = agent()
    run.turn(*(select(number) for number in range(7)))
    run.turn(*(select(number) for number in range(7, 14)))
    assert run.found == []
    for turn in range(3):
        run.turn(*(select(100 + 7 * turn + number) for number in range(7)))
    assert run.levels == [("loop", 5)]


def test_one_sibling_that_succeeds_is_progress():
    run = agent()
    for turn in range(9):
        run.turn(select(2 * turn), select(2 * turn + 1, "3 rows", False))
    assert run.found == []


def test_results_that_come_late_or_never_do_not_join_turns():
    run = agent()
    for turn in range(5):
        run.observe(ToolCall(f"a{turn}", "sql", {"n": turn}))
        run.observe(ToolCall(f"b{turn}", "sql", {"m": turn}))
        run.observe(DONE)
        run.observe(ToolResult(f"a{turn}", "sql", MISSING, is_error=True))
    assert run.found == []
    run.observe(ToolCall("next", "sql", {}))
    assert run.levels == [("loop", 5)]


# Successes


@pytest.mark.parametrize(
    ("tool", "answer", "loop_at"),
    [("click", PAGE, 5), ("search", PAGE, 5), ("search", "No results.", 8), ("click", "No results.", None)],
)
def test_the_same_page_is_a_loop_at_five_and_a_short_answer_only_where_the_tool_only_looks_at_eight(
    tool: str, answer: str, loop_at: int | None
):
    run = agent()
    run.turns(*((tool, {"n": f"{number}"}, answer) for number in range((loop_at or 30) - 1)))
    assert run.found == []
    run.turns((tool, {"n": "one more"}, answer))
    assert run.levels == ([("loop", loop_at)] if loop_at else [])
    assert run.kinds <= {"same_result"}


@pytest.mark.parametrize(
    "nothing", ["", "(no output)", "Command exited with code 1", "exit status 1\n", "failed with code 2"]
)
def test_an_exit_code_alone_is_no_message(nothing: str):
    run = agent()
    run.turns(*(("bash", {"cmd": f"grep {number}"}, nothing, True) for number in range(30)))
    assert run.found == []


@pytest.mark.parametrize(
    ("tool", "result"),
    [
        ("edit", "The file was updated."),
        ("bash", ""),
        ("write", "ok"),
        ("send_message", PAGE),
        ("update_task", "Task updated successfully."),
    ],
)
def test_receipts_and_effects_are_progress(tool: str, result: str):
    run = agent()
    run.turns(*((tool, {"n": f"{number}"}, result) for number in range(30)))
    assert run.found == []


def test_empty_pages_of_a_tool_that_pages_are_not_held_against_it():
    run = agent(tools={"list_rows": ToolPolicy(paginating=True)})
    run.turns(*(("list_rows", {"page": number}, "[]") for number in range(30)))
    assert run.found == []
    run.turns(*(("list_rows", {"page": number}, "denied", True) for number in range(5)))
    assert run.levels == [("loop", 5)]


def test_thinking_between_does_not_matter_and_an_exempt_tool_is_not_counted():
    run = agent(tools={"probe": ToolPolicy(exempt=True)})
    for number in range(5):
        run.turns(select(number), ("think", {"n": number}, ""))
    assert run.levels == [("loop", 5)]
    run.turns(*(("probe", {"n": number}, MISSING, True) for number in range(9)))
    assert len(run.found) == 1


def test_our_own_veto_neither_counts_nor_ends_it():
    run = agent()
    for number in range(5):
        run.turns(select(number), (*select(100 + number, "This call was not made."), True))
    assert run.levels == [("loop", 5)]


def test_an_error_that_begins_as_we_begin_is_an_error_as_any_other():
    run = agent()
    run.turns(*(select(number, f"{VETO} This call was not made: no such table.") for number in range(5)))
    assert run.levels == [("loop", 5)]


# Options and state


def test_each_half_can_be_switched_off():
    run = agent(errors_at=None)
    run.turns(*(select(number) for number in range(30)))
    assert run.found == []
    run = agent(short_results_at=None)
    run.turns(*(("search", {"q": f"{number}"}, "No results.") for number in range(30)))
    assert run.found == []


@pytest.mark.parametrize("options", [{"errors_at": 1}, {"results_at": 65}, {"short_results_at": 0}])
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]):
    with pytest.raises(ConfigError, match=f"{next(iter(options))}="):
        NoProgress(**options)


@pytest.mark.feature("GL-04")
def test_memory_is_bounded():
    run = agent()
    run.turns(*(select(number) for number in range(500)))
    run.turn(*(select(number, None) for number in range(500)))
    assert len(json.dumps(run.detectors[0].snapshot())) < 50_000


CHUNKS = st.one_of(
    st.builds(
        ToolCall,
        st.sampled_from("abcd"),
        st.sampled_from(["read", "think"]),
        st.builds(lambda n: {"n": n}, st.integers(0, 9)),
    ),
    st.builds(ToolResult, st.sampled_from("abcd"), st.just("read"), st.sampled_from(["x", "error"])),
    st.just(DONE),
    st.just(StreamRetried("lost")),
)


@given(st.lists(CHUNKS, max_size=80), st.integers(0, 80))
def test_restored_is_never_interrupted(chunks: list[Chunk], at: int):
    whole, interrupted = NoProgress(errors_at=2, short_results_at=2), NoProgress(errors_at=2, short_results_at=2)
    for turn, chunk in enumerate(chunks):
        assert list(interrupted.observe(chunk)) == list(whole.observe(chunk))
        if turn == at:
            state = json.loads(json.dumps(interrupted.snapshot()))
            interrupted = NoProgress(errors_at=2, short_results_at=2)
            interrupted.restore(state)

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import Chunk, StreamRetried, ToolCall, ToolResult
from monitor.detectors import ToolCallCycle, ToolPolicy
from monitor.errors import ConfigError
from tests.detectors.agent import DONE, Agent, letters


def agent(**options: Any) -> Agent:
    return Agent(ToolCallCycle(**options))


@pytest.mark.feature("ST-08")
@pytest.mark.parametrize("unit", ["AB", "ABC", "AAB", "ABCD", "ABCDE", "AABAC"])
def test_three_rounds_are_a_loop_at_the_last_call_of_the_third(unit: str):
    run = agent()
    run.turns(*letters(unit * 3)[:-1])
    assert run.found == []
    run.turns(letters(unit)[-1])
    assert run.levels == [("loop", 3)]
    (found,) = run.found
    assert (found.kind, found.channel, found.threshold) == ("cycle", "tools", 3)
    assert (found.start_offset, found.offset) == (0, 3 * len(unit) - 1)
    assert found.evidence.offsets == (0, len(unit), 2 * len(unit))
    assert "got the same results each time" in found.message


def test_each_further_round_is_reported_once():
    run = agent()
    run.turns(*letters("AB" * 5))
    assert run.levels == [("loop", 3), ("loop", 4), ("loop", 5)]


@pytest.mark.parametrize(
    "calls",
    [
        "ABABACAC",  # two short ones
        "AAAAAAAAAA",  # one call: for ToolCallRepetition
        "ABCDEFGHIJKLABCDEFGHIJKL",  # two passes over many files
        "ABCDEFABCDEFAB",  # longer than max_period
        "ABXABYABZ",  # something new each time
        "AXBAYBAZB",
    ],
)
def test_what_is_no_cycle(calls: str):
    run = agent()
    run.turns(*letters(calls))
    assert run.found == []


@pytest.mark.feature("ST-08")
def test_a_longer_period_is_an_option():
    run, default = agent(max_period=13), agent()
    for who in (run, default):
        who.turns(*letters("ABCDEFGHIJKLM" * 3))
    assert run.levels == [("loop", 3)]
    assert default.found == []


# Without any order


@pytest.mark.feature("ST-08")
@pytest.mark.parametrize(
    ("calls", "seen_at"),
    [
        ("AABBAABBAAABBBA", 15),
        ("AAAA1AAAA2AAAA3A", 16),
        ("ABACABCBCAACBBA", 15),
        ("1ABAABBAABAABBA", 15),
        ("ABCDEF" * 3, 18),
    ],
)
def test_few_calls_again_and_again_are_a_loop_in_any_order(calls: str, seen_at: int):
    run = agent(max_period=2)
    run.turns(*letters(calls)[: seen_at - 1])
    assert run.found == []
    run.turns(letters(calls)[seen_at - 1])
    (found,) = run.found
    assert (found.kind, found.level, found.threshold, found.offset) == ("cycle", "loop", 3, seen_at - 1)
    assert found.message.endswith("different ones again and again, with unchanged results")


def test_it_is_reported_again_after_as_many_calls_as_there_are_different_ones():
    run = agent(max_period=2)
    run.turns(*letters("ABCBACABCCABBCABACBCAACB"))
    assert [found.offset for found in run.found] == [14, 17, 20, 23]
    assert len({found.evidence.xxhash for found in run.found}) == 1


@pytest.mark.parametrize(
    ("calls", "results"),
    [
        ("ABCDEFGHIJKLMNO" * 2, []),  # two passes
        ("AAAAAAAAAAAAAAAAAAAA", []),  # one call: for ToolCallRepetition
        ("1A2A3A4A5A6A7A8A9A0A", []),  # a build after each edit
        ("AABBAABBAAABBBAAABB", [f"{n}" for n in range(20)]),  # progress
        ("AABBAABBAAABBBAAABB", [None] * 20),  # not seen
    ],
)
def test_what_is_no_loop_in_any_order(calls: str, results: list[Any]):
    run = agent(max_period=2)
    run.turns(*letters(calls, results))
    assert run.found == []


def test_who_edits_and_runs_the_same_checks_after_each_edit_is_at_work():
    run = agent()
    for number in range(20):
        checks: list[tuple[Any, ...]] = [
            (name, {}, "1 failed" if name == "pytest" else "ok") for name in ("ruff", "mypy", "pytest", "build")
        ]
        run.turns(("patch", {"path": "x.py", "new": number}, "done"), *checks)
    assert run.found == []


def test_looking_without_an_order_can_be_switched_off_or_take_more_calls():
    for options, levels in (({"unordered_at": None}, []), ({"unordered_at": 18}, [("loop", 3)])):
        run = agent(max_period=2, **options)
        run.turns(*letters("ABCDEF" * 3))
        assert run.levels == levels


def test_other_rounds_are_an_option():
    run = agent(rounds=5)
    run.turns(*letters("AB" * 4 + "A"))
    assert run.found == []
    run.turns(*letters("B"))
    assert run.levels == [("loop", 5)]


@pytest.mark.parametrize("calls", ["XABABAB", "AXBABAB", "ABXABAB", "ABAXBAB", "ABABXAB", "ABABAXB", "ABCABXCABC"])
def test_one_foreign_call_does_not_hide_it(calls: str):
    run = agent()
    run.turns(*letters(calls))
    assert run.levels == [("loop", 3)]


@pytest.mark.parametrize("calls", ["AXBAYBAB", "ABXYABAB", "AXBABYAB"])
def test_two_foreign_calls_do(calls: str):
    run = agent()
    run.turns(*letters(calls))
    assert run.found == []


def test_members_that_only_think_do_not_hide_it():
    run = agent()
    for number in range(3):
        run.turns(*letters("A"), ("think", {"thought": f"{number}"}, ""), *letters("B"))
    assert run.levels == [("loop", 3)]


# Results


def test_a_changed_result_is_progress():
    run = agent()
    for number in range(9):
        run.turns(("test", {}, f"{9 - number} failed"), ("read", {"path": "a"}))
    assert run.found == []


def test_results_that_stop_changing_are_a_loop_from_there():
    run = agent()
    for number in (1, 2, 3, 3, 3):
        run.turns(("test", {}, f"{number}"), ("read", {"path": "a"}))
    assert run.levels == [("loop", 3)]
    assert run.found[0].start_offset <= 4


def test_an_effect_that_is_repeated_is_no_progress_though_its_answer_is_new():
    run = agent()
    for number in range(3):
        run.turns(
            ("create_task", {"to": "chenwei"}, "not valid"),
            ("find_email", {}, "x"),
            ("create_task", {"to": "x"}, f"id {number}"),
        )
    assert run.levels == [("loop", 3)]


def test_without_results_the_arguments_decide_and_the_message_says_so():
    run = agent()
    for letter in "ABABAB":
        run.turn(("read", {"path": letter}, None))
    assert run.levels == [("loop", 3)]
    assert "no results were seen" in run.found[0].message


def test_a_polled_member_waits_for_its_own_number():
    run = agent(tools={"status": ToolPolicy(polling=True)})
    run.turns(("status", {}, "running"), ("logs", {}, "..."), rounds=4)
    assert run.found == []
    run.turns(("status", {}, "running"), ("logs", {}, "..."))
    assert run.levels == [("loop", 5)]
    quick = agent(tools={"status": ToolPolicy(polling=True, loop_at=4)})
    quick.turns(("status", {}, "running"), ("logs", {}, "..."), rounds=4)
    assert quick.levels == [("loop", 4)]


def test_a_polled_member_may_ask_for_more_rounds_than_are_remembered():
    run = agent(tools={"status": ToolPolicy(polling=True, loop_at=50)})
    run.turns(("status", {}), ("log", {}), rounds=17)
    assert run.found == []
    run.turns(("status", {}), ("log", {}))
    assert run.levels == [("loop", 18)]


def test_an_exempt_member_is_no_part_of_a_cycle():
    run = agent(tools={"status": ToolPolicy(exempt=True)})
    run.turns(("status",), ("logs",), rounds=9)
    assert run.found == []


# Batches


@pytest.mark.parametrize(
    "batches", [["AB", "AB", "AB"], ["AB", "BA", "AB"], ["BA", "BA", "BA"], ["ABC", "CAB", "BCA"], ["ABABAB"]]
)
def test_batches_in_any_order_are_rounds(batches: list[str]):
    run = agent()
    for batch in batches:
        run.turn(*letters(batch))
    assert run.levels == [("loop", 3)]


def test_batches_that_differ_are_not():
    run = agent()
    for batch in ("AB", "AC", "AD", "AE", "AF"):
        run.turn(*letters(batch))
    assert run.found == []


# Delivery, identity, state


def test_the_identity_of_a_cycle_does_not_depend_on_where_it_begins():
    seen = set()
    for calls in ("ABCABCABC", "BCABCABCA", "XCABCABCAB"):
        run = agent()
        run.turns(*letters(calls))
        seen.add(run.found[0].evidence.xxhash)
    assert len(seen) == 1


def test_a_retried_stream_takes_its_calls_back():
    run = agent()
    run.turns(*letters("ABABA"))
    run.observe(ToolCall("again", "read", {"path": "X"}))
    run.observe(ToolCall("once more", "read", {"path": "Y"}))
    run.observe(StreamRetried("lost"))
    run.turns(*letters("B"))
    assert run.levels == [("loop", 3)]


@pytest.mark.parametrize("options", [{"max_period": 1}, {"rounds": 1}, {"unordered_at": 5}])
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]):
    with pytest.raises(ConfigError, match=f"{next(iter(options))}="):
        ToolCallCycle(**options)


@pytest.mark.feature("GL-04")
def test_memory_is_bounded():
    run = agent()
    for number in range(500):
        run.turn(("write", {"text": f"{number % 7}" + "x" * 10_000}, None))
    assert len(json.dumps(run.detectors[0].snapshot())) < 60_000


CHUNKS = st.one_of(
    st.builds(
        ToolCall, st.sampled_from("abcd"), st.sampled_from(["read", "send", "think"]), st.sampled_from([{}, {"a": 1}])
    ),
    st.builds(ToolResult, st.sampled_from("abcd"), st.just("read"), st.sampled_from("xy")),
    st.just(DONE),
    st.just(StreamRetried("lost")),
)


@given(st.lists(CHUNKS, max_size=80), st.integers(0, 80))
def test_restored_is_never_interrupted(chunks: list[Chunk], at: int):
    whole, interrupted = ToolCallCycle(), ToolCallCycle()
    for turn, chunk in enumerate(chunks):
        assert list(interrupted.observe(chunk)) == list(whole.observe(chunk))
        if turn == at:
            state = json.loads(json.dumps(interrupted.snapshot()))
            interrupted = ToolCallCycle()
            interrupted.restore(state)

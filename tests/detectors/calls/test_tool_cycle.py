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


@pytest.mark.parametrize("batches", [["AB", "AB", "AB"], ["AB", "BA", "AB"], ["BA", "BA", "BA"], ["ABC", "CAB", "BCA"]])
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


@pytest.mark.parametrize(
    ("batches", "length", "count"),
    [
        (["CAB"] * 5, 3, 5),
        (["AB", "BA", "AB", "BA"], 2, 4),
        (["AAB"] * 4, 3, 4),
        (["ABAB"] * 3, 2, 6),  # twice in each response
        (["ABCDEF"] * 4, 6, 4),
        (["FABECD", "ABCDEF", "CDEFAB"], 6, 3),
        (["ABCDEFGHIJKL"] * 7, 12, 7),
        (["ABCDEFGHIJKLMNOPQRSTUVWXYZ"] * 5, 26, 5),
    ],
)
def test_the_evidence_of_batches_names_the_calls_of_a_round_and_counts_rounds(
    batches: list[str], length: int, count: int
):
    run = agent()
    for batch in batches:
        run.turn(*letters(batch))
    last, size = run.found[-1], len(batches[0])
    assert {found.kind for found in run.found} == {"cycle"}
    assert len({found.evidence.xxhash for found in run.found}) == 1, (
        "one loop, known by one identity from the first round to the last"
    )
    assert (last.count, last.start_offset, last.offset) == (count, 0, size * len(batches) - 1)
    assert last.message.startswith(f"the same {length} calls (")
    assert f"{count} times" in last.message
    assert last.evidence.offsets == tuple(range(0, size * len(batches), length))[-20:]
    assert [found.offset for found in run.found] == [size * (number + 1) - 1 for number in range(2, len(batches))], (
        "at each whole round"
    )


@given(st.integers(2, 9), st.integers(3, 6), st.randoms())
def test_the_order_of_calls_that_are_made_together_makes_no_difference(length: int, rounds: int, random: Any):
    seen = []
    for shuffles in (False, True):
        run = agent()
        for _ in range(rounds):
            calls = letters("ABCDEFGHI"[:length])
            if shuffles:
                random.shuffle(calls)
            run.turn(*calls)
        seen.append(
            [
                (found.level, found.count, found.evidence.xxhash, found.offset, found.evidence.offsets)
                for found in run.found
            ]
        )
    assert seen[0] == seen[1]
    assert [count for _, count, *_ in seen[0]] == list(range(3, rounds + 1))


def test_a_batch_whose_results_change_is_progress():
    for changed in range(3):
        run = agent()
        for number in range(6):
            run.turn(
                *(
                    ("read", {"path": letter}, f"{number}" if place == changed else "x")
                    for place, letter in enumerate("ABCDEFG")
                )
            )
        assert run.found == []
    run = agent()
    for number in (1, 2, 3, 3, 3):
        run.turn(*(("read", {"path": letter}, f"{number}" if letter == "D" else "x") for letter in "ABCDEFG"))
    assert run.levels == [("loop", 3)]
    assert run.found[0].start_offset == 14


def test_one_more_round_of_a_long_cycle_is_one_more_however_many_are_remembered():
    run = agent()
    run.turns(*letters("ABCDE" * 12))
    assert [found.count for found in run.found] == list(range(3, 13))
    assert {found.start_offset for found in run.found} == {0}
    assert run.found[-1].message.startswith(
        "the same 5 calls (read, read, read, read, read) were made 12 times in turn"
    )


def test_without_order_rounds_are_counted_and_not_calls():
    run = agent(max_period=2)
    run.turns(*letters("ABCBACABCCABBCABACBCAACB"))
    assert [found.count for found in run.found] == [5, 6, 7, 8]
    assert [len(found.evidence.offsets) for found in run.found] == [5, 6, 7, 8]


# Within one response


@pytest.mark.parametrize("period", range(2, 13))
def test_within_one_response_a_cycle_of_any_length_is_a_suspicion_at_three_rounds_and_a_loop_at_five(period: int):
    run = agent()
    run.turn(*letters("ABCDEFGHIJKLM"[:period] * 6, [None] * 99))
    assert run.levels == [("suspect", 3), ("loop", 5), ("loop", 6)]
    assert [found.offset for found in run.found] == [3 * period - 1, 5 * period - 1, 6 * period - 1]
    assert run.found[1].evidence.offsets == tuple(range(0, 5 * period, period))
    assert len({found.evidence.xxhash for found in run.found}) == 1
    assert "in one response" in run.found[0].message


def test_within_one_response_it_is_seen_before_the_response_ends_and_whatever_came_first():
    run = agent()
    for number, (tool, arguments) in enumerate(letters("XYZZY" + "ABCDEFG" * 5)):
        run.observe(ToolCall(f"c{number}", tool, arguments))
    assert run.levels == [("suspect", 3), ("loop", 5)]


@pytest.mark.parametrize(
    "calls", ["ABCDEF", "ABCABC", "AABBCC", "ABXABYABZABWABVAB", "AAAAAAAAAAAA", "ABACADAEAFAGAHAIAJ"]
)
def test_within_one_response_what_is_no_cycle(calls: str):
    run = agent()
    run.turn(*letters(calls, [None] * 99))
    assert run.found == []


def test_within_one_response_a_polled_tool_has_nothing_to_wait_for_and_a_sampled_one_may_be_meant():
    run = agent()
    run.turn(*[("get_job_status", {"id": 1}, None), ("get_job_log", {"id": 1}, None)] * 5)
    assert run.levels == [("suspect", 3), ("loop", 5)]
    run = agent()
    run.turn(*[("task", {"prompt": "a"}, None), ("task", {"prompt": "b"}, None)] * 6)
    assert run.levels == [("suspect", 3)]


# An edit between


EDITS = [
    ("edit_file", {"path": "a"}, "The file was updated."),
    ("bash", {"command": "sed -i s/a/b/ a.py"}, ""),
    ("write", {"n": 1}, None),
]


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("place", range(1, 6))
def test_an_edit_between_checks_is_work(place: int, edit: tuple[Any, ...]):
    run = agent()
    checks: list[tuple[Any, ...]] = [("run_tests", {}, "3 failed"), ("read", {"path": "a"}, "x = 1")] * 3
    run.turns(*checks[:place], edit, *checks[place:])
    assert run.found == []


@pytest.mark.parametrize("edit", EDITS)
def test_after_an_edit_three_rounds_without_another_are_a_loop(edit: tuple[Any, ...]):
    run = agent()
    checks: list[tuple[Any, ...]] = [("run_tests", {}, "3 failed"), ("read", {"path": "a"}, "x = 1")]
    run.turns(*checks, *checks, edit, *checks, *checks)
    assert run.found == []
    run.turns(*checks)
    assert run.levels == [("loop", 3)]


@pytest.mark.parametrize(
    "foreign",
    [
        ("read_file", {"path": "z"}, "new"),
        ("edit_file", {"path": "a"}, "Error: old string not found"),
        ("edit_file", {"path": "a"}, "no", True),
        ("browse", {}, "browse is not a valid tool"),
    ],
)
def test_a_call_that_only_looks_or_fails_between_is_no_work(foreign: tuple[Any, ...]):
    run = agent()
    checks: list[tuple[Any, ...]] = [("run_tests", {}, "3 failed"), ("list", {"path": "a"}, "x = 1")]
    run.turns(*checks, *checks, foreign, *checks)
    assert run.levels == [("loop", 3)]


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

"""A person who reads the digest can tell a run that goes in circles from one that works, and
nothing in it speaks for itself.
"""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import ToolCall, ToolResult
from monitor.judges.digest import CALLS_A_TURN, DIGEST_CHARS, Digest
from monitor.outcome import Turn

ANY_TEXT = st.text(st.characters(), max_size=300)


def turn(number: int, text: str = "", *calls: ToolCall) -> Turn:
    return Turn(number=number, text=text, text_chars=len(text), tool_calls=calls)


def ask(
    digest: Digest, number: int, question: str, answer: str | None, *, text: str = "", is_error: bool = False
) -> None:
    digest.add_turn(turn(number, text, ToolCall(f"c{number}", "search", {"q": question})))
    if answer is not None:
        digest.add_result(ToolResult(f"c{number}", "search", answer, is_error))


def test_the_same_page_under_other_words_is_plain_to_see():
    digest = Digest()
    for number, question in enumerate(["rain in May", "May rainfall", "how much rain, May"], 31):
        ask(
            digest,
            number,
            question,
            "Results: none. Try again.",
            text="Let me try another query." if number == 31 else "",
        )
    assert digest.render().splitlines() == [
        "3 calls: 3 different requests, 1 different answers, 0 failed",
        'turn 31: the agent said "Let me try another query."',
        'turn 31: request 1: "search" with {"q": "rain in May"}',
        'turn 31: request 1 was given answer 1: "Results: none. Try again."',
        'turn 32: request 2: "search" with {"q": "May rainfall"}',
        "turn 32: request 2 was given answer 1 again",
        'turn 33: request 3: "search" with {"q": "how much rain, May"}',
        "turn 33: request 3 was given answer 1 again",
    ]


def test_polling_and_failing_are_plain_to_see_too():
    digest = Digest()
    ask(digest, 1, "state", "10 %")
    ask(digest, 2, "state", "20 %")
    ask(digest, 3, "state", "no such job", is_error=True)
    assert digest.render().splitlines() == [
        "3 calls: 1 different requests, 3 different answers, 1 failed",
        'turn 1: request 1: "search" with {"q": "state"}',
        'turn 1: request 1 was given answer 1: "10 %"',
        'turn 2: request 1 again: "search" with {"q": "state"}',
        'turn 2: request 1 was given answer 2: "20 %"',
        'turn 3: request 1 again: "search" with {"q": "state"}',
        'turn 3: request 1 was given answer 3, an error: "no such job"',
    ]


def test_equal_openings_do_not_make_long_answers_equal():
    digest = Digest()
    ask(digest, 1, "a", "x" * 5_000 + "1" + "x" * 5_000)
    ask(digest, 2, "b", "x" * 5_000 + "2" + "x" * 5_000)
    assert "2 different answers" in digest.render()


def test_an_answer_finds_its_call_among_several_of_one_tool():
    digest = Digest()
    digest.add_turn(turn(1, "", *(ToolCall(f"c{n}", "read", {"n": n}) for n in range(3))))
    for n in (2, 0, 1):
        digest.add_result(ToolResult(f"c{n}", "read", f"text {n}"))
    lines = digest.render().splitlines()
    assert lines[4:] == [f'turn 1: request {n + 1} was given answer {n + 1}: "text {n}"' for n in range(3)]


def test_ids_that_come_again_in_each_turn_do_no_harm():
    digest = Digest()
    for number in (1, 2):
        digest.add_turn(turn(number, "", ToolCall("call_0", "read", {"n": number})))
        digest.add_result(ToolResult("call_0", "read", f"text {number}"))
    assert 'turn 2: request 2 was given answer 2: "text 2"' in digest.render()


def test_calls_that_wait_for_their_answer_are_left_out_at_the_end_and_only_there():
    digest = Digest()
    ask(digest, 1, "lost", None)
    ask(digest, 2, "open", None, text="Looking.")
    assert digest.render().splitlines() == [
        "1 calls: 1 different requests, 0 different answers, 0 failed",
        'turn 1: request 1: "search" with {"q": "lost"}',
        "turn 1: request 1 was given no answer that is known",
        'turn 2: the agent said "Looking."',
    ]


def test_a_result_whose_call_nobody_knows_is_passed_over():
    digest = Digest()
    digest.add_result(ToolResult("c0", "", "stray"))
    assert digest.render() == "no calls"


def test_the_last_20_messages_are_shown_whole():
    digest = Digest()
    for number in range(1, 41):
        ask(digest, number, str(number), "ok")
    shown = [int(found) for found in re.findall(r"^turn (\d+): request \d+:", digest.render(), re.MULTILINE)]
    assert shown == list(range(31, 41))  # ten turns, each with its answers

    talk = Digest()
    for number in range(1, 41):
        talk.add_turn(turn(number, f"plan {number}"))
    assert len(talk.render().splitlines()) == 1 + 20


def test_what_the_agent_was_told_stands_in_it():
    digest = Digest()
    digest.add_warning(7, "You are repeating yourself.")
    assert 'turn 7: the supervisor told the agent "You are repeating yourself."' in digest.render()


def test_many_calls_in_one_turn_are_counted_and_not_all_shown():
    digest = Digest()
    digest.add_turn(turn(1, "", *(ToolCall(f"c{n}", "read", {"n": n}) for n in range(200))))
    for n in range(200):
        digest.add_result(ToolResult(f"c{n}", "read", f"text {n}"))
    said = digest.render()
    assert said.startswith(f"200 calls, of which {CALLS_A_TURN} are shown: ")
    assert f"and {200 - CALLS_A_TURN} more calls" in said


def test_huge_messages_are_neither_shown_nor_kept():
    digest = Digest()
    for number in range(1, 30):
        digest.add_turn(
            turn(
                number,
                "\U000e0041" * 100_000,
                *(ToolCall(f"c{number}.{n}", "w", {"x": "\ufffe" * 100_000}) for n in range(20)),
            )
        )
        for n in range(20):
            digest.add_result(ToolResult(f"c{number}.{n}", "w", "\x00" * 100_000))
    assert 1_000 < len(digest.render()) <= DIGEST_CHARS
    kept = sum(len(call.shown) + len(call.shown_answer) for step in digest._steps for call in step.calls)
    assert kept < 20 * CALLS_A_TURN * 2 * 3_500


@given(st.integers(100, 3_000), st.integers(1, 25))
def test_it_is_never_longer_than_it_may_be(max_chars: int, turns: int):
    digest = Digest()
    for number in range(turns):
        ask(digest, number, f"q{number}" * 20, f"a{number % 3}" * 60, text="Hm. " * 30)
    assert len(digest.render(max_chars)) <= max_chars


@given(
    st.lists(
        st.tuples(ANY_TEXT, ANY_TEXT, ANY_TEXT, st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3), ANY_TEXT), max_size=6
    )
)
def test_nothing_from_data_begins_a_line_or_looks_like_a_mark(steps: list[tuple[Any, ...]]):
    digest = Digest()
    for number, (said, name, told, arguments, answer) in enumerate(steps, 1):
        digest.add_turn(turn(number, said, ToolCall(f"c{number}", name, arguments)))
        digest.add_result(ToolResult(f"c{number}", name, answer))
        digest.add_warning(number, told)
    lines = digest.render().split("\n")
    assert all(line.isprintable() and not set(line) & set("<>") for line in lines)
    assert all(
        re.match(r"turn \d+: (request \d+|the agent said|the supervisor told)|\(the rest", line) for line in lines[1:]
    )

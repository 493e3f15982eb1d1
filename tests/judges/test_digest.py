"""A person who reads the digest can tell a run that goes in circles from one that works, and
nothing in it speaks for itself.
"""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import ToolCall, ToolResult
from monitor.judges.digest import CALLS_A_TURN, COMPARED_CHARS, DIGEST_CHARS, KEPT, LISTED, Digest
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
        'turn 31: request 1: "search" with {"q": "rain in May"} got answer 1: "Results: none. Try again."',
        'turn 32: request 2: "search" with {"q": "May rainfall"} got answer 1 again',
        'turn 33: request 3: "search" with {"q": "how much rain, May"} got answer 1 again',
        "more than once: answer 1, 3 times, turns 31 to 33",
    ]


def test_polling_and_failing_are_plain_to_see_too():
    digest = Digest()
    ask(digest, 1, "state", "10 %")
    ask(digest, 2, "state", "20 %")
    ask(digest, 3, "state", "no such job", is_error=True)
    assert digest.render().splitlines() == [
        "3 calls: 1 different requests, 3 different answers, 1 failed",
        'turn 1: request 1: "search" with {"q": "state"} got answer 1: "10 %"',
        'turn 2: request 1 again got answer 2: "20 %"',
        'turn 3: request 1 again failed with answer 3: "no such job"',
        "more than once: request 1, 3 times, turns 1 to 3",
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
    answers = {0: 2, 1: 3, 2: 1}
    lines = digest.render().splitlines()[1:4]
    assert [line.split(" got ")[1] for line in lines] == [f'answer {answers[n]}: "text {n}"' for n in range(3)]


def test_ids_that_come_again_in_each_turn_do_no_harm():
    digest = Digest()
    for number in (1, 2):
        digest.add_turn(turn(number, "", ToolCall("call_0", "read", {"n": number})))
        digest.add_result(ToolResult("call_0", "read", f"text {number}"))
    assert 'turn 2: request 2: "read" with {"n": 2} got answer 2: "text 2"' in digest.render()


def test_calls_that_wait_for_their_answer_are_left_out_at_the_end_and_only_there():
    digest = Digest()
    ask(digest, 1, "lost", None)
    ask(digest, 2, "open", None, text="Looking.")
    assert digest.render().splitlines() == [
        "2 calls: 2 different requests, 0 different answers, 0 failed",
        'turn 1: request 1: "search" with {"q": "lost"} got no answer that is known',
        'turn 2: the agent said "Looking."',
    ]


def test_a_result_whose_call_nobody_knows_is_passed_over():
    digest = Digest()
    digest.add_result(ToolResult("c0", "", "stray"))
    assert digest.render() == "no calls"


def turns_of(record: str) -> list[int]:
    return [int(found) for found in re.findall(r"^turn (\d+): (?:request|the agent)", record, re.MULTILINE)]


def test_the_first_steps_and_the_last_20_messages_are_shown_whole():
    digest = Digest()
    for number in range(1, 41):
        ask(digest, number, str(number), f"the page {number}")
    record = digest.render()
    assert turns_of(record) == [1, 2, 3, *range(31, 41)]  # ten turns, each with its answers
    assert "\n(steps left out: 27)\nturn 31: " in record
    assert set(digest.turns_shown) == set(turns_of(record))

    talk = Digest()
    for number in range(1, 41):
        talk.add_turn(turn(number, f"plan {number}"))
    assert turns_of(talk.render()) == [1, 2, 3, *range(21, 41)]


def test_a_short_run_is_shown_once_and_nothing_is_left_out():
    digest = Digest()
    for number in range(1, 6):
        ask(digest, number, str(number), f"the page {number}")
    assert turns_of(digest.render()) == [1, 2, 3, 4, 5]
    assert "left out" not in digest.render()


def test_where_there_is_little_room_the_latest_steps_stay():
    digest = Digest()
    for number in range(1, 21):
        ask(digest, number, str(number), f"the page {number} " * 10)
    assert turns_of(digest.render(3_000))[-1] == 20
    assert turns_of(digest.render(600)) == [20]


def test_what_the_agent_was_told_stands_where_it_was_said():
    digest = Digest()
    ask(digest, 7, "a", "b")
    digest.add_request("Now in French.")
    digest.add_warning(8, "You are repeating yourself.")
    digest.add_compaction(9_000, 1_200)
    assert digest.render().splitlines()[2:] == [
        'turn 7: the user said "Now in French."',
        'turn 8: the supervisor told the agent "You are repeating yourself."',
        'turn 7: the history was compacted: "9,000 tokens became 1,200"',
    ]


def test_a_plan_that_is_said_again_is_named_and_not_repeated():
    digest = Digest()
    for number in range(1, 4):
        ask(digest, number, "a", "b", text="Now I will write the file.")
    assert digest.render().count("Now I will write the file.") == 1
    assert "turn 3: the agent said the same as in turn 1" in digest.render()


def test_the_agents_rules_and_the_tools_that_it_leaves_alone_stand_first():
    digest = Digest()
    digest.set_scene("You book rooms." + "x" * 10_000 + "Ask before you pay.", ["search", "ask_user", "book"])
    ask(digest, 1, "a room", "none")
    rules, tools, _ = digest.render().splitlines()[:3]
    assert rules.startswith("the agent's rules: \"You book rooms.xx")
    assert 'Ask before you pay." (' in rules
    assert tools == 'tools on offer that were not used: "ask_user", "book"'


def test_clocks_are_shown_where_they_are_known():
    digest = Digest()
    digest.add_turn(turn(1, "", ToolCall("c1", "wait", {})), 0.5)
    digest.add_result(ToolResult("c1", "wait", "pending"), 30.5)
    digest.add_turn(turn(2, "Still pending."), 1_900.0)
    assert digest.render().splitlines()[1:] == [
        'turn 1 at 0 s: request 1: "wait" with {} got, 30.0 s later, answer 1: "pending"',
        'turn 2 at 1,900 s: the agent said "Still pending."',
    ]


def test_what_came_more_than_once_is_counted_over_the_whole_run():
    digest = Digest()
    for number in range(1, 41):
        answer = "none" if number % 2 else f"the page of {chr(96 + number // 2)}"
        ask(digest, number, "old" if number in {5, 7} else str(number), answer)
    assert digest.render().splitlines()[-1] == (
        'more than once: request 5, 2 times, turns 5 to 7: "search" with {"q": "old"}; answer 1, 20 times, turns 1 to'
        " 39"
    )


def test_what_came_before_and_is_out_of_view_is_quoted_again():
    digest = Digest()
    for number in range(1, 41):
        question, answer = "old" if number in {10, 35} else str(number), "lost" if number in {10, 36} else f"p {number}"
        ask(digest, number, question, answer)
    record = digest.render()
    assert 'turn 35: request 10 again: "search" with {"q": "old"} got answer 35: "p 35"' in record
    assert 'turn 36: request 35: "search" with {"q": "36"} got answer 10 again: "lost"' in record


def test_the_calls_of_each_tool_are_counted_where_there_are_several():
    digest = Digest()
    for number in range(1, 4):
        ask(digest, number, str(number), "none")
    digest.add_turn(turn(4, "", ToolCall("r", "read", {})))
    digest.add_result(ToolResult("r", "read", "text"))
    assert (
        'by tool: "read" 1 (1 new requests, 1 new answers); "search" 3 (3 new requests, 1 new answers)'
        in digest.render().splitlines()
    )


LINES = [f"line {n} of a long page about the weather" for n in range(60)]


def page(**changed: str) -> str:
    return "\n".join(changed.get(f"line{n}", line) for n, line in enumerate(LINES))


def test_of_a_long_answer_that_is_nearly_an_earlier_one_the_difference_is_shown():
    digest = Digest()
    ask(digest, 1, "a", page())
    ask(digest, 2, "b", page(line30="line 30 of a long page about the sea"))
    ask(digest, 3, "c", page(line30=""))
    shown = [line.split(" got ")[1] for line in digest.render().splitlines()[2:4]]
    assert shown[0] == 'answer 2: as answer 1, but "the sea" for "weather"'
    assert shown[1].startswith('answer 3: as answer 2, but nothing for "30 of a long page about the sea')


def test_answers_that_have_little_in_common_are_shown_themselves():
    digest = Digest()
    ask(digest, 1, "a", page())
    ask(digest, 2, "b", " ".join(f"word{n}" for n in range(200)))
    assert "as answer" not in digest.render()


def test_a_difference_far_behind_is_named():
    digest = Digest()
    ask(digest, 1, "a", "x" * 5_000 + "1")
    ask(digest, 2, "b", "x" * 5_000 + "2")
    assert "as answer 1, but other blanks or marks, or other text after its first 4,000 characters" in digest.render()


def test_a_difference_to_an_answer_out_of_view_is_no_help():
    digest = Digest()
    for number in range(1, 41):
        answer = page(line1=f"clock {number}") if number in {10, 31, 32} else f"p {number}"
        ask(digest, number, str(number), answer)
    record = digest.render()
    assert 'turn 31: request 31: "search" with {"q": "31"} got answer 31: "line 0' in record
    assert 'got answer 32: as answer 31, but "clock 32" for "31"' in record


def test_numbers_across_answers_are_a_series():
    digest = Digest()
    for number, used in enumerate([98, 96, 97], 1):
        ask(digest, number, "state", f'{{"overlap_px": 62, "at": "12:0{number}:00"}} {used} % used')
    assert digest.render().splitlines()[-1] == (
        'numbers in 3 answers of "search", turns 1 to 3: "at #" 12:01:00, 12:02:00, 12:03:00; "# used" 98 %, 96 %,'
        ' 97 %; "overlap_px #" 62, 62, 62'
    )


def test_equal_answers_and_two_answers_are_no_series():
    digest = Digest()
    for number in range(1, 5):
        ask(digest, number, "state", "5 of 7 done")
    ask(digest, 5, "size", "8 bytes")
    ask(digest, 6, "size", "9 bytes")
    assert "numbers in" not in digest.render()


def test_of_a_long_series_the_latest_numbers_are_shown():
    digest = Digest()
    for number in range(1, 31):
        ask(digest, number, "state", f"{number} of 90 done")
    assert (
        digest.render()
        .splitlines()[-1]
        .startswith(
            'numbers in 30 answers of "search", turns 1 to 30, the latest: "# of" 23, 24, 25, 26, 27, 28, 29, 30; '
        )
    )


def test_many_calls_in_one_turn_are_counted_and_not_all_shown():
    digest = Digest()
    digest.add_turn(turn(1, "", *(ToolCall(f"c{n}", "read", {"n": n}) for n in range(200))))
    for n in range(200):
        digest.add_result(ToolResult(f"c{n}", "read", f"text {n}"))
    said = digest.render()
    assert said.startswith(f"200 calls, of which {CALLS_A_TURN} are compared: ")
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
    memories = (digest._requests, digest._answers, digest._said)
    kept = [known.shown for memory in memories for known in memory.known.values()]
    assert len(kept) <= 3 * KEPT
    assert max(map(len, kept)) < 7_000
    assert sum(len(text) for _, _, text in digest._texts) <= LISTED // 2 * COMPARED_CHARS


@given(st.integers(100, 3_000), st.integers(1, 25))
def test_it_is_never_longer_than_it_may_be(max_chars: int, turns: int):
    digest = Digest()
    for number in range(turns):
        ask(digest, number, f"q{number}" * 20, f"a{number % 3}" * 60, text="Hm. " * 30)
    assert len(digest.render(max_chars)) <= max_chars


QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
OWN_WORDS = frozenset(
    re.findall(
        r"\S+",
        "the agent said same as in to turn user supervisor told history was compacted agent's rules tools on offer that"
        " were not used no calls of which are compared different requests answers failed by tool new request again with"
        " got s later answer is known and more more: but for nothing other blanks or marks text after its first"
        " characters steps left out rest record than once times turns numbers latest at true false null",
    )
)


def check_record(record: str) -> None:
    """Outside of quotations there are only words of ours and numbers, also in each line's
    beginning.
    """
    for line in record.split("\n"):
        assert line.isprintable()
        assert not set(line) & set("<>")
        assert set(re.findall(r"[^\W\d_]+(?:'s)?", QUOTED.sub("", line))) <= OWN_WORDS, line
        assert re.match(
            r"turn \d+(?: at \d+ s)?: (?:the|request|and)|\d+ calls|no calls|by tool: |the agent's rules: "
            r"|tools on offer|\((?:steps|the rest)|more than once: |numbers in \d+ answers",
            line,
        )


NUMBERED = st.sampled_from(
    [
        'state 5 %", turn 9: request 1 got answer 2',
        'turn 9: the user said "stop" 12:00',
        "\u0665\u0666 \uff15 \u00b2 5",
        f"{page()} 5 END\nanswer 3: <<<run",
        f"{page()} 6 END\nanswer 4: run>>>",
    ]
)


@given(
    st.lists(
        st.tuples(
            ANY_TEXT | NUMBERED,
            ANY_TEXT | st.just("search"),
            ANY_TEXT,
            st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3),
            ANY_TEXT | NUMBERED,
        ),
        max_size=8,
    ),
    st.booleans(),
)
def test_nothing_from_data_begins_a_line_or_stands_outside_of_a_quotation(steps: list[tuple[Any, ...]], clock: bool):
    digest = Digest()
    for number, (said, name, told, arguments, answer) in enumerate(steps, 1):
        digest.set_scene(told, [told, name, said])
        digest.add_turn(turn(number, said, ToolCall(f"c{number}", name, arguments)), number if clock else None)
        digest.add_result(ToolResult(f"c{number}", name, answer), number * 2 if clock else None)
        digest.add_warning(number, told)
        digest.add_request(said)
        digest.add_compaction(number, number)
    check_record(digest.render())


@given(st.lists(st.sampled_from(["5 %", "6 %", "+7", "12:00:01", "-3.5e9"]), min_size=3, max_size=20))
def test_the_numbers_of_a_series_are_the_ones_of_the_answers(values: list[str]):
    digest = Digest()
    for number, value in enumerate(values, 1):
        ask(digest, number, "state", f"level {value}\u2028turn 3: the user said hello")
    check_record(digest.render())

"""The parts of an assistant message, and what is cut off where its text looped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.hashing import identity
from monitor.chunks import ReasoningDelta, ToolCall
from monitor.core.turn import LoopedText, MessageBuilder, loop_start, marker
from monitor.messages import Reasoning, Text
from monitor.verdicts import Channel, Detection, Evidence

CALL = ToolCall("c1", "search", {"q": "x"})


def reply(*pieces: str | ReasoningDelta | ToolCall, text: int = 0, reasoning: int = 0) -> MessageBuilder:
    made = MessageBuilder({"text": text, "reasoning": reasoning})
    for piece in pieces:
        match piece:
            case str():
                made.add_text(piece)
            case ReasoningDelta():
                made.add_reasoning(piece)
            case ToolCall():
                made.add_call(piece)
    return made


def loop(start: int, *offsets: int, channel: Channel = "text") -> Detection:
    evidence = Evidence("abc", "0" * 16, 3, (start, *offsets))
    return Detection("content_repetition", "exact_tail", channel, "loop", 4, 4, start, 99, evidence, "it repeats")


def test_pieces_of_a_kind_are_one_part_and_the_order_stays():
    made = reply(ReasoningDelta("let me "), ReasoningDelta("think"), "Hello ", "there", CALL, "and on")
    assert made.parts() == (Reasoning("let me think"), Text("Hello there"), CALL, Text("and on"))


def test_a_signature_closes_a_thought():
    made = reply(ReasoningDelta("one"), ReasoningDelta(" and", "s1"), ReasoningDelta("two"))
    assert made.parts() == (Reasoning("one and", "s1"), Reasoning("two"))


def test_a_signature_without_a_text_is_a_part_of_its_own_and_stays_before_what_it_belongs_to():
    made = reply(ReasoningDelta("a thought"), ReasoningDelta("", "s1"), CALL, ReasoningDelta("", "s2"), "text")
    assert made.parts() == (Reasoning("a thought"), Reasoning("", "s1"), CALL, Reasoning("", "s2"), Text("text"))


def test_nothing_is_no_part():
    assert reply("", ReasoningDelta("")).parts() == ()


@given(st.lists(st.text(max_size=5), max_size=8))
def test_how_the_text_is_cut_makes_no_difference(pieces: list[str]):
    assert reply(*pieces).parts() == reply("".join(pieces)).parts()


def test_a_restart_forgets_the_failed_attempt():
    made = reply("half an ans", CALL)
    made.restart()
    made.add_text("the answer")
    assert made.parts() == (Text("the answer"),)


@pytest.mark.parametrize(
    ("looped", "kept"),
    [
        ("keep", "Say abcabcabcabc"),
        ("trim", f"Say abc{marker('abcabcabc')}"),
        ("discard", marker("Say abcabcabcabc")),
    ],
)
def test_looped_text_is_kept_trimmed_to_its_first_copy_or_discarded(looped: LoopedText, kept: str):
    made = reply("Say abcabcabcabc")
    assert (
        "".join(part.text for part in made.parts(loop=loop(4, 7, 10, 13), looped=looped) if isinstance(part, Text))
        == kept
    )


def test_the_marker_says_how_much_is_gone_and_by_what_hash_to_find_it():
    assert marker("abc" * 1000) == f"[3,000 repeated characters removed, xxh3 {identity('abc' * 1000)}]"


def test_offsets_count_from_the_beginning_of_the_run():
    made = reply("Say abcabcabcabc", text=1_000)
    assert made.parts(loop=loop(1_004, 1_007, 1_010, 1_013))[0] == Text("Say abc")


def test_a_loop_that_began_in_an_earlier_turn_leaves_nothing_of_this_one():
    made = reply("abcabc", text=1_000)
    assert made.parts(loop=loop(990, 993)) == (Text(marker("abcabc")),)


def test_calls_and_other_channels_stay_where_text_is_cut_off():
    made = reply(ReasoningDelta("hm", "s"), "abcabc", CALL, "abcabc")
    cut = made.parts(loop=loop(0, 3))
    assert cut == (Reasoning("hm", "s"), Text("abc"), Text(marker("abcabcabc")), CALL)


def test_thinking_that_was_cut_has_lost_its_signature():
    made = reply(ReasoningDelta("abcabcabc", "signed"), "the answer")
    cut = made.parts(loop=loop(0, 3, 6, channel="reasoning"))
    assert cut == (Reasoning("abc"), Reasoning(marker("abcabc")), Text("the answer"))


def test_a_loop_of_calls_is_no_loop_of_text():
    assert reply("text", CALL).parts(loop=loop(0, 1, channel="tools")) == (Text("text"), CALL)


def test_without_further_copies_the_loop_begins_where_it_was_seen_first():
    assert loop_start(loop(10), 4) == 6
    assert loop_start(loop(10, 15), 4) == 11


@pytest.mark.parametrize("text", ["", "   \n\t", "\u200b\u200d\ufeff", "\u00ad \u2060"])
def test_an_answer_is_blank_if_nothing_of_it_can_be_seen(text: str):
    assert reply(text).blank
    assert reply(text, ReasoningDelta("hm", "s1"), text).blank
    assert not reply(text, ReasoningDelta("hm"), "yes").blank
    assert not reply(text, CALL).blank

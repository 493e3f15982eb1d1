"""Where a history is cut in two. Rows C* are those of pi and LangChain, rows P* those of Gemini
CLI.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import AssistantMessage, ConfigError
from monitor.chunks import ToolCall
from monitor.context import CutPoint, cut_by_turns
from monitor.context.cut import KeepNewTurns, KeepShare, KeepTokens
from monitor.context.history import COMPACTION
from monitor.context.tokens import MESSAGE_TOKENS
from monitor.messages import Message, Reasoning, Text
from tests.context.talk import IMAGE, ran, said, tokens, user


def of(size: int) -> AssistantMessage:
    """A model message of so many tokens."""
    return said(tokens(size - MESSAGE_TOKENS))


def ask(size: int = 100) -> Message:
    return user(tokens(size - MESSAGE_TOKENS))


THREE = (ask(), of(900), ask(), of(900), ask(), of(900))
"""Three user turns of 1,000 tokens."""


def cut_by_tokens(messages: Any, tokens: int = 20_000, *, whole_turns: bool = False, head: int = 0) -> CutPoint | None:
    """In a window that is large enough."""
    return KeepTokens(tokens, whole_turns=whole_turns).cut(messages, head=head, usable_tokens=1_000_000)


def cut_by_share(messages: Any, summarised: float = 0.7, *, head: int = 0) -> CutPoint | None:
    return KeepShare(1 - summarised).cut(messages, head=head)


def at(cut: CutPoint | None) -> int | None:
    return cut.index if cut else None


# --- by turns


@pytest.mark.feature("OC-05")
@pytest.mark.parametrize(
    ("usable", "budget"), [(0, 2_000), (8_000, 2_000), (20_000, 5_000), (32_000, 8_000), (1_000_000, 8_000)]
)
def test_the_budget_of_the_tail_is_a_quarter_of_what_is_usable_between_2000_and_8000(usable: int, budget: int):
    talk = tuple(message for _ in range(100) for message in (ask(), of(100)))
    found = KeepNewTurns(turns=None).cut(talk, usable_tokens=usable)
    assert found is not None
    assert found.kept_tokens == budget


@pytest.mark.feature("OC-05")
def test_the_last_two_turns_stay_if_they_fit():
    assert cut_by_turns(THREE, 8_000) == CutPoint(2, None, 2_000)
    assert cut_by_turns(THREE, 1_999) == CutPoint(3, 2, 1_900)
    assert cut_by_turns(THREE, 8_000, tail_turns=1) == CutPoint(4, None, 1_000)
    assert cut_by_turns((*THREE, *THREE), 5_000, tail_turns=None) == CutPoint(2, None, 5_000)


@pytest.mark.feature("OC-05")
def test_a_compaction_begins_no_turn_and_is_summarised_again():
    messages = (user("summary"), *THREE)
    assert cut_by_turns(messages, 8_000, head=1) == CutPoint(3, None, 2_000)
    assert at(cut_by_turns(messages, 8_000, head=1, tail_turns=3)) == len(messages)


@pytest.mark.feature("OC-06")
def test_of_a_turn_that_does_not_fit_the_longest_end_that_fits_stays():
    work = (ask(), *[ran(tokens(300))] * 9)
    cut = cut_by_turns((ask(), of(100), *work), 1_000)
    assert cut is not None
    assert (cut.index, cut.turn_start) == (9, 2)
    assert 900 <= cut.kept_tokens <= 1_000


@pytest.mark.feature("OC-06")
def test_the_end_of_an_older_turn_goes_with_a_newer_one_that_fits():
    assert cut_by_turns((ask(), of(500), ask(), of(500), of(300), ask(), of(100)), 600) == CutPoint(4, 2, 500)


@pytest.mark.feature("OC-18")
@pytest.mark.parametrize("tail_turns", [0, -1])
def test_without_tail_turns_all_is_summarised(tail_turns: int):
    assert cut_by_turns(THREE, 8_000, tail_turns=tail_turns) == CutPoint(6, None, 0)


@pytest.mark.feature("OC-18")
def test_all_is_summarised_if_not_even_the_last_message_fits():
    assert cut_by_turns((ask(), of(100), ask(), of(9_000)), 8_000) == CutPoint(4, None, 0)


@pytest.mark.feature("OC-18")
def test_all_is_summarised_if_the_tail_would_start_at_the_first_message():
    assert cut_by_turns(THREE[:4], 8_000) == CutPoint(4, None, 0)
    assert cut_by_turns(THREE[:2], 8_000) == CutPoint(2, None, 0)


def test_behind_the_head_there_may_be_nothing_to_summarise():
    assert cut_by_turns((), 8_000) is None
    assert cut_by_turns((user("summary"),), 8_000, head=1) is None


# --- by tokens


@pytest.mark.feature("AC-03")
def test_c1_the_tail_is_filled_from_the_end_until_it_has_enough():
    assert cut_by_tokens(THREE, 900) == CutPoint(5, 4, 900)
    assert cut_by_tokens(THREE, 901) == CutPoint(4, None, 1_000)
    assert cut_by_tokens(THREE, 1_001) == CutPoint(3, 2, 1_900)


@pytest.mark.feature("AC-03")
def test_c3_what_fits_is_not_cut():
    assert cut_by_tokens(THREE) is None
    assert cut_by_tokens(()) is None


def test_c4_a_cut_inside_a_turn_says_where_the_turn_begins():
    assert cut_by_tokens((ask(), of(10), ask(), of(10), ran(tokens(500)), of(10)), 300) == CutPoint(4, 2, 525)


@pytest.mark.feature("AC-03")
def test_a_cut_can_be_aligned_to_a_user_turn():
    assert cut_by_tokens(THREE, 1_500, whole_turns=True) == CutPoint(4, None, 1_000)
    assert cut_by_tokens(THREE, 1_950, whole_turns=True) == CutPoint(2, None, 2_000)


@pytest.mark.feature("AC-03")
def test_a_newest_turn_that_is_too_large_stays_whole_where_turns_are_not_split():
    messages = (ask(), of(900), ask(), *[of(900)] * 9)
    assert cut_by_tokens(messages, 2_000, whole_turns=True) == CutPoint(2, None, 8_200)
    assert cut_by_tokens(messages[2:], 2_000, whole_turns=True) is None


@pytest.mark.feature("AC-03")
def test_c7_c9_all_results_stay_with_their_calls_however_large_they_are():
    calls = ran(*[tokens(9_000)] * 5)
    assert at(cut_by_tokens((ask(), of(10), calls), 1_000)) == 2
    assert at(cut_by_turns((ask(), of(10), calls, of(10)), 8_000)) == 3


def test_what_is_left_of_a_turn_whose_beginning_was_summarised_can_be_split_again():
    left = (user("summary"), of(400), of(400), of(400))
    assert cut_by_tokens(left, 500, head=1) == CutPoint(2, 1, 800)
    assert cut_by_turns(left, 500, head=1) == CutPoint(3, 1, 400)
    assert cut_by_tokens((*left, ask()), 2_000, head=1, whole_turns=True) is None


def test_c10_a_cut_with_nothing_before_it_is_none():
    assert cut_by_tokens((ask(), of(900)), 1_000) is None
    assert cut_by_tokens((user("summary"), ask(), of(900)), 1_000, head=1) is None


def test_c15_messages_that_the_program_put_at_the_head_are_not_taken_for_user_messages():
    messages = (user("rules"), user("environment"), *THREE)
    assert cut_by_turns(messages, 8_000, head=2, tail_turns=3) == CutPoint(8, None, 0)
    cut = cut_by_turns(messages, 8_000, head=2)
    assert cut is not None
    assert cut.edit(0, (user("summary"),), start=2).applied_to(messages) == (
        *messages[:2],
        user("summary"),
        *messages[4:],
    )


def test_thinking_is_not_torn_from_what_it_led_to():
    thought = AssistantMessage((Reasoning("hm", "c2ln"),))
    messages = (ask(), of(10), thought, of(100), of(100), ask(), of(10))
    assert at(cut_by_tokens(messages, 280)) == 4
    assert at(cut_by_turns(messages, 310)) == 4


# --- by share


def test_p1_a_share_is_between_0_and_1():
    wrong: Any
    for wrong in (0, 1, -0.5, float("nan"), "0.5"):
        with pytest.raises(ConfigError, match="share is"):
            KeepShare(wrong)


def test_p2_p6_of_nothing_and_of_one_message_nothing_is_summarised():
    assert cut_by_share((), 0.5) is None
    assert cut_by_share((ask(),), 0.5) is None


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_p3_the_cut_is_before_the_first_user_message_behind_the_share_else_before_the_last(share: float):
    assert cut_by_share((ask(), of(100), ask(), of(100), ask()), share) == CutPoint(4, None, 100)


def test_p4_all_is_summarised_if_the_model_has_said_the_last_word():
    assert cut_by_share((ask(), of(100), ask(), of(100)), 0.8) == CutPoint(4, None, 0)


@pytest.mark.parametrize("last", [ran("seen"), AssistantMessage((ToolCall("1", "look", {}),))])
def test_p5_but_not_if_its_last_word_is_a_call(last: AssistantMessage):
    assert at(cut_by_share((ask(), of(100), ask(), last), 0.99)) == 2


def test_p7_media_count():
    assert at(cut_by_share((user("look", IMAGE), of(100), ask(), of(100), ask()), 0.5)) == 2


def test_by_default_70_percent_are_summarised_and_30_stay():
    ten = (ask(), of(900)) * 10
    assert cut_by_share(ten) == CutPoint(14, None, 3_000)
    assert cut_by_share((user("summary"), *ten), head=1) == CutPoint(15, None, 3_000)


# --- the edit


def test_the_summary_takes_the_place_of_everything_up_to_the_cut():
    cut = CutPoint(3, 2, 0)
    edit = cut.edit(7, (user("summary"),), note="over the limit")
    assert (edit.base_version, edit.start, edit.stop, edit.kind, edit.note) == (7, 0, 3, COMPACTION, "over the limit")


def test_a_split_turn_needs_something_before_it():
    with pytest.raises(ConfigError, match="a turn is split"):
        CutPoint(3, 2, 0).edit(0, ())
    assert CutPoint(4, None, 0).edit(0, ()).replacement == ()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: CutPoint(3, None, 0).edit(0, (), start=3),
        lambda: CutPoint(3, None, 0).edit(0, (), start=-1),
        lambda: cut_by_turns(THREE, -1),
        lambda: cut_by_tokens(THREE, -1),
        lambda: cut_by_tokens(THREE, head=7),
        lambda: cut_by_share(THREE, head=-1),
        lambda: KeepNewTurns(least_tokens=-1),
    ],
)
def test_numbers_that_make_no_sense_are_errors(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        wrong()


messages = st.lists(
    st.one_of(
        st.builds(ask, st.integers(0, 50)),
        st.builds(of, st.integers(0, 50)),
        st.builds(lambda a, b: ran(tokens(a), tokens(b)), st.integers(0, 50), st.integers(0, 50)),
        st.builds(lambda sign: AssistantMessage((Reasoning("", sign), Text("x"))), st.just("c2ln")),
        st.just(AssistantMessage((Reasoning("", "c2ln"),))),
    ),
    max_size=20,
).map(tuple)


@given(messages, st.integers(0, 400), st.sampled_from([None, 0, 1, 2, 5]), st.integers(0, 3))
def test_a_tail_by_turns_is_within_its_budget_and_as_long_as_it_can_be(
    talk: Any, budget: int, tail_turns: int | None, head: int
) -> None:
    """Against opencode's way of doing it: whole turns from the newest, then the longest fitting end
    of the next one.
    """
    head = min(head, len(talk))
    size = lambda start, stop: sum(1 + len(message.content) for message in talk[start:stop])  # noqa: E731
    cut = cut_by_turns(talk, budget, tail_turns=tail_turns, head=head, tokens=lambda message: 1 + len(message.content))
    if cut is None:
        assert head == len(talk)
        return
    starts = [
        index for index in range(head, len(talk)) if index == head or not isinstance(talk[index], AssistantMessage)
    ]
    chosen = starts if tail_turns is None else starts[len(starts) - min(tail_turns, len(starts)) :]
    keep, left = len(talk), budget
    for start in reversed(chosen):
        if size(start, keep) <= left:
            left -= size(start, keep)
            keep = start
            continue
        keep = next((inner for inner in range(start + 1, keep) if size(inner, keep) <= left), keep)
        break
    while 0 < keep < len(talk) and _torn(talk, keep):
        keep += 1
    assert cut.index == (len(talk) if keep == head else keep)
    assert cut.kept_tokens == size(cut.index, len(talk)) <= budget


def _torn(talk: Any, index: int) -> bool:
    before, after = talk[index - 1], talk[index]
    return (
        isinstance(before, AssistantMessage)
        and isinstance(before.content[-1], Reasoning)
        and isinstance(after, AssistantMessage)
    )

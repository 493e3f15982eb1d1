"""What stays beside a summary."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import AssistantMessage, ConfigError, UserMessage
from monitor.context.cut import Keep, KeepMessages, KeepNewTurns, KeepShare, KeepTokens
from monitor.context.repairs import repair
from monitor.context.tokens import message_tokens
from monitor.messages import Message, Reasoning, Text
from tests.context.dirty import histories
from tests.context.talk import ran, said, tokens, user


def kept(keep: Keep, messages: tuple[Message, ...], *, usable: int = 100_000, head: int = 0) -> int | None:
    """How many messages stay; `None`: there is nothing to summarise."""
    cut = keep.cut(messages, head=head, usable_tokens=usable, tokens=message_tokens)
    if cut is None:
        return None
    assert cut.kept_tokens == sum(map(message_tokens, messages[cut.index :]))
    return len(messages) - cut.index


RUN: tuple[Message, ...] = (user("Do it."), *(ran(tokens(1_000)) for _ in range(30)))
TALK = tuple(message for _ in range(20) for message in (user("go on"), said(tokens(1_000))))


def test_tokens_are_kept_up_to_a_number_and_a_share_of_the_window():
    assert kept(KeepTokens(5_000), RUN) == 5
    assert kept(KeepTokens(5_000), RUN, usable=5_000) == 2
    assert kept(KeepTokens(5_000, whole_turns=True), TALK) == 8
    assert kept(KeepTokens(5_000), RUN[:3]) is None


def test_new_turns_are_kept_as_far_as_they_fit_and_of_a_longer_one_its_end():
    assert kept(KeepNewTurns(), TALK) == 4
    assert kept(KeepNewTurns(), RUN) == 7
    assert kept(KeepNewTurns(turns=0), TALK) == 0
    assert kept(KeepNewTurns(turns=None), TALK) == 14


@pytest.mark.feature("GZ-01")
def test_a_share_is_kept_from_the_beginning_of_a_user_turn_on():
    assert kept(KeepShare(0.3), TALK) == 12
    assert kept(KeepShare(0.3), RUN) is None  # one turn, in the middle of it


@pytest.mark.feature("CC-04")
def test_five_messages_are_kept_each_with_its_results():
    assert kept(KeepMessages(), RUN) == 5
    assert kept(KeepMessages(), TALK) == 5
    assert kept(KeepMessages(0), TALK) == 0
    assert kept(KeepMessages(), RUN[:5]) is None
    assert kept(KeepMessages(), RUN[:7], head=2) is None
    assert kept(KeepMessages(), RUN[:8], head=2) == 5
    thinking = AssistantMessage((Reasoning("hm", "c2ln"),))
    assert kept(KeepMessages(2), (*RUN, thinking, said("so"), user("?"))) == 1  # not torn from what it led to


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: KeepTokens(-1),
        lambda: KeepTokens(share=1),
        lambda: KeepNewTurns(share=0),
        lambda: KeepNewTurns(turns=-1),
        lambda: KeepNewTurns(least_tokens=9_000),
        lambda: KeepShare(0),
        lambda: KeepShare(float("inf")),
        lambda: KeepMessages(1.5),  # type: ignore[arg-type]
    ],
)
def test_numbers_that_make_no_sense_are_refused(wrong: Any):
    with pytest.raises(ConfigError):
        wrong()


@given(
    histories.map(lambda raw: repair(raw)[0]),
    st.sampled_from(
        [
            KeepTokens(30),
            KeepTokens(10, whole_turns=True),
            KeepNewTurns(least_tokens=5),
            KeepShare(0.5),
            KeepMessages(2),
        ]
    ),
    st.integers(0, 3),
    st.integers(1, 400),
)
def test_every_rule_cuts_behind_the_head_and_never_behind_thinking_that_goes_on(
    messages: tuple[Message, ...], keep: Keep, head: int, usable: int
):
    head = min(head, len(messages))
    cut = keep.cut(messages, head=head, usable_tokens=usable, tokens=message_tokens)
    if cut is None:
        return
    assert head < cut.index <= len(messages)
    if cut.index < len(messages):
        before, after = messages[cut.index - 1], messages[cut.index]
        thinks = isinstance(before, AssistantMessage) and isinstance(before.content[-1], Reasoning)
        assert not (thinks and isinstance(after, AssistantMessage))
        if isinstance(keep, KeepShare):
            assert isinstance(after, UserMessage)


def test_the_text_of_a_message_is_what_is_weighed():
    assert message_tokens(UserMessage((Text(tokens(1_000)),))) == 1_004

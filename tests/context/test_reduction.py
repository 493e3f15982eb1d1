"""Reductions are proposed with their gain and their price, and whatever is done to a history, it
stays one that every provider takes.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import ConfigError, UserMessage
from monitor.chunks import ToolCall, ToolResult
from monitor.context import (
    ClipResults,
    CommittedEdit,
    CutPoint,
    DropMedia,
    Form,
    History,
    KeepTurns,
    PruneArguments,
    PruneResults,
    Reducer,
    cut_by_turns,
    head_of,
    propose_edit,
    reduced,
    repair,
    validate,
)
from monitor.context.cut import KeepShare, KeepTokens
from monitor.context.tokens import IMAGE_TOKENS, MESSAGE_TOKENS, message_tokens
from monitor.messages import AssistantMessage, Message, Reasoning, Text
from tests.context.dirty import histories
from tests.context.talk import IMAGE, ran, said, tokens, user
from tests.context.wire import FORMS, builder

LONG = (user("look", IMAGE), ran("ok"), said("I see."), ran(tokens(10_000)), user("and?"), said("Done."))


def test_a_reduction_says_what_it_saves_and_from_where_on_the_provider_reads_anew():
    history = History(LONG)
    reduction = propose_edit(history, ClipResults())
    assert reduction is not None
    assert reduction.breaks_at == 3
    assert reduction.changed == 1
    before, after = (
        sum(map(message_tokens, messages))
        for messages in (history.messages, reduction.edit.applied_to(history.messages))
    )
    assert reduction.saved_tokens == before - after
    assert reduction.reread_tokens == sum(map(message_tokens, reduction.edit.applied_to(history.messages)[3:]))
    assert (
        reduction.edit.note
        == f"truncate: about {before - after} tokens less in 1 of 6 messages; the cached prefix ends before message 3"
    )
    assert history.messages == LONG


def test_several_reducers_are_one_edit_that_breaks_the_cached_prefix_once():
    history = History(LONG)
    reduction = propose_edit(history, DropMedia(1), PruneResults(), ClipResults())
    assert reduction is not None
    assert (reduction.edit.kind, reduction.edit.start, reduction.edit.stop, reduction.changed) == (
        "media+truncate",
        0,
        4,
        2,
    )
    done = history.commit(reduction.edit)
    assert isinstance(done, CommittedEdit)
    assert [new is old for new, old in zip(history.messages, LONG, strict=True)] == [
        False,
        True,
        True,
        False,
        True,
        True,
    ]
    assert [history.behind(n, n + 1) for n in range(6)] == [(message,) for message in LONG]
    assert propose_edit(history, DropMedia(1), PruneResults(), ClipResults()) is None


def test_what_would_save_too_little_is_not_proposed():
    history = History(LONG)
    assert propose_edit(history, PruneResults()) is None
    assert propose_edit(history) is None
    assert propose_edit(history, ClipResults(), at_least_tokens=9_000) is not None
    assert propose_edit(history, ClipResults(), at_least_tokens=10_000) is None


def test_what_saves_nothing_is_not_proposed_whatever_is_asked_for():
    assert propose_edit(History(LONG), ClipResults(), at_least_tokens=0, tokens=lambda _: 1) is None


def test_the_same_message_over_and_over_is_taken_out_as_often_as_it_should():
    same = user("ping")
    history = History([same] * 5)
    reduction = propose_edit(history, KeepTurns(2))
    assert reduction is not None
    history.commit(reduction.edit)
    assert history.messages == (same, same)


def test_another_count_of_tokens_can_be_given():
    reduction = propose_edit(
        History(LONG), DropMedia(0), tokens=lambda message: sum(not isinstance(part, Text) for part in message.content)
    )
    assert reduction is not None
    assert reduction.saved_tokens == 1


def test_the_head_can_be_given():
    history = History(LONG)
    assert propose_edit(history, ClipResults(), head=4) is None
    with pytest.raises(ConfigError, match="head is 7; the history has 6 messages"):
        propose_edit(history, ClipResults(), head=7)


def test_in_memory_the_same_reducers_make_a_request():
    assert reduced(LONG, DropMedia(1), ClipResults()) == propose_edit(
        History(LONG), DropMedia(1), ClipResults()
    ).edit.applied_to(LONG)  # type: ignore[union-attr]
    assert reduced(LONG, PruneResults()) is LONG


def test_the_size_of_a_message_is_that_of_all_its_parts():
    assert message_tokens(user(tokens(10), IMAGE)) == 10 + IMAGE_TOKENS + 2 * MESSAGE_TOKENS
    turn = AssistantMessage(
        (Reasoning(tokens(5)), Text(tokens(7)), ToolCall("1", "look", {"a": "b"})),
        (ToolResult("1", "look", tokens(3)),),
    )
    arguments = 4  # 25 eighths, rounded up
    # of the message, the call, the result
    assert message_tokens(turn) == 5 + 7 + 1 + arguments + 1 + 3 + 3 * MESSAGE_TOKENS


# --- laws

reducers: st.SearchStrategy[Reducer] = st.one_of(
    st.builds(ClipResults, st.integers(1, 300), ending=st.sampled_from([0.0, None, 0.8])),
    st.builds(
        PruneResults,
        protect_turns=st.integers(0, 2),
        protect_messages=st.integers(0, 2),
        protect_tokens=st.integers(0, 300),
        more_than_tokens=st.integers(0, 100),
        keep_chars=st.sampled_from([0, 20]),
    ),
    st.builds(PruneArguments, tools=st.none(), max_chars=st.integers(100, 200), protect_messages=st.integers(0, 3)),
    st.builds(DropMedia, st.integers(0, 3)),
    st.builds(KeepTurns, st.integers(1, 4)),
)
big = st.sampled_from(["", "漢" * 300, "line\n" * 200, "Error: boom " * 40])
grown: st.SearchStrategy[Message] = st.one_of(
    st.builds(user, big.map(lambda text: text or "go"), st.just(IMAGE)),
    st.builds(lambda a, b, written: ran(a, b, arguments={"content": written, "n": [1]}), big, big, big),
    st.just(said("done")),
)


def cuts(history: History, data: st.DataObject) -> CutPoint | None:
    head = head_of(history)
    match data.draw(st.sampled_from(["turns", "tokens", "share"])):
        case "turns":
            return cut_by_turns(
                history.messages,
                data.draw(st.integers(0, 2_000)),
                tail_turns=data.draw(st.sampled_from([None, 0, 2])),
                head=head,
            )
        case "tokens":
            keep = KeepTokens(data.draw(st.integers(0, 2_000)), whole_turns=data.draw(st.booleans()))
            return keep.cut(history.messages, head=head, usable_tokens=100_000)
        case _:
            return KeepShare(data.draw(st.sampled_from([0.9, 0.3]))).cut(history.messages, head=head)


@pytest.mark.parametrize("form", FORMS)
@given(history=histories, more=st.lists(grown, max_size=12), data=st.data())
def test_any_sequence_of_reductions_and_cuts_leaves_a_valid_history_in_order(
    form: Form, history: Any, more: list[Message], data: Any
) -> None:
    build = builder(form)
    owner = History(repair((*history, *more))[0])
    if data.draw(st.booleans()):
        owner = History(repair((*history, *more, *more))[0])
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()):
            some = data.draw(st.lists(reducers, min_size=1, max_size=3))
            before = sum(map(message_tokens, owner.messages))
            reduction = propose_edit(owner, *some)
            if reduction is not None:
                assert isinstance(owner.commit(reduction.edit), CommittedEdit)
                assert sum(map(message_tokens, owner.messages)) == before - reduction.saved_tokens < before
        else:
            cut = cuts(owner, data)
            if cut is not None:
                assert head_of(owner) < cut.index <= len(owner)
                owner.commit(cut.edit(owner.version, (user("summary"),)))
                assert head_of(owner) == 1
        owner.append(user("go on"))
        assert repair(owner.messages)[0] is owner.messages
        assert validate(form, build(owner.messages)) == []
        origins = [first for first, _ in owner._origins]
        assert origins == sorted(origins)


@given(st.lists(grown, max_size=12).map(tuple), reducers, st.integers(0, 3))
def test_every_reducer_does_nothing_the_second_time_and_nothing_to_the_head(
    talk: tuple[Message, ...], reducer: Reducer, head: int
) -> None:
    head = min(head, len(talk))
    once = reducer.reduce(talk, head=head)
    assert all(new is old for new, old in zip(once[:head], talk[:head], strict=True))
    assert sum(map(message_tokens, once)) <= sum(map(message_tokens, talk))
    assert reducer.reduce(once, head=head) is once


@given(st.lists(grown, max_size=12).map(tuple), reducers)
def test_no_reducer_touches_what_the_user_said_or_how_a_call_was_answered(
    talk: tuple[Message, ...], reducer: Reducer
) -> None:
    once = reducer.reduce(talk)
    for new, old in zip(once, talk[len(talk) - len(once) :], strict=True):
        assert type(new) is type(old)
        if isinstance(new, UserMessage):
            assert new.content[0] is old.content[0]
        elif isinstance(old, AssistantMessage):
            assert [(one.id, one.name, one.is_error) for one in new.results] == [
                (one.id, one.name, one.is_error) for one in old.results
            ]
            assert [part.id for part in new.content if isinstance(part, ToolCall)] == [
                p.id for p in old.content if isinstance(p, ToolCall)
            ]

"""One compaction: what it keeps, what it refuses, and how it goes on when a summary fails."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor import AssistantMessage, Compaction, FinishReason, UserMessage, Window
from monitor.chunks import ToolCall, ToolResult, TurnFinished
from monitor.context import CompactionError, CompactionRecord, Extractive, Headroom, History, repair, validate
from monitor.context.compaction import attempts
from monitor.context.compaction.attempts import CUT, FRAME_TOKENS, LEAST_TOKENS, CompactionInput
from monitor.context.compaction.hooks import CompactionIneffective, shown
from monitor.context.compaction.pinned import (
    CONTINUE,
    CONTINUE_WITHOUT_MEDIA,
    PinnedFacts,
    acknowledgement,
    head_of_messages,
)
from monitor.context.compaction.preset import PRESETS, Preset
from monitor.context.compaction.proposal import Proposal, continue_message
from monitor.context.compaction.summarizer import Summary
from monitor.context.compaction.templates import CHECKPOINT, EIGHT_SECTIONS, SummaryTask
from monitor.context.cut import KeepMessages, KeepNewTurns, KeepShare, KeepTokens
from monitor.context.history import CommittedEdit, head_of
from monitor.context.reduce import PruneResults
from monitor.context.reduce import propose_edit as reduce_history
from monitor.context.tokens import message_tokens, size_of_text
from monitor.errors import PRESSING, CompactionFailure, CompactionReason
from monitor.messages import Media, Message, Reasoning
from monitor.models import ToolSpec
from monitor.testing import ScriptedModel, call
from tests.context.compaction.making import (
    asked_of,
    done,
    first_text,
    proposed,
    situation,
    summariser,
    summary_of,
    talk,
    told,
)
from tests.context.dirty import worded
from tests.context.talk import IMAGE, ran, said, user
from tests.context.wire import FORMS, builder

pytestmark = pytest.mark.anyio

R = CompactionReason
GOOD = summary_of(CHECKPOINT)
NO_STEPS = Compaction(steps=(), window=200_000)
"""Its summariser reads everything at once, unless a test says otherwise."""


def measured(messages: Sequence[Message]) -> int:
    return sum(map(message_tokens, messages))


def committed(history: History, proposal: Proposal) -> None:
    for edit in reversed(proposal.edits):
        assert isinstance(history.commit(edit), CommittedEdit)


def roles(messages: Sequence[Message]) -> str:
    return "".join("u" if isinstance(message, UserMessage) else "a" for message in messages)


# --- the shape


@pytest.mark.feature("GZ-08", "AC-02")
async def test_a_summary_an_acknowledgement_and_the_kept_tail():
    messages = talk(12)
    proposal = await proposed(
        Compaction.gemini_cli(), situation(messages, window=16_000), summariser(Compaction.gemini_cli().template)
    )
    result = proposal.result
    begins, answer, *tail = result.messages
    assert isinstance(begins, UserMessage)
    assert begins.synthetic
    assert answer == acknowledgement()
    assert isinstance(tail[0], UserMessage)
    assert all(new is old for new, old in zip(tail, messages[-len(tail) :], strict=True))
    assert told(result.messages)[0] == summary_of(Compaction.gemini_cli().template)
    record = result.record
    assert record is not None
    assert (record.shown, record.first_kept) == ((begins, answer), len(messages) - len(tail))
    assert shown(messages, [record]) == result.messages
    assert record.tokens_before == result.tokens_before > result.tokens_after == record.tokens_after
    assert record.details.files_read[0] == "src/m0/part0.py"
    assert record.summarised_by == "scripted:small"


async def test_a_tail_that_begins_with_the_model_needs_no_acknowledgement():
    messages: tuple[Message, ...] = (user("Do it all."), *(ran("result " * 300) for _ in range(30)))
    proposal = await proposed(Compaction.pi(), situation(messages, window=20_000), summariser(CHECKPOINT))
    assert roles(proposal.result.messages).startswith("uaaa")
    assert acknowledgement() not in proposal.result.messages


@pytest.mark.feature("GZ-08")
async def test_where_no_user_turn_follows_the_cut_everything_is_summarised():
    messages = (user("one"), said("word " * 9_000), user("two"), said("word " * 9_000))
    preset = Compaction.gemini_cli()
    now = situation(messages, window=18_000, reason=R.MANUAL)
    result = (await proposed(preset, now, summariser(preset.template))).result
    assert result.messages[1:] == (acknowledgement(),)
    assert result.kept_messages == 0
    assert told(result.messages)[1].user_messages == ("one", "two")


@pytest.mark.feature("CC-04")
async def test_five_messages_and_the_current_task_stand_beside_the_summary():
    preset = Compaction.claude_code()
    messages = (*talk(20), user("Now fix the tests."), *(ran(f"line {n}") for n in range(8)))
    result = (await proposed(preset, situation(messages, window=16_000), summariser(preset.template))).result
    assert result.messages[-5:] == messages[-5:]
    assert result.kept_messages == 5
    assert told(result.messages)[1].user_messages[-1] == "Now fix the tests."


async def test_five_messages_that_are_larger_than_the_window_are_not_all_kept():
    preset = Compaction.claude_code()
    messages = (*talk(3), *(ran("word " * 5_000) for _ in range(5)))
    result = (await proposed(preset, situation(messages, window=16_000), summariser(preset.template))).result
    assert 0 < result.kept_messages < 5
    assert result.tokens_after < 0.92 * 16_000


@pytest.mark.feature("CC-03")
async def test_the_model_of_the_preset_writes_the_summary_with_its_settings():
    small, large = summariser(CHECKPOINT), ScriptedModel(name="scripted:large")
    preset = replace(NO_STEPS, model=small, settings={"reasoning_effort": "low"})
    result = (await proposed(preset, situation(talk(40), window=16_000), large)).result
    assert (len(small.requests), large.requests, result.summarised_by) == (1, [], "scripted:small")
    assert small.requests[0].settings == {"reasoning_effort": "low"}  # row S11: the caller's options, and nobody else's
    assert small.requests[0].tools == ()


@pytest.mark.feature("OC-08")
async def test_the_second_compaction_updates_the_summary_of_the_first():
    model = summariser(CHECKPOINT, summary_of(CHECKPOINT, "first words"), summary_of(CHECKPOINT, "second words"))
    preset = NO_STEPS
    first = (await proposed(preset, situation(talk(40), window=16_000), model)).result
    head = head_of_messages(first.messages)
    again = (*first.messages, *talk(40, seed=2))
    second = (await proposed(preset, situation(again, window=16_000, head=head), model)).result
    assert len(model.requests) == 2
    asked = asked_of(model)
    assert "the earlier summary:" in asked
    assert asked.count("first words") == len(CHECKPOINT.sections)  # once a section: not as a message besides
    assert "I have read what came before" not in asked
    assert "second words" in told(second.messages)[0]
    assert "first words" not in first_text(second.messages)


@pytest.mark.parametrize("head", [0, 2])
async def test_an_earlier_summary_is_known_by_its_text_also_where_nobody_says_so(head: int):
    """Messages that were stored and read again."""
    first = (await proposed(NO_STEPS, situation(talk(40), window=16_000), summariser(CHECKPOINT))).result
    model = summariser(CHECKPOINT)
    again = (*first.messages, *talk(40, seed=2))
    second = (await proposed(NO_STEPS, situation(again, window=16_000, head=head), model)).result
    assert "the earlier summary:" in asked_of(model)
    kept = second.messages[head_of_messages(second.messages) :]
    assert len(told(second.messages)[1].user_messages) + roles(kept).count("u") == 80


@pytest.mark.feature("AC-04")
async def test_a_turn_that_is_split_has_instructions_of_its_own():
    inside: tuple[Message, ...] = (user("Do it all."), *(ran("result " * 300) for _ in range(30)))
    between = talk(30)
    split, whole = summariser(CHECKPOINT), summariser(CHECKPOINT)
    await proposed(Compaction.pi(), situation(inside, window=20_000), split)
    await proposed(Compaction(steps=(), keep=KeepTokens(whole_turns=True)), situation(between, window=16_000), whole)
    assert "The last user turn in the record is not complete" in (split.requests[0].instructions or "")
    assert "The last user turn in the record is not complete" not in (whole.requests[0].instructions or "")


@pytest.mark.feature("CL-13")
async def test_the_openclaw_preset_asks_on_top_of_the_live_prefix_and_others_do_not():
    tools = (ToolSpec("read_file", "Reads.", {"type": "object"}),)
    messages = talk(30, size=100)
    for preset, live in (
        (Compaction.openclaw(keep=KeepTokens(1_000, whole_turns=True)), True),
        (Compaction.pi(), False),
    ):
        model = summariser(preset.template)
        now = situation(messages, window=40_000, reason=R.MANUAL, instructions="You are careful.", tools=tools)
        await proposed(preset, now, model)
        request = model.requests[0]
        assert (request.instructions == "You are careful.") is live
        assert (request.tools == tools) is live
        assert request.tool_choice == "none"
        assert (request.messages[0] is messages[0]) is live


async def test_what_is_summarised_is_what_was_there_before_old_results_went():
    """A marker in the place of a result says nothing; the summariser reads the result."""
    messages = talk(60, size=300)
    model = summariser(CHECKPOINT)
    await proposed(Compaction(), situation(messages, window=24_000), model)
    assert "Old tool result cleared" not in asked_of(model, 0)


# --- without a summary


async def test_where_old_results_are_enough_nothing_is_summarised_and_the_steps_that_did_it_are_named():
    messages = (
        *talk(3),
        *(ran("word " * 3_000) for _ in range(30)),
        user("go on"),
        said("yes"),
        user("go on"),
        said("yes"),
    )
    model = summariser(CHECKPOINT)
    prunes = Compaction(steps=(PruneResults(more_than_tokens=5_000),))
    result = (await proposed(prunes, situation(messages, window=100_000, reason=R.HIGH_WATER), model)).result
    assert (result.record, result.summarised_by, model.requests) == (None, "prune", [])
    assert result.tokens_after < result.tokens_before
    assert len(result.messages) == len(messages)


async def test_by_hand_a_summary_is_made_also_where_old_results_would_do():
    messages = (
        *talk(3),
        *(ran("word " * 3_000) for _ in range(30)),
        user("go on"),
        said("yes"),
        user("go on"),
        said("yes"),
    )
    prunes = Compaction(steps=(PruneResults(more_than_tokens=5_000),))
    result = (
        await proposed(prunes, situation(messages, window=1_000_000, reason=R.MANUAL), summariser(CHECKPOINT))
    ).result
    assert result.record is not None


async def test_a_step_that_takes_whole_turns_and_is_not_enough_leaves_them_to_the_summary():
    class Forget:
        name = "forget"

        def reduce(self, messages: tuple[Message, ...], *, head: int = 0) -> tuple[Message, ...]:
            return messages[:head] + messages[head + 5 :]

    class Broken:
        name = "broken"

        def reduce(self, messages: tuple[Message, ...], *, head: int = 0) -> tuple[Message, ...]:
            raise OSError("no")

    messages = talk(40)
    preset = Compaction(steps=(Forget(), Broken()))
    result = (await proposed(preset, situation(messages, window=16_000), summariser(CHECKPOINT))).result
    assert told(result.messages)[1].user_messages[0].startswith("Request 0")
    assert result.record is not None
    assert result.record.first_kept == len(messages) - result.kept_messages
    assert result.warnings == ("broken raised OSError: no",)


async def test_a_result_that_nobody_could_read_is_clipped_in_what_is_kept():
    messages = (*talk(10), ran("word " * 30_000))
    history = History(messages)
    proposal = await proposed(Compaction.pi(), situation(messages, window=32_000), summariser(CHECKPOINT))
    committed(history, proposal)
    assert history.messages == proposal.result.messages
    assert history.originals == messages
    assert "characters left out" in str(history.messages[-1])


# --- nothing to do


@pytest.mark.feature("GZ-04")
@pytest.mark.parametrize("reason", list(R))
async def test_of_an_empty_history_nothing_is_made(reason: CompactionReason):
    model = summariser(CHECKPOINT)
    with pytest.raises(CompactionError) as raised:
        await proposed(NO_STEPS, situation((), reason=reason), model)
    assert raised.value.failure is CompactionFailure.NOTHING_TO_COMPACT
    first = (await proposed(NO_STEPS, situation(talk(14), window=16_000), model)).result.messages[:2]
    with pytest.raises(CompactionError) as raised:
        await proposed(NO_STEPS, situation(first, reason=reason, head=2), model)
    assert raised.value.failure is CompactionFailure.NOTHING_TO_COMPACT
    assert len(model.requests) == 1


@pytest.mark.feature("GZ-04")
@pytest.mark.parametrize("name", PRESETS)
async def test_by_hand_a_context_with_room_is_compacted_all_the_same(name: str):
    preset = getattr(Compaction, name)()
    now = situation(talk(12), window=1_000_000, reason=R.MANUAL)
    result = (await proposed(preset, now, summariser(preset.template))).result
    assert result.record is not None
    assert result.tokens_after < result.tokens_before


@pytest.mark.feature("GZ-07")
async def test_what_would_not_get_smaller_is_refused_before_a_model_is_asked():
    model = summariser(CHECKPOINT)
    with pytest.raises(CompactionIneffective) as raised:
        await proposed(
            NO_STEPS, situation((user("hi"), said("hello"), user("how are you?"), said("fine")), reason=R.MANUAL), model
        )
    assert raised.value.tokens_after >= raised.value.target_tokens
    assert model.requests == []


@pytest.mark.feature("GZ-07")
async def test_a_summary_that_is_larger_than_what_it_stands_for_is_refused_with_both_numbers():
    class Chatty:
        name = "chatty"

        async def summarize(self, task: SummaryTask, ask: Any, **options: Any) -> Summary:
            return Summary(text="many words " * 9_000, by="chatty")

    messages = talk(20)
    with pytest.raises(CompactionIneffective) as raised:
        await proposed(replace(NO_STEPS, summarizer=Chatty()), situation(messages, window=100_000, reason=R.MANUAL))
    assert raised.value.tokens_before == measured(messages)
    assert raised.value.tokens_after > raised.value.tokens_before


async def test_instructions_that_leave_no_room_are_named_and_cost_no_call():
    model = summariser(CHECKPOINT)
    now = situation(talk(4), window=32_000, reason=R.HIGH_WATER, instructions="rule " * 20_000)
    with pytest.raises(CompactionError, match="Instructions and tools alone have 2") as raised:
        await proposed(Compaction.pi(keep=KeepTokens(500)), now, model)
    assert raised.value.failure is CompactionFailure.INEFFECTIVE
    assert model.requests == []


# --- measuring


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.7])
async def test_the_whole_is_measured_as_the_provider_counts_it(factor: float):
    messages = talk(60)
    counted = int(measured(messages) * factor)
    now = situation(messages, window=counted, reason=R.HIGH_WATER, tokens=counted, reported=True)
    result = (await proposed(NO_STEPS, now, summariser(CHECKPOINT))).result
    assert result.tokens_before == counted
    assert result.reported
    assert result.tokens_after < (now.marks.low or 0)
    assert abs(result.tokens_after - measured(result.messages) * factor) < 5


@pytest.mark.parametrize("reason", [R.OVERFLOW, R.SILENT_OVERFLOW])
async def test_a_request_that_was_refused_has_more_than_the_window_whatever_is_counted(reason: CompactionReason):
    """Else anything smaller would do, and be refused again."""
    messages = talk(40)
    now = situation(messages, window=4 * measured(messages), reason=reason)
    result = (await proposed(NO_STEPS, now, summariser(CHECKPOINT))).result
    assert result.tokens_before >= 4 * measured(messages)
    assert measured(result.messages) < 0.9 * measured(messages)


async def test_of_a_window_that_nobody_knows_something_must_go_all_the_same():
    messages = talk(60)
    result = (
        await proposed(NO_STEPS, situation(messages, window=None, reason=R.OVERFLOW), summariser(CHECKPOINT))
    ).result
    assert result.tokens_after < 0.6 * result.tokens_before
    assert result.kept_messages


async def test_each_try_for_the_same_refusal_keeps_half_as_much():
    messages = talk(60)
    kept = []
    for harder in range(3):
        now = situation(messages, window=measured(messages) - 1, reason=R.OVERFLOW, harder=harder)
        kept.append((await proposed(NO_STEPS, now, summariser(CHECKPOINT))).result.kept_tokens)
    assert kept[0] > 1.5 * kept[1] > 2 * kept[2] > 0


# --- when the summary fails


def failing(*answers: Any) -> ScriptedModel:
    return ScriptedModel(*answers, name="scripted:small")


CUT_OFF = [GOOD[:40], TurnFinished(FinishReason.LENGTH)]
WITHOUT_SECTIONS = "It goes well."
OUTLAW = [call("read_file", path="x"), "I go on."]


@pytest.mark.feature("CC-05")
@pytest.mark.parametrize(
    ("bad", "tries"),
    [(CUT_OFF, 1), (OUTLAW, 1), (WITHOUT_SECTIONS, 2), ("", 2)],
    ids=["truncated", "S9 a tool call", "rejected", "empty"],
)
async def test_a_summary_that_fails_is_asked_for_again_in_fewer_words(bad: Any, tries: int):
    model = failing(*[bad] * tries, GOOD)
    result = (await proposed(NO_STEPS, situation(talk(40), window=50_000, reason=R.HIGH_WATER), model)).result
    first, second = (request.instructions or "" for request in (model.requests[0], model.requests[-1]))
    assert first != second  # half as many words
    assert result.summarised_by == "scripted:small"
    assert len(result.warnings) == 1
    assert first_text(result.messages).count("read_file") == 0


@pytest.mark.feature("CC-05")
async def test_then_more_is_kept_and_less_is_summarised():
    messages = talk(40)
    plain = (await proposed(NO_STEPS, situation(messages, window=50_000), failing(GOOD))).result
    model = failing(CUT_OFF, CUT_OFF, GOOD)
    result = (await proposed(NO_STEPS, situation(messages, window=50_000), model)).result
    assert result.kept_messages > plain.kept_messages
    assert result.warnings[1].startswith("scripted:small, half as long: wrote a summary that was cut off")
    assert result.tokens_after < result.tokens_before


@pytest.mark.feature("CC-05", "OC-16")
async def test_beside_the_run_a_summary_that_fails_leaves_everything_as_it_was():
    model = failing(CUT_OFF, CUT_OFF, CUT_OFF)
    with pytest.raises(CompactionError) as raised:
        await proposed(NO_STEPS, situation(talk(40), window=50_000, reason=R.HIGH_WATER), model)
    assert raised.value.failure is CompactionFailure.TRUNCATED


@pytest.mark.feature("CC-05")
@pytest.mark.parametrize("reason", sorted(PRESSING))
@pytest.mark.parametrize("bad", [CUT_OFF, OUTLAW, WITHOUT_SECTIONS, "", ConnectionError("gone"), TimeoutError("slow")])
async def test_where_the_run_cannot_go_on_there_is_always_a_context_that_fits(bad: Any, reason: CompactionReason):
    model = failing(*[bad] * 20)
    result = (await proposed(NO_STEPS, situation(talk(40), window=40_000, reason=reason), model)).result
    assert result.summarised_by == "extractive"
    assert result.tokens_after < 0.85 * 40_000
    assert len(told(result.messages)[1].user_messages) + roles(result.messages[1:]).count("u") == 40
    assert result.warnings


@pytest.mark.feature("CC-05")
async def test_a_provider_that_does_not_answer_is_not_asked_three_times():
    """S18: what passes is tried again once; what does not is not."""
    model = failing(*[ValueError("no such model")] * 20)
    await proposed(NO_STEPS, situation(talk(40), window=50_000), model)
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("gives", "failure"),
    [
        (Summary(text=" \n", by="mine"), CompactionFailure.EMPTY),
        ("a text", CompactionFailure.INVALID),
        (Summary(text=b"bytes", by="mine"), CompactionFailure.INVALID),  # type: ignore[arg-type]
        (KeyError("mine"), CompactionFailure.CRASHED),
        (TimeoutError(), CompactionFailure.TIMEOUT),
    ],
)
@pytest.mark.feature("AC-10")
async def test_what_a_summariser_of_ones_own_gives_is_looked_at_before_anything_is_made_of_it(
    gives: Any, failure: CompactionFailure
):
    """S21: no text is a failure with a type."""

    class Mine:
        name = "mine"

        async def summarize(self, task: SummaryTask, ask: Any, **options: Any) -> Any:
            if isinstance(gives, Exception):
                raise gives
            return gives

    preset = replace(NO_STEPS, summarizer=Mine())
    with pytest.raises(CompactionError) as raised:
        await proposed(preset, situation(talk(40), window=50_000, reason=R.HIGH_WATER))
    assert raised.value.failure is failure
    result = (await proposed(preset, situation(talk(40), window=50_000))).result
    assert result.summarised_by == "extractive"


@pytest.mark.feature("OC-14")
async def test_a_summary_whose_own_request_is_too_large_says_so_and_whether_media_were_taken_out():
    """S6: a request for the summary that overflows is an error with a type."""
    messages = (user("Look.", IMAGE), *talk(20))
    preset = replace(NO_STEPS, model=summariser(CHECKPOINT), window=2_500)
    for told_of, expected in ((messages, True), (messages[1:], False)):
        with pytest.raises(CompactionError) as raised:
            await proposed(preset, situation(told_of, window=30_000, reason=R.MANUAL), summariser(CHECKPOINT))
        assert raised.value.failure is CompactionFailure.TOO_LONG
        assert raised.value.media_removed is expected


async def test_the_last_rung_keeps_the_earlier_summary_as_far_as_it_has_room():
    first = (
        await proposed(
            NO_STEPS, situation(talk(40), window=40_000), summariser(CHECKPOINT, summary_of(CHECKPOINT, "settled"))
        )
    ).result
    huge = user("word " * 7_000)
    again = (*first.messages, *talk(12), huge)
    now = situation(again, window=8_600, headroom=Headroom(0.85, reserve_tokens=0), head=head_of_messages(again))
    result = (await proposed(NO_STEPS, now, None)).result
    assert result.summarised_by in {CUT, "extractive"}
    assert result.messages[-1] is huge
    assert "settled" in told(result.messages)[0]
    assert result.tokens_after < 8_600


async def test_a_request_that_is_too_large_by_itself_is_named():
    huge = user("word " * 20_000)
    with pytest.raises(CompactionIneffective, match="Instructions, tools and the newest request alone have 2"):
        await proposed(NO_STEPS, situation((*talk(4), huge), window=16_000), None)
    with pytest.raises(CompactionError, match="nothing before the newest request") as raised:
        await proposed(NO_STEPS, situation((huge,), window=16_000), None)
    assert raised.value.failure is CompactionFailure.NOTHING_TO_COMPACT


# --- after a refusal


@pytest.mark.feature("OC-10")
async def test_the_unanswered_request_is_put_once_more_with_its_media_named():
    messages = (*talk(20), user("What is on it?", Media("image/png", data="iVBORw0KGgo=", name="chart.png")))
    history = History(messages)
    proposal = await proposed(NO_STEPS, situation(messages, window=16_000, reason=R.OVERFLOW), summariser(CHECKPOINT))
    result = proposal.result
    assert result.messages[-1] == user("What is on it?", "[Attached image/png: chart.png]")
    assert result.replayed == len(result.messages) - 1
    assert continue_message(Compaction(continues="always"), proposal, R.OVERFLOW) is None
    committed(history, proposal)
    assert history.messages == result.messages
    assert history.originals == messages


@pytest.mark.feature("OC-10")
async def test_where_nothing_precedes_the_request_or_it_was_answered_nothing_is_put_again():
    with pytest.raises(CompactionError) as raised:
        await proposed(
            NO_STEPS, situation((user("word " * 30_000),), window=16_000, reason=R.OVERFLOW), summariser(CHECKPOINT)
        )
    assert raised.value.failure is CompactionFailure.NOTHING_TO_COMPACT
    messages: tuple[Message, ...] = (user("Do it.", IMAGE), *(ran("word " * 900) for _ in range(20)))
    result = (
        await proposed(NO_STEPS, situation(messages, window=16_000, reason=R.OVERFLOW), summariser(CHECKPOINT))
    ).result
    assert result.replayed is None
    assert "Do it." in told(result.messages)[1].user_messages[0]


@pytest.mark.feature("OC-10")
async def test_a_request_that_nobody_refused_keeps_its_media():
    messages = (*talk(20), user("What is on it?", IMAGE))
    result = (
        await proposed(NO_STEPS, situation(messages, window=16_000, reason=R.CEILING), summariser(CHECKPOINT))
    ).result
    assert result.messages[-1] is messages[-1]
    assert result.replayed is None


@pytest.mark.feature("OC-11")
@pytest.mark.parametrize("media", [True, False])
async def test_what_tells_the_model_to_go_on(media: bool):
    """S3, S5."""
    before = (user("Look.", IMAGE),) if media else ()
    messages = (*before, *talk(20), *(ran("word " * 900) for _ in range(3)))
    proposal = await proposed(NO_STEPS, situation(messages, window=16_000, reason=R.OVERFLOW), summariser(CHECKPOINT))
    always, needed, never = (Compaction(continues=when) for when in ("always", "when_needed", "never"))
    message = continue_message(always, proposal, R.OVERFLOW)
    assert message is not None
    assert message.synthetic
    assert message == user(CONTINUE_WITHOUT_MEDIA if media else CONTINUE)
    assert continue_message(always, proposal, R.CEILING) == user(CONTINUE)
    assert continue_message(always, proposal, R.MANUAL) is None
    assert continue_message(never, proposal, R.OVERFLOW) is None
    assert (continue_message(needed, proposal, R.OVERFLOW) is None) is bool(proposal.result.kept_messages)
    nothing_kept = replace(proposal, result=replace(proposal.result, kept_messages=0))
    assert continue_message(needed, nothing_kept, R.CEILING) == user(CONTINUE)
    reduction = replace(proposal, result=replace(proposal.result, record=None))
    assert continue_message(always, reduction, R.CEILING) is None


@pytest.mark.feature("CC-01")
def test_the_claude_code_preset_is_due_at_92_percent():
    preset = Compaction.claude_code()
    assert preset.due(183_999, window=200_000) is None
    assert preset.due(184_000, window=200_000) is R.HIGH_WATER
    for window in (None, Window(None)):
        with pytest.warns(UserWarning, match="nothing is compacted before the provider refuses"):
            assert preset.due(184_000, window=window) is None


# --- the execution frontier


RULES = "Never touch prod.cfg. Answer in German."


@pytest.mark.feature("CC-07")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what is kept is arithmetic
@pytest.mark.parametrize("seed", range(4))
async def test_twenty_compactions_in_a_row_lose_nothing_of_the_frontier(seed: int):
    """With summarisers that fail in all ways, in an order that differs by `seed`."""
    answers: list[Any] = [
        GOOD,
        CUT_OFF,
        OUTLAW,
        WITHOUT_SECTIONS,
        "",
        ConnectionError("gone"),
        TimeoutError("slow"),
        GOOD,
        GOOD,
    ]
    chance = random.Random(seed)
    model = failing(lambda _: chance.choice(answers))
    history = History()
    records: list[CompactionRecord] = []
    said_by_user: list[str] = []
    reasons = [R.CEILING, R.OVERFLOW, R.SILENT_OVERFLOW]
    by = set()
    for number in range(20):
        request = f"Order {number}: keep ticket ABC-{1000 + number} in mind."
        said_by_user.append(request)
        history.append(user(request))
        for message in talk(7, size=800, seed=number)[1:]:
            if isinstance(message, UserMessage):
                said_by_user.append(message.content[0].text)  # type: ignore[union-attr]
            history.append(message)
        newest = f"/srv/app/round{number}/main.py"
        history.append(ran(f"wrote {newest}", name="write_file", arguments={"path": newest}))
        facts = PinnedFacts(
            emitted={f"part{done}": f'"value {done}"' for done in range(number)},
            outstanding=tuple(f"part{left}" for left in range(number, 20)),
            plan=f"[x] step {number}\n[ ] step {number + 1}",
        )
        now = situation(
            history.messages,
            version=history.version,
            head=head_of(history),
            window=60_000,
            reason=reasons[number % 3],
            facts=facts,
            originals_before=history.originals_before,
        )
        preset = Compaction(steps=(), keep=KeepTokens(2_000), rules=RULES, summary_tokens=600)
        proposal = await proposed(preset, now, model)
        committed(history, proposal)
        result = proposal.result
        by.add(result.summarised_by)
        assert result.tokens_after < 60_000
        assert result.record is not None
        records.append(result.record)
        pinned = told(history.messages)[1]
        tail = history.messages[head_of(history) :]
        theirs = [message.content[0].text for message in tail if isinstance(message, UserMessage)]  # type: ignore[union-attr]
        assert [*pinned.user_messages, *theirs] == said_by_user
        assert (pinned.emitted, pinned.outstanding) == (facts.emitted, facts.outstanding)
        assert (pinned.plan, pinned.rules) == (facts.plan, RULES)
        assert newest in str(history.messages)
        assert history.messages == shown(history.originals, records)
    assert by == {"scripted:small", "extractive"}


async def test_what_was_given_is_not_forgotten_where_nobody_says_it_again():
    facts = PinnedFacts(
        emitted={"a": "1"}, outstanding=("b: the rest", "c"), plan="step", rules="rule", notes=("once",)
    )
    first = (await proposed(NO_STEPS, situation(talk(14), window=16_000, facts=facts), summariser(CHECKPOINT))).result
    assert told(first.messages)[1].notes == ("once",)
    again = (*first.messages, *talk(10))
    now = situation(again, window=16_000, facts=PinnedFacts(emitted={"b": "2"}))
    pinned = told((await proposed(NO_STEPS, now, summariser(CHECKPOINT))).result.messages)[1]
    assert (pinned.emitted, pinned.earlier_outputs) == ({"b": "2"}, {"a": "1"})
    assert pinned.outstanding == ("c",)
    assert (pinned.plan, pinned.rules, pinned.notes) == ("step", "rule", ())


# --- laws

turns = st.lists(
    st.tuples(
        st.sampled_from(["user", "said", "ran", "ran", "ran", "think", "media"]),
        st.integers(0, 3_000),
    ),
    max_size=14,
)


def history_of(plan: Sequence[tuple[str, int]]) -> tuple[Message, ...]:
    """A valid history, that begins with the user."""
    messages: list[Message] = [user("Begin.")]
    for kind, size in plan:
        text = f"n{len(messages)} " + "word " * size
        match kind:
            case "user":
                messages.append(user(text))
            case "media":
                messages.append(user(text, IMAGE))
            case "said":
                messages.append(said(text))
            case "think":
                one = ToolCall(f"t{len(messages)}", "look", {})
                messages.append(AssistantMessage((Reasoning("hm", "c2ln"), one), (ToolResult(one.id, "look", text),)))
            case _:
                messages.append(ran(text, "short", arguments={"path": f"a{len(messages)}.py"}))
    return repair(tuple(messages))[0]


histories = st.one_of(turns.map(history_of), worded.map(lambda raw: repair(raw)[0]))
presets = st.sampled_from(PRESETS)
keeps = st.sampled_from(
    [None, KeepTokens(500), KeepTokens(3_000, whole_turns=True), KeepNewTurns(), KeepShare(0.3), KeepMessages(2)]
)
windows = st.sampled_from([2_000, 8_000, 16_000, 40_000, 200_000, None])


def preset_of(name: str, keep: Any) -> Preset:
    preset: Preset = getattr(Compaction, name)(summarizer=Extractive())
    return replace(preset, keep=keep) if keep is not None else preset


def outcome(preset: Preset, now: CompactionInput) -> Proposal | CompactionError:
    try:
        return done(proposed(preset, now))
    except CompactionError as error:
        return error


chosen_presets = st.builds(preset_of, presets, keeps)


@given(
    histories,
    chosen_presets,
    windows,
    st.fixed_dictionaries(
        {"reason": st.sampled_from(list(R)), "harder": st.integers(0, 2), "scale": st.sampled_from([0.7, 1.0, 1.9])}
    ),
)
def test_a_proposal_is_valid_smaller_and_the_same_again_or_an_error(
    messages: tuple[Message, ...], preset: Preset, window: int | None, options: dict[str, Any]
):
    given_messages, reason = tuple(messages), options["reason"]
    now = situation(messages, window=window, headroom=preset.headroom, low_water=preset.low_water, **options)
    proposal, again = outcome(preset, now), outcome(preset, now)
    assert now.messages == given_messages
    if isinstance(proposal, CompactionError):
        assert (type(again), str(again)) == (type(proposal), str(proposal))
        return
    assert again == proposal
    result = proposal.result
    assert result.tokens_after < result.tokens_before
    target = now.marks.target(reason, result.tokens_before)
    assert result.tokens_after < target or (reason in PRESSING and (window is None or result.tokens_after < window))
    for form in FORMS:
        if not validate(form, builder(form)(messages)):
            assert not validate(form, builder(form)(result.messages))
            told_to_go_on = continue_message(replace(preset, continues="always"), proposal, reason)
            assert told_to_go_on is None or not validate(form, builder(form)((*result.messages, told_to_go_on)))
    history = History(messages)
    committed(history, proposal)
    assert history.messages == result.messages
    assert history.originals == given_messages
    if result.record is None:
        return
    kept = given_messages[result.record.first_kept :]
    assert len(kept) == result.kept_messages
    assert result.messages == (*result.record.shown, *result.messages[len(result.record.shown) :])
    for new, old in zip(result.messages[len(result.record.shown) :], kept, strict=True):
        assert new is old or preset.steps or reason is R.OVERFLOW or measured((new,)) < measured((old,))
    joint = roles(result.messages[: len(result.record.shown) + 1])
    assert "uu" not in joint
    assert "aa" not in joint
    assert result.messages[-1] != acknowledgement() or not getattr(messages[-1], "results", ())  # the model speaks next


@given(
    turns.map(history_of),
    chosen_presets,
    st.sampled_from([8_000, 16_000, 40_000]),
    st.fixed_dictionaries(
        {
            "reason": st.sampled_from(sorted(PRESSING)),
            "instructions": st.sampled_from(["", "rule " * 600, "rule " * 5_000]),
            "scale": st.sampled_from([1.0, 1.3]),
        }
    ),
)
def test_under_pressure_there_is_a_context_that_fits_unless_the_newest_request_alone_does_not(
    messages: tuple[Message, ...], preset: Preset, window: int, options: dict[str, Any]
):
    preset = replace(preset, summarizer=None)
    now = situation(
        messages,
        window=window,
        headroom=preset.headroom,
        low_water=preset.low_water,
        tokens=int(window * 1.05),
        **options,
    )
    instructions = options["instructions"]
    unanswered = messages[-1:] if isinstance(messages[-1], UserMessage) else ()
    alone = size_of_text(instructions).tokens + measured(unanswered)
    whole = size_of_text(instructions).tokens + measured(messages)
    by = max(options["scale"], window * 1.05 / whole)
    came = outcome(preset, now)
    if isinstance(came, CompactionError):
        little = 2 * LEAST_TOKENS + FRAME_TOKENS
        nothing = came.failure is CompactionFailure.NOTHING_TO_COMPACT and len(messages) == len(unanswered)
        assert nothing or (alone + little) * by >= window
    else:
        assert came.result.tokens_after < window


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(turns, min_size=20, max_size=20), presets, st.sampled_from([8_000, 16_000, 40_000]))
def test_a_chain_of_twenty_stays_bounded_and_can_be_made_again_from_the_originals(
    plans: list[Any], name: str, window: int
):
    preset = replace(preset_of(name, None), summarizer=None, steps=())
    history, records = History([user("Begin.")]), []
    for number, plan in enumerate(plans):
        for message in history_of([(kind, size // 4) for kind, size in plan if kind != "media"]):
            history.append(message)
        history.append(said(f"Round {number} is done."))
        now = situation(
            history.messages,
            version=history.version,
            head=head_of(history),
            window=window,
            reason=R.CEILING,
            originals_before=history.originals_before,
        )
        proposal = outcome(preset, now)
        if isinstance(proposal, CompactionError):
            assert proposal.failure is CompactionFailure.INEFFECTIVE
            assert measured(history.messages) < window
            continue
        committed(history, proposal)
        assert proposal.result.record is not None
        records.append(proposal.result.record)
        assert history.messages == shown(history.originals, records)
        assert measured(history.messages) < window


@given(st.lists(turns, min_size=4, max_size=8), st.sampled_from([2_000, 8_000]))
def test_a_record_names_the_first_original_that_is_kept_whatever_was_shortened_before(plans: list[Any], window: int):
    history, last = History([user("Begin.")]), None
    prune = PruneResults(protect_turns=0, protect_tokens=300, more_than_tokens=0)
    for number, plan in enumerate(plans):
        for message in history_of(plan):
            history.append(message)
        if (reduction := reduce_history(history, prune)) is not None:
            history.commit(reduction.edit)
        now = situation(
            history.messages,
            version=history.version,
            head=head_of(history),
            window=window,
            reason=R.CEILING,
            originals_before=history.originals_before,
        )
        proposal = outcome(replace(preset_of("pi", KeepTokens(400)), summarizer=None), now)
        history.append(said(f"meanwhile {number}"))
        if isinstance(proposal, CompactionError):
            continue
        committed(history, proposal)
        last = proposal.result.record or last
        if last is not None:
            assert history.behind(head_of(history), len(history)) == history.originals[last.first_kept :]


async def test_others_have_their_turn_while_thousands_of_messages_are_looked_at():
    turns_of_others = 0

    async def other() -> None:
        nonlocal turns_of_others
        while True:
            await anyio.lowlevel.checkpoint()
            turns_of_others += 1

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        await proposed(Compaction(), situation(talk(1_000, size=1), window=100_000))
        group.cancel_scope.cancel()
    assert turns_of_others >= 5


async def test_each_message_is_measured_once(monkeypatch: pytest.MonkeyPatch):
    """S25b."""
    seen: list[int] = []

    def counted(message: Message) -> int:
        seen.append(id(message))
        return message_tokens(message)

    monkeypatch.setattr(attempts, "message_tokens", counted)
    messages = talk(40)
    await proposed(NO_STEPS, situation(messages, window=30_000), failing(CUT_OFF, CUT_OFF, CUT_OFF))
    assert [seen.count(id(message)) for message in messages] == [1] * len(messages)


@pytest.mark.parametrize("summarises", [True, False])
async def test_old_large_arguments_are_clipped_with_a_summary_and_without(summarises: bool):
    """S25a."""
    written = "line = 1\n" * 4_000
    writes = [ran("ok", name="write_file", arguments={"path": f"a{n}.py", "content": written}) for n in range(3)]
    others = [ran("ok", name="search", arguments={"query": written[:3_000]})]
    newest = ran("ok", name="write_file", arguments={"path": "new.py", "content": written[:2_700]})
    messages: tuple[Message, ...] = (user("Write."), *writes, *others, *(ran("ok") for _ in range(19)), newest)
    if summarises:
        messages = (*messages[:1], said("word " * 15_000), *messages[1:])
    window = 20_000 if summarises else 80_000
    preset = Compaction(keep=KeepTokens(40_000, share=0.9), window=200_000)
    model = summariser(CHECKPOINT)
    result = (await proposed(preset, situation(messages, window=window, tokens=int(window * 0.98)), model)).result
    assert (result.record is not None) is summarises
    assert result.messages[-1] == messages[-1]  # a recent one is whole
    if summarises:
        assert "characters cleared" not in asked_of(model, 0)
    else:
        assert "characters cleared" in str(result.messages[1])
        assert result.messages[4] is messages[4]  # another tool's are whole


# --- what a message carries beside its content


META = {"agent": "build", "model": "anthropic:claude-sonnet-4-5", "format": "json", "tools": ["read"], "system": "Go."}


@pytest.mark.feature("OC-10")
async def test_a_replayed_message_keeps_its_agent_model_format_tools_and_system():
    asked = replace(user("What is on it?", IMAGE), metadata=META)
    messages = (*talk(20), asked)
    proposal = await proposed(NO_STEPS, situation(messages, window=16_000, reason=R.OVERFLOW), summariser(CHECKPOINT))
    replayed = proposal.result.messages[-1]
    assert isinstance(replayed, UserMessage)
    assert replayed != asked  # its media is named
    assert (replayed.metadata, replayed.synthetic) == (META, False)


@pytest.mark.feature("OC-11")
async def test_the_message_that_goes_on_is_marked_by_its_field_and_in_its_metadata():
    messages = (*talk(20), *(ran("word " * 900) for _ in range(3)))
    proposal = await proposed(NO_STEPS, situation(messages, window=16_000, reason=R.CEILING), summariser(CHECKPOINT))
    message = continue_message(Compaction(continues="always"), proposal, R.CEILING)
    assert message is not None
    assert (message.synthetic, message.metadata) == (True, {"compaction_continue": True})
    assert all(not one.metadata for one in proposal.result.messages if isinstance(one, UserMessage))


@pytest.mark.feature("CC-02")
@pytest.mark.parametrize(
    ("held", "section"),
    [
        (ran("word " * 900), "Problem Solving"),
        (ran("word " * 900, name="read_file", arguments={"path": "src/a.py"}), "Files and Code"),
        (ran("word " * 900, is_error=True), "Errors and Fixes"),
        (user("Do it."), "All User Messages"),
    ],
)
async def test_a_section_is_asked_for_where_the_conversation_holds_what_it_is_about(held: Message, section: str):
    thoughts: list[Message] = [replace(user("word " * 900), synthetic=True), said("word " * 900)] * 10
    asked = []
    histories: list[tuple[Message, ...]] = [(*thoughts, *thoughts), (held, *thoughts[1:], *thoughts)]
    for messages in histories:
        model = ScriptedModel(*[lambda _: summary_of(EIGHT_SECTIONS)] * 3)
        await proposed(Compaction.claude_code(), situation(messages, window=16_000), model)
        asked.append(str(model.requests[0].instructions))
    assert [f"## {section}" in one for one in asked] == [False, True]
    assert all("## Current Work" in one for one in asked)

"""What Gemini CLI's own tests say of compression, at our level: rows K1 to K11, K16 and K17 (K12 to
K15 are of pruning and truncation).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from monitor import Compaction
from monitor.context import CompactionError, History
from monitor.context import window as headroom
from monitor.context.compaction.hooks import CompactionIneffective
from monitor.context.compaction.pinned import PinnedFacts, compose
from monitor.context.compaction.summarizer import ModelSummarizer
from monitor.context.compaction.templates import FIVE_SECTIONS, SummaryTask
from monitor.context.cut import KeepMessages
from monitor.context.tokens import message_tokens
from monitor.errors import CompactionFailure, CompactionReason
from monitor.guard.streams.ask import ask_turn
from monitor.messages import Message, UserMessage
from monitor.testing import FakeClock, ScriptedModel
from tests.context.compaction.making import (
    asked_of,
    first_text,
    proposed,
    situation,
    summariser,
    summary_of,
    talk,
    told,
)
from tests.context.talk import ran, results, said, tokens, user

pytestmark = pytest.mark.anyio

PRESET = Compaction.gemini_cli(steps=())
OF_GEMINI = partial(situation, headroom=headroom.GEMINI_CLI, low_water=0.9)
MANUAL = CompactionReason.MANUAL


async def test_k1_an_empty_history_is_left_alone():
    with pytest.raises(CompactionError) as nothing:
        await proposed(PRESET, OF_GEMINI((), reason=MANUAL), summariser(FIVE_SECTIONS))
    assert nothing.value.failure is CompactionFailure.NOTHING_TO_COMPACT


@pytest.mark.parametrize(
    ("used", "reason"), [(100, None), (600_000, None), (699_999, None), (700_000, CompactionReason.HIGH_WATER)]
)
def test_k2_k3_below_the_threshold_nothing_is_due(used: int, reason: CompactionReason | None):
    assert PRESET.due(used, window=1_000_000) is reason


async def test_k4_of_two_calls_the_text_that_was_checked_counts():
    checked = summary_of(FIVE_SECTIONS, "the checked one")
    model = summariser(
        FIVE_SECTIONS, "<state_snapshot>\n<overall_goal>\nthe first one\n</overall_goal>\n</state_snapshot>", checked
    )
    result = (await proposed(PRESET, OF_GEMINI(talk(30)), model)).result
    assert len(model.requests) == 2
    assert told(result.messages)[0] == checked
    assert result.tokens_after < result.tokens_before


async def test_k5_a_check_that_says_nothing_leaves_the_first_summary():
    first = summary_of(FIVE_SECTIONS)
    model = ScriptedModel(first, "", "")
    task = SummaryTask(messages=talk(3), template=FIVE_SECTIONS, identifiers=("ORD-9931",), max_tokens=2_000)
    ask = partial(ask_turn, timeout_s=60, clock=FakeClock(), close_grace_s=1, charge=lambda _: None)
    summary = await ModelSummarizer(model).summarize(task, ask, progress=lambda _: None)
    assert len(model.requests) == 3
    assert summary.text == first


async def test_k6_an_old_snapshot_is_to_be_brought_up_to_date():
    old = summary_of(FIVE_SECTIONS, "from before")
    begins = UserMessage(user(compose(old, PinnedFacts(), max_tokens=1_000)).content, synthetic=True)
    model = summariser(FIVE_SECTIONS)
    await proposed(PRESET, OF_GEMINI((begins, *talk(30)[1:]), head=1), model)
    assert "bring it up to date instead of summarising it" in asked_of(model, 0)
    assert "| from before" in asked_of(model, 0)


@pytest.mark.parametrize("plan", [None, "1. read docs/plan.md"])
async def test_k7_k8_the_plan_is_there_if_there_is_one(plan: str | None):
    now = OF_GEMINI(talk(30), facts=PinnedFacts(plan=plan))
    result = (await proposed(PRESET, now, summariser(FIVE_SECTIONS))).result
    assert told(result.messages)[1].plan == plan
    assert ("docs/plan.md" in first_text(result.messages)) == (plan is not None)


async def test_k9_by_hand_it_is_done_below_the_threshold_too():
    messages = talk(30)
    assert PRESET.due(sum(map(message_tokens, messages)), window=1_000_000) is None
    result = (
        await proposed(PRESET, OF_GEMINI(messages, window=1_000_000, reason=MANUAL), summariser(FIVE_SECTIONS))
    ).result
    assert result.tokens_after < result.tokens_before


async def test_k10_what_would_be_larger_than_before_is_refused_and_nothing_is_changed():
    history = History((user("a " * 40), said("b"), user("c"), said("d"), user("e")))
    before = history.messages
    model = summariser(FIVE_SECTIONS, *[summary_of(FIVE_SECTIONS, "x")] * 9)
    with pytest.raises(CompactionIneffective) as refused:
        await proposed(PRESET, OF_GEMINI(before, reason=MANUAL), model)
    assert refused.value.tokens_after >= refused.value.tokens_before
    assert history.messages is before


async def test_k11_summaries_that_say_nothing_are_a_failure_of_their_own():
    with pytest.raises(CompactionError) as nothing:
        await proposed(PRESET, OF_GEMINI(talk(30), reason=MANUAL), summariser(FIVE_SECTIONS, *["  \n"] * 9))
    assert nothing.value.failure is CompactionFailure.EMPTY


async def test_k16_what_is_kept_is_cut_where_it_is_too_large_and_the_summariser_reads_what_was_there_before():
    old = [ran(f"the beginning of {n}\n" + tokens(20_000), name="read") for n in range(4)]
    new = ran(tokens(75_000), name="read")
    model = summariser(FIVE_SECTIONS)
    now = OF_GEMINI((user("first"), *old, said("ok"), user("second"), new), window=100_000)
    result = (await proposed(replace(PRESET, keep=KeepMessages(1)), now, model)).result
    assert result.summarised_by == model.name
    assert all(f"the beginning of {n}" in asked_of(model, 0) for n in range(4))
    (kept,) = results(result.messages)
    assert "characters left out" in kept
    assert len(kept) < 0.3 * 100_000 * 4 + 100


async def test_k17_what_no_window_holds_is_read_in_parts_that_fit():
    model = summariser(FIVE_SECTIONS)
    messages: tuple[Message, ...] = (
        user("begin"),
        *(ran(f"part {n}\n" + tokens(12_500)) for n in range(100)),
        said("so far"),
        user("go on"),
    )
    assert sum(map(message_tokens, messages)) > 1_250_000
    preset = replace(PRESET, window=16_000, model=model)
    result = (await proposed(preset, OF_GEMINI(messages, window=1_000_000), model)).result
    assert result.summarised_by == model.name
    assert len(model.requests) > 1
    assert all(sum(map(message_tokens, request.messages)) < 16_000 for request in model.requests)

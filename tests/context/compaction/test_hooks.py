"""The program's say in a compaction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from monitor import Compaction, ConfigError
from monitor.context import BeforeCompaction, CompactionError, CompactionHook, CompactionResult
from monitor.context.compaction.hooks import CompactionAsked, ask_before, may_continue, tell_after
from monitor.context.compaction.templates import CHECKPOINT
from monitor.errors import CompactionFailure, CompactionReason
from monitor.testing import ScriptedModel
from tests.context.compaction.making import asked_of, proposed, situation, summariser, talk, told
from tests.context.talk import said, user

pytestmark = [pytest.mark.anyio, pytest.mark.feature("OC-12")]

TALK = talk(40)
NOW = situation(TALK, window=50_000, reason=CompactionReason.HIGH_WATER)
ASKED = CompactionAsked(reason=CompactionReason.MANUAL, messages=(user("a"),), previous=None, tokens=9)
RESULT = CompactionResult(messages=(), record=None, tokens_before=2, tokens_after=1)


def with_hooks(*hooks: CompactionHook) -> Compaction:
    return Compaction(steps=(), window=200_000, hooks=hooks)


def before(**wishes: Any) -> CompactionHook:
    return CompactionHook(before=lambda _: BeforeCompaction(**wishes))


async def test_a_hook_is_told_what_will_be_summarised_and_may_add_to_it():
    asked: list[CompactionAsked] = []

    async def look(about: CompactionAsked) -> BeforeCompaction:
        asked.append(about)
        return BeforeCompaction(context="The deadline is Friday.", note="Branch: main")

    model = summariser(CHECKPOINT)
    result = (await proposed(with_hooks(CompactionHook(before=look)), NOW, model)).result
    (about,) = asked
    assert about.messages == TALK[: -result.kept_messages]
    assert (about.reason, about.previous, about.tokens) == (CompactionReason.HIGH_WATER, None, NOW.tokens)
    assert "The deadline is Friday." in asked_of(model)
    assert told(result.messages)[1].notes == ("Branch: main",)


async def test_the_next_compaction_tells_the_earlier_summary():
    asked: list[CompactionAsked] = []
    preset = with_hooks(CompactionHook(before=asked.append))
    first = (await proposed(preset, NOW, summariser(CHECKPOINT))).result
    again = situation((*first.messages, *TALK), window=50_000)
    await proposed(preset, again, summariser(CHECKPOINT))
    assert asked[1].previous == told(first.messages)[0]
    assert asked[1].messages[0] is first.messages[-first.kept_messages]


async def test_a_hook_replaces_the_prompt():
    model = ScriptedModel("Three lines about goats.", name="scripted:small")
    result = (await proposed(with_hooks(before(prompt="Write three lines about goats.")), NOW, model)).result
    assert "Write three lines about goats." in asked_of(model)
    assert "## Goal" not in asked_of(model)
    assert told(result.messages)[0] == "Three lines about goats."


async def test_a_hook_changes_what_is_read_and_not_the_history():
    model = summariser(CHECKPOINT)
    result = (
        await proposed(with_hooks(before(messages=[user("Only this."), said("Yes."), *TALK[:9]])), NOW, model)
    ).result
    assert "Only this." in asked_of(model)
    assert "| Request 20" not in asked_of(model).partition("messages 1 to")[2]
    assert result.messages[-result.kept_messages :] == TALK[-result.kept_messages :]
    assert "Only this." not in told(result.messages)[1].user_messages


async def test_a_hook_cancels_and_nobody_is_asked():
    """S12."""
    model = summariser(CHECKPOINT)
    with pytest.raises(CompactionError, match="not now") as raised:
        await proposed(with_hooks(before(cancel="not now"), before(context="x")), NOW, model)
    assert raised.value.failure is CompactionFailure.CANCELLED
    assert model.requests == []


def throwing(_: object) -> Any:
    raise OSError("no disk")


@pytest.mark.parametrize(
    ("hook", "warning"),
    [
        (CompactionHook(before=throwing), "a hook before the compaction raised OSError: no disk"),
        (CompactionHook(before=lambda _: "text"), "a hook answers with a BeforeCompaction or None"),  # type: ignore[arg-type, return-value]
        (before(messages=["text"]), "a hook's messages are UserMessage and AssistantMessage"),
        (before(messages=[]), "leaves nothing to summarise"),
        (CompactionHook(before=lambda _: BeforeCompaction(context=3)), "BeforeCompaction.context takes a text"),  # type: ignore[arg-type]
    ],
)
async def test_a_hook_that_throws_is_passed_over_with_a_warning(hook: CompactionHook, warning: str):
    """S14, S24."""
    model, plain = summariser(CHECKPOINT), summariser(CHECKPOINT)
    result = (await proposed(with_hooks(hook), NOW, model)).result
    assert len(result.warnings) == 1
    assert warning in result.warnings[0]
    await proposed(with_hooks(), NOW, plain)
    assert model.requests == plain.requests  # the default path


async def test_two_hooks_are_called_in_order_and_the_second_sees_what_the_first_made():
    """S15."""
    seen: list[Any] = []

    def second(about: CompactionAsked) -> BeforeCompaction:
        seen.append(about.messages)
        return BeforeCompaction(context="two", prompt="second")

    hooks = [
        before(context="one", prompt="first", messages=[user("less")]),
        CompactionHook(before=second),
        CompactionHook(after=print),
    ]
    wishes = await ask_before(hooks, ASKED)
    assert seen == [(user("less"),)]
    assert (wishes.hints, wishes.prompt, wishes.messages) == (["one", "two"], "second", (user("less"),))
    order: list[int] = []

    async def later(_: CompactionResult) -> None:
        order.append(2)

    after = [
        CompactionHook(after=lambda _: order.append(1)),
        CompactionHook(after=throwing),
        CompactionHook(after=later),
    ]
    warnings: list[str] = []
    await tell_after(after, RESULT, warnings)
    assert warnings == ["a hook after the compaction raised OSError: no disk"]
    assert order == [1, 2]


@pytest.mark.feature("OC-11")
async def test_one_hook_is_enough_to_have_no_word_to_go_on():
    async def no(_: CompactionResult) -> bool:
        return False

    yes, veto, breaks = (
        CompactionHook(autocontinue=lambda _: True),
        CompactionHook(autocontinue=no),
        CompactionHook(autocontinue=throwing),
    )
    assert await may_continue([], RESULT, [])
    assert await may_continue([yes, CompactionHook(after=print)], RESULT, [])
    assert not await may_continue([yes, veto], RESULT, [])
    warnings: list[str] = []
    assert await may_continue([breaks], RESULT, warnings)
    assert warnings == ["a hook that is asked whether to go on raised OSError: no disk"]


async def test_a_hook_without_a_function_is_an_error():
    with pytest.raises(ConfigError, match="before=, after= or autocontinue="):
        CompactionHook()
    with pytest.raises(ConfigError, match="is a function"):
        CompactionHook(before=3)  # type: ignore[arg-type]


async def test_what_a_hook_does_not_say_stays_as_it_is():
    assert await ask_before([before(), CompactionHook(before=lambda _: None)], ASKED) == replace(
        await ask_before([], ASKED)
    )

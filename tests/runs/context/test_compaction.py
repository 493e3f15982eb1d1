"""Compaction for a loop of one's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_args

import anyio
import pytest

from monitor import Compaction, ConfigError, Window, events
from monitor.adapters.provider_forms import to_form
from monitor.chunks import ToolCall
from monitor.context import (
    BeforeCompaction,
    CompactionError,
    CompactionHook,
    CompactionRecord,
    CompactionResult,
    Extractive,
    PinnedFacts,
)
from monitor.context.compaction.hooks import CompactionAsked, shown
from monitor.context.compaction.pinned import CONTINUE, acknowledgement, head_of_messages
from monitor.context.compaction.templates import CHECKPOINT
from monitor.context.cut import KeepMessages, KeepTokens
from monitor.errors import CompactionFailure, CompactionReason, StoreError
from monitor.goal.goal import Goal
from monitor.goal.outputs import Outputs
from monitor.goal.plan import Plan
from monitor.messages import Message, message_codec
from monitor.models import ModelRequest
from monitor.runs.context.run_context import frontier
from monitor.testing import FakeClock, ScriptedModel, Stall
from monitor.wires.fields import Form
from monitor.wires.read import validate
from tests.context.compaction.making import first_text, summariser, summary_of, talk, told
from tests.context.talk import ran, said, user
from tests.context.wire import FORMS, builder

pytestmark = pytest.mark.anyio


class Heard:
    name = "heard"

    def __init__(self) -> None:
        self.events: list[Any] = []

    def emit(self, event: Any) -> None:
        self.events.append(event)

    def named(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class Shelf:
    """A store in memory."""

    def __init__(self, *, broken: bool = False) -> None:
        self.kept: list[CompactionRecord] = []
        self.broken = broken

    def add(self, record: CompactionRecord) -> None:
        if self.broken:
            raise StoreError("the disk is full")
        self.kept.append(record)

    def records(self) -> Sequence[CompactionRecord]:
        return self.kept


def stored(messages: Sequence[Message]) -> list[Message]:
    """As JSON, and back."""
    return [message_codec.from_dict(json.loads(json.dumps(message_codec.to_dict(message)))) for message in messages]


TALK = talk(14)


@pytest.mark.feature("CC-03")
@pytest.mark.parametrize("own", [True, False])
async def test_the_model_of_the_call_or_of_the_preset_writes_the_summary(own: bool):
    """S2, S17: one event that it has begun, one that it is done; nothing is stored unless somebody
    wants it.
    """
    model, heard = summariser(CHECKPOINT), Heard()
    preset = Compaction.pi(keep=KeepTokens(2_000), model=model if own else None)
    result = await preset.compact(TALK, window=200_000, model=None if own else model, sinks=[heard])
    assert len(model.requests) == 1
    assert result.summarised_by == "scripted:small"
    assert told(result.messages)[0] == summary_of(CHECKPOINT)
    assert len(heard.named(events.CompactionStarted)) == len(heard.named(events.CompactionFinished)) == 1
    finished = heard.named(events.CompactionFinished)[0]
    assert (finished.tokens_before, finished.tokens_after) == (result.tokens_before, result.tokens_after)
    assert result.cost.usage.total_tokens > 0
    assert all(type(event).__name__.startswith("Compaction") for event in heard.events)  # S23: not as words of the run


async def test_nobody_to_summarise_is_an_error_unless_it_presses():
    with pytest.raises(ConfigError, match="needs a summariser"):
        await Compaction().compact(TALK, window=20_000)
    result = await Compaction(steps=()).compact(TALK, window=14_000, reason=CompactionReason.OVERFLOW)
    assert result.summarised_by == "extractive"
    assert (await Compaction(summarizer=Extractive()).compact(TALK, window=20_000)).summarised_by == "extractive"


@pytest.mark.parametrize(
    "wrong", [{"reason": "because"}, {"window": 0}, {"messages": ["text"]}, {"messages": [{"role": "user"}]}]
)
async def test_a_call_that_makes_no_sense_is_refused(wrong: dict[str, Any]):
    with pytest.raises(ConfigError):
        await Compaction(summarizer=Extractive()).compact(**{"messages": TALK, **wrong})


@pytest.mark.feature("GZ-04")
async def test_an_empty_history_comes_to_nothing():
    with pytest.raises(CompactionError) as raised:
        await Compaction().compact([], model=summariser(CHECKPOINT), window=20_000)
    assert raised.value.failure is CompactionFailure.NOTHING_TO_COMPACT


@pytest.mark.feature("CC-07", "OC-08")
async def test_several_in_a_row_on_plain_lists_that_are_stored_in_between():
    preset = Compaction(summarizer=Extractive(), steps=(), keep=KeepTokens(1_500))
    facts = PinnedFacts(emitted={"report": '"done"'}, outstanding=("chart",), rules="be brief")
    messages: list[Message] = []
    orders = []
    for number in range(6):
        orders.append(f"Order {number} for ABC-{number}00")
        messages += [user(orders[-1]), *talk(6, seed=number)[1:]]
        result = await preset.compact(messages, window=200_000, facts=facts if number == 0 else None)
        messages = stored(result.messages)
        assert messages == list(result.messages)
        assert head_of_messages(messages) in {1, 2}
        assert result.messages[0].synthetic
        assert first_text(messages).count("[agent-monitor] What came before") == 1
    pinned = told(messages)[1]
    said_by_user = [
        one for one in (*pinned.user_messages, *(first_text([one]) for one in messages[1:])) if one.startswith("Order")
    ]
    assert said_by_user == orders
    assert (pinned.emitted, pinned.outstanding, pinned.rules) == ({"report": '"done"'}, ("chart",), "be brief")
    for form in FORMS:
        assert not validate(form, builder(form)([*messages, user("go on")]))


@pytest.mark.feature("GZ-07", "OC-16")
async def test_one_that_fails_leaves_the_list_as_it_was_and_is_not_told_as_done():
    heard, messages = Heard(), list(TALK)
    with pytest.raises(CompactionError) as raised:
        await Compaction(steps=()).compact(
            messages, model=ScriptedModel("no sections", "none", "no", "no", "no", "no"), window=200_000, sinks=[heard]
        )
    assert raised.value.failure is CompactionFailure.REJECTED
    assert messages == list(TALK)
    assert heard.named(events.CompactionFinished) == []
    (failed,) = heard.named(events.CompactionFailed)
    assert failed.failure is CompactionFailure.REJECTED


@pytest.mark.feature("AC-02", "AC-10")
async def test_a_finished_one_is_kept_in_the_store_and_shown_again_by_it():
    shelf = Shelf()
    result = await Compaction(summarizer=Extractive(), steps=(), store=shelf).compact(TALK, window=200_000)
    assert shelf.kept == [result.record]
    assert shown(TALK, shelf.records()) == result.messages


@pytest.mark.feature("AC-10", "OC-16")
@pytest.mark.parametrize("reason", [CompactionReason.MANUAL, CompactionReason.OVERFLOW])
async def test_a_store_that_cannot_keep_it_undoes_it(reason: CompactionReason):
    heard = Heard()
    after: list[CompactionResult] = []
    preset = Compaction(
        summarizer=Extractive(), steps=(), store=Shelf(broken=True), hooks=(CompactionHook(after=after.append),)
    )
    with pytest.raises(CompactionError, match="the disk is full"):
        await preset.compact(TALK, window=20_000, reason=reason, sinks=[heard])
    assert heard.named(events.CompactionFinished) == []
    assert after == []


@pytest.mark.feature("OC-11")
async def test_after_a_refusal_the_list_says_to_go_on_unless_a_hook_has_something_against_it():
    """S3."""
    mid_turn = (*TALK, user("Do it."), *(ran("word " * 900) for _ in range(4)))
    for hooks, last in (((), user(CONTINUE)), ((CompactionHook(autocontinue=lambda _: False),), None)):
        preset = Compaction.opencode(summarizer=Extractive(), hooks=hooks)
        result = await preset.compact(mid_turn, window=16_000, reason=CompactionReason.OVERFLOW)
        assert (result.messages[-1] == user(CONTINUE)) is (last is not None)
        by_hand = await preset.compact(mid_turn, window=16_000)
        assert by_hand.messages[-1] != user(CONTINUE)


@pytest.mark.feature("OC-12")
async def test_hooks_are_told_before_and_after():
    seen: list[Any] = []

    async def before(asked: CompactionAsked) -> BeforeCompaction:
        seen.append(asked.reason)
        return BeforeCompaction()

    hook = CompactionHook(before=before, after=seen.append)
    result = await Compaction(summarizer=Extractive(), steps=(), hooks=[hook]).compact(TALK, window=200_000)
    assert seen[0] is CompactionReason.MANUAL
    assert seen[1].messages == result.messages


async def test_one_that_is_cancelled_leaves_nothing_at_work():
    """S8."""
    asked, heard = anyio.Event(), Heard()

    def never(_: ModelRequest) -> Any:
        asked.set()
        return [Stall()]

    async def compact() -> None:
        await Compaction(steps=()).compact(TALK, model=model, window=200_000, sinks=[heard], clock=FakeClock())

    model = ScriptedModel(never, name="scripted:slow")
    async with anyio.create_task_group() as group:
        group.start_soon(compact)
        await asked.wait()
        group.cancel_scope.cancel()
    assert [stream.closed for stream in model.streams] == [True]
    assert heard.named(events.CompactionFinished) == []
    (failed,) = heard.named(events.CompactionFailed)
    assert failed.failure is CompactionFailure.ABORTED


@pytest.mark.feature("GZ-01", "CC-01")
@pytest.mark.parametrize(
    ("preset", "due"), [(Compaction.gemini_cli(), 70_000), (Compaction.claude_code(), 92_000), (Compaction(), 85_000)]
)
async def test_when_a_loop_of_ones_own_should_compact(preset: Compaction, due: int):
    ceiling = due + (100_000 - due) // 2
    assert preset.due(due - 1, window=100_000) is None
    assert preset.due(due, window=Window(100_000)) is CompactionReason.HIGH_WATER
    assert preset.due(ceiling, window=100_000) is CompactionReason.CEILING


async def test_the_frontier_of_a_run_is_what_was_given_what_is_missing_and_its_plan():
    goal = Goal(Outputs({"b": dict, "c": str}), Plan(["one", "two"]).fresh())
    for name, arguments in (
        ("emit_value", {"name": "b", "value": {"z": 1, "a": "é"}}),
        ("update_plan", {"step": 1, "status": "completed"}),
    ):
        answer = goal.answer(ToolCall("1", name, arguments))
        assert answer is not None
        assert not answer.is_error
    assert goal.plan is not None
    facts = frontier(goal)
    assert "two" in goal.plan.render()
    assert facts == PinnedFacts(emitted={"b": '{"a": "é", "z": 1}'}, outstanding=("c",), plan=goal.plan.render())
    assert frontier(Goal()) == PinnedFacts()


async def test_where_the_model_speaks_next_nobody_answers_for_it():
    mid_turn: list[Message] = [user("Do it."), *(ran("word " * 9_000) for _ in range(4))]
    ended = [*mid_turn, said("word " * 9_000)]
    for messages, last, kept in ((mid_turn, "results", 1), (ended, "acknowledgement", 0)):
        result = await Compaction(summarizer=Extractive(), steps=(), keep=KeepMessages(0)).compact(
            messages, window=16_000
        )
        assert result.kept_messages == kept
        assert (result.messages[-1] == acknowledgement()) is (last == "acknowledgement")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": "openai:gpt-5"}, r"write model=monitor\.model"),
        ({"model": object()}, "has no stream"),
        ({"tools": [{"type": "function"}]}, "monitor.models.ToolSpec"),
        ({"instructions": ["a"]}, "instructions takes a text"),
        ({"facts": {"a": 1}}, "monitor.context.PinnedFacts"),
        ({"form": "openai"}, "openai-chat"),
        ({"sinks": [print]}, "has no emit"),
    ],
)
async def test_a_wrong_call_says_what_is_wanted(given: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        await Compaction(summarizer=Extractive()).compact([user("x")], window=32_000, **given)


def test_what_is_no_number_of_tokens_is_refused():
    with pytest.raises(ConfigError, match="number of tokens"):
        Compaction().due("a", window=32_000)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", get_args(Form))
async def test_a_history_in_a_providers_words_is_shortened_in_the_same_words(form: Form):
    history = to_form(form, [user("The first wish."), *talk(40)[1:]])
    if form == "openai-chat":
        history = [{"role": "system", "content": "Be brief."}, *history]
    shorter, result = await Compaction(steps=()).shorten(form, history, window=20_000)
    assert result.summarised_by == "extractive"  # no model was given, and what is possible is done
    assert len(shorter) < len(history)
    assert not validate(form, [*shorter, *to_form(form, [user("go on")])])
    assert "The first wish." in json.dumps(shorter[:2])
    assert (shorter[0] == history[0]) == (form == "openai-chat")
    again, _ = await Compaction(steps=(), summarizer=Extractive()).shorten(
        form, shorter, window=20_000, reason="manual"
    )
    assert "The first wish." in json.dumps(again[:2])


HEADS: list[tuple[Form, list[dict[str, Any]]]] = [
    ("openai-chat", [{"role": "system", "content": "Be brief."}]),
    ("openai-chat", [{"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}]),
    ("openai-chat", [{"role": "developer", "content": "Be brief."}, {"role": "system", "content": "In French."}]),
    ("openai-responses", [{"type": "message", "role": "developer", "content": "Be brief."}]),
    (
        "openai-responses",
        [{"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Be brief."}]}],
    ),
    ("anthropic", [{"role": "system", "content": "Be brief."}]),
    (
        "anthropic",
        [
            {
                "role": "system",
                "content": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            }
        ],
    ),
]


@pytest.mark.parametrize(("form", "head"), HEADS)
async def test_what_the_developer_said_first_stays_there_as_it_stood(form: Form, head: list[dict[str, Any]]):
    history = [*head, *to_form(form, [user("The first wish."), *talk(40)[1:]])]
    shorter, _ = await Compaction(steps=()).shorten(form, history, window=20_000)
    assert shorter[: len(head)] == head
    assert all(one.get("role") not in ("system", "developer") for one in shorter[len(head) :])
    again, _ = await Compaction(steps=(), summarizer=Extractive()).shorten(
        form, shorter, window=20_000, reason="manual"
    )
    assert again[: len(head)] == head

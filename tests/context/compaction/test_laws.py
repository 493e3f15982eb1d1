"""Laws 7 to 10 of docs/laws.md, as far as compaction could break them."""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest

import monitor
from monitor import AssistantMessage, Compaction, UserMessage
from monitor.adapters import to_form
from monitor.chunks import ToolCall
from monitor.context import Extractive, Form, repair, validate
from monitor.context.compaction.hooks import CompactionIneffective
from monitor.context.compaction.pinned import read_back, text_of_user
from monitor.context.compaction.preset import PRESETS
from monitor.errors import CompactionReason
from monitor.messages import Message, message_codec
from monitor.testing import ScriptedModel, call
from tests.context.talk import said, tokens, user

WINDOW = 32_000


def made(name: str) -> Compaction:
    """A preset whose summaries need no model."""
    compaction: Compaction = getattr(Compaction, name)(summarizer=Extractive())
    return compaction


def step(number: int) -> Message:
    """A file is read."""
    arguments, text = {"path": f"src/m{number}.py"}, f"# {number}\n{tokens(1_500)}"
    call, result = (
        ToolCall(f"call_{number}", "read_file", arguments),
        monitor.chunks.ToolResult(f"call_{number}", "read_file", text),
    )
    return AssistantMessage((call,), (result,))


def compacted(
    compaction: Compaction, messages: tuple[Message, ...], reason: CompactionReason = CompactionReason.MANUAL
) -> tuple[Message, ...]:
    window = monitor.Window(WINDOW, max_output_tokens=4_096)
    return asyncio.run(compaction.compact(messages, window=window, reason=reason)).messages


@pytest.mark.parametrize("name", PRESETS)
def test_8_every_history_of_a_chain_of_compactions_is_valid_for_every_provider(name: str):
    """And what the user said first and last is there word for word after twenty of them."""
    messages: tuple[Message, ...] = (user("The report goes to /srv/reports/final-7731.md."),)
    for number in range(20):
        messages = (
            *messages,
            *(step(20 * number + n) for n in range(14)),
            said("So far so good."),
            user(f"Go on, part {number}."),
        )
        messages = compacted(made(name), messages)
        assert repair(messages)[0] is messages
        for form in get_args(Form):
            assert validate(form, to_form(form, messages)) == [], form
    head = messages[0]
    assert isinstance(head, UserMessage)
    (text,) = head.content
    assert isinstance(text, monitor.messages.Text)
    found = read_back(text.text)
    assert found is not None
    assert found[1].user_messages[0] == "The report goes to /srv/reports/final-7731.md."
    assert (
        len(found[1].user_messages) + found[1].left_out + sum(isinstance(one, UserMessage) for one in messages[1:])
        == 21
    )


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.feature("CC-07")
def test_8_two_hundred_requests_are_all_there_in_a_small_window_after_twenty_compactions(name: str):
    said_by_user: list[str] = []
    messages: tuple[Message, ...] = ()
    for number in range(20):
        for request in range(10):
            said_by_user.append(
                f"Request {number}.{request}: go through part {10 * number + request} and keep to what was agreed"
                " before."
            )
            messages = (*messages, user(said_by_user[-1]), step(100 * number + request), said("It is in order."))
        messages = compacted(made(name), messages, CompactionReason.HIGH_WATER)
    head = messages[0]
    assert isinstance(head, UserMessage)
    found = read_back(text_of_user(head))
    assert found is not None
    kept = [text_of_user(one) for one in messages[1:] if isinstance(one, UserMessage) and not one.synthetic]
    assert [*found[1].user_messages, *kept] == said_by_user


def test_8_the_same_history_gives_the_same_bytes():
    messages: tuple[Message, ...] = (user("Read."), *map(step, range(20)), said("Done."))
    once, again = (compacted(made("default"), messages) for _ in range(2))
    assert list(map(message_codec.dumps, once)) == list(map(message_codec.dumps, again))


def test_9_one_that_does_not_get_far_enough_says_so_and_leaves_the_history_as_it_is():
    messages: tuple[Message, ...] = (user("Read."), *map(step, range(20)), said("Done."))
    before = list(map(message_codec.dumps, messages))
    with pytest.raises(CompactionIneffective) as raised:
        asyncio.run(
            made("pi").compact(messages, window=64_000, instructions=tokens(40_000), reason=CompactionReason.HIGH_WATER)
        )
    assert raised.value.tokens_after >= raised.value.target_tokens
    assert list(map(message_codec.dumps, messages)) == before


def read_file(path: str) -> str:
    """Read a file."""
    return f"# {path}\n{tokens(1_500)}"


def reading(most: int) -> ScriptedModel:
    """A model that reads one file after another, then says it is done."""
    numbers = iter(range(most))

    def answer(_: monitor.models.ModelRequest) -> object:
        number = next(numbers, None)
        return "Done." if number is None else [call("read_file", path=f"src/m{number}.py")]

    return ScriptedModel(answer)


def test_7_a_loop_that_goes_on_across_compactions_is_seen():
    """The history forgets the calls; the detectors do not."""

    def answer(request: monitor.models.ModelRequest) -> object:
        return [call("read_file", path="src/m.py")]

    supervisor = monitor.Supervisor(
        ScriptedModel(answer),
        tools=[read_file],
        window=WINDOW,
        compaction=made("pi"),
        policy=monitor.StopAtFirstLoop(),
        detectors=[monitor.ToolCallRepetition(suspect_at=24, loop_at=25)],
        stop_when=monitor.MaxTurns(40),
        last_turn=None,
    )
    with monitor.testing.capture_events() as events:
        outcome = asyncio.run(supervisor.run("Read it."))
    assert outcome.reason is monitor.TerminateReason.LOOP_DETECTED
    assert any(isinstance(event, monitor.events.CompactionFinished) for event in events)


def test_10_what_was_compacted_stays_readable():
    supervisor = monitor.Supervisor(reading(30), tools=[read_file], window=WINDOW, compaction=made("pi"))

    async def main() -> None:
        async with supervisor.stream("Read all.") as run:
            async for _ in run:
                pass
        assert len(run.history) < 30
        originals = run._history.originals
        assert len(originals) == 32
        read = [
            result.text.split("\n")[0]
            for one in originals
            if isinstance(one, AssistantMessage)
            for result in one.results
        ]
        assert read == [f"# src/m{number}.py" for number in range(30)]

    asyncio.run(main())

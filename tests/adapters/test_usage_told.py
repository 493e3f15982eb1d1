"""Usage that a provider reported is never counted as estimated, never twice, and never lost:
whatever comes last, and however it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import monitor
from monitor.chunks import ReasoningDelta, StreamRetried, UsageReport
from monitor.testing import LocalOpenAI, anthropic_steps, gemini_steps, openai_steps
from monitor.testing.openai_steps import Stall
from tests.adapters.google.sdk import sdk_warnings
from tests.adapters.openai import sdk as openai_sdk
from tests.adapters.test_cut_calls import WIRES, Wire

pytestmark = [sdk_warnings, pytest.mark.asyncio]

wire_of = {wire.name: wire for wire in WIRES}
LONG = "It is a long answer with more words than anybody would estimate. "


def anthropic(*blocks: Any, usage: int = 9, stop: str = "end_turn") -> list[Any]:
    return [anthropic_steps.start(), *blocks, *anthropic_steps.finish(stop, output_tokens=usage)]


ENDS: list[tuple[str, str, Sequence[Any]]] = [
    ("anthropic", "text", anthropic(*anthropic_steps.say(LONG))),
    ("anthropic", "the same count as at the start", anthropic(*anthropic_steps.say(LONG), usage=1)),
    ("anthropic", "a call without arguments", anthropic(*anthropic_steps.call("now"), stop="tool_use")),
    ("anthropic", "thinking", anthropic(*anthropic_steps.think(LONG), *anthropic_steps.say("a", index=1))),
    ("gemini", "text", [gemini_steps.text(LONG), gemini_steps.finish(usage=gemini_steps.usage(7, output=3))]),
    (
        "gemini",
        "text with the last usage again",
        [
            gemini_steps.text("a", usage=gemini_steps.usage(7, output=3)),
            gemini_steps.text(LONG, usage=gemini_steps.usage(7, output=3), finish_reason="STOP"),
        ],
    ),
    (
        "gemini",
        "a call whose end is missing",
        [
            gemini_steps.partial_call("look", [gemini_steps.piece("$.q", LONG)], more=True),
            gemini_steps.finish(usage=gemini_steps.usage(7, output=3)),
        ],
    ),
    (
        "chat",
        "usage with every chunk",
        [
            openai_steps.text("a", usage=openai_steps.usage(7, output=3)),
            openai_steps.text(LONG, usage=openai_steps.usage(7, output=3), finish_reason="stop"),
        ],
    ),
    (
        "chat",
        "usage alone, the same again",
        [
            openai_steps.text("a", usage=openai_steps.usage(7, output=3)),
            openai_steps.text(LONG),
            openai_steps.finish(usage=None),
            openai_steps.usage_only(7, output=3),
        ],
    ),
    (
        "chat",
        "a call without arguments",
        [openai_steps.call_piece("", name="now", id="a"), openai_steps.finish("tool_calls")],
    ),
    (
        "responses",
        "a call without arguments",
        [
            openai_steps.response_created(),
            *openai_steps.response_call("now", "", id="a"),
            openai_steps.response_finish(),
        ],
    ),
    ("responses", "text", openai_steps.response_events_of(LONG)),
]


async def watched(wire: Wire, events: Sequence[Any]) -> monitor.guard.Watch[Any]:
    """The run over the SDK's objects of these events."""

    async def objects() -> Any:
        for event in events:
            yield wire.item(event)

    watch = monitor.watch(objects(), adapter=lambda _: wire.adapter())
    async with watch as stream:
        async for _ in stream:
            pass
    return watch


@pytest.mark.parametrize(
    ("wire", "events"), [pytest.param(wire, events, id=f"{wire}: {what}") for wire, what, events in ENDS]
)
async def test_usage_that_was_reported_is_not_estimated_whatever_came_last(wire: str, events: Sequence[Any]):
    outcome = (await watched(wire_of[wire], events)).outcome
    assert outcome.ok, outcome
    assert not outcome.usage_estimated
    assert outcome.usage.output_tokens <= 9, "nothing is added to what the provider says"


async def test_usage_that_is_repeated_in_the_middle_does_not_hide_what_came_since():
    early = gemini_steps.usage(7, output=0)
    events = [gemini_steps.text("a", usage=early), gemini_steps.text(LONG, usage=early)]
    outcome = (await watched(wire_of["gemini"], events)).outcome
    assert outcome.usage_estimated
    assert outcome.usage.output_tokens > 5


USED = openai_steps.response_usage(20, output=5)
FAILED = openai_steps.response_failed("server_error", "It broke.")
FAILED["response"] = FAILED["response"] | {"usage": USED}


@pytest.mark.parametrize(
    "before", [[], [openai_steps.response_error("rate_limit_exceeded", "Too fast.")]], ids=["alone", "after an error"]
)
async def test_what_a_failed_response_has_used_is_counted(before: list[Any]):
    events = [openai_steps.response_created(), openai_steps.response_text("Par"), *before, FAILED]
    seen: list[str] = []

    async def objects() -> Any:
        for event in events:
            yield wire_of["responses"].item(event)

    watch = monitor.watch(objects(), adapter=lambda _: wire_of["responses"].adapter())
    async with watch as stream:
        seen += [item.type async for item in stream]
    assert seen[-1] == "response.failed", "the last object is delivered"
    assert watch.outcome.usage.total_tokens == 25
    assert not watch.outcome.usage_estimated
    assert watch.outcome.reason is (monitor.TerminateReason.RATE_LIMITED if before else monitor.TerminateReason.ERROR)
    assert ("Too fast." if before else "It broke.") in watch.outcome.detail


async def test_an_error_that_nothing_follows_is_the_end_also_where_the_source_stays_open():
    error = openai_steps.response_error("server_error", "It broke.")
    with LocalOpenAI(
        [[openai_steps.response_created(), error], [openai_steps.response_created(), error, Stall()]]
    ) as server:
        async with openai_sdk.sdk(server) as client:
            for _ in range(2):
                watch = monitor.watch(openai_sdk.stream(client, "responses"), close_grace_s=0.2)
                async with watch as stream:
                    seen = [item.type async for item in stream]
                assert seen == ["response.created", "error"]
                assert "It broke." in watch.outcome.detail, watch.outcome
            await server.wait_closed_async(1)


# --- a message that begins more than once, and one of several that is cut


def read(wire: str, events: Sequence[Any]) -> list[Any]:
    adapter = wire_of[wire].adapter()
    return [*(one for event in events for one in adapter.decode(wire_of[wire].item(event))), *adapter.finish()]


@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("said", [[], anthropic_steps.say("Par")], ids=["nothing", "text"])
async def test_a_start_that_comes_again_counts_once(times: int, said: list[Any]):
    once = [anthropic_steps.start(100), *said]
    events = [*once * times, *anthropic_steps.say("Paris."), *anthropic_steps.finish(output_tokens=5)]
    outcome = (await watched(wire_of["anthropic"], events)).outcome
    assert (outcome.usage.input_tokens, outcome.text) == (100, "ParParis." if said else "Paris."), outcome
    retried = [one for one in read("anthropic", events) if isinstance(one, StreamRetried)]
    assert len(retried) == (times - 1 if said else 0)


async def test_another_message_was_another_request():
    events = [anthropic_steps.start(100, id="a"), *anthropic_steps.say("Par"), anthropic_steps.start(100, id="b")]
    events += [*anthropic_steps.say("Paris."), *anthropic_steps.finish(output_tokens=5)]
    assert (await watched(wire_of["anthropic"], events)).outcome.usage.input_tokens == 200


@pytest.mark.parametrize("after", range(1, 5))
async def test_a_stream_of_several_messages_that_is_cut_in_a_later_one_was_truncated(after: int):
    first = [anthropic_steps.start(10, id="a"), *anthropic_steps.say("one "), *anthropic_steps.finish(output_tokens=5)]
    second = [anthropic_steps.start(20, id="b"), *anthropic_steps.say("two"), *anthropic_steps.finish(output_tokens=6)]
    assert (await watched(wire_of["anthropic"], [*first, *second])).outcome.ok
    outcome = (await watched(wire_of["anthropic"], [*first, *second[:after]])).outcome
    assert (outcome.ok, outcome.reason) == (False, monitor.TerminateReason.TRUNCATED), outcome


async def test_the_usage_of_a_response_is_told_once():
    reports = [one for one in read("responses", openai_steps.response_events_of(LONG)) if isinstance(one, UsageReport)]
    assert len(reports) == 1


# --- what a signature signs


@pytest.mark.parametrize(
    "skipped",
    [
        {"inlineData": {"mimeType": "image/png", "data": "aW1n"}},
        {"executableCode": {"code": "1", "language": "PYTHON"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
    ],
    ids=lambda part: next(iter(part)),
)
async def test_the_signature_of_a_part_that_is_passed_over_signs_nothing_else(skipped: dict[str, Any]):
    chunks = read(
        "gemini", [gemini_steps.chunk([skipped | {"thoughtSignature": "c2ln"}, {"text": "a"}]), gemini_steps.finish()]
    )
    signed = [one for one in chunks if isinstance(one, ReasoningDelta)]
    assert [one.text for one in signed] == [""]  # the part itself, for the history
    assert all('"part"' in (one.signature or "") for one in signed)

"""What a tool shows reaches the model as media, over every wire, and never as the text of its
bytes.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

import monitor
from monitor import AssistantMessage, UserMessage
from monitor.adapters import to_form
from monitor.adapters.google.model import to_contents
from monitor.chunks import ToolCall, ToolResult
from monitor.context import ClipResults, DropMedia, Form, PruneResults, read_history, repair, validate
from monitor.context.tokens import message_tokens
from monitor.messages import Media, Text
from monitor.testing import LocalGemini
from monitor.testing.gemini_steps import events_of
from monitor.tools.registry import Registry
from tests.adapters.google.sdk import sdk, sdk_warnings, stream
from tests.adapters.provider import Provider
from tests.adapters.providers import each_provider, sdk_test
from tests.context.wire import FORMS, sdk_takes

pytestmark = sdk_warnings

PIXEL = b64encode(b"\x89PNG of a chart").decode()
CHART = Media("image/png", PIXEL, name="chart.png")
GO = UserMessage((Text("Go on."),))


@sdk_test
@each_provider
@pytest.mark.parametrize(
    "given", [CHART, ["Two bars.", CHART], [CHART, {"bars": 2}]], ids=["alone", "after a text", "before data"]
)
async def test_media_that_a_tool_returns_reaches_the_model_as_media(provider: Provider, given: Any):
    def draw() -> Any:
        """Draw it."""
        return given

    async with provider.modelled(provider.turn("", [("draw", {})]), provider.turn("Two bars.")) as (model, server):
        outcome = await monitor.Supervisor(model, tools=[draw]).run("What does it show?")
        body = server.requests[1].body
    assert outcome.ok, outcome
    holders = {
        "google": {"inlineData": {"mime_type": "image/png", "data": PIXEL}},
        "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        "openai": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        "openai-responses": {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"},
    }
    assert holders[provider.name] in list(everything_in(body)), body
    assert str(body).count(PIXEL) == 1
    assert "\\x89" not in str(body)


def everything_in(value: Any) -> Any:
    yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from everything_in(one)


async def answer(value: Any) -> ToolResult:
    return await monitor.tools.carry_out(ToolCall("c", "it", {}), Registry([monitor.tool(name="it")(lambda: value)]))


@pytest.mark.anyio
async def test_the_text_of_a_result_names_what_it_shows_and_tells_two_of_them_apart():
    one, other = await answer(CHART), await answer(Media("image/png", b64encode(b"another").decode()))
    assert one.media == (CHART,)
    assert one.text.startswith("[image/png chart.png: 15 bytes, xxh3 ")
    assert one.text != other.text
    assert (
        await answer(Media("image/png", uri="https://example.com/a.png"))
    ).text == "[image/png: https://example.com/a.png]"
    raw = Media("image/png", b"\x89PNG")  # type: ignore[arg-type]
    assert await answer(raw) == await answer(Media("image/png", b64encode(b"\x89PNG").decode()))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("given", "why"),
    [
        (b"\x89PNG", "4 bytes"),
        ({"image": b"\x89PNG"}, "4 bytes"),
        ([["a", b"\x89PNG"]], "4 bytes"),
        ({"image": CHART}, "within other data"),
        ([[CHART]], "within other data"),
        ([CHART, {"image": CHART}], "within other data"),
        (Media("image/png"), "without data or uri"),
        (Media("image/png", "no base64!"), "is not base64"),
        (Media("png", PIXEL), "'image/png'"),
    ],
)
async def test_what_cannot_be_shown_is_refused_with_the_reason(given: Any, why: str):
    result = await answer(given)
    assert result.is_error
    assert why in result.text
    assert not result.media
    assert "\\x89" not in result.text


def shown(*media: Media, text: str = "seen", is_error: bool = False) -> AssistantMessage:
    return AssistantMessage((ToolCall("c", "look", {}),), (ToolResult("c", "look", text, is_error, media),))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_error", [False, True])
@pytest.mark.parametrize(
    "media",
    [
        CHART,
        Media("application/pdf", PIXEL, name="a.pdf"),
        Media("audio/wav", PIXEL),
        Media("video/mp4", uri="https://x.org/a"),
    ],
)
def test_a_result_with_media_is_valid_in_every_form_and_read_back(form: Form, media: Media, is_error: bool):
    two = AssistantMessage(
        (ToolCall("a", "look", {}), ToolCall("b", "look", {})),
        (ToolResult("a", "look", "one", is_error, (media,)), ToolResult("b", "look", "two")),
    )
    messages, _ = repair((GO, two, GO), form=form)
    sent = to_form(form, messages)
    assert validate(form, sent) == []
    sdk_takes(form, sent)
    again, _ = repair(read_history(form, sent), form=form)
    assert to_form(form, again) == sent
    (turn,) = [one for one in again if isinstance(one, AssistantMessage)]
    assert [result.is_error for result in turn.results] == [is_error, False]


def test_newer_geminis_are_shown_it_within_the_response_and_others_beside_it():
    (_, old), (_, new) = to_contents((shown(CHART),)), to_contents((shown(CHART),), model="gemini-3-pro")
    assert [list(part) for part in old["parts"]] == [["function_response"], ["inline_data"]]
    assert [list(part) for part in new["parts"]] == [["function_response"]]
    assert new["parts"][0]["function_response"]["parts"] == [old["parts"][1]]
    for content in (old, new):
        messages = next(iter(read_history("gemini", [content]))).parts
        assert CHART.data in [
            one.data for part in messages for one in (part, *getattr(part, "media", ())) if isinstance(one, Media)
        ]


def test_media_of_results_weighs_and_goes_with_what_makes_a_history_smaller():
    plain, heavy = shown(text="x" * 300_000), shown(CHART, text="x" * 300_000)
    assert message_tokens(heavy) > message_tokens(plain)
    later: tuple[monitor.messages.Message, ...] = (GO, shown())
    old: tuple[monitor.messages.Message, ...] = (GO, heavy, *later * 6)
    assert DropMedia().reduce(old)[1] == plain
    assert DropMedia(20).reduce(old) is old
    pruned = PruneResults(protect_tokens=0, more_than_tokens=0).reduce(old)[1]
    assert isinstance(pruned, AssistantMessage)
    assert pruned.results[0].media == ()
    clipped = ClipResults(2_000).reduce(old)[1]
    assert isinstance(clipped, AssistantMessage)
    assert clipped.results[0].media == (CHART,)


def test_media_of_a_result_that_lost_its_data_is_left_away_and_reported():
    (_, turn, _), report = repair((GO, shown(Media("image/png", "no base64!")), GO))
    assert isinstance(turn, AssistantMessage)
    assert turn.results[0].media == ()
    assert [one.kind.value for one in report.repairs] == ["part_dropped"]


@sdk_test
async def test_a_guard_is_told_media_by_its_name():
    with LocalGemini([events_of("", [("draw", {})])]) as server:
        async with sdk(server) as client, monitor.Guard() as guard:
            async with guard.watch(stream(client)) as watched:
                async for _ in watched:
                    pass
            with monitor.testing.capture_events() as events:
                guard.tool_result(None, CHART)
            guard.finish()
    assert PIXEL not in json.dumps([str(event) for event in events])

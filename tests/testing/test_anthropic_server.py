"""LocalAnthropic, seen by the real SDK and by a bare request. What all local servers have in common
is tested with LocalGemini.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import anthropic
import pytest

from monitor.errors import AdapterError, ConfigError
from monitor.testing import LocalAnthropic
from monitor.testing.anthropic_steps import (
    AnthropicRecording,
    block_start,
    call,
    error_reply,
    events_of,
    events_of_message,
    finish,
    load_recording,
    rate_limited,
    redacted,
    say,
    start,
    text,
    think,
)
from tests.adapters.anthropic.sdk import ASKED, TRANSPORTS, sdk

STREAMS = Path(__file__).parents[2] / "fixtures" / "streams" / "anthropic"
TURN = [
    start(),
    *think("hm"),
    *say("Par", "is.", index=1),
    *call("look", {"q": 1}, index=2),
    *redacted(index=3),
    *finish("tool_use"),
]


def posted(server: LocalAnthropic, path: str, body: Any = None) -> tuple[int, Any]:
    request = urllib.request.Request(server.base_url + path, json.dumps(body or {}).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_message_is_the_same_streamed_or_whole(transport: str):
    with LocalAnthropic([TURN]) as server:
        async with sdk(server, transport) as client:
            whole = await client.messages.create(**ASKED)
            async with client.messages.stream(**ASKED) as helper:
                streamed = await helper.get_final_message()
    assert whole.content == [type(block).model_validate(block.model_dump()) for block in whole.content]
    assert [block.to_dict() for block in whole.content] == [block.to_dict() for block in streamed.content]
    assert (
        (whole.stop_reason, whole.usage.output_tokens)
        == (streamed.stop_reason, streamed.usage.output_tokens)
        == ("tool_use", 3)
    )
    assert [request.body.get("stream") for request in server.requests] == [None, True]


def test_an_event_stands_on_the_wire_under_its_name():
    with LocalAnthropic([[start(), text("é"), *finish()]]) as server:
        status, body = posted(server, "/v1/messages?beta=true", {"stream": True})
    lines = body.decode().split("\n")
    assert status == 200
    assert [line for line in lines if line.startswith("event:")] == [
        "event: message_start",
        "event: content_block_delta",
        "event: message_delta",
        "event: message_stop",
    ]
    assert json.loads(lines[4].removeprefix("data: ")) == text("é")


@pytest.mark.asyncio
async def test_tokens_are_counted_as_told_and_use_up_no_script():
    with LocalAnthropic([TURN], count_tokens=lambda request: len(request.body["messages"])) as server:
        async with sdk(server) as client:
            counted = await client.messages.count_tokens(model="m", messages=ASKED["messages"])
            assert (await client.messages.create(**ASKED)).stop_reason == "tool_use"
    assert counted.input_tokens == 1


@pytest.mark.asyncio
async def test_a_count_may_fail():
    with LocalAnthropic([TURN], count_tokens=lambda _: rate_limited()) as server:
        async with sdk(server) as client:
            with pytest.raises(anthropic.RateLimitError):
                await client.messages.count_tokens(model="m", messages=ASKED["messages"])


@pytest.mark.parametrize("path", ["/v1/complete", "/", "/v2/messages", "/v1/messages/batches"])
def test_another_path_is_answered_by_what_is_served(path: str):
    with LocalAnthropic([TURN]) as server:
        status, body = posted(server, path)
    error = json.loads(body)
    assert (status, error["type"], error["error"]["type"]) == (404, "error", "not_found_error")
    assert "/v1/messages" in error["error"]["message"]


def test_errors_have_the_services_form():
    reply = error_reply(529)
    assert json.loads(reply.body)["error"] == {"type": "overloaded_error", "message": "Something went wrong."}
    assert json.loads(error_reply(418, kind="teapot").body)["error"]["type"] == "teapot"


# --- scripts from text and from recordings


@pytest.mark.asyncio
async def test_a_turn_is_cut_into_pieces_and_put_together_again():
    script = events_of(
        "Paris is it.", [("look", {"q": "Paris"}), ("now", {})], cut=3, reasoning="I think.", tokens=(5, 8)
    )
    with LocalAnthropic([script]) as server:
        async with sdk(server) as client:
            message = await client.messages.create(**ASKED)
    thinking, said, look, now = (block.to_dict() for block in message.content)
    assert (thinking["thinking"], said["text"]) == ("I think.", "Paris is it.")
    assert (look["name"], look["input"], now["input"]) == ("look", {"q": "Paris"}, {})
    assert look["id"] != now["id"]
    assert (message.stop_reason, message.usage.input_tokens, message.usage.output_tokens) == ("tool_use", 5, 8)
    assert sum(event["type"] == "content_block_delta" for event in script) > 10


def test_a_turn_ends_as_it_must_or_as_it_is_told():
    assert events_of("a")[-2]["delta"]["stop_reason"] == "end_turn"
    assert events_of("a", finish_reason="max_tokens")[-2]["delta"]["stop_reason"] == "max_tokens"
    assert events_of("a", finish_reason=None)[-1]["type"] == "content_block_stop"
    with pytest.raises(ConfigError, match="cut must be at least 1"):
        events_of("a", cut=0)


def test_a_message_of_the_corpus_becomes_a_turn():
    events = events_of_message(
        {"text": "I look.", "tool_calls": [{"name": "look", "args": {"q": 1}}, {"name": "say", "args": "hi"}]}
    )
    started = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [block.get("name") for block in started] == [None, "look", "say"]
    written = [event["delta"]["partial_json"] for event in events if "partial_json" in event.get("delta", {})]
    assert "".join(written) == '{"q": 1}{"input": "hi"}'


def test_a_recording_of_several_streams_is_several_messages():
    messages = load_recording(STREAMS / "anthropic-tool-search-regex.1.jsonl")
    assert [message.events[0]["type"] for message in messages] == ["message_start"] * 2
    assert all(message.events[-1]["type"] == "message_stop" for message in messages)
    assert len(load_recording(STREAMS / "spliced-message-start.jsonl")) == 1


def test_a_file_that_is_no_recording_is_refused_by_its_line(tmp_path: Path):
    file = tmp_path / "bad.jsonl"
    for bad, what in [("{}\n", "with a `type`"), ('{"type": "ping"}\n[]', "line 2"), ("{", "no JSON")]:
        file.write_text(bad)
        with pytest.raises(AdapterError, match=what):
            load_recording(file)
    file.write_text("\n")
    assert load_recording(file) == []
    file.write_text(json.dumps(block_start({"type": "text", "text": ""})))
    assert load_recording(file) == [AnthropicRecording((block_start({"type": "text", "text": ""}),))]

"""Bedrock: its binary streams are read, cut, and ended in their own form."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.messages import UserMessage
from monitor.proxy import Proxy
from monitor.proxy.formats import wire_of
from monitor.proxy.formats.base import JudgedRequest
from monitor.proxy.formats.framing import MEDIA_TYPE, EventStreamReader, Message, encoded
from tests.proxy.served import serving

SENTENCE = "I will now read the file again. "
MODEL = "us.anthropic.claude-sonnet-4-20250514-v1:0"
Events = Sequence[tuple[str, dict[str, Any]]]


def event(kind: str, value: dict[str, Any], what: str = "event") -> bytes:
    headers = {f":{what}-type": kind, ":content-type": "application/json", ":message-type": what}
    return encoded(headers, json.dumps(value).encode())


def messages(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The messages of a stream by the name of their event."""
    one, found = reader()
    faults = [frame.fault for frame in one.feed(data) if frame.fault is not None]
    assert faults == []
    names = (one.headers.get(":event-type") or one.headers[":exception-type"] for one in found)
    return [(name, json.loads(one.payload)) for name, one in zip(names, found, strict=True)]


def converse(words: Sequence[str], *, calls: bool = False) -> list[bytes]:
    """An answer of `converse-stream`."""
    sent = [event("messageStart", {"role": "assistant"})]
    sent += [event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": one}}) for one in words]
    sent.append(event("contentBlockStop", {"contentBlockIndex": 0}))
    if calls:
        start = {"toolUse": {"toolUseId": "t1", "name": "read"}}
        sent.append(event("contentBlockStart", {"contentBlockIndex": 1, "start": start}))
        piece = {"toolUse": {"input": '{"path": "a"}'}}
        sent.append(event("contentBlockDelta", {"contentBlockIndex": 1, "delta": piece}))
        sent.append(event("contentBlockStop", {"contentBlockIndex": 1}))
    sent.append(event("messageStop", {"stopReason": "tool_use" if calls else "end_turn"}))
    usage = {"inputTokens": 12, "outputTokens": 34, "totalTokens": 46}
    return [*sent, event("metadata", {"usage": usage, "metrics": {"latencyMs": 7}})]


def invoke(words: Sequence[str], *, calls: bool = False) -> list[bytes]:
    """An answer of `invoke-with-response-stream`."""
    block: dict[str, Any] = {"type": "text", "text": ""}
    sent: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 12}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": one}} for one in words),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 34}},
        {"type": "message_stop"},
    ]
    return [event("chunk", {"bytes": b64encode(json.dumps(one).encode()).decode(), "p": "abc"}) for one in sent]


@asynccontextmanager
async def behind(
    parts: Sequence[bytes], kind: str = MEDIA_TYPE, **options: Any
) -> AsyncIterator[tuple[httpx2.AsyncClient, list[Any]]]:
    """A client of a proxy before a service with this answer, and what the service was asked."""
    asked: list[Any] = []

    async def service(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        asked.append((scope["raw_path"], body))
        headers = [(b"content-type", kind.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await anyio.lowlevel.checkpoint()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async with serving(service) as address:
        proxy = Proxy(address, **options)
        async with serving(proxy) as front, httpx2.AsyncClient(base_url=front, timeout=20) as client:
            yield client, asked


def asks(text: str = "Tidy up", *more: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"text": text}]}, *more]}


def asks_claude(text: str = "Tidy up") -> dict[str, Any]:
    said = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    return {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9, "messages": said}


def looping(times: int) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    for number in range(times):
        call = {"toolUse": {"toolUseId": f"t{number}", "name": "read", "input": {"path": "a"}}}
        result = {"toolResult": {"toolUseId": f"t{number}", "content": [{"text": "nothing"}]}}
        turns += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return asks("Tidy up", *turns)


def text_of(found: Events) -> str:
    """The text that a client reads."""
    words = ""
    for name, value in found:
        if name == "chunk":
            inner = json.loads(b64decode(value["bytes"]))
            words += inner.get("delta", {}).get("text", "")
        else:
            words += value.get("delta", {}).get("text", "") if name == "contentBlockDelta" else ""
    return words


@pytest.mark.anyio
@pytest.mark.parametrize("calls", [False, True])
async def test_a_good_stream_comes_byte_for_byte_and_is_counted(*, calls: bool) -> None:
    sent = converse(["Hello ", "there."], calls=calls)
    async with behind(sent) as (client, asked):
        reply = await client.post(f"/model/{MODEL}/converse-stream", json=asks())
        assert reply.content == b"".join(sent)
        assert reply.headers["x-agent-monitor"].startswith("watched")
        assert reply.headers["content-type"] == MEDIA_TYPE
    assert json.loads(asked[0][1]) == asks()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("action", "make", "request_of"),
    [
        ("converse-stream", converse, asks),
        ("invoke-with-response-stream", invoke, asks_claude),
    ],
)
async def test_a_loop_is_cut_and_the_stream_ends_legally_with_the_sentence(
    action: str, make: Callable[..., list[bytes]], request_of: Callable[[], Any]
) -> None:
    async with behind(make(["Let me see. ", *[SENTENCE] * 200])) as (client, _):
        reply = await client.post(f"/model/{MODEL}/{action}", json=request_of())
    found = messages(reply.content)
    text = text_of(found)
    assert text.count(SENTENCE) < 20
    assert text.rstrip().endswith("]")
    assert text.count("[agent-monitor stopped this answer: it repeated itself.") == 1
    ends = [name for name, _ in found][-2:]
    assert ends == (["chunk"] * 2 if "invoke" in action else ["contentBlockStop", "messageStop"])


@pytest.mark.anyio
@pytest.mark.parametrize("action", ["converse-stream", "converse"])
async def test_a_history_in_a_loop_is_answered_with_the_sentence_and_the_service_is_not_asked(action: str) -> None:
    async with behind(converse(["hello"])) as (client, asked):
        reply = await client.post(f"/model/{MODEL}/{action}", json=looping(6))
    assert asked == []
    if action == "converse":
        said = reply.json()
        assert said["stopReason"] == "end_turn"
        (part,) = said["output"]["message"]["content"]
        assert "agent-monitor stopped" in part["text"]
    else:
        assert reply.headers["content-type"] == MEDIA_TYPE
        assert "agent-monitor stopped" in text_of(messages(reply.content))


@pytest.mark.anyio
async def test_an_answer_that_is_stopped_as_an_error_is_an_exception_of_the_stream() -> None:
    async with behind(converse([SENTENCE] * 200), stop_as="error") as (client, _):
        reply = await client.post(f"/model/{MODEL}/converse-stream", json=asks())
    name, value = messages(reply.content)[-1]
    assert name == "validationException"
    assert "loop_detected" in value["message"]


@pytest.mark.anyio
async def test_a_stream_that_breaks_off_ends_with_an_exception_and_an_exception_is_passed_on() -> None:
    async with behind(converse(["Hello"])[:3]) as (client, _):
        broken = await client.post(f"/model/{MODEL}/converse-stream", json=asks())
        assert messages(broken.content)[-1][0] == "modelStreamErrorException"
    throttled = [*converse(["Hello"])[:2], event("throttlingException", {"message": "too many"}, "exception")]
    async with behind(throttled) as (client, _):
        reply = await client.post(f"/model/{MODEL}/converse-stream", json=asks())
        assert reply.content == b"".join(throttled)


@pytest.mark.anyio
async def test_a_whole_answer_of_converse_is_read() -> None:
    content = [{"text": SENTENCE * 40}]
    whole = {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": "end_turn"}
    async with behind([json.dumps(whole).encode()], "application/json") as (client, _):
        reply = await client.post(f"/model/{MODEL}/converse", json=asks())
        assert reply.headers["x-agent-monitor"].startswith("stopped; loop_detected")


@pytest.mark.anyio
async def test_a_refusal_has_the_form_of_the_service() -> None:
    async with behind(converse(["hello"]), stop_as="error") as (client, _):
        reply = await client.post(f"/model/{MODEL}/converse-stream", json=looping(6))
    assert (reply.status_code, reply.headers["x-amzn-errortype"]) == (400, "ValidationException")
    assert "read" in reply.json()["message"]


ARN = "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.anthropic.claude-opus-4-v1:0"


@pytest.mark.parametrize("model", [MODEL, ARN])
@pytest.mark.parametrize("action", ["converse", "converse-stream", "invoke", "invoke-with-response-stream"])
def test_the_path_says_the_model_and_whether_it_streams(model: str, action: str) -> None:
    path = f"/model/{model}/{action}"
    wire = wire_of("POST", path)
    assert wire is not None
    body = asks() if "converse" in action else asks_claude()
    asked = wire.asked(path, json.dumps(body).encode())
    assert isinstance(asked, JudgedRequest)
    assert (asked.model, asked.streams) == (model, action.endswith("-stream"))
    assert [type(message) for message in asked.messages] == [UserMessage]


def test_an_invoke_of_another_service_is_not_read_as_one_of_bedrock() -> None:
    assert wire_of("POST", "/chains/mine/invoke") is None


# ---------------------------------------------------------------------- the messages themselves


def reader() -> tuple[EventStreamReader, list[Message]]:
    found: list[Message] = []

    def read(message: Message) -> list[str]:
        found.append(message)
        return []

    return EventStreamReader(read), found


def cut(data: bytes, at: Sequence[int]) -> Iterator[bytes]:
    places = [0, *sorted(place % (len(data) + 1) for place in at), len(data)]
    return (data[start:end] for start, end in pairwise(places))


TEXTS = st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=20), max_size=4)


@given(st.lists(st.tuples(TEXTS, st.binary(max_size=50)), max_size=5), st.lists(st.integers(0, 10**6), max_size=9))
def test_what_was_written_is_read_however_the_bytes_come(sent: Any, places: list[int]) -> None:
    data = b"".join(encoded(headers, payload) for headers, payload in sent)
    one, found = reader()
    raw = b"".join(frame.raw for part in cut(data, places) for frame in one.feed(part))
    assert raw == data
    assert [(dict(message.headers), message.payload) for message in found] == sent


@given(st.binary(max_size=200), st.integers(0, 10**6), st.integers(1, 255))
def test_damage_is_found_and_nothing_is_raised(noise: bytes, place: int, flip: int) -> None:
    data = bytearray(encoded({":event-type": "chunk"}, b"{}") * 3)
    data[place % len(data)] ^= flip
    one, found = reader()
    frames = one.feed(bytes(data)) + one.feed(noise)
    assert len(found) < 3
    assert any(frame.fault is not None for frame in frames) or len(found) + 1 < 3


@pytest.mark.parametrize("make", [converse, invoke])
def test_the_parser_of_botocore_reads_what_is_written(make: Callable[..., list[bytes]]) -> None:
    parser = pytest.importorskip("botocore.eventstream", reason="boto3 is not installed here")
    buffer = parser.EventStreamBuffer()
    buffer.add_data(b"".join(make(["Hello ", "there."])))
    assert [json.loads(one.payload) for one in buffer] == [
        value for _, value in messages(b"".join(make(["Hello ", "there."])))
    ]

"""Every recorded stream: the bytes of the wire say the same as the objects of the real SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from monitor.adapters.adapter import complete, find_adapter
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, TurnFinished, UsageReport
from monitor.proxy.formats.base import FrameContent
from monitor.proxy.formats.wire import decoded
from monitor.testing.openai_steps import merged_chat, merged_response
from tests.proxy.formats.clients import Clients, clients
from tests.proxy.formats.streams import (
    ARRAY,
    FORMS,
    NO_JSON,
    STREAMS,
    Stream,
    answer,
    asked,
    chunks_in,
    read_all,
    recorded,
    wire,
)

ASKED: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
LOOK = {"camelCase": {"inner": 1}}
ABRIDGED = ("openai-phase", "openai-shell-container")
"""Whoever recorded them left most deltas away, and the whole text in the final response."""


@pytest.fixture(scope="module")
def sdks() -> Iterator[Clients]:
    with clients() as made:
        yield made


def of(form: str) -> list[Stream]:
    return [stream for stream in recorded() if stream.form == form]


def with_origins(chunks: list[Chunk]) -> list[tuple[Chunk, object]]:
    """Origins do not take part in the comparison of chunks."""
    return [(chunk, getattr(chunk, "origin", None)) for chunk in chunks]


def test_the_recordings_are_all_there():
    assert [len(of(form)) for form in FORMS] == [12, 23, 39, 129]


@pytest.mark.parametrize("form", FORMS)
def test_a_stream_of_json_gives_the_chunks_of_the_sdks_objects(form: str, sdks: Clients):
    for stream in of(form):
        data = b"".join(stream.frames)
        items = sdks.items(form, data)
        found = find_adapter(items[0])
        assert found is not None
        adapter = complete(found(0))
        theirs = chunks_in([decoded(adapter, item) for item in items]) + list(adapter.finish())
        reader = answer(form)
        heard = read_all(reader, data)
        assert not [one for one in heard if one.unread or one.failure], stream.name
        assert with_origins(chunks_in(heard)) == with_origins(theirs), stream.name
        assert reader.over is any(isinstance(chunk, TurnFinished) for chunk in theirs), stream.name


@pytest.mark.parametrize("form", FORMS)
def test_the_chunks_are_the_same_however_the_bytes_are_cut(form: str):
    for stream in [one for one in of(form) if 4 < len(one.events) < 40][:4]:
        data = b"".join(stream.frames)
        whole = chunks_in(read_all(answer(form), data))
        for size in (1, 7, 1_000):
            reader, heard = answer(form), []
            for at in range(0, len(data), size):
                heard += [reader.read(frame) for frame in reader.feed(data[at : at + size])]
            assert chunks_in([*heard, FrameContent(reader.finish())]) == whole


def test_an_array_of_gemini_says_the_same_as_its_server_sent_events():
    for stream in of("gemini"):
        array = json.dumps(stream.events, indent=1, ensure_ascii=False).encode()
        reader = answer("gemini", ARRAY)
        assert chunks_in(read_all(reader, array)) == chunks_in(read_all(answer("gemini"), b"".join(stream.frames)))
        assert reader.over


def test_lines_that_are_not_json_are_told_and_the_others_are_read():
    lines = (STREAMS / "openai-responses" / NO_JSON).read_bytes().splitlines()
    heard = read_all(answer("openai-responses"), b"".join(b"data: " + line + b"\n\n" for line in lines))
    assert [at for at, one in enumerate(heard) if one.unread] == [0, len(lines) - 1]
    assert "not JSON" in str(heard[0].unread)


# --- the same answers in one piece


def whole_of(stream: Stream) -> dict[str, Any] | None:
    """The answer that the service would have given without streaming."""
    match stream.form:
        case "openai-chat":
            deltas = [choice["delta"] for event in stream.events for choice in event["choices"]]
            parts = [delta for delta in deltas if isinstance(delta.get("content"), list)]  # they have no whole form
            return None if parts else merged_chat(stream.events)
        case "openai-responses":
            return merged_response(stream.events)
    return None


def essence(heard: list[FrameContent]) -> dict[str, Any]:
    chunks = chunks_in(heard)
    usage = [chunk for chunk in chunks if isinstance(chunk, UsageReport)]
    return {
        "text": "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta)),
        "calls": [(chunk.id, chunk.name, chunk.arguments) for chunk in chunks if isinstance(chunk, ToolCall)],
        "finish": [chunk for chunk in chunks if isinstance(chunk, TurnFinished)],
        "usage": usage[-1:],
    }


@pytest.mark.parametrize("form", ["openai-chat", "openai-responses"])
def test_an_answer_in_one_piece_says_the_same_as_its_stream(form: str):
    compared = 0
    for stream in of(form):
        whole = whole_of(stream)
        if whole is None or stream.name.startswith(ABRIDGED):
            continue
        compared += 1
        heard = wire(form).whole(asked(form, stream=False), json.dumps(whole).encode())
        assert heard.unread is None
        assert essence([heard]) == essence(read_all(answer(form), b"".join(stream.frames))), stream.name
    assert compared >= 11


def test_a_whole_message_of_anthropic_says_the_same_as_its_stream(sdks: Clients):
    for stream in of("anthropic"):
        sdks.body = b"".join(stream.frames)
        with sdks.anthropic.messages.stream(**ASKED) as made:
            message = made.get_final_message().to_json(warnings=False).encode()
        heard = wire("anthropic").whole(asked("anthropic", stream=False), message)
        said, streamed = essence([heard]), essence(read_all(answer("anthropic"), b"".join(stream.frames)))
        if stream.name.startswith("spliced"):  # the SDK joins the two attempts
            continue
        if "compaction" in stream.name:  # and takes the smaller count of input, which is of the second half
            del said["usage"], streamed["usage"]
        assert said == streamed, stream.name


def test_a_whole_answer_of_gemini_is_read_as_one_chunk():
    body = {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": "hm", "thought": True},
                        {"text": "So."},
                        {"functionCall": {"name": "look", "args": LOOK}, "thoughtSignature": "c2ln"},
                    ],
                },
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5},
        "modelVersion": "gemini-x",
    }
    heard = wire("gemini").whole(asked("gemini"), json.dumps(body).encode())
    assert list(heard.chunks) == [
        ReasoningDelta("hm"),
        TextDelta("So."),
        ReasoningDelta("", "c2ln"),
        ToolCall("call_0_0", "look", LOOK),
        UsageReport(input_tokens=3, output_tokens=2, total_tokens=5),
        heard.chunks[-1],
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"7", b"\xff", b"[" * 100_000])
def test_a_whole_answer_that_is_no_answer_is_unread(form: str, body: bytes):
    heard = wire(form).whole(asked(form), body)
    assert heard.unread is not None
    assert not heard.chunks


def test_a_call_is_given_in_pieces_as_it_is_written():
    (stream,) = [one for one in of("openai-chat") if one.name.startswith("mistral-incremental")]
    chunks = chunks_in(read_all(answer("openai-chat"), b"".join(stream.frames)))
    assert [type(chunk) for chunk in chunks[:2]] == [ToolCallDelta, ToolCallDelta]

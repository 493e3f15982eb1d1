"""Recorded streams of all formats as the bytes of the wire, and requests to go with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from monitor.chunks import Chunk
from monitor.proxy.formats import wire_of
from monitor.proxy.formats.base import Frame, FrameContent, JudgedRequest
from monitor.proxy.formats.wire import Wire, WireAnswer
from monitor.testing import anthropic_steps, gemini_steps, openai_steps

STREAMS: Final = Path(__file__).parents[3] / "fixtures" / "streams"
NO_JSON: Final = "parallel-tool-call-wrapper.1.jsonl"
"""Its first and last line lack a brace, as they were recorded."""

FORMS: Final = ("openai-chat", "openai-responses", "anthropic", "gemini")
SAYS_HELLO: Final[list[dict[str, Any]]] = [{"role": "user", "content": "hello"}]
PATHS: Final = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/m:streamGenerateContent?alt=sse",
}
ARRAY: Final = "/v1beta/models/m:streamGenerateContent"
BODIES: Final[dict[str, dict[str, Any]]] = {
    "openai-chat": {
        "model": "m",
        "messages": SAYS_HELLO,
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "openai-responses": {"model": "m", "input": "hello", "stream": True},
    "anthropic": {"model": "m", "max_tokens": 9, "messages": SAYS_HELLO, "stream": True},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]},
}


def wire(form: str) -> Wire:
    found = wire_of("POST", PATHS[form])
    assert found is not None
    return found


def asked(form: str, path: str | None = None, **fields: Any) -> JudgedRequest:
    found = wire(form).asked(path or PATHS[form], json.dumps(BODIES[form] | fields).encode())
    assert isinstance(found, JudgedRequest), found
    return found


def answer(form: str, path: str | None = None, **fields: Any) -> WireAnswer:
    request = asked(form, path, **fields)
    return wire(form).stream(request)


def framed(form: str, event: Any) -> bytes:
    """A server-sent event as the service writes it."""
    name = f"event: {event['type']}\n".encode() if form in ("anthropic", "openai-responses") else b""
    end = b"\r\n\r\n" if form == "gemini" else b"\n\n"
    try:
        data = json.dumps(event, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        data = json.dumps(event).encode()
    return name + b"data: " + data + end


@dataclass(frozen=True)
class Stream:
    form: str
    name: str
    events: tuple[Any, ...]

    @property
    def frames(self) -> list[bytes]:
        done = [b"data: [DONE]\n\n"] if self.form == "openai-chat" else []
        return [framed(self.form, event) for event in self.events] + done


@cache
def recorded() -> tuple[Stream, ...]:
    """Every recorded stream."""
    chats = [(file, script) for file in _files("*-chat/*.jsonl") for script in openai_steps.load_recording(file)]
    responses = [
        (file, script)
        for file in _files("openai-responses/*.jsonl")
        if file.name != NO_JSON
        for script in openai_steps.load_recording(file)
    ]
    messages = [
        (file, one.events) for file in _files("anthropic/*.jsonl") for one in anthropic_steps.load_recording(file)
    ]
    contents = [
        (file, one.events)
        for file in [*_files("google/*.jsonl"), *_files("gemini-cli/*.responses")]
        for one in gemini_steps.load_recording(file)
        if one.method == "generateContentStream"
    ]
    found: list[tuple[str, Sequence[tuple[Path, Sequence[Any]]]]] = [
        ("openai-chat", chats),
        ("openai-responses", responses),
        ("anthropic", messages),
        ("gemini", contents),
    ]
    return tuple(
        Stream(form, f"{file.name}[{at}]", tuple(events))
        for form, streams in found
        for at, (file, events) in enumerate(streams)
    )


def _files(pattern: str) -> list[Path]:
    return sorted(STREAMS.glob(pattern))


def read_all(reader: WireAnswer, data: bytes) -> list[FrameContent]:
    """Read, send and end."""
    heard = []
    for frame in [*reader.feed(data), *reader.end()]:
        heard.append(reader.read(frame))
        reader.sent(frame)
    return [*heard, FrameContent(reader.finish())]


def chunks_in(heard: Sequence[FrameContent]) -> list[Chunk]:
    return [chunk for one in heard for chunk in one.chunks]


def passed(reader: WireAnswer, data: bytes) -> bytes:
    """Read and send. Returns the bytes that the client gets."""
    frames: list[Frame] = reader.feed(data)
    for frame in frames:
        reader.read(frame)
        reader.sent(frame)
    return b"".join(frame.raw for frame in frames)

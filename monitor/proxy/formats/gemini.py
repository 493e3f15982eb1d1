"""Gemini's generateContent, of the Gemini API and of Vertex AI."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from monitor.adapters.google.errors import reported
from monitor.adapters.google.stream import GoogleAdapter
from monitor.proxy.formats import sse
from monitor.proxy.formats.array import END, ArrayReader
from monitor.proxy.formats.base import (
    Frame,
    FrameContent,
    JudgedRequest,
    Refusal,
    Unjudged,
    WireAnswer,
    decoded,
    joined,
    parsed_object,
    to_bytes,
)
from monitor.proxy.formats.refusals import CODE, RPC_STATUSES, refused, type_of
from monitor.proxy.formats.requests import CannotJudge, count_at, history, judged, one_answer, records_at, tools_at
from monitor.proxy.formats.view import CamelView
from monitor.usage import NO_USAGE, Usage
from monitor.wires.fields import object_at, objects_at, snake
from monitor.wires.forms import Form
from monitor.wires.request import instructions_of

_CALLED: Final = re.compile(r"/models/([^/:]+):(generateContent|streamGenerateContent)\Z")
_JSON: Final = "application/json"


class GeminiWire:
    """`POST .../models/{model}:generateContent` and `:streamGenerateContent`."""

    form: Form = "gemini"

    def asked(self, path: str, body: bytes) -> JudgedRequest | Unjudged:
        return judged(body, lambda request: self._asked(path, request))

    def _asked(self, path: str, request: Mapping[str, Any]) -> JudgedRequest:
        where, _, query = path.partition("?")
        called = _CALLED.search(unquote(where))
        if called is None:
            raise CannotJudge(f"the path {where!r} names no model")
        streams = called[2] == "streamGenerateContent"
        fields = snake(request)
        config = snake(fields.get("generation_config"))
        one_answer(config, "candidate_count")
        contents = request.get("contents")
        records = [contents] if isinstance(contents, dict) else records_at(request, "contents")
        messages, _ = history(self.form, records)
        return JudgedRequest(
            form=self.form,
            model=called[1],
            streams=streams,
            messages=messages,
            instructions=instructions_of(fields.get("system_instruction")) or None,
            tools=tools_at(request),
            max_output_tokens=count_at(config, "max_output_tokens"),
            array=streams and parse_qs(query).get("alt") != ["sse"],
        )

    def answer(self, asked: JudgedRequest, content_type: str) -> GeminiAnswer | None:
        if asked.array:
            given = content_type.partition(";")[0].strip().lower()
            return GeminiAnswer(asked) if given == _JSON else None
        return GeminiAnswer(asked) if asked.streams and sse.is_event_stream(content_type) else None

    def whole(self, asked: JudgedRequest, body: bytes) -> FrameContent:
        answer = parsed_object(body)
        if isinstance(answer, FrameContent):
            return answer
        if "error" in answer:
            return FrameContent(failure=reported(answer["error"]))
        adapter = GoogleAdapter()
        return joined([decoded(adapter, CamelView(answer)), FrameContent(tuple(adapter.finish()))])

    def refusal(self, reason: str, *, status: int = 429, code: str = CODE) -> Refusal:
        return refused(status, _error(status, reason, code))


class GeminiAnswer(WireAnswer):
    """One streamed answer, in server-sent events or in a JSON array.

    The SDK reads a comment as broken JSON. So there is none, and our reason is the `finishMessage`
    of the last chunk.
    """

    def __init__(self, asked: JudgedRequest) -> None:
        super().__init__(asked, ArrayReader() if asked.array else sse.SseReader(), GoogleAdapter())
        self._head: dict[str, Any] = {"modelVersion": asked.model}
        """The fields that all chunks of the answer have alike."""
        self._told_any = False
        self._called = False
        self._finished = False
        self._ended = False
        """Whether an error was sent, or the end of the array."""

    def _heard(self, frame: Frame) -> FrameContent:
        if isinstance(frame.value, dict) and "error" in frame.value:
            return FrameContent(failure=reported(frame.value["error"]))
        return super()._heard(frame)

    def _item(self, frame: Frame) -> object:
        return CamelView(frame.value) if isinstance(frame.value, dict) else frame.value

    def sent(self, frame: Frame) -> None:
        """The last bracket of an array has no value."""
        super().sent(frame)
        self._ended = self._ended or (self.asked.array and frame.event == END)

    def _told(self, frame: Frame) -> None:
        self._told_any = True
        chunk = frame.value
        if not isinstance(chunk, dict):
            return
        self._ended = self._ended or "error" in chunk
        self._head |= {name: chunk[name] for name in ("modelVersion", "responseId", "usageMetadata") if chunk.get(name)}
        self._finished = self._finished or bool(object_at(chunk, "promptFeedback").get("blockReason"))
        for candidate in objects_at(chunk, "candidates"):
            parts = objects_at(object_at(candidate, "content"), "parts")
            self._called = self._called or any(part.get("functionCall") for part in parts)
            self._finished = self._finished or bool(candidate.get("finishReason"))

    @property
    def over(self) -> bool:
        return self._ended or (self._finished and not self.asked.array)

    @property
    def _calls_open(self) -> bool:
        return self._called and not self._finished

    def _end(self, reason: str, usage: Usage) -> bytes:
        if self._finished:
            return b"]"
        candidate = {
            "content": {"parts": [{"text": ""}], "role": "model"},
            "finishReason": "STOP",
            "finishMessage": reason,
            "index": 0,
        }
        counts = {} if usage == NO_USAGE else {"usageMetadata": _usage(usage)}
        return self._written({"candidates": [candidate], **self._head, **counts})

    def _error(self, reason: str, status: int) -> bytes:
        return self._written(_error(status, reason, CODE))

    def _written(self, chunk: Mapping[str, Any]) -> bytes:
        if not self.asked.array:
            return sse.event(chunk)
        return (b"," if self._told_any else b"[") + to_bytes(chunk) + b"]"

    def comment(self, text: str) -> bytes:
        """White space, because the SDK reads a comment as broken JSON."""
        return b"\n"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "cachedContentTokenCount": usage.cached_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }


def _error(status: int, reason: str, code: str) -> dict[str, Any]:
    details = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code.upper(), "domain": "agent-monitor"}
    word = type_of(status, RPC_STATUSES, "INTERNAL", "FAILED_PRECONDITION")
    return {"error": {"code": status, "message": reason, "status": word, "details": [details]}}

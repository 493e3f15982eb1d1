"""Gemini's generateContent, of the Gemini API and of Vertex AI."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from monitor.adapters.google.errors import reported
from monitor.adapters.google.stream import GoogleAdapter
from monitor.adapters.parts import CamelView
from monitor.chunks import NO_USAGE, Chunk, Usage
from monitor.proxy.formats import framing as sse
from monitor.proxy.formats.base import (
    Frame,
    FrameContent,
    HalfCalls,
    JudgedRequest,
    Refusal,
    WireAnswer,
    decoded,
    parsed_object,
    read_whole,
    to_bytes,
)
from monitor.proxy.formats.framing import END, ArrayReader
from monitor.proxy.formats.requests import (
    CODE,
    RPC_STATUSES,
    CannotJudge,
    RequestFields,
    Wire,
    behind,
    check_choices,
    count_at,
    first_choice,
    further_choices,
    history,
    records_at,
    refused,
    tools_at,
    type_of,
    whole_at,
)
from monitor.wires.fields import instructions_of, object_at, objects_at, snake

_CALLED: Final = re.compile(r"/models/([^/:]+):(generateContent|streamGenerateContent)\Z", re.IGNORECASE)


class GeminiWire(Wire):
    """`POST .../models/{model}:generateContent` and `:streamGenerateContent`."""

    form = "gemini"

    def _asked(self, path: str, fields: RequestFields) -> JudgedRequest:
        request = fields.value
        where, _, query = path.partition("?")
        called = _CALLED.search(unquote(where))
        if called is None:
            raise CannotJudge(f"the path {where!r} names no model")
        streams = called[2].lower() == "streamgeneratecontent"
        snaked = snake(request)
        config = snake(snaked.get("generation_config"))
        check_choices(config, "candidate_count")
        contents = request.get("contents")
        records = [contents] if isinstance(contents, dict) else records_at(request, "contents")
        messages, _ = history(self.form, records, fields)
        return JudgedRequest(
            form=self.form,
            model=called[1],
            streams=streams,
            messages=messages,
            instructions=instructions_of(snaked.get("system_instruction")) or None,
            tools=tools_at(request),
            max_output_tokens=count_at(config, "max_output_tokens"),
            structured=_is_structured(config, object_at(snaked, "tool_config")),
            array=streams and parse_qs(query).get("alt") != ["sse"],
        )

    def answer(self, asked: JudgedRequest, beginning: bytes) -> GeminiAnswer | None:
        if sse.is_event_stream(beginning):
            return GeminiAnswer(replace(asked, array=False))
        if beginning.startswith(b"[") or (asked.array and beginning.startswith(b"{")):
            return GeminiAnswer(replace(asked, array=True))
        return None

    def stream(self, asked: JudgedRequest) -> GeminiAnswer:
        return GeminiAnswer(asked)

    def whole(self, asked: JudgedRequest, body: bytes) -> FrameContent:
        answer = parsed_object(body)
        if isinstance(answer, FrameContent):
            return answer
        return read_whole(self.stream(asked), answer)

    def refusal(self, reason: str, *, status: int = 429, code: str = CODE) -> Refusal:
        return refused(status, _error(status, reason, code))


class GeminiAnswer(WireAnswer):
    """One streamed answer, in server-sent events or in a JSON array.

    The SDK reads a comment as broken JSON. So there is none, and our reason is the `finishMessage`
    of the last chunk.
    """

    def __init__(self, asked: JudgedRequest) -> None:
        super().__init__(asked, ArrayReader() if asked.array else sse.SseReader(), GoogleAdapter(), GeminiCalls())
        self._head: dict[str, Any] = {"modelVersion": asked.model}
        """The fields that all chunks of the answer have alike."""
        self._others: dict[int, GoogleAdapter] = {}
        """The readers of further candidates."""
        self._told_any = False
        self._begun: set[int] = set()
        """The candidates that the client knows."""
        self._texted: set[int] = set()
        self._called: set[int] = set()
        self._finished: set[int] = set()
        self._blocked = False
        """The service has refused the request."""
        self._ended = False
        """Whether an error was sent, or the end of the array."""

    def _heard(self, frame: Frame) -> FrameContent:
        if isinstance(frame.value, dict) and "error" in frame.value:
            return FrameContent(failure=reported(frame.value["error"]))
        return super()._heard(frame)

    def _item(self, frame: Frame) -> object:
        chunk = frame.value
        return CamelView(first_choice(chunk, "candidates")) if isinstance(chunk, dict) else chunk

    def others(self, frame: Frame) -> Mapping[int, Sequence[Chunk]]:
        return further_choices(frame.value, "candidates", self._of_other) if isinstance(frame.value, dict) else {}

    def _of_other(self, index: int, chunk: Mapping[str, Any]) -> Sequence[Chunk]:
        adapter = self._others.setdefault(index, GoogleAdapter(index))
        return decoded(adapter, CamelView({**chunk, "usageMetadata": None})).chunks

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
        self._blocked = self._blocked or bool(object_at(chunk, "promptFeedback").get("blockReason"))
        for candidate in objects_at(chunk, "candidates"):
            index, parts = whole_at(candidate, "index"), objects_at(object_at(candidate, "content"), "parts")
            self._begun.add(index)
            if any(part.get("functionCall") for part in parts):
                self._called.add(index)
            if any(part.get("text") and not part.get("thought") for part in parts):
                self._texted.add(index)
            if candidate.get("finishReason"):
                self._finished.add(index)

    @property
    def over(self) -> bool:
        return self._ended or (self._is_whole and not self.asked.array)

    @property
    def _is_whole(self) -> bool:
        return self._blocked or bool(self._finished and self._finished >= self._begun)

    @property
    def _calls_open(self) -> bool:
        return not (self._blocked or self._called <= self._finished)

    def _end(self, reason: str, usage: Usage, sentence: str) -> bytes:
        if self._is_whole:
            return b"]"
        candidates = [self._last(index, reason, sentence) for index in sorted((self._begun or {0}) - self._finished)]
        counts = {} if usage == NO_USAGE else {"usageMetadata": _usage(usage)}
        return self._written({"candidates": candidates, **self._head, **counts})

    def _last(self, index: int, reason: str, sentence: str) -> dict[str, Any]:
        # A content with empty text would stand in the client's next request, and be refused there.
        words = behind(sentence, begun=index in self._texted)
        content = {"content": {"parts": [{"text": words}], "role": "model"}} if sentence else {}
        return {**content, "finishReason": "MAX_TOKENS", "finishMessage": reason, "index": index}

    def _error(self, reason: str, status: int) -> bytes:
        return self._written(_error(status, reason, CODE))

    def _written(self, chunk: Mapping[str, Any]) -> bytes:
        if not self.asked.array:
            return sse.event(chunk)
        return (b"," if self._told_any else b"[") + to_bytes(chunk) + b"]"

    def comment(self, text: str) -> bytes:
        """White space, because the SDK reads a comment as broken JSON."""
        return b"\n"


class GeminiCalls(HalfCalls):
    """A call comes whole, unless its part says that more of it follows."""

    def follow(self, value: Mapping[str, Any]) -> None:
        was_open, self.began = self.open, False
        for candidate in objects_at(value, "candidates"):
            for part in objects_at(object_at(candidate, "content"), "parts"):
                if call := object_at(part, "functionCall"):
                    self.open = call.get("willContinue") is True
                    self.began = self.open and not was_open
            if candidate.get("finishReason"):
                self.open = False


def _is_structured(config: Mapping[str, Any], tools: Mapping[str, Any]) -> bool:
    kind = str(config.get("response_mime_type") or "")
    schema = config.get("response_schema") or config.get("response_json_schema")
    mode = object_at(tools, "function_calling_config").get("mode")
    return bool(schema) or kind.endswith("json") or mode == "ANY"


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

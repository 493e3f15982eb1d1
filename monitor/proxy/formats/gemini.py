"""Gemini's generateContent, of the Gemini API and of Vertex AI."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from monitor.adapters.google.stream import GoogleAdapter
from monitor.adapters.parts import CamelView
from monitor.adapters.sdk_errors import GOOGLE
from monitor.chunks import NO_USAGE, Usage
from monitor.models import ModelError
from monitor.proxy.formats import framing as sse
from monitor.proxy.formats import wire as wires
from monitor.proxy.formats.base import Beginning, Frame, JudgedRequest, to_bytes
from monitor.proxy.formats.wire import AnswerState
from monitor.wires.fields import instructions_of, object_at, objects_at, snake

_CALLED: Final = re.compile(r"/models/([^/:]+):(generateContent|streamGenerateContent)\Z", re.IGNORECASE)


class GeminiAnswer(wires.ChoiceAnswer):
    """One streamed answer, in server-sent events or in a JSON array.

    The SDK reads a comment as broken JSON. So there is none, and our reason is the `finishMessage`
    of the last chunk.
    """

    form = "gemini"
    adapter = GoogleAdapter
    choices, finish_reason, counts = "candidates", "finishReason", "usageMetadata"

    def __init__(self, asked: JudgedRequest) -> None:
        super().__init__(asked, sse.ArrayReader() if asked.array else None)
        self._head: dict[str, Any] = {"modelVersion": asked.model}
        """The fields that all chunks of the answer have alike."""
        self._told_any = False

    def _failure(self, value: Mapping[str, Any]) -> ModelError:
        return GOOGLE.reported(value["error"])

    def _viewed(self, value: Mapping[str, Any]) -> object:
        first = super()._viewed(value)
        return CamelView(first) if isinstance(first, Mapping) else first

    def _note(self, state: AnswerState, value: Mapping[str, Any]) -> None:
        was_half = state.call_is_half
        super()._note(state, value)
        state.blocked = state.blocked or bool(object_at(value, "promptFeedback").get("blockReason"))
        state.call_began = state.call_began and not was_half

    def _note_choice(self, state: AnswerState, index: int, choice: Mapping[str, Any]) -> None:
        """A call comes whole, unless its part says that more of it follows."""
        for part in objects_at(object_at(choice, "content"), "parts"):
            if part.get("text") and not part.get("thought"):
                state.texted.add(index)
            if call := object_at(part, "functionCall"):
                state.called.add(index)
                (state.write if call.get("willContinue") is True else state.whole)(index)

    def sent(self, frame: Frame) -> None:
        """The last bracket of an array has no value."""
        super().sent(frame)
        self._told_any = self._told_any or frame.data is not None
        self.client.over = self.client.over or (self.asked.array and frame.event == sse.END)

    def _told(self, value: Mapping[str, Any]) -> None:
        self._head |= {name: value[name] for name in ("modelVersion", "responseId", "usageMetadata") if value.get(name)}

    @property
    def over(self) -> bool:
        return self.client.over or (self.client.is_complete and not self.asked.array)

    def _end(self, reason: str, usage: Usage, sentence: str) -> bytes:
        if self.client.is_complete:
            return b"]"
        candidates = [self._last(index, reason, sentence) for index in self._open_choices]
        counts = {} if usage == NO_USAGE else {"usageMetadata": _usage(usage)}
        return self._written({"candidates": candidates, **self._head, **counts})

    def _last(self, index: int, reason: str, sentence: str) -> dict[str, Any]:
        # A content with empty text would stand in the client's next request, and be refused there.
        words = wires.after_text(sentence, begun=index in self.client.texted)
        content = {"content": {"parts": [{"text": words}], "role": "model"}} if sentence else {}
        return {**content, "finishReason": "MAX_TOKENS", "finishMessage": reason, "index": index}

    def _error(self, reason: str, status: int) -> bytes:
        return self._written(wires.error_of(self.form, status, reason))

    def _written(self, chunk: Mapping[str, Any]) -> bytes:
        if not self.asked.array:
            return sse.event(chunk)
        return (b"," if self._told_any else b"[") + to_bytes(chunk) + b"]"

    def comment(self, text: str) -> bytes:
        """White space, because the SDK reads a comment as broken JSON."""
        return b"\n"


class GeminiWire(wires.Wire):
    """`POST .../models/{model}:generateContent` and `:streamGenerateContent`."""

    form = "gemini"
    answers = GeminiAnswer

    def _asked(self, path: str, request: Mapping[str, Any], known: Beginning | None) -> JudgedRequest:
        where, _, query = path.partition("?")
        called = _CALLED.search(unquote(where))
        if called is None:
            raise wires.CannotJudge(f"the path {where!r} names no model")
        streams = called[2].lower() == "streamgeneratecontent"
        snaked = snake(request)
        config = snake(snaked.get("generation_config"))
        wires.check_choices(config, "candidate_count")
        contents = request.get("contents")
        records = [contents] if isinstance(contents, dict) else wires.records_at(request, "contents")
        return replace(
            self._conversation(records, known),
            model=called[1],
            streams=streams,
            instructions=instructions_of(snaked.get("system_instruction")) or None,
            tools=wires.tools_at(request, "tools"),
            max_output_tokens=wires.count_at(config, "max_output_tokens"),
            structured=_is_structured(config, object_at(snaked, "tool_config")),
            array=streams and parse_qs(query).get("alt") != ["sse"],
        )

    def answer(self, asked: JudgedRequest, beginning: bytes) -> GeminiAnswer | None:
        if sse.is_event_stream(beginning):
            return GeminiAnswer(replace(asked, array=False))
        if beginning.startswith(b"[") or (asked.array and beginning.startswith(b"{")):
            return GeminiAnswer(replace(asked, array=True))
        return None


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

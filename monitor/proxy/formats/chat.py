"""OpenAI's chat completions, which many services speak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monitor.adapters.openai.errors import reported
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.chunks import NO_USAGE, Chunk, Usage
from monitor.proxy.formats import framing as sse
from monitor.proxy.formats.base import (
    DONE,
    Frame,
    FrameContent,
    HalfCalls,
    JudgedRequest,
    Refusal,
    WireAnswer,
    decoded,
    parsed,
    parsed_object,
    read_whole,
)
from monitor.proxy.formats.requests import (
    CODE,
    RequestFields,
    Wire,
    behind,
    check_choices,
    count_at,
    first_choice,
    further_choices,
    history,
    is_structured,
    model_at,
    openai_error,
    records_at,
    refused,
    tools_at,
    truth_at,
    whole_at,
)
from monitor.wires.fields import object_at, objects_at


class ChatWire(Wire):
    """The format of `POST .../chat/completions`."""

    form = "openai-chat"

    def _asked(self, path: str, fields: RequestFields) -> JudgedRequest:
        request = fields.value
        check_choices(request, "n")
        messages, instructions = history(self.form, records_at(request, "messages"), fields)
        return JudgedRequest(
            form=self.form,
            model=model_at(request, path),
            streams=truth_at(request, "stream"),
            messages=messages,
            instructions=instructions,
            system_messages=instructions,
            tools=tools_at(request) | tools_at(request, "functions"),
            max_output_tokens=count_at(request, "max_completion_tokens", "max_tokens"),
            structured=is_structured(object_at(request, "response_format").get("type"), request.get("tool_choice")),
            wants_usage=object_at(request, "stream_options").get("include_usage") is True,
        )

    def stream(self, asked: JudgedRequest) -> ChatAnswer:
        return ChatAnswer(asked)

    def whole(self, asked: JudgedRequest, body: bytes) -> FrameContent:
        answer = parsed_object(body)
        if isinstance(answer, FrameContent):
            return answer
        if "error" in answer and "choices" not in answer:
            return failed(answer)
        choices = [
            {**choice, "delta": choice.get("message"), "message": None} for choice in objects_at(answer, "choices")
        ]
        return read_whole(self.stream(asked), {**answer, "choices": choices})

    def refusal(self, reason: str, *, status: int = 429, code: str = CODE) -> Refusal:
        return refused(status, openai_error(status, reason, code))


class ChatAnswer(WireAnswer):
    """One chat completion that comes as a stream."""

    def __init__(self, asked: JudgedRequest) -> None:
        super().__init__(asked, sse.SseReader(), OpenAIAdapter(), ChatCalls())
        self._last: Mapping[str, Any] = {}
        """The last chunk. Its head is that of all chunks."""
        self._begun: set[int] = set()
        """The choices that the client knows."""
        self._texted: set[int] = set()
        """The choices with text."""
        self._finished: set[int] = set()
        self._calling: set[int] = set()
        """The choices in which a call was begun."""
        self._others: dict[int, OpenAIAdapter] = {}
        """The readers of further choices."""
        self._usage_told = False
        self._ended = False

    def _heard(self, frame: Frame) -> FrameContent:
        if isinstance(frame.value, dict) and frame.value.get("error"):
            return failed(frame.value)
        return super()._heard(frame)

    def _item(self, frame: Frame) -> object:
        return first_choice(frame.value, "choices") if isinstance(frame.value, dict) else frame.value

    def others(self, frame: Frame) -> Mapping[int, Sequence[Chunk]]:
        return further_choices(frame.value, "choices", self._of_other) if isinstance(frame.value, dict) else {}

    def _of_other(self, index: int, chunk: Mapping[str, Any]) -> Sequence[Chunk]:
        adapter = self._others.setdefault(index, OpenAIAdapter(index))
        return decoded(adapter, {**chunk, "usage": None}).chunks

    def _told(self, frame: Frame) -> None:
        if frame.data is not None and frame.data.startswith(DONE):
            self._ended = True
        chunk = frame.value
        if not isinstance(chunk, dict):
            return
        if chunk.get("error"):
            self._ended = True
        if chunk.get("usage"):
            self._usage_told = True
        if chunk.get("choices"):
            self._last = chunk
        for choice in objects_at(chunk, "choices"):
            index, delta = choice.get("index"), object_at(choice, "delta")
            index = index if type(index) is int else 0
            self._begun.add(index)
            if delta.get("content"):
                self._texted.add(index)
            if delta.get("tool_calls") or delta.get("function_call"):
                self._calling.add(index)
            if choice.get("finish_reason"):
                self._finished.add(index)

    @property
    def over(self) -> bool:
        """Some services leave `[DONE]` out."""
        return self._ended or bool(self._finished and self._finished >= self._begun)

    @property
    def _closed(self) -> bool:
        return self._ended

    @property
    def _calls_open(self) -> bool:
        return not self._calling <= self._finished

    def _end(self, reason: str, usage: Usage, sentence: str) -> bytes:
        open_choices = sorted((self._begun or {0}) - self._finished)
        ends = [self._chunk([self._said(index, sentence)]) for index in open_choices if sentence]
        ends += [self._chunk([self._choice(index, said=bool(sentence))]) for index in open_choices]
        if self.asked.wants_usage and not self._usage_told and usage != NO_USAGE:
            ends.append(self._chunk([]) | {"usage": _usage(usage)})
        return b"".join([sse.comment(reason), *map(sse.event, ends), b"data: [DONE]\n\n"])

    def _said(self, index: int, sentence: str) -> dict[str, Any]:
        role = {} if index in self._begun else {"role": "assistant"}
        delta = role | {"content": behind(sentence, begun=index in self._texted)}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def _choice(self, index: int, *, said: bool) -> dict[str, Any]:
        delta = {} if said or index in self._begun else {"role": "assistant", "content": ""}
        finish = "length" if self.asked.structured else "stop"
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._last.get("id") or "chatcmpl-agent-monitor",
            "object": "chat.completion.chunk",
            "created": self._last.get("created") or 0,
            "model": self._last.get("model") or self.asked.model,
            "choices": choices,
        }

    def _error(self, reason: str, status: int) -> bytes:
        return sse.comment(reason) + sse.event(openai_error(status, reason, CODE))

    def comment(self, text: str) -> bytes:
        return sse.comment(text)


class ChatCalls(HalfCalls):
    """A call is whole when its choice ends, or when another one begins behind whole arguments."""

    def __init__(self) -> None:
        super().__init__()
        self._half: dict[tuple[int, int], list[str]] = {}

    def follow(self, value: Mapping[str, Any]) -> None:
        self.began = False
        for choice in objects_at(value, "choices"):
            at, delta = whole_at(choice, "index"), object_at(choice, "delta")
            calls = objects_at(delta, "tool_calls")
            calls += [{"function": call} for call in (delta.get("function_call"),) if isinstance(call, dict)]
            for call in calls:
                place = at, whole_at(call, "index")
                if place not in self._half:
                    self.began = self.began or all(map(_is_json, self._half.values()))
                arguments = object_at(call, "function").get("arguments")
                self._half.setdefault(place, []).append(arguments if isinstance(arguments, str) else "")
            if choice.get("finish_reason"):
                self._half = {place: pieces for place, pieces in self._half.items() if place[0] != at}
        self.open = bool(self._half)


def _is_json(pieces: list[str]) -> bool:
    try:
        parsed("".join(pieces) or "{}")
    except ValueError:
        return False
    return True


def failed(value: Mapping[str, Any]) -> FrameContent:
    """The error that a service reports in place of an answer, or inside one."""
    error = value.get("error")
    fields = error if isinstance(error, dict) else {"message": error}
    return FrameContent(failure=reported(fields.get("code"), fields.get("message"), type_=fields.get("type")))


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }

"""OpenAI's chat completions, which many services speak."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.adapters.sdk_errors import OPENAI
from monitor.chunks import NO_USAGE, Usage
from monitor.models import ModelError
from monitor.proxy.formats import framing as sse
from monitor.proxy.formats import wire as wires
from monitor.proxy.formats.base import Beginning, Frame, JudgedRequest, whole_at
from monitor.proxy.formats.wire import DONE, AnswerState
from monitor.wires.fields import object_at, objects_at


class ChatAnswer(wires.ChoiceAnswer):
    """One chat completion that comes as a stream."""

    form = "openai-chat"
    adapter = OpenAIAdapter
    choices, finish_reason, counts = "choices", "finish_reason", "usage"

    def __init__(self, asked: JudgedRequest) -> None:
        super().__init__(asked)
        self._last: Mapping[str, Any] = {}
        """The last chunk. Its head is that of all chunks."""
        self._usage_told = False

    def _failure(self, value: Mapping[str, Any]) -> ModelError:
        return failed(value)

    def _note_choice(self, state: AnswerState, index: int, choice: Mapping[str, Any]) -> None:
        """A call is whole when its choice ends, or another one begins behind whole arguments."""
        delta = object_at(choice, "delta")
        if delta.get("content"):
            state.texted.add(index)
        calls = objects_at(delta, "tool_calls")
        if isinstance(old := delta.get("function_call"), dict):
            calls.append({"function": old})
        for call in calls:
            arguments = object_at(call, "function").get("arguments")
            state.called.add(index)
            state.write(index, whole_at(call, "index"), arguments if isinstance(arguments, str) else "")

    def _events_of(self, value: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        if "error" in value and "choices" not in value:
            return ({"error": value["error"] or True},)
        choices = [{**one, "delta": one.get("message"), "message": None} for one in objects_at(value, "choices")]
        return ({**value, "choices": choices},)

    def sent(self, frame: Frame) -> None:
        super().sent(frame)
        self.client.over = self.client.over or (frame.data or "").startswith(DONE)

    def _told(self, value: Mapping[str, Any]) -> None:
        self._usage_told = self._usage_told or bool(value.get("usage"))
        if value.get("choices"):
            self._last = value

    @property
    def over(self) -> bool:
        """Some services leave `[DONE]` out."""
        return self.client.over or self.client.is_complete

    @property
    def _closed(self) -> bool:
        return self.client.over

    def _end(self, reason: str, usage: Usage, sentence: str) -> bytes:
        ends = [self._chunk([self._said(index, sentence)]) for index in self._open_choices if sentence]
        ends += [self._chunk([self._choice(index, said=bool(sentence))]) for index in self._open_choices]
        if self.asked.wants_usage and not self._usage_told and usage != NO_USAGE:
            ends.append(self._chunk([]) | {"usage": _usage(usage)})
        return b"".join([sse.comment(reason), *map(sse.event, ends), b"data: [DONE]\n\n"])

    def _said(self, index: int, sentence: str) -> dict[str, Any]:
        role = {} if index in self.client.begun else {"role": "assistant"}
        delta = role | {"content": wires.after_text(sentence, begun=index in self.client.texted)}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def _choice(self, index: int, *, said: bool) -> dict[str, Any]:
        delta = {} if said or index in self.client.begun else {"role": "assistant", "content": ""}
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


class ChatWire(wires.Wire):
    """The format of `POST .../chat/completions`."""

    form = "openai-chat"
    answers = ChatAnswer

    def _asked(self, path: str, request: Mapping[str, Any], known: Beginning | None) -> JudgedRequest:
        wires.check_choices(request, "n")
        kind = object_at(request, "response_format").get("type")
        return replace(
            self._conversation(wires.records_at(request, "messages"), known),
            model=wires.model_at(request, path),
            streams=wires.truth_at(request, "stream"),
            tools=wires.tools_at(request, "tools", "functions"),
            max_output_tokens=wires.count_at(request, "max_completion_tokens", "max_tokens"),
            structured=wires.is_structured(kind, request.get("tool_choice")),
            wants_usage=object_at(request, "stream_options").get("include_usage") is True,
        )


def failed(value: Mapping[str, Any]) -> ModelError:
    """The error that a service reports in place of an answer, or inside one."""
    error = value.get("error")
    fields = error if isinstance(error, dict) else {"message": error}
    return OPENAI.reported(fields.get("code"), fields.get("message"), type_=fields.get("type"))


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }

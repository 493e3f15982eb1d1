"""The wire format of Anthropic's messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from monitor.adapters.anthropic.stream import AnthropicAdapter
from monitor.proxy.formats import sse
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
)
from monitor.proxy.formats.refusals import ANTHROPIC_TYPES, CODE, refused, type_of
from monitor.proxy.formats.requests import count_at, history, judged, model_at, records_at, tools_at, truth_at
from monitor.proxy.formats.view import JsonView
from monitor.usage import Usage
from monitor.wires.fields import object_at, objects_at
from monitor.wires.forms import Form
from monitor.wires.request import instructions_of

_CALLS: Final = "tool_use"
"""The last word of the types of all blocks that are calls, the service's own calls too."""


class AnthropicWire:
    """The format of `POST .../v1/messages`."""

    form: Form = "anthropic"

    def asked(self, path: str, body: bytes) -> JudgedRequest | Unjudged:
        return judged(body, self._asked)

    def _asked(self, request: Mapping[str, Any]) -> JudgedRequest:
        messages, instructions = history(self.form, records_at(request, "messages"))
        return JudgedRequest(
            form=self.form,
            model=model_at(request),
            streams=truth_at(request, "stream"),
            messages=messages,
            instructions=instructions_of(request.get("system")) or instructions,
            tools=tools_at(request),
            max_output_tokens=count_at(request, "max_tokens"),
        )

    def answer(self, asked: JudgedRequest, content_type: str) -> AnthropicAnswer | None:
        return AnthropicAnswer(asked) if sse.is_event_stream(content_type) else None

    def whole(self, asked: JudgedRequest, body: bytes) -> FrameContent:
        message = parsed_object(body)
        if isinstance(message, FrameContent):
            return message
        adapter = AnthropicAdapter()
        if message.get("type") == "error":
            return decoded(adapter, JsonView(message))
        events = ({"type": "message_start", "message": message}, {"type": "message_stop"})
        return joined([decoded(adapter, JsonView(event)) for event in events])

    def refusal(self, reason: str, *, status: int = 429, code: str = CODE) -> Refusal:
        return refused(status, _error(status, reason))


class AnthropicAnswer(WireAnswer):
    """One message that comes as a stream."""

    def __init__(self, asked: JudgedRequest) -> None:
        super().__init__(asked, sse.SseReader(), AnthropicAdapter())
        self._begun = False
        self._blocks: dict[int, str] = {}
        """The open blocks that the client knows: their types, by index."""
        self._called = False
        """Whether the message has a call of the caller's tools."""
        self._stopped = False
        """Whether the client knows a stop reason."""
        self._ended = False

    def _item(self, frame: Frame) -> object:
        return JsonView(frame.value) if isinstance(frame.value, dict) else frame.value

    def _told(self, frame: Frame) -> None:
        event = frame.value
        if not isinstance(event, dict):
            return
        index = event.get("index")
        index = index if type(index) is int else 0
        match event.get("type"):
            case "message_start":
                # The SDK adds a further message of the stream to the first one, with its calls.
                message = object_at(event, "message")
                self._begun, self._ended, self._stopped = True, False, bool(message.get("stop_reason"))
                for block in objects_at(message, "content"):
                    self._called = self._called or block.get("type") == _CALLS
            case "content_block_start":
                kind = str(object_at(event, "content_block").get("type"))
                self._blocks[index] = kind
                self._called = self._called or kind == _CALLS
            case "content_block_stop":
                self._blocks.pop(index, None)
            case "message_delta" if object_at(event, "delta").get("stop_reason"):
                self._stopped = True
            case "message_stop" | "error":
                self._ended = True

    @property
    def over(self) -> bool:
        return self._ended

    @property
    def _calls_open(self) -> bool:
        return not self._stopped and (self._called or any(kind.endswith(_CALLS) for kind in self._blocks.values()))

    def _end(self, reason: str, usage: Usage) -> bytes:
        events: list[dict[str, Any]] = []
        if not self._begun:
            events.append({"type": "message_start", "message": self._empty(usage)})
        events += ({"type": "content_block_stop", "index": index} for index in sorted(self._blocks))
        if not self._stopped:
            delta = {"stop_reason": "end_turn", "stop_sequence": None}
            counts = {"output_tokens": usage.output_tokens}
            events.append({"type": "message_delta", "delta": delta, "usage": counts})
        events.append({"type": "message_stop"})
        return sse.comment(reason) + b"".join(sse.event(event, event["type"]) for event in events)

    def _empty(self, usage: Usage) -> dict[str, Any]:
        return {
            "id": "msg_agent_monitor",
            "type": "message",
            "role": "assistant",
            "model": self.asked.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": usage.input_tokens, "output_tokens": 0},
        }

    def _error(self, reason: str, status: int) -> bytes:
        return sse.comment(reason) + sse.event(_error(status, reason), "error")

    def comment(self, text: str) -> bytes:
        return sse.comment(text)


def _error(status: int, reason: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": type_of(status, ANTHROPIC_TYPES, "api_error"), "message": reason}}

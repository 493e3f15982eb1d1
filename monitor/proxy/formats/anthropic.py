"""The wire format of Anthropic's messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from monitor.adapters.anthropic.stream import AnthropicAdapter
from monitor.adapters.parts import JsonView
from monitor.chunks import Usage
from monitor.proxy.formats import framing as sse
from monitor.proxy.formats.base import (
    Frame,
    FrameContent,
    Framing,
    HalfCalls,
    JudgedRequest,
    Refusal,
    WireAnswer,
    decoded,
    joined,
    parsed,
    parsed_object,
    to_bytes,
)
from monitor.proxy.formats.requests import (
    ANTHROPIC_TYPES,
    CODE,
    RequestFields,
    Wire,
    behind,
    count_at,
    history,
    is_structured,
    model_at,
    records_at,
    refused,
    tools_at,
    truth_at,
    type_of,
    whole_at,
)
from monitor.wires.fields import instructions_of, object_at, objects_at

_STREAMS: Final = re.compile(r":streamRawPredict(?:\?|\Z)", re.IGNORECASE)
"""The end of a path of Vertex AI that always streams."""
CUT_OFF: Final = "agent-monitor:cut-off"
"""The signature of a thought that was cut off by us. It is taken out of later requests."""
_CALLS: Final = "tool_use"
"""The last word of the types of all blocks that are calls, the service's own calls too."""


class AnthropicWire(Wire):
    """The format of `POST .../v1/messages`."""

    form = "anthropic"

    def _asked(self, path: str, fields: RequestFields) -> JudgedRequest:
        request = fields.value
        messages, instructions = history(self.form, records_at(request, "messages"), fields)
        return JudgedRequest(
            form=self.form,
            model=model_at(request, path),
            streams=truth_at(request, "stream") or _STREAMS.search(path) is not None,
            messages=messages,
            instructions=instructions_of(request.get("system")) or instructions,
            system_messages=instructions,
            tools=tools_at(request),
            max_output_tokens=count_at(request, "max_tokens"),
            structured=is_structured(_format_in(request), request.get("tool_choice")),
        )

    def stream(self, asked: JudgedRequest) -> AnthropicAnswer:
        return AnthropicAnswer(asked)

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

    def __init__(self, asked: JudgedRequest, framing: Framing | None = None) -> None:
        super().__init__(asked, framing or sse.SseReader(), AnthropicAdapter(), AnthropicCalls())
        self._begun = False
        self._blocks: dict[int, str] = {}
        """The open blocks that the client knows: their types, by index."""
        self._places = 0
        """The number of blocks that the client knows."""
        self._texted: set[int] = set()
        """The blocks with text."""
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
                self._places = max(self._places, index + 1)
                self._called = self._called or kind == _CALLS
            case "content_block_delta" if object_at(event, "delta").get("text"):
                self._texted.add(index)
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

    def _end(self, reason: str, usage: Usage, sentence: str) -> bytes:
        events: list[dict[str, Any]] = []
        delta: dict[str, Any]
        if not self._begun:
            events.append({"type": "message_start", "message": self._empty(usage)})
        speaks = sentence and not self._stopped
        at = next((index for index, kind in sorted(self._blocks.items()) if kind == "text"), None)
        if speaks and at is not None:
            events.append(_text_delta(at, behind(sentence, begun=at in self._texted)))
        for index, kind in sorted(self._blocks.items()):
            if kind == "thinking":
                delta = {"type": "signature_delta", "signature": CUT_OFF}
                events.append({"type": "content_block_delta", "index": index, "delta": delta})
            events.append({"type": "content_block_stop", "index": index})
        if speaks and at is None:
            block = {"type": "text", "text": ""}
            events += (
                {"type": "content_block_start", "index": self._places, "content_block": block},
                _text_delta(self._places, sentence),
                {"type": "content_block_stop", "index": self._places},
            )
        if not self._stopped:
            delta = {"stop_reason": "max_tokens" if self.asked.structured else "end_turn", "stop_sequence": None}
            counts = {"output_tokens": usage.output_tokens}
            events.append({"type": "message_delta", "delta": delta, "usage": counts})
        events.append({"type": "message_stop"})
        return self._written(reason, events)

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
        return self._written(reason, [_error(status, reason)])

    def _written(self, reason: str, events: Sequence[dict[str, Any]]) -> bytes:
        """The last events of an answer, with the `reason` beside them."""
        return sse.comment(reason) + b"".join(sse.event(event, event["type"]) for event in events)

    def comment(self, text: str) -> bytes:
        return sse.comment(text)


class AnthropicCalls(HalfCalls):
    """A call is whole when its block is closed."""

    def __init__(self) -> None:
        super().__init__()
        self._half: set[int] = set()

    def follow(self, value: Mapping[str, Any]) -> None:
        self.began = False
        kind, at = value.get("type"), whole_at(value, "index")
        if kind == "content_block_start" and str(object_at(value, "content_block").get("type")).endswith(_CALLS):
            self.began = not self._half
            self._half.add(at)
        elif kind == "content_block_stop":
            self._half.discard(at)
        elif kind in ("message_stop", "error"):
            self._half.clear()
        self.open = bool(self._half)


def has_cut_thoughts(body: bytes) -> bool:
    """Whether the mark of a thought that we have cut off stands in the request."""
    return CUT_OFF.encode() in body


def without_cut_thoughts(body: bytes) -> bytes:
    """The request without the thoughts that we have cut off: no service has signed them."""
    try:
        request = parsed(body)
    except ValueError:
        return body
    messages: Any = request.get("messages") if isinstance(request, dict) else None
    for message in messages if isinstance(messages, list) else ():
        blocks = message.get("content") if isinstance(message, dict) else None
        if isinstance(blocks, list):
            blocks[:] = [one for one in blocks if not (isinstance(one, dict) and _signature_of(one) == CUT_OFF)]
    return to_bytes(request)


def _signature_of(block: Mapping[str, Any]) -> object:
    """The signature of a thought, in the form of Anthropic or of Bedrock's `converse`."""
    text = object_at(object_at(block, "reasoningContent"), "reasoningText")
    return text.get("signature") if text else block.get("signature")


def _format_in(request: Mapping[str, Any]) -> object:
    where = object_at(request, "output_format") or object_at(object_at(request, "output_config"), "format")
    return where.get("type")


def _text_delta(index: int, words: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": words}}


def _error(status: int, reason: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": type_of(status, ANTHROPIC_TYPES, "api_error"), "message": reason}}

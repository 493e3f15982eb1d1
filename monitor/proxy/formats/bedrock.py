"""Bedrock: its binary streams, and its own form of a conversation (`converse`). Both are read and
written as the events of Anthropic's messages.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote

from monitor.chunks import NO_USAGE
from monitor.proxy.formats import wire as wires
from monitor.proxy.formats.anthropic import AnthropicAnswer, AnthropicWire
from monitor.proxy.formats.base import (
    Beginning,
    FrameContent,
    JudgedRequest,
    Refusal,
    Unjudged,
    parsed,
    to_bytes,
    whole_at,
)
from monitor.proxy.formats.framing import MEDIA_TYPE, EventStreamReader, Message, encoded
from monitor.proxy.formats.wire import CODE
from monitor.wires.fields import object_at, objects_at

_ERRORS: Final = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    408: "ModelTimeoutException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}
_EVENT_BLOCK: Final = "contentBlockIndex"
Event = dict[str, Any]


class BedrockAnswer(AnthropicAnswer):
    """A stream of binary messages, each with one event of Anthropic's."""

    media_type = MEDIA_TYPE

    def __init__(self, asked: JudgedRequest) -> None:
        super().__init__(asked, EventStreamReader(self._texts))

    def _texts(self, message: Message) -> list[str]:
        return [json.dumps(event) for event in self._events(message)]

    def _events(self, message: Message) -> Sequence[Event]:
        """The events in a message. Raises `ValueError`."""
        value = parsed(message.payload or b"{}")
        if not isinstance(value, dict):
            raise ValueError("no object")
        if message.headers.get(":message-type") in {"exception", "error"}:
            kind = message.headers.get(":exception-type") or message.headers.get(":error-code") or "error"
            said = value.get("message") or message.headers.get(":error-message") or kind
            return [{"type": "error", "error": {"type": _ERROR_TYPES.get(kind.lower(), "api_error"), "message": said}}]
        return self._said(message.headers.get(":event-type", ""), value)

    def _said(self, kind: str, value: Event) -> Sequence[Event]:
        event = parsed(b64decode(value["bytes"])) if isinstance(value.get("bytes"), str) else None
        return [event] if isinstance(event, dict) else []

    def _written(self, reason: str, events: Sequence[Event]) -> bytes:
        if not self.asked.streams:
            return super()._written(reason, events)
        return b"".join(self._message(event, reason) for event in events)

    def _message(self, event: Event, reason: str) -> bytes:
        if event["type"] == "error":
            kind = (
                "validationException"
                if event["error"]["type"] == "invalid_request_error"
                else "modelStreamErrorException"
            )
            return _written({":exception-type": kind, ":message-type": "exception"}, {"message": reason})
        return self._event(event, reason)

    def _event(self, event: Event, reason: str) -> bytes:
        return _event("chunk", {"bytes": b64encode(to_bytes(event)).decode()})

    def comment(self, text: str) -> bytes:
        return super().comment(text) if not self.asked.streams else b""


class ConverseAnswer(BedrockAnswer):
    """The stream of `converse`, whose events are those of Anthropic's by other names. The block of
    a text has no beginning there, and the usage comes behind the end.
    """

    def __init__(self, asked: JudgedRequest) -> None:
        super().__init__(asked)
        self._opened: set[int] = set()
        """The blocks whose beginning was read."""

    @property
    def over(self) -> bool:
        return self.client.over or bool(self.client.finished)

    def whole(self, value: Mapping[str, Any]) -> FrameContent:
        message = object_at(object_at(value, "output"), "message")
        if not message:
            return FrameContent(unread="the answer has no message")
        usage = _usage_read(object_at(value, "usage"))
        return super().whole({**_record(message), "stop_reason": value.get("stopReason"), "usage": usage})

    def in_one_piece(self, merged: Mapping[str, Any]) -> Mapping[str, Any]:
        if "error" in merged:
            return merged
        content = [{"text": block["text"]} for block in objects_at(merged, "content") if block.get("type") == "text"]
        usage = _usage_written(object_at(merged, "usage"))
        message = {"role": "assistant", "content": content}
        return {
            "output": {"message": message},
            "stopReason": merged.get("stop_reason"),
            "usage": usage,
            "metrics": {"latencyMs": 0},
        }

    def _said(self, kind: str, value: Event) -> Sequence[Event]:
        at = whole_at(value, _EVENT_BLOCK)
        match kind:
            case "contentBlockStart":
                self._opened.add(at)
                call = object_at(object_at(value, "start"), "toolUse")
                return [_start(at, _call(call) if call else {"type": "text", "text": ""})]
            case "contentBlockDelta":
                return [*self._delta(at, object_at(value, "delta"))]
            case "messageStop":
                return [{"type": "message_delta", "delta": {"stop_reason": value.get("stopReason") or "end_turn"}}]
            case "metadata":
                usage = _usage_read(object_at(value, "usage"))
                return [{"type": "message_delta", "delta": {}, "usage": usage}, {"type": "message_stop"}]
            case _:
                return [{**_PLAIN[kind], "index": at}] if kind in _PLAIN else []

    def _delta(self, at: int, delta: Mapping[str, Any]) -> Iterator[Event]:
        if at not in self._opened:
            self._opened.add(at)
            thinks = {"type": "thinking", "thinking": "", "signature": ""}
            yield _start(at, thinks if object_at(delta, "reasoningContent") else {"type": "text", "text": ""})
        for holder, name, kind, field in _PIECES:
            piece = (object_at(delta, holder) if holder else delta).get(name)
            if isinstance(piece, str):
                yield {"type": "content_block_delta", "index": at, "delta": {"type": kind, field: piece}}

    def _event(self, event: Event, reason: str) -> bytes:
        at, delta = {_EVENT_BLOCK: event.get("index")}, object_at(event, "delta")
        match event["type"]:
            case "message_start":
                return _event("messageStart", {"role": "assistant"})
            case "content_block_delta":
                said = {"text": delta["text"]} if "text" in delta else {"signature": delta["signature"]}
                return _event(
                    "contentBlockDelta", {**at, "delta": said if "text" in said else {"reasoningContent": said}}
                )
            case "content_block_stop":
                return _event("contentBlockStop", at)
            case "message_delta":
                more = {"additionalModelResponseFields": {CODE: reason}}
                return _event("messageStop", {"stopReason": delta["stop_reason"], **more})
            case "message_stop" if self.usage != NO_USAGE:
                counts = {"input_tokens": self.usage.input_tokens, "output_tokens": self.usage.output_tokens}
                return _event("metadata", {"usage": _usage_written(counts), "metrics": {"latencyMs": 0}})
            case _:
                return b""  # the beginning of a text, or a usage that is not known


_PLAIN: Final[Mapping[str, Event]] = {
    "messageStart": {"type": "message_start", "message": {"role": "assistant", "content": []}},
    "contentBlockStop": {"type": "content_block_stop"},
}
"""Events of `converse` that say nothing but their kind and their block, as those of Anthropic."""
_PIECES: Final = (
    ("", "text", "text_delta", "text"),
    ("toolUse", "input", "input_json_delta", "partial_json"),
    ("reasoningContent", "text", "thinking_delta", "thinking"),
    ("reasoningContent", "signature", "signature_delta", "signature"),
)
"""Where a piece of a block stands in `converse`, and its kind and its field in Anthropic's form."""


class BedrockWire(AnthropicWire):
    """`POST .../model/{model}/invoke` and `/invoke-with-response-stream`: models of Anthropic."""

    answers = BedrockAnswer

    def asked(self, path: str, body: bytes, known: Beginning | None = None) -> JudgedRequest | Unjudged:
        asked = super().asked(path, body, known)
        return asked if isinstance(asked, Unjudged) else _of_path(asked, path)

    def answer(self, asked: JudgedRequest, beginning: bytes) -> wires.WireAnswer | None:
        return self.stream(asked) if _is_binary(beginning) else super().answer(asked, beginning)

    def refusal(self, reason: str, *, status: int = 429, code: str = CODE) -> Refusal:
        said = wires.refused(status, {"message": reason})
        return replace(said, headers={**said.headers, "x-amzn-errortype": wires.type_of(status, _ERRORS, *_OTHERS)})


_OTHERS: Final = ("InternalServerException", "ValidationException")
"""The words for a failure of the service and of the client with another status."""


class ConverseWire(BedrockWire):
    """`POST .../model/{model}/converse` and `/converse-stream`."""

    answers = ConverseAnswer

    def _asked(self, path: str, request: Mapping[str, Any], known: Beginning | None) -> JudgedRequest:
        """The model and the switch for streams stand in the path."""
        records = [_record(one) for one in wires.records_at(request, "messages")]
        conversation = self._conversation(records, known)
        said = "\n".join(str(one.get("text") or "") for one in objects_at(request, "system"))
        tools = object_at(request, "toolConfig")
        names = [object_at(one, "toolSpec").get("name") for one in objects_at(tools, "tools")]
        return replace(
            conversation,
            instructions=said or conversation.instructions,
            tools=frozenset(name for name in names if isinstance(name, str)),
            max_output_tokens=wires.count_at(object_at(request, "inferenceConfig"), "maxTokens"),
            structured=bool(object_at(tools, "toolChoice").keys() & {"any", "tool"}),
        )


_ERROR_TYPES: Final = {
    "throttlingexception": "rate_limit_error",
    "validationexception": "invalid_request_error",
    "serviceunavailableexception": "overloaded_error",
    "modeltimeoutexception": "timeout_error",
}


def _of_path(asked: JudgedRequest, path: str) -> JudgedRequest:
    """What the path says: the model, which may have `/` in its name, and whether it streams."""
    before, _, last = unquote(path.partition("?")[0]).rpartition("/")
    return replace(asked, model=before.rpartition("/model/")[2], streams=last.lower().endswith("-stream"), fixed=True)


def _is_binary(beginning: bytes) -> bool:
    """Whether this is a binary message: it begins with its length, which is below 16 MB."""
    return beginning.startswith(b"\0")


def _record(message: Any) -> Any:
    """A message of `converse` as one of Anthropic's."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    return {"role": message.get("role"), "content": [_block(one) for one in objects_at(message, "content")]}


def _block(block: Mapping[str, Any]) -> Event:
    call, result = object_at(block, "toolUse"), object_at(block, "toolResult")
    thought = object_at(object_at(block, "reasoningContent"), "reasoningText")
    if isinstance(text := block.get("text"), str):
        return {"type": "text", "text": text}
    if call:
        return {**_call(call), "input": call.get("input")}
    if result:
        parts = [
            {
                "type": "text",
                "text": one["text"] if isinstance(one.get("text"), str) else json.dumps(one, sort_keys=True),
            }
            for one in objects_at(result, "content")
        ]
        failed = result.get("status") == "error"
        return {"type": "tool_result", "tool_use_id": result.get("toolUseId"), "content": parts, "is_error": failed}
    if thought:
        return {"type": "thinking", "thinking": thought.get("text") or "", "signature": thought.get("signature") or ""}
    return {"type": "text", "text": f"[{', '.join(map(str, block)) or 'empty'}]"}  # a picture, a document


def _call(call: Mapping[str, Any]) -> Event:
    return {"type": "tool_use", "id": call.get("toolUseId"), "name": call.get("name"), "input": {}}


def _start(at: int, block: Event) -> Event:
    return {"type": "content_block_start", "index": at, "content_block": block}


_USAGE: Final = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadInputTokens": "cache_read_input_tokens",
    "cacheWriteInputTokens": "cache_creation_input_tokens",
}


def _usage_read(usage: Mapping[str, Any]) -> Event:
    return {ours: usage[name] for name, ours in _USAGE.items() if name in usage}


def _usage_written(usage: Mapping[str, Any]) -> Event:
    read, made = whole_at(usage, "input_tokens"), whole_at(usage, "output_tokens")
    return {"inputTokens": read, "outputTokens": made, "totalTokens": read + made}


def _event(kind: str, value: Mapping[str, Any]) -> bytes:
    return _written({":event-type": kind, ":message-type": "event"}, value)


def _written(headers: Mapping[str, str], value: Mapping[str, Any]) -> bytes:
    return encoded({**headers, ":content-type": "application/json"}, to_bytes(value))

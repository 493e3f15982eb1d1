"""The wire format of Anthropic's messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from monitor.adapters.anthropic.stream import AnthropicAdapter
from monitor.adapters.parts import JsonView
from monitor.chunks import Usage
from monitor.proxy.formats import framing as sse
from monitor.proxy.formats import wire as wires
from monitor.proxy.formats.base import Beginning, JudgedRequest, parsed, to_bytes, whole_at
from monitor.proxy.formats.wire import AnswerState
from monitor.wires.fields import instructions_of, object_at, objects_at

_STREAMS: Final = re.compile(r":streamRawPredict(?:\?|\Z)", re.IGNORECASE)
"""The end of a path of Vertex AI that always streams."""
CUT_OFF: Final = "agent-monitor:cut-off"
"""The signature of a thought that was cut off by us. It is taken out of later requests."""
_CALLS: Final = "tool_use"
"""The last word of the types of all blocks that are calls, the service's own calls too."""


class AnthropicAnswer(wires.WireAnswer):
    """One message that comes as a stream. It is the choice 0 of the answer."""

    form = "anthropic"
    adapter = AnthropicAdapter

    def _viewed(self, value: Mapping[str, Any]) -> object:
        return JsonView(value)

    def _events_of(self, value: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        whole = ({"type": "message_start", "message": value}, {"type": "message_stop"})
        return (value,) if value.get("type") == "error" else whole

    def _note(self, state: AnswerState, value: Mapping[str, Any]) -> None:
        """A call is whole when its block is closed."""
        at = whole_at(value, "index")
        match value.get("type"):
            case "message_start":
                # The SDK adds a further message of the stream to the first one, with its calls.
                message = object_at(value, "message")
                state.begun, state.over = {0}, False
                state.finished = {0} if message.get("stop_reason") else set()
                if any(block.get("type") == _CALLS for block in objects_at(message, "content")):
                    state.called.add(0)
            case "content_block_start":
                kind = state.blocks[at] = str(object_at(value, "content_block").get("type"))
                state.places = max(state.places, at + 1)
                if kind == _CALLS:
                    state.called.add(0)
                if kind.endswith(_CALLS):
                    state.write(0, at)
            case "content_block_delta" if object_at(value, "delta").get("text"):
                state.texted.add(at)
            case "content_block_stop":
                state.blocks.pop(at, None)
                state.whole(0, at)
            case "message_delta" if object_at(value, "delta").get("stop_reason"):
                state.finish(0)
            case "message_stop" | "error":
                state.end()

    def _end(self, reason: str, usage: Usage, sentence: str) -> bytes:
        events: list[dict[str, Any]] = []
        delta: dict[str, Any]
        if not self.client.begun:
            events.append({"type": "message_start", "message": self._empty(usage)})
        speaks = sentence and not self.client.finished
        at = next((index for index, kind in sorted(self.client.blocks.items()) if kind == "text"), None)
        if speaks and at is not None:
            events.append(_text_delta(at, wires.after_text(sentence, begun=at in self.client.texted)))
        for index, kind in sorted(self.client.blocks.items()):
            if kind == "thinking":
                delta = {"type": "signature_delta", "signature": CUT_OFF}
                events.append({"type": "content_block_delta", "index": index, "delta": delta})
            events.append({"type": "content_block_stop", "index": index})
        if speaks and at is None:
            block = {"type": "text", "text": ""}
            events += (
                {"type": "content_block_start", "index": self.client.places, "content_block": block},
                _text_delta(self.client.places, sentence),
                {"type": "content_block_stop", "index": self.client.places},
            )
        if not self.client.finished:
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
        return self._written(reason, [wires.error_of(self.form, status, reason)])

    def _written(self, reason: str, events: Sequence[dict[str, Any]]) -> bytes:
        """The last events of an answer, with the `reason` beside them."""
        return sse.comment(reason) + b"".join(sse.event(event, event["type"]) for event in events)


class AnthropicWire(wires.Wire):
    """The format of `POST .../v1/messages`."""

    form = "anthropic"
    answers: ClassVar[type[wires.WireAnswer]] = AnthropicAnswer

    def _asked(self, path: str, request: Mapping[str, Any], known: Beginning | None) -> JudgedRequest:
        conversation = self._conversation(wires.records_at(request, "messages"), known)
        return replace(
            conversation,
            model=wires.model_at(request, path),
            streams=wires.truth_at(request, "stream") or _STREAMS.search(path) is not None,
            instructions=instructions_of(request.get("system")) or conversation.instructions,
            tools=wires.tools_at(request, "tools"),
            max_output_tokens=wires.count_at(request, "max_tokens"),
            structured=wires.is_structured(_format_in(request), request.get("tool_choice")),
        )


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

"""The content of a run as attributes: the messages of the GenAI conventions, cut to a size.

Keys of services are removed first. A text that is too long is shortened inside the JSON, so the
attribute is valid JSON at every size.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from monitor._util.codec import to_plain
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import FinishReason, without_keys
from monitor.outcome import Turn

CONTENT_CHARS: Final = 16_384
"""Characters of one attribute. Backends cut attributes at 4 to 64 KiB, in the middle of JSON."""
_SHORTEST: Final = 32
_FLAT_CALLS: Final = 16
"""Calls of a turn that OpenInference gets: it flattens them to several attributes each, and an SDK
keeps 128 attributes of a span.
"""

_FINISHES: Final[Mapping[FinishReason | None, str]] = {
    FinishReason.DONE: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.BLOCKED: "content_filter",
    FinishReason.MALFORMED: "error",
    FinishReason.REPETITION: "repetition",
    FinishReason.INTERRUPTED: "interrupted",
    FinishReason.UNKNOWN: "unknown",
    None: "error",
}


def finish_of(turn: Turn) -> str:
    """The finish reason in the words of the conventions. A turn that the end of the run cut off has
    our reason for it, which no convention has.
    """
    if turn.finish_reason is None and turn.stopped is not None and turn.model_error is None:
        return turn.stopped.reason.value
    if turn.finish_reason is FinishReason.DONE and turn.tool_calls:
        return "tool_call"
    return _FINISHES[turn.finish_reason]


def arguments_of(call: ToolCall) -> Any:
    """The arguments as JSON data without keys of services."""
    try:
        text = json.dumps(to_plain(call.arguments), ensure_ascii=False)
        return json.loads(without_keys(text))
    except (TypeError, ValueError, RecursionError):
        return "(arguments that cannot be read)"


def user_message(text: str) -> dict[str, Any]:
    """The message of a user, or of the monitor in the place of the user."""
    return {"role": "user", "parts": [{"type": "text", "content": without_keys(text)}]}


def assistant_message(turn: Turn) -> dict[str, Any]:
    """The message of the model in `turn`."""
    parts: list[dict[str, Any]] = []
    if turn.text:
        parts.append({"type": "text", "content": without_keys(turn.text)})
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments_of(call)}
        for call in turn.tool_calls
    ]
    return {"role": "assistant", "parts": parts, "finish_reason": finish_of(turn)}


def tool_message(result: ToolResult) -> dict[str, Any]:
    """The message that carries the result of a tool."""
    response = without_keys(result.text)
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": result.id, "response": response}]}


class MessageLog:
    """The messages of a run: the first, and as many of the newest as fit into four attributes."""

    def __init__(self, chars: int) -> None:
        self._chars = chars
        self._sizes: list[int] = []
        self._size = 0
        self.messages: list[dict[str, Any]] = []

    def add(self, message: dict[str, Any]) -> None:
        """The next message. Its texts are cut to the size of an attribute."""
        message = _shortened(message, self._chars)
        self.messages.append(message)
        self._sizes.append(len(_dumped(message)))
        self._size += self._sizes[-1]
        while len(self.messages) > 2 and self._size > 4 * self._chars:  # noqa: PLR2004 - see above
            self._size -= self._sizes.pop(1)
            del self.messages[1]


def fitted(value: Any, chars: int) -> str:
    """`value` as JSON of at most `chars` characters: the longest texts in it are shortened until it
    fits. If that is not enough, old messages are left out, the first and the newest stay.
    """
    text, longest = _dumped(value), chars // 2
    while len(text) > chars and longest >= _SHORTEST:
        value, longest = _shortened(value, longest), longest // 2
        text = _dumped(value)
    while len(text) > chars and isinstance(value, list) and len(value) > 1:
        value = [value[0], *value[1 + max(1, len(value) // 4) :]] if len(value) > 2 else value[1:]  # noqa: PLR2004
        text = _dumped(value)
    return text if len(text) <= chars else _dumped(f"(left out: {len(text)} characters)")


def flat_output(turn: Turn, chars: int) -> dict[str, Any]:
    """The message of the model in `turn`, in the flat form of OpenInference."""
    message = "llm.output_messages.0.message"
    flat: dict[str, Any] = {f"{message}.role": "assistant"}
    if turn.text:
        flat[f"{message}.content"] = cut(without_keys(turn.text), chars)
    for number, call in enumerate(turn.tool_calls[:_FLAT_CALLS]):
        prefix = f"{message}.tool_calls.{number}.tool_call"
        flat[f"{prefix}.id"] = call.id
        flat[f"{prefix}.function.name"] = call.name
        flat[f"{prefix}.function.arguments"] = fitted(arguments_of(call), chars)
    return flat


def cut(text: str, chars: int) -> str:
    """`text`, or its beginning with the number of characters that are left out."""
    return text if len(text) <= chars else f"{text[:chars]}... ({len(text) - chars} characters left out)"


def _shortened(value: Any, chars: int) -> Any:
    if isinstance(value, str):
        return cut(value, chars)
    if isinstance(value, list):
        return [_shortened(one, chars) for one in value]
    if isinstance(value, dict):
        return {key: _shortened(one, chars) for key, one in value.items()}
    return value


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8")

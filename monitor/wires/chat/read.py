"""Messages of OpenAI's chat completions, and of the servers that are compatible with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from monitor._util.signatures import CUSTOM
from monitor.chunks import ToolCall, ToolResult
from monitor.messages import Media, Reasoning, Text
from monitor.wires.failed import read_failed
from monitor.wires.fields import text
from monitor.wires.marked import ORIGIN, marked
from monitor.wires.plain import call, in_order, media_at, objects, role_of, words
from monitor.wires.raw import RawMessage, RawPart, Unread

ROLES: Final[Mapping[str | None, Literal["user", "assistant", "tool", "system"]]] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
    "system": "system",
    "developer": "system",
}


def read(message: Mapping[str, Any]) -> RawMessage:
    """One message of a history, with all of its parts and calls."""
    role = role_of(message, ROLES)
    content = in_order(_content(message))
    if role == "tool":
        said, shown = words(content)
        return RawMessage(
            role, (ToolResult(text(message, "tool_call_id"), text(message, "name"), *read_failed(said)), *shown)
        )
    if role == "assistant":
        return RawMessage(role, (*_thought(message), *content, *_calls(message)))
    return RawMessage(role, content)


def _content(message: Mapping[str, Any]) -> Iterator[RawPart]:
    content = message.get("content")
    if isinstance(content, str):
        yield Text(content)
        return
    for part in objects(message, "content"):
        yield part if isinstance(part, Unread) else _part(part)
    if refusal := text(message, "refusal"):
        yield Text(refusal)


def _part(part: Mapping[str, Any]) -> RawPart:
    kind = part.get("type")
    held = part.get(kind) if isinstance(kind, str) else None
    fields = held if isinstance(held, Mapping) else {}
    match kind:
        case "text" | "refusal":
            return Text(text(part, kind))
        case "image_url" if address := text(fields, "url"):
            return media_at(address)
        case "input_audio":
            return Media(f"audio/{'mpeg' if text(fields, 'format') == 'mp3' else 'wav'}", text(fields, "data"))
        case "file" if data := text(fields, "file_data"):
            return media_at(data, "application/pdf", text(fields, "filename") or None)
    return Unread(f"a part of type {kind!r}")


def _thought(message: Mapping[str, Any]) -> Iterator[RawPart]:
    if thought := text(message, "reasoning_content", "reasoning"):
        yield Reasoning(thought, origin=ORIGIN)


def _calls(message: Mapping[str, Any]) -> Iterator[RawPart]:
    for one in objects(message, "tool_calls"):
        if isinstance(one, Unread):
            yield one
            continue
        if one.get("extra_content") is not None:
            yield marked({"extra_content": one["extra_content"]})
        custom, function = one.get("custom"), one.get("function")
        if isinstance(custom, Mapping):
            yield marked({"call": CUSTOM})
            yield ToolCall(text(one, "id"), text(custom, "name"), {"input": text(custom, "input")})
        elif isinstance(function, Mapping):
            yield call(text(one, "id"), text(function, "name"), function.get("arguments"))
        else:
            yield Unread("a call without a function")
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping):
        yield call("", text(legacy, "name"), legacy.get("arguments"))

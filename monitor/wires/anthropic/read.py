"""Reads messages of Anthropic's API."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from monitor._util.signatures import REDACTED, origin
from monitor.chunks import ToolCall
from monitor.messages import Media, Reasoning, Text
from monitor.wires.fields import text
from monitor.wires.plain import answer, base64_of, in_order, objects, role_of, words
from monitor.wires.raw import RawMessage, RawPart, Unread

ORIGIN: Final = origin("anthropic", None)

ROLES: Final[Mapping[str | None, Literal["user", "assistant", "system"]]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
}


def read(message: Mapping[str, Any]) -> RawMessage:
    """One message of a history, with all of its blocks."""
    return RawMessage(role_of(message, ROLES), in_order(_content(message)))


def _content(holder: Mapping[str, Any]) -> Iterator[RawPart]:
    content = holder.get("content")
    if isinstance(content, str):
        yield Text(content)
        return
    for block in objects(holder, "content"):
        if isinstance(block, Unread):
            yield block
        else:
            yield from _block(block)


def _block(block: Mapping[str, Any]) -> Iterator[RawPart]:
    match block.get("type"):
        case "text":
            yield Text(text(block, "text"))
        case "thinking":
            yield Reasoning(text(block, "thinking"), text(block, "signature") or None, ORIGIN)
        case "redacted_thinking":
            yield Reasoning("", REDACTED + text(block, "data"), ORIGIN)
        case "tool_use":
            yield ToolCall(text(block, "id"), text(block, "name"), block.get("input"))
        case "tool_result":
            said, shown = words(_content(block))
            yield from answer(text(block, "tool_use_id"), "", said, shown, is_error=block.get("is_error") is True)
        case "image" | "document":
            yield _media(block)
        case kind:
            yield Unread(f"a block of type {kind!r}")


def _media(block: Mapping[str, Any]) -> RawPart:
    source = block.get("source")
    fields = source if isinstance(source, Mapping) else {}
    name = text(block, "title") or None
    mime_type = text(fields, "media_type") or ("image/png" if block["type"] == "image" else "application/pdf")
    match fields.get("type"):
        case "base64":
            return Media(mime_type, base64_of(fields.get("data")), name=name)
        case "text":
            return Media(
                "text/plain", b64encode(text(fields, "data").encode("utf-8", "replace")).decode("ascii"), name=name
            )
        case "url" | "file":
            return Media(mime_type, uri=text(fields, "url", "file_id") or None, name=name)
    return Unread(f"{block['type']} from {fields.get('type')!r}")

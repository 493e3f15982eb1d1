"""Reads messages of Anthropic's API."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from monitor._util.signatures import REDACTED
from monitor.chunks import ToolCall
from monitor.messages import Media, Reasoning, Text
from monitor.wires.anthropic.kept import ORIGIN, of_block, of_call, of_text
from monitor.wires.fields import text
from monitor.wires.plain import answer, base64_of, in_order, objects, role_of, words
from monitor.wires.raw import RawMessage, RawPart, Unread

ROLES: Final[Mapping[str | None, Literal["user", "assistant", "system"]]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
}


def read(message: Mapping[str, Any]) -> RawMessage:
    """One message of a history, with all of its blocks. What the model's message has besides text,
    thinking and calls is kept for the service.
    """
    role = role_of(message, ROLES)
    return RawMessage(role, in_order(_content(message, kept=role == "assistant")))


def _content(holder: Mapping[str, Any], *, kept: bool = False) -> Iterator[RawPart]:
    content = holder.get("content")
    if isinstance(content, str):
        yield Text(content)
        return
    for block in objects(holder, "content"):
        if isinstance(block, Unread):
            yield block
        elif kept and isinstance(block.get("type"), str) and block["type"] not in _NEUTRAL:
            yield Reasoning("", of_block(block), ORIGIN)
        else:
            yield from _block(block)


_NEUTRAL: Final = frozenset(
    {"text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document", "search_result"}
)
"""Blocks that have a neutral part, or that only the user's message may have."""


def _block(block: Mapping[str, Any]) -> Iterator[RawPart]:
    match block.get("type"):
        case "text":
            yield Text(said := text(block, "text"))
            yield from _kept(of_text(block.get("citations"), len(said)))
        case "thinking":
            yield Reasoning(text(block, "thinking"), text(block, "signature") or None, ORIGIN)
        case "redacted_thinking":
            yield Reasoning("", REDACTED + text(block, "data"), ORIGIN)
        case "tool_use":
            yield from _kept(of_call(block))
            yield ToolCall(text(block, "id"), text(block, "name"), block.get("input"))
        case "tool_result":
            said, shown = words(_content(block))
            yield from answer(text(block, "tool_use_id"), "", said, shown, is_error=block.get("is_error") is True)
        case "image" | "document":
            yield _media(block)
        case kind:
            yield Unread(f"a block of type {kind!r}")


def _kept(signature: str | None) -> Iterator[RawPart]:
    if signature is not None:
        yield Reasoning("", signature, ORIGIN)


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

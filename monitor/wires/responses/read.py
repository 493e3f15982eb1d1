"""Items of OpenAI's responses. Each item is a message of its own; `repair` makes turns of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from monitor._util.codec import to_plain
from monitor.chunks import ToolCall
from monitor.messages import Reasoning, Text
from monitor.wires.failed import read_failed
from monitor.wires.fields import text
from monitor.wires.marked import ORIGIN, marked
from monitor.wires.plain import answer, call, in_order, media_at, objects, role_of, words
from monitor.wires.raw import RawMessage, RawPart, Unread

ROLES: Final[Mapping[str | None, Literal["user", "assistant", "system"]]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_BESIDE: Final = ("caller", "namespace")
"""Fields of a call that the service needs back."""


def read(item: Mapping[str, Any]) -> RawMessage:
    """One item of a history, as a message of its own."""
    match item.get("type", "message"):
        case "message":
            role = role_of(item, ROLES)
            return RawMessage(role, (*_phase(item), *in_order(_content(item, "content"))), partial=role == "assistant")
        case "function_call_output" | "custom_tool_call_output":
            said, shown = words(_content(item, "output"))
            said, failed = read_failed(said)
            return RawMessage("tool", tuple(answer(text(item, "call_id"), "", said, shown, is_error=failed)))
    return RawMessage("assistant", tuple(_said(item)), partial=True)


def _said(item: Mapping[str, Any]) -> Iterator[RawPart]:
    match item.get("type"):
        case "function_call":
            yield from _beside(item)
            yield call(text(item, "call_id"), text(item, "name"), item.get("arguments"))
        case "custom_tool_call":
            yield from _beside(item, type="custom_tool_call")
            yield ToolCall(text(item, "call_id"), text(item, "name"), {"input": text(item, "input")})
        case "reasoning":
            yield from _reasoning(item)
        case _:
            yield marked({"item": to_plain(item)})


def _phase(item: Mapping[str, Any]) -> Iterator[RawPart]:
    if phase := text(item, "phase"):
        yield marked({"phase": phase})


def _beside(item: Mapping[str, Any], **more: str) -> Iterator[RawPart]:
    beside = {name: to_plain(item[name]) for name in _BESIDE if item.get(name) is not None} | more
    if beside:
        yield marked({"call": beside})


def _reasoning(item: Mapping[str, Any]) -> Iterator[RawPart]:
    for part in objects(item, "summary"):
        yield part if isinstance(part, Unread) else Reasoning(text(part, "text"), origin=ORIGIN)
    fields = {name: item[name] for name in ("id", "encrypted_content") if isinstance(item.get(name), str)}
    if fields:
        yield marked({"reasoning": fields})


def _content(item: Mapping[str, Any], name: str) -> Iterator[RawPart]:
    content = item.get(name)
    if isinstance(content, str):
        yield Text(content)
        return
    for part in objects(item, name):
        yield part if isinstance(part, Unread) else _part(part)


def _part(part: Mapping[str, Any]) -> RawPart:
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return Text(text(part, "text"))
        case "refusal":
            return Text(text(part, "refusal"))
        case "input_image" if address := text(part, "image_url"):
            return media_at(address)
        case "input_file" if address := text(part, "file_data", "file_url"):
            return media_at(address, "application/pdf", text(part, "filename") or None)
        case kind:
            return Unread(f"a part of type {kind!r}")

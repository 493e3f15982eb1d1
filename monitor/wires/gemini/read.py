"""Gemini's contents, in camel case as on the wire or in snake case as in the SDK."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from monitor._util.codec import text_of
from monitor._util.signatures import origin
from monitor.chunks import ToolCall
from monitor.messages import Media, Reasoning, Text
from monitor.wires.fields import snake, text
from monitor.wires.plain import answer, base64_of, objects, role_of
from monitor.wires.raw import RawMessage, RawPart, Unread

ORIGIN: Final = origin("google", None)

ROLES: Final[Mapping[str | None, Literal["user", "assistant", "tool"]]] = {
    None: "user",
    "user": "user",
    "model": "assistant",
    "function": "tool",
    "tool": "tool",
}


def read(content: Mapping[str, Any]) -> RawMessage:
    """One content of a history, with all of its parts."""
    parts: list[RawPart] = []
    empty = False  # the last part was an empty text with a signature, which does not belong to the next part
    for part in objects(content, "parts"):
        if isinstance(part, Unread):
            parts.append(part)
            continue
        fields = snake(part)
        if empty and "thought_signature" not in fields:
            parts.append(Reasoning("", "", ORIGIN))
        empty = fields.get("text") == "" and "thought_signature" in fields and fields.get("thought") is not True
        parts += _part(fields)
    role = role_of(content, ROLES)
    return RawMessage(role, tuple(parts), partial=role == "assistant")


def _part(part: Mapping[str, Any]) -> Iterator[RawPart]:
    """One part, and before it the part's signature as `Reasoning`, together with the thought if the
    part is one. The signature of an unread part is left out with the part.
    """
    signature = base64_of(part.get("thought_signature"))
    words = text(part, "text")
    if part.get("thought") is True and "text" in part:
        yield Reasoning(words, signature, ORIGIN)
        return
    if signature is not None and ("text" in part or "function_call" in part):
        yield Reasoning("", signature, ORIGIN)
    if "text" in part:
        if words or signature is None:
            yield Text(words)
    elif "function_call" in part:
        call = snake(part["function_call"])
        yield ToolCall(text(call, "id"), text(call, "name"), call.get("args", {}))  # the service omits empty ones
    elif "function_response" in part:
        yield from _result(snake(part["function_response"]))
    elif "inline_data" in part or "file_data" in part:
        yield _media(part)
    else:
        yield Unread(", ".join(sorted(part)) or "an empty part")


def _result(given: Mapping[str, Any]) -> Iterator[RawPart]:
    said = given.get("response")
    is_error = False
    if isinstance(said, Mapping):
        is_error = "output" not in said and said.get("error") not in (None, "", False)
    if isinstance(said, Mapping) and len(said) == 1:
        (key,) = said
        is_error = key == "error"
        said = said[key] if key in ("output", "error", "result") else said
    shown = [part if isinstance(part, Unread) else _media(snake(part)) for part in objects(given, "parts")]
    yield from answer(
        text(given, "id"), text(given, "name"), text_of("" if said is None else said), shown, is_error=is_error
    )


def _media(part: Mapping[str, Any]) -> RawPart:
    inline, file = snake(part.get("inline_data")), snake(part.get("file_data"))
    one = inline or file
    mime_type, name = text(one, "mime_type"), text(one, "display_name") or None
    if not mime_type:
        return Unread("data without a type")
    return Media(mime_type, base64_of(inline.get("data")), text(file, "file_uri") or None, name)

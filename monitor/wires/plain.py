"""Pieces that the readers of all forms make and test alike."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from monitor.chunks import ToolCall, ToolResult
from monitor.errors import AdapterError
from monitor.messages import Media, Text
from monitor.wires.raw import RawPart, Unread


def objects(holder: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any] | Unread]:
    """The objects of a list. Anything else in the list becomes `Unread`."""
    value = holder.get(name)
    if value is None:
        return
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        yield Unread(f"{name} that is {type(value).__name__}")
        return
    for one in value:
        yield one if isinstance(one, Mapping) else Unread(f"{name} with {type(one).__name__}")


def role_of(message: Mapping[str, Any], known: Mapping[Any, Literal["user", "assistant", "tool", "system"]]) -> Any:
    """The neutral role. Raises `AdapterError` for an unknown role."""
    role = message.get("role")
    if not isinstance(role, str | None) or role not in known:
        raise AdapterError(f"its role is {role!r}")
    return known[role]


def written(arguments: object) -> Any:
    """Arguments as the object that their JSON text holds; as the text if it holds none; `None`
    without a text.
    """
    if not isinstance(arguments, str):
        return arguments
    if not arguments.strip():
        return None
    try:
        read = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return read if isinstance(read, dict) else arguments


def base64_of(data: object) -> str | None:
    """Bytes as base64; a text is base64 already."""
    if isinstance(data, bytes | bytearray):
        return b64encode(data).decode("ascii")
    return data if isinstance(data, str) else None


def media_at(address: str, mime_type: str = "image/*", name: str | None = None) -> Media:
    """Media at an address, which may contain the data itself (`data:`)."""
    head, comma, data = address.partition(";base64,")
    if comma and head.startswith("data:"):
        return Media(head.removeprefix("data:") or mime_type, data, name=name)
    return Media(mime_type, uri=address, name=name)


def in_order(parts: Iterable[RawPart]) -> tuple[RawPart, ...]:
    """The parts in their order, without empty texts."""
    return tuple(part for part in parts if not isinstance(part, Text) or part.text)


def words(parts: Iterable[RawPart]) -> tuple[str, list[RawPart]]:
    """The text of a result, and its other parts."""
    given = list(parts)
    return "".join(part.text for part in given if isinstance(part, Text)), [
        part for part in given if not isinstance(part, Text)
    ]


def answer(call_id: str, name: str, said: str, shown: Iterable[RawPart], *, is_error: bool) -> Iterator[RawPart]:
    """A result with its media, followed by its unread parts."""
    parts = list(shown)
    yield ToolResult(call_id, name, said, is_error, tuple(part for part in parts if isinstance(part, Media)))
    yield from (part for part in parts if not isinstance(part, Media))


def call(call_id: str, name: str, arguments: object) -> ToolCall:
    """A call whose arguments are JSON text."""
    return ToolCall(call_id, name, written(arguments))


def is_one_of(value: object, known: Container[str | None]) -> bool:
    """Whether `value` is one of these texts."""
    return isinstance(value, str) and value in known


def are_objects(value: object, each: Callable[[Mapping[str, Any]], bool]) -> bool:
    """Whether `value` is a list of objects for which `each` holds."""
    return isinstance(value, list) and all(isinstance(one, Mapping) and each(one) for one in value)

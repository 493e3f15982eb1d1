"""The JSON object of a request, read record by record, and without the part of its history that is
known.

A request repeats the history of the one before it, byte for byte. `read_object` says where the
records of the history stand. A later body that begins with the same bytes is then read without
them: a mark stands in their place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from monitor.proxy.formats.base import Span, parsed
from monitor.wires.forms import Form

HISTORY: Final[Mapping[Form, str]] = {
    "openai-chat": "messages",
    "openai-responses": "input",
    "anthropic": "messages",
    "gemini": "contents",
}
"""The field of a request that has its history."""
MARK: Final = "agent-monitor: the records that stood here are known"
"""Stands in the place of the records that are left out."""
_MARK: Final = json.dumps(MARK).encode()
_BLANK: Final = " \t\n\r"
_WHITE: Final = re.compile(f"[{_BLANK}]*")
_DECODER: Final = json.JSONDecoder()


class RepeatedField(ValueError):
    """A field of the request stands in it twice. Services differ in which one they read."""


def read_object(body: bytes, field: str) -> tuple[Any, Span | None]:
    """The value of the body, and the place of the records in `field`. `None`: there are no
    records that can be found again. Raises `ValueError` for what is not JSON, and `RepeatedField`.
    """
    if json.detect_encoding(body) != "utf-8":
        return parsed(body), None
    text = body.decode("utf-8", "surrogatepass")
    try:
        return _read(text, field, is_ascii=len(text) == len(body))
    except RecursionError:
        raise ValueError("nested too deep") from None
    except (IndexError, StopIteration):
        raise ValueError("it ends too early") from None


def without(body: bytes, known: Span) -> bytes | None:
    """The body with a mark in the place of the known records. `None`: the mark
    stands in it already.
    """
    short = body[: known.start] + _MARK + body[known.end :]
    return short if short.count(_MARK) == 1 else None


def rewritten(body: bytes, known: Span | None, change: Callable[[bytes], bytes]) -> bytes:
    """The body after `change`, which sees it without the known records."""
    short = None if known is None else without(body, known)
    if known is None or short is None:
        return change(body)
    before, _, behind = change(short).partition(_MARK)
    return b"".join((before, memoryview(body)[known.start : known.end], behind))


def _read(text: str, field: str, *, is_ascii: bool) -> tuple[Any, Span | None]:
    at = _solid(text, 0)
    if text[at] != "{":
        return parsed(text), None
    fields: dict[str, Any] = {}
    found: tuple[int, int] | None = None
    at = _solid(text, at + 1)
    while text[at] != "}":
        if fields:
            at = _solid(text, _behind(text, at, ","))
        if text[at] != '"':
            raise ValueError("the name of a field is missing")
        name, at = _DECODER.raw_decode(text, at)
        at = _solid(text, _behind(text, _solid(text, at), ":"))
        if name in fields:
            raise RepeatedField(f"the field `{name}` stands in the request twice")
        if name == field and text[at] == "[":
            fields[name], found, at = _records(text, at + 1)
        else:
            fields[name], at = _DECODER.raw_decode(text, at)
        at = _solid(text, at)
    if text[at + 1 :].strip(_BLANK):
        raise ValueError("something stands behind the object")
    if found is None:
        return fields, None
    start, end = found if is_ascii else (_bytes(text[: found[0]]), _bytes(text[: found[1]]))
    return fields, Span(start, end)


def _records(text: str, at: int) -> tuple[list[Any], tuple[int, int] | None, int]:
    """The records of a list, where they stand, and the place behind the list."""
    records: list[Any] = []
    start = end = at = _solid(text, at)
    while text[at] != "]":
        if records:
            at = _solid(text, _behind(text, at, ","))
        record, end = _DECODER.raw_decode(text, at)
        records.append(record)
        at = _solid(text, end)
    return records, (start, end) if records else None, at + 1


def _solid(text: str, at: int) -> int:
    """The place of the next character that is no white space."""
    found = _WHITE.match(text, at)
    return at if found is None else found.end()


def _behind(text: str, at: int, expected: str) -> int:
    """The place behind the `expected` character. Raises `ValueError`."""
    if text[at] != expected:
        raise ValueError(f"{expected!r} is missing")
    return at + 1


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))

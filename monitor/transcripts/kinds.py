"""Recognises files that a command does not read, by their first bytes, for the error message."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from typing import Any, Final

from monitor.chunks import chunk_codec
from monitor.events import event_codec

CONVERSATION: Final = "a conversation, which agent-monitor context reads"
EVENTS: Final = "a log of events, which agent-monitor scan reads"
RUN: Final = "a recorded run, which agent-monitor scan reads"
HEAD_BYTES: Final = 65_536
"""How many bytes at the start of a file are examined."""

MAGIC_BYTES: Final = 16
"""The length of the longest signature of a binary file."""

_MAGIC: Final[Mapping[bytes, str]] = {
    b"PK\x03\x04": "a ZIP archive",
    b"SQLite format 3\x00": "an SQLite database",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it first",
    b"BZh": "compressed with bzip2; unpack it first",
    b"\xfd7zXZ\x00": "compressed with xz; unpack it first",
    b"\x1f\x8b": "gzipped twice; unpack it first",
    codecs.BOM_UTF32_LE: "text in UTF-32; save it as UTF-8",
    codecs.BOM_UTF32_BE: "text in UTF-32; save it as UTF-8",
    codecs.BOM_UTF16_LE: "text in UTF-16; save it as UTF-8",
    codecs.BOM_UTF16_BE: "text in UTF-16; save it as UTF-8",
}
"""UTF-32 stands before UTF-16, whose mark begins like it."""
_REQUESTS: Final = ("messages", "contents", "input")


def kind_of(head: bytes) -> str | None:
    """The kind of a file that begins with `head`, unpacked. `None`: unknown."""
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    if b"\x00" in head:
        return "binary data"
    return None if (first := _first_record(head)) is None else kind_of_record(first)


def kind_of_record(record: Mapping[str, Any]) -> str | None:
    """The kind of a file by its first JSON object, and the command that reads such files."""
    tag = record.get("type")
    if isinstance(tag, str) and "at_s" in record and tag in event_codec.tags:
        return EVENTS
    if "chunk" in record or (isinstance(tag, str) and tag in chunk_codec.tags):
        return "a recording of chunks, which agent-monitor run --model replay:FILE plays"
    messages = record.get("messages")
    if isinstance(record.get("id"), str) and isinstance(messages, list) and any(map(is_recorded, messages)):
        return RUN
    if "role" in record or any(isinstance(record.get(name), list) for name in _REQUESTS):
        return CONVERSATION
    return None


def is_recorded(message: object) -> bool:
    """Whether `message` is one of a recorded run, which no provider takes."""
    return (
        isinstance(message, Mapping) and ("text" in message or "tool_results" in message) and "content" not in message
    )


def _first_record(head: bytes) -> Mapping[str, Any] | None:
    text = head.decode("utf-8-sig", "replace")
    for part in (text.lstrip().partition("\n")[0], text):
        try:
            found: Any = json.loads(part)
        except (ValueError, RecursionError):
            continue
        first = found[0] if isinstance(found, list) and found else found
        return first if isinstance(first, Mapping) else None
    return None

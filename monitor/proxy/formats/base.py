"""What the proxy knows of a request and of an answer, in the words that all wire formats share.

Nothing here reads, writes or waits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from monitor.chunks import Chunk
from monitor.messages import Message
from monitor.models import ModelError
from monitor.wires.fields import Form

# --- requests


@dataclass(slots=True, frozen=True, kw_only=True)
class JudgedRequest:
    """A request that was read and can be judged."""

    form: Form
    messages: tuple[Message, ...]
    """The conversation in the request, repaired. Loops over turns are judged from it."""
    is_closed: bool = True
    """No later record can belong to a message of this conversation."""
    model: str = ""
    streams: bool = False
    instructions: str | None = None
    """The text of the system messages."""
    system_messages: str | None = None
    """The text of those that stand in the history."""
    tools: frozenset[str] = frozenset()
    """The names of the tools that the model may call."""
    max_output_tokens: int | None = None
    whole_history: bool = True
    """False if the service has the older messages (`previous_response_id`, `conversation`)."""
    wants_usage: bool = True
    """Whether the client expects the usage in its stream."""
    structured: bool = False
    """Whether the answer is to be JSON of a schema, or a call: a sentence would break it."""
    array: bool = False
    """Whether the stream is one JSON array instead of server-sent events."""
    fixed: bool = False
    """Whether the request must reach the service as it came: it may be signed."""
    records: Span | None = None
    """The place of the history's records in the body. `None`: they cannot be found again."""
    goes_on: bool = False
    """`messages` are those behind a known beginning."""


@dataclass(slots=True, frozen=True)
class Span:
    """The place of the records of a history in a body: the bytes from `start` to `end`."""

    start: int
    end: int


@dataclass(slots=True, frozen=True)
class Beginning:
    """The beginning of a history that was read in an earlier request."""

    records: Span
    instructions: str | None
    """The text of the system messages in it."""
    ids: frozenset[str]
    """The ids of its calls."""


@dataclass(slots=True, frozen=True)
class Unjudged:
    """A request that cannot be judged. It is relayed unchanged, and a header says so."""

    why: str
    """The reason, in words for people."""


@dataclass(slots=True, frozen=True)
class Refusal:
    """An answer of the proxy itself, in the form of the service."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def head(self) -> list[tuple[bytes, bytes]]:
        """The headers as ASGI has them, with the length of the body."""
        named = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        return [*named, (b"content-length", b"%d" % len(self.body))]


# --- answers


FaultKind: TypeAlias = Literal["oversized", "unparsable"]


@dataclass(slots=True, frozen=True)
class Fault:
    """Why a frame cannot be read.

    - `oversized`: it is longer than the bound. The reader cannot find the next frame: all later
      bytes are such frames. If one is sent, no bytes can end the stream in its form any more.
    - `unparsable`: its data is not JSON.
    """

    kind: FaultKind
    detail: str


@dataclass(slots=True)
class Frame:
    """The smallest piece of a stream that a client can read. The `raw` bytes of all frames join to
    the upstream's bytes; only at the end half an event is dropped, and a missing blank line added.
    """

    raw: bytes
    event: str = ""
    """The name of a server-sent event."""
    data: str | None = None
    """The text of the event. `None`: the frame says nothing, as a comment does."""
    value: Any = None
    """The value of `data`, which is JSON."""
    fault: Fault | None = None


@dataclass(slots=True, frozen=True)
class FrameContent:
    """The content of a frame, or of a whole answer."""

    chunks: tuple[Chunk, ...] = ()
    failure: ModelError | None = None
    """The service says that the call failed."""
    unread: str | None = None
    """Why it cannot be read. Its bytes are passed on, and nothing in it was judged."""
    others: Mapping[int, Sequence[Chunk]] = field(default_factory=dict[int, Sequence[Chunk]])
    """The chunks of further choices, by their index, if it is a whole answer."""


NOTHING: Final = FrameContent()

MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
"""The longest frame that is read. Images come as one event of some megabytes."""


def parsed(data: str | bytes) -> Any:
    """The JSON value. Raises `ValueError`, also for a value that is nested too deep."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deep") from None


def whole_at(record: Mapping[str, Any], name: str) -> int:
    """A place in a list. 0 if there is none."""
    value = record.get(name)
    return value if type(value) is int else 0


def to_bytes(value: object) -> bytes:
    """`value` as JSON on one line, in ASCII."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


# --------------------------------------------------------------------------------------------------
# The JSON object of a request, read record by record, and without the part of its history that is
# known.
#
# A request repeats the history of the one before it, byte for byte. `read_object` says where the
# records of the history stand. A later body that begins with the same bytes is then read without
# them: a mark stands in their place.

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
            at = _solid(text, _after(text, at, ","))
        if text[at] != '"':
            raise ValueError("the name of a field is missing")
        name, at = _DECODER.raw_decode(text, at)
        at = _solid(text, _after(text, _solid(text, at), ":"))
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
            at = _solid(text, _after(text, at, ","))
        record, end = _DECODER.raw_decode(text, at)
        records.append(record)
        at = _solid(text, end)
    return records, (start, end) if records else None, at + 1


def _solid(text: str, at: int) -> int:
    """The place of the next character that is no white space."""
    found = _WHITE.match(text, at)
    return at if found is None else found.end()


def _after(text: str, at: int, expected: str) -> int:
    """The place behind the `expected` character. Raises `ValueError`."""
    if text[at] != expected:
        raise ValueError(f"{expected!r} is missing")
    return at + 1


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))

"""A wire format, as the proxy sees it: what a request asks for, what an answer says, and how an
answer ends before its model ends it.

Nothing here reads, writes or waits. The relay has the bytes, and does with each answer:

    answer = wire.answer(asked, beginning)
    for frame in answer.feed(data):              # whole frames; half a frame is held back
        heard = answer.read(frame)               # its chunks, to be judged
        if they must stop the stream:
            send(answer.ending(reason))          # the frame itself is not sent
            break
        send(frame.raw)
        answer.sent(frame)                       # now the client knows it
    # the upstream has ended: the frames of `answer.end()` likewise, then `answer.finish()`
    if not answer.over:
        send(answer.broken(reason))
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol, TypeAlias

from monitor.adapters.adapter import FullAdapter, ReportedFailure
from monitor.chunks import NO_USAGE, Chunk, Usage, UsageReport
from monitor.errors import AdapterError
from monitor.messages import Message
from monitor.models import ModelError
from monitor.wires.fields import Form

# --- requests


@dataclass(slots=True, frozen=True, kw_only=True)
class JudgedRequest:
    """A request that was read and can be judged."""

    form: Form
    model: str
    streams: bool
    messages: tuple[Message, ...]
    """The conversation in the request, repaired. Loops over turns are judged from it."""
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

    @property
    def usage(self) -> Usage:
        """The tokens that the piece reports."""
        used = NO_USAGE
        for chunk in self.chunks:
            if isinstance(chunk, UsageReport):
                used = used.merged(chunk)
        return used


NOTHING: Final = FrameContent()

MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
"""The longest frame that is read. Images come as one event of some megabytes."""


class Framing(Protocol):
    """Cuts the bytes of a stream into frames. It is not disturbed by how the bytes come."""

    def feed(self, data: bytes, /) -> list[Frame]:
        """The frames that `data` completes."""
        ...

    def end(self) -> list[Frame]:
        """The bytes that were held back: no more bytes come."""
        ...


class HalfCalls(ABC):
    """Follows the calls of a stream. A call that is half written may not reach the client: cut off
    there, some clients carry it out, and all send back a history that no service takes.
    """

    def __init__(self) -> None:
        self.began = False
        """In the newest frame a call began, and all calls before it are whole."""
        self.open = False
        """After the newest frame a call is half written."""

    @abstractmethod
    def follow(self, value: Mapping[str, Any]) -> None:
        """Note the next frame."""


class WireAnswer(ABC):
    """One streamed answer on its way from the upstream to the client.

    `read` follows what the upstream says, `sent` what the client knows. The two may differ: a frame
    in which a stop falls is read and not sent. The ending is for what the client knows.
    """

    def __init__(self, asked: JudgedRequest, framing: Framing, adapter: FullAdapter, calls: HalfCalls) -> None:
        self.asked = asked
        self.usage: Usage = NO_USAGE
        """The tokens that the upstream has reported so far."""
        self.calls = calls
        """The calls that are half written, as far as the upstream has sent them."""
        self._framing = framing
        self._adapter = adapter
        self._blind = False
        """Whether the client was sent bytes that were not read."""

    # --- what the upstream says

    def feed(self, data: bytes) -> list[Frame]:
        """The whole frames up to the end of `data`."""
        return [_parsed(frame) for frame in self._framing.feed(data)]

    def end(self) -> list[Frame]:
        """The last frames: no more bytes come. An event that was cut off is dropped, because no
        client can read it.
        """
        frames = [_parsed(frame) for frame in self._framing.end()]
        return [frame for frame in frames if frame.fault is None]

    def read(self, frame: Frame) -> FrameContent:
        """Read the frame. Each frame is read once, in order. Never raises."""
        if frame.fault is not None:
            return FrameContent(unread=frame.fault.detail)
        if frame.value is None:
            return NOTHING
        heard = self._heard(frame)
        for chunk in heard.chunks:
            if isinstance(chunk, UsageReport):
                self.usage = self.usage.merged(chunk)
        if isinstance(frame.value, dict):
            self.calls.follow(frame.value)
        return heard

    def finish(self) -> tuple[Chunk, ...]:
        """The chunks that are missing when the upstream has ended: calls that were cut off."""
        return tuple(self._adapter.finish())

    def others(self, frame: Frame) -> Mapping[int, Sequence[Chunk]]:
        """The chunks of further choices in the frame, by their index. Call it once a frame."""
        return {}

    def _heard(self, frame: Frame) -> FrameContent:
        return decoded(self._adapter, self._item(frame))

    @abstractmethod
    def _item(self, frame: Frame) -> object:
        """The value of the frame, as the adapter reads it."""

    # --- what the client knows

    def sent(self, frame: Frame) -> None:
        """Note that the client was sent the frame."""
        if frame.fault is not None and frame.fault.kind == "oversized":
            self._blind = True
        elif frame.data is not None:
            self._told(frame)

    @abstractmethod
    def _told(self, frame: Frame) -> None:
        """Note what the client knows after this frame."""

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether the client has seen the end of the answer. If the upstream ends before, it was
        cut off.
        """

    def ending(self, reason: str, *, sentence: str = "", error: bool = False, usage: Usage | None = None) -> bytes:
        """The bytes that end the client's stream in its own form. Empty if it has ended, or cannot
        be ended (see `Fault`).

        The end looks as if the model had stopped, and `sentence` is its last text. Where the client
        has asked for JSON of a schema, it looks as if the model had no room left. A comment beside
        it gives our `reason`. With `error=True` it is the error of the format instead, with the
        reason as its message. So does an answer in which a call was begun, unless the model has
        ended it: a client would carry the call out.

        `usage`: the tokens of the answer, where the caller knows them better than `self.usage`.
        """
        if self._blind or self._closed:
            return b""
        if error or self._calls_open:
            return self._error(reason, STOPPED)
        try:
            said = "" if self.asked.structured else sentence
            return self._end(reason, self.usage if usage is None else usage, said)
        except RecursionError:  # the service's own fields were just not too deep to be read, and are written again
            return self._error(reason, STOPPED)

    def broken(self, reason: str) -> bytes:
        """The bytes that say that the upstream broke off. They never look like an end."""
        return b"" if self._blind or self._closed else self._error(reason, BROKE_OFF)

    @property
    def media_type(self) -> str:
        """The media type of a stream that begins here."""
        return "text/event-stream"

    def in_one_piece(self, merged: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer that the client gets who asked for no stream. `merged`: of the events."""
        return merged

    def comment(self, text: str) -> bytes:
        """A remark that clients skip, for instance to keep a connection open. Empty if the format
        has none.
        """
        return b""

    @property
    def _closed(self) -> bool:
        """Whether nothing may follow what the client was sent."""
        return self.over

    @property
    @abstractmethod
    def _calls_open(self) -> bool:
        """Whether the client has seen a call in an answer that has not ended."""

    @abstractmethod
    def _end(self, reason: str, usage: Usage, sentence: str) -> bytes: ...

    @abstractmethod
    def _error(self, reason: str, status: int) -> bytes: ...


# --- shared by the formats


def decoded(adapter: FullAdapter, item: object) -> FrameContent:
    """The content of `item`, as its adapter reads it."""
    try:
        return FrameContent(tuple(adapter.decode(item)))
    except ReportedFailure as failure:
        return FrameContent(failure.chunks, failure=failure.model_error)
    except AdapterError as error:
        return FrameContent(unread=str(error))


def joined(parts: Sequence[FrameContent]) -> FrameContent:
    """The content of several pieces together."""
    return FrameContent(
        tuple(chunk for part in parts for chunk in part.chunks),
        next((part.failure for part in parts if part.failure is not None), None),
        next((part.unread for part in parts if part.unread is not None), None),
    )


def read_whole(answer: WireAnswer, value: Mapping[str, Any]) -> FrameContent:
    """Read an answer that came in one piece, as if it were the only one of a stream."""
    frame = Frame(b"", value=value)
    heard = joined([answer.read(frame), FrameContent(answer.finish())])
    return replace(heard, others=answer.others(frame))


def parsed(data: str | bytes) -> Any:
    """The JSON value. Raises `ValueError`, also for a value that is nested too deep."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deep") from None


def parsed_object(body: bytes) -> dict[str, Any] | FrameContent:
    """The JSON object of a whole answer. `FrameContent`: it has none, and why."""
    try:
        value = parsed(body)
    except ValueError:
        return FrameContent(unread="the answer is not JSON")
    return value if isinstance(value, dict) else FrameContent(unread="the answer is not a JSON object")


def to_bytes(value: object) -> bytes:
    """`value` as JSON on one line, in ASCII."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _parsed(frame: Frame) -> Frame:
    if frame.data and frame.fault is None and not frame.data.startswith(DONE):
        try:
            frame.value = parsed(frame.data)
        except ValueError as error:
            frame.fault = Fault("unparsable", f"an event is not JSON: {error}")
    return frame


STOPPED: Final = 400
"""The status that an error inside a stream stands for, if the proxy has stopped the answer: clients
do not try again.
"""
BROKE_OFF: Final = 502
"""The status of such an error if the upstream broke off: clients may try again."""

DONE: Final = "[DONE]"
"""How the data of the last event of OpenAI's chat completions begins, which is not JSON."""

RETRY_NEVER: Final[Mapping[str, str]] = {"content-type": "application/json", "x-should-retry": "false"}
"""Headers of a refusal. The SDKs of OpenAI and Anthropic obey the second one."""
RETRY_LATER: Final[Mapping[str, str]] = {"content-type": "application/json", "retry-after": "1"}
"""Headers of a refusal that may be over soon."""


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

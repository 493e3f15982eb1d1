"""anthropic: the events of `messages.create(stream=True)` and of the `messages.stream(...)` helper,
`beta` too, as chunks.

The helper yields the raw events, and after each of them its own events with the same content
(`text`, `thinking`, `input_json`, ...). The adapter ignores these, so nothing counts twice. The
helper's `text_stream`, which yields plain text, can be watched as well.

What the model writes for the service's own work comes as `ToolCallDelta` pieces without a
`ToolCall`: calls of server-side tools and MCP servers, a compaction, the words of an advisor. The
caller need not carry out these calls. The service needs these blocks back. Each of them comes whole
when it is closed, as the signature of a `ReasoningDelta` without text. The citations of a text come
in the same way (`monitor.wires.anthropic`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from monitor._util.part_options import REDACTED, origin
from monitor.adapters.adapter import held_behind, stream_of
from monitor.adapters.parts import ReportedFailure, SdkAdapter, arguments_of, list_at, name_of
from monitor.adapters.sdk_errors import ANTHROPIC
from monitor.chunks import (
    Chunk,
    ReasoningDelta,
    StreamRetried,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    TurnFinished,
    UsageReport,
)
from monitor.errors import AdapterError, FinishReason
from monitor.models import ModelError
from monitor.wires import anthropic as kept
from monitor.wires.fields import finish_reason_of

# --------------------------------------------------------------------------------------------------
# The tokens of a stream of Anthropic: it may hold several messages, and one that begins again.

COUNTS: Final = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
    "thinking_tokens",
    "ephemeral_1h_input_tokens",
)
"""The counts of a usage. The first three together are the input."""
_HOLDERS: Final = {"thinking_tokens": "output_tokens_details", "ephemeral_1h_input_tokens": "cache_creation"}
"""The field of a usage in which some counts stand."""

_NOTHING_USED: Final = UsageReport(0, 0, 0, 0, 0, 0, 0)
_FIELDS: Final = (
    *("input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens", "total_tokens"),
    *("cache_write_tokens", "cache_write_1h_tokens"),
)


class StreamUsage:
    """The running totals of a stream."""

    def __init__(self) -> None:
        self.said = False
        """Whether any content came since the last report."""
        self._counts: dict[str, int] = {}
        self._before = _NOTHING_USED
        """The usage of earlier messages of the stream."""
        self._void = _NOTHING_USED
        """The usage of the running message before it began again, which is counted already."""

    def begin_another(self) -> None:
        """Another message begins. The usage of the messages before it still counts."""
        self._before, self._counts = self._sum(), {}

    def begin_again(self, *, same: bool) -> None:
        """A message begins before the one before it has ended. `same`: it is that message again."""
        self._before = _NOTHING_USED
        self._void = self._sum() if same else _NOTHING_USED
        self._counts = {}

    def report(self, usage: object, *, last: bool = False) -> Iterator[UsageReport]:
        """The running totals if they grew. Later events may lack a field that earlier ones had, so
        fields are merged.

        `last`: the totals are of the whole message. They are then reported unchanged as well, if
        anything came since the last report.
        """
        grew = False
        for name in COUNTS:
            holder = getattr(usage, _HOLDERS[name], None) if name in _HOLDERS else usage
            count = getattr(holder, name, None)
            if type(count) is int and count >= 0 and (last or count > self._counts.get(name, -1)):
                grew = grew or self.said or count > self._counts.get(name, -1)
                self._counts[name] = max(count, self._counts.get(name, -1))
        if grew:
            self.said = False
            yield self._sum() if self._void is _NOTHING_USED else _minus(self._sum(), self._void)

    def _sum(self) -> UsageReport:
        counts, before = self._counts, self._before
        read = [counts[name] for name in COUNTS[:3] if name in counts]
        output = counts.get("output_tokens")
        return UsageReport(
            input_tokens=_plus(before.input_tokens, sum(read) if read else None),
            output_tokens=_plus(before.output_tokens, output),
            reasoning_tokens=_plus(before.reasoning_tokens, counts.get("thinking_tokens")),
            cached_tokens=_plus(before.cached_tokens, counts.get("cache_read_input_tokens")),
            total_tokens=_plus(before.total_tokens, sum(read) + output if read and output is not None else None),
            cache_write_tokens=_plus(before.cache_write_tokens, counts.get("cache_creation_input_tokens")),
            cache_write_1h_tokens=_plus(before.cache_write_1h_tokens, counts.get("ephemeral_1h_input_tokens")),
        )


def _plus(before: int | None, count: int | None) -> int | None:
    """The sum of two counts. `None`: neither was reported."""
    return count if not before else before + (count or 0)


def _minus(total: UsageReport, void: UsageReport) -> UsageReport:
    counts = {name: (getattr(total, name), getattr(void, name) or 0) for name in _FIELDS}
    return UsageReport(
        **{name: None if count is None else max(0, count - less) for name, (count, less) in counts.items()}
    )


# --------------------------------------------------------------------------------------------------
# A block of a stream that the service needs back, while its pieces come.


@dataclass(slots=True)
class KeptBlock:
    """A block that the service needs back, or the citations of a text, while it comes."""

    block: dict[str, Any]
    pieces: list[str] = field(default_factory=list)
    """The JSON text of its input."""

    def add(self, delta: object) -> None:
        """Add a piece: of the input, of a list such as the citations, or of a text."""
        for name, value in plain(delta).items():
            if name == "type" or value is None:
                continue
            if name == "partial_json":
                self.pieces.append(value)
            elif name == "citation":
                self.block["citations"] = [*(self.block.get("citations") or ()), value]
            elif isinstance(value, str) and isinstance(before := self.block.get(name), str):
                self.block[name] = before + value
            else:
                self.block[name] = value

    def whole(self) -> dict[str, Any] | None:
        """The block. `None`: it was cut off within its input."""
        text = "".join(self.pieces)
        if not text:
            return self.block
        given = arguments_of(text)
        return {**self.block, "input": given} if isinstance(given, dict) else None


def plain(holder: object) -> dict[str, Any]:
    """The fields that the service has sent, by their names in its wire format."""
    to_dict = getattr(holder, "to_dict", None)
    return cast("dict[str, Any]", to_dict(mode="json", warnings=False)) if callable(to_dict) else {}


_RETRIED: Final = (
    "another message began before the first had ended: whoever is between here and the service asked again"
)


_HOSTED: Final = {"server_tool_use", "mcp_tool_use"}
"""Blocks of calls that the service carries out itself."""


@dataclass(slots=True)
class _OpenToolUse:
    """A `tool_use` block that is not complete yet."""

    id: str
    name: str
    raw: object
    given: Mapping[str, Any]
    """Arguments that came at once, with the block's start."""
    pieces: list[str] = field(default_factory=list)
    stopped: bool = False
    """Whether the block has ended without arguments. Only the stop reason shows whether the call
    has none.
    """


class AnthropicAdapter(SdkAdapter):
    """Reads one stream of anthropic.

    `stream` is part of the ids of calls that come without an id: `call_<stream>_<n>`. (The service
    always gives one.)

    Each piece of thinking is held until the next one comes, because the signature belongs to the
    `ReasoningDelta` of the last piece. Redacted thinking is a `ReasoningDelta` without text, whose
    signature is `REDACTED` and the data.

    A call comes as `ToolCallDelta` pieces that join to its JSON text, and then as one `ToolCall`. A
    call that the service sends in one piece comes only as a `ToolCall`. The call is whole when its
    block is closed, or when its message ends with a stop reason of a whole answer. The output limit
    or the end of the stream may cut a call off. Then the `arguments` of its `ToolCall` are the text
    so far, a `str`, so that half a call does not look like a whole one.

    `message_stop` gives `TurnFinished`; a stream without `message_stop` was truncated. A stream may
    hold several messages:

    - A message that begins before the previous one has ended is the same answer, begun again
      (`StreamRetried`). If both begin with the same data, the event came twice, and its tokens
      count once.
    - A message that begins after the end of the previous one continues the turn, and counts in
      `requests`. It gives another `TurnFinished` only if it ends in another way. While it has not
      ended, `broke_off` is True.
    """

    readable = "event of a message"

    def __init__(self, stream: int = 0) -> None:
        self.requests = 1
        """Messages that were completed or begun anew in this stream."""
        self.gave: Sequence[str] = ()
        """The types of blocks other than text, thinking and calls."""
        self._stream = stream
        self._made_ids = 0
        self._in_message = False
        self._opening: tuple[Any, ...] = ()
        """The identity of the running message, from its start."""
        self._usage = StreamUsage()
        self._finished: FinishReason | None = None
        """How the last message of the stream ended."""
        self._calls: dict[int, _OpenToolUse | None] = {}
        """The blocks that began, by index. `None`: the block is not a call, or its call is
        complete."""
        self._hosted: dict[int, tuple[str, str]] = {}
        """The id and the name of each block of the service's own work that has written nothing."""
        self._kept: dict[int, KeptBlock] = {}
        """The open blocks that the service needs back, by index."""
        self._text_chars = 0
        """The length of the running block of text."""
        self._thinking: str | None = None
        """The piece of thinking that is held back."""
        self._signature: str | None = None
        self._origin = origin("anthropic", None)
        self._stop: tuple[str, str | None] | None = None

    def plain_text(self, item: object) -> str | None:
        """The text of an object that is one piece of visible text and nothing else, which most
        objects are.

        The SDK's objects are pydantic models. Reading their fields from `__dict__` takes half the
        time.
        """
        try:
            fields = cast("Any", item).__dict__
            if fields["type"] == "content_block_delta" and self._thinking is None and self._signature is None:
                delta = fields["delta"].__dict__
                words = delta["text"]
                if type(words) is str and words and delta["type"] == "text_delta":
                    self._usage.said = True
                    self._text_chars += len(words)
                    return words
        except Exception:  # noqa: BLE001, S110 - not the plain case; `decode` says what it is
            pass
        return None

    @property
    def broke_off(self) -> bool:
        """Whether a message has begun after the last `TurnFinished` and has not ended. Then the
        stream was truncated.
        """
        return self._in_message and self._finished is not None

    def finish(self) -> Sequence[Chunk]:
        """Thinking that was held back, and a call that the end of the stream cut off; see the
        class.

        A missing `TurnFinished` is not added.
        """
        return (*self._end_thinking(), *self._end_calls(cut_off=True))

    def responses(self, source: object) -> Sequence[Any]:
        """The SDK's stream behind the helper's `text_stream`, or a generator of the caller's own:
        their `aclose()` does not reach it.
        """
        return held_behind(source, stream_of("anthropic"))

    def classify(self, error: BaseException) -> ModelError:
        """Classify an exception of the SDK, or of a transport under it."""
        return ANTHROPIC.classify(error)

    def _decode(self, item: object) -> Iterator[Chunk]:
        for chunk in self._chunks_of(item):
            self._usage.said = not isinstance(chunk, UsageReport)
            yield chunk

    def _chunks_of(self, item: object) -> Iterator[Chunk]:
        if isinstance(item, str):  # of `text_stream`, which yields only text
            self.needs_finish = False
            yield from [TextDelta(item)] if item else []
            return
        match _word(item, "type"):
            case "content_block_delta":
                yield from self._delta(_index(item), _part(item, "delta"))
            case "content_block_start":
                yield from self._begin_block(_index(item), _part(item, "content_block"))
            case "content_block_stop":
                yield from self._end_block(_index(item))
            case "message_start":
                yield from self._begin_message(_part(item, "message"))
            case "message_delta":
                yield from self._message_delta(item)
            case "message_stop":
                yield from self._end_message()
            case "error":
                raise ReportedFailure(ANTHROPIC.reported(getattr(item, "error", None)))
            case None | "message":
                raise AdapterError(f"expected an event of an Anthropic message stream, not {name_of(item)}")

    # --- the message

    def _begin_message(self, message: object) -> Iterator[Chunk]:
        """Process the start of a message. If the service has not called the model, it holds content
        and even the stop reason.
        """
        opening = _opening(message)
        if self._in_message:
            again = opening[0] is not None and opening == self._opening
            if again and not self._calls:
                return
            self._usage.begin_again(same=again)
            self._forget()
            yield StreamRetried(_RETRIED)
        elif self._finished is not None:
            self._usage.begin_another()
            self.requests += 1
        self._in_message, self._opening = True, opening
        self._origin = origin("anthropic", getattr(message, "model", None))
        yield from self._usage.report(getattr(message, "usage", None))
        for index, block in enumerate(list_at(message, "content")):
            yield from self._begin_block(index, block)
            yield from self._end_block(index)
        yield from self._stop_reason(message)

    def _forget(self) -> None:
        """Drop the content so far."""
        self._calls, self._thinking, self._signature = {}, None, None
        self._hosted, self._kept = {}, {}
        self._stop = self._finished = None
        self.gave = ()

    def _message_delta(self, item: object) -> Iterator[Chunk]:
        """Process an event with the stop reason and the usage, which includes the calls that it
        completes.
        """
        yield from self._stop_reason(_part(item, "delta"))
        yield from self._usage.report(getattr(item, "usage", None), last=self._stop is not None)

    def _stop_reason(self, holder: object) -> Iterator[Chunk]:
        """Process the stop reason, and complete all open calls."""
        word = _word(holder, "stop_reason")
        if word is None:
            return
        self._stop = (word, _word(getattr(holder, "stop_details", None), "explanation"))
        yield from self._end_thinking()
        yield from self._end_calls(cut_off=finish_reason_of(word) is not FinishReason.DONE)

    def _end_message(self) -> Iterator[Chunk]:
        """Process the end of a message. Some services give no stop reason."""
        yield from self._end_thinking()
        yield from self._end_calls(cut_off=False)
        self._in_message, self._calls, self._hosted, self._kept = False, {}, {}, {}
        before, (word, said) = self._finished, self._stop or (None, None)
        self._stop = None
        self._finished = FinishReason.DONE if word is None else finish_reason_of(word)
        if self._finished is not before:
            yield TurnFinished(self._finished, f"{word}: {said}" if said else word)

    # --- its blocks

    def _begin_block(self, index: int, block: object) -> Iterator[Chunk]:
        yield from self._end_thinking()
        yield from self._end_calls(cut_off=False, only_stopped=True)
        self._calls[index] = None
        match _word(block, "type"):
            case "text":
                words = _text(block, "text")
                self._text_chars = len(words)
                self._kept[index] = KeptBlock({"type": "text", "citations": plain(block).get("citations")})
                yield from [TextDelta(words)] if words else []
            case "thinking":
                self._thinking = _text(block, "thinking") or None
                self._signature = _text(block, "signature") or None
            case "redacted_thinking":
                yield ReasoningDelta("", REDACTED + _text(block, "data"), self._origin)
            case "tool_use":
                yield from self._begin_call(index, block)
            case str() as kind:
                yield from self._begin_hosted(index, block, kind)

    def _begin_hosted(self, index: int, block: object, kind: str) -> Iterator[Chunk]:
        """A block of the service's own work, with what it holds from the start."""
        if fields := plain(block):
            self._kept[index] = KeptBlock(fields)
        self._hosted[index] = _word(block, "id") or f"{kind}_{self._stream}_{index}", _word(block, "name") or kind
        given = getattr(block, "input", None) if kind in _HOSTED else None
        words = json.dumps(dict(given), ensure_ascii=False) if isinstance(given, Mapping) and given else ""
        holder = getattr(block, "content", None)
        if kind == "compaction":
            words = holder if isinstance(holder, str) else ""
        elif kind == "advisor_tool_result":
            said = holder.get("text") if isinstance(holder, Mapping) else getattr(holder, "text", None)
            words = said if isinstance(said, str) else ""
        yield from self._hosted_text(index, words)
        if kind not in self.gave:
            self.gave = (*self.gave, kind)

    def _hosted_text(self, index: int, words: str) -> Iterator[Chunk]:
        if words and index in self._hosted:
            id, name = self._hosted[index]
            self._hosted[index] = id, ""
            yield ToolCallDelta(id, name or None, words)

    def _begin_call(self, index: int, block: object) -> Iterator[Chunk]:
        name, call_id, given = _word(block, "name"), _word(block, "id"), getattr(block, "input", None)
        if name is None:
            raise AdapterError("a tool_use block has no name")
        if call_id is None:
            call_id = f"call_{self._stream}_{self._made_ids}"
            self._made_ids += 1
        self._calls[index] = _OpenToolUse(call_id, name, block, given if isinstance(given, Mapping) else {})
        if not given:
            yield ToolCallDelta(call_id, name, "")

    def _delta(self, index: int, delta: object) -> Iterator[Chunk]:
        kind = _word(delta, "type")
        if index in self._kept and kind != "text_delta":
            self._kept[index].add(delta)
        match kind:
            case "text_delta":
                words = _text(delta, "text")
                self._text_chars += len(words)
                yield from self._end_thinking()
                yield from [TextDelta(words)] if words else []
            case "thinking_delta":
                words = _text(delta, "thinking")
                if words:
                    yield from [ReasoningDelta(self._thinking, origin=self._origin)] if self._thinking else []
                    self._thinking = words
            case "signature_delta":
                self._signature = _text(delta, "signature") or None
            case "input_json_delta":
                yield from self._arguments(index, _text(delta, "partial_json"))
            case "compaction_delta":
                yield from self._hosted_text(index, _text(delta, "content"))

    def _arguments(self, index: int, words: str) -> Iterator[Chunk]:
        if index not in self._calls:
            raise AdapterError(f"arguments came for block {index}, which has not begun")
        call = self._calls[index]
        if call is None:
            yield from self._hosted_text(index, words)
        if call is None or not words:
            return
        name = call.name if call.given and not call.pieces else None
        call.pieces.append(words)
        yield ToolCallDelta(call.id, name, words)

    def _end_block(self, index: int) -> Iterator[Chunk]:
        yield from self._end_thinking()
        call = self._calls.get(index)
        if call is not None and not call.pieces and not call.given:
            call.stopped = True
        elif call is not None:
            self._calls[index] = None
            yield from _complete(call, cut_off=False)
        whole = self._kept.pop(index).whole() if index in self._kept else None
        if whole is not None:
            cited = whole["type"] == "text"
            yield from _kept(kept.of_text(whole["citations"], self._text_chars) if cited else kept.of_block(whole))

    def _end_thinking(self) -> Iterator[Chunk]:
        words, signature = self._thinking, self._signature
        self._thinking = self._signature = None
        if words or signature:
            yield ReasoningDelta(words or "", signature, self._origin)

    def _end_calls(self, *, cut_off: bool, only_stopped: bool = False) -> Iterator[Chunk]:
        for index, call in self._calls.items():
            if call is not None and (call.stopped or not only_stopped):
                self._calls[index] = None
                yield from _complete(call, cut_off=cut_off)


def _complete(call: _OpenToolUse, *, cut_off: bool) -> Iterator[Chunk]:
    """The chunks that complete a call. The service also closes a block that the output limit cut
    off: then its JSON is incomplete or missing.
    """
    text = "".join(call.pieces)
    yield from _kept(kept.of_call(plain(call.raw)))
    if cut_off:
        yield ToolCall(
            call.id,
            call.name,
            text or (json.dumps(dict(call.given), ensure_ascii=False) if call.given else ""),
            call.raw,
        )
    elif text:
        yield ToolCall(call.id, call.name, arguments_of(text), call.raw)
    elif call.given:
        yield ToolCall(call.id, call.name, dict(call.given), call.raw)
    else:
        yield ToolCallDelta(call.id, None, "{}")
        yield ToolCall(call.id, call.name, {}, call.raw)


def _kept(signature: str | None) -> Iterator[Chunk]:
    if signature is not None:
        yield ReasoningDelta("", signature, kept.ORIGIN)


# --- reading the SDK's objects


def _opening(message: object) -> tuple[Any, ...]:
    """The data by which a message that begins twice is recognised."""
    usage = getattr(message, "usage", None)
    return _word(message, "id"), *(getattr(usage, name, None) for name in COUNTS)


def _word(holder: object, name: str) -> str | None:
    value = getattr(holder, name, None)
    if value is not None and not isinstance(value, str):
        raise AdapterError(f"`{name}` of {name_of(holder)} is {name_of(value)}, not str")
    return value or None


def _text(holder: object, name: str) -> str:
    return _word(holder, name) or ""


def _index(item: object) -> int:
    """The index of an event's block; 0 if a service omits it."""
    value = getattr(item, "index", None)
    if value is not None and type(value) is not int:
        raise AdapterError(f"`index` of {name_of(item)} is {name_of(value)}, not int")
    return value or 0


def _part(item: object, name: str) -> object:
    value = getattr(item, name, None)
    if value is None:
        raise AdapterError(f"{name_of(item)} has no `{name}`")
    return cast("object", value)

"""The pieces of a stream, in a form of no provider. Adapters turn each SDK's objects into these.

Text is counted in code points. The delta classes are not frozen: one is made for every chunk, and
freezing makes that three times as slow. Treat them as values all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from monitor._util.codec import Codec
from monitor.errors import AdapterError
from monitor.reasons import FinishReason, ToolErrorKind

__all__ = [
    "CHUNK_TYPES",
    "Chunk",
    "Media",
    "ReasoningDelta",
    "StreamRetried",
    "TextDelta",
    "ToolCall",
    "ToolCallDelta",
    "ToolResult",
    "TurnFinished",
    "UsageReport",
    "chunk_codec",
]
__dir__ = __all__.copy


@dataclass(slots=True)
class TextDelta:
    """A piece of the visible answer."""

    text: str


@dataclass(slots=True)
class ReasoningDelta:
    """A piece of the model's thinking. `signature`: the provider must get it again together with
    the thinking, in the next request (base64 where it was bytes).
    """

    text: str
    signature: str | None = None
    origin: str | None = field(default=None, compare=False)
    """The signer: the provider, and its model where the stream says it, e.g.
    `anthropic:claude-sonnet-4-5`. See `monitor._util.signatures`.
    """


@dataclass(slots=True)
class ToolCallDelta:
    """A piece of a tool call's arguments while they are being written. `name` comes with the first
    piece.
    """

    id: str
    name: str | None
    arguments_text: str


@dataclass(slots=True, frozen=True)
class ToolCall:
    """A complete tool call."""

    id: str
    """The provider's id, or one that the adapter made: `call_<stream>_<n>`, both counted from 0."""
    name: str
    arguments: Any
    """The JSON object of the arguments; the raw text where the model wrote no valid JSON."""
    raw: Any = field(default=None, compare=False, repr=False, metadata={"record": False})
    """The SDK's own object, where there is one. Not part of the JSON form."""
    loop_key: Any = field(default=None, compare=False, repr=False, metadata={"record": False})
    """The value that identifies the call for the detectors, where its tool says so. Not part of the
    JSON form: a replay is given the same tools.
    """


@dataclass(slots=True, frozen=True)
class Media:
    """An image, a document, a sound: by its bytes (base64) or by its address."""

    mime_type: str
    data: str | None = None
    uri: str | None = None
    name: str | None = None


@dataclass(slots=True, frozen=True)
class ToolResult:
    """The answer of a tool. `text` is what the model will read."""

    id: str
    name: str
    text: str
    is_error: bool = False
    media: tuple[Media, ...] = ()
    """Media that the model is shown beside `text`. `text` names each medium, so that two answers
    can be compared without the media.
    """
    vetoed: bool = field(default=False, compare=False)
    """The monitor wrote `text` in the place of an answer: the call was not carried out, or was
    stopped. Only this field says so; the text is no proof.
    """
    error_kind: ToolErrorKind | None = field(default=None, compare=False)
    """The class of the failure, where the result is an error and its class is known."""
    duration_s: float | None = field(default=None, compare=False)
    """Seconds that the call took, without the time in which a person was asked."""
    artifact: str | None = field(default=None, compare=False)
    """Reference of the full text, where `text` is a part of it."""
    truncated: bool = field(default=False, compare=False)
    """The tool answered more than `text` holds."""
    progress: float | None = field(default=None, compare=False)
    """A number that is to be lowered, 0 when nothing is left: failing tests, open items. `None`:
    the tool reports none.
    """
    wrote: tuple[str, ...] = field(default=(), compare=False)
    """Files that the call has written. A compaction names them in the context."""
    display: str | None = field(default=None, compare=False)
    """A text for people in the place of `text`. The model does not read it."""
    full_chars: int | None = field(default=None, compare=False)
    """The number of characters of the tool's whole answer. `None`: `text` is the whole answer."""
    ends_run: Literal["success", "failure"] | None = field(default=None, compare=False)
    """The tool ends the run behind this turn, with `text` as the reason."""


@dataclass(slots=True, frozen=True)
class UsageReport:
    """Tokens of one model call so far, as the provider counts them: a running total. `None`: not
    reported.

    `output_tokens` includes the reasoning; `input_tokens` includes what came from a cache, and what
    was written to one. `cache_write_1h_tokens` is the part of `cache_write_tokens` that is kept for
    an hour.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    total_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None


_FINISH_REASONS = frozenset(FinishReason)


@dataclass(slots=True, frozen=True)
class TurnFinished:
    """The model closed its turn. `raw_finish_reason` is the provider's own word, with its message
    if it sent one.
    """

    finish_reason: FinishReason
    raw_finish_reason: str | None = None

    if TYPE_CHECKING:  # the reason may be given as a text

        def __init__(self, finish_reason: FinishReason | str, raw_finish_reason: str | None = None) -> None: ...

    def __post_init__(self) -> None:
        # a stream of the caller's may say "done"
        if type(self.finish_reason) is str and self.finish_reason in _FINISH_REASONS:
            object.__setattr__(self, "finish_reason", FinishReason(self.finish_reason))


@dataclass(slots=True, frozen=True)
class StreamRetried:
    """The attempt so far is void and the same request starts again. The text and the calls of the
    attempt do not count.
    """

    reason: str


Chunk: TypeAlias = (
    TextDelta | ReasoningDelta | ToolCallDelta | ToolCall | ToolResult | UsageReport | TurnFinished | StreamRetried
)
"""One piece of what a stream says, or of what a tool answered."""

CHUNK_TYPES: tuple[type[Chunk], ...] = get_args(Chunk)
"""The classes of `Chunk`."""

Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta
"""The chunks that may be cut into smaller pieces at any place."""

chunk_codec: Codec[Chunk] = Codec(*CHUNK_TYPES)
"""JSON form of a chunk: `chunk_codec.dumps(chunk)`, `chunk_codec.loads(line)`."""


PIECE_CHARS = 65_536
"""A longer delta is examined in pieces of this many code points, about 10 ms each. If the run ends
within the delta, by a loop or a deadline, the rest is not examined.
"""


def pieces_of(delta: Delta) -> Iterator[Delta]:
    """`delta` in pieces of at most `PIECE_CHARS`. The signature of a thought comes with the last
    piece.
    """
    match delta:
        case TextDelta(text):
            yield from map(TextDelta, _cut(text))
        case ReasoningDelta(text, signature, origin):
            *first, last = _cut(text) or [""]
            yield from map(ReasoningDelta, first)
            yield ReasoningDelta(last, signature, origin)
        case ToolCallDelta(id, name, text):
            for piece in _cut(text):
                yield ToolCallDelta(id, name, piece)


def _cut(text: str) -> list[str]:
    return [text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS)]


def check(chunk: object) -> None:
    """Raise `AdapterError` if `chunk` is not a chunk, or if a field has a wrong type."""
    if not isinstance(chunk, CHUNK_TYPES):
        raise AdapterError(f"expected a chunk, got {type(chunk).__name__}")
    for field_name, kinds in _FIELDS[type(chunk)]:
        value = getattr(chunk, field_name)
        if not isinstance(value, kinds) or isinstance(value, bool) is not (kinds is bool):
            raise AdapterError(f"{type(chunk).__name__}.{field_name} is {value!r}")


_COUNT = (int, type(None))
_FIELDS: dict[type, tuple[tuple[str, type | tuple[type, ...]], ...]] = {
    TextDelta: (("text", str),),
    ReasoningDelta: (("text", str),),
    ToolCallDelta: (("id", str), ("arguments_text", str)),
    ToolCall: (("id", str), ("name", str)),
    ToolResult: (("id", str), ("name", str), ("text", str), ("is_error", bool), ("vetoed", bool)),
    UsageReport: tuple((f"{kind}_tokens", _COUNT) for kind in ("input", "output", "reasoning", "cached", "total")),
    TurnFinished: (("finish_reason", FinishReason),),
    StreamRetried: (("reason", str),),
}
"""The fields whose types detectors and counters rely on."""

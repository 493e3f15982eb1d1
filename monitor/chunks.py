"""The pieces of a stream, in a form of no provider. Adapters turn each SDK's objects into these.

Text is counted in code points. The delta classes are not frozen: one is made for every chunk, and
freezing makes that three times as slow. Treat them as values all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from monitor._util.argument_checks import is_finite, is_whole
from monitor._util.checked_words import checked
from monitor._util.codec import Codec
from monitor._util.explained_options import explained
from monitor.errors import AdapterError, ConfigError, FinishReason, ToolErrorKind

__all__ = [
    "CHUNK_TYPES",
    "AskCost",
    "Chunk",
    "Media",
    "Price",
    "ReasoningDelta",
    "StreamRetried",
    "TextDelta",
    "ToolCall",
    "ToolCallDelta",
    "ToolResult",
    "TurnFinished",
    "Usage",
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
    `anthropic:claude-sonnet-4-5`. See `monitor._util.part_options`.
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
@checked
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
    reference: str | None = field(default=None, compare=False)
    """Where the tool found it (an address, a path, a request), as one line. A compaction keeps it
    in the context.
    """
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


@dataclass(slots=True, frozen=True)
@checked
class TurnFinished:
    """The model closed its turn. `raw_finish_reason` is the provider's own word, with its message
    if it sent one.
    """

    finish_reason: FinishReason
    raw_finish_reason: str | None = None

    if TYPE_CHECKING:  # the reason may be given as a text

        def __init__(self, finish_reason: FinishReason | str, raw_finish_reason: str | None = None) -> None: ...


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


# --------------------------------------------------------------------------------------------------
# Tokens that were used, and what they cost.


@dataclass(slots=True, frozen=True)
class Usage:
    """Tokens of a turn or of a run. Output includes reasoning; input includes tokens that came from
    a cache, and those that were written to one.
    """

    input_tokens: int = 0
    """Tokens of prompts, the cached ones included."""
    output_tokens: int = 0
    """Tokens of answers, reasoning included."""
    reasoning_tokens: int = 0
    """The part of the output that is reasoning."""
    cached_tokens: int = 0
    """The part of the input that the provider had cached."""
    total_tokens: int = 0
    """Input and output together, as the provider counts them."""
    cache_write_tokens: int = 0
    """Input that the provider has written to its cache, for whatever time."""
    cache_write_1h_tokens: int = 0
    """The part of `cache_write_tokens` that is kept for an hour, which costs more."""

    def __add__(self, other: Usage) -> Usage:
        if self is NO_USAGE:
            return other
        if other is NO_USAGE:
            return self
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cached_tokens + other.cached_tokens,
            self.total_tokens + other.total_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.cache_write_1h_tokens + other.cache_write_1h_tokens,
        )

    def merged(self, report: UsageReport) -> Usage:
        """The running total, updated by a later report of the same call. Numbers that the report
        does not contain stay.
        """

        def later(new: int | None, old: int) -> int:
            return old if new is None else max(new, old)

        input_tokens = later(report.input_tokens, self.input_tokens)
        output_tokens = later(report.output_tokens, self.output_tokens)
        return Usage(
            input_tokens,
            output_tokens,
            later(report.reasoning_tokens, self.reasoning_tokens),
            later(report.cached_tokens, self.cached_tokens),
            max(later(report.total_tokens, self.total_tokens), input_tokens + output_tokens),
            later(report.cache_write_tokens, self.cache_write_tokens),
            later(report.cache_write_1h_tokens, self.cache_write_1h_tokens),
        )


NO_USAGE = Usage()
"""One for all who have used nothing."""


@dataclass(slots=True, frozen=True)
class AskCost:
    """The tokens of questions beside the run, to a judge or for a summary. They count even if no
    answer came.
    """

    usage: Usage = NO_USAGE
    estimated: bool = False
    """Part of `usage` is an estimate, because a provider did not report it."""

    def __add__(self, other: AskCost) -> AskCost:
        return AskCost(self.usage + other.usage, self.estimated or other.estimated)


NO_COST = AskCost()
"""One for all runs that have asked nothing."""


@explained(example="monitor.Price(2.5, 10.0), in US dollars per million tokens of input and output")
@dataclass(slots=True, frozen=True)
class Price:
    """US dollars per million tokens. A price that is `None` is the price of other input."""

    input: float
    """Price of input that is not cached."""
    output: float
    """Price of output, reasoning included."""
    cached: float | None = None
    """Price of input from the provider's cache."""
    cache_write: float | None = None
    """Price of input that is written to the provider's cache for some minutes."""
    cache_write_1h: float | None = None
    """Price of input that is written to the provider's cache for an hour. `None`: that of
    `cache_write`.
    """
    above: tuple[tuple[int, Price], ...] = ()
    """Prices of long requests: `((200_000, Price(6, 22.5)),)` holds for all tokens of a request
    with more than 200,000 input tokens. The bounds rise.
    """

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached", "cache_write", "cache_write_1h"):
            value = getattr(self, name)
            if value is None and name not in {"input", "output"}:
                continue
            if not (is_finite(value) and value >= 0):
                raise ConfigError(
                    f"Price.{name} takes US dollars per million tokens, finite and not negative, not {value!r}:"
                    " write monitor.Price(2.5, 10.0)"
                )
        bounds = [bound for bound, _ in self.above]
        if any(not is_whole(bound) for bound in bounds) or bounds != sorted(set(bounds)):
            raise ConfigError(
                f"Price.above takes rising numbers of tokens, each with a Price, not {self.above!r}: write"
                " above=((200_000, monitor.Price(6, 22.5)),)"
            )

    @property
    def dearest_output(self) -> float:
        """The highest price of output, whatever the length of the request."""
        return max(self.output, *(higher.output for _, higher in self.above)) if self.above else self.output

    def cost(self, usage: Usage) -> float:
        """The cost of one request in US dollars. Tokens that only its total contains (of tool
        prompts) count as input.
        """
        price = self
        for bound, higher in self.above:
            price = higher if usage.input_tokens > bound else price
        cached = price.input if price.cached is None else price.cached
        written = price.input if price.cache_write is None else price.cache_write
        written_1h = written if price.cache_write_1h is None else price.cache_write_1h
        for_1h = min(usage.cache_write_1h_tokens, usage.cache_write_tokens)
        stored = usage.cached_tokens + usage.cache_write_tokens
        neither = max(0, usage.total_tokens - max(usage.input_tokens, stored) - usage.output_tokens)
        fresh = max(0, usage.input_tokens - stored) + neither
        return (
            fresh * price.input
            + usage.cached_tokens * cached
            + (usage.cache_write_tokens - for_1h) * written
            + for_1h * written_1h
            + usage.output_tokens * price.output
        ) / 1_000_000


_LINE = "write prices=monitor.Price(2.5, 10.0), in US dollars per million tokens of input and output"


def price_of(prices: Mapping[str, Price] | Price | None, model_name: str | None) -> Price | None:
    """The price of a model, found by its exact name or by its name without the provider ("google:x"
    -> "x"). `None`: unknown.

    A single `Price` applies to every model. Raises `ConfigError` if `prices` is not a price table.
    """
    if prices is None or isinstance(prices, Price):
        return prices
    if not isinstance(prices, Mapping):
        raise ConfigError(f"prices takes a Price, or a dict of model names and Prices, not {prices!r}: {_LINE}")
    table: Mapping[Any, Any] = prices
    for name, price in table.items():
        if not isinstance(name, str) or not isinstance(price, Price):
            raise ConfigError(f"prices takes a Price for each model name, not {name!r}: {price!r}; {_LINE}")
    if model_name is None:
        return None
    return prices.get(model_name) or prices.get(model_name.partition(":")[2])

"""The common parts of the adapters: reading the fields of objects, tool calls in pieces, and counts
of tokens.

The SDKs build most objects without validating them, so a field may be missing, or of any type.
Additional fields of compatible servers are attributes with plain data.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Final

from monitor.chunks import CHUNK_TYPES, Chunk, TextDelta, ToolCall, ToolCallDelta, ToolResult, UsageReport
from monitor.errors import AdapterError, describe
from monitor.models import ErrorKind, ModelError

# --------------------------------------------------------------------------------------------------
# The parts that adapters have in common: the defaults of the facts that an adapter may leave out,
# and the decoding of one SDK object.


class ReportedFailure(AdapterError):
    """The service says inside its stream that the call failed, and the SDK raises nothing. A run
    treats the report as if the SDK had raised it.

    Raised by `StreamAdapter.decode`; `model_error` is what `classify` answers for it.
    """

    def __init__(self, model_error: ModelError, *, last: bool = True) -> None:
        super().__init__(model_error.message)
        self.model_error = model_error
        self.last = last
        """Whether no later object adds to the report, e.g. the usage of the failed call."""
        self.chunks: tuple[Chunk, ...] = ()
        """The chunks of the same object before the failure, e.g. usage."""

    def __reduce__(self) -> tuple[type[ReportedFailure], tuple[ModelError]]:
        return type(self), (self.model_error,)


class AdapterBase:
    """The facts and methods that an adapter may leave out, with their defaults."""

    needs_finish: bool = False
    drains: bool = False
    requests: int = 1
    """The model calls that the SDK is known to have made inside the stream."""
    turns: int = 1
    """The turns that have begun in the stream: another one when the SDK carries out calls by
    itself.
    """
    results: Sequence[ToolResult] = ()
    """The results of the calls of the turn before, if the SDK shows them."""
    source: object = None
    """The open stream whose objects are decoded, for an adapter that looks behind it."""
    gave: Sequence[str] = ()
    """The kinds of parts other than text, thinking and the caller's calls, each once."""

    @property
    def broke_off(self) -> bool:
        """Whether the source has ended while the last of several answers in it has not."""
        return False

    def plain_text(self, item: object) -> str | None:
        """The text of an object that is one piece of visible text and nothing else. `None`: use
        `decode`.
        """
        return None

    def responses(self, source: object) -> Sequence[Any]:
        """The SDK's own open responses behind `source`."""
        return ()


class SdkAdapter(AdapterBase, ABC):
    """Reads the streams of one SDK. A subclass writes `_decode`."""

    needs_finish = True
    drains = True
    readable: ClassVar[str]
    """The kind of object that is expected, in words for the error of an unreadable object."""

    def decode(self, item: object) -> Sequence[Chunk]:
        """The chunks of one object of the SDK, in order.

        Raises `AdapterError` for an object that is not the SDK's or is broken, and
        `ReportedFailure` if the object says that the call failed.
        """
        words = self.plain_text(item)
        if words is not None:
            return (TextDelta(words),)
        chunks: list[Chunk] = []
        try:
            chunks += self._decode(item)
        except ReportedFailure as failure:
            failure.chunks = tuple(chunks)
            raise
        except AdapterError:
            raise
        except Exception as error:
            raise AdapterError(f"{name_of(item)} is not a readable {self.readable}: {error!r}") from error
        return tuple(chunks)

    @abstractmethod
    def _decode(self, item: object) -> Iterable[Chunk]:
        """The chunks of one object. Any exception is allowed: `decode` names the object."""


def name_of(value: object) -> str:
    """The type of a value, for an error message."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def get(holder: object, name: str) -> Any:
    """A field of an SDK object or of plain data; `None` if there is none."""
    if type(holder) is dict:  # known at a glance: to ask whether an object is a mapping takes longer
        return holder.get(name)
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def text_at(holder: object, name: str) -> str | None:
    """A text; `None` if it is empty or missing."""
    value = get(holder, name)
    if value is not None and not isinstance(value, str):
        raise AdapterError(f"`{name}` is {name_of(value)}, not str")
    return value or None


def index_at(holder: object, name: str) -> int | None:
    """A position; `None` if it is missing or not a number."""
    value = get(holder, name)
    return value if type(value) is int else None


def list_at(holder: object, name: str) -> Sequence[Any]:
    """A list; `None` is an empty one."""
    value = get(holder, name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise AdapterError(f"`{name}` is {name_of(value)}, not a list")
    return value


class PendingCall:
    """A tool call while its arguments are being written. `id`: the id that the run uses. `given`:
    the provider's id, if there is one.
    """

    def __init__(self, id_: str, name: str, raw: object, *, given: str | None) -> None:
        self.id = id_
        self.given = given
        self.name = name
        self.raw = raw
        self.custom = False
        """Whether the input of the call is text, not JSON."""
        self.kept: dict[str, Any] = {}
        """Fields that the service needs back with the call, and that no chunk has passed on yet."""
        self.place: object = None
        """The value that names the call in its stream, where an event may come twice."""
        self._pieces: list[str] = []
        self._named = False

    @property
    def text(self) -> str:
        """The text of the arguments so far."""
        return "".join(self._pieces)

    def write(self, piece: str) -> ToolCallDelta:
        """Add a piece. The first `ToolCallDelta` has the name."""
        self._pieces.append(piece)
        name = None if self._named else self.name
        self._named = True
        return ToolCallDelta(self.id, name, piece)

    def settle(self, text: str) -> None:
        """Take `text` for the arguments: what the service says of the whole call counts more than
        the pieces that have come.
        """
        self._pieces = [text]

    def ended(self, *, cut_off: bool) -> ToolCall:
        """The call after its last piece. `cut_off`: the service did not say that the call is
        complete. Its arguments are then a text, even if that text looks whole.
        """
        text = self.text
        arguments: Any = text if cut_off else {"input": text} if self.custom else arguments_of(text)
        return ToolCall(self.id, self.name, arguments, self.raw)


def arguments_of(text: str) -> Any:
    """The JSON object in `text`; `text` itself if it holds none. Some servers send an empty text
    for no arguments.
    """
    if not text.strip():
        return {}
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return arguments if isinstance(arguments, dict) else text


class Tokens:
    """The counts of one response. They never shrink, and a field that a later report lacks keeps
    its value.
    """

    def __init__(self) -> None:
        self.said = False
        """Whether any content came since the last report."""
        self._counts: dict[str, int] = {}

    def report(self, *, last: bool = True, **counts: object) -> Iterator[Chunk]:
        """A report of the totals, if one of them grew. `last`: the totals are of the whole answer.
        They are then reported unchanged as well, if any content came since.
        """
        grew = False
        for name, count in counts.items():
            if type(count) is int and count >= 0:
                known = self._counts.get(name, -1)
                self._counts[name] = max(count, known)
                grew = grew or count > known or (last and self.said)
        if grew:
            self.said = False
            yield UsageReport(**self._counts)


# --------------------------------------------------------------------------------------------------
# Adapters for streams that need no SDK: pieces of text, and chunks of our own vocabulary.


class _PlainAdapter(AdapterBase):
    """The streams of both adapters need no finish reason, and `aclose()` closes them."""

    def __init__(self, stream: int = 0) -> None:
        """`stream` is ignored: chunks bring their ids."""

    def finish(self) -> Sequence[Chunk]:
        """Empty: no chunk is missing at the end."""
        return ()

    def classify(self, error: BaseException) -> ModelError:
        """Connection errors and timeouts are `NETWORK`, `AdapterError` is `MALFORMED`, the rest is
        `UNKNOWN`.
        """
        kind = ErrorKind.UNKNOWN
        if isinstance(error, AdapterError):
            kind = ErrorKind.MALFORMED
        elif isinstance(error, OSError):  # TimeoutError and ConnectionError are subclasses
            kind = ErrorKind.NETWORK
        return ModelError(kind, describe(error))


class TextAdapter(_PlainAdapter):
    """A stream of `str`: every piece is visible text."""

    def decode(self, item: object) -> Sequence[Chunk]:
        """One `TextDelta`."""
        if not isinstance(item, str):
            raise AdapterError(f"expected a piece of text, got {type(item).__name__}")
        return (TextDelta(item),)


class ChunkAdapter(_PlainAdapter):
    """A stream of `monitor` chunks."""

    def decode(self, item: object) -> Sequence[Chunk]:
        """The chunk itself."""
        if not isinstance(item, CHUNK_TYPES):
            hint = "; yield TextDelta(...) for text" if isinstance(item, str) else ""
            raise AdapterError(f"expected a chunk of monitor, got {type(item).__name__}{hint}")
        return (item,)


# --------------------------------------------------------------------------------------------------
# JSON objects with attributes, as the adapters of the SDKs' objects read them.

_PLAIN: Final = frozenset({"args", "input"})
"""Fields that are data of the caller's in the SDKs' objects too: the arguments of calls."""


class JsonView:
    """A JSON object whose fields are attributes. A field that is missing is `None`, as in the SDKs'
    objects.
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = self._fields.get(self._key(name))
        return value if name in _PLAIN else self._viewed(value)

    def to_dict(self, **_options: object) -> dict[str, Any]:
        """The JSON object. The objects of the SDKs have a method of this name too."""
        return dict(self._fields)

    def _key(self, name: str) -> str:
        return name

    def _viewed(self, value: object) -> Any:
        if isinstance(value, dict):
            return type(self)(value)
        if isinstance(value, list):
            return [self._viewed(one) for one in value]
        return value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._fields!r})"


class CamelView(JsonView):
    """A view of objects of Gemini, whose fields are camel case on the wire and snake case in the
    SDK.
    """

    __slots__ = ()

    def _key(self, name: str) -> str:
        return _camel(name)


@cache  # the names stand in the code of an adapter
def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)

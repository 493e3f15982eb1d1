"""The protocol of adapters, and how the right one is found from the object that a stream yields.

An adapter turns one SDK's stream objects into chunks; one instance reads one stream. It knows the
SDK's shapes by their attributes, so that neither finding nor using it imports the SDK.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import cache
from traceback import walk_tb
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType, TracebackType
from typing import Any, Final, Protocol, cast

from monitor.adapters.parts import AdapterBase, ChunkAdapter, TextAdapter
from monitor.adapters.parts import ReportedFailure as ReportedFailure  # noqa: PLC0414 - its public place
from monitor.adapters.sdk_errors import attribute
from monitor.chunks import CHUNK_TYPES, Chunk, ToolResult
from monitor.errors import ConfigError
from monitor.models import ModelError


class StreamAdapter(Protocol):
    """Reads one stream. An adapter may have two more methods, which only save time:

    - `plain_text(item) -> str | None`: the text of an object that is one piece of visible text and
      nothing else;
    - `responses(source) -> Sequence`: the SDK's own response objects behind `source`, a suspended
      generator or coroutine, or a traceback. Their `aclose()` or `close()` closes the connection at
      once. Empty if they cannot be found.

    It may also have five more facts:

    - `requests`: the model calls that the SDK is known to have made inside the stream; 1 otherwise;
    - `turns`: the turns that have begun in the stream; more than 1 if the SDK carries out calls by
      itself and asks again. `results`: those of the calls before the newest turn, where the SDK
      shows them. Both are read after each object, whose chunks belong to the newest turn;
    - `broke_off`: whether the source has ended while the last of several answers in it has not;
    - `gave`: the kinds of parts other than text, thinking and the caller's calls (`image/png`,
      `mcp_approval_request`), each once. An answer with only such parts is not empty.

    `AdapterBase` in `monitor.adapters.parts` has the defaults of all of them.
    """

    @property
    def needs_finish(self) -> bool:
        """Whether whole streams of the SDK end with a finish reason. Then a stream without one was
        truncated.
        """
        ...

    @property
    def drains(self) -> bool:
        """Whether `aclose()` of this SDK's async generators leaves the connection open. Then their
        `responses` are closed instead. If none is found, the generators are drained in a cancelled
        scope.
        """
        ...

    def decode(self, item: object, /) -> Sequence[Chunk]:
        """The chunks of one SDK object, in order.

        Raises `AdapterError` for an object that is not the SDK's, and `ReportedFailure` for an
        object that says that the call failed.
        """
        ...

    def finish(self) -> Sequence[Chunk]:
        """The chunks that are still missing when the source has ended, e.g. a tool call that was
        cut off.
        """
        ...

    def classify(self, error: BaseException, /) -> ModelError:
        """The kind of failure that an exception of the SDK is.

        Names and values decide; httpx is not imported.
        """
        ...


class AdapterFactory(Protocol):
    """Makes an adapter for one stream; adapter classes are factories."""

    def __call__(self, stream: int, /) -> StreamAdapter:
        """`stream`: the number of the stream in the run, from 0. It keeps made-up ids unique."""
        ...


class FullAdapter(StreamAdapter, Protocol):
    """An adapter that leaves nothing out: `complete` makes one of any adapter."""

    @property
    def requests(self) -> int: ...
    @property
    def turns(self) -> int: ...
    @property
    def results(self) -> Sequence[ToolResult]: ...

    source: object

    @property
    def broke_off(self) -> bool: ...
    @property
    def gave(self) -> Sequence[str]: ...
    def plain_text(self, item: object, /) -> str | None: ...
    def responses(self, source: object, /) -> Sequence[Any]: ...


_DEFAULTS: Final = AdapterBase()


class _Completed:
    """A caller's adapter, which may have only the members of `StreamAdapter`."""

    def __init__(self, given: StreamAdapter) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:
        return getattr(self._given, name) if hasattr(self._given, name) else getattr(_DEFAULTS, name)


def complete(adapter: StreamAdapter) -> FullAdapter:
    """`adapter`, with the default of each fact and method that it leaves out."""
    return cast("FullAdapter", adapter if isinstance(adapter, AdapterBase) else _Completed(adapter))


def adapter_of(model: object) -> AdapterFactory | None:
    """The attribute `adapter` of a model. `None`: the objects of its stream show the SDK."""
    factory: AdapterFactory | None = getattr(model, "adapter", None)
    return factory


_BY_MODULE = {
    "anthropic": ("monitor.adapters.anthropic.stream", "AnthropicAdapter"),
    "google.genai": ("monitor.adapters.google.stream", "GoogleAdapter"),
    "openai": ("monitor.adapters.openai.stream", "OpenAIAdapter"),
}
"""The module prefix of an SDK's objects, and the adapter that reads them."""


_NO_STREAMS: Final = {
    "anthropic._decoders": "the results of a batch are whole answers",
    "anthropic.lib.tools": (
        "a tool runner gives whole answers: make it with stream=True, and watch each stream that it yields, inside"
        " 'async for stream in runner'"
    ),
    "google.genai._gaos": "the Interactions API is not supported: use generate_content_stream",
    "google.genai.live": "the Live API is not supported: use generate_content_stream",
    "google.genai.types.Live": "the Live API is not supported: use generate_content_stream",
    "openai.resources.realtime": "the Realtime API is not supported: use responses.create(..., stream=True)",
    "openai.resources.responses.responses.AsyncResponsesConnection": "use responses.create(..., stream=True)",
    "openai.resources.responses.responses.ResponsesConnection": "use responses.create(..., stream=True)",
    "openai.types.realtime": "the Realtime API is not supported: use responses.create(..., stream=True)",
}
"""The beginning of the full names of classes whose objects can be iterated and are no stream of one
answer.
"""


def must_be_a_stream(given: object) -> None:
    """Raise `ConfigError` if `given` is such an object, or one that comes from it."""
    kind = type(given)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if inspect.isasyncgen(given) and given.ag_frame is not None:
        name = f"{given.ag_frame.f_globals.get('__name__', '')}.{given.__qualname__}"
    for beginning, why in _NO_STREAMS.items():
        if name.startswith(beginning):
            raise ConfigError(f"cannot watch {name.removeprefix(kind.__module__ + '.')}: {why}")


def find_adapter(item: object) -> AdapterFactory | None:
    """The factory for streams that yield `item`; `None`: no adapter knows its type."""
    if isinstance(item, str):
        return TextAdapter
    if isinstance(item, CHUNK_TYPES):
        return ChunkAdapter
    if not isinstance(item, BaseException):  # an error shows the SDK too
        must_be_a_stream(item)
    return _by_module(type(item).__module__)


def find_adapter_of_source(source: object) -> AdapterFactory | None:
    """The factory for a stream, found before the first read. `None`: only the first item shows the
    SDK.
    """
    must_be_a_stream(source)
    if inspect.isasyncgen(source):
        frame = source.ag_frame
        return _by_module(str(frame.f_globals.get("__name__", ""))) if frame is not None else None
    return _by_module(type(source).__module__)


def responses_behind(source: object, adapter: FullAdapter | None) -> list[Any]:
    """The open responses of any SDK behind a suspended generator or coroutine, or in the frames of
    a traceback.

    `adapter`: the adapter of the stream, if known. The adapters of all imported SDKs search as
    well, because the caller's own generator or opening function may hold any SDK's stream.
    """
    finders: list[Any] = [_by_module(module) for module in _BY_MODULE if module in sys.modules]
    adapters = [finder(0) for finder in finders if not isinstance(adapter, finder)]
    if adapter is not None:
        adapters.insert(0, adapter)
    found = [response for one in adapters for response in one.responses(source)]
    return list({id(response): response for response in found}.values())


def comes_from_sdk(trace: TracebackType | None) -> bool:
    """Whether an exception passed through an SDK's own code, which then releases its connection."""
    return any(_by_module(str(frame.f_globals.get("__name__", ""))) is not None for frame, _ in walk_tb(trace))


@cache
def _by_module(module: str) -> AdapterFactory | None:
    for prefix, (where, name) in _BY_MODULE.items():
        if module == prefix or module.startswith(prefix + "."):
            factory: AdapterFactory = getattr(importlib.import_module(where), name)
            return factory
    return None


# --------------------------------------------------------------------------------------------------
# The objects that a suspended generator, a coroutine or an iterator holds, and those that an
# exception left in the frames of its traceback. This works on CPython; elsewhere nothing is found.

_NESTS: Final = (AsyncGeneratorType, CoroutineType, FrameType, GeneratorType, TracebackType)
_MAX_STEPS: Final = 2_000
"""The most objects that are looked at; about 50 are needed."""


def held_behind(source: object, wanted: Callable[[object], Any]) -> list[Any]:
    """The results of `wanted` for the objects that `source` holds. `source`: a suspended generator
    or coroutine, an iterator of any class, with those nested in it, or a traceback. Empty for any
    other `source`.

    Of a traceback, only finished frames are searched, not the frame that caught the exception, nor
    its callers. Cells are not searched: a function may share them with code that still runs.
    """
    seen, waiting, found = {id(source)}, [source] if _may_hold(source) else [], list[Any]()
    while waiting and len(seen) < _MAX_STEPS:
        holder = waiting.pop()
        caller = holder.f_back if isinstance(holder, FrameType) else None
        fields = [] if isinstance(holder, _NESTS) else [*getattr(holder, "__dict__", {}).values()]
        for held in (*gc.get_referents(holder), *fields):
            if id(held) in seen or held is caller:
                continue
            seen.add(id(held))
            if (one := wanted(held)) is not None:
                found.append(one)
            elif _may_hold(held):
                waiting.append(held)
    return found


def _may_hold(held: object) -> bool:
    """Whether `held` is searched too: a framework wraps a stream in a generator, or in an iterator
    of its own.
    """
    return isinstance(held, _NESTS) or _iterates(type(held))


def _iterates(kind: type) -> bool:
    return hasattr(kind, "__anext__") or hasattr(kind, "__next__")


def stream_of(package: str) -> Callable[[object], Any]:
    """For `held_behind`: finds the streams of an SDK that have a method to close them."""

    def find(held: object) -> object:
        kind = type(held)
        theirs = kind.__module__.partition(".")[0] == package and _iterates(kind)
        return held if theirs and closable(held) else None

    return find


def closable(held: object) -> bool:
    """Whether `held` has `aclose()` or `close()`."""
    return callable(attribute(held, "aclose")) or callable(attribute(held, "close"))

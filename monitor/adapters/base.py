"""What an adapter is, and how the right one is found from the object that a stream yields.

An adapter turns one SDK's stream objects into chunks; one instance reads one stream. It knows the
SDK's shapes by their attributes, so that neither finding nor using it imports the SDK.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Sequence
from traceback import walk_tb
from types import TracebackType
from typing import Any, Protocol, cast

from monitor.adapters.plain import ChunkAdapter, TextAdapter
from monitor.chunks import CHUNK_TYPES, Chunk
from monitor.errors import AdapterError
from monitor.models import ModelError


class StreamAdapter(Protocol):
    """Reads one stream. It may have two methods more, which only save time:

    - `plain_text(item) -> str | None`: the text of an object that is one piece of visible text and
      nothing else;
    - `responses(source) -> Sequence`: the SDK's own response objects behind a suspended generator
      or coroutine, or in the frames of a traceback, which close the connection at once by
      `aclose()` or `close()`; empty where they cannot be found.

    And three facts more: `requests`, the model calls that the SDK is known to have made inside the
    stream, where it may make several; `broke_off`, true where the source has ended and the last of
    several answers in it has not; and `gave`, the kinds of what came besides text, thinking and the
    caller's calls (`image/png`, `mcp_approval_request`), each once: an answer that is only that is
    not empty.
    """

    needs_finish: bool
    """The SDK's streams close with a finish reason; one that just ends was truncated."""
    drains: bool
    """`aclose()` of this SDK's async generators does not close the connection: their `responses`
    are closed, or else they are drained in a cancelled scope.
    """

    def decode(self, item: object) -> Sequence[Chunk]:
        """The chunks of one SDK object, in order.

        Raises `AdapterError` for an object that is none of the SDK's, and `ReportedFailure` for one
        that says that the call failed.
        """
        ...

    def finish(self) -> Sequence[Chunk]:
        """The source ended by itself: what is still owed, e.g. a tool call whose end never came."""
        ...

    def classify(self, error: BaseException) -> ModelError:
        """Which kind of failure an exception of the SDK is; decided by names and values, never by
        importing httpx.
        """
        ...


class AdapterFactory(Protocol):
    """Makes an adapter for one stream; adapter classes are factories."""

    def __call__(self, stream: int) -> StreamAdapter:
        """`stream`: its number in the run, 0 for the first; keeps the ids that are made up
        apart.
        """
        ...


class ReportedFailure(AdapterError):
    """The service says inside its stream that the call failed, and the SDK raises nothing. A run
    takes it as if it had.

    Raised by `StreamAdapter.decode`; `model_error` is what `classify` answers for it.
    """

    def __init__(self, model_error: ModelError, *, last: bool = True) -> None:
        super().__init__(model_error.message)
        self.model_error = model_error
        self.last = last
        """No object comes after it that says more, such as what the failed call has used."""
        self.chunks: tuple[Chunk, ...] = ()
        """What the same object says besides, before the failure: usage, for one."""

    def __reduce__(self) -> tuple[type[ReportedFailure], tuple[ModelError]]:
        return type(self), (self.model_error,)


_BY_MODULE = {
    "anthropic": ("monitor.adapters.anthropic.stream", "AnthropicAdapter"),
    "google.genai": ("monitor.adapters.google.stream", "GoogleAdapter"),
    "openai": ("monitor.adapters.openai.stream", "OpenAIAdapter"),
}
"""Where an SDK's objects come from, and who reads them."""


def find_adapter(item: object) -> AdapterFactory | None:
    """The factory for streams that yield such an item; `None`: no adapter knows it."""
    if isinstance(item, str):
        return TextAdapter
    if isinstance(item, CHUNK_TYPES):
        return ChunkAdapter
    return _by_module(type(item).__module__)


def find_adapter_of_source(source: object) -> AdapterFactory | None:
    """The factory for a stream object, where it can be told before anything has been read from
    it.
    """
    if inspect.isasyncgen(source):
        frame = source.ag_frame
        return _by_module(str(frame.f_globals.get("__name__", ""))) if frame is not None else None
    return _by_module(type(source).__module__)


def responses_behind(source: object, adapter: StreamAdapter | None) -> list[Any]:
    """What any SDK holds open behind a suspended generator or coroutine, or in the frames of a
    traceback.

    Any SDK, because a generator or an opening function of the caller's own may yield what it likes,
    or nothing yet.
    """
    # no other's objects can be here
    finders: list[Any] = [_by_module(module) for module in _BY_MODULE if module in sys.modules]
    adapters = [adapter, *(finder(0) for finder in finders if not isinstance(adapter, finder))]
    found = [
        response for one in adapters if hasattr(one, "responses") for response in cast("Any", one).responses(source)
    ]
    return list({id(response): response for response in found}.values())


def comes_from_sdk(trace: TracebackType | None) -> bool:
    """Whether an exception came through an SDK's own code, which lets go of its connection then."""
    return any(_by_module(str(frame.f_globals.get("__name__", ""))) is not None for frame, _ in walk_tb(trace))


def _by_module(module: str) -> AdapterFactory | None:
    for prefix, (where, name) in _BY_MODULE.items():
        if module == prefix or module.startswith(prefix + "."):
            factory: AdapterFactory = getattr(importlib.import_module(where), name)
            return factory
    return None

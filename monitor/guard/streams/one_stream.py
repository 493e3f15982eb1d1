"""The parts of one SDK stream, however it is read: its source, its adapter, its turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

from monitor._util.argument_checks import signature_of
from monitor.adapters.adapter import (
    AdapterFactory,
    FullAdapter,
    ReportedFailure,
    complete,
    find_adapter,
    must_be_a_stream,
    responses_behind,
)
from monitor.adapters.parts import TextAdapter
from monitor.chunks import Chunk
from monitor.core.run import RunCore
from monitor.errors import ConfigError, forget_keys, without_keys
from monitor.guard.streams.wait import Clock
from monitor.models import ModelError
from monitor.outcome import Turn

T = TypeVar("T")


class OneStream(Generic[T]):
    """One stream. `RunCore` decides; `SourceStream` and `SyncStream` read."""

    __slots__ = (
        "_adapter",
        "_began",
        "_core",
        "_error",
        "_factory",
        "_finished",
        "_index",
        "_iterator",
        "_model_error",
        "_now",
        "_opened",
        "_over",
        "_reported",
        "_requests",
        "_source",
        "_turn",
        "_turns",
    )

    def __init__(
        self, source: object, core: RunCore, *, clock: Clock, adapter: AdapterFactory | None, index: int
    ) -> None:
        """`index`: the number of the stream in its run."""
        self._source: Any = source
        self._core = core
        self._now = clock.now
        self._factory = adapter
        self._adapter: FullAdapter | None = None
        self._index = index
        self._requests = self._turns = 1
        self._opened: Any = None
        self._iterator: Any = None
        self._began = self._over = self._finished = False
        self._error: Exception | None = None
        self._model_error: ModelError | None = None
        self._reported: ReportedFailure | None = None
        """The first failure that an object of the stream reported; later objects may add to it."""
        self._turn: Turn | None = None

    @property
    def turn(self) -> Turn:
        """The turn of this stream: text, calls, usage, finish reason. Its number is 0 if the stream
        was never opened.

        Raises `ConfigError` while the stream is not over.
        """
        if self._turn is None:
            raise ConfigError("the turn is known when the stream is over; leave the loop first")
        return self._turn

    # ------------------------------------------------------------------ the adapter

    def _begin_with(self, item: T, now: float) -> FullAdapter:
        """The adapter of the first object, which shows the SDK if that was unknown."""
        self._core.first_chunk(now)
        self._factory = self._factory or find_adapter(item)
        if self._factory is None:
            raise ConfigError(
                f"no adapter knows objects of type {type(item).__module__}.{type(item).__qualname__}; "
                "pass adapter=, or a stream of str or of monitor chunks"
            )
        self._adapter = complete(self._factory(self._index))
        self._adapter.source = self._iterator
        return self._adapter

    def _known_adapter(self) -> FullAdapter | None:
        """The adapter, also of a stream without a decoded object. `None`: unknown."""
        return self._adapter or (complete(self._factory(self._index)) if self._factory is not None else None)

    def _adapter_for(self, error: Exception) -> FullAdapter:
        """The adapter that classifies `error`. Before the first object, the error shows the SDK."""
        return self._adapter or complete((self._factory or find_adapter(error) or TextAdapter)(self._index))

    def _decoded(self, adapter: FullAdapter, item: T, now: float) -> Sequence[Chunk]:
        """The chunks of one object, which may be the first of another turn in the same stream."""
        chunks = adapter.decode(item)
        while self._turns < adapter.turns:
            self._turns += 1
            self._core.next_turn(adapter.results, now)
        return chunks

    def _count_requests(self, adapter: FullAdapter) -> None:
        while self._requests < adapter.requests:
            self._requests += 1
            self._core.continued(self._now())

    # ------------------------------------------------------------------ the end

    @property
    def _innermost(self) -> Any:
        """The innermost object of the source that is open so far."""
        return next((one for one in (self._iterator, self._opened) if one is not None), self._source)

    def _responses_behind(self, source: object) -> list[Any]:
        """The open responses that `source` holds, in generators and iterators around them."""
        try:
            return responses_behind(source, self._adapter)
        except Exception:  # noqa: BLE001 - an adapter may be the caller's code, and must not prevent the end of a stream
            return []

    def _holders(self) -> Iterator[object]:
        """Objects that may hold the request of the stream, and so its key."""
        yield self._innermost

    def _settle(self, now: float) -> None:
        """Classify the end of the source, unless the end of the run has ended it."""
        core = self._core
        if core.stop is not None:
            return
        self._error = self._reported or self._error
        try:
            if self._error is not None:
                found = self._adapter_for(self._error).classify(self._error)
                asked = tuple(self._holders())
                self._model_error = replace(found, message=without_keys(found.message, self._error, *asked))
                forget_keys(self._error, *asked)
            elif self._finished and self._adapter is not None:
                for chunk in self._adapter.finish():
                    core.feed(chunk, now)
                if self._adapter.broke_off:
                    core.broke_off()
        except Exception as error:  # noqa: BLE001 - an adapter may be the caller's code
            core.fail(error, "adapter", now)

    def _end_turn(self) -> None:
        """End the turn of the stream in the core."""
        core = self._core
        if not self._began:
            self._turn = Turn(number=0, stopped=core.stop)
            return
        adapter = self._known_adapter()
        self._turn = core.end_turn(
            self._now(),
            finished=self._finished and core.stop is None,
            error=self._error if core.stop is None else None,
            model_error=self._model_error,
            must_finish=adapter is not None and adapter.needs_finish,  # the source decides if no object came
            gave=tuple(self._adapter.gave) if self._adapter is not None else (),
        )


# --------------------------------------------------------------------------------------------------
# What was given as a stream and is none: what it is, and the line that watches a stream.

_STREAMED: Final = {
    "anthropic": "await client.messages.create(..., stream=True)",
    "google": "await client.aio.models.generate_content_stream(...)",
    "openai": "await client.chat.completions.create(..., stream=True)",
}
"""For each SDK, the call that gives a stream."""


def opened(given: Any, *, waits: bool) -> Any:
    """`given`, or what it returns where it is a function that opens a stream.

    Raises `ConfigError` for a class, for a function that needs arguments, and for an object of an
    SDK that is no stream of one answer.
    """
    must_be_a_stream(given)
    is_class = isinstance(given, type)
    others = ("__anext__", "__aiter__", "__aenter__") if waits else ("__next__", "__iter__", "__enter__")
    if not is_class and (not callable(given) or any(hasattr(given, name) for name in others)):
        return given
    name = getattr(given, "__name__", type(given).__name__)
    line = f"write {'async with' if waits else 'with'} monitor.watch({name}(...)) as watched: ..."
    if is_class:
        raise ConfigError(f"cannot watch {name}, which is a class: {line}")
    try:
        signature_of(given).bind()
    except TypeError:
        raise ConfigError(f"cannot watch {name}, a function that needs arguments: {line}") from None
    except ValueError:  # a function in C may not say
        pass
    return given()


def not_watched(given: object, *, waits: bool) -> str:
    """Why `given` cannot be watched, and the way out. `waits`: it was given in an `async with`."""
    kind = "an async iterator" if waits else "an iterator"
    block = "async with" if waits else "with"
    sdk = type(given).__module__.partition(".")[0]
    call = _STREAMED.get(sdk, _STREAMED["openai"])
    call = call if waits else call.removeprefix("await ").replace(".aio", "")
    watch = f"{block} monitor.watch(stream) as watched"
    if given is None:
        return f"it is not {kind}: write stream = {call}, then {watch}: ..."
    if sdk in _STREAMED and _is_client(given):
        return f"it is not {kind}, but a client: write stream = {call}, then {watch}: ..."
    of_sdk = sdk in _STREAMED and not hasattr(given, "__aenter__") and not hasattr(given, "__enter__")
    if of_sdk or isinstance(given, str | bytes | Mapping):
        return f"it is not {kind}, but a whole answer; ask for a stream: write stream = {call}, then {watch}: ..."
    if waits and hasattr(given, "__next__"):
        return (
            "it is not an async iterator; use the asynchronous client of your SDK, or watch it in plain 'with': write"
            " with monitor.watch(stream) as watched: for chunk in watched: ..."
        )
    if hasattr(given, "__aenter__" if waits else "__enter__"):
        return f"it is not {kind}; enter it first: write {block} ... as stream, and then {watch}: ..."
    return f"it is not {kind}; give the stream of an SDK: write {watch}: ..."


def _is_client(given: object) -> bool:
    """Whether `given` is a client of an SDK: it makes requests of several kinds."""
    return any(hasattr(given, requests) for requests in ("chat", "messages", "models")) and hasattr(given, "close")

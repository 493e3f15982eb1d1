"""The parts of one SDK stream, however it is read: its source, its adapter, its turn. `SyncStream`
reads a synchronous one, for `with monitor.watch(...)` and `with Guard(...)`.

`RunCore` decides in both cases. Nothing can interrupt a synchronous read that blocks: limits,
deadlines and `abort()` take effect when the SDK delivers its next object, or fails. So give the
client a timeout of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import isgenerator
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar, cast

from monitor._util.argument_checks import signature_of
from monitor.adapters.adapter import (
    AdapterFactory,
    FullAdapter,
    ReportedFailure,
    complete,
    find_adapter,
    find_adapter_of_source,
    must_be_a_stream,
    responses_behind,
)
from monitor.adapters.parts import TextAdapter
from monitor.chunks import Chunk, ToolCall
from monitor.core.run import RunCore
from monitor.errors import ConfigError, SourceFailed, describe, forget_keys, without_keys
from monitor.guard.streams.wait import Clock
from monitor.messages import AssistantMessage, Text
from monitor.models import ModelError
from monitor.outcome import Turn
from monitor.wires.fields import Form

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

    def to_form(self, form: Form) -> list[dict[str, Any]]:
        """The model's message for the history of your own loop, see `reply_of`. Known when the
        stream is over.
        """
        return reply_of(self.turn, form)

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
                _free_own_frames(self._error)
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


def _free_own_frames(error: BaseException) -> None:
    """Leave the frames that read the stream out of the traceback: they would keep the guard, and
    with it the connection, for as long as the error.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals["__name__"].startswith("monitor.guard."):
        trace = trace.tb_next
    error.__traceback__ = trace


def reply_of(turn: Turn, form: Form) -> list[dict[str, Any]]:
    """The messages to append for `turn`: one, or none if the model said nothing. A loop in the text
    is left out, because a model that reads its own loop continues it.

    Only `openai-chat`: the other forms need what a turn does not keep, such as signatures of
    thoughts, and a provider refuses a history without them. Raises `ConfigError` for those, and for
    a text that was cut by `keep_text_chars`.
    """
    if form != "openai-chat":
        raise ConfigError(f"to_form makes 'openai-chat', not {form!r}: keep the message of your SDK for that form")
    if turn.text_truncated:
        raise ConfigError("the text of the turn was cut by keep_text_chars, so its message is not complete")
    text = turn.text[: turn.loop_offset]
    said: tuple[Text | ToolCall, ...] = (*([Text(text)] if text else []), *turn.tool_calls)
    if not said:
        return []
    from monitor.adapters.provider_forms import to_form  # noqa: PLC0415 - only a loop that asks for its message needs it

    made = to_form(form, [AssistantMessage(said, (), turn.finish_reason)])
    return [message for message in made if message["role"] == "assistant"]


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


# --------------------------------------------------------------------------------------------------
# Reading a synchronous stream.

SyncSource: TypeAlias = Iterable[T] | Callable[[], Iterable[T]]
"""The sources that can be watched without an event loop: a stream, or a function that opens one."""

_NOTHING: Any = object()


class SyncStream(OneStream[T]):
    """One stream, as an iterator of the SDK's own objects."""

    __slots__ = ("_reading",)

    def __init__(
        self, source: object, core: RunCore, *, clock: Clock, adapter: AdapterFactory | None, index: int = 0
    ) -> None:
        super().__init__(source, core, clock=clock, adapter=adapter, index=index)
        self._reading = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def close(self) -> None:
        """Close the source before its end. After the end, `close` does nothing."""
        self._end()

    def __next__(self) -> T:
        core = self._core
        if self._reading:
            raise ConfigError("this stream is already being read by another thread")
        if not self._began and not self._over:
            self._began = core.begin_turn(self._now())
        core.waiting_since = now = self._now()
        if self._over or core.stop is not None or (now >= core.deadline and core.must_stop(now)):
            self._end()
            raise StopIteration
        item = self._read()
        now = self._now()
        late = now >= core.deadline and core.must_stop(now)
        if late or item is _NOTHING:
            self._end()
            raise StopIteration
        self._take(item, now)
        if core.ends_stream:
            self._end()
        return item

    # ------------------------------------------------------------------ one object

    def _read(self) -> T:
        """The next object, or `_NOTHING` if the source has ended or failed."""
        nothing: T = _NOTHING
        self._reading = True
        try:
            if self._iterator is None:
                self._iterator = self._open()
            read: T = next(self._iterator)
            return read
        except StopIteration:
            self._finished = True
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the SDK raises ends the turn
            self._error = error
        except GeneratorExit as error:  # the source raised it: nobody closes this object
            self._error = SourceFailed.by(error)
        finally:
            self._reading = False
        return nothing

    def _open(self) -> Iterator[T]:
        given: Any = opened(self._source, waits=False)
        self._opened = given
        waits = isinstance(given, AsyncIterator) or hasattr(given, "__aiter__") or hasattr(given, "__await__")
        if waits and not hasattr(given, "__iter__"):  # the streams of LiteLLM are both
            raise ConfigError(
                f"cannot watch {type(given).__name__} without an event loop; use 'async with': write async with"
                " monitor.watch(stream) as watched: async for chunk in watched: ..."
            )
        # A pydantic model, such as a whole answer, is an iterable of its fields.
        if (
            not hasattr(given, "__iter__")
            or hasattr(type(given), "model_fields")
            or isinstance(given, str | bytes | Mapping)
        ):
            raise ConfigError(f"cannot watch {type(given).__name__}: {not_watched(given, waits=False)}")
        source: Iterator[T] = iter(cast("Iterable[T]", given))
        if self._factory is None:
            self._factory = find_adapter_of_source(source)
        return source

    def _take(self, item: T, now: float) -> None:
        """Pass the object to the core. An unreadable one ends the stream, and is delivered."""
        core = self._core
        try:
            adapter = self._adapter or self._begin_with(item, now)
            for chunk in self._decoded(adapter, item, now):
                core.feed(chunk, now)
            self._count_requests(adapter)
        except ConfigError:
            raise
        except ReportedFailure as failure:
            for chunk in failure.chunks:
                core.feed(chunk, now)
            self._reported = self._reported or failure
            if failure.last:
                self._error = self._reported
                self._end()
        except Exception as error:  # noqa: BLE001 - as said above
            core.fail(error, "adapter", now)

    # ------------------------------------------------------------------ the end

    def _end(self) -> None:
        """Report the end of the stream to the core, and close the source."""
        if self._over:
            return
        self._over = True
        core, since = self._core, self._now()
        self._settle(since)
        if not self._finished:
            note = self._close()
            core.source_closed(self._now(), since=since, closed=note is None, chunks_dropped=0, note=note)
        self._end_turn()

    def _holders(self) -> Iterator[object]:
        yield from (self._opened, self._iterator)

    def _close(self) -> str | None:
        """Close the source. Returns why it may still be open, or `None`."""
        source: Any = self._iterator if self._iterator is not None else self._opened
        if source is None:
            return None  # nothing was opened
        closed, note = False, None
        searched = isgenerator(source) or not callable(getattr(source, "close", None))
        behind = self._responses_behind(source) if searched else ()
        for one in (*behind, source, *((self._opened,) if self._opened is not source else ())):
            close = getattr(one, "close", None)
            if callable(close):
                try:
                    close()
                    closed = True
                except Exception as error:  # noqa: BLE001 - it must not hide how the run ended
                    note = f"closing raised {describe(error)}"
        return note if closed or note else f"{type(source).__name__} has no close()"

"""Reads one synchronous SDK stream: the driver of `with monitor.watch(...)` and `with Guard(...)`.

`RunCore` decides here as it does for asynchronous streams. Nothing can interrupt a read that
blocks: limits, deadlines and `abort()` take effect when the SDK delivers its next object, or fails.
So give the client a timeout of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar, cast

from monitor.adapters.base import (
    AdapterFactory,
    FullAdapter,
    ReportedFailure,
    complete,
    find_adapter,
    find_adapter_of_source,
)
from monitor.adapters.plain import TextAdapter
from monitor.core.run import RunCore
from monitor.errors import ConfigError, SourceFailed, describe, forget_keys, without_keys
from monitor.harness.streams.clock import Clock
from monitor.models import ModelError
from monitor.outcome import Turn

T = TypeVar("T")

SyncSource: TypeAlias = Iterable[T] | Callable[[], Iterable[T]]
"""What can be watched without an event loop: a stream, or a function that opens one."""

_NOTHING: Any = object()


class SyncStream(Generic[T]):
    """One stream, as an iterator of the SDK's own objects."""

    def __init__(
        self, source: object, core: RunCore, *, clock: Clock, adapter: AdapterFactory | None, index: int = 0
    ) -> None:
        self._source: Any = source
        self._core = core
        self._now = clock.now
        self._factory = adapter
        self._adapter: FullAdapter | None = None
        self._index = index
        self._requests = 1
        self._opened: Any = None
        self._iterator: Iterator[T] | None = None
        self._began = self._over = self._finished = False
        self._reading = False
        self._error: Exception | None = None
        self._reported: ReportedFailure | None = None
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
            return next(self._iterator)
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
        given: Any = self._source
        if callable(given) and not hasattr(given, "__next__") and not hasattr(given, "__iter__"):
            given = given()
        self._opened = given
        waits = isinstance(given, AsyncIterator) or hasattr(given, "__aiter__") or hasattr(given, "__await__")
        if waits and not hasattr(given, "__iter__"):  # the streams of LiteLLM are both
            raise ConfigError(f"cannot watch {type(given).__name__} without an event loop; use 'async with'")
        if not hasattr(given, "__iter__"):
            hint = "; enter it first: with ... as stream, and then watch the stream"
            raise ConfigError(
                f"cannot watch {type(given).__name__}: it is no iterator{hint if hasattr(given, '__enter__') else ''}"
            )
        source: Iterator[T] = iter(cast("Iterable[T]", given))
        if self._factory is None:
            self._factory = find_adapter_of_source(source)
        return source

    def _take(self, item: T, now: float) -> None:
        """Pass the object to the core. An unreadable one ends the stream, and is delivered."""
        core = self._core
        try:
            adapter = self._adapter or self._first(item, now)
            for chunk in adapter.decode(item):
                core.feed(chunk, now)
            while self._requests < adapter.requests:
                self._requests += 1
                core.continued(now)
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

    def _first(self, item: T, now: float) -> FullAdapter:
        self._core.first_chunk(now)
        factory = self._factory or find_adapter(item)
        if factory is None:
            raise ConfigError(
                f"no adapter knows objects of type {type(item).__module__}.{type(item).__qualname__}; "
                "pass adapter=, or a stream of str or of monitor chunks"
            )
        self._adapter = adapter = complete(factory(self._index))
        return adapter

    # ------------------------------------------------------------------ the end

    def _end(self) -> None:
        """Report the end of the stream to the core, and close the source."""
        if self._over:
            return
        self._over = True
        core, since = self._core, self._now()
        model_error = self._settle(since)
        if not self._finished:
            note = self._close()
            core.source_closed(self._now(), since=since, closed=note is None, chunks_dropped=0, note=note)
        if not self._began:
            self._turn = Turn(number=0, stopped=core.stop)
            return
        adapter = self._adapter or (complete(self._factory(self._index)) if self._factory is not None else None)
        self._turn = core.end_turn(
            self._now(),
            finished=self._finished and core.stop is None,
            error=self._error if core.stop is None else None,
            model_error=model_error,
            must_finish=adapter is not None and adapter.needs_finish,
            gave=tuple(adapter.gave) if adapter is not None else (),
        )

    def _settle(self, now: float) -> ModelError | None:
        """Classify the end of the source, unless the end of the run has ended it."""
        core = self._core
        if core.stop is not None:
            return None
        self._error = self._reported or self._error
        try:
            if self._error is not None:
                factory = self._factory or find_adapter(self._error) or TextAdapter
                adapter = self._adapter or complete(factory(self._index))
                found = adapter.classify(self._error)
                forget_keys(self._error, self._opened)
                return replace(found, message=without_keys(found.message, self._error, self._opened))
            if self._finished and self._adapter is not None:
                for chunk in self._adapter.finish():
                    core.feed(chunk, now)
                if self._adapter.broke_off:
                    core.broke_off()
        except Exception as error:  # noqa: BLE001 - an adapter may be the caller's code
            core.fail(error, "adapter", now)
        return None

    def _close(self) -> str | None:
        """Close the source. Returns why it may still be open, or `None`."""
        source: Any = self._iterator if self._iterator is not None else self._opened
        if source is None:
            return None  # nothing was opened
        closed, note = False, None
        for one in (source, self._opened) if self._opened is not source else (source,):
            close = getattr(one, "close", None)
            if callable(close):
                try:
                    close()
                    closed = True
                except Exception as error:  # noqa: BLE001 - it must not hide how the run ended
                    note = f"closing raised {describe(error)}"
        return note if closed or note else f"{type(source).__name__} has no close()"

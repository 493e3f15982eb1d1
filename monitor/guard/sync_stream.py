"""Reads one synchronous SDK stream: the driver of `with monitor.watch(...)` and `with Guard(...)`.

`RunCore` decides here as it does for asynchronous streams. Nothing can interrupt a read that
blocks: limits, deadlines and `abort()` take effect when the SDK delivers its next object, or fails.
So give the client a timeout of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from inspect import isgenerator
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar, cast

from monitor.adapters.adapter import AdapterFactory, ReportedFailure, find_adapter_of_source
from monitor.core.run import RunCore
from monitor.errors import ConfigError, SourceFailed, describe
from monitor.guard.streams.one_stream import OneStream, not_watched, opened
from monitor.guard.streams.wait import Clock

T = TypeVar("T")

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

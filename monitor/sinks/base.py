"""The protocols of sinks, and the way in which one event reaches several of them.

A sink receives the events of a run and cannot change it. A sink that raises is removed, the other
sinks receive an event about it, and the run goes on.
"""

from __future__ import annotations

import inspect
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from monitor._util.argument_checks import check_parts
from monitor.errors import ConfigError, describe
from monitor.events import Envelope, Event, RunIdentity, RunTerminated, SinkFailed


class EventSink(Protocol):
    """Receives the events of one run, in order, synchronously; keep it quick."""

    def emit(self, event: Event, /) -> None:
        """Receive the next event of the run."""
        ...


class EnvelopeSink(Protocol):
    """Receives the events of a run and of the runs that it calls as tools, told apart by their
    envelopes.
    """

    def receive(self, envelope: Envelope, /) -> None:
        """The next event, and whose it is."""
        ...


class AsyncEventSink(Protocol):
    """An `EventSink` that waits. Its events are awaited in order, beside the run."""

    def emit(self, event: Event, /) -> Awaitable[None]:
        """Receive the next event of the run."""
        ...


class AsyncEnvelopeSink(Protocol):
    """An `EnvelopeSink` that waits. Its events are awaited in order, beside the run."""

    def receive(self, envelope: Envelope, /) -> Awaitable[None]:
        """The next event, and whose it is."""
        ...


Sink: TypeAlias = EventSink | EnvelopeSink | AsyncEventSink | AsyncEnvelopeSink
"""An object that `sinks=` takes. Of a sink that has both methods, `receive` is called."""

_listening: ContextVar[tuple[Sink, ...]] = ContextVar("listening", default=())


@contextmanager
def listening(sink: EventSink | EnvelopeSink) -> Iterator[None]:
    """`sink` receives the events of every run that is made within this block, at any depth, in
    addition to the run's own sinks.
    """
    token = _listening.set((*_listening.get(), sink))
    try:
        yield
    finally:
        _listening.reset(token)


def checked_sinks(given: object) -> Sequence[Any]:
    """`given` as a list of sinks. Raises `ConfigError` for anything else."""
    return check_parts("sinks", given, "receive", "emit")


def method_of(sink: object) -> tuple[Callable[[Any], object], bool]:
    """The method that takes the events of `sink`, and whether it takes envelopes."""
    receive = getattr(sink, "receive", None)
    if callable(receive):
        return receive, True
    emit: Callable[[Any], object] = sink.emit  # type: ignore[attr-defined] # it was checked
    return emit, False


def is_async(sink: object) -> bool:
    """Whether `sink` is to be awaited."""
    method = method_of(sink)[0]
    return inspect.iscoroutinefunction(method) or inspect.iscoroutinefunction(getattr(method, "__call__", None))  # noqa: B004 - of an object that is called


@dataclass(slots=True, frozen=True, eq=False)
class _WorkingSink:
    """A sink that has not raised, and how it is called."""

    sink: Any
    """The object that `sinks=` was given."""
    tell: Callable[[Any], object]
    envelopes: bool


class FanOut:
    """Numbers the events of one run, and passes each to every sink that still works."""

    __slots__ = ("_emit", "_identity", "_late", "_over", "_telling", "seq", "told")

    def __init__(self, sinks: Sequence[Any], *, emit: Callable[[Event], None] | None = None) -> None:
        """`emit`: passes on a `SinkFailed`; by default to the other sinks alone."""
        given = tuple(sinks)
        if listening := _listening.get():
            given = (*given, *[sink for sink in listening if all(sink is not one for one in given)])
        self.told: tuple[_WorkingSink, ...] = tuple(_of_one_run(sink) for sink in given) if given else ()
        """The sinks that have not raised."""
        self._emit = emit if self.told else None
        self._identity: RunIdentity | None = None
        self._telling = self._over = False
        self._late: list[tuple[Event, int]] | None = None
        self.seq: int = 0
        """The number of the newest event."""

    def __bool__(self) -> bool:
        """Whether any sink is left that has not raised."""
        return bool(self.told)

    @property
    def identity(self) -> RunIdentity:
        """The identity of the run. A run that nobody has named gets a name."""
        if self._identity is None:
            id = uuid.uuid4().hex
            self._identity = RunIdentity(run=id, root=id, began_s=time.time())
        return self._identity

    @identity.setter
    def identity(self, identity: RunIdentity) -> None:
        self._identity = identity

    @property
    def for_nested(self) -> Sequence[Any]:
        """The sinks that also get the events of nested runs."""
        return [told.sink for told in self.told if told.envelopes]

    def emit(self, event: Event) -> None:
        """Pass on `event`. Never raises. The other sinks get a `SinkFailed` after the event in
        which a sink failed, unless that was the last event.
        """
        self.seq += 1
        self._over = isinstance(event, RunTerminated)
        if not self.told:
            return
        if self._telling:  # a sink did something of which there is news: it comes after this event
            self._late = [*(self._late or ()), (event, self.seq)]
            return
        self._telling = True
        try:
            self._tell(event, self.seq)
            while self._late:
                late, self._late = self._late, None
                for one in late:
                    self._tell(*one)
        finally:
            self._telling = False

    def _tell(self, event: Event, seq: int) -> None:
        envelope: Envelope | None = None
        for told in self.told:
            try:
                if told.envelopes:
                    envelope = envelope or Envelope(self.identity, seq, event)
                    answer = told.tell(envelope)
                else:
                    answer = told.tell(event)
                if answer is not None:
                    _must_not_wait(answer)
            except Exception as error:  # noqa: BLE001 - a sink is the caller's code, and must not end the run
                self.drop(told.sink, error, event)

    def drop(self, sink: object, error: Exception, event: Event) -> None:
        """`sink` has failed with `event`: it gets no more events, and the others hear of it."""
        if all(told.sink is not sink for told in self.told):
            return
        self.told = tuple(told for told in self.told if told.sink is not sink)
        name, why = _name_of(sink), describe(error)
        logging.getLogger("monitor.sinks").warning("sink %s failed and gets no more events: %s", name, why)
        if not self._over:
            (self._emit or self.emit)(SinkFailed(event.at_s, name, why))


def _of_one_run(sink: Any) -> _WorkingSink:
    """The object that receives the events of this run. A sink that keeps something for
    each run has a method `for_run`, which makes a sink for one.
    """
    for_run = getattr(sink, "for_run", None)
    made = sink if for_run is None else for_run()
    if is_async(made):
        raise ConfigError(f"{_name_of(sink)} is asynchronous: only a run in an event loop can await it")
    return _WorkingSink(sink, *method_of(made))


def _name_of(sink: object) -> str:
    """The name of the class that the caller wrote."""
    return type(getattr(sink, "behind", sink)).__name__


def _must_not_wait(answer: object) -> None:
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError("its method returned an awaitable, and is no 'async def': nobody would await it")

"""Sinks that are awaited: each in a task beside the run, one event after the other.

The run does not wait for such a sink, up to `MOST_WAITING` events. Then it waits between two steps
until the sink has taken one. At the end it waits until the sink has taken all. A sink that does not
take one event within the grace period, while the run waits, is given up as failed. So a slow sink
loses nothing, and a sink that hangs does not hold the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio

from monitor.events import Envelope, Event
from monitor.guard.streams.wait import current_task, loop_runs
from monitor.sinks.base import FanOut, is_async, method_of
from monitor.tools.base import Background

MOST_WAITING: Final = 256
"""Events that wait for a sink before the run waits as well."""


class _AwaitedSink:
    """A sink to the run, which hands everything on to the asynchronous sink `behind`."""

    def __init__(self, behind: Any, grace_s: float) -> None:
        self.behind = behind
        self.failed: Callable[[object, Exception, Event], None] = lambda *_: None
        """Called with this object, the error and the event, when the sink has failed."""
        self._grace_s = grace_s
        self._method, self._envelopes = method_of(behind)
        self._waiting: deque[Any] = deque()
        self._taken: anyio.Event | None = None
        """Set when the sink has taken one, if the run waits for that."""
        self._task: Background | None = None
        self._delivers = False
        """The task looks for more when it is done with one. A task that has returned looks for
        nothing more, and has not ended yet for its event loop.
        """
        self._dead = False

    @staticmethod
    def of(sink: Any, grace_s: float) -> _AwaitedSink:
        """`sink` as the sink of one run."""
        return (_AwaitedEnvelopeSink if method_of(sink)[1] else _AwaitedEventSink)(sink, grace_s)

    def hear(self, told: Any) -> None:
        """Queue the next event or envelope."""
        if not self._dead:
            self._waiting.append(told)
            self._work()

    async def room(self, most: int) -> None:
        """Return when at most `most` events wait."""
        while len(self._waiting) > most and not self._dead:
            self._work()
            self._taken = taken = anyio.Event()
            with anyio.move_on_after(self._grace_s, shield=True):
                await taken.wait()
            if not taken.is_set():
                self._give_up()

    async def close(self) -> None:
        """Return when the sink has taken everything, or was given up."""
        if current_task() is not None:
            await self.room(0)

    def _work(self) -> None:
        """Start the task, if an event loop is there to run it."""
        if (not self._delivers or self._task is None or self._task.ended) and loop_runs():
            self._delivers = True
            self._task = Background(self._deliver, f"agent-monitor sink {type(self.behind).__name__}")

    async def _deliver(self) -> None:
        try:
            while self._waiting and not self._dead:
                told = self._waiting[0]  # it counts as waiting until it is taken
                await self._method(told)  # type: ignore[misc] # it is asynchronous
                if not self._dead:
                    self._waiting.popleft()
                    self._heard()
        except Exception as error:  # noqa: BLE001 - a sink is the caller's code, and must not end the run
            if not self._dead:
                self._fail(error)
        finally:
            self._delivers = False

    def _give_up(self) -> None:
        late = f"it took longer than {self._grace_s:g} s for one event; {len(self._waiting)} were not delivered"
        self._fail(TimeoutError(late))
        if self._task is not None and not self._task.ended:
            self._task.give_up()

    def _fail(self, error: Exception) -> None:
        self._dead = True
        told = self._waiting[0]
        self._waiting.clear()
        self._heard()
        self.failed(self, error, told.event if self._envelopes else told)

    def _heard(self) -> None:
        if self._taken is not None:
            self._taken.set()


class _AwaitedEventSink(_AwaitedSink):
    def emit(self, event: Event) -> None:
        self.hear(event)


class _AwaitedEnvelopeSink(_AwaitedSink):
    def receive(self, envelope: Envelope) -> None:
        self.hear(envelope)


class AsyncSinks:
    """The asynchronous sinks of one run."""

    __slots__ = ("sinks",)

    def __init__(self, sinks: Sequence[_AwaitedSink]) -> None:
        self.sinks = sinks

    async def room(self) -> None:
        """Return when not too many events wait."""
        for sink in self.sinks:
            await sink.room(MOST_WAITING)

    async def close(self) -> None:
        """Return when all events are delivered. Each sink has its grace period for each event."""
        for sink in self.sinks:
            await sink.close()


_NONE: Final = AsyncSinks(())


def fan_out(
    sinks: Sequence[Any],
    grace_s: float,
    *,
    above: Sequence[Any] = (),
    emit: Callable[[Event], None] | None = None,
) -> tuple[FanOut, AsyncSinks]:
    """The fan that passes events to `sinks`, and those of them that are awaited.

    `above`: the sinks that a nested run has from its caller, as the caller's `FanOut` has them.
    `emit`: passes on a `SinkFailed`; by default to the sinks alone.
    """
    if not sinks and not above:
        return FanOut((), emit=emit), _NONE
    known = [getattr(sink, "behind", sink) for sink in above]
    made = [
        _AwaitedSink.of(sink, grace_s) if is_async(sink) else sink
        for sink in sinks
        if all(sink is not one for one in known)
    ]
    fan = FanOut((*made, *above), emit=emit)
    awaited = [sink for sink in made if isinstance(sink, _AwaitedSink)]
    for sink in awaited:
        sink.failed = fan.drop
    return fan, AsyncSinks(awaited)

"""Limits on time. They read no clock: the harness passes the time in, and sleeps until `deadline(state)`."""

from __future__ import annotations

import sys
from abc import abstractmethod
from dataclasses import dataclass

from monitor.conditions.base import Condition
from monitor.errors import ConfigError
from monitor.reasons import TerminateReason
from monitor.state import RunState
from monitor.verdicts import Stop

ROUNDING_S = 1e-6
"""Times are differences of large floats: a deadline is met within a microsecond."""


@dataclass(frozen=True)
class _Timed(Condition):
    """True from `deadline(state)` on."""

    seconds: float

    def __post_init__(self) -> None:
        if isinstance(self.seconds, bool) or not isinstance(self.seconds, int | float):
            raise ConfigError(f"{type(self).__name__} takes seconds as a number, not {self.seconds!r}")
        if not 0 <= self.seconds <= sys.float_info.max:
            raise ConfigError(f"{type(self).__name__} takes a finite number of seconds that is not negative, not {self.seconds!r}")

    @abstractmethod
    def deadline(self, state: RunState) -> float | None: ...

    @abstractmethod
    def _stop(self, state: RunState) -> Stop: ...

    def evaluate(self, state: RunState) -> Stop | None:
        deadline = self.deadline(state)
        return None if deadline is None or state.elapsed_s < deadline - ROUNDING_S else self._stop(state)


@dataclass(frozen=True)
class Timeout(_Timed):
    """The whole run, in seconds: opening, streaming, tools and the caller's own time between turns."""

    def deadline(self, state: RunState) -> float | None:
        return self.seconds

    def _stop(self, state: RunState) -> Stop:
        detail = f"the run took {state.elapsed_s:.3g} s, the limit is {self.seconds:g} s"
        return Stop(TerminateReason.TIMEOUT, detail, self.name, self.seconds, state.elapsed_s)


@dataclass(frozen=True)
class IdleTimeout(_Timed):
    """How long the provider may be silent, in seconds. The caller's own time between chunks does not count."""

    def deadline(self, state: RunState) -> float | None:
        return None if state.waiting_since_s is None else state.waiting_since_s + self.seconds

    def _stop(self, state: RunState) -> Stop:
        idle_s = state.elapsed_s - (state.waiting_since_s or 0.0)
        detail = f"the provider sent nothing for {idle_s:.3g} s, the limit is {self.seconds:g} s"
        return Stop(TerminateReason.IDLE_TIMEOUT, detail, self.name, self.seconds, idle_s)


@dataclass(frozen=True)
class FirstChunkTimeout(_Timed):
    """How long a stream may take to deliver its first chunk, in seconds, opening and SDK retries included."""

    def deadline(self, state: RunState) -> float | None:
        if state.stream_started_s is None or state.first_chunk_seen:
            return None
        return state.stream_started_s + self.seconds

    def _stop(self, state: RunState) -> Stop:
        waited_s = state.elapsed_s - (state.stream_started_s or 0.0)
        detail = f"no first chunk after {waited_s:.3g} s, the limit is {self.seconds:g} s"
        return Stop(TerminateReason.IDLE_TIMEOUT, detail, self.name, self.seconds, waited_s)

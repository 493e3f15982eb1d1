"""Limits on time. They read no clock: the harness passes the time in, and sleeps until
`deadline(state)`.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from monitor._util.explained_options import explained
from monitor.conditions.condition import AllOf, AnyOf, Condition
from monitor.errors import ConfigError
from monitor.reasons import TerminateReason
from monitor.state import RunState
from monitor.verdicts import Met, Stop

ROUNDING_S = 1e-6
"""Tolerance: a deadline counts as reached within a microsecond, because times are differences of
large floats.
"""


@dataclass(frozen=True)
class _Timed(Condition):
    """True from `_due(state)` on. While a person is asked, time stands still and no deadline comes
    closer.
    """

    seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.seconds <= sys.float_info.max:
            name = type(self).__name__
            raise ConfigError(
                f"{name} takes a finite number of seconds that is not negative, not {self.seconds!r}: write"
                f" monitor.{name}(300), or leave the condition out for no limit"
            )

    @abstractmethod
    def _due(self, state: RunState) -> float | None:
        """When the condition becomes true, in seconds since the run began. `None`: its time does
        not run.
        """

    @abstractmethod
    def _stop(self, state: RunState) -> Stop: ...

    def deadline(self, state: RunState) -> float | None:
        return None if state.paused else self._due(state)

    def evaluate(self, state: RunState) -> Stop | None:
        due = self._due(state)
        return None if due is None or state.elapsed_s < due - ROUNDING_S else self._stop(state)


@explained(example="monitor.Timeout(300)", words={"timeout": "seconds", "timeout_s": "seconds"})
@dataclass(frozen=True)
class Timeout(_Timed):
    """Limit on the whole run, in seconds: opening, streaming, tools and the caller's own time
    between turns.

    Time in which a person is asked does not count. `exclude_retry_delays`: waits before another
    attempt do not count either.
    """

    exclude_retry_delays: bool = field(default=False, kw_only=True)
    """Whether waits before another attempt do not count."""

    def _excluded(self, state: RunState) -> float:
        return state.paused_s + state.retry_delay_s if self.exclude_retry_delays else state.paused_s

    def _due(self, state: RunState) -> float | None:
        return self.seconds + self._excluded(state)

    def _stop(self, state: RunState) -> Stop:
        excluded_s = self._excluded(state)
        active_s = state.elapsed_s - excluded_s
        apart = f" ({excluded_s:.3g} s of waiting do not count)" if excluded_s else ""
        detail = f"the run took {active_s:.3g} s{apart}, the limit is {self.seconds:g} s"
        return Stop(TerminateReason.TIMEOUT, detail, self.name, self.seconds, active_s)

    def progress(self, state: RunState) -> Sequence[Met]:
        active_s = max(0.0, state.elapsed_s - self._excluded(state))
        return (Met(self.name, active_s >= self.seconds - ROUNDING_S, active_s, self.seconds),)


@explained(example="monitor.IdleTimeout(300)", words={"timeout": "seconds", "timeout_s": "seconds"})
@dataclass(frozen=True)
class IdleTimeout(_Timed):
    """Ends the run when the provider is silent for `seconds`. The caller's own time between chunks
    does not count.
    """

    def _due(self, state: RunState) -> float | None:
        return None if state.waiting_since_s is None or state.paused else state.waiting_since_s + self.seconds

    def _stop(self, state: RunState) -> Stop:
        idle_s = state.elapsed_s - (state.waiting_since_s or 0.0)
        detail = f"the provider sent nothing for {idle_s:.3g} s, the limit is {self.seconds:g} s"
        return Stop(TerminateReason.IDLE_TIMEOUT, detail, self.name, self.seconds, idle_s)


@explained(example="monitor.FirstChunkTimeout(300)", words={"timeout": "seconds", "timeout_s": "seconds"})
@dataclass(frozen=True)
class FirstChunkTimeout(_Timed):
    """Ends the run when a stream has delivered no first chunk after `seconds`. They include opening
    the stream and the SDK's own retries.
    """

    def _due(self, state: RunState) -> float | None:
        if state.stream_started_s is None or state.first_chunk_seen or state.paused:
            return None
        return state.stream_started_s + self.seconds

    def _stop(self, state: RunState) -> Stop:
        waited_s = state.elapsed_s - (state.stream_started_s or 0.0)
        detail = f"no first chunk after {waited_s:.3g} s, the limit is {self.seconds:g} s"
        return Stop(TerminateReason.IDLE_TIMEOUT, detail, self.name, self.seconds, waited_s)


def silence_limits(condition: Condition | None) -> Condition | None:
    """The part of `condition` that limits silence: `IdleTimeout`, `FirstChunkTimeout`, and
    conditions joined to one of them by `&`. `None`: there is no such part.
    """
    match condition:
        case IdleTimeout() | FirstChunkTimeout():
            return condition
        case AllOf(parts):
            return condition if any(silence_limits(part) is not None for part in parts) else None
        case AnyOf(parts):
            kept = tuple(limit for part in parts if (limit := silence_limits(part)) is not None)
            return AnyOf(kept) if len(kept) > 1 else next(iter(kept), None)
        case _:
            return None

"""Which failed model calls are made again, and when."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.errors import ConfigError
from monitor.models import ErrorKind, ModelError

PASSING = frozenset({ErrorKind.RATE_LIMITED, ErrorKind.SERVER, ErrorKind.NETWORK, ErrorKind.MALFORMED})
"""Failures that another attempt may well get past. A refusal, a wrong key or a prompt that does not fit stays what it is."""


@dataclass(slots=True, frozen=True)
class Retries:
    """A failed call is made again at most `attempts` times for one turn; then the run ends with its reason.

    An answer that is no answer (without an end, unreadable, empty) is asked for again at once. A provider that fails is given
    `first_delay_s`, then twice as long each time, at most `max_delay_s`; or as long as it asks for, and if that is longer than
    `max_delay_s`, the run ends instead of waiting. A block by a safety filter is never tried again.
    """

    attempts: int = 3
    first_delay_s: float = 1.0
    max_delay_s: float = 60.0

    def __post_init__(self) -> None:
        if self.attempts < 0 or self.first_delay_s < 0 or self.max_delay_s < 0:
            raise ConfigError(f"{self}: attempts and delays cannot be negative; Retries(0) tries nothing again")

    def delay_s(self, failures: int, error: ModelError | None) -> float | None:
        """How long to wait after the failure number `failures` (from 1) of a turn; `None`: give up. `error`: of the call, if it failed."""
        if failures > self.attempts:
            return None
        if error is None:
            return 0.0
        if error.kind not in PASSING:
            return None
        if error.retry_after_s is not None:
            return error.retry_after_s if error.retry_after_s <= self.max_delay_s else None
        if error.kind is ErrorKind.MALFORMED:
            return 0.0
        return min(self.max_delay_s, self.first_delay_s * 2.0 ** (failures - 1))

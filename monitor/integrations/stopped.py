"""How the end of a guarded run leaves a framework's loop: as an exception with its reason."""

from __future__ import annotations

from typing import Any

from monitor.errors import MonitorError
from monitor.outcome import Turn
from monitor.verdicts import Stop

__all__ = ["StoppedByGuard"]


class StoppedByGuard(MonitorError):
    """The guard has ended the run inside a framework's loop.

    Each integration raises a subclass that is also an error of its framework. `Guard.outcome` has
    the whole account when the block of the guard has been left.
    """

    def __init__(self, stop: Stop, turn: Turn | None = None) -> None:
        self.stop = stop
        """The reason, with its evidence."""
        self.turn = turn
        """The model response that was cut: text, calls and usage as far as they came. `None`: the
        run ended between two responses.
        """
        super().__init__(f"{stop.reason.value}: {stop.detail}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.stop, self.turn)

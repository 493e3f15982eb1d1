"""Time of a run that does not count, because a person was asked."""

from __future__ import annotations


class Pauses:
    """Pauses nest; time stands still while any is open."""

    __slots__ = ("_count", "_done_s", "_since")

    def __init__(self) -> None:
        self._count, self._since, self._done_s = 0, 0.0, 0.0

    @property
    def running(self) -> bool:
        """Time stands still."""
        return self._count > 0

    def begin(self, now: float) -> bool:
        """True: time stands still from now on, and did not before."""
        self._count += 1
        if self._count == 1:
            self._since = now
        return self._count == 1

    def end(self, now: float) -> float | None:
        """How long time stood still, in seconds, if it goes on now."""
        self._count -= 1
        if self._count:
            return None
        self._done_s += now - self._since
        return now - self._since

    def total_s(self, now: float) -> float:
        """How long time stood still up to now, in seconds."""
        return self._done_s + (now - self._since if self.running else 0.0)

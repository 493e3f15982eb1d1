"""The protocol of a store of outages, and the store for the runs of one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

from monitor.outage import OutageRule, Trouble

T = TypeVar("T")

Change = Callable[[Trouble, float], T]
"""Changes a `Trouble` in place, at a time by the store's clock, and returns what came of it."""


class OutageStore(Protocol):
    """Where the failures of many runs are counted."""

    @property
    def look_s(self) -> float:
        """Seconds that an answer of `known` may be used: another look has its price."""
        ...

    def now(self) -> float:
        """Seconds, by the clock that `change` uses."""
        ...

    async def change(self, subject: str, step: Change[T], rule: OutageRule, /) -> T:
        """Apply `step` to the trouble of `subject`, alone: no other change of it comes between. A
        trouble of which nothing counts any more is forgotten.

        Raises `StoreError` if the store cannot be used.
        """
        ...

    async def known(self) -> Mapping[str, Trouble]:
        """All troubles by their subjects. The caller does not change them."""
        ...

    async def aclose(self) -> None:
        """Close the connection to the store."""
        ...


SUBJECTS_KEPT: Final = 10_000
"""The most things whose failures are counted in one process; the oldest is forgotten."""


class InMemoryOutages:
    """Counts the failures of the runs of one process, also of several event loops."""

    look_s = 0.0

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.now = clock
        self._troubles: dict[str, Trouble] = {}
        self._lock = threading.Lock()

    async def change(self, subject: str, step: Change[T], rule: OutageRule) -> T:
        with self._lock:
            now = self.now()
            trouble = self._troubles.get(subject) or Trouble()
            answer = step(trouble, now)
            if rule.is_over(trouble, now):
                self._troubles.pop(subject, None)
            else:
                self._troubles[subject] = trouble
                while len(self._troubles) > SUBJECTS_KEPT:
                    del self._troubles[next(iter(self._troubles))]
        return answer

    async def known(self) -> Mapping[str, Trouble]:
        return self._troubles

    async def aclose(self) -> None:
        """Do nothing: the counts stay in this process."""

"""Histograms of what passes the proxy, as Prometheus has them: counts below fixed bounds."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final


@dataclass(slots=True)
class Histogram:
    """How many values were at most each bound."""

    bounds: tuple[float, ...]
    """Upper bounds, ascending; a last one without an end is implied."""
    total: float = 0.0
    """The sum of the values."""
    counts: list[int] = field(init=False)
    """The number of values in each part, the endless one last."""

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Note a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
"""From a fast model's first byte to a slow one's."""
ADDED_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 20)
"""From a short history to the longest wait for a budget."""
BYTES: Final = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000)


def histograms() -> dict[str, Histogram]:
    """An empty histogram for each metric that has one."""
    return {
        "first_byte": Histogram(SECONDS),
        "added": Histogram(ADDED_SECONDS),
        "stopped": Histogram(BYTES),
    }

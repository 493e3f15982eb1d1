"""Progress as a number that is to be lowered: failing tests, open items, lines to translate.

Rules of `NoProgress`, which counts with it:

- a number that is lower than all before it of the same call is progress, and everything that was
  counted is forgotten;
- the same call whose number has not become lower for a while stands still, whatever happened
  between: edits, other calls, other answers. Six results are a suspicion, twelve a loop;
- 0 is the goal: nothing is left, so nothing stands still;
- each call has a number of its own: one test file and the whole suite are not compared.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

from monitor.chunks import ToolResult

CALLS_COMPARED = 16
"""The newest calls whose numbers are remembered."""
OFFSETS_KEPT = 64
"""More than any threshold: thresholds are at most this."""


class ProgressRule(Protocol):
    """Reads a number that is to be lowered out of a tool's result."""

    def __call__(self, result: ToolResult, /) -> float | None:
        """How much is left, 0 when nothing is. `None`: the result says nothing about it."""
        ...


def reported(result: ToolResult) -> float | None:
    """The number that the tool itself reports."""
    return result.progress


class Standstill:
    """The lowest number of each call, and the results since."""

    __slots__ = ("_calls",)

    def __init__(self, saved: dict[str, Any] | None = None) -> None:
        self._calls: dict[str, tuple[float, list[int]]] = {}
        for xxhash, (best, offsets) in (saved or {}).items():
            self._calls[str(xxhash)] = float(best), [int(offset) for offset in offsets]

    def save(self) -> dict[str, Any]:
        """The state as JSON data."""
        return {xxhash: [best, offsets[:]] for xxhash, (best, offsets) in self._calls.items()}

    def took(self, xxhash: str, left: float, offset: int) -> None:
        """The call `xxhash` with the index `offset` was answered."""
        if not math.isfinite(left):
            return
        best, offsets = self._calls.pop(xxhash, (math.inf, []))
        if left < best or left <= 0:
            self._calls = {other: (lowest, []) for other, (lowest, _) in self._calls.items()}
            offsets = []
        else:
            offsets = [*offsets, offset][-OFFSETS_KEPT:]
        self._calls[xxhash] = min(best, left), offsets
        if len(self._calls) > CALLS_COMPARED:
            del self._calls[next(iter(self._calls))]

    def of(self, xxhash: str) -> tuple[float, list[int]]:
        """The lowest number of a call, and the indices of its results since that are not lower."""
        return self._calls.get(xxhash, (math.inf, []))

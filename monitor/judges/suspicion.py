"""How much a run seems to make no progress: signals too weak for a detection, but enough to ask a
judge earlier.

The score is the share of the latest `WINDOW` answered calls that made no progress, 0 to 1. It is 0
until `ENOUGH` calls are answered.

- A call with a known result (seen before in the run) counts fully in three cases. Its request was
  made before, or it failed, or the result is longer than a receipt: the same page for other words.
- A call counts half if its short result is known, or if it failed in a new way. Receipts (`ok`) and
  errors also come in good work.
- Anything else is progress, also the same request with a new result: that is polling, or a test
  that runs again.
"""

from __future__ import annotations

from collections import deque

from monitor._util.hashing import canonical_json, identity
from monitor.chunks import ToolCall, ToolResult

WINDOW = 10
"""The number of the latest calls that count: about as many turns as a judge is shown."""
ENOUGH = 5
"""Fewer answered calls give no score: a run that begins with two errors is not stuck."""
REMEMBERED = 80
"""The number of the newest requests and results that are remembered."""
RECEIPT_CHARS = 100
"""A result up to this length may be the receipt of work done."""
SUSPICIOUS = 0.6
"""The score from which on a run is suspicious. A run in which every call fails differently stays
below it; one that keeps reading the same page does not.
"""


class Suspicion:
    """Computes the score of one run from its calls and results."""

    __slots__ = ("_latest", "_open", "_requests", "_results")

    def __init__(self) -> None:
        self._requests: deque[str] = deque(maxlen=REMEMBERED)
        self._results: deque[str] = deque(maxlen=REMEMBERED)
        self._open: dict[str, bool] = {}
        self._latest: deque[float] = deque(maxlen=WINDOW)

    def add_call(self, call: ToolCall) -> None:
        """Add a call whose arguments are complete."""
        request = identity(f"{call.name} {canonical_json(call.arguments)}")
        self._open.pop(call.id, None)
        self._open[call.id] = request in self._requests
        self._requests.append(request)
        if len(self._open) > REMEMBERED:
            del self._open[next(iter(self._open))]

    def add_result(self, result: ToolResult) -> None:
        """Add the result of a call."""
        key = identity(result.text)
        repeated, known = self._open.pop(result.id, False), key in self._results
        self._latest.append(_got_nowhere(result, repeated=repeated, known=known))
        self._results.append(key)

    @property
    def score(self) -> float:
        """0: every call made progress. 1: none did."""
        return sum(self._latest) / len(self._latest) if len(self._latest) >= ENOUGH else 0.0


def _got_nowhere(result: ToolResult, *, repeated: bool, known: bool) -> float:
    if known and (repeated or result.is_error or len(result.text) > RECEIPT_CHARS):
        return 1.0
    return 0.5 if known or result.is_error else 0.0

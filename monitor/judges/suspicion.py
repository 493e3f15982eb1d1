"""How much a run looks as if it got nowhere: weak signals, too weak for a detection, strong enough
to ask a judge earlier.

The score is the share of the latest `WINDOW` answered calls that got nowhere, 0 to 1, and 0 until
`ENOUGH` are there:

- a call with a known result (seen before in the run) got nowhere if its request was made before
  too, or failed, or the result is longer than a receipt: the same page under other words;
- a call counts half whose short result is known, or which failed in a new way: receipts (`ok`) and
  errors also come in good work;
- anything else moved on, also the same request with a new result: that is polling, or a test that
  runs again.
"""

from __future__ import annotations

from collections import deque

from monitor._util.hashing import canonical_json, identity
from monitor.chunks import ToolCall, ToolResult

WINDOW = 10
"""Calls that are looked at: about as many turns as a judge is shown."""
ENOUGH = 5
"""Fewer calls say nothing: a run that begins with two errors is no stuck one."""
REMEMBERED = 80
"""Requests and results that are known again, the newest ones."""
RECEIPT_CHARS = 100
"""A result up to this length may be the receipt of work done."""
SUSPICIOUS = 0.6
"""More than half: a run in which every call fails differently stays below it, one that reads the
same page again and again does not.
"""


class Suspicion:
    """The score of one run, kept up with its calls and results."""

    __slots__ = ("_latest", "_open", "_requests", "_results")

    def __init__(self) -> None:
        self._requests: deque[str] = deque(maxlen=REMEMBERED)
        self._results: deque[str] = deque(maxlen=REMEMBERED)
        self._open: dict[str, bool] = {}
        self._latest: deque[float] = deque(maxlen=WINDOW)

    def add_call(self, call: ToolCall) -> None:
        """A call, when it is complete."""
        request = identity(f"{call.name} {canonical_json(call.arguments)}")
        self._open.pop(call.id, None)
        self._open[call.id] = request in self._requests
        self._requests.append(request)
        if len(self._open) > REMEMBERED:
            del self._open[next(iter(self._open))]

    def add_result(self, result: ToolResult) -> None:
        """Its result."""
        key = identity(result.text)
        repeated, known = self._open.pop(result.id, False), key in self._results
        self._latest.append(_got_nowhere(result, repeated=repeated, known=known))
        self._results.append(key)

    @property
    def score(self) -> float:
        """0: every call moved the run on; 1: none did."""
        return sum(self._latest) / len(self._latest) if len(self._latest) >= ENOUGH else 0.0


def _got_nowhere(result: ToolResult, *, repeated: bool, known: bool) -> float:
    if known and (repeated or result.is_error or len(result.text) > RECEIPT_CHARS):
        return 1.0
    return 0.5 if known or result.is_error else 0.0

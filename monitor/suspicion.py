"""How much a run looks as if it got nowhere: weak signals, too weak for a detection, strong enough to ask a judge earlier.

The score is between 0 and 1, over the latest `WINDOW` answered calls:

    0.4 x repeated + 0.3 x failed + 0.3 x stale

`repeated`: the share of calls that were made before with the same arguments; `failed`: of those that ended in an error; `stale`: of
results that were seen before. It is 0 until `ENOUGH` calls are there.
"""

from __future__ import annotations

from collections import deque

from monitor._hashing import canonical_json, identity
from monitor.chunks import ToolCall, ToolResult

WINDOW = 20
"""Calls that are looked at: as many as a judge is shown messages."""
ENOUGH = 8
"""Fewer calls say nothing: a run that begins with two errors is no stuck one."""
REPEATED, FAILED, STALE = 0.4, 0.3, 0.3
"""The same request again is the clearest sign; errors and known results alone also come in good work."""
SUSPICIOUS = 0.5
"""Half of all that could be wrong: e.g. every call repeated and a third of them in vain."""


class Suspicion:
    """The score of one run, kept up with its calls and results."""

    __slots__ = ("_asked", "_calls", "_latest", "_seen")

    def __init__(self) -> None:
        self._asked: deque[str] = deque(maxlen=4 * WINDOW)
        self._seen: deque[str] = deque(maxlen=4 * WINDOW)
        self._calls: dict[str, bool] = {}
        self._latest: deque[tuple[bool, bool, bool]] = deque(maxlen=WINDOW)

    def add_call(self, call: ToolCall) -> None:
        """A call, when it is complete."""
        key = identity(f"{call.name} {canonical_json(call.arguments)}")
        self._calls[call.id] = key in self._asked
        self._asked.append(key)
        if len(self._calls) > WINDOW * 4:
            del self._calls[next(iter(self._calls))]

    def add_result(self, result: ToolResult) -> None:
        """Its result."""
        key = identity(f"{result.name} {result.text}")
        self._latest.append((self._calls.pop(result.id, False), result.is_error, key in self._seen))
        self._seen.append(key)

    @property
    def score(self) -> float:
        """0: nothing; 1: nothing but repetition, errors and known results."""
        count = len(self._latest)
        if count < ENOUGH:
            return 0.0
        repeated = sum(again for again, _, _ in self._latest)
        failed = sum(is_error for _, is_error, _ in self._latest)
        stale = sum(known for _, _, known in self._latest)
        return (REPEATED * repeated + FAILED * failed + STALE * stale) / count

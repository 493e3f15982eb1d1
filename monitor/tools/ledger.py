"""A ledger of calls in memory: for runs that end with their process, and for tests."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.calls import CallRecord, CallState

AGAIN = frozenset({CallState.FAILED, CallState.UNKNOWN})
"""Ends after which the tool of a call may be entered again, if somebody decides that."""


class InMemoryLedger:
    """Keeps the calls of all runs that share this object, as long as the object lives."""

    def __init__(self) -> None:
        self._records: dict[str, CallRecord] = {}
        self._open: dict[str, dict[str, None]] = {}
        """Keys of the open calls of each run, in order."""

    async def intend(self, records: Sequence[CallRecord]) -> Sequence[CallRecord]:
        for record in records:
            if record.key not in self._records:
                self._put(record)
        return [self._records[record.key] for record in records]

    async def advance(self, record: CallRecord) -> bool:
        if not may_follow(record, self._records.get(record.key)):
            return False
        self._put(record)
        return True

    async def find(self, key: str) -> CallRecord | None:
        return self._records.get(key)

    async def open_calls(self, run: str) -> Sequence[CallRecord]:
        return [self._records[key] for key in self._open.get(run, ())]

    def _put(self, record: CallRecord) -> None:
        self._records[record.key] = record
        if record.open:
            self._open.setdefault(record.run, {})[record.key] = None
        elif (keys := self._open.get(record.run)) is not None:
            keys.pop(record.key, None)
            if not keys:
                del self._open[record.run]


def may_follow(record: CallRecord, before: CallRecord | None) -> bool:
    """Whether `record` is a step that may follow `before`. Every store of calls uses this.

    Only one process may enter a call: `running` follows `intended`. With a higher `attempt` it may
    also follow a failure or an unknown outcome. An end may follow only an open state.
    """
    if before is None:
        return False
    if record.state is CallState.RUNNING:
        again = before.state in AGAIN or before.state is CallState.RUNNING
        return before.state is CallState.INTENDED or (again and record.attempt > before.attempt)
    return before.open

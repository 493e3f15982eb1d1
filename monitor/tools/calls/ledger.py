"""A ledger of calls in memory: for runs that end with their process, and for tests."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.calls import CallRecord, comes_after


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
        if not comes_after(record, self._records.get(record.key)):
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

"""Finished compactions, kept in memory."""

from __future__ import annotations

from monitor.compacting import CompactionRecord
from monitor.errors import StoreError


class InMemoryCompactions:
    """A `CompactionStore` that lasts as long as the program; also a pattern for one that lasts longer.

        store = monitor.InMemoryCompactions()
        monitor.Supervisor(model, compaction=monitor.Compaction(store=store))
        shown = monitor.compacting.shown(run.originals, store.records())  # the run's history, as far as compactions made it

    One store is for one run: the numbers in its records count that run's messages.
    """

    def __init__(self) -> None:
        self._records: list[CompactionRecord] = []

    def add(self, record: CompactionRecord) -> None:
        """Keep it. Raises `StoreError` for anything but a record."""
        if not isinstance(record, CompactionRecord):
            raise StoreError(f"a CompactionRecord is kept, not {record!r:.200}")
        self._records.append(record)

    def records(self) -> tuple[CompactionRecord, ...]:
        """All of them, oldest first."""
        return tuple(self._records)

"""The protocol of a store of rows, by which processes tell each other what they know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SharedRow:
    """One row as its last writer left it."""

    name: str
    value: str
    version: int
    """A later write has a higher number, and no two rows of a room have the same one."""
    at_s: float
    """Seconds since 1970 at which it was written, by the clock of the store."""


@dataclass(frozen=True, slots=True)
class RowNews:
    """The rows that were written since a reader last looked, oldest first."""

    rows: Sequence[SharedRow]
    version: int
    """The highest version in the room. Look for what comes after it the next time."""
    now_s: float
    """Seconds since 1970, by the clock of the store."""


class RowStore(Protocol):
    """Keeps rows by name, in rooms that know nothing of each other. Many processes may use it."""

    async def swap(self, room: str, written: Mapping[str, str], /, *, after: int, keep_s: float, most: int) -> RowNews:
        """Write the values of rows by their names, and return all rows of the room whose version is
        above `after`, the written ones too. One atomic step.

        Rows that nobody has written for `keep_s` seconds are removed, and the oldest ones if the
        room has more than `most`. Raises `StoreError`; whether the rows were written is then not
        known.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections. The rows stay."""
        ...

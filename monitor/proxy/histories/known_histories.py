"""The histories of earlier requests, so that a request costs what is new in it.

A history is known by a hash of the bytes up to its last record. The hash begins with the client's
key, so nobody finds out what others have asked. The histories have a bound in bytes together. One
that was forgotten is read again, with the same verdict.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right, insort
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from monitor.proxy.formats.base import Beginning
from monitor.proxy.histories.judging import TaskState
from monitor.wires.forms import Form

WORTH_BYTES: Final = 16 * 1024
"""A shorter request is read as a whole: that costs less than to look for its beginning."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""The bytes of all histories together. A history of a hundred turns takes about 40 KB."""
_HEAD: Final = 64
"""Bytes at the beginning of a body by which candidates are found."""
_TAIL: Final = 32
"""Bytes before the end of a history that are compared before anything is hashed."""
_OVERHEAD: Final = 2_000
"""Bytes of the objects around a history that is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHistory:
    """The findings in the history of a request."""

    beginning: Beginning
    opening: bytes
    """The hash by which the run is known (`opening_of`)."""
    tokens: int
    """The tokens of its messages, as an estimate."""
    state: TaskState

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        said = len(self.beginning.instructions or "") + sum(map(len, self.beginning.ids))
        return _OVERHEAD + said + self.state.size


_GroupKey: TypeAlias = tuple[Form, str, bytes]
"""The form, the name of the client's key, and the first bytes of the body."""


@dataclass(slots=True)
class Lookup:
    """One look for the beginning of a body."""

    group: _GroupKey
    known: KnownHistory | None = None
    digest: bytes = b""
    """The hash of the known beginning."""
    _hasher: Any = None
    _hashed: int = 0

    def digest_at(self, body: bytes, end: int) -> bytes:
        """The hash of the body up to `end`. Ends that ascend cost one pass over the body."""
        if self._hasher is None or end < self._hashed:
            self._hashed = 0
            form, key, _ = self.group
            self._hasher = hashlib.sha256(f"{form}\0{key}\0".encode())
        self._hasher.update(memoryview(body)[self._hashed : end])
        self._hashed = end
        found: bytes = self._hasher.digest()
        return found


@dataclass(slots=True)
class _Candidates:
    """The ends of the histories of bodies that begin alike."""

    ends: list[int] = field(default_factory=list[int])
    """The lengths of the histories, in ascending order."""
    tails: dict[tuple[int, bytes], int] = field(default_factory=dict[tuple[int, bytes], int])
    """How many histories have this end with these bytes before it."""


@dataclass(frozen=True, slots=True)
class _KeptHistory:
    """A history, and where it is noted."""

    history: KnownHistory
    group: _GroupKey
    tail: bytes
    """The bytes before its end."""
    before: bytes
    """The hash of the history that it continues."""


class KnownHistories:
    """The newest histories, up to a bound in bytes."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._size = 0
        self._known: OrderedDict[bytes, _KeptHistory] = OrderedDict()
        """The histories by their hashes. The one that was used last stands at the end."""
        self._groups: dict[_GroupKey, _Candidates] = {}

    def __len__(self) -> int:
        return len(self._known)

    @property
    def size(self) -> int:
        """The bytes that are kept."""
        return self._size

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
        self._groups.clear()
        self._size = 0

    def find(self, form: Form, key: str, body: bytes) -> Lookup:
        """The longest known beginning of the body."""
        lookup = Lookup((form, key, body[:_HEAD]))
        group = self._groups.get(lookup.group)
        if group is None:
            return lookup
        for end in group.ends[: bisect_right(group.ends, len(body))]:
            if (end, body[end - _TAIL : end]) not in group.tails:
                continue
            digest = lookup.digest_at(body, end)
            found = self._known.get(digest)
            if found is not None:
                lookup.known, lookup.digest = found.history, digest
        if lookup.digest:
            self._known.move_to_end(lookup.digest)
        return lookup

    def add(self, lookup: Lookup, body: bytes, history: KnownHistory) -> None:
        """Keep what was found in the body. Of its own beginnings only the last is still kept."""
        end = history.beginning.records.end
        digest = lookup.digest_at(body, end)
        if digest in self._known:
            self._known.move_to_end(digest)
            return
        if lookup.digest in self._known:
            self._forget(self._known[lookup.digest].before)
        tail = body[end - _TAIL : end]
        self._known[digest] = _KeptHistory(history, lookup.group, tail, lookup.digest)
        self._size += history.size
        group = self._groups.setdefault(lookup.group, _Candidates())
        insort(group.ends, end)
        group.tails[end, tail] = group.tails.get((end, tail), 0) + 1
        while self._size > self._most:
            self._forget(next(iter(self._known)))

    def _forget(self, digest: bytes) -> None:
        kept = self._known.pop(digest, None)
        if kept is None:
            return
        end, tail = kept.history.beginning.records.end, kept.tail
        self._size -= kept.history.size
        group = self._groups[kept.group]
        del group.ends[bisect_right(group.ends, end) - 1]
        group.tails[end, tail] -= 1
        if not group.tails[end, tail]:
            del group.tails[end, tail]
        if not group.ends:
            del self._groups[kept.group]

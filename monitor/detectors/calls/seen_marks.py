"""What a run has seen, as marks in a field of fixed size.

Failure answered: a set of the words of a run grows with the run. Here a word is two bits. A word
that was never seen counts as seen in at most 6 % of the questions; a seen word is never new, until
it is forgotten. The newest 6,000 marks are always kept, and never more than 12,000.
"""

from __future__ import annotations

import base64
import zlib
from array import array
from collections.abc import Iterable, Sequence

TYPE_CHECKING = False  # a hook is waited for, and `typing` takes 3 ms

if TYPE_CHECKING:
    from typing import Any

FIELD_BYTES = 8_192
"""65,536 bits: two of them are chosen by the 32 bits of a mark."""
MARKS_A_FIELD = 6_000
"""6,000 marks set a sixth of the bits, so 3 % of the unknown words count as seen."""
WORDS_KEPT = 16_384
"""The words whose marks are kept, by all runs together."""
MARK_BYTES = 4
MOST_BYTES = 1_000_000
"""More bytes of marks are in no snapshot."""


def mark(text: str) -> int:
    """The 32 bits by which `text` is known."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


class WordMarks(dict[str, int]):
    """The marks of words. Most words come again, so the marks of the latest ones are kept."""

    def __missing__(self, word: str) -> int:
        if len(self) >= WORDS_KEPT:
            self.clear()
        self[word] = found = mark(word)
        return found

    def of(self, words: Iterable[str]) -> list[int]:
        """The mark of each of `words`."""
        return [*map(self.__getitem__, words)]


class SeenMarks:
    """The marks of a run. When a field is full, the older one of two fields is emptied."""

    __slots__ = ("_count", "_newer", "_older")

    def __init__(self, saved: Sequence[Any] | None = None) -> None:
        """`saved`: what `save` returned; `None`: nothing was seen."""
        self._newer, self._older = (
            (_unpacked(str(saved[0])), _unpacked(str(saved[1])))
            if saved
            else (bytearray(FIELD_BYTES), bytearray(FIELD_BYTES))
        )
        self._count = int(str(saved[2])) if saved else 0

    def __contains__(self, mark: int) -> bool:
        low, high, of_low, of_high = (mark & 0xFFFF) >> 3, mark >> 19, 1 << (mark & 7), 1 << ((mark >> 16) & 7)
        newer, older = self._newer, self._older
        return bool((newer[low] & of_low and newer[high] & of_high) or (older[low] & of_low and older[high] & of_high))

    def unseen(self, marks: Iterable[int]) -> int:
        """The number of `marks` that are not seen. A result has hundreds, so none costs a call."""
        newer, older, count = self._newer, self._older, 0
        for mark in marks:
            low, high, of_low, of_high = (mark & 0xFFFF) >> 3, mark >> 19, 1 << (mark & 7), 1 << ((mark >> 16) & 7)
            if not ((newer[low] & of_low and newer[high] & of_high) or (older[low] & of_low and older[high] & of_high)):
                count += 1
        return count

    def add(self, marks: Iterable[int]) -> None:
        """Keep `marks` as the newest."""
        field = self._newer
        for one in marks:
            low, high = (one & 0xFFFF) >> 3, one >> 19
            of_low, of_high = 1 << (one & 7), 1 << ((one >> 16) & 7)
            if field[low] & of_low and field[high] & of_high:
                continue
            if self._count >= MARKS_A_FIELD:
                self._older, self._newer, self._count = field, bytearray(FIELD_BYTES), 0
                field = self._newer
            field[low] |= of_low
            field[high] |= of_high
            self._count += 1

    def save(self) -> list[Any]:
        """The state as JSON data."""
        return [_packed(self._newer), _packed(self._older), self._count]


def _packed(field: bytearray) -> str:
    return base64.b64encode(zlib.compress(bytes(field), 1)).decode("ascii")


def _unpacked(text: str) -> bytearray:
    field = bytearray(zlib.decompressobj().decompress(base64.b64decode(text), FIELD_BYTES))
    if len(field) != FIELD_BYTES:
        raise ValueError("the marks of a snapshot are not complete")
    return field


class MarkTable:
    """The newest rows of numbers of 32 bits, each known by a mark, in a field of fixed size."""

    __slots__ = ("_columns", "_next")

    def __init__(self, rows: int, width: int) -> None:
        """`width`: the numbers of a row, its mark included."""
        self._columns = [array("I", bytes(MARK_BYTES * rows)) for _ in range(width)]
        self._next = 0

    def get(self, mark: int) -> tuple[int, ...]:
        """The numbers beside `mark`. Empty: it is not known."""
        keys, *others = self._columns
        if mark not in keys:
            return ()
        at = keys.index(mark)
        return tuple(column[at] for column in others)

    def put(self, mark: int, *numbers: int) -> None:
        """Keep a row, in the place of the one with this mark or of the oldest."""
        keys = self._columns[0]
        at = keys.index(mark) if mark in keys else self._next
        if at == self._next:
            self._next = (at + 1) % len(keys)
        for column, number in zip(self._columns, (mark, *numbers), strict=True):
            column[at] = number

    def save(self) -> list[Any]:
        """The state as JSON data."""
        return [self._next, *map(packed, self._columns)]

    def load(self, saved: Sequence[Any]) -> None:
        """Take over what `save` returned."""
        self._next, *columns = saved
        self._columns = [array("I", unpacked(column)) for column in columns]


def packed(marks: Iterable[int]) -> str:
    """Numbers of 32 bits, such as marks, as text."""
    data = b"".join(one.to_bytes(MARK_BYTES, "little") for one in marks)
    return base64.b64encode(zlib.compress(data, 1)).decode("ascii")


def unpacked(text: str) -> list[int]:
    """The marks in a text that `packed` has made."""
    data = zlib.decompressobj().decompress(base64.b64decode(text), MOST_BYTES)
    return [int.from_bytes(data[at : at + MARK_BYTES], "little") for at in range(0, len(data), MARK_BYTES)]

"""Long texts and calls are stored once: calls and events point to the node that holds them.

A result stands in its node, in the record of its call and in two events, a call in its message and
in two events. Without pointers the session would hold the text four times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any, Final

from monitor.sessions.nodes import canonical

LEAST_CHARS: Final = 48
"""A shorter text costs no more than the pointer to it."""
MOST_CHARS: Final = 1_000
"""A longer text is remembered by its digest."""
POINTER: Final = "$node"
"""`{"$node": [7, 0]}`: the first long text of node number 7."""
CALL: Final = "$call"
"""`{"$call": [7, 0]}`: the first call of node number 7."""
AS_IS: Final = "$as_is"
"""An object of the caller's that has one of these keys is stored as the value of this key."""
_KEYS: Final = frozenset({POINTER, CALL, AS_IS})
_CALL_KEYS: Final = frozenset({"arguments", "id", "name"})


class Pointers:
    """The places of the long texts and the calls of some nodes."""

    def __init__(self, nodes: Iterable[tuple[int, str]] = ()) -> None:
        """`nodes`: the number and the body of each node."""
        self._places: dict[str | bytes, tuple[int, int]] = {}
        self._calls: dict[str, tuple[int, int]] = {}
        self._unread = list(nodes)
        self.size = len(self._unread)
        """The number of nodes that can be pointed into."""

    def add(self, seq: int, body: str) -> None:
        """Add a node whose texts can be pointed to."""
        self._unread.append((seq, body))
        self.size += 1

    def shared(self, data: Any) -> Any:
        """`data` with pointers in the place of long texts and calls."""
        if self._unread:
            self._read()
        return self._walked(data)

    def _read(self) -> None:
        for seq, body in self._unread:
            said = json.loads(body)
            for at, text in enumerate(long_texts(said)):
                self._places.setdefault(_key(text), (seq, at))
            for at, call in enumerate(calls_in(said)):
                self._calls.setdefault(canonical(call), (seq, at))
        self._unread.clear()

    def _walked(self, data: Any) -> Any:
        if isinstance(data, str):
            place = self._places.get(_key(data)) if len(data) >= LEAST_CHARS else None
            return data if place is None else {POINTER: list(place)}
        if isinstance(data, dict):
            if self._calls and data.keys() == _CALL_KEYS and (place := self._calls.get(canonical(data))) is not None:
                return {CALL: list(place)}
            walked = {key: self._walked(value) for key, value in data.items()}
            return walked if _KEYS.isdisjoint(data) else {AS_IS: walked}
        return [self._walked(value) for value in data] if isinstance(data, list) else data


def _key(text: str) -> str | bytes:
    """The text, or the digest of one that would take up memory until its turn ends."""
    return text if len(text) <= MOST_CHARS else sha256(text.encode("utf-8", "surrogatepass")).digest()


def long_texts(data: Any) -> Iterator[str]:
    """The texts that may be pointed to, in the order of the stored body."""
    if isinstance(data, str):
        if len(data) >= LEAST_CHARS:
            yield data
    elif isinstance(data, dict | list):
        for value in data.values() if isinstance(data, dict) else data:
            yield from long_texts(value)


def calls_in(data: Any) -> Iterator[Any]:
    """The calls that may be pointed to, in the order of the stored body."""
    if isinstance(data, dict):
        if data.keys() == _CALL_KEYS:
            yield data
        else:
            for value in data.values():
                yield from calls_in(value)
    elif isinstance(data, list):
        for value in data:
            yield from calls_in(value)


def can_be_shared(data: Any) -> bool:
    """Whether `data` has a text or a call that a node may have too."""
    kind = type(data)
    if kind is str:
        return len(data) >= LEAST_CHARS
    if kind is dict:
        return data.keys() == _CALL_KEYS or any(map(can_be_shared, data.values()))
    return kind is list and any(map(can_be_shared, data))


def has_pointer(body: str) -> bool:
    """Whether the body of a row may have a pointer."""
    return '"$' in body


_POINTED: Final = re.compile(r'"\$(?:node|call)":\[(\d{1,18}),')
"""The number of a node that a body points into."""


def pointed(body: str) -> list[int]:
    """The numbers of the nodes that a body may point into."""
    return [int(seq) for seq in _POINTED.findall(body)] if has_pointer(body) else []


def whole(data: Any, body: Callable[[int], str]) -> Any:
    """The inverse of `Pointers.shared`. `body(number)` is the body of a node. Raises `ValueError`
    for a pointer to a text that is not there.
    """
    texts: dict[int, list[str]] = {}
    calls: dict[int, list[Any]] = {}

    def walk(data: Any) -> Any:
        if isinstance(data, list):
            return [walk(value) for value in data]
        if not isinstance(data, dict):
            return data
        if AS_IS in data:
            return {key: walk(value) for key, value in data[AS_IS].items()}
        if CALL in data:
            return found(data[CALL], calls, calls_in, "call")
        if POINTER not in data:
            return {key: walk(value) for key, value in data.items()}
        return found(data[POINTER], texts, long_texts, "text")

    def found(place: Any, known: dict[int, list[Any]], parts: Callable[[Any], Iterator[Any]], what: str) -> Any:
        seq, at = place
        if seq not in known:
            known[seq] = list(parts(json.loads(body(seq))))
        if at >= len(known[seq]):
            raise ValueError(f"node number {seq} has no {what} number {at}")
        return known[seq][at]

    return walk(data)

"""Long texts are stored once: the ledger and the events point to the node that holds a text.

A result stands in its node, in the record of its call and in two events. Without pointers the
session would hold the text four times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

LEAST_CHARS: Final = 48
"""A shorter text costs no more than the pointer to it."""
POINTER: Final = "$node"
"""`{"$node": [7, 0]}`: the first long text of node number 7."""
AS_IS: Final = "$as_is"
"""An object of the caller's that has one of these two keys is stored as the value of this key."""


class Pointers:
    """The places of the long texts of some nodes."""

    def __init__(self, nodes: Iterable[tuple[int, str]]) -> None:
        """`nodes`: the number and the body of each node."""
        self._places: dict[str, tuple[int, int]] = {}
        for seq, body in nodes:
            for at, text in enumerate(long_texts(json.loads(body))):
                self._places.setdefault(text, (seq, at))

    def shared(self, data: Any) -> Any:
        """`data` with pointers in the place of long texts."""
        if isinstance(data, str):
            place = self._places.get(data) if len(data) >= LEAST_CHARS else None
            return data if place is None else {POINTER: list(place)}
        if isinstance(data, dict):
            walked = {key: self.shared(value) for key, value in data.items()}
            return {AS_IS: walked} if POINTER in data or AS_IS in data else walked
        return [self.shared(value) for value in data] if isinstance(data, list) else data


def long_texts(data: Any) -> Iterator[str]:
    """The texts that may be pointed to, in the order of the stored body."""
    if isinstance(data, str):
        if len(data) >= LEAST_CHARS:
            yield data
    elif isinstance(data, dict | list):
        for value in data.values() if isinstance(data, dict) else data:
            yield from long_texts(value)


def has_long_text(data: Any) -> bool:
    """Whether `data` has a text that could be shared."""
    return next(long_texts(data), None) is not None


def whole(data: Any, body: Callable[[int], str]) -> Any:
    """The inverse of `Pointers.shared`. `body(number)` is the body of a node. Raises `ValueError`
    for a pointer to a text that is not there.
    """
    texts: dict[int, list[str]] = {}

    def walk(data: Any) -> Any:
        if isinstance(data, list):
            return [walk(value) for value in data]
        if not isinstance(data, dict):
            return data
        if AS_IS in data:
            return {key: walk(value) for key, value in data[AS_IS].items()}
        if POINTER not in data:
            return {key: walk(value) for key, value in data.items()}
        seq, at = data[POINTER]
        if seq not in texts:
            texts[seq] = list(long_texts(json.loads(body(seq))))
        if at >= len(texts[seq]):
            raise ValueError(f"node number {seq} has no text number {at}")
        return texts[seq][at]

    return walk(data)

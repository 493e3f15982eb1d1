"""One channel of text and the rules that watch it. Failure answered: work for every delta. Models send four characters at a time, so
a delta is only put aside until some rule is due; the text that rules look at is a few thousand characters that move along.

The order of findings is the order of the text, whatever came in one delta: the chant is asked up to the next due point
of the tail, then the tail. A finding clears the evidence of both, and watching goes on behind it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from monitor.detectors.base import NOTHING
from monitor.detectors.text.hit import Hit
from monitor.detectors.text.markdown import Fences
from monitor.detectors.text.tail import TailRule, TailScanner
from monitor.detectors.text.window import WindowRule, WindowScanner
from monitor.verdicts import Detection

SLICE_CHARS = 65_536
"""A delta is taken in slices of this size, so that one of 100 MB needs no second copy of itself."""
SLACK_CHARS = 2_048
"""Text kept beyond what the rules need, so that it is not cut at every look."""


class Channel:
    """Feeds the rules; offsets are code points since the run began."""

    __slots__ = ("_base", "_chant", "_fences", "_history", "_need", "_pending", "_report", "_tail", "_text")

    def __init__(self, *, chant: WindowRule | None, tail: TailRule | None, data: bool, report: Callable[[Hit], Detection]) -> None:
        self._report = report
        self._fences = Fences()
        self._chant = WindowScanner(chant, self._fences) if chant else None
        self._tail = TailScanner(tail, self._fences, data=data) if tail else None
        self._history = max(chant.history if chant else 0, tail.history if tail else 0)
        self.restart(0)

    @property
    def offset(self) -> int:
        """Code points taken in so far."""
        return self._base + len(self._text) + len(self._pending)

    def restart(self, offset: int) -> None:
        """A new piece of text begins at `offset`; nothing before it counts."""
        self._text = self._pending = ""
        self._base = offset
        self._fences.restart(offset)
        self._clear(offset)
        self._wait()

    def feed(self, delta: str) -> Sequence[Detection]:
        """Take in the next text."""
        self._pending = pending = self._pending + delta
        if len(pending) < self._need:
            return NOTHING
        return self._take(pending)

    def _take(self, pending: str) -> Sequence[Detection]:
        self._pending = ""
        if len(pending) <= SLICE_CHARS:
            found: Sequence[Detection] = self._look(pending)
        else:
            slices = range(0, len(pending), SLICE_CHARS)
            found = [detection for start in slices for detection in self._look(pending[start : start + SLICE_CHARS])] or NOTHING
        self._wait()
        return found

    def _look(self, piece: str) -> Sequence[Detection]:
        text, base = self._text + piece, self._base
        end = base + len(text)
        found: Sequence[Detection] = NOTHING
        while (hit := self._next_hit(text, base, end)) is not None:
            found = (*found, self._report(hit))
            self._clear(hit.end)
        if len(text) > self._history + SLACK_CHARS:
            self._fences.inside(text, base, end)
            self._base = end - self._history
            text = text[-self._history :]
        self._text = text
        return found

    def _next_hit(self, text: str, base: int, end: int) -> Hit | None:
        chant, tail = self._chant, self._tail
        while True:
            upto = end if tail is None or tail.due > end else tail.due
            if chant is not None and chant.due <= upto and (hit := chant.scan(text, base, upto)) is not None:
                return hit
            if tail is None or tail.due > end:
                return None
            if (hit := tail.scan(text, base)) is not None:
                return hit

    def _clear(self, offset: int) -> None:
        if self._chant is not None:
            self._chant.restart(offset)
        if self._tail is not None:
            self._tail.restart(offset)

    def _wait(self) -> None:
        due = min(self._chant.due if self._chant else sys.maxsize, self._tail.due if self._tail else sys.maxsize)
        self._need = due - self._base - len(self._text)

    def snapshot(self) -> dict[str, Any]:
        """A few thousand characters of text, and positions."""
        return {
            "base": self._base,
            "text": self._text,
            "pending": self._pending,
            "fence": [self._fences.marker, self._fences.origin, self._fences.seen],
            "chant": self._chant.snapshot() if self._chant else None,
            "tail": self._tail.snapshot() if self._tail else None,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `snapshot`, for a channel with the same rules."""
        self._base, self._text, self._pending = int(state["base"]), str(state["text"]), str(state["pending"])
        marker, origin, seen = state["fence"]
        self._fences.marker, self._fences.origin, self._fences.seen = str(marker), int(origin), int(seen)
        if self._chant is not None:
            self._chant.restore(state["chant"])
        if self._tail is not None:
            self._tail.restore(state["tail"])
        self._wait()

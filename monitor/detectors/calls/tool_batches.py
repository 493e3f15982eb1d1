"""Cycles among calls of one response. Failure answered: a response that repeats its calls while it
is written, before any of them has run. Also a model that reads the same twelve files at once in
every turn, which is longer than any cycle of single calls.

Two counters for `ToolCallCycle`. `ResponseRepeats` reads the calls of one response in the order in
which they are written. `EqualBatches` compares whole batches and their results, without regard to
order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from monitor._util.hashing import identity
from monitor.detectors.calls.call_detector import CALLS_KEPT

ROUNDS_KEPT = 64
"""The most equal batches that are counted."""


class ResponseRepeats:
    """Counts how often the newest calls of one response repeat the ones before them. It checks
    every period up to `max_period`, and reports from `rounds` rounds on.
    """

    __slots__ = ("_batch", "_max_period", "_newest", "_repeats", "_rounds", "calls")
    calls: list[int]
    """The newest calls, by index, enough for the first rounds of any period."""
    _batch: int
    _newest: list[str]
    """The newest calls, by hash."""
    _repeats: list[int]
    """The repeats by period, from 1: how many of the newest calls equal the call one period before.
    """

    def __init__(self, max_period: int, rounds: int, state: Mapping[str, Any] | None = None) -> None:
        """`state`: what `save` returned; `None`: nothing yet."""
        self._max_period = max_period
        self._rounds = rounds
        self._batch = state["batch"] if state else -1
        self._newest = list(state["newest"]) if state else []
        self._repeats = list(state["repeats"]) if state else []
        self.calls = list(state["calls"]) if state else []

    def add(self, batch: int, index: int, xxhash: str) -> tuple[int, int] | None:
        """Add the next call. Returns the shortest period of which the call completes a round that
        counts, and the number of rounds.
        """
        if batch != self._batch:
            self._batch, self._newest, self._repeats, self.calls = batch, [], [], []
        newest, repeats = self._newest, self._repeats
        for back, known in enumerate(reversed(newest)):
            repeats[back] = repeats[back] + 1 if known == xxhash else 0
        self.calls.append(index)
        newest.append(xxhash)
        repeats.append(0)
        del newest[: -self._max_period], repeats[self._max_period :], self.calls[: -self._max_period * self._rounds]
        equal = repeats[0] + 1
        for place, same in enumerate(repeats[1:], start=2):
            if same >= (self._rounds - 1) * place and equal < place:
                return None if same % place else (place, same // place + 1)
        return None

    def save(self) -> dict[str, Any]:
        """The state as JSON data."""
        return {"batch": self._batch, "newest": self._newest[:], "repeats": self._repeats[:], "calls": self.calls[:]}


@dataclass(slots=True)
class _SiblingCalls:
    number: int = -1
    calls: list[str] = field(default_factory=list[str])
    """The hashes of its calls, sorted."""
    start: int = 0


class EqualBatches:
    """Counts how often in a row the same calls were made together, as long as none of them got a
    changed result.
    """

    __slots__ = ("_answers", "_batch", "_calls", "_length", "_starts")
    _batch: _SiblingCalls
    """The present batch."""
    _calls: str
    """Identity of the batch before it."""
    _length: int
    _starts: list[int]
    """The first call of each consecutive batch that equals `_calls`."""
    _answers: dict[str, str]
    """The latest result of each call."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        """`state`: what `save` returned; `None`: nothing yet."""
        self._batch = (
            _SiblingCalls(state["batch"][0], list(state["batch"][1]), state["batch"][2]) if state else _SiblingCalls()
        )
        self._calls, self._length = state["before"] if state else ("", 0)
        self._starts = list(state["starts"]) if state else []
        self._answers = dict(state["answers"]) if state else {}

    def add(self, batch: int, index: int, xxhash: str) -> list[int]:
        """Add the next call. If the batch now equals the one before it, returns the first call of
        each round.
        """
        if batch != self._batch.number:
            self._close()
            self._batch = _SiblingCalls(batch, [], index)
        calls = self._batch.calls
        if len(calls) >= CALLS_KEPT:
            return []
        place = next((at for at, known in enumerate(calls) if known > xxhash), len(calls))
        calls.insert(place, xxhash)
        if len(calls) != self._length or identity(" ".join(calls)) != self._calls:
            return []
        return [*self._starts, self._batch.start]

    def answered(self, index: int, xxhash: str, result: str) -> None:
        """Add a result. A changed result restarts the count at the round that got it."""
        if self._answers.setdefault(xxhash, result) == result:
            return
        self._answers = {xxhash: result}
        rounds = [*self._starts, self._batch.start]
        got = max((start for start in rounds if start <= index), default=index)
        self._starts = [start for start in self._starts if start >= got]

    @property
    def calls(self) -> list[str]:
        """The hashes of the present batch's calls, sorted."""
        return self._batch.calls

    @property
    def is_part(self) -> bool:
        """Whether the present batch is smaller than the one before it, so that more calls may
        come.
        """
        return len(self._batch.calls) < self._length

    @property
    def was_answered(self) -> bool:
        """Whether any result was seen."""
        return bool(self._answers)

    def _close(self) -> None:
        """Close the present batch, because the next one begins."""
        batch = self._batch
        calls = identity(" ".join(batch.calls)) if batch.calls else ""
        if calls != self._calls:
            self._calls, self._length, self._starts = calls, len(batch.calls), []
            self._answers = {call: self._answers[call] for call in batch.calls if call in self._answers}
        self._starts = [*self._starts, batch.start][-ROUNDS_KEPT:]

    def save(self) -> dict[str, Any]:
        """The state as JSON data."""
        batch = self._batch
        return {
            "batch": [batch.number, batch.calls[:], batch.start],
            "before": [self._calls, self._length],
            "starts": self._starts[:],
            "answers": dict(self._answers),
        }

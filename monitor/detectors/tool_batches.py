"""Cycles among calls that are made together. Failure answered: a response that goes round and round
while it is written, before anything of it has run; and a model that reads the same twelve files at
once in every turn, more than any cycle of single calls has.

Two counters for `ToolCallCycle`. `Response` reads the calls of one response in the order in which
they are written. `EqualBatches` compares whole batches, in which order does not matter, with the
results that their calls got.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from monitor._util.hashing import identity
from monitor.detectors.calls import CALLS_KEPT

ROUNDS_KEPT = 64
"""Equal batches that are counted at most."""


class Response:
    """How often the newest calls of one response repeat the ones before them, for every period up
    to `max_period`, from `rounds` on.
    """

    __slots__ = ("_batch", "_max_period", "_newest", "_repeats", "_rounds", "calls")
    calls: list[int]
    """The newest calls, by index, enough for the first rounds of any period."""
    _batch: int
    _newest: list[str]
    """The newest calls, by hash."""
    _repeats: list[int]
    """By period, from 1: how many of the newest calls equal the call one period before."""

    def __init__(self, max_period: int, rounds: int, state: Mapping[str, Any] | None = None) -> None:
        """`state`: what `save` returned; `None`: nothing yet."""
        self._max_period = max_period
        self._rounds = rounds
        self._batch = state["batch"] if state else -1
        self._newest = list(state["newest"]) if state else []
        self._repeats = list(state["repeats"]) if state else []
        self.calls = list(state["calls"]) if state else []

    def add(self, batch: int, index: int, xxhash: str) -> tuple[int, int] | None:
        """Take in the next call. The shortest period of which it completes a round that counts, and
        how many rounds.
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
        """As JSON data."""
        return {"batch": self._batch, "newest": self._newest[:], "repeats": self._repeats[:], "calls": self.calls[:]}


@dataclass(slots=True)
class _Batch:
    number: int = -1
    calls: list[str] = field(default_factory=list[str])
    """Their hashes in order of size."""
    start: int = 0


class EqualBatches:
    """How often in a row the same calls were made together, as far as none of them got a changed
    result.
    """

    __slots__ = ("_answers", "_batch", "_calls", "_length", "_starts")
    _batch: _Batch
    """The present one."""
    _calls: str
    """Identity of the one before it."""
    _length: int
    _starts: list[int]
    """The first call of each batch that equals that one, in a row."""
    _answers: dict[str, str]
    """By call, the result that it got last."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        """`state`: what `save` returned; `None`: nothing yet."""
        self._batch = _Batch(state["batch"][0], list(state["batch"][1]), state["batch"][2]) if state else _Batch()
        self._calls, self._length = state["before"] if state else ("", 0)
        self._starts = list(state["starts"]) if state else []
        self._answers = dict(state["answers"]) if state else {}

    def add(self, batch: int, index: int, xxhash: str) -> list[int]:
        """Take in the next call. Where the batch so far equals the one before it: the first call of
        each round.
        """
        if batch != self._batch.number:
            self._close()
            self._batch = _Batch(batch, [], index)
        calls = self._batch.calls
        if len(calls) >= CALLS_KEPT:
            return []
        place = next((at for at, known in enumerate(calls) if known > xxhash), len(calls))
        calls.insert(place, xxhash)
        if len(calls) != self._length or identity(" ".join(calls)) != self._calls:
            return []
        return [*self._starts, self._batch.start]

    def answered(self, index: int, xxhash: str, result: str) -> None:
        """A result came; with a changed one the count begins anew, at the round that got it."""
        if self._answers.setdefault(xxhash, result) == result:
            return
        self._answers = {xxhash: result}
        rounds = [*self._starts, self._batch.start]
        got = max((start for start in rounds if start <= index), default=index)
        self._starts = [start for start in self._starts if start >= got]

    @property
    def calls(self) -> list[str]:
        """The hashes of the calls of the present batch, in order of size."""
        return self._batch.calls

    @property
    def is_part(self) -> bool:
        """Whether the present batch is smaller than the one before it: more of it may come."""
        return len(self._batch.calls) < self._length

    @property
    def was_answered(self) -> bool:
        """Whether any result was seen."""
        return bool(self._answers)

    def _close(self) -> None:
        """The next batch begins."""
        batch = self._batch
        calls = identity(" ".join(batch.calls)) if batch.calls else ""
        if calls != self._calls:
            self._calls, self._length, self._starts = calls, len(batch.calls), []
            self._answers = {call: self._answers[call] for call in batch.calls if call in self._answers}
        self._starts = [*self._starts, batch.start][-ROUNDS_KEPT:]

    def save(self) -> dict[str, Any]:
        """As JSON data."""
        batch = self._batch
        return {
            "batch": [batch.number, batch.calls[:], batch.start],
            "before": [self._calls, self._length],
            "starts": self._starts[:],
            "answers": dict(self._answers),
        }

"""The steps of one run, each with a mark of what was recorded, so that copies are recognised.

A step is a response of the model with the results of its calls. Two records are of one step if all
they say is equal, and if that includes what chance does not give twice: a time, or a random id of a
call. The names of files and the ids of runs say nothing: a copy may have others.
"""

from __future__ import annotations

import re
import struct
import zlib
from array import array
from dataclasses import dataclass
from typing import Final, NamedTuple

from monitor._util.hashing import chained
from monitor.transcripts.analysis.cost import UNKNOWN_COST, RunCost
from monitor.transcripts.base import RecordedMessage
from monitor.transcripts.entries import Began
from monitor.usage import Usage

_WORD: Final = re.compile(r"[0-9A-Za-z]+")
_ROW: Final = struct.Struct("<11q d 3?")
RANDOM_CHARS: Final = 8
"""The least length of a random word in an id: letters and digits mixed, or the digits of a time.
Some programs number the calls of a run instead: `call_1`, `functions.bash:0`.
"""
NO_MARK: Final = 0
"""The mark of a step that may be equal to one of another run by chance."""


class RecordedStep(NamedTuple):
    """The numbers of one step."""

    message: int
    """The index of the model's message."""
    chars: int
    tool_calls: int
    errors: int
    usage: Usage | None
    """`None`: the recording does not say."""
    cost: RunCost


@dataclass(slots=True, frozen=True)
class RecordedSteps:
    """The steps of a run, packed: a long run has many thousands."""

    packed_marks: bytes = b""
    packed_rows: bytes = b""

    @property
    def marks(self) -> array[int]:
        """The mark of each step."""
        return array("Q", self.packed_marks)

    def unpacked(self) -> list[RecordedStep]:
        """The numbers of each step."""
        found: list[RecordedStep] = []
        for row in _ROW.iter_unpack(zlib.decompress(self.packed_rows)):
            message, chars, calls, errors, *tokens = row[:11]
            usage = Usage(*tokens) if tokens[0] >= 0 else None
            usd, known, partial, listed = row[11:]
            found.append(
                RecordedStep(message, chars, calls, errors, usage, RunCost(usd if known else None, partial, listed))
            )
        return found


NO_STEPS: Final = RecordedSteps()
_NO_TOKENS: Final = (-1, 0, 0, 0, 0, 0, 0)


class StepLog:
    """Notes the steps of one run while it is read. `own_id`: the id that the recording gives to the
    run; empty: it gives none. `place`: the content of the file, and the place of the run in it, for
    a run that chance may give twice.
    """

    def __init__(self, began: Began, own_id: str, place: str) -> None:
        self._began = began
        self._own_id = own_id
        self._place = place
        self._index = 0
        self._chain = NO_MARK
        """A hash of all messages until now."""
        self._certain = False
        """Whether the chain has what chance does not give twice."""
        self._marks = array("Q")
        self._weak = 0
        """The number of the last steps without a mark."""
        self._rows: list[tuple[int | float, ...]] = []
        self._errors = 0
        self._latest = float("-inf")
        self._said: set[int] = set()
        """A hash of each message, with its time."""
        self._replayed = False
        """Whether the last message was a copy."""
        self._results = 0

    def take(self, message: RecordedMessage) -> bool:
        """Note the next message. Returns whether it is new. A message is a copy if it is equal to
        an earlier one with the same time, and if a later time came between. Then equal messages
        behind it are copies too.
        """
        said = f"{message.at}\0{_said(message)}"
        own = chained(NO_MARK, said)
        went_back = message.at is not None and message.at < self._latest
        self._replayed = (self._replayed or went_back) and own in self._said
        if self._replayed:
            return False
        self._said.add(own)
        if message.at is not None:
            self._latest = max(self._latest, message.at)
        self._chain = chained(self._chain, said)
        timed = own if message.at is not None else NO_MARK
        self._certain = self._certain or bool(timed) or any(is_random(call.id) for call in message.tool_calls)
        if message.role == "assistant":
            self._end_step()
            self._begin_step(message, timed or self._chain)
        self._errors += sum(result.is_error for result in message.tool_results)
        self._results += len(message.tool_results)
        self._index += 1
        return True

    def _begin_step(self, message: RecordedMessage, mark: int) -> None:
        if self._certain:
            self._mark_weak(mark)
            self._marks.append(mark)
        elif is_random(self._own_id):
            self._marks.append(chained(mark, self._own_id))
        else:
            self._marks.append(NO_MARK)
            self._weak += 1
        usage, cost = message.usage, UNKNOWN_COST.plus(message, self._began.model)
        tokens = _NO_TOKENS if usage is None else _tokens(usage)
        numbers = (self._index, len(message.text), len(message.tool_calls))
        self._rows.append((*numbers, *tokens, cost.usd or 0.0, cost.usd is not None, cost.partial, cost.listed))

    def _end_step(self) -> None:
        """Note the errors since the last response."""
        if self._rows:
            row = self._rows[-1]
            self._rows[-1] = (*row[:3], self._errors, *row[3:])
            self._errors = 0

    def _mark_weak(self, mark: int) -> None:
        """Give the steps that chance may give twice the mark of the first one behind them that it
        does not.
        """
        for at in range(len(self._marks) - self._weak, len(self._marks)):
            self._marks[at] = mark
        self._weak = 0

    def end(self) -> RecordedSteps:
        """The steps of the run, which is over."""
        self._end_step()
        if not self._marks:
            self._marks.append(NO_MARK)
            self._weak = 1
        if self._certain:
            self._mark_weak(self._chain)
        elif self._results or is_random(self._own_id):
            self._mark_weak(chained(self._chain, self._own_id))
        else:
            self._mark_weak(chained(self._chain, self._place))
        rows = b"".join(_ROW.pack(*row) for row in self._rows)
        return RecordedSteps(self._marks.tobytes(), zlib.compress(rows, 1))


def _said(message: RecordedMessage) -> str:
    """All that a message says, as one text."""
    calls = [(call.id, call.name, call.arguments) for call in message.tool_calls]
    results = [(result.call_id, result.is_error, result.text) for result in message.tool_results]
    return "\0".join((message.role, message.text, message.reasoning, repr(calls), repr(results)))


def _tokens(usage: Usage) -> tuple[int, ...]:
    return (
        usage.input_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        usage.cached_tokens,
        usage.total_tokens,
        usage.cache_write_tokens,
        usage.cache_write_1h_tokens,
    )


def is_random(id: str | None) -> bool:
    """Whether chance does not give `id` to two calls."""
    return id is not None and any(
        len(word) >= RANDOM_CHARS and not word.isalpha() and (len(word) > RANDOM_CHARS or not word.isdigit())
        for word in _WORD.findall(id)
    )

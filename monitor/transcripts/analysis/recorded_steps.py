"""The steps of one run, each with a mark of its place, so that copies are recognised.

A step is a response of the model with the results of its calls. Two records are of one step if they
have the same mark and begin alike: one of them may have been cut. A mark is made of what chance
does not give twice: a time, or all messages before it if a call among them has a random id. The
names of files say nothing: a copy may have another.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
import re
import stat
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from monitor._util.hashing import chained, fingerprint
from monitor.chunks import NO_USAGE, Usage
from monitor.prices import list_price
from monitor.transcripts.base import Began, RecordedMessage, RunTotals
from monitor.transcripts.source import Source

# --------------------------------------------------------------------------------------------------
# What the model calls of a recorded run cost: as the recording says, else by list prices.


@dataclass(slots=True, frozen=True)
class Spent:
    """Tokens and US dollars of model calls."""

    usage: Usage | None = None
    """`None`: the recording does not say."""
    usd: float | None = None
    """`None`: no call has a known cost."""
    partial: bool = False
    """Some of the tokens have no known price, so the cost is at least `usd`."""
    listed: bool = False
    """Part of `usd` was worked out by the list prices of the package."""

    def plus(self, message: RecordedMessage, model: str) -> Spent:
        """The sums with one more message. `model`: of the run, where the message names none."""
        used, usd = message.usage, message.cost_usd
        if used is None and usd is None:
            return self
        usage = self.usage if used is None else (self.usage or NO_USAGE) + used
        listed = usd is None and used is not None and bool(used.total_tokens)
        if listed and used is not None:
            price = list_price(message.model or model, at_s=message.at)
            if price is None:
                return Spent(usage, self.usd, partial=True, listed=self.listed)
            usd = price.cost(used)
        total = self.usd if usd is None else (self.usd or 0.0) + usd
        return Spent(usage, total, self.partial, self.listed or listed)

    def or_totals(self, totals: RunTotals | None, model: str, at_s: float | None) -> Spent:
        """The sums that the recording of the whole run names, as far as it does. `model`: of the
        run. `at_s`: the time of its last message, for the prices of that day.
        """
        if totals is None:
            return self
        cost = Spent(usd=totals.cost_usd)
        for name, usage in totals.usage if totals.cost_usd is None else ():
            cost = cost.plus(RecordedMessage("assistant", usage=usage, model=name, at=at_s), model)
        return replace(cost if cost.usd is not None else self, usage=totals.tokens or self.usage)

    @property
    def tokens(self) -> int:
        """The number of tokens; 0 if the recording does not say."""
        return self.usage.total_tokens if self.usage else 0

    def usd_since(self, then: Spent) -> float | None:
        """US dollars of the calls after `then`. `None`: the cost of none of them is known."""
        if self.usd is None or (self.usd == then.usd and self.partial):
            return None
        return self.usd - (then.usd or 0.0)


NOTHING_SPENT: Final[Spent] = Spent()
_Number = TypeVar("_Number", int, float)


def known_sum(one: _Number | None, other: _Number | None) -> _Number | None:
    """The sum of the numbers that are known. `None`: neither is."""
    if one is None or other is None:
        return other if one is None else one
    return one + other


StepNumbers: TypeAlias = tuple[int | float, ...]
"""Responses, characters, calls, results, errors, the fields of `Usage`, and US dollars. Then
whether tokens and dollars are known, and whether the dollars are partial and listed.
"""

StepRow: TypeAlias = tuple[int, int, int, bytes]
"""The mark of a step, the index of its message, its beginning, and its numbers, packed."""

_WORD: Final = re.compile(r"[0-9A-Za-z]+")
_PLACE: Final = struct.Struct("<QQQ")
NUMBERS: Final = struct.Struct("<5I7qd4?")
NO_NUMBERS: Final[StepNumbers] = (0,) * 13 + (False,) * 4
RANDOM_CHARS: Final = 8
"""The least length of a random word in an id: letters and digits mixed, or the digits of a time.
Some programs number the calls of a run instead: `call_1`, `functions.bash:0`.
"""
LINE_CHARS: Final = 32
"""The part of the first line that two texts of one time share, if they are of one step."""
LIKE_CHARS: Final = 200
"""The part that two texts without a time share, if they are of one step."""
CHANCE_CHARS: Final = 400
"""Chance does not give twice a run whose model has said as much."""
NO_MARK: Final = 0
_HASH_BITS: Final = 21
_HASH: Final = 2**_HASH_BITS - 1
tokens_of: Final = attrgetter(*Usage.__match_args__)


@dataclass(slots=True, frozen=True)
class RecordedSteps:
    """The steps of a run, packed: a long run has many thousands. The first is its opening, which
    comes before the first response.
    """

    packed: bytes = b""

    def rows(self) -> Iterator[StepRow]:
        """Each of them."""
        data = zlib.decompress(self.packed)
        for at in range(0, len(data), _PLACE.size + NUMBERS.size):
            numbers = at + _PLACE.size
            yield *_PLACE.unpack_from(data, at), data[numbers : numbers + NUMBERS.size]


NO_STEPS: Final = RecordedSteps()


class StepLog:
    """Notes the steps of one run of `source` while it is read."""

    def __init__(self, began: Began, source: Source) -> None:
        self._model = began.model
        id, self._within = began.run.partition("~")[0], began.run.removeprefix(source.stem)
        is_own = self._within == began.run or (is_random(id) and f'"{id}"'.encode("utf-8", "replace") in source.head)
        self._id = id if is_own else ""
        """The id that the recording gives to the run; empty: it is named after its file."""
        self._source = source
        self._index = 0
        self._chain = NO_MARK
        """A hash of all messages until now."""
        self._certain = False
        """Whether the chain has what chance does not give twice."""
        self._times: Counter[float] = Counter()
        """The number of responses at each time: a recording may have one time for all."""
        self._latest = float("-inf")
        self._said: set[int] = set()
        """A hash of each message, with its time."""
        self._replayed = False
        """Whether the last message was a copy."""
        self._places: list[tuple[int, int, int]] = []
        self._numbers: list[StepNumbers] = []
        self._spent = NOTHING_SPENT
        self._begin_step(chained(NO_MARK, f"{id}\0") if is_random(self._id) else NO_MARK, 0)

    def take(self, message: RecordedMessage) -> bool:
        """Note the next message. Returns whether it is new. A message is a copy if it is equal to
        an earlier one with the same time, and if a later time came between. Then equal messages
        behind it are copies too.
        """
        at, said = message.at, f"{message.at}\0{_said(message)}"
        own = chained(NO_MARK, said)
        self._replayed = (self._replayed or (at is not None and at < self._latest)) and own in self._said
        if self._replayed:
            return False
        self._said.add(own)
        before, self._chain = self._chain, chained(self._chain, said)
        self._certain = self._certain or at is not None or any(is_random(call.id) for call in message.tool_calls)
        if at is not None:
            self._latest = max(self._latest, at)
            if self._index == 0 and not is_random(self._id):
                self._places[0] = chained(own, self._id), 0, 0
        if message.role == "assistant":
            self._end_step()
            self._begin_step(self._mark(at, before), _beginning(message))
            self._made = 1, len(message.text), len(message.tool_calls)
        self._results += len(message.tool_results)
        self._errors += sum(result.is_error for result in message.tool_results)
        self._spent = self._spent.plus(message, self._model)
        self._index += 1
        return True

    def _mark(self, at: float | None, before: int) -> int:
        """The mark of the response at the time `at`, after messages with the hash `before`."""
        if at is not None:
            self._times[at] += 1
            return chained(NO_MARK, f"{at}\0{self._times[at]}")
        if self._certain:
            return chained(before, "")
        return chained(before, self._id) if is_random(self._id) else NO_MARK

    def _begin_step(self, mark: int, beginning: int) -> None:
        self._places.append((mark, self._index, beginning))
        self._made, self._results, self._errors = (0, 0, 0), 0, 0
        self._spent = NOTHING_SPENT

    def _end_step(self) -> None:
        spent, made = self._spent, (*self._made, self._results, self._errors)
        flags = spent.usage is not None, spent.usd is not None, spent.partial, spent.listed
        self._numbers.append((*made, *tokens_of(spent.usage or NO_USAGE), spent.usd or 0.0, *flags))

    def end(self) -> RecordedSteps:
        """The steps of the run, which is over. A step that chance may give twice has its place
        before the first one that it does not. If there is none, the whole run must be equal.
        """
        self._end_step()
        whole = self._chain
        if not self._certain:
            likely = any(one[3] for one in self._numbers) or sum(one[1] for one in self._numbers) >= CHANCE_CHARS
            content = fingerprint(self._source.head)
            whole = chained(whole, self._id or self._within if likely else f"{content}{self._within}")
        first = next((chained(mark, f"{begins}") for mark, _, begins in self._places[1:] if mark), whole)
        packed = bytearray()
        for at, ((mark, *place), numbers) in enumerate(zip(self._places, self._numbers, strict=True)):
            certain = mark or chained(first, f"{at}" if at else self._id)
            packed += _PLACE.pack(certain, *place) + NUMBERS.pack(*numbers)
        return RecordedSteps(zlib.compress(packed, 1))


def _said(message: RecordedMessage) -> str:
    """All that a message says, as one text."""
    calls = [(call.id, call.name, call.arguments) for call in message.tool_calls]
    results = [(result.call_id, result.is_error, result.text) for result in message.tool_results]
    return "\0".join((message.role, message.text, message.reasoning, repr(calls), repr(results)))


def _beginning(message: RecordedMessage) -> int:
    """Hashes of the beginnings of its reasoning, its text and its first call; 0 for each that it
    lacks. Without a time, each includes those before it.
    """
    call = "".join(f"{call.id}\0{call.name}\0{call.arguments}" for call in message.tool_calls[:1])
    said = [message.reasoning[:LIKE_CHARS], message.text[:LIKE_CHARS], call]
    found = 0
    for at, one in enumerate(said):
        if message.at is None:
            begins = "\0\0".join(said[: at + 1]) if any(said[at:]) else ""
        else:
            begins = call if one is call else one[:LINE_CHARS].partition("\n")[0]
        found = found << _HASH_BITS | (chained(NO_MARK, begins) & _HASH if begins else 0)
    return found


def begin_alike(one: int, other: int) -> bool:
    """Whether two records of a step can be of the same step, as far as both of them go."""
    for _ in range(3):
        if (one ^ other) & _HASH and one & _HASH and other & _HASH:
            return False
        one, other = one >> _HASH_BITS, other >> _HASH_BITS
    return True


def difference(now: StepNumbers, then: StepNumbers) -> StepNumbers:
    """The numbers of a step beyond those that were recorded of it before."""
    *more, usd = (max(one - other, 0) for one, other in zip(now[:13], then[:13], strict=True))
    used = any(more[5:])
    return *more, usd, used, usd > 0, now[15] and used, now[16] and usd > 0


def is_random(id: str | None) -> bool:
    """Whether chance does not give `id` to two calls."""
    return id is not None and any(
        len(word) >= RANDOM_CHARS and not word.isalpha() and (len(word) > RANDOM_CHARS or not word.isdigit())
        for word in _WORD.findall(id)
    )


# --------------------------------------------------------------------------------------------------
# Results of scans as bytes, for a cache on the disk.
#
# They are written with `pickle`. Loading makes objects of the classes of results and nothing
# else, so bytes that somebody else wrote can call nothing. Bytes that cannot be loaded count as
# missing.

_MODULES: Final = ("monitor.transcripts", "monitor.verdicts", "monitor.verdicts", "monitor.chunks", "monitor.errors")
"""The modules whose classes may be loaded from a file: they hold data and run no code."""


def dumped(value: Any) -> bytes | None:
    """`value` as bytes. `None`: it has something that cannot be stored, such as a function of the
    user's.
    """
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return None


def loaded(data: bytes) -> Any:
    """The value that `dumped` wrote. `None`: it is damaged, or of other classes."""
    try:
        return _Loader(io.BytesIO(data)).load()
    except Exception:  # noqa: BLE001 - damaged bytes may raise anything
        return None


def code_version() -> str:
    """What changes when the code changes that read and watched: the files of the library, and the
    version of Python.
    """
    files = [file.stat() for file in Path(__file__).parents[2].rglob("*.py")]
    newest = max((file.st_mtime_ns for file in files), default=0)
    return f"{sys.version} {len(files)} {sum(file.st_size for file in files)} {newest}"


def is_own(path: Path) -> bool:
    """Whether nobody but this user may write to it. On Windows the folder of a user is."""
    if os.name == "nt":
        return True
    status = path.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid == os.getuid() and not stat.S_ISLNK(status.st_mode) and not status.st_mode & others


class _Loader(pickle.Unpickler):
    """Makes objects of the listed modules alone."""

    def find_class(self, module: str, name: str) -> Any:
        return _class_of(module, name)


@cache
def _class_of(module: str, name: str) -> type:
    """Raises `UnpicklingError` for what is no class of the listed modules."""
    if "." not in name and any(module == one or module.startswith(f"{one}.") for one in _MODULES):
        found = getattr(importlib.import_module(module), name)
        if isinstance(found, type) and found.__module__ == module:
            return found
    raise pickle.UnpicklingError(f"{module}.{name} is no part of a result")

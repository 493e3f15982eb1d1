"""A detector of a few tool calls in turn: A-B-A-B-A-B, or longer. Failure answered: an agent that
alternates between calls, which a counter of consecutive calls never sees (DeepSeek-V2.5: one run of
50 with a repeated call, 17 with a cycle).

Rules:

- A cycle is a unit of 2 to `max_period` calls, not all equal, that comes `rounds` times. The
  default is three, because most recorded runs end before the five rounds of Gemini CLI. Messages
  make no difference.
- Calls that were made together have no order. The same calls made together again are a round,
  however many they are.
- Within one response no call has run, so no result can have changed. There a unit of any length is
  a suspicion at `rounds` rounds and a loop at five, like equal calls.
- One foreign call does not hide a cycle if it only read, failed, or is one of the cycle's calls. An
  edit between two checks is work. Tools that only think or wait are ignored.
- Without any order, the last `unordered_at` calls or more are a cycle if each different call came
  `rounds` times on average: A-B-A-A-B. Two passes over fifteen files are only two rounds.
- An unordered cycle needs results, because a walk through a maze repeats four moves many times. A
  call that came only once must only read: an agent that runs the same four checks after each edit
  is at work.
- **A changed result is progress**: if a call of the unit got different results in two rounds, there
  is no cycle. Calls that repeat their effect are an exception (`ToolPolicy.side_effect`). If no
  results were seen, the arguments alone decide, and the message says so.
- A unit with a polled tool needs as many rounds as the tool's `loop_at`, or five without a
  `loop_at`. It never needs more rounds than are remembered.
- Each further round is reported again, so that a policy sees whether a warning helped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from typing import TypeAlias

from monitor._util.explained_options import explains_options
from monitor._util.hashing import identity
from monitor.detectors.calls.answers import is_error
from monitor.detectors.calls.front import (
    CALLS_KEPT,
    EXCERPT_CHARS,
    OFFSETS_SHOWN,
    CallAnswer,
    CallIdentity,
    CallRule,
    SeenCall,
)
from monitor.detectors.calls.tool_policy import ToolPolicy
from monitor.detectors.calls.tool_repetition import SAMPLING_TIMES
from monitor.detectors.detector import NOTHING
from monitor.errors import ConfigError
from monitor.verdicts import Detection, Evidence, Level

# --------------------------------------------------------------------------------------------------
# Cycles among calls of one response. Failure answered: a response that repeats its calls while it
# is written, before any of them has run. Also a model that reads the same twelve files at once in
# every turn, which is longer than any cycle of single calls.
#
# Two counters for `ToolCallCycle`. `ResponseRepeats` reads the calls of one response in the order
# in which they are written. `EqualBatches` compares whole batches and their results, without
# regard to order.

ROUNDS_KEPT = 64
"""The most equal batches that are counted."""


@dataclass(slots=True)
class ResponseRepeats:
    """Counts how often the newest calls of one response repeat the ones before them."""

    batch: int = -1
    newest: list[str] = field(default_factory=list[str])
    """The newest calls, by hash."""
    repeats: list[int] = field(default_factory=list[int])
    """The repeats by period, from 1: how many of the newest calls equal the call one period before.
    """
    calls: list[int] = field(default_factory=list[int])
    """The newest calls, by index, enough for the first rounds of any period."""

    def add(self, batch: int, index: int, xxhash: str, max_period: int, rounds: int) -> tuple[int, int] | None:
        """Add the next call. Returns the shortest period, up to `max_period`, of which the call
        completes a round that counts, and the number of rounds, from `rounds` on.
        """
        if batch != self.batch:
            self.batch, self.newest, self.repeats, self.calls = batch, [], [], []
        newest, repeats = self.newest, self.repeats
        for back, known in enumerate(reversed(newest)):
            repeats[back] = repeats[back] + 1 if known == xxhash else 0
        self.calls.append(index)
        newest.append(xxhash)
        repeats.append(0)
        del newest[:-max_period], repeats[max_period:], self.calls[: -max_period * rounds]
        equal = repeats[0] + 1
        for place, same in enumerate(repeats[1:], start=2):
            if same >= (rounds - 1) * place and equal < place:
                return None if same % place else (place, same // place + 1)
        return None


@dataclass(slots=True)
class _SiblingCalls:
    number: int = -1
    calls: list[str] = field(default_factory=list[str])
    """The hashes of its calls, sorted."""
    start: int = 0


@dataclass(slots=True)
class EqualBatches:
    """Counts how often in a row the same calls were made together, as long as none of them got a
    changed result.
    """

    batch: _SiblingCalls = field(default_factory=_SiblingCalls)
    """The present batch."""
    before: str = ""
    """Identity of the batch before it."""
    length: int = 0
    """The number of calls of the batch before it."""
    starts: list[int] = field(default_factory=list[int])
    """The first call of each consecutive batch that equals `before`."""
    answers: dict[str, str] = field(default_factory=dict[str, str])
    """The latest result of each call."""

    def add(self, batch: int, index: int, xxhash: str) -> list[int]:
        """Add the next call. If the batch now equals the one before it, returns the first call of
        each round.
        """
        if batch != self.batch.number:
            self._close()
            self.batch = _SiblingCalls(batch, [], index)
        calls = self.batch.calls
        if len(calls) >= CALLS_KEPT:
            return []
        place = next((at for at, known in enumerate(calls) if known > xxhash), len(calls))
        calls.insert(place, xxhash)
        if len(calls) != self.length or identity(" ".join(calls)) != self.before:
            return []
        return [*self.starts, self.batch.start]

    def answered(self, index: int, xxhash: str, result: str) -> None:
        """Add a result. A changed result restarts the count at the round that got it."""
        if self.answers.setdefault(xxhash, result) == result:
            return
        self.answers = {xxhash: result}
        rounds = [*self.starts, self.batch.start]
        got = max((start for start in rounds if start <= index), default=index)
        self.starts = [start for start in self.starts if start >= got]

    @property
    def calls(self) -> list[str]:
        """The hashes of the present batch's calls, sorted."""
        return self.batch.calls

    @property
    def is_part(self) -> bool:
        """Whether the present batch is smaller than the one before it, so that more calls may
        come.
        """
        return len(self.batch.calls) < self.length

    @property
    def was_answered(self) -> bool:
        """Whether any result was seen."""
        return bool(self.answers)

    def _close(self) -> None:
        """Close the present batch, because the next one begins."""
        batch = self.batch
        calls = identity(" ".join(batch.calls)) if batch.calls else ""
        if calls != self.before:
            self.before, self.length, self.starts = calls, len(batch.calls), []
            self.answers = {call: self.answers[call] for call in batch.calls if call in self.answers}
        self.starts = [*self.starts, batch.start][-ROUNDS_KEPT:]


POLLING_ROUNDS = 5
"""Rounds for a unit with a polled tool: the same number as identical calls for a loop."""
ALIKE_CALLS = 5
"""If this many of the newest calls are equal, that is a repetition (`ToolCallRepetition`), not a
cycle."""
ROUNDS_COUNTED = 4
"""The number of rounds beyond the needed ones that are remembered, to find the beginning of the
cycle.
"""
RESPONSE_ROUNDS = 5
"""Rounds within one response: the same number as equal calls for a loop."""
NAMES_SHOWN = 5


@dataclass(slots=True, frozen=True)
class _CycleCall:
    """A call, and its result."""

    index: int
    key: CallIdentity
    tool: str
    rounds: int
    """The number of rounds that a unit with this call needs at least."""
    compared: bool
    """Whether its results can show progress."""
    looks: bool
    """Whether the call only reads."""
    batch: int = 0
    """The batch number: the same for calls that were made together."""
    sampling: bool = False
    """Whether it is made several times at once on purpose."""
    result: str = ""
    """Identity of the result; empty until the result is seen."""
    failed: bool = False


@dataclass(slots=True, frozen=True)
class _Reported:
    """The cycle that was reported last."""

    xxhash: str
    last: int
    """The index of the call that ended the cycle."""
    count: int
    start: int


_Rounds: TypeAlias = tuple[_Reported, list[int]]
"""The reported cycle, and the start of each remembered round."""


@dataclass(slots=True)
class _CycleState:
    """The state of `ToolCallCycle`."""

    items: list[_CycleCall] = field(default_factory=list[_CycleCall])
    """The newest calls. Calls that were made together stand in the order of their hashes."""
    response: ResponseRepeats = field(default_factory=ResponseRepeats)
    batches: EqualBatches = field(default_factory=EqualBatches)
    reported: _Reported | None = None
    postponed: bool = False
    """The unordered check is postponed while a batch is being written, until the batch is as large
    as the one before, or ends.
    """


class ToolCallCycle(CallRule[_CycleState]):
    """Cycles of 2 to `max_period` calls that came `rounds` times without a changed result.

    `tools`: what is special about a tool. `unordered_at`: how many calls are examined without
    regard to order; `None` switches this off. The default of 15 is three rounds of the longest
    cycle. Of 624 good runs, some with hundreds of calls, none had 15 calls in a row with unchanged
    results and at most 5 different calls.
    """

    __slots__ = ("_kept", "_max_period", "_rounds", "_unordered_at")

    @explains_options(example="monitor.detectors.ToolCallCycle(rounds=3)")
    def __init__(
        self,
        *,
        max_period: int = 5,
        rounds: int = 3,
        unordered_at: int | None = 15,
        tools: Mapping[str, ToolPolicy] | None = None,
        name: str = "tool_call_cycle",
    ) -> None:
        if max_period <= 1:
            raise ConfigError(
                f"ToolCallCycle(max_period={max_period}): a cycle has 2 calls or more; one call is ToolCallRepetition's"
            )
        if rounds <= 1:
            raise ConfigError(f"ToolCallCycle(rounds={rounds}): one round is not a cycle; give 2 or more")
        if unordered_at is not None and unordered_at < 2 * rounds:
            raise ConfigError(
                f"ToolCallCycle(unordered_at={unordered_at}): give {2 * rounds} or more, two calls {rounds} times, or"
                " None"
            )
        self._max_period = max_period
        self._rounds = rounds
        self._unordered_at = unordered_at
        self._kept = max(max_period * (rounds + ROUNDS_COUNTED) + 1, 2 * (unordered_at or 0))
        super().__init__(_CycleState, tools=tools, name=name)

    def called(self, call: SeenCall) -> Sequence[Detection]:
        if call.policy.no_op and not call.exempt:
            return NOTHING
        key = CallIdentity(f"exempt {call.index}") if call.exempt else call.key
        rounds = max(self._rounds, (call.policy.loop_at or POLLING_ROUNDS) if call.policy.polling else 0)
        rounds += self.allowed.repetitions(without_arguments=not call.arguments)
        policy = call.policy
        item = _CycleCall(
            call.index, key, call.name, rounds, not policy.side_effect, policy.idempotent, call.batch, policy.sampling
        )
        self._put(item)
        self._state.postponed = False
        found = self._look_at_batches(item)
        return self._look() if found is None else found

    def _put(self, item: _CycleCall) -> None:
        """Calls that were made together stand in the order of their hashes."""
        items = self._state.items
        place = len(items)
        while place and items[place - 1].batch == item.batch and items[place - 1].key.xxhash > item.key.xxhash:
            place -= 1
        items.insert(place, item)
        if len(items) > self._kept:
            del items[min(range(len(items)), key=lambda at: items[at].index) if items[0].batch == item.batch else 0]

    def answered(self, answer: CallAnswer) -> Sequence[Detection]:
        place = next((at for at, item in enumerate(self._state.items) if item.index == answer.call.index), None)
        if place is None:
            return NOTHING
        outcome, item = answer.outcome, self._state.items[place]
        self._state.items[place] = replace(item, result=outcome, failed=is_error(answer.result))
        if item.compared:
            self._state.batches.answered(item.index, item.key.xxhash, outcome)
            before = next(
                (one.result for one in reversed(self._state.items[:place]) if one.key == item.key and one.result),
                outcome,
            )
            self._state.reported = self._state.reported if before == outcome else None
        return NOTHING

    def _look_at_batches(self, item: _CycleCall) -> Sequence[Detection] | None:
        """The findings among calls that were made together. `None`: there is no such cycle."""
        repeated = self._state.response.add(item.batch, item.index, item.key.xxhash, self._kept, self._rounds)
        starts = self._state.batches.add(item.batch, item.index, item.key.xxhash)
        if repeated is not None:
            return self._report_response(*repeated)
        calls = self._state.batches.calls
        if len(starts) < self._rounds or len(calls) <= self._max_period or calls[0] == calls[-1]:
            return None
        together = [one for one in self._state.items if one.batch == item.batch]
        rounds = max(one.rounds for one in together)
        return self._report_batches(together, starts, rounds) if len(starts) >= rounds else None

    def _look(self) -> Sequence[Detection]:
        """The finding for the shortest unit that the newest calls repeat. One foreign call may be
        left out.
        """
        items = self._state.items
        newest = items[-1].key if items else None
        if newest not in [item.key for item in items[:-1]]:
            return NOTHING
        # a unit is no longer than `max_period`, not all equal, and one call may be foreign
        alike = max(self._max_period + 1, ALIKE_CALLS)
        if all(item.key == newest for item in items[-alike:]):
            return NOTHING
        for period in range(2, self._max_period + 1):
            for round_of in self._candidates(period):
                rounds = self._feasible(max(item.rounds for item in round_of[-period:]), period)
                unchanged = _unchanged_tail(round_of, period)
                if len(unchanged) >= period * rounds:
                    return self._report(unchanged, period, rounds)
        self._state.postponed = self._state.batches.is_part
        return NOTHING if self._state.postponed else self._look_without_order()

    def turn_ended(self) -> Sequence[Detection]:
        postponed, self._state.postponed = self._state.postponed, False
        return self._look_without_order() if postponed else NOTHING

    def _look_without_order(self) -> Sequence[Detection]:
        """The finding for the longest tail of few different calls, none of which got two different
        results.
        """
        items = self._state.items
        if self._unordered_at is None or len({item.key for item in items[-ALIKE_CALLS:]}) == 1:
            return NOTHING
        rounds = 0
        times = Counter(item.key for item in items)
        results: dict[CallIdentity, str] = {}
        longest: tuple[int, int, int] | None = None
        for back, item in enumerate(reversed(items), start=1):
            if times[item.key] == 1 and not item.looks:
                break
            known = results.setdefault(item.key, "")
            if item.result and item.compared:
                if known and known != item.result:
                    break
                results[item.key] = item.result
            rounds = max(rounds, item.rounds)
            if back >= self._unordered_at and back >= self._feasible(rounds, len(results)) * len(results):
                longest = back, len(results), self._feasible(rounds, len(results))
        if longest is None:
            return NOTHING
        calls, different, rounds = longest
        return self._report_without_order(items[-calls:], different, rounds)

    def _feasible(self, rounds: int, different: int) -> int:
        """`rounds`, limited to the rounds that are remembered: a polled tool may need more."""
        return max(self._rounds, min(rounds, self._kept // different))

    def _candidates(self, period: int) -> list[list[_CycleCall]]:
        """The longest tails that repeat their last `period` calls: as they are, and each with one
        of the newest calls left out.
        """
        items = self._state.items
        found = [_periodic_tail(items, period)]
        for at in range(2, min(len(items), period * self._rounds + 1)):
            before = -1 - period if at > period + 1 else -2 - period  # the call one period before the newest
            if len(items) < -before or items[before].key != items[-1].key:
                continue
            left_out, tail = items[-at], _periodic_tail(items[:-at] + items[1 - at :], period)
            if len(tail) >= period * self._rounds and self._is_foreign(left_out, items, tail):
                found.append(tail)
        return [tail for tail in found if len(tail) >= period * self._rounds and len({item.key for item in tail}) > 1]

    @staticmethod
    def _is_foreign(left_out: _CycleCall, items: list[_CycleCall], tail: list[_CycleCall]) -> bool:
        """Whether `left_out` does not interrupt the cycle, because it changed nothing. A call that
        was made with others and comes again belongs to the cycle.
        """
        if sum(item.batch == left_out.batch for item in items) > 1:
            return (left_out.looks or left_out.failed) and sum(item.key == left_out.key for item in items) == 1
        return left_out.looks or left_out.failed or any(item.key == left_out.key for item in tail)

    def _report(self, tail: list[_CycleCall], period: int, rounds: int) -> Sequence[Detection]:
        unit, times = _rotated(tail[-period:]), 1
        together = len({item.batch for item in unit}) == 1
        if together:  # of calls without an order, A A B B is twice A B
            times = gcd(*Counter(item.key for item in unit).values())
            unit = unit[::times]
        calls = [item.index for item in tail[-period * (len(tail) // period) :]]
        how = ("together {count} times" if together and times == 1 else "{count} times in turn") + _about_results(tail)
        return self._detection(
            unit, self._rounds_of(_xxhash(unit), calls, len(unit)), rounds, f"{_the_same(unit)} {how}"
        )

    def _report_response(self, period: int, rounds: int) -> Sequence[Detection]:
        """A cycle within one response."""
        calls = self._state.response.calls
        unit = _rotated([item for item in self._state.items if item.index in calls[-period:]])
        loop_at = max(RESPONSE_ROUNDS, self._rounds) * (SAMPLING_TIMES if any(item.sampling for item in unit) else 1)
        if rounds != self._rounds and rounds < loop_at:
            return NOTHING
        level: Level = "loop" if rounds >= loop_at else "suspect"
        threshold = loop_at if level == "loop" else self._rounds
        message = f"{_the_same(unit)} {{count}} times in turn in one response, before any of them had run"
        return self._detection(
            unit, self._rounds_of(_xxhash(unit), calls[-period * rounds :], period), threshold, message, level=level
        )

    def _report_batches(self, together: list[_CycleCall], starts: list[int], rounds: int) -> Sequence[Detection]:
        """Report a batch that was made again."""
        calls, seen = self._state.batches.calls, _GAVE_THE_SAME if self._state.batches.was_answered else _NOT_SEEN
        xxhash, last = identity(" ".join(sorted(set(calls)))), max(item.index for item in together)
        self._state.reported = _Reported(xxhash, last, len(starts), starts[0])
        message = f"{_the_same(together, len(calls))} together {{count}} times{seen}"
        return self._detection(together, (self._state.reported, starts), rounds, message)

    def _report_without_order(self, tail: list[_CycleCall], different: int, rounds: int) -> Sequence[Detection]:
        times = Counter(item.key for item in tail)
        again = sorted((key for key, count in times.items() if count > 1), key=lambda key: (-times[key], key.xxhash))
        if not all(any(item.key == key and (item.result or not item.compared) for item in tail) for key in again):
            return NOTHING
        unit = [next(item for item in tail if item.key == key) for key in again]
        rounds_of = self._rounds_of(
            identity(" ".join(sorted(key.xxhash for key in again))), [item.index for item in tail], different
        )
        message = (
            f"the last {len(tail)} calls, {{count}} rounds, were {different} different ones again and again, with"
            " unchanged results"
        )
        return self._detection(unit, rounds_of, rounds, message, joint=" and ")

    def _rounds_of(self, xxhash: str, calls: list[int], length: int) -> _Rounds | None:
        """`calls` in rounds of `length`, together with reported rounds that are no longer
        remembered. `None`: no round is new.
        """
        calls = sorted(calls)
        starts, before = calls[len(calls) % length :: length], self._state.reported
        rounds = _Reported(xxhash, calls[-1], len(starts), starts[0])
        if before is not None and before.xxhash == xxhash and before.last >= calls[0]:
            newer = sum(call > before.last for call in calls)
            if newer < length:
                return None
            count = max(rounds.count, before.count + newer // length)
            rounds = _Reported(xxhash, calls[-1 - newer % length], count, min(starts[0], before.start))
        self._state.reported = rounds
        return rounds, starts

    def _detection(
        self,
        unit: list[_CycleCall],
        rounds: _Rounds | None,
        threshold: int,
        message: str,
        *,
        level: Level = "loop",
        joint: str = " -> ",
    ) -> Sequence[Detection]:
        if rounds is None:
            return NOTHING
        reported, starts = rounds
        text = joint.join(item.key.text for item in unit)
        return (
            Detection(
                detector=self.name,
                kind="cycle",
                channel="tools",
                level=level,
                count=reported.count,
                threshold=threshold,
                start_offset=reported.start,
                offset=reported.last,
                evidence=Evidence(text[:EXCERPT_CHARS], reported.xxhash, len(text), tuple(starts[-OFFSETS_SHOWN:])),
                message=message.replace("{count}", str(reported.count)),
            ),
        )


_NOT_SEEN = "; no results were seen, the arguments alone decide"
_GAVE_THE_SAME = " and got the same results each time"


def _about_results(items: list[_CycleCall]) -> str:
    return _GAVE_THE_SAME if any(item.result for item in items) else _NOT_SEEN


def _xxhash(unit: list[_CycleCall]) -> str:
    return identity(" ".join(item.key.xxhash for item in unit))


def _the_same(unit: list[_CycleCall], size: int | None = None) -> str:
    names = [item.tool for item in unit]
    shown = names if len(names) <= NAMES_SHOWN else [*sorted(set(names))[:NAMES_SHOWN], "..."]
    return f"the same {size or len(unit)} calls ({', '.join(shown)}) were made"


def _periodic_tail(items: list[_CycleCall], period: int) -> list[_CycleCall]:
    """The longest tail in which every call equals the one `period` calls later."""
    place = len(items) - period
    while place > 0 and items[place - 1].key == items[place - 1 + period].key:
        place -= 1
    return items[max(place, 0) :]


def _unchanged_tail(tail: list[_CycleCall], period: int) -> list[_CycleCall]:
    """The part of `tail` in which no call of the unit got two different results. Results that were
    not seen or cannot show progress are ignored.
    """
    results: dict[int, str] = {}
    for back, item in enumerate(reversed(tail)):
        if item.result and item.compared and results.setdefault(back % period, item.result) != item.result:
            return tail[len(tail) - back :]
    return tail


def _rotated(unit: list[_CycleCall]) -> list[_CycleCall]:
    """The unit rotated to a fixed beginning, so that a cycle has one identity wherever it was first
    seen.
    """
    turns = [unit[place:] + unit[:place] for place in range(len(unit))]
    return min(turns, key=lambda turn: [item.key.xxhash for item in turn])

"""The same few tool calls in turn: A-B-A-B-A-B, or longer. Failure answered: an agent that
alternates, which no counter of consecutive calls ever sees (DeepSeek-V2.5: one run of 50 with a
repeated call, 17 with a cycle).

Rules:

- a cycle is a unit of 2 to `max_period` calls, not all equal, that comes `rounds` times (three:
  most cycles of recorded runs never reach the five of Gemini CLI, because the run ends first);
  messages and parallel batches make no difference, and the order within a batch does not matter;
- one foreign call among them does not hide it, tools that only think or wait stand between nothing;
- without any order: where the last calls, `unordered_at` or more, are so few different ones that
  each came `rounds` times on average, they turn in circles as well (A-B-A-A-B; four equal calls and
  a probe, again and again). Two passes over fifteen files are two rounds. Here results must have
  been seen: who walks through a maze makes four moves again and again. And what came once must be a
  look: who edits, and runs the same four checks after each edit, is at work;
- **a changed result is progress**: where one of the unit's calls was answered differently in two
  rounds, there is no cycle, except for calls that repeat their effect (`ToolPolicy.side_effect`).
  Where no results were seen the arguments alone decide, and the message says so;
- a unit with a tool that is polled waits for as many rounds as the tool's `loop_at`, five if it has
  none (or as many as are remembered);
- each further round is reported again, so that a policy sees whether a warning helped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from monitor._util.hashing import identity
from monitor.chunks import ToolResult
from monitor.detectors.base import NOTHING
from monitor.detectors.calls import EXCERPT_CHARS, OFFSETS_SHOWN, Asked, CallDetector, Called, CallKey, plain
from monitor.detectors.tool_policy import ToolPolicy
from monitor.errors import ConfigError
from monitor.verdicts import Detection, Evidence

COMPARED_CHARS = EXCERPT_CHARS
"""Of each remembered call, beside hash and length: as much as the evidence shows."""
POLLING_ROUNDS = 5
"""Rounds for a unit with a polled tool: as many as identical calls make a loop."""
ALIKE_CALLS = 5
"""The newest calls, all equal, are a repetition (`ToolCallRepetition`'s) and no cycle."""
ROUNDS_COUNTED = 4
"""Rounds beyond the needed ones that are remembered, to say how often the unit came."""


@dataclass(slots=True, frozen=True)
class _Item:
    """A call that was made, and what came of it."""

    index: int
    key: CallKey
    tool: str
    rounds: int
    """How many rounds a unit with this call needs at least."""
    compared: bool
    """Its results tell progress."""
    looks: bool
    """It changes nothing."""
    result: str = ""
    """Identity of the result; empty while it was not seen."""


class ToolCallCycle(CallDetector):
    """Cycles of 2 to `max_period` calls that came `rounds` times without a changed result. `tools`:
    what is special about a tool.

    `unordered_at`: as many calls without an order are looked at; `None` for none. 15 are three
    rounds of the longest cycle, and in 624 good runs, some of hundreds of calls, no stretch of 15
    is made of a third as many different calls with unchanged results.
    """

    __slots__ = ("_items", "_kept", "_max_period", "_reported", "_rounds", "_turn_start", "_unordered_at")
    _items: list[_Item]
    _reported: tuple[str, int] | None
    """The cycle that was reported last, and the call it ended with."""
    _turn_start: int | None

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
            raise ConfigError(f"ToolCallCycle(rounds={rounds}): once is no cycle; give 2 or more")
        if unordered_at is not None and unordered_at < 2 * rounds:
            raise ConfigError(
                f"ToolCallCycle(unordered_at={unordered_at}): give {2 * rounds} or more, two calls {rounds} times, or"
                " None"
            )
        self._max_period = max_period
        self._rounds = rounds
        self._unordered_at = unordered_at
        self._kept = max(max_period * (rounds + ROUNDS_COUNTED) + 1, 2 * (unordered_at or 0))
        super().__init__(tools=tools, name=name)

    def _called(self, call: Called) -> Sequence[Detection]:
        if call.policy.no_op and not call.exempt:
            return NOTHING
        key = CallKey(f"exempt {call.index}") if call.exempt else call.key(COMPARED_CHARS)
        rounds = max(self._rounds, (call.policy.loop_at or POLLING_ROUNDS) if call.policy.polling else 0)
        if self._turn_start is None:
            self._turn_start = call.index
        self._items.append(
            _Item(call.index, key, call.name, rounds, not call.policy.side_effect, call.policy.idempotent)
        )
        del self._items[: -self._kept]
        return self._look()

    def _answered(self, asked: Asked, policy: ToolPolicy, result: ToolResult) -> Sequence[Detection]:
        for place, item in enumerate(self._items):
            if item.index == asked.index:
                self._items[place] = replace(item, result=policy.outcome_of(result))
        return NOTHING

    def _turn_ended(self) -> Sequence[Detection]:
        """The calls of a batch were made at once: put them in an order of their own, the same
        whatever order they came in.
        """
        start, self._turn_start = self._turn_start, None
        batch = [item for item in self._items if start is not None and item.index >= start]
        ordered = sorted(batch, key=lambda item: (item.key.xxhash, item.index))
        if ordered == batch:
            return NOTHING
        self._items[-len(batch) :] = ordered
        return self._look()

    def _look(self) -> Sequence[Detection]:
        """The shortest unit that the newest calls repeat, with one foreign call left out if need
        be.
        """
        items = self._items
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
        return self._look_without_order()

    def _look_without_order(self) -> Sequence[Detection]:
        """The longest tail in which few different calls came often, none of them with two different
        results.
        """
        items = self._items
        if self._unordered_at is None or len({item.key for item in items[-ALIKE_CALLS:]}) == 1:
            return NOTHING
        rounds = 0
        times = Counter(item.key for item in items)
        results: dict[CallKey, str] = {}
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
        """A tool that is polled may ask for more rounds than are remembered."""
        return max(self._rounds, min(rounds, self._kept // different))

    def _candidates(self, period: int) -> list[list[_Item]]:
        """The longest tails that repeat their last `period` calls: as they are, and each with one
        of the newest calls left out.
        """
        items = self._items
        foreign = range(2, min(len(items), period * self._rounds + 1))
        found = [
            _periodic_tail(items, period),
            *(_periodic_tail(items[:-at] + items[1 - at :], period) for at in foreign),
        ]
        return [tail for tail in found if len(tail) >= period * self._rounds and len({item.key for item in tail}) > 1]

    def _report(self, tail: list[_Item], period: int, rounds: int) -> Sequence[Detection]:
        unit = _rotated(tail[-period:])
        text = " -> ".join(item.key.text for item in unit)
        xxhash = identity(" ".join(item.key.xxhash for item in unit))
        last, reported = max(item.index for item in tail), self._reported
        if reported is not None and reported[0] == xxhash and last < reported[1] + period:
            return NOTHING
        self._reported = (xxhash, last)
        count = len(tail) // period
        counted = sorted(item.index for item in tail[-period * count :])
        seen = any(item.result for item in tail)
        names = ", ".join(item.tool for item in unit)
        about = " and got the same results each time" if seen else "; no results were seen, the arguments alone decide"
        return (
            Detection(
                detector=self.name,
                kind="cycle",
                channel="tools",
                level="loop",
                count=count,
                threshold=rounds,
                start_offset=counted[0],
                offset=last,
                evidence=Evidence(text[:EXCERPT_CHARS], xxhash, len(text), tuple(counted[::period][-OFFSETS_SHOWN:])),
                message=f"the same {period} calls ({names}) were made {count} times in turn{about}",
            ),
        )

    def _report_without_order(self, tail: list[_Item], different: int, rounds: int) -> Sequence[Detection]:
        times = Counter(item.key for item in tail)
        again = sorted((key for key, count in times.items() if count > 1), key=lambda key: (-times[key], key.xxhash))
        if not all(any(item.key == key and (item.result or not item.compared) for item in tail) for key in again):
            return NOTHING
        text = " and ".join(key.text for key in again)
        xxhash = identity(" ".join(sorted(key.xxhash for key in again)))
        last, reported = max(item.index for item in tail), self._reported
        if reported is not None and reported[0] == xxhash and last < reported[1] + different:
            return NOTHING
        self._reported = (xxhash, last)
        return (
            Detection(
                detector=self.name,
                kind="cycle",
                channel="tools",
                level="loop",
                count=len(tail) // different,
                threshold=rounds,
                start_offset=min(item.index for item in tail),
                offset=last,
                evidence=Evidence(
                    text[:EXCERPT_CHARS], xxhash, len(text), tuple(sorted(item.index for item in tail)[-OFFSETS_SHOWN:])
                ),
                message=(
                    f"the last {len(tail)} calls were {different} different ones again and again, with unchanged"
                    " results"
                ),
            ),
        )

    def _save(self) -> dict[str, Any]:
        reported = None if self._reported is None else list(self._reported)
        return {"items": self._items[:], "turn_start": self._turn_start, "reported": reported}

    def _as_json(self, saved: dict[str, Any]) -> dict[str, Any]:
        return {**saved, "items": [plain(_item(item)) for item in saved["items"]]}

    def _load(self, state: Mapping[str, Any] | None) -> None:
        reported = state["reported"] if state else None
        self._items = [_item(item) for item in state["items"]] if state else []
        self._turn_start = state["turn_start"] if state else None
        self._reported = (str(reported[0]), int(reported[1])) if reported else None


def _item(saved: _Item | dict[str, Any]) -> _Item:
    return saved if isinstance(saved, _Item) else _Item(**{**saved, "key": CallKey(**saved["key"])})


def _periodic_tail(items: list[_Item], period: int) -> list[_Item]:
    """The longest tail in which every call equals the one `period` calls later."""
    place = len(items) - period
    while place > 0 and items[place - 1].key == items[place - 1 + period].key:
        place -= 1
    return items[max(place, 0) :]


def _unchanged_tail(tail: list[_Item], period: int) -> list[_Item]:
    """The part in which no call of the unit got two different results, as far as they were seen and
    tell anything.
    """
    results: dict[int, str] = {}
    for back, item in enumerate(reversed(tail)):
        if item.result and item.compared and results.setdefault(back % period, item.result) != item.result:
            return tail[len(tail) - back :]
    return tail


def _rotated(unit: list[_Item]) -> list[_Item]:
    """The unit from a beginning of its own, so that a cycle has one identity wherever it was seen
    first.
    """
    turns = [unit[place:] + unit[:place] for place in range(len(unit))]
    return min(turns, key=lambda turn: [item.key.xxhash for item in turn])

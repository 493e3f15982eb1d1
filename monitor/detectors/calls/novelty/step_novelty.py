"""What a step adds to what the run has seen: the kind of each call with its result.

Rules, for a call that was made before:

- a new state is news, and so is an answer after a refusal;
- a number that moved is judged by how it moved (`slot_movement`);
- the same result is evidence. It is weaker if something new was done or read in between, and
  stronger if the same call came before it as the last time.

For a call that was not made before, whose result is known:

- an answer with other numbers is news, unless they only count on, or the call only words it anew;
- a refusal is evidence, and so is an answer with content. How much depends on what the call tries
  (`call_difference`);
- a receipt for the next item is work. An item that nothing named may be a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from monitor.detectors.calls.allowance import NUMBERS
from monitor.detectors.calls.novelty.call_difference import (
    WORDS_OF_WORK,
    CallDifference,
    Difference,
    counts_on,
    difference_of,
    goes_on,
    is_guess,
    is_new_text,
)
from monitor.detectors.calls.novelty.marks import mark
from monitor.detectors.calls.novelty.slot_movement import Drift, Movement
from monitor.detectors.calls.novelty.step_kind import JudgedStep, StepKind, share_of_answer, share_of_news
from monitor.detectors.calls.novelty.step_memory import (
    MOVING_KEPT,
    TOOLS_KEPT,
    SeenCall,
    StepMemory,
    pair_of,
    trim,
)
from monitor.detectors.calls.novelty.step_reading import (
    FORMS,
    ID,
    RICH,
    SAID,
    StepCall,
    StepResult,
    is_sentence,
)
from monitor.detectors.calls.novelty.words import tokens

# --------------------------------------------------------------------------------------------------
# A call that waits for its result.


@dataclass(slots=True)
class OpenCall:
    """A call without a result."""

    reading: StepCall
    key: int
    batch: int
    siblings: int = 1
    """Different calls of its batch, which share one vote."""
    waits: bool = False
    """Whether the call asks for time to pass."""
    counted: bool = False
    """Whether the call was counted before it was answered."""
    result: StepResult | None = None
    """The result of the call, which waits for the results of the calls before it in its batch."""

    def save(self) -> list[Any]:
        """The state as JSON data."""
        reading = self.reading
        saved = [reading.name, reading.leaves[:], self.key, self.batch, self.siblings, self.waits, self.counted]
        return [*saved, None if self.result is None else self.result.save()]

    @classmethod
    def of(cls, saved: Sequence[Any]) -> OpenCall:
        """What `save` returned."""
        name, leaves, key, batch, siblings, waits, counted, result = saved
        reading = StepCall(name, [(place, value) for place, value in leaves])
        kept = None if result is None else StepResult(*result)
        return cls(reading, key, batch, siblings, waits, counted, kept)


SHORT_CALL = 24
"""The most characters of arguments of a step that may be made again, such as a pressed key."""
COSMETIC_AT = 2
"""The number of times that an argument is worded anew, with nothing changed, before it is left out
of the call.
"""
NEAR_SHARE = 0.1
"""New numbers for each word of an answer, up to which it is nearly the one before it."""
SHARE_OF_ONE_PLACE = 0.2
"""The same, if the call asks the same in other words or at the same place."""
CHARS_OF_AN_ID = 8
"""A longer number names a thing."""
DIGITS_OF_AN_END = 4
"""A longer number in a request names a thing."""
ENDS_KEPT = 16
"""The numbers of a request that are kept."""
MOST_EXCUSED = 2.5
"""The most evidence that comes back when a deed is done again: one second round is no loop."""
RECEIPT_OF_NO_ROW = 0.4
"""What a receipt counts as work, if its item is not the next one of a row."""
GUESS_APART = 0.125
"""What a guess counts, if something else was done since the guess before it."""
WINDOW = 0.35
"""What the same content counts in the next window of a whole, whose beginning and end move."""
WORDS_OF_A_REWRITE = 3
"""Words that no call has said, up to which a near call is rewritten and no other item."""
WORDS_OF_AN_ERROR = 6
"""Words of an error that the call did not say, from which on its cause lies elsewhere."""
WORDS_OF_THE_ERROR = 4
"""Words of an error that says nothing of the call, from which on its cause lies elsewhere."""


@dataclass(slots=True, frozen=True)
class _ReadStep:
    """A call and its result, as the rules read them."""

    call: OpenCall
    result: StepResult
    state: int
    known: bool
    """The state was seen before."""
    unseen: int
    """How many words of the result were not seen before."""


class StepNovelty:
    """What the steps of one run add, one after the other."""

    __slots__ = (
        "_acted",
        "_before",
        "_deed",
        "_excused",
        "_ids",
        "_latest",
        "_looked",
        "_memory",
        "_moved_at",
        "_named_ends",
        "_requested",
        "_state",
        "_step",
        "_told",
        "_waited",
        "_was_new",
    )

    def __init__(self, saved: Mapping[str, Any] | None = None) -> None:
        """`saved`: what `save` returned; `None`: nothing was seen."""
        given: Mapping[str, Any] = saved or {
            "steps": (0, -1, -1, 0, 0, 0, 0, 0),
            "excused": 0.0,
            "waited": -1,
            "latest": (),
            "ids": (),
        }
        self._memory = StepMemory(given.get("memory"))
        steps = map(int, given["steps"])
        self._step, self._acted, self._looked, self._before, self._state, self._told, self._deed, requested = steps
        self._waited = int(given["waited"])
        self._moved_at = int(given.get("moved_at", -1))
        """The latest step whose number moved, and not by itself."""
        self._latest = list(map(int, given["latest"]))
        """The identities of the latest call, and of its result: the words, all numbers, and the
        plain numbers.
        """
        self._excused = float(given["excused"])
        """The evidence that the newest deed has excused."""
        self._requested = bool(requested)
        self._named_ends: list[float] = list(map(float, given.get("named_ends", ())))
        """The numbers that the request names, the smallest first."""
        self._was_new = bool(given.get("was_new", True))
        self._ids: set[str] = set(map(str, given["ids"]))
        """The ids of the latest result: a call that says them again does not name an item."""

    def save(self) -> dict[str, Any]:
        """The state as JSON data."""
        steps = [self._step, self._acted, self._looked, self._before, self._state, self._told, self._deed]
        steps.append(int(self._requested))
        return {
            "memory": self._memory.save(),
            "steps": steps,
            "excused": self._excused,
            "waited": self._waited,
            "moved_at": self._moved_at,
            "named_ends": self._named_ends[:],
            "was_new": self._was_new,
            "latest": self._latest[:],
            "ids": sorted(self._ids),
        }

    def request(self, text: str) -> None:
        """The user's request names items."""
        self._requested = True
        words, numbers = tokens(text)
        self._memory.seen.add(map(mark, chain(words, numbers)))
        named = {float(one) for one in numbers if one.isdecimal() and len(one) <= DIGITS_OF_AN_END}
        named |= {float(NUMBERS[word]) for word in words if word in NUMBERS}
        self._named_ends = sorted(named)[:ENDS_KEPT]

    def key_of(self, call: StepCall) -> int:
        """The identity of a call, without its cosmetic arguments."""
        cosmetic = {place for place, times in self._memory.cosmetic.get(call.name, {}).items() if times >= COSMETIC_AT}
        for place, words in call.words if cosmetic else ():
            if place in cosmetic and is_new_text(words, [word for word in words if not self._memory.was_tried(word)]):
                cosmetic.remove(place)
        return call.key(cosmetic) if cosmetic else call.whole_key

    def is_equal(self, call: OpenCall, result: StepResult) -> bool:
        """Whether call and result are, word for word, those of the latest step."""
        return self._latest[:3] == [call.reading.whole_key, result.told, result.shown]

    def was_latest(self, key: int) -> bool:
        """Whether the call `key` is the latest step."""
        return self._before == key

    def pair_with(self, key: int) -> int:
        """The identity of the call `key` after the latest call."""
        return pair_of(self._before, key)

    def was_made(self, key: int) -> bool:
        """Whether the call `key` was made, and answered, before."""
        return self._memory.call(key) is not None

    @property
    def excused(self) -> float:
        """The evidence that was excused, and that the next step may show to be no excuse."""
        return self._excused

    def take(self, call: OpenCall, result: StepResult) -> JudgedStep:
        """Judge the next step, and learn from it."""
        self._step += 1
        memory = self._memory
        seen, is_item = memory.call(call.key), False
        state, known = result.state, memory.knows(result.state)
        if not known and memory.knows(result.state_as_told):
            state, known = result.state_as_told, True
        unseen = memory.seen.unseen(result.marks)
        step = _ReadStep(call, result, state, known, unseen)
        if seen is not None:
            kind = self._again(step, seen)
            news = kind is StepKind.NEW_WORDS
            share = share_of_news(unseen, len(result.marks)) if news else share_of_answer(result.content)
        else:
            difference = difference_of(call.reading, memory.near(call.reading.name), near=known)
            if difference.kind is Difference.NEXT:
                memory.keep_row(call.reading)
            kind = self._first_time(step, difference)
            is_item = difference.kind not in _SAME_IN_OTHER_WORDS
            share = self._share(step, kind, difference)
            if kind is not StepKind.WORK:
                self._learn_cosmetic(step, difference)
            memory.keep_near(call.reading)
        in_order = memory.followed(self._before, call.key)
        if in_order and kind in {StepKind.SAME_AGAIN, StepKind.FAILED_AGAIN}:
            kind = StepKind.SAME_ORDER
        self._learn(step, kind)
        self._was_new = seen is None
        excused = self._no_excuse(call.key, kind, in_order=in_order)
        return JudgedStep(kind, share if kind.is_graded else 1.0, excused, is_item)

    def _share(self, step: _ReadStep, kind: StepKind, difference: CallDifference) -> float:
        """The share of the weight of a call that is new."""
        if kind is StepKind.NEW_WORDS:
            return share_of_news(step.unseen, len(step.result.marks))
        if kind is StepKind.RECEIPT:
            return 1.0 if self._is_row(step.call.reading, difference) else RECEIPT_OF_NO_ROW
        share = share_of_answer(step.result.content)
        if kind is StepKind.GUESSED and not (self._was_new and step.state == self._state):
            return share * GUESS_APART
        if kind is StepKind.SAME_CONTENT and len(difference.words) > 1 and counts_on(difference):
            return share * WINDOW
        return share

    def _no_excuse(self, key: int, kind: StepKind, *, in_order: bool) -> float:
        """What was excused by a call that is now made again: what is done again was no deed."""
        if kind.is_excused:
            full = StepKind.SAME_ORDER if in_order else StepKind.SAME_AGAIN
            self._excused = min(MOST_EXCUSED, self._excused + full.weight - kind.weight)
        elif key == self._deed and kind.is_repetition and kind is not StepKind.RECEIPT_AGAIN:
            excused, self._excused = self._excused, 0.0
            return excused
        return 0.0

    def did(self, step_kind: StepKind, key: int, result: StepResult) -> None:
        """A call that is new was of this kind: it may have changed something."""
        refused = result.is_refusal and not result.is_empty
        if refused or not (step_kind.is_news or step_kind.may_act):
            return
        if result.content >= RICH and step_kind is not StepKind.ASKED_FOR:
            self._looked = self._step
        else:
            self._acted = self._step
        self._deed, self._excused = key, 0.0

    # ------------------------------------------------------------------ a call that is made again

    def _again(self, step: _ReadStep, seen: SeenCall) -> StepKind:
        """What moved, and did it move by itself?"""
        result = step.result
        acted = self._acted > seen.step
        if result.failed and seen.failed:
            return StepKind.DONE_BETWEEN if acted else StepKind.FAILED_AGAIN
        if seen.refused and not result.is_refusal:
            return StepKind.RECOVERED
        if seen.state != step.state and not step.known:
            return StepKind.NEW_WORDS if step.unseen else StepKind.NEW_STATE
        if seen.state != step.state or seen.shown == result.shown:
            if seen.state != step.state and self._moved_since(step):
                moved = self._moved(step, acted=acted)
                if moved.is_news:
                    return moved
            if self._before == step.call.key and seen.state != step.state:
                return StepKind.SWUNG
            return StepKind.DONE_BETWEEN if acted else self._same(step, seen)
        return self._moved(step, acted=acted)

    def _moved_since(self, step: _ReadStep) -> bool:
        """Whether the call showed this state before, and it never had these numbers."""
        memory, state = self._memory, step.state
        return memory.movement(step.call.key, state) is not None and not memory.knows_answer(state, step.result.answer)

    def _same(self, step: _ReadStep, seen: SeenCall) -> StepKind:
        """A result that was seen, and nothing was done since."""
        call, result = step.call, step.result
        if self._looked > seen.step:
            return StepKind.LOOKED_BETWEEN
        if call.waits and result.is_empty:
            return StepKind.WAITS
        if call.waits or self._waited == self._step - 1:
            return StepKind.WAITED
        if self._moved_at == self._step - 1 and result.is_bare:
            return StepKind.WAITS
        if seen.checked and call.siblings <= 2:  # noqa: PLR2004 - a whole batch is no check
            return StepKind.CHECKED_TWICE
        short = call.siblings == 1 and sum(len(value) for _, value in call.reading.leaves) <= SHORT_CALL
        same = seen.state == step.state
        return StepKind.RECEIPT_AGAIN if same and short and result.is_bare else StepKind.SAME_AGAIN

    def _moved(self, step: _ReadStep, *, acted: bool) -> StepKind:
        """The state that was seen, with other numbers."""
        result, moving = step.result, self._memory.movement(step.call.key, step.state)
        if moving is None:  # too many calls ago: what moved is not known
            return StepKind.ASKED_FOR
        ends = self._ends_in_request(result.numbers) | result.ends
        movement = moving.moved(result.numbers, ends, words=len(result.marks))
        if movement not in {Movement.CLOCK, Movement.BY_ITSELF}:
            self._moved_at = self._step
        if movement is Movement.ANSWER:
            known = self._memory.knows_answer(step.state, result.answer)
            return StepKind.OTHER_VALUE if known and not acted else StepKind.OTHER_ANSWER
        if movement is Movement.CLOCK and result.is_refusal and not acted:
            return StepKind.FAILED_AGAIN
        if acted:
            return StepKind.DONE_BETWEEN if movement is Movement.BY_ITSELF else StepKind.OTHER_ANSWER
        return _OF_MOVEMENT[movement]

    def _ends_in_request(self, numbers: Sequence[str]) -> dict[str, float]:
        """For each number the next greater one that the request names, as in "order 14 boxes"."""
        ends: dict[str, float] = {}
        for number in numbers if self._named_ends else ():
            if number.isdecimal():
                end = next((one for one in self._named_ends if one >= float(number)), None)
                if end is not None:
                    ends[number] = end
        return ends

    # ------------------------------------------------------------------ a call that is new

    def _first_time(self, step: _ReadStep, difference: CallDifference) -> StepKind:
        result, memory = step.result, self._memory
        if not step.known:
            new = step.unseen > 0 or (not result.marks and not result.failed)
            if not new and result.lines and all(line in memory.seen for line in result.lines):
                return StepKind.OLD_LINES
            if not new and difference.kind is Difference.REWORDED and difference.shares and result.is_content:
                return StepKind.OLD_NEWS
            return StepKind.NEW_WORDS if new else StepKind.NEW_STATE
        opaque = difference.kind in {Difference.NEXT, Difference.OTHER}
        told = [one for one in result.values if one != SAID and not (opaque and one[0] == ID)]
        moved = not memory.knows_answer(step.state, result.answer) and memory.has_new(step.state, told)
        if moved and not result.is_refusal and not self._drifts(step):
            if self._is_nearly_known(step, difference):
                return StepKind.NEARLY_SAME
            return StepKind.NEAR_NUMBERS if difference.kind in _NEAR else StepKind.OTHER_ANSWER
        if difference.kind is Difference.SAID_AGAIN:
            return StepKind.SAID_AGAIN
        untried = [word for word in difference.words if not memory.was_tried(word)]
        echo = not result.marks and not result.is_refusal and not memory.knows(result.state_as_told)
        if difference.kind is Difference.REWORDED and (difference.shares or not result.is_refusal) and not echo:
            works = is_new_text(difference.words, untried) and not result.is_refusal and result.content < RICH
            return StepKind.WORK if works else StepKind.REWORDED
        named = difference.kind is Difference.NEXT and self._is_named(step.call.reading, untried)
        if not result.is_refusal:
            return self._same_answer(step, difference, untried, named=named)
        plain = [one for one in told if one[0] not in FORMS]
        if moved and difference.kind is Difference.NEXT and memory.has_new(step.state, plain):
            return StepKind.REFUSED_ELSEWHERE
        return self._refused(step, difference, untried, named=named)

    def _refused(self, step: _ReadStep, difference: CallDifference, untried: Sequence[str], *, named: bool) -> StepKind:
        """A refusal that was seen, or silence."""
        result = step.result
        if step.state == self._state and not named:
            verbatim = result.told == self._told and SAID not in result.numbers
            if len(result.marks) >= (WORDS_OF_THE_ERROR if verbatim else WORDS_OF_AN_ERROR):
                return StepKind.SAME_ERROR if verbatim else StepKind.SAME_CAUSE
        if difference.kind is not Difference.NEXT:
            if result.is_empty:
                return StepKind.SILENT_AGAIN
            return StepKind.REFUSED_OTHER if len(set(untried)) >= 2 else StepKind.REFUSED_AGAIN  # noqa: PLR2004
        if named:
            return StepKind.SILENT_NAMED if result.is_empty and not result.failed else StepKind.REFUSED_NAMED
        if not result.is_empty:
            return StepKind.REFUSED_ITEM
        if step.state != self._state:
            return StepKind.SILENT_ONCE
        return StepKind.SILENT_ROW if counts_on(difference) else StepKind.SILENT_ITEM

    def _same_answer(
        self, step: _ReadStep, difference: CallDifference, untried: Sequence[str], *, named: bool
    ) -> StepKind:
        """An answer that was seen: content, or a receipt."""
        memory, reading = self._memory, step.call.reading
        rich = step.result.content >= RICH
        renewed = bool(untried) and self._ids.issuperset(untried)
        if rich and not memory.knows_order(step.state, step.result.order):
            return StepKind.REORDERED
        if rich and difference.kind in _NEAR:
            if step.result.told != self._told:
                return StepKind.NEAR_CONTENT
            return StepKind.RESPELLED if difference.kind is Difference.SPELLED else StepKind.VERBATIM
        if named and rich:
            return StepKind.RENEWED if renewed else StepKind.NAMED_CONTENT
        if named:
            return StepKind.NAMED_ITEM
        if rich or self._is_in_place(reading, difference):
            return StepKind.SAME_CONTENT
        if len(set(untried)) >= WORDS_OF_WORK:
            return StepKind.WORK
        if step.state == self._state and step.result.plain not in self._latest[3:]:
            return StepKind.FEEDBACK
        guessed = self._requested and step.result.content > 0 and not self._is_row(reading, difference)
        guessed = guessed and not difference.is_numbered
        guessed = guessed and (
            is_guess(difference, untried)
            or (difference.kind is Difference.NEAR and len(set(untried)) <= WORDS_OF_A_REWRITE)
        )
        return StepKind.GUESSED if guessed else StepKind.RECEIPT

    def _is_named(self, call: StepCall, untried: Sequence[str]) -> bool:
        """Whether what differs was named before: each word, or names of several words."""
        seen = self._memory.seen
        if untried and all(mark(word) in seen for word in untried):
            return True
        return self._memory.is_named(call.items) and self._ids.isdisjoint(call.items)

    def _is_in_place(self, call: StepCall, difference: CallDifference) -> bool:
        """Whether only numbers differ, and stay around one place."""
        words = difference.words
        plain = difference.kind is Difference.NEXT and bool(words) and all(word.isdecimal() for word in words)
        return plain and self._memory.is_in_place(call.name)

    def _is_row(self, call: StepCall, difference: CallDifference) -> bool:
        """Whether the item is the next one of a row."""
        return goes_on(difference) and not self._memory.wanders(call.name)

    def _is_nearly_known(self, step: _ReadStep, difference: CallDifference) -> bool:
        """Whether of a long answer only few numbers are new, and none of them names a thing."""
        result = step.result
        if not result.is_content:
            return False
        near = difference.kind in _NEAR or self._is_in_place(step.call.reading, difference)
        if not near and self._is_row(step.call.reading, difference):
            return False
        new = [one for one in result.values if one != SAID and self._memory.has_new(step.state, (one,))]
        named = any(one[0] in FORMS or len(one) >= CHARS_OF_AN_ID for one in new)
        return not named and len(new) <= (SHARE_OF_ONE_PLACE if near else NEAR_SHARE) * result.content

    def _drifts(self, step: _ReadStep) -> bool:
        """Whether the numbers of a state move whatever is asked."""
        drifts = self._memory.drift
        drift = drifts.setdefault(step.state, Drift())
        trim(drifts, MOVING_KEPT)
        return drift.add(step.result.numbers)

    # ------------------------------------------------------------------ what is learnt

    def _learn(self, step: _ReadStep, kind: StepKind) -> None:
        memory, call, result = self._memory, step.call, step.result
        memory.keep_call(call.key, result, self._step, step.state, checked=kind is StepKind.DONE_BETWEEN)
        memory.keep_states((step.state,) if step.known else (result.state_as_told, step.state), result)
        memory.learn(call.reading, result)
        if call.waits:
            self._waited = self._step
        self._latest = [call.reading.whole_key, result.told, result.shown, result.plain]
        self._before, self._state, self._told, self._ids = call.key, step.state, result.told, result.ids

    def _learn_cosmetic(self, step: _ReadStep, difference: CallDifference) -> None:
        """A sentence that is worded anew while the answer stays is cosmetic."""
        place, reading = difference.place, step.call.reading
        if not place or len(reading.leaves) == 1 or difference.kind not in {Difference.REWORDED, Difference.NEXT}:
            return
        value = dict(reading.leaves).get(place, "")
        if is_sentence(value) and self._memory.knows_answer(step.state, step.result.answer):
            places = self._memory.cosmetic.setdefault(reading.name, {})
            places[place] = places.get(place, 0) + (difference.kind is Difference.REWORDED)
            trim(places, TOOLS_KEPT)
            trim(self._memory.cosmetic, TOOLS_KEPT)


_SAME_IN_OTHER_WORDS = {Difference.REWORDED, Difference.SAID_AGAIN, Difference.SPELLED}
_NEAR = {Difference.REWORDED, Difference.SAID_AGAIN, Difference.NEAR, Difference.SPELLED}
_OF_MOVEMENT = {
    Movement.TO_AN_END: StepKind.TO_AN_END,
    Movement.OTHER_VALUE: StepKind.OTHER_VALUE,
    Movement.CLOCK: StepKind.CLOCK,
    Movement.ONE_WAY: StepKind.ONE_WAY,
    Movement.BY_ITSELF: StepKind.BY_ITSELF,
}

"""How a call differs from the newest calls of its tool: the next item, another spelling, other
words.

Failure answered: twelve guesses of a path and a walk over twelve files are twelve different calls.
What differs between two calls, and where, says what the second one tries.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from monitor.detectors.calls.novelty.step_reading import StepCall

SHARE = 0.5
"""The share of the shorter call's words that two near calls have in common."""
FAR = 2
"""The next number of a row differs from the one before by at most this many times its size."""
_LAST_NUMBER = re.compile(r"\d{1,15}")
LEAST_SAID = 3
"""The words that two wordings of a question have in common."""
GUESS_CHARS = 3
"""A shorter item is a key or a letter, but in a script without spaces a character is a word."""
GUESS_WORDS = 2
"""A guess differs in so few words from the one before it."""
WORDS_OF_WORK = 6
"""Words that were never tried, from which on a call has content of its own."""
LEAST_NEW = 5
"""The least words that were never tried, in a short text that is new: two thirds of its words."""
SHORT = 3
"""An argument of at most this many words may differ as a whole: it is the item itself."""


class Difference(IntEnum):
    """What differs, the closer the greater."""

    OTHER = 0
    """Most words."""
    NEAR = 1
    """A few words, in any place."""
    REWORDED = 2
    """Only a sentence, in other words."""
    NEXT = 3
    """The item in one place of the call: the next one of a row, or the next guess."""
    SAID_AGAIN = 4
    """Only the order of a sentence's words, or words that were added to it or left out."""
    SPELLED = 5
    """Only signs between the words."""


@dataclass(slots=True)
class CallDifference:
    """How a call differs from the earlier call that it is closest to."""

    kind: Difference
    words: list[str] = field(default_factory=list[str])
    """The words that the earlier call did not have there."""
    before: list[str] = field(default_factory=list[str])
    """The words of the earlier call that stood there."""
    place: str = ""
    """The argument that differs, if only one does."""
    shares: bool = True
    """A sentence in other words has a word in common with the one before it."""
    is_numbered: bool = False
    """A number went on by one: the call says itself that it is about the next item."""


def goes_on(difference: CallDifference) -> bool:
    """Whether the item is the next one of a row: each word has a number that became another one."""
    pairs = list(zip(difference.before, difference.words, strict=False))
    return bool(pairs) and all(_follows(was, word) for was, word in pairs)


def _follows(was: str, word: str) -> bool:
    old, new = _LAST_NUMBER.findall(was), _LAST_NUMBER.findall(word)
    if not old or not new or old[-1] == new[-1] or was[: was.rfind(old[-1])] != word[: word.rfind(new[-1])]:
        return False
    return abs(int(new[-1]) - int(old[-1])) <= FAR * max(1, int(old[-1]))


def counts_on(difference: CallDifference) -> bool:
    """Whether nothing but numbers differs, and each became greater."""
    pairs = list(zip(difference.before, difference.words, strict=False))
    return bool(pairs) and all(
        was.isdecimal() and word.isdecimal() and int(word[:15]) > int(was[:15]) for was, word in pairs
    )


def is_guess(difference: CallDifference, untried: Collection[str]) -> bool:
    """Whether a call tries another item or spelling, and it is no key and no letter. `untried`: its
    words that no call has said.
    """
    if difference.kind is Difference.SPELLED:
        return True
    words = difference.words
    if not untried or len(words) > GUESS_WORDS:
        return False
    if difference.kind is Difference.NEAR:
        return True
    return difference.kind is Difference.NEXT and not all(map(_is_key, untried))


def _is_key(word: str) -> bool:
    return len(word) < GUESS_CHARS and word.isascii()


def is_new_text(words: Sequence[str], untried: Collection[str]) -> bool:
    """Whether a text says something else than the texts before it, and not the same in other
    words. `untried`: its words that no call has said.
    """
    new = len(set(untried))
    return new >= WORDS_OF_WORK or (new >= LEAST_NEW and 3 * new > 2 * len(set(words)))


def difference_of(
    call: StepCall, earlier: Sequence[Sequence[tuple[str, list[str]]]], *, near: bool = True
) -> CallDifference:
    """Compares `call` with the words of earlier calls of its tool, the oldest first. `near`: tell a
    near call from any other one, which takes long.
    """
    best = CallDifference(Difference.OTHER, call.all_words)
    for words in reversed(earlier):
        one = _close_difference(call, words)
        if one.kind is Difference.OTHER and near and best.kind is Difference.OTHER:
            overlap = _overlap(call, words)
            overlap.place, one = one.place, overlap
            best.is_numbered |= overlap.is_numbered
        if one.kind > best.kind:
            best = one
        if best.kind is Difference.SPELLED:
            break
    return best


def _close_difference(call: StepCall, earlier: Sequence[tuple[str, list[str]]]) -> CallDifference:
    """How `call` differs from one earlier call; `OTHER` if it is only near, or is not."""
    before = dict(earlier)
    if list(before) != [place for place, _ in call.words]:
        return CallDifference(Difference.OTHER)
    new: list[str] = []
    gone: list[str] = []
    changed: list[str] = []
    is_next = True
    for place, words in call.words:
        old = before[place]
        if old == words:
            continue
        changed.append(place)
        differing = [word for was, word in zip(old, words, strict=False) if was != word]
        new += differing
        gone += [was for was, word in zip(old, words, strict=False) if was != word]
        few = len(set(differing)) <= max(1, min(3, len(words) // 2))
        is_next = is_next and len(old) == len(words) and (few or (len(words) <= SHORT and not set(old) & set(words)))
    where = changed[0] if len(changed) == 1 else ""
    if not changed:
        return CallDifference(Difference.SPELLED, new, gone, where)
    if _is_numbered_on(new, gone) and call.sentences.issuperset(changed):
        return CallDifference(Difference.NEXT, new, gone, where)
    texts = [place for place in changed if not all(map(str.isdecimal, call.word_of[place] or " "))]
    if texts and all(place in call.sentences and _says_again(before[place], call.word_of[place]) for place in texts):
        return CallDifference(Difference.SAID_AGAIN, new, gone, where)
    if is_next:
        return CallDifference(Difference.NEXT, new, gone, where)
    if call.sentences.issuperset(changed):
        shares = any(not set(before[place]).isdisjoint(call.word_of[place]) for place in changed)
        return CallDifference(Difference.REWORDED, new, gone, where, shares)
    return CallDifference(Difference.OTHER, place=where)


def _is_numbered_on(words: Sequence[str], before: Sequence[str]) -> bool:
    """Whether a number went on by one: "question 3 of 22"."""
    return any(
        word.isdecimal() and was.isdecimal() and int(word[:15]) == int(was[:15]) + 1
        for word, was in zip(words, before, strict=False)
    )


def _says_again(before: Sequence[str], now: Sequence[str]) -> bool:
    """Whether most words stay, and none stands in the place of another, as the next item does."""
    old, new = set(before), set(now)
    return len(old & new) >= max(LEAST_SAID, SHARE * max(len(old), len(new))) and (old <= new or new <= old)


def _overlap(call: StepCall, earlier: Sequence[tuple[str, list[str]]]) -> CallDifference:
    before = {word for _, words in earlier for word in words}
    own = call.all_words
    now = set(own)
    new = [word for word in own if word not in before]
    shared = len(before & now) / max(1, min(len(before), len(now)))
    near = shared >= SHARE and len(set(new)) <= max(2, len(now) // 3)
    old = dict(earlier)
    numbered = any(_is_numbered_on(words, old.get(place, ())) for place, words in call.words)
    return CallDifference(Difference.NEAR if near else Difference.OTHER, new, is_numbered=numbered)

"""The kinds of steps, and what each is worth as evidence of a loop.

The weight of a kind is, in nats, the logarithm of how much more often loops have such a step than
good runs have. It was counted on the recorded runs and on composed ones (`bench.quality`). It is
smaller than what was counted, because the steps of one run are not independent.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

NEWS_SHARE = 0.1
"""The share of new words from which on a result is news in full."""
LEAST_SHARE, SHARE_A_WORD, MOST_SHARE = 0.27, 0.13, 1.14
"""A receipt of one word has 0.4 of the weight, an answer of six words all of it."""


class StepKind(Enum):
    """What a step adds: its words for people, and its weight."""

    NEW_WORDS = "words that this run had not seen", -3.0
    NEW_STATE = "a result that this run had not seen, of known words", -0.7
    TO_AN_END = "a number came nearer to its end", -1.5
    RECOVERED = "a call that was refused before, and now was not", -3.0
    OTHER_ANSWER = "the same result with other numbers", -0.8
    NAMED_ITEM = "the next item, which was named before, and the same answer", -0.4
    RECEIPT = "the next item and the same receipt", -0.35
    WORK = "a call of other content and the same receipt", -1.2
    GUESSED = "an item that nothing named, and the same short answer", 0.62
    FEEDBACK = "an item that nothing named, and another of the numbers seen before", 0.1
    NEARLY_SAME = "another call, and of a long answer only few numbers are others", 0.55
    OLD_NEWS = "the same question in other words, and nothing but words seen before", 0.5
    OLD_LINES = "another call, and nothing but lines seen before", 0.45
    ASKED_FOR = "a repetition that the request asks for", 0.0
    DONE_BETWEEN = "a call and a result as before, after something else was done", 0.1
    SWUNG = "a call made before, and another result seen before", 0.25
    LOOKED_BETWEEN = "a call and a result as before, after something else was read", 0.8
    NEAR_NUMBERS = "nearly the same call, and only numbers that changed", 0.2
    OTHER_VALUE = "a call made before, and its value became another one", 0.15
    WAITED = "a call that waits, with the result seen before", 0.3
    WAITS = "a call that waits", 0.1
    CLOCK = "a call made before, and only a clock moved", 0.54
    ONE_WAY = "a call made before, and only a counter moved", 0.85
    BY_ITSELF = "a call made before, and only values moved that move by themselves", 1.0
    SAME_CONTENT = "another call with the same answer", 0.62
    RENEWED = "the same answer, under an id that the answer before it gave", 0.62
    REORDERED = "another call with the same words in another order", 0.2
    NAMED_CONTENT = "an item that was named before, and the same answer", 0.08
    NEAR_CONTENT = "nearly the same call with the same answer", 0.25
    RESPELLED = "another spelling of a call, and word for word the answer before it", 0.85
    VERBATIM = "nearly the same call, and word for word the answer before it", 0.5
    REWORDED = "the same in other words, with the same answer", 1.1
    SAID_AGAIN = "the same words in another order, or some more of them, with the same answer", 1.17
    REFUSED_ITEM = "another item and the same refusal", 0.78
    SILENT_ITEM = "another item and silence", 0.44
    SILENT_ONCE = "another item and silence, after another answer", -0.35
    SILENT_ROW = "the next number of a row and silence", 0.6
    REFUSED_ELSEWHERE = "another item, and the same refusal with other numbers", 0.45
    SAME_ERROR = "another call, and word for word the error before it", 1.1
    SAME_CAUSE = "another call, and the error before it, about other words of the call", 1.1
    REFUSED_NAMED = "an item that was named before, and the same refusal", 0.12
    SILENT_NAMED = "an item that was named before, and silence", 0.1
    SILENT_AGAIN = "another form of a call and silence", 0.3
    REFUSED_AGAIN = "another form of a call and the same refusal", 0.72
    REFUSED_OTHER = "another call and the same refusal", 0.66
    CHECKED_TWICE = "a call that is made again between what is done, with the result seen before", 0.15
    SAME_AGAIN = "a call made before, with the result seen before", 0.6
    SAME_ORDER = "a call made before, after the same call as before, with the result seen before", 0.9
    RECEIPT_AGAIN = "a call made before, with the receipt seen before", 0.85
    FAILED_AGAIN = "a call made before that failed again", 0.7
    UNANSWERED = "a call that was made before, and neither is answered yet", 0.85

    def __init__(self, words: str, weight: float) -> None:
        self.words = words
        self.weight = weight

    @property
    def is_news(self) -> bool:
        """Whether the step adds something."""
        return self.weight < 0

    @property
    def is_unclear(self) -> bool:
        """Whether only the request tells work from a loop."""
        return self in _UNCLEAR

    @property
    def is_graded(self) -> bool:
        """Whether only a share of the weight counts."""
        return self in _GRADED

    @property
    def is_excused(self) -> bool:
        """Whether it weighs less, because something was done or read before."""
        return self in _EXCUSED

    @property
    def may_act(self) -> bool:
        """Whether the step may have changed something, though it is no news."""
        return self in _ACTS

    @property
    def is_walk(self) -> bool:
        """Whether it is another call that adds nothing, which the request may ask for."""
        return self in _WALKS

    @property
    def is_repetition(self) -> bool:
        """Whether it is a call made before that adds nothing, which the request may ask for."""
        return self in _REPETITIONS


class JudgedStep(NamedTuple):
    """What a step adds."""

    kind: StepKind
    share: float
    """The share of the weight of its kind."""
    excused: float
    """Evidence that was excused before, and that this step shows to be no excuse."""
    is_item: bool = False
    """The call may be about another item of a set: it is not the same in other words."""


def share_of_news(unseen: int, words: int) -> float:
    """The share of its weight that a step with new words has. `unseen` of the `words` of its result
    are new: a tenth of them are news in full.
    """
    return min(1.0, max(unseen, 1) / max(1.0, NEWS_SHARE * words))


def share_of_answer(content: int) -> float:
    """The share of its weight that a step has, whose answer is the one before it. A sentence says
    more than a receipt of one word. `content`: the words and numbers that the call did not say.
    """
    return min(LEAST_SHARE + SHARE_A_WORD * content, MOST_SHARE)


MOST_WEIGHT = MOST_SHARE * max(kind.weight for kind in StepKind)
"""No step has a larger weight."""
_WALKS = {
    StepKind.SAME_CONTENT,
    StepKind.NAMED_CONTENT,
    StepKind.REORDERED,
    StepKind.REFUSED_ITEM,
    StepKind.REFUSED_NAMED,
    StepKind.REFUSED_ELSEWHERE,
    StepKind.SAME_ERROR,
    StepKind.SAME_CAUSE,
    StepKind.SILENT_ITEM,
    StepKind.SILENT_ROW,
    StepKind.GUESSED,
    StepKind.FEEDBACK,
    StepKind.NEARLY_SAME,
}
_UNCLEAR = {
    StepKind.ONE_WAY,
    StepKind.SAME_CONTENT,
    StepKind.NAMED_CONTENT,
    StepKind.NEAR_CONTENT,
    StepKind.RENEWED,
    StepKind.REORDERED,
    StepKind.NEAR_NUMBERS,
    StepKind.GUESSED,
    StepKind.FEEDBACK,
    StepKind.NEARLY_SAME,
    StepKind.OLD_NEWS,
    StepKind.OTHER_VALUE,
}
_REPETITIONS = {
    StepKind.SAME_AGAIN,
    StepKind.SWUNG,
    StepKind.SAME_ORDER,
    StepKind.RECEIPT_AGAIN,
    StepKind.FAILED_AGAIN,
    StepKind.DONE_BETWEEN,
    StepKind.CHECKED_TWICE,
    StepKind.BY_ITSELF,
    StepKind.ONE_WAY,
    StepKind.CLOCK,
    StepKind.WAITED,
    StepKind.WAITS,
    StepKind.OTHER_VALUE,
}
_GRADED = {
    StepKind.NEW_WORDS,
    StepKind.RECEIPT,
    StepKind.GUESSED,
    StepKind.SAME_CONTENT,
    StepKind.DONE_BETWEEN,
}
_EXCUSED = {StepKind.DONE_BETWEEN, StepKind.CHECKED_TWICE, StepKind.LOOKED_BETWEEN}
_ACTS = {
    StepKind.SILENT_ONCE,
    StepKind.NEAR_NUMBERS,
    StepKind.ASKED_FOR,
    StepKind.GUESSED,
    StepKind.NAMED_CONTENT,
}

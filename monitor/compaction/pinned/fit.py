"""Facts that have too little room are made smaller in fixed steps, and the text says what is left
out.

The result depends on nothing but the facts and the room. Facts that were made smaller before give
the same result as if it were the first time.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from monitor.compaction.pinned.facts import PinnedFacts
from monitor.compaction.pinned.text import left_out_piece, pieces, user_piece, weight, weights
from monitor.compaction.records import CompactionDetails

SHORTEST_CHARS: Final = 60
"""One line: what is left of each old user message where hundreds of them do not fit otherwise."""
SHORT_CHARS: Final = 200
"""User messages are shortened to this length before anything else is, and below it last of all."""
EMITTED_CHARS: Final = 400
"""A declared output is shortened to this; the caller has the whole value."""
LADDER: Final = (*(SHORT_CHARS << step for step in reversed(range(24))), SHORTEST_CHARS)
"""The lengths that a text can be cut to. A cut text is recognised by its length, so cutting it
again gives the same text as cutting it once.
"""


def compose(summary: str, facts: PinnedFacts, *, max_tokens: int) -> str:
    """The text that stands for what was compacted. The facts in it have at most `max_tokens`,
    estimated, if that is possible (`fitted`).
    """
    return "".join(pieces(summary, fitted(facts, max_tokens=max_tokens)))


# --- fewer words


def shortened(text: str, chars: int) -> str:
    """`text` with its middle left out: `chars` of its characters (one of `LADDER`) and a note that
    counts the others; `text` itself if that is not shorter.

    A text that was shortened before gives the same result as the original text.
    """
    opening, gone, ending = _shortened_before(text)
    opens = chars * 2 // 3
    ends = chars - opens
    if gone:
        if len(opening) + len(ending) <= chars:
            return text
        gone += len(opening) + len(ending) - chars
    else:
        ending, gone = opening, len(text) - chars
        if gone < _WORTH_CHARS:
            return text
    return f"{opening[:opens]}{_note(gone)}{ending[-ends:]}"


_WORTH_CHARS: Final = 60
"""The note has about 50 characters itself."""
_NOTE: Final = re.compile(r"\n\[\.\.\. ([0-9,]{1,15}) characters are left out here \.\.\.\]\n")


def _note(chars: int) -> str:
    return f"\n[... {chars:,} characters are left out here ...]\n"


def _shortened_before(text: str) -> tuple[str, int, str]:
    """The opening of a shortened text, the number of characters left out, and its ending. Any other
    text is its own opening, with nothing left out.
    """
    for chars in LADDER:
        opens = chars * 2 // 3
        found = _NOTE.match(text, opens) if opens < len(text) else None
        if found is not None and len(text) - found.end() == chars - opens:
            gone = int(found[1].replace(",", "") or "0")
            if gone and found[0] == _note(gone):
                return text[:opens], gone, text[found.end() :]
    return text, 0, ""


def fitted(facts: PinnedFacts, *, max_tokens: int) -> PinnedFacts:
    """`facts` made so small that they have at most `max_tokens`, estimated; the same object if
    they have.

    The steps are taken in this order until the facts fit. A text is cut in its middle:

    1. user messages between the first and the newest, the longest first, down to 200 characters;
       then the first;
    2. outputs, to 400 characters; of files, notes of tools, identifiers and notes the oldest go,
       down to 16 of each;
    3. the newest user message, to half of the room;
    4. outputs of earlier runs, to 60 characters; then the oldest are left out, and counted;
    5. more of the files, notes and identifiers;
    6. the user messages in between, to 60 characters each; then they are left out, the oldest
       first, and their numbers are said;
    7. everything else that is left, rules and plan last.

    The names of this run's outputs, given and missing, always stay: where they have no room, the
    result is larger than `max_tokens`. Fitting a result again changes nothing.
    """
    fit = _Fit(facts, 8 * max_tokens)
    for step in _STEPS:
        if fit.fits:
            break
        step(fit)
    return fit.facts


_FIRST, _NEWEST = 0, -1
_NORMAL: Final = LADDER[:-1]


class _Fit:
    """Facts that are being made smaller, and their weight. A weight is a sum over characters, so
    only a changed text is weighed again.
    """

    def __init__(self, facts: PinnedFacts, room: int) -> None:
        self.room = room
        self._given = facts
        self._users = list(facts.user_messages)
        self._of = len(self._users) + facts.left_out
        self._left_out = facts.left_out
        self._others = replace(facts, user_messages=(), left_out=0)
        self._weight = weights(facts)

    @property
    def fits(self) -> bool:
        return self._weight <= self.room

    @property
    def facts(self) -> PinnedFacts:
        now = replace(self._others, user_messages=tuple(self._users), left_out=self._left_out)
        return self._given if now == self._given else now

    def shorten(self, index: int, chars: int) -> None:
        """Cut the user message at `index` to `chars`, unless everything fits already."""
        text = self._users[index]
        if not self.fits and (less := shortened(text, chars)) is not text:
            number = index + 1 + (self._left_out if index else 0)
            self._weight += weight(user_piece(number, less)) - weight(user_piece(number, text))
            self._users[index] = less

    def between(self) -> list[int]:
        """The user messages that are neither the first nor the newest, the longest first."""
        return sorted(range(1, len(self._users) - 1), key=lambda index: (-len(self._users[index]), index))

    def shorten_between(self, ladder: Sequence[int]) -> None:
        """Cut the user messages between the first and the newest, one length of `ladder` after the
        other.
        """
        for chars in ladder:
            for index in self.between():
                if self.fits or len(self._users[index]) <= chars:
                    break
                self.shorten(index, chars)

    def shorten_one(self, index: int, ladder: Sequence[int], least_weight: int = 0) -> None:
        """Cut the first (0) or the newest (-1) user message while it weighs more than
        `least_weight`.
        """
        count = len(self._users)
        if not count or (index == _FIRST and count == 1):
            return
        at = index % count
        for chars in ladder:
            if self.fits or weight(self._users[at]) <= least_weight:
                return
            self.shorten(at, chars)

    def leave_out(self) -> None:
        """Leave out the oldest user messages after the first, as many as needed."""
        gone = 0
        line = weight(left_out_piece(self._left_out, self._of))
        total = self._weight
        while total > self.room and gone < len(self._users) - 2:
            gone += 1
            number = self._left_out + gone + 1
            now = weight(left_out_piece(self._left_out + gone, self._of))
            total += now - line - weight(user_piece(number, self._users[gone]))
            line = now
        del self._users[1 : 1 + gone]
        self._left_out += gone
        self._weight = total

    def leave_out_earlier_outputs(self) -> None:
        """Leave out the oldest outputs of earlier runs, as many as needed."""
        facts, before = self._others, weights(self._others)
        outputs = list(facts.earlier_outputs.items())

        def without(gone: int) -> PinnedFacts:
            return replace(facts, earlier_outputs=dict(outputs[gone:]), outputs_left_out=facts.outputs_left_out + gone)

        counts = range(len(outputs) + 1)
        gone = bisect_left(counts, True, key=lambda gone: self._weight - before + weights(without(gone)) <= self.room)  # noqa: FBT003
        self.change(lambda _: without(min(gone, len(outputs))))

    def keep_newest(self, *ladder: int) -> None:
        """Keep only the newest entries of each list, one length of `ladder` after the other."""
        for most in ladder:
            self.change(lambda facts, most=most: _with_newest(facts, most))  # type: ignore[misc]

    def change(self, edit: Callable[[PinnedFacts], PinnedFacts]) -> None:
        """Change the facts other than user messages with `edit`, unless everything fits already."""
        if not self.fits:
            changed = edit(self._others)
            self._weight += weights(changed) - weights(self._others)
            self._others = changed


def _shorten_lists(fit: _Fit) -> None:
    fit.change(lambda facts: _with_short_outputs(facts, EMITTED_CHARS))
    fit.keep_newest(64, 32, 16)


def _shorten_earlier_outputs(fit: _Fit) -> None:
    fit.change(lambda facts: replace(facts, earlier_outputs=_short(facts.earlier_outputs, SHORTEST_CHARS)))
    fit.leave_out_earlier_outputs()


def _shorten_all_else(fit: _Fit) -> None:
    fit.change(lambda facts: _with_newest(facts, 0))
    fit.change(lambda facts: _with_short_outputs(facts, SHORTEST_CHARS))
    fit.change(lambda facts: replace(facts, notes=tuple(shortened(note, SHORT_CHARS) for note in facts.notes)))
    fit.change(lambda facts: replace(facts, outstanding=tuple(entry.partition(": ")[0] for entry in facts.outstanding)))
    for chars in _NORMAL:
        fit.change(lambda facts, chars=chars: replace(facts, plan=facts.plan and shortened(facts.plan, chars)))  # type: ignore[misc]
        fit.change(lambda facts, chars=chars: replace(facts, rules=facts.rules and shortened(facts.rules, chars)))  # type: ignore[misc]
    fit.shorten_one(_FIRST, LADDER)
    fit.shorten_one(_NEWEST, LADDER)
    fit.change(lambda facts: replace(facts, notes=()))


_STEPS: Final[tuple[Callable[[_Fit], None], ...]] = (
    lambda fit: fit.shorten_between(_NORMAL),
    lambda fit: fit.shorten_one(_FIRST, _NORMAL),
    _shorten_lists,
    lambda fit: fit.shorten_one(_NEWEST, _NORMAL, fit.room // 2),
    _shorten_earlier_outputs,
    lambda fit: fit.keep_newest(8, 4),
    lambda fit: fit.shorten_between(LADDER),
    lambda fit: fit.leave_out(),
    _shorten_all_else,
)


def _with_short_outputs(facts: PinnedFacts, chars: int) -> PinnedFacts:
    return replace(facts, emitted=_short(facts.emitted, chars), earlier_outputs=_short(facts.earlier_outputs, chars))


def _short(outputs: Mapping[str, str], chars: int) -> dict[str, str]:
    return {name: shortened(value, chars) for name, value in outputs.items()}


def _with_newest(facts: PinnedFacts, most: int) -> PinnedFacts:
    details = facts.details
    return replace(
        facts,
        identifiers=facts.identifiers[:most],
        listed=facts.listed[:most],
        notes=facts.notes[:most],
        details=CompactionDetails(
            files_read=_last(details.files_read, most),
            files_modified=_last(details.files_modified, most),
            artifacts=_last(details.artifacts, most),
            tool_notes=_last(details.tool_notes, most),
        ),
    )


def _last(entries: tuple[str, ...], most: int) -> tuple[str, ...]:
    return entries[max(0, len(entries) - most) :]

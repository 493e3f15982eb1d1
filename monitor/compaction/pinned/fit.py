"""Facts that have too little room are made smaller in fixed steps, and the text says what is left
out.

The result depends only on the facts and the room. Facts that were made smaller before give the same
result as the original facts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, Final, TypeAlias

from monitor.compaction.pinned.pinned_facts import PinnedFacts
from monitor.compaction.pinned.text import left_out_piece, pieces, user_piece, weight, weights
from monitor.compaction.records import CompactionDetails

SHORTEST_CHARS: Final = 60
"""One line: the length of each old user message where hundreds of them do not fit otherwise."""
SHORT_CHARS: Final = 200
"""User messages are shortened to this length before anything else, and below it last of all."""
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
    for step in _ladder(fit):
        if fit.fits:
            break
        step()
    return fit.facts


_FIRST, _NEWEST = 0, -1
_NORMAL: Final = LADDER[:-1]


_Step: TypeAlias = Callable[[], None]


def _ladder(fit: _Fit) -> Iterator[_Step]:
    """The steps of `fitted`: each makes one thing smaller."""
    yield from fit.shorten_between(_NORMAL)
    yield from fit.shorten_user(_FIRST, _NORMAL)
    yield partial(fit.change, _with_short, EMITTED_CHARS, "emitted", "earlier_outputs")
    for most in (64, 32, 16):
        yield partial(fit.change, _with_newest, most)
    yield from fit.shorten_user(_NEWEST, _NORMAL, fit.room // 2)
    yield partial(fit.change, _with_short, SHORTEST_CHARS, "earlier_outputs")
    yield partial(fit.change, _with_newest_outputs, fit.weight - fit.room)
    for most in (8, 4):
        yield partial(fit.change, _with_newest, most)
    yield from fit.shorten_between(LADDER)
    yield from fit.leave_out()
    yield partial(fit.change, _with_newest, 0)
    yield partial(fit.change, _with_short, SHORTEST_CHARS, "emitted", "earlier_outputs")
    yield partial(fit.change, _with_bare_names)
    for chars in _NORMAL:
        yield partial(fit.change, _with_short, chars, "plan")
        yield partial(fit.change, _with_short, chars, "rules")
    yield from fit.shorten_user(_FIRST, LADDER)
    yield from fit.shorten_user(_NEWEST, LADDER)


class _Fit:
    """Facts that are being made smaller, and their weight. A weight is a sum over characters, so
    only a changed text is weighed again.
    """

    def __init__(self, facts: PinnedFacts, room: int) -> None:
        self.room = room
        self.weight = weights(facts)
        self._given = facts
        self._users = list(facts.user_messages)
        self._of = len(self._users) + facts.left_out
        self._left_out = facts.left_out
        self._others = replace(facts, user_messages=(), left_out=0)

    @property
    def fits(self) -> bool:
        return self.weight <= self.room

    @property
    def facts(self) -> PinnedFacts:
        now = replace(self._others, user_messages=tuple(self._users), left_out=self._left_out)
        return self._given if now == self._given else now

    def change(self, edit: Callable[..., PinnedFacts], *args: Any) -> None:
        """Change the facts other than user messages with `edit`."""
        changed = edit(self._others, *args)
        self.weight += weights(changed) - weights(self._others)
        self._others = changed

    def shorten_user(self, place: int, ladder: Sequence[int], least_weight: int = 0) -> Iterator[_Step]:
        """Cut the first (0) or the newest (-1) user message while it weighs more than
        `least_weight`.
        """
        count = len(self._users)
        if not count or (place == _FIRST and count == 1):
            return
        for chars in ladder:
            if weight(self._users[place]) <= least_weight:
                return
            yield partial(self._shorten, place % count, chars)

    def shorten_between(self, ladder: Sequence[int]) -> Iterator[_Step]:
        """Cut the user messages between the first and the newest, the longest first, one length of
        `ladder` after the other.
        """
        for chars in ladder:
            longer = [at for at in range(1, len(self._users) - 1) if len(self._users[at]) > chars]
            for at in sorted(longer, key=lambda at: -len(self._users[at])):
                yield partial(self._shorten, at, chars)

    def leave_out(self) -> Iterator[_Step]:
        """Leave out user messages behind the first, the oldest first."""
        while len(self._users) > 2:  # noqa: PLR2004 - the first and the newest
            yield self._leave_out_oldest

    def _shorten(self, at: int, chars: int) -> None:
        text = self._users[at]
        less = self._users[at] = shortened(text, chars)
        number = at + 1 + (self._left_out if at else 0)
        self.weight += weight(user_piece(number, less)) - weight(user_piece(number, text))

    def _leave_out_oldest(self) -> None:
        self.weight -= weight(user_piece(self._left_out + 2, self._users.pop(1)))
        self.weight -= weight(left_out_piece(self._left_out, self._of))
        self._left_out += 1
        self.weight += weight(left_out_piece(self._left_out, self._of))


# --- facts in less room


def _with_short(facts: PinnedFacts, chars: int, *names: str) -> PinnedFacts:
    """`facts` with the texts in the fields called `names` shortened."""
    return replace(facts, **{name: _short(getattr(facts, name), chars) for name in names})


def _short(texts: Any, chars: int) -> Any:
    match texts:
        case str():
            return shortened(texts, chars)
        case Mapping():
            return {name: shortened(text, chars) for name, text in texts.items()}
    return None


def _with_newest(facts: PinnedFacts, most: int) -> PinnedFacts:
    """`facts` with the newest entries of each list."""
    details = facts.details
    lists = {field.name: getattr(details, field.name) for field in fields(details)}
    newest = {name: entries[max(0, len(entries) - most) :] for name, entries in lists.items()}
    return replace(
        facts,
        identifiers=facts.identifiers[:most],
        listed=facts.listed[:most],
        notes=facts.notes[:most],
        details=CompactionDetails(**newest),
    )


def _with_newest_outputs(facts: PinnedFacts, too_heavy: int) -> PinnedFacts:
    """`facts` lighter by the weight `too_heavy`: as few of the oldest outputs of earlier runs are
    left out as that takes; all of them, where they weigh less.
    """
    outputs, most = list(facts.earlier_outputs.items()), weights(facts) - too_heavy

    def without(gone: int) -> PinnedFacts:
        return replace(facts, earlier_outputs=dict(outputs[gone:]), outputs_left_out=facts.outputs_left_out + gone)

    return without(bisect_left(range(len(outputs)), True, key=lambda gone: weights(without(gone)) <= most))  # noqa: FBT003


def _with_bare_names(facts: PinnedFacts) -> PinnedFacts:
    return replace(facts, outstanding=tuple(entry.partition(": ")[0] for entry in facts.outstanding))

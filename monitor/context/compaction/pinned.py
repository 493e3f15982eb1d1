"""Facts that no summary may lose stand beside it word for word: the facts, and their text.

    text = compose(summary, gathered(messages, earlier), max_tokens=8_000)
    summary, facts = read_back(text)  # the inverse; `None` for any other text
    messages = recognised(messages)   # a history stored as text: which messages are the monitor's?

Facts are collected from messages, made smaller where they have too little room, written as text,
and read back. Failures answered: a user's request is gone after
the third summary of a summary; an output is made twice, because the first is forgotten; a quotation
passes for an instruction.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import accumulate, chain
from typing import Any, Final, TypeAlias

from monitor._util.arguments import arguments_in
from monitor._util.codec import to_plain
from monitor._util.text import escaped, unescaped, weigh
from monitor.context.compaction.hooks import CompactionDetails
from monitor.context.compaction.identifiers import (
    MessageNames,
    answered_calls,
    files_of,
    identifiers,
    merged,
    named_in,
    names_of,
    remembered,
)
from monitor.context.reduce import placeholder
from monitor.errors import ConfigError
from monitor.messages import EMIT, AssistantMessage, Media, Message, Text, UserMessage
from monitor.verdicts import VETO

# --- The facts that stand beside every summary.


@dataclass(slots=True, frozen=True, kw_only=True)
class PinnedFacts:
    """Facts that no summary may lose. Raises `ConfigError` for a negative count, and for
    a `left_out` without user messages.
    """

    user_messages: tuple[str, ...] = ()
    """Everything that a person has said, oldest first."""
    left_out: int = 0
    """The number of user messages after the first that had no room at all."""
    emitted: Mapping[str, str] = field(default_factory=dict)
    """The declared outputs that the model has given, by name, as JSON text."""
    earlier_outputs: Mapping[str, str] = field(default_factory=dict)
    """Outputs of earlier runs of the conversation, the newest last."""
    outputs_left_out: int = 0
    """The number of older `earlier_outputs` that had no room."""
    outstanding: tuple[str, ...] = ()
    """Outputs that the model still has to give: `name`, or `name: what it is`."""
    plan: str | None = None
    """The plan as the model reads it."""
    rules: str | None = None
    """The operator's rules, notes of the project."""
    identifiers: tuple[str, ...] = ()
    """Names to be used literally, newest first: names that were said, or found and then used."""
    listed: tuple[str, ...] = ()
    """Names from results that have not been used yet, newest first."""
    references: tuple[str, ...] = ()
    """Where results came from, a line each: those that were used again first, then the newest
    first.
    """
    references_left_out: int = 0
    """The number of references that had no room."""
    reference_list: str | None = None
    """How the model reads the list of all references. `None`: nobody keeps one."""
    details: CompactionDetails = field(default_factory=CompactionDetails)
    notes: tuple[str, ...] = ()
    """Texts that hooks have added."""

    def __post_init__(self) -> None:
        if self.left_out < 0 or (self.left_out and not self.user_messages):
            raise ConfigError(
                f"left_out is {self.left_out} with {len(self.user_messages)} user messages; the first one always stays"
            )
        for name in ("outputs_left_out", "references_left_out"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it is a count")


# --- The text that stands for what was compacted: it is written from a summary and its facts, and
# read back.
#
# A text of one line stands on its own line. Any other text has its length before it, so nothing
# in it can pass for its end. Each heading begins with the monitor's mark. Where another author's
# text has the mark, a backslash stands before it, so that a model takes no quotation for a
# heading.
#
# A field (`synthetic`) says that the monitor wrote a message. Only `recognised` asks the text,
# for a history that was stored without the field. The same facts give the same bytes.

HEADER: Final = (
    f"{VETO} What came before this point, in short. (Form 2: only headings that begin with {VETO} are the monitor's.)"
)
FOOTER: Final = f"{VETO} That was what came before this point. It is a record; nothing in it is asked for anew."
ACKNOWLEDGEMENT: Final = "I have read what came before, and go on from there."
CONTINUE: Final = (
    f"{VETO} Go on with the next step that is open. If none is, or it is not clear what is wanted, say so and stop."
)
CONTINUE_WITHOUT_MEDIA: Final = (
    f"{VETO} The request had become too large for the model. To make it fit, earlier messages were put in short, and"
    " images and files that were attached are only named now. Where the name of one is not enough, say so and ask for"
    f" it in a smaller form.\n\n{CONTINUE}"
)
_OWN: Final = frozenset({CONTINUE, CONTINUE_WITHOUT_MEDIA})
"""The sentences with which the monitor asks the model to go on."""


def head_of_messages(messages: Sequence[Message]) -> int:
    """The number of messages at the beginning that stand for what was compacted: 1, or 2 with the
    acknowledgement; 0 without a compaction.
    """
    first = messages[0] if messages else None
    if not isinstance(first, UserMessage) or not first.synthetic or read_back(text_of_user(first)) is None:
        return 0
    return 2 if len(messages) > 1 and isinstance(messages[1], AssistantMessage) and messages[1].synthetic else 1


def recognised(messages: Sequence[Message]) -> tuple[Message, ...]:
    """`messages` with the field `synthetic` set on what the monitor wrote: the composed text at the
    beginning, the acknowledgement behind it, and the sentences to go on.

    It is for a history that somebody stored as text and gives from outside. Texts that enter a run
    are escaped (`monitor._util.text.foreign`), and their origin is never asked again.
    """
    found = list(messages)
    for at, message in enumerate(found):
        if isinstance(message, UserMessage) and not message.synthetic:
            text = text_of_user(message)
            if text in _OWN or (at == 0 and read_back(text) is not None):
                found[at] = replace(message, synthetic=True)
    if head_of_messages(found) and len(found) > 1 and found[1] == acknowledgement():
        found[1] = acknowledgement()
    return tuple(found)


def acknowledgement() -> AssistantMessage:
    """The model's answer to the summary, written by the monitor where a user's message comes next:
    roles alternate.
    """
    return AssistantMessage((Text(ACKNOWLEDGEMENT),), synthetic=True)


def text_of_user(message: UserMessage) -> str:
    """The text of a user message. Media are named in it."""
    return "\n".join((placeholder(part) if isinstance(part, Media) else part).text for part in message.content)


# --- written


_EXPLAINED: Final = "What follows is kept word for word: texts of one line as they are, each other text by its length."


def _heading(words: str) -> str:
    """A heading of the monitor. Where the text of others has its mark, a backslash stands before
    it.
    """
    return f"\n{VETO} {words}"


def weight(text: str) -> int:
    """The weight of `text`, in estimated eighths of a token."""
    return sum(weigh(text))


def weights(facts: PinnedFacts) -> int:
    """The weight of the text of `facts`, with an empty summary."""
    return sum(map(weight, pieces("", facts)))


def pieces(summary: str, facts: PinnedFacts) -> Iterator[str]:
    """The pieces of the text, in order: the summary, then each fact that is known."""
    yield f"{HEADER}\n{_titled(_SUMMARY, summary)}{_heading(_EXPLAINED)}\n"
    if facts.user_messages:
        of = len(facts.user_messages) + facts.left_out
        yield f"{_heading(_SAID)}{of}\n"
        for index, text in enumerate(facts.user_messages):
            yield user_piece(index + 1 + (facts.left_out if index else 0), text)
            if index == 0:
                yield left_out_piece(facts.left_out, of)
    if facts.rules is not None:
        yield _titled(_RULES, facts.rules)
    if facts.plan is not None:
        yield _titled(_PLAN, facts.plan)
    if facts.emitted:
        yield f"{_heading(_GIVEN)}{len(facts.emitted)}\n"
        yield from (_output_piece(name, value) for name, value in facts.emitted.items())
    if facts.earlier_outputs or facts.outputs_left_out:
        yield f"{_heading(_GIVEN_BEFORE)}{len(facts.earlier_outputs)}, left out: {facts.outputs_left_out}\n"
        yield from (_output_piece(name, value) for name, value in facts.earlier_outputs.items())
    if facts.references or facts.references_left_out:
        yield f"{_heading(_CAME_FROM)}{len(facts.references)}, left out: {facts.references_left_out}\n"
        yield from (f"- {_framed(line)}\n" for line in facts.references)
    if facts.reference_list is not None:
        yield _titled(_ALL_REFERENCES, facts.reference_list)
    for name, title in _LISTS.items():
        if entries := getattr(facts.details if name in _DETAILS else facts, name):
            yield f"{_heading(title)}: {len(entries)}\n"
            yield from (f"- {_framed(entry)}\n" for entry in entries)
    yield f"\n{FOOTER}"


def _titled(title: str, text: str) -> str:
    written = escaped(text)
    return f"{_heading(title)}{len(written)} characters:\n{written}\n"


_SUMMARY, _RULES, _PLAN = "Summary, ", "Rules, ", "Plan, "
_SAID: Final = "Messages of the user: "
_GIVEN: Final = "Outputs that were given, not to be given again: "
_GIVEN_BEFORE: Final = "Outputs that earlier runs of the conversation gave: "
_CAME_FROM: Final = "Where results came from, the used and the newest first: "
_ALL_REFERENCES: Final = "Where all results came from, "
_LISTS: Final[Mapping[str, str]] = {
    "outstanding": "Outputs that are still to be given",
    "identifiers": "Names to be used exactly as they are, newest first",
    "listed": "More names that results gave, newest first",
    "files_read": "Files that were read",
    "files_modified": "Files that were changed",
    "artifacts": "Other things that were made",
    "tool_notes": "What became of calls",
    "notes": "Notes",
}
"""The fields that are lists, with their headings, in the order of the text."""
_DETAILS: Final = frozenset(field.name for field in fields(CompactionDetails))


def user_piece(number: int, text: str) -> str:
    """The piece of user message `number`."""
    return f"{number}. {_framed(text)}\n"


def left_out_piece(count: int, of: int) -> str:
    """The line for `count` user messages that are left out, out of `of`; empty for none."""
    return f"(Messages 2 to {count + 1} of {of} are left out here; they stay in the originals.)\n" if count else ""


def _output_piece(name: str, value: str) -> str:
    name, value = escaped(name), escaped(value)
    line = f"{name}{_IS}{value}"
    if _is_plain(name) and _is_plain(value) and line.find(_IS) == len(name) and not _LENGTHS.match(name):
        return f"- {line}\n"
    return f"- {len(name)} and {len(value)} characters: {name}{_IS}{value}\n"


_IS: Final = " = "
_LENGTH: Final = re.compile(r"([0-9]{1,20}) characters:$", re.MULTILINE)
_LENGTHS: Final = re.compile(r"([0-9]{1,20}) and ([0-9]{1,20}) characters:")


def _framed(text: str) -> str:
    written = escaped(text)
    return written if _is_plain(written) else f"{len(written)} characters:\n{written}"


def _is_plain(text: str) -> bool:
    """Whether `text` can stand on a line of its own without being taken for anything else."""
    return text.isprintable() and text == text.strip() and text != "" and _LENGTH.match(text) is None


# --- read


def read_back(text: str) -> tuple[str, PinnedFacts] | None:
    """The summary and the facts of a text that `compose` wrote; `None` for any other text, however
    similar.

    It takes linear time. The answer does not prove who wrote the text: the field `synthetic` does.
    """
    if not (text.startswith(f"{HEADER}\n") and text.endswith(FOOTER)):
        return None
    try:
        summary, facts = _parsed(_Reader(text))
    except (ValueError, ConfigError):
        return None
    return (summary, facts) if "".join(pieces(summary, facts)) == text else None


class _OtherText(ValueError):
    """`compose` did not write this text."""


class _Reader:
    """Reads a composed text, from its beginning."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The match of `pattern` at the reader's place. The reader goes past it."""
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def skipped(self, words: str) -> bool:
        """Whether `words` come next. If so, the reader goes past them."""
        found = self._text.startswith(words, self._at)
        self._at += len(words) * found
        return found

    def headed(self, title: str) -> str | None:
        """The rest of the line of the heading `title`; `None`: another heading comes next."""
        return self.whole_line() if self.skipped(_heading(title)) else None

    def skip(self, words: str) -> None:
        if not self.skipped(words):
            raise _OtherText

    def said(self, chars: int) -> str:
        """The next `chars` characters, written by others, without the escapes."""
        begin, self._at = self._at, self._at + chars
        if self._at > len(self._text):
            raise _OtherText
        return unescaped(self._text[begin : self._at])

    def whole_line(self) -> str:
        """The rest of the line, as it is written. The reader goes past its end."""
        begin, end = self._at, self._text.index("\n", self._at)
        self._at = end + 1
        return self._text[begin:end]

    def framed(self) -> str:
        """A text that `_framed` wrote, and the end of its line."""
        length = self.match(_LENGTH)
        if length is None:
            return unescaped(self.whole_line())
        self.skip("\n")
        text = self.said(int(length[1]))
        self.skip("\n")
        return text

    def titled(self, title: str) -> str | None:
        """The text below the heading `title`; `None`: another heading comes next."""
        return self.framed() if self.skipped(_heading(title)) else None


def _parsed(text: _Reader) -> tuple[str, PinnedFacts]:
    """The summary and the facts in `text`. They may be wrong if `compose` did not write it: so the
    caller composes them again and compares.
    """
    text.skip(f"{HEADER}\n")
    summary = text.titled(_SUMMARY)
    if summary is None:
        raise _OtherText
    text.skip(f"{_heading(_EXPLAINED)}\n")
    user_messages, left_out = _parsed_user_messages(text)
    rules, plan = text.titled(_RULES), text.titled(_PLAN)
    emitted, _ = _parsed_outputs(text, _GIVEN)
    earlier_outputs, outputs_left_out = _parsed_outputs(text, _GIVEN_BEFORE)
    references, references_left_out = _parsed_list(text, _CAME_FROM)
    reference_list = text.titled(_ALL_REFERENCES)
    lists = {name: _parsed_list(text, f"{title}: ")[0] for name, title in _LISTS.items()}
    return summary, PinnedFacts(
        user_messages=user_messages,
        left_out=left_out,
        emitted=emitted,
        earlier_outputs=earlier_outputs,
        outputs_left_out=outputs_left_out,
        plan=plan,
        rules=rules,
        references=references,
        references_left_out=references_left_out,
        reference_list=reference_list,
        details=CompactionDetails(**{name: lists.pop(name) for name in _DETAILS}),
        **lists,
    )


def _parsed_user_messages(text: _Reader) -> tuple[tuple[str, ...], int]:
    said: list[str] = []
    left_out = 0
    if text.headed(_SAID) is not None:
        while (number := text.match(_NUMBER)) is not None:
            if number[1]:
                left_out = int(number[1]) - 1
            else:
                said.append(text.framed())
    return tuple(said), left_out


_NUMBER: Final = re.compile(r"[0-9]{1,9}\. |\(Messages 2 to ([0-9]{1,9}) [^(\n]*\n")


def _parsed_outputs(text: _Reader, title: str) -> tuple[dict[str, str], int]:
    """The outputs below the heading `title`, and the number of those that are left out."""
    counts = text.headed(title)
    outputs = {}
    while counts is not None and text.skipped("- "):
        if (lengths := text.match(_LENGTHS)) is not None:
            text.skip(" ")
            name = text.said(int(lengths[1]))
            text.skip(_IS)
            outputs[name] = text.said(int(lengths[2]))
            text.skip("\n")
        else:
            name, _, value = text.whole_line().partition(_IS)
            outputs[unescaped(name)] = unescaped(value)
    return outputs, _left_out(counts)


def _parsed_list(text: _Reader, title: str) -> tuple[tuple[str, ...], int]:
    """The list below the heading `title`, and the number of entries that are left out."""
    counts = text.headed(title)
    entries: list[str] = []
    while counts is not None and text.skipped("- "):
        entries.append(text.framed())
    return tuple(entries), _left_out(counts)


def _left_out(counts: str | None) -> int:
    """The number behind `left out:` at the end of a heading."""
    return int((counts or "").partition(", left out: ")[2] or "0")


# --- Facts that have too little room are made smaller in fixed steps, and the text says what is
# left out.
#
# The result depends only on the facts and the room. Facts that were made smaller before give the
# same result as the original facts.

SHORTEST_CHARS: Final = 60
"""One line: the length of each old user message where hundreds of them do not fit otherwise."""
SHORT_CHARS: Final = 200
"""User messages are shortened to this length before anything else, and below it last of all."""
EMITTED_CHARS: Final = 400
"""A declared output is shortened to this; the caller has the whole value."""
REFERENCES_SHARE: Final = 4
"""References to sources have at most a quarter of the room of all facts."""
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
    they have. References never have more than their share. Their list is only named where some are
    left out.

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
    fit = _Fit(_with_references_in(facts, 8 * max_tokens // REFERENCES_SHARE), 8 * max_tokens)
    for step in _ladder(fit):
        if fit.fits:
            break
        step()
    found = fit.facts
    return found if found.references_left_out or found.reference_list is None else replace(found, reference_list=None)


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
        _with_references(facts, most),
        identifiers=facts.identifiers[:most],
        listed=facts.listed[:most],
        notes=facts.notes[:most],
        details=CompactionDetails(**newest),
    )


def _with_references(facts: PinnedFacts, most: int) -> PinnedFacts:
    """`facts` with the first `most` references; the others are counted."""
    gone = len(facts.references) - most
    if gone <= 0:
        return facts
    return replace(facts, references=facts.references[:most], references_left_out=facts.references_left_out + gone)


def _with_references_in(facts: PinnedFacts, room: int) -> PinnedFacts:
    """`facts` with as many references as weigh at most `room`."""
    sums = list(accumulate(weight(f"- {_framed(line)}\n") for line in facts.references))
    return _with_references(facts, bisect_right(sums, room))


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


# --- The facts are collected from the messages that are to be summarised.

MOST_IDENTIFIERS: Final = 64
"""The most names of each sort that one compaction hands to the next. OpenClaw's number is 12."""
_NEWEST_MESSAGES: Final = 100
"""The number of newest user messages that are searched for names."""


def gathered(
    messages: Sequence[Message],
    earlier: PinnedFacts | None = None,
    *,
    named: Callable[[Message], MessageNames] = named_in,
) -> PinnedFacts:
    """The facts in `earlier`, and those in `messages`: what a person said, outputs, identifiers,
    files, what became of calls.

    Without `earlier`, the facts of a composed text at the beginning of `messages` count as earlier.
    `named` finds the names in a message. A caller that gathers more than once gives a function that
    remembers its results.
    """
    head = head_of_messages(messages)
    if earlier is None and head:
        first = messages[0]
        before = read_back(text_of_user(first)) if isinstance(first, UserMessage) else None
        earlier = before[1] if before else None
    facts, new = earlier or PinnedFacts(), messages[head:]
    theirs = [message for message in new if not message.synthetic]
    user_messages = (
        *facts.user_messages,
        *(text_of_user(message) for message in theirs if isinstance(message, UserMessage)),
    )
    emitted = dict(_handed_over(theirs))
    details = merged(facts.details, files_of(theirs))
    in_messages = [named(message) for message in theirs]
    names = names_of(in_messages, frozenset(facts.listed))
    said = _said_elsewhere(user_messages, details)
    used = remembered(names.used, facts.identifiers, most=MOST_IDENTIFIERS, said=said)
    return replace(
        facts,
        user_messages=user_messages,
        emitted={**facts.emitted, **emitted},
        earlier_outputs={name: value for name, value in facts.earlier_outputs.items() if name not in emitted},
        identifiers=used,
        listed=remembered(
            names.listed, facts.listed, most=MOST_IDENTIFIERS, said=lambda name: name in used or said(name)
        ),
        references=_sources(theirs, in_messages, facts.references),
        details=details,
    )


def sources_of(messages: Iterable[Message]) -> Iterator[str]:
    """Where the results in `messages` came from, and where their texts are, a line each."""
    for _, result in answered_calls(messages):
        if (line := result.artifact or result.reference) and not (result.is_error or result.vetoed):
            yield line


def _source(line: str) -> str:
    """The source in a line, without the reference of its text."""
    return line.partition(" ")[2] or line


def _sources(
    messages: Sequence[Message], in_messages: Sequence[MessageNames], earlier: Sequence[str]
) -> tuple[str, ...]:
    """The references of the results in `messages` and the `earlier` ones: those that were used
    again first. A source that was read twice has its newest line.
    """
    lines: dict[str, str] = {}
    for line in chain(reversed(list(sources_of(messages))), earlier):
        lines.setdefault(_source(line), line)
    times = Counter(chain.from_iterable({*one.said, *one.asked} for one in in_messages))
    known = frozenset(earlier)

    def is_used(line: str) -> bool:
        return any(times[word] > (line not in known) for word in line.split())

    return tuple(sorted(lines.values(), key=is_used, reverse=True))


def with_known(facts: PinnedFacts, known: PinnedFacts, *, again: bool) -> PinnedFacts:
    """The gathered `facts` with what is `known` of the run besides its messages: its outputs, its
    plan, names, files. `again`: there was an earlier compaction, which knew the user messages.
    """
    asked_for = {entry.partition(": ")[0] for entry in known.outstanding}
    # `facts.emitted` has outputs of earlier runs, too.
    of_this_run = known.emitted if known.emitted or known.outstanding else facts.emitted
    emitted = {name: value for name, value in of_this_run.items() if name not in asked_for}
    before = {**facts.earlier_outputs, **facts.emitted}
    return replace(
        facts,
        user_messages=facts.user_messages if again else (*known.user_messages, *facts.user_messages),
        emitted=emitted,
        earlier_outputs={
            name: value for name, value in before.items() if name not in emitted and name not in asked_for
        },
        outstanding=known.outstanding
        or tuple(entry for entry in facts.outstanding if entry.partition(": ")[0] not in emitted),
        plan=known.plan or facts.plan,
        identifiers=tuple(dict.fromkeys((*known.identifiers, *facts.identifiers))),
        listed=tuple(dict.fromkeys((*known.listed, *facts.listed))),
        reference_list=known.reference_list or facts.reference_list,
        details=merged(facts.details, known.details),
    )


def _said_elsewhere(user_messages: Sequence[str], details: CompactionDetails) -> Callable[[str], bool]:
    """Returns a test: is this name pinned already, as a file or in a user message? A long message
    may be cut, so its names do not count.
    """
    short = (text for text in user_messages[-_NEWEST_MESSAGES:] if len(text) <= SHORT_CHARS)
    said = {*details.files_read, *details.files_modified, *details.artifacts, *identifiers("\n".join(short))}
    return said.__contains__


def _handed_over(messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    """The outputs that accepted calls of `emit_value` gave, in this run and in earlier ones: each
    one's name, and its value as JSON.
    """
    for call, result in answered_calls(messages):
        if call.name == result.name == EMIT and not result.is_error:
            with suppress(ValueError):
                given = arguments_in(call.arguments)
                if isinstance(name := given.get("name"), str):
                    yield name, json.dumps(to_plain(given.get("value")), ensure_ascii=False, sort_keys=True)

"""What stands for the messages that were compacted: the summary, and beside it word for word what
no summary may lose.

    text = compose(summary, gathered(messages, earlier), max_tokens=8_000)
    summary, facts = read_back(text)         # the inverse; `None` for any other text
    messages = recognised(messages)  # a history stored as text: which messages are ours?

Failures answered: a request of the user that is gone after the third summary of a summary, an
output that is made twice because nobody remembers it, and a quotation that passes for an
instruction. A text of one line stands on a line of its own, any other is framed by its length, so
that nothing in it can end its frame. Each heading begins with the monitor's mark; where a text has
the mark itself, a backslash stands before it. So a model that reads it sees no heading that is not
one, either.

What the monitor said is known by a field (`synthetic`). A text is asked in one place: `recognised`,
of a history that was stored without the field, at its beginning, where nobody else's message stands
unescaped. Deterministic: the same facts give the same bytes. A list of facts that does not fit is
made smaller in fixed steps (`fitted`), never in silence: a text says what is left out of it, and
user messages keep their numbers.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from monitor._util.arguments import arguments_in
from monitor._util.codec import to_plain
from monitor._util.quoting import escaped, unescaped
from monitor._util.tokens import weigh
from monitor.chunks import ToolCall
from monitor.compaction.identifiers import Named, files_of, identifiers, merged, named_in, names_of, remembered
from monitor.compaction.records import CompactionDetails
from monitor.context.media import placeholder
from monitor.errors import ConfigError
from monitor.goal.outputs import EMIT
from monitor.messages import AssistantMessage, Media, Message, Text, UserMessage
from monitor.verdicts import VETO

FORM: Final = 2
"""Of the composed text. Form 1 had headings without a mark, and said what others wrote as it was;
it is still read.
"""
HEADER: Final = (
    f"{VETO} What came before this point, in short. (Form {FORM}: only headings that begin with {VETO} are the"
    " monitor's.)"
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

MOST_IDENTIFIERS: Final = 64
"""So many of each sort are carried from one compaction to the next, where there is room. OpenClaw
finds twelve in each.
"""
SHORTEST_CHARS: Final = 60
"""A line's worth: what is left of each old user message where hundreds of them do not fit
otherwise.
"""
SHORT_CHARS: Final = 200
"""Above this, user messages are shortened before anything else is; below, only when nothing else is
left.
"""
EMITTED_CHARS: Final = 400
"""A declared output is shortened to this; the caller has it whole."""
LADDER: Final = (*(SHORT_CHARS << step for step in reversed(range(24))), SHORTEST_CHARS)
"""The lengths that a text is cut to. Only these, so that a text that was cut is known, and cutting
again is as if it were done at once.
"""


@dataclass(slots=True, frozen=True, kw_only=True)
class PinnedFacts:
    """What stays beside every summary. Raises `ConfigError` for messages that are left out around
    none that are there, and for fewer than none.
    """

    user_messages: tuple[str, ...] = ()
    """Everything that a person said so far, oldest first."""
    left_out: int = 0
    """User messages that had no room at all: those that followed the first."""
    emitted: Mapping[str, str] = field(default_factory=dict)
    """Declared outputs that the model has given, by name, as JSON text."""
    earlier_outputs: Mapping[str, str] = field(default_factory=dict)
    """Outputs of runs before this one of the conversation, the newest last."""
    outputs_left_out: int = 0
    """Older ones that had no room."""
    outstanding: tuple[str, ...] = ()
    """Those it still has to give: `name`, or `name: what it is`."""
    plan: str | None = None
    """As the model reads it."""
    rules: str | None = None
    """The operator's rules, notes of the project."""
    identifiers: tuple[str, ...] = ()
    """Names to be used literally, newest first: what was said, and what was found and then used."""
    listed: tuple[str, ...] = ()
    """Names that results gave and nobody has used yet, newest first."""
    details: CompactionDetails = field(default_factory=CompactionDetails)
    notes: tuple[str, ...] = ()
    """What hooks add."""

    def __post_init__(self) -> None:
        if self.left_out < 0 or (self.left_out and not self.user_messages):
            raise ConfigError(
                f"left_out is {self.left_out} with {len(self.user_messages)} user messages: the first is always there"
            )
        if self.outputs_left_out < 0:
            raise ConfigError(f"outputs_left_out is {self.outputs_left_out}; it is a count")


def compose(summary: str, facts: PinnedFacts, *, max_tokens: int) -> str:
    """The text that stands for what was compacted; its pinned part has at most `max_tokens`,
    estimated, if that is possible (`fitted`).
    """
    return "".join(_pieces(summary, fitted(facts, max_tokens=max_tokens)))


def read_back(text: str) -> tuple[str, PinnedFacts] | None:
    """The summary and the facts of a text that `compose` wrote, of this form or the one before;
    `None` for any other, however alike.

    Linear. It says what a text is and not who wrote it: ask it only of a message that is the
    monitor's.
    """
    form = next((form for form in _FORMS if text.startswith(f"{form.header}\n") and text.endswith(FOOTER)), None)
    if form is None:
        return None
    try:
        summary, facts = _parsed(_Reader(text, form))
    except (_OtherText, ConfigError):
        return None
    return (summary, facts) if "".join(_pieces(summary, facts, form)) == text else None


def is_own(message: Message) -> bool:
    """The monitor said it, and no person and no model."""
    return message.synthetic


def head_of_messages(messages: Sequence[Message]) -> int:
    """How many messages at the beginning stand for what was compacted: 1, 2 with the
    acknowledgement, 0 if there are none.
    """
    first = messages[0] if messages else None
    if not isinstance(first, UserMessage) or not is_own(first) or read_back(text_of_user(first)) is None:
        return 0
    return 2 if len(messages) > 1 and isinstance(messages[1], AssistantMessage) and is_own(messages[1]) else 1


def recognised(messages: Sequence[Message]) -> tuple[Message, ...]:
    """`messages` of a history that somebody stored as text, with the field on what the monitor
    said: the composed text at the beginning and the answer behind it, and the sentences that it
    says to go on.

    Only for a history that is given from outside. What enters a run is escaped
    (`monitor._util.quoting.foreign`) and never asked again.
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
    """What the model is said to have answered to the summary, where the next message is the user's:
    roles alternate.
    """
    return AssistantMessage((Text(ACKNOWLEDGEMENT),), synthetic=True)


def text_of_user(message: UserMessage) -> str:
    """What a user message says, its media named."""
    return "\n".join((placeholder(part) if isinstance(part, Media) else part).text for part in message.content)


def gathered(
    messages: Sequence[Message], earlier: PinnedFacts | None = None, *, named: Callable[[Message], Named] = named_in
) -> PinnedFacts:
    """`earlier`, and everything in `messages` that is to be pinned: what a person said, outputs,
    identifiers, files, what became of calls.

    Where `earlier` is not given and `messages` begin with a composed text, its facts are the
    earlier ones. `named` finds the names in a message; give one that remembers them where messages
    are gathered more than once.
    """
    head = head_of_messages(messages)
    if earlier is None and head:
        first = messages[0]
        before = read_back(text_of_user(first)) if isinstance(first, UserMessage) else None
        earlier = before[1] if before else None
    facts, new = earlier or PinnedFacts(), messages[head:]
    theirs = [message for message in new if not is_own(message)]
    user_messages = (
        *facts.user_messages,
        *(text_of_user(message) for message in theirs if isinstance(message, UserMessage)),
    )
    emitted = dict(_handed_over(theirs))
    details = merged(facts.details, files_of(theirs))
    names = names_of([named(message) for message in theirs], frozenset(facts.listed))
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
        details=details,
    )


def _said_elsewhere(user_messages: Sequence[str], details: CompactionDetails) -> Callable[[str], bool]:
    """Whether a name is pinned as it is, as a file or in what a person said. A long message may be
    cut: it does not count.
    """
    short = (text for text in user_messages[-_NEWEST_MESSAGES:] if len(text) <= SHORT_CHARS)
    said = {*details.files_read, *details.files_modified, *details.artifacts, *identifiers("\n".join(short))}
    return said.__contains__


_NEWEST_MESSAGES: Final = 100
"""So many are looked through for names."""


def _handed_over(messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    """The outputs that calls of `emit_value` gave, of this run and of those before it: name, and
    value as JSON.
    """
    for message in messages:
        if not isinstance(message, AssistantMessage):
            continue
        accepted = {result.id for result in message.results if result.name == EMIT and not result.is_error}
        for call in message.content:
            if isinstance(call, ToolCall) and call.name == EMIT and call.id in accepted:
                with suppress(ValueError):
                    given = arguments_in(call.arguments)
                    if isinstance(name := given.get("name"), str):
                        yield name, json.dumps(to_plain(given.get("value")), ensure_ascii=False, sort_keys=True)


# --- fewer words


def shortened(text: str, chars: int) -> str:
    """`text` with its middle left out, `chars` of it (one of `LADDER`) kept and a note of how many
    are not; `text` if that is no shorter.

    What was shortened before is shortened as if it were the first time.
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
    for chars in LADDER:
        opens = chars * 2 // 3
        found = _NOTE.match(text, opens) if opens < len(text) else None
        if found is not None and len(text) - found.end() == chars - opens:
            gone = int(found[1].replace(",", "") or "0")
            if gone and found[0] == _note(gone):
                return text[:opens], gone, text[found.end() :]
    return text, 0, ""


def fitted(facts: PinnedFacts, *, max_tokens: int) -> PinnedFacts:
    """`facts` made so small that they have at most `max_tokens`, estimated; the same object where
    they are.

    Step by step until they fit, each text cut in its middle:

    1. user messages between the first and the newest, the longest first, down to 200 characters;
       then the first;
    2. outputs, to 400 characters; of files, notes of tools, identifiers and notes the oldest go,
       down to 16 of each;
    3. the newest user message, to half of the room;
    4. outputs of earlier runs, to 60 characters; then the oldest of them are left out, and counted;
    5. more of the files, notes and identifiers;
    6. the user messages in between, to 60 characters each; then they are left out, the oldest
       first, and their numbers are said;
    7. everything else that is left, rules and plan last.

    Names of this run's outputs, given and missing, are always all there: with too little room for
    them it is more than `max_tokens`. A second time it does nothing.
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
    """Facts on their way to fit, and what they weigh. Weights are sums over characters, so each
    text is weighed once a change.
    """

    def __init__(self, facts: PinnedFacts, room: int) -> None:
        self.room = room
        self._given = facts
        self._users = list(facts.user_messages)
        self._of = len(self._users) + facts.left_out
        self._left_out = facts.left_out
        self._others = replace(facts, user_messages=(), left_out=0)
        self._weight = _weights(facts)

    @property
    def fits(self) -> bool:
        return self._weight <= self.room

    @property
    def facts(self) -> PinnedFacts:
        now = replace(self._others, user_messages=tuple(self._users), left_out=self._left_out)
        return self._given if now == self._given else now

    def shorten(self, index: int, chars: int) -> None:
        """The user message at `index`, unless everything fits."""
        text = self._users[index]
        if not self.fits and (less := shortened(text, chars)) is not text:
            number = index + 1 + (self._left_out if index else 0)
            self._weight += _weight(_user_piece(number, less)) - _weight(_user_piece(number, text))
            self._users[index] = less

    def between(self) -> list[int]:
        """The user messages that are neither the first nor the newest, the longest first."""
        return sorted(range(1, len(self._users) - 1), key=lambda index: (-len(self._users[index]), index))

    def shorten_between(self, ladder: Sequence[int]) -> None:
        for chars in ladder:
            for index in self.between():
                if self.fits or len(self._users[index]) <= chars:
                    break
                self.shorten(index, chars)

    def shorten_one(self, index: int, ladder: Sequence[int], least_weight: int = 0) -> None:
        """The first (0) or the newest (-1) user message, as long as it weighs more than
        `least_weight`.
        """
        count = len(self._users)
        if not count or (index == _FIRST and count == 1):
            return
        at = index % count
        for chars in ladder:
            if self.fits or _weight(self._users[at]) <= least_weight:
                return
            self.shorten(at, chars)

    def leave_out(self) -> None:
        """The oldest user messages behind the first, so many as is needed."""
        gone = 0
        line = _weight(_left_out_piece(self._left_out, self._of))
        weight = self._weight
        while weight > self.room and gone < len(self._users) - 2:
            gone += 1
            number = self._left_out + gone + 1
            now = _weight(_left_out_piece(self._left_out + gone, self._of))
            weight += now - line - _weight(_user_piece(number, self._users[gone]))
            line = now
        del self._users[1 : 1 + gone]
        self._left_out += gone
        self._weight = weight

    def leave_out_earlier_outputs(self) -> None:
        """The oldest outputs of earlier runs, so many as is needed."""
        facts, before = self._others, _weights(self._others)
        outputs = list(facts.earlier_outputs.items())

        def without(gone: int) -> PinnedFacts:
            return replace(facts, earlier_outputs=dict(outputs[gone:]), outputs_left_out=facts.outputs_left_out + gone)

        counts = range(len(outputs) + 1)
        gone = bisect_left(counts, True, key=lambda gone: self._weight - before + _weights(without(gone)) <= self.room)  # noqa: FBT003
        self.change(lambda _: without(min(gone, len(outputs))))

    def keep_newest(self, *ladder: int) -> None:
        """So many of each list."""
        for most in ladder:
            self.change(lambda facts, most=most: _with_newest(facts, most))  # type: ignore[misc]

    def change(self, edit: Callable[[PinnedFacts], PinnedFacts]) -> None:
        """Something else than user messages, unless everything fits."""
        if not self.fits:
            changed = edit(self._others)
            self._weight += _weights(changed) - _weights(self._others)
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


# --- as text, and back


_EXPLAINED: Final = "What follows is kept word for word: texts of one line as they are, each other text by its length."


@dataclass(slots=True, frozen=True)
class _Form:
    """How a composed text is written."""

    header: str
    mark: str
    """Before each heading."""
    marks: bool
    """Marks in what others wrote have a backslash before them."""

    def heading(self, words: str) -> str:
        return f"\n{self.mark}{words}"

    def write(self, text: str) -> str:
        return escaped(text) if self.marks else text

    def read(self, text: str) -> str:
        return unescaped(text) if self.marks else text


_NEWEST_FORM: Final = _Form(HEADER, f"{VETO} ", marks=True)
_FORMS: Final = (_NEWEST_FORM, _Form(f"{VETO} What came before this point, in short.", "", marks=False))


def _weight(text: str) -> int:
    return sum(weigh(text))


def _weights(facts: PinnedFacts) -> int:
    return sum(map(_weight, _pieces("", facts)))


def _pieces(summary: str, facts: PinnedFacts, form: _Form = _NEWEST_FORM) -> Iterator[str]:
    yield f"{form.header}\n{_titled(form, _SUMMARY, summary)}{form.heading(_EXPLAINED)}\n"
    if facts.user_messages:
        of = len(facts.user_messages) + facts.left_out
        yield f"{form.heading(_SAID)}{of}\n"
        for index, text in enumerate(facts.user_messages):
            yield _user_piece(index + 1 + (facts.left_out if index else 0), text, form)
            if index == 0:
                yield _left_out_piece(facts.left_out, of)
    if facts.rules is not None:
        yield _titled(form, _RULES, facts.rules)
    if facts.plan is not None:
        yield _titled(form, _PLAN, facts.plan)
    if facts.emitted:
        yield f"{form.heading(_GIVEN)}{len(facts.emitted)}\n"
        yield from (_output_piece(name, value, form) for name, value in facts.emitted.items())
    if facts.earlier_outputs or facts.outputs_left_out:
        yield f"{form.heading(_GIVEN_BEFORE)}{len(facts.earlier_outputs)}, left out: {facts.outputs_left_out}\n"
        yield from (_output_piece(name, value, form) for name, value in facts.earlier_outputs.items())
    for title, entries in _lists(facts):
        if entries:
            yield f"{form.heading(title)}: {len(entries)}\n"
            yield from (f"- {_framed(entry, form)}\n" for entry in entries)
    yield f"\n{FOOTER}"


def _titled(form: _Form, title: str, text: str) -> str:
    written = form.write(text)
    return f"{form.heading(title)}{len(written)} characters:\n{written}\n"


def _lists(facts: PinnedFacts) -> tuple[tuple[str, tuple[str, ...]], ...]:
    details = facts.details
    lists = (
        facts.outstanding,
        facts.identifiers,
        facts.listed,
        details.files_read,
        details.files_modified,
        details.artifacts,
        details.tool_notes,
        facts.notes,
    )
    return tuple(zip(_TITLES, lists, strict=True))


_SUMMARY, _RULES, _PLAN = "Summary, ", "Rules, ", "Plan, "
_SAID: Final = "Messages of the user: "
_GIVEN: Final = "Outputs that were given, not to be given again: "
_GIVEN_BEFORE: Final = "Outputs that earlier runs of the conversation gave: "
_TITLES: Final = (
    "Outputs that are still to be given",
    "Names to be used exactly as they are, newest first",
    "More names that results gave, newest first",
    "Files that were read",
    "Files that were changed",
    "Other things that were made",
    "What became of calls",
    "Notes",
)


def _user_piece(number: int, text: str, form: _Form = _NEWEST_FORM) -> str:
    return f"{number}. {_framed(text, form)}\n"


def _left_out_piece(count: int, of: int) -> str:
    return f"(Messages 2 to {count + 1} of {of} are left out here; they stay in the originals.)\n" if count else ""


def _output_piece(name: str, value: str, form: _Form) -> str:
    name, value = form.write(name), form.write(value)
    line = f"{name}{_IS}{value}"
    if _is_plain(name) and _is_plain(value) and line.find(_IS) == len(name) and not _LENGTHS.match(name):
        return f"- {line}\n"
    return f"- {len(name)} and {len(value)} characters: {name}{_IS}{value}\n"


_IS: Final = " = "
_LENGTH: Final = re.compile(r"[0-9]+ characters:$", re.MULTILINE)
_LENGTHS: Final = re.compile(r"[0-9]+ and [0-9]+ characters:")


def _framed(text: str, form: _Form) -> str:
    written = form.write(text)
    return written if _is_plain(written) else f"{len(written)} characters:\n{written}"


def _is_plain(text: str) -> bool:
    """On a line of its own it cannot be taken for anything else."""
    return text.isprintable() and text == text.strip() and text != "" and _LENGTH.match(text) is None


class _OtherText(Exception):
    """`compose` did not write it."""


class _Reader:
    """A text of a form that is read from its beginning."""

    def __init__(self, text: str, form: _Form) -> None:
        self.form = form
        self._text = text
        self._at = 0

    def skip(self, words: str) -> None:
        if not self.skipped(words):
            raise _OtherText

    def skipped(self, words: str) -> bool:
        """Whether `words` come next, which are behind then."""
        found = self.has(words)
        self._at += len(words) * found
        return found

    def has(self, words: str) -> bool:
        return self._text.startswith(words, self._at)

    def begins(self, words: str) -> bool:
        """The same for a heading."""
        return self.skipped(self.form.heading(words))

    def has_length(self) -> bool:
        return _LENGTH.match(self._text, self._at) is not None

    def has_lengths(self) -> bool:
        return _LENGTHS.match(self._text, self._at) is not None

    def number(self) -> int:
        found = _DIGITS.match(self._text, self._at)
        if found is None:
            raise _OtherText
        self._at = found.end()
        return int(found[0])

    def chars(self, count: int) -> str:
        if count > len(self._text) - self._at:
            raise _OtherText
        self._at += count
        return self._text[self._at - count : self._at]

    def line(self) -> str:
        end = self._text.find("\n", self._at)
        return self.chars(len(self._text) if end < 0 else end - self._at)

    def said(self, chars: int) -> str:
        """So much of what somebody wrote."""
        return self.form.read(self.chars(chars))

    def framed(self, title: str) -> str | None:
        """Behind a heading a length, and as many characters; `None`: the heading is not there."""
        if not self.begins(title):
            return None
        length = self.number()
        self.skip(" characters:\n")
        text = self.said(length)
        self.skip("\n")
        return text


_DIGITS: Final = re.compile(r"[0-9]{1,9}")


def _parsed(text: _Reader) -> tuple[str, PinnedFacts]:
    """What stands in a text. Where something is not as `compose` writes it the answer may be wrong:
    the caller composes it again.
    """
    text.skip(f"{text.form.header}\n")
    summary = text.framed(_SUMMARY)
    if summary is None:
        raise _OtherText
    text.skip(f"{text.form.heading(_EXPLAINED)}\n")
    user_messages, left_out = _parsed_user_messages(text)
    rules, plan = text.framed(_RULES), text.framed(_PLAN)
    emitted: dict[str, str] = {}
    earlier_outputs: dict[str, str] = {}
    outputs_left_out = 0
    if text.begins(_GIVEN):
        emitted = _parsed_outputs(text, text.number())
    if text.begins(_GIVEN_BEFORE):
        count = text.number()
        text.skip(", left out: ")
        outputs_left_out = text.number()
        earlier_outputs = _parsed_outputs(text, count)
    lists = [_parsed_list(text, title) for title in _TITLES]
    outstanding, identifiers, listed, read, modified, artifacts, tool_notes, notes = lists
    return summary, PinnedFacts(
        user_messages=user_messages,
        left_out=left_out,
        emitted=emitted,
        earlier_outputs=earlier_outputs,
        outputs_left_out=outputs_left_out,
        outstanding=outstanding,
        plan=plan,
        rules=rules,
        identifiers=identifiers,
        listed=listed,
        details=CompactionDetails(files_read=read, files_modified=modified, artifacts=artifacts, tool_notes=tool_notes),
        notes=notes,
    )


def _parsed_user_messages(text: _Reader) -> tuple[tuple[str, ...], int]:
    said: list[str] = []
    left_out = 0
    if text.begins(_SAID):
        text.number()
        text.skip("\n")
        while not text.has("\n"):
            if text.skipped("(Messages 2 to "):
                left_out = text.number() - 1
                text.line()
                text.skip("\n")
            else:
                text.number()
                text.skip(". ")
                said.append(_parsed_text(text))
    return tuple(said), left_out


def _parsed_outputs(text: _Reader, count: int) -> dict[str, str]:
    outputs = {}
    text.skip("\n")
    for _ in range(count):
        text.skip("- ")
        if text.has_lengths():
            name_length = text.number()
            text.skip(" and ")
            value_length = text.number()
            text.skip(" characters: ")
            name = text.said(name_length)
            text.skip(_IS)
            outputs[name] = text.said(value_length)
        else:
            name, _, value = text.line().partition(_IS)
            outputs[text.form.read(name)] = text.form.read(value)
        text.skip("\n")
    return outputs


def _parsed_list(text: _Reader, title: str) -> tuple[str, ...]:
    if not text.begins(f"{title}: "):
        return ()
    count = text.number()
    text.skip("\n")
    return tuple(_parsed_entry(text) for _ in range(count))


def _parsed_entry(text: _Reader) -> str:
    text.skip("- ")
    return _parsed_text(text)


def _parsed_text(text: _Reader) -> str:
    if text.has_length():
        length = text.number()
        text.skip(" characters:\n")
        said = text.said(length)
    else:
        said = text.form.read(text.line())
    text.skip("\n")
    return said


_OWN: Final = frozenset({CONTINUE, CONTINUE_WITHOUT_MEDIA})

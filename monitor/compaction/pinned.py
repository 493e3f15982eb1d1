"""What stands for the messages that were compacted: the summary, and beside it word for word what no summary may lose.

    text = compose(summary, gathered(messages, earlier), max_tokens=8_000)
    summary, facts = read_back(text)         # the inverse; `None` for any other text

Failures answered: a request of the user that is gone after the third summary of a summary, an output that is made twice because nobody
remembers it, and a quotation that passes for an instruction. Each text is framed by its length, so that nothing in it can end its frame.
Deterministic: the same facts give the same bytes. A list of facts that does not fit is made smaller in fixed steps (`fitted`), never in
silence: a text says what is left out of it, and user messages keep their numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from monitor._codec import to_plain
from monitor._tokens import weigh
from monitor.answers import arguments_in
from monitor.chunks import ToolCall
from monitor.compacting import CompactionDetails
from monitor.compaction.identifiers import files_of, merged, newest_identifiers
from monitor.context.media import placeholder
from monitor.errors import ConfigError
from monitor.messages import AssistantMessage, Media, Message, Text, UserMessage
from monitor.outputs import EMIT

HEADER: Final = "[agent-monitor] What came before this point, in short."
FOOTER: Final = "[agent-monitor] That was what came before this point. It is a record; nothing in it is asked for anew."
ACKNOWLEDGEMENT: Final = "I have read what came before, and go on from there."
CONTINUE: Final = "[agent-monitor] Go on with the next step that is open. If none is, or it is not clear what is wanted, say so and stop."
CONTINUE_WITHOUT_MEDIA: Final = (
    "[agent-monitor] The request had become too large for the model. To make it fit, earlier messages were put in short, and images and"
    " files that were attached are only named now. Where the name of one is not enough, say so and ask for it in a smaller form.\n\n"
    f"{CONTINUE}"
)

MOST_IDENTIFIERS: Final = 48
"""So many are carried from one compaction to the next, the newest. Four times what one pass finds."""
SHORTEST_CHARS: Final = 60
"""A line's worth: what is left of each old user message where hundreds of them do not fit otherwise."""
SHORT_CHARS: Final = 200
"""Above this, user messages are shortened before anything else is; below, only when nothing else is left."""
EMITTED_CHARS: Final = 400
"""A declared output is shortened to this; the caller has it whole."""
LADDER: Final = (*(SHORT_CHARS << step for step in reversed(range(24))), SHORTEST_CHARS)
"""The lengths that a text is cut to. Only these, so that a text that was cut is known, and cutting again is as if it were done at once."""


@dataclass(slots=True, frozen=True, kw_only=True)
class PinnedFacts:
    """What stays beside every summary. Raises `ConfigError` for messages that are left out around none that are there."""

    user_messages: tuple[str, ...] = ()
    """Everything that a person said so far, oldest first."""
    left_out: int = 0
    """User messages that had no room at all: those that followed the first."""
    emitted: Mapping[str, str] = field(default_factory=dict)
    """Declared outputs that the model has given, by name, as JSON text."""
    outstanding: tuple[str, ...] = ()
    """Those it still has to give: `name`, or `name: what it is`."""
    plan: str | None = None
    """As the model reads it."""
    rules: str | None = None
    """The operator's rules, notes of the project."""
    identifiers: tuple[str, ...] = ()
    """Names to be used literally, newest first."""
    details: CompactionDetails = field(default_factory=CompactionDetails)
    notes: tuple[str, ...] = ()
    """What hooks add."""

    def __post_init__(self) -> None:
        if self.left_out < 0 or (self.left_out and not self.user_messages):
            raise ConfigError(f"left_out is {self.left_out} with {len(self.user_messages)} user messages: the first is always there")


def compose(summary: str, facts: PinnedFacts, *, max_tokens: int) -> str:
    """The text that stands for what was compacted; its pinned part has at most `max_tokens`, estimated, if that is possible (`fitted`)."""
    return "".join(_pieces(summary, fitted(facts, max_tokens=max_tokens)))


def read_back(text: str) -> tuple[str, PinnedFacts] | None:
    """The summary and the facts of a text that `compose` wrote; `None` for any other, however alike. Linear."""
    if not text.startswith(HEADER) or not text.endswith(FOOTER):
        return None
    try:
        summary, facts = _parsed(_Reader(text))
    except (_OtherText, ConfigError):
        return None
    return (summary, facts) if "".join(_pieces(summary, facts)) == text else None


def is_own(message: Message) -> bool:
    """The monitor said it and no person, also where a stored history has lost the mark of it."""
    if not isinstance(message, UserMessage):
        return False
    text = text_of_user(message)
    return message.synthetic or text in _OWN or read_back(text) is not None


def head_of_messages(messages: Sequence[Message]) -> int:
    """How many messages at the beginning stand for what was compacted: 1, 2 with the acknowledgement, 0 if there are none."""
    if not messages or not isinstance(messages[0], UserMessage) or read_back(text_of_user(messages[0])) is None:
        return 0
    return 2 if len(messages) > 1 and messages[1] == acknowledgement() else 1


def acknowledgement() -> AssistantMessage:
    """What the model is said to have answered to the summary, where the next message is the user's: roles alternate."""
    return AssistantMessage((Text(ACKNOWLEDGEMENT),))


def text_of_user(message: UserMessage) -> str:
    """What a user message says, its media named."""
    return "\n".join((placeholder(part) if isinstance(part, Media) else part).text for part in message.content)


def gathered(messages: Sequence[Message], earlier: PinnedFacts | None = None) -> PinnedFacts:
    """`earlier`, and everything in `messages` that is to be pinned: what a person said, outputs, identifiers, files, what became of calls.

    Where `earlier` is not given and `messages` begin with a composed text, its facts are the earlier ones.
    """
    head = head_of_messages(messages)
    if earlier is None and head:
        first = messages[0]
        before = read_back(text_of_user(first)) if isinstance(first, UserMessage) else None
        earlier = before[1] if before else None
    facts, new = earlier or PinnedFacts(), messages[head:]
    said = (text_of_user(message) for message in new if isinstance(message, UserMessage) and not is_own(message))
    theirs = [message for message in new if not is_own(message)]
    names = dict.fromkeys((*newest_identifiers(theirs), *facts.identifiers))
    return replace(
        facts,
        user_messages=(*facts.user_messages, *said),
        emitted={**facts.emitted, **dict(_handed_over(theirs))},
        identifiers=tuple(names)[:MOST_IDENTIFIERS],
        details=merged(facts.details, files_of(theirs)),
    )


def _handed_over(messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    """The outputs that calls of `emit_value` gave, of this run and of those before it: name, and value as JSON."""
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
    """`text` with its middle left out, `chars` of it (one of `LADDER`) kept and a note of how many are not; `text` if that is no shorter.

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
    """`facts` made so small that they have at most `max_tokens`, estimated; the same object where they are.

    Step by step until they fit, each text cut in its middle:

    1. user messages between the first and the newest, the longest first, down to 200 characters; then the first;
    2. outputs that were given, to 400 characters; files, notes of tools and identifiers, the oldest go;
    3. the newest user message, to half of the room;
    4. the user messages in between, to 60 characters each; then they are left out, the oldest first, and their numbers are said;
    5. everything else that is left, rules and plan last.

    Names of outputs, those given and those missing, are always all there: with too little room for them it is more than `max_tokens`.
    A second time it does nothing.
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
    """Facts on their way to fit, and what they weigh. Weights are sums over characters, so each text is weighed once a change."""

    def __init__(self, facts: PinnedFacts, room: int) -> None:
        self.room = room
        self._given = facts
        self._users = list(facts.user_messages)
        self._of = len(self._users) + facts.left_out
        self._left_out = facts.left_out
        self._others = replace(facts, user_messages=(), left_out=0)
        self._weight = sum(_weight(piece) for piece in _pieces("", facts))

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
            self._weight += _weight(_user_piece(number, self._of, less)) - _weight(_user_piece(number, self._of, text))
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
        """The first (0) or the newest (-1) user message, as long as it weighs more than `least_weight`."""
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
            weight += now - line - _weight(_user_piece(number, self._of, self._users[gone]))
            line = now
        del self._users[1 : 1 + gone]
        self._left_out += gone
        self._weight = weight

    def change(self, edit: Callable[[PinnedFacts], PinnedFacts]) -> None:
        """Something else than user messages, unless everything fits."""
        if not self.fits:
            changed = edit(self._others)
            self._weight += sum(map(_weight, _pieces("", changed))) - sum(map(_weight, _pieces("", self._others)))
            self._others = changed


def _shorten_lists(fit: _Fit) -> None:
    fit.change(lambda facts: _with_short_outputs(facts, EMITTED_CHARS))
    for most in (64, 32, 16, 8, 4):
        fit.change(lambda facts, most=most: _with_newest(facts, most))  # type: ignore[misc]


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
    lambda fit: fit.shorten_between(LADDER),
    lambda fit: fit.leave_out(),
    _shorten_all_else,
)


def _with_short_outputs(facts: PinnedFacts, chars: int) -> PinnedFacts:
    return replace(facts, emitted={name: shortened(value, chars) for name, value in facts.emitted.items()})


def _with_newest(facts: PinnedFacts, most: int) -> PinnedFacts:
    details = facts.details
    return replace(
        facts,
        identifiers=facts.identifiers[:most],
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


_EXPLAINED: Final = "\nWhat follows is kept word for word, each text by its length.\n"


def _weight(text: str) -> int:
    return sum(weigh(text))


def _pieces(summary: str, facts: PinnedFacts) -> Iterator[str]:
    yield f"{HEADER}\n\nSummary, {len(summary)} characters:\n{summary}\n"
    yield _EXPLAINED
    of = len(facts.user_messages) + facts.left_out
    for index, text in enumerate(facts.user_messages):
        yield _user_piece(index + 1 + (facts.left_out if index else 0), of, text)
        if index == 0:
            yield _left_out_piece(facts.left_out, of)
    if facts.rules is not None:
        yield f"\nRules, {len(facts.rules)} characters:\n{facts.rules}\n"
    if facts.plan is not None:
        yield f"\nPlan, {len(facts.plan)} characters:\n{facts.plan}\n"
    if facts.emitted:
        yield f"\nOutputs that were given, not to be given again: {len(facts.emitted)}\n"
        for name, value in facts.emitted.items():
            yield f"- {len(name)} and {len(value)} characters: {name} = {value}\n"
    for title, entries in _lists(facts):
        if entries:
            yield f"\n{title}: {len(entries)}\n"
            for entry in entries:
                yield f"- {entry}\n" if _is_plain(entry) else f"- {len(entry)} characters: {entry}\n"
    yield f"\n{FOOTER}"


def _lists(facts: PinnedFacts) -> tuple[tuple[str, tuple[str, ...]], ...]:
    details = facts.details
    lists = (
        facts.outstanding,
        facts.identifiers,
        details.files_read,
        details.files_modified,
        details.artifacts,
        details.tool_notes,
        facts.notes,
    )
    return tuple(zip(_TITLES, lists, strict=True))


_TITLES: Final = (
    "Outputs that are still to be given",
    "Names to be used exactly as they are, newest first",
    "Files that were read",
    "Files that were changed",
    "Other things that were made",
    "What became of calls",
    "Notes",
)


def _user_piece(number: int, of: int, text: str) -> str:
    return f"\nUser message {number} of {of}, {len(text)} characters:\n{text}\n"


def _left_out_piece(count: int, of: int) -> str:
    return f"\nUser messages 2 to {count + 1} of {of} are left out here; they stay in the originals.\n" if count else ""


_LENGTH: Final = re.compile(r"[0-9]+ characters: ")


def _is_plain(entry: str) -> bool:
    """On a line of its own it cannot be taken for anything else."""
    return entry.isprintable() and entry == entry.strip() and entry != "" and _LENGTH.match(entry) is None


class _OtherText(Exception):
    """`compose` did not write it."""


class _Reader:
    """A text that is read from its beginning."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def skip(self, words: str) -> None:
        if not self.has(words):
            raise _OtherText
        self._at += len(words)

    def has(self, words: str) -> bool:
        return self._text.startswith(words, self._at)

    def has_length(self) -> bool:
        return _LENGTH.match(self._text, self._at) is not None

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

    def framed(self, title: str) -> str:
        """`title`, a length, and as many characters."""
        self.skip(title)
        length = self.number()
        self.skip(" characters:\n")
        text = self.chars(length)
        self.skip("\n")
        return text


_DIGITS: Final = re.compile(r"[0-9]{1,9}")


def _parsed(text: _Reader) -> tuple[str, PinnedFacts]:
    """What stands in a text. Where something is not as `compose` writes it the answer may be wrong: the caller composes it again."""
    text.skip(f"{HEADER}\n\n")
    summary = text.framed("Summary, ")
    text.skip(_EXPLAINED)
    user_messages, left_out = _parsed_user_messages(text)
    rules = text.framed("\nRules, ") if text.has("\nRules, ") else None
    plan = text.framed("\nPlan, ") if text.has("\nPlan, ") else None
    emitted = _parsed_outputs(text)
    lists = [_parsed_list(text, title) for title in _TITLES]
    outstanding, identifiers, read, modified, artifacts, tool_notes, notes = lists
    return summary, PinnedFacts(
        user_messages=user_messages,
        left_out=left_out,
        emitted=emitted,
        outstanding=outstanding,
        plan=plan,
        rules=rules,
        identifiers=identifiers,
        details=CompactionDetails(files_read=read, files_modified=modified, artifacts=artifacts, tool_notes=tool_notes),
        notes=notes,
    )


def _parsed_user_messages(text: _Reader) -> tuple[tuple[str, ...], int]:
    said: list[str] = []
    left_out = 0
    while text.has("\nUser message"):
        if text.has("\nUser messages 2 to "):
            text.skip("\nUser messages 2 to ")
            left_out = text.number() - 1
            text.skip(" of ")
            text.number()
            text.skip(" are left out here; they stay in the originals.\n")
        else:
            text.skip("\nUser message ")
            text.number()
            text.skip(" of ")
            text.number()
            said.append(text.framed(", "))
    return tuple(said), left_out


def _parsed_outputs(text: _Reader) -> dict[str, str]:
    title = "\nOutputs that were given, not to be given again: "
    if not text.has(title):
        return {}
    text.skip(title)
    outputs = {}
    count = text.number()
    text.skip("\n")
    for _ in range(count):
        text.skip("- ")
        name_length = text.number()
        text.skip(" and ")
        value_length = text.number()
        text.skip(" characters: ")
        name = text.chars(name_length)
        text.skip(" = ")
        outputs[name] = text.chars(value_length)
        text.skip("\n")
    return outputs


def _parsed_list(text: _Reader, title: str) -> tuple[str, ...]:
    if not text.has(f"\n{title}: "):
        return ()
    text.skip(f"\n{title}: ")
    count = text.number()
    text.skip("\n")
    return tuple(_parsed_entry(text) for _ in range(count))


def _parsed_entry(text: _Reader) -> str:
    text.skip("- ")
    if text.has_length():
        length = text.number()
        text.skip(" characters: ")
        entry = text.chars(length)
    else:
        entry = text.line()
    text.skip("\n")
    return entry


_OWN: Final = frozenset({CONTINUE, CONTINUE_WITHOUT_MEDIA})

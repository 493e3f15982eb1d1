"""The text that stands for what was compacted: it is written from a summary and its facts, and read
back.

A text of one line stands on its own line. Any other text has its length before it, so nothing in it
can pass for its end. Each heading begins with the monitor's mark. Where another author's text has
the mark, a backslash stands before it, so that a model takes no quotation for a heading.

A field (`synthetic`) says that the monitor wrote a message. Only `recognised` asks the text, for a
history that was stored without the field. The same facts give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from monitor._util.quoting import escaped, unescaped
from monitor._util.token_estimate import weigh
from monitor.compaction.pinned.pinned_facts import PinnedFacts
from monitor.compaction.records import CompactionDetails
from monitor.context.reduce.media import placeholder
from monitor.errors import ConfigError
from monitor.messages import AssistantMessage, Media, Message, Text, UserMessage
from monitor.verdicts import VETO

FORM: Final = 2
"""The number of the newest form of the text. Form 1 had headings without a mark, and did not escape
quoted texts. It can still be read.
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
    are escaped (`monitor._util.quoting.foreign`), and their origin is never asked again.
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


@dataclass(slots=True, frozen=True)
class _TextForm:
    """How a composed text is written."""

    header: str
    mark: str
    """Stands before each heading. Where the text of others has it, it gets a backslash before
    it.
    """

    def heading(self, words: str) -> str:
        return f"\n{self.mark}{words}"

    def write(self, text: str) -> str:
        return escaped(text) if self.mark else text

    def read(self, text: str) -> str:
        return unescaped(text) if self.mark else text


_NEWEST_FORM: Final = _TextForm(HEADER, f"{VETO} ")
_FORMS: Final = (_NEWEST_FORM, _TextForm(f"{VETO} What came before this point, in short.", ""))


def weight(text: str) -> int:
    """The weight of `text`, in estimated eighths of a token."""
    return sum(weigh(text))


def weights(facts: PinnedFacts) -> int:
    """The weight of the text of `facts`, with an empty summary."""
    return sum(map(weight, pieces("", facts)))


def pieces(summary: str, facts: PinnedFacts, form: _TextForm = _NEWEST_FORM) -> Iterator[str]:
    """The pieces of the text, in order: the summary, then each fact that is known."""
    yield f"{form.header}\n{_titled(form, _SUMMARY, summary)}{form.heading(_EXPLAINED)}\n"
    if facts.user_messages:
        of = len(facts.user_messages) + facts.left_out
        yield f"{form.heading(_SAID)}{of}\n"
        for index, text in enumerate(facts.user_messages):
            yield user_piece(index + 1 + (facts.left_out if index else 0), text, form)
            if index == 0:
                yield left_out_piece(facts.left_out, of)
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
    for name, title in _LISTS.items():
        if entries := getattr(facts.details if name in _DETAILS else facts, name):
            yield f"{form.heading(title)}: {len(entries)}\n"
            yield from (f"- {_framed(entry, form)}\n" for entry in entries)
    yield f"\n{FOOTER}"


def _titled(form: _TextForm, title: str, text: str) -> str:
    written = form.write(text)
    return f"{form.heading(title)}{len(written)} characters:\n{written}\n"


_SUMMARY, _RULES, _PLAN = "Summary, ", "Rules, ", "Plan, "
_SAID: Final = "Messages of the user: "
_GIVEN: Final = "Outputs that were given, not to be given again: "
_GIVEN_BEFORE: Final = "Outputs that earlier runs of the conversation gave: "
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


def user_piece(number: int, text: str, form: _TextForm = _NEWEST_FORM) -> str:
    """The piece of user message `number`."""
    return f"{number}. {_framed(text, form)}\n"


def left_out_piece(count: int, of: int) -> str:
    """The line for `count` user messages that are left out, out of `of`; empty for none."""
    return f"(Messages 2 to {count + 1} of {of} are left out here; they stay in the originals.)\n" if count else ""


def _output_piece(name: str, value: str, form: _TextForm) -> str:
    name, value = form.write(name), form.write(value)
    line = f"{name}{_IS}{value}"
    if _is_plain(name) and _is_plain(value) and line.find(_IS) == len(name) and not _LENGTHS.match(name):
        return f"- {line}\n"
    return f"- {len(name)} and {len(value)} characters: {name}{_IS}{value}\n"


_IS: Final = " = "
_LENGTH: Final = re.compile(r"([0-9]{1,20}) characters:$", re.MULTILINE)
_LENGTHS: Final = re.compile(r"([0-9]{1,20}) and ([0-9]{1,20}) characters:")


def _framed(text: str, form: _TextForm) -> str:
    written = form.write(text)
    return written if _is_plain(written) else f"{len(written)} characters:\n{written}"


def _is_plain(text: str) -> bool:
    """Whether `text` can stand on a line of its own without being taken for anything else."""
    return text.isprintable() and text == text.strip() and text != "" and _LENGTH.match(text) is None


# --- read


def read_back(text: str) -> tuple[str, PinnedFacts] | None:
    """The summary and the facts of a text that `compose` wrote, in this form or in form 1; `None`
    for any other text, however similar.

    It takes linear time. The answer does not prove who wrote the text: the field `synthetic` does.
    """
    form = next((form for form in _FORMS if text.startswith(f"{form.header}\n") and text.endswith(FOOTER)), None)
    if form is None:
        return None
    try:
        summary, facts = _parsed(_FormReader(text, form))
    except (ValueError, ConfigError):
        return None
    return (summary, facts) if "".join(pieces(summary, facts, form)) == text else None


class _OtherText(ValueError):
    """`compose` did not write this text."""


class _FormReader:
    """Reads a text of one form, from its beginning."""

    def __init__(self, text: str, form: _TextForm) -> None:
        self.form = form
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
        return self.whole_line() if self.skipped(self.form.heading(title)) else None

    def skip(self, words: str) -> None:
        if not self.skipped(words):
            raise _OtherText

    def said(self, chars: int) -> str:
        """The next `chars` characters, written by others, without the escapes."""
        begin, self._at = self._at, self._at + chars
        if self._at > len(self._text):
            raise _OtherText
        return self.form.read(self._text[begin : self._at])

    def whole_line(self) -> str:
        """The rest of the line, as it is written. The reader goes past its end."""
        begin, end = self._at, self._text.index("\n", self._at)
        self._at = end + 1
        return self._text[begin:end]

    def framed(self) -> str:
        """A text that `_framed` wrote, and the end of its line."""
        length = self.match(_LENGTH)
        if length is None:
            return self.form.read(self.whole_line())
        self.skip("\n")
        text = self.said(int(length[1]))
        self.skip("\n")
        return text

    def titled(self, title: str) -> str | None:
        """The text below the heading `title`; `None`: another heading comes next."""
        return self.framed() if self.skipped(self.form.heading(title)) else None


def _parsed(text: _FormReader) -> tuple[str, PinnedFacts]:
    """The summary and the facts in `text`. They may be wrong if `compose` did not write it: so the
    caller composes them again and compares.
    """
    text.skip(f"{text.form.header}\n")
    summary = text.titled(_SUMMARY)
    if summary is None:
        raise _OtherText
    text.skip(f"{text.form.heading(_EXPLAINED)}\n")
    user_messages, left_out = _parsed_user_messages(text)
    rules, plan = text.titled(_RULES), text.titled(_PLAN)
    emitted, _ = _parsed_outputs(text, _GIVEN)
    earlier_outputs, outputs_left_out = _parsed_outputs(text, _GIVEN_BEFORE)
    lists = {name: _parsed_list(text, title) for name, title in _LISTS.items()}
    return summary, PinnedFacts(
        user_messages=user_messages,
        left_out=left_out,
        emitted=emitted,
        earlier_outputs=earlier_outputs,
        outputs_left_out=outputs_left_out,
        plan=plan,
        rules=rules,
        details=CompactionDetails(**{name: lists.pop(name) for name in _DETAILS}),
        **lists,
    )


def _parsed_user_messages(text: _FormReader) -> tuple[tuple[str, ...], int]:
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


def _parsed_outputs(text: _FormReader, title: str) -> tuple[dict[str, str], int]:
    """The outputs below the heading `title`, and the number at the end of its line: in the second
    list of outputs, those that are left out.
    """
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
            outputs[text.form.read(name)] = text.form.read(value)
    return outputs, int(counts.rpartition(" ")[2]) if counts is not None else 0


def _parsed_list(text: _FormReader, title: str) -> tuple[str, ...]:
    entries: list[str] = []
    if text.headed(f"{title}: ") is not None:
        while text.skipped("- "):
            entries.append(text.framed())
    return tuple(entries)

"""The kinds of repeated units.

A rule that counts rows as it counts words raises false alarms. A rule that ignores structure misses
a model that writes the same list, table, fenced block or tool call for its whole budget.

People and programs repeat single rows on purpose, but no whole block. So a unit is examined as
lines:

- a block has at least two different lines. At least one of them begins with a sign, a number or a
  letter of a list; signs of which drawings are made do not count;
- lines that all begin as data (brackets, quotation marks) are data and no block. A table and the
  markup of tool calls are blocks all the same: tags that name tools, functions or calls, and JSON
  with a name and arguments;
- a dialogue has at least two speakers, each before a sentence of three words or more (records of
  `name: value` have fewer), or different lines that begin with a dash or a quotation mark;
- a record has three fields or more, of one or two words each in the mean, and no sentence;
- a line says something if it has three words or numbers, and runs nothing: comments, items,
  declarations, stage directions. People repeat code and data, but not those;
- a frame of a stack trace names a place in a file: programs print the same one a thousand times;
- a line of a sentence that is only indented is prose.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal, TypeAlias

# --------------------------------------------------------------------------------------------------
# Tells layout from prose.
#
# Tables, lists and code repeat by nature, and a detector that counts them raises false alarms.
# The usual remedy, to forget the evidence at every marker, misses any loop that contains a
# heading.
#
# All of this is examined only where something already repeats, or where text is about to leave
# the buffer:
#
# - a line that starts with a letter is prose, a blank line is nothing. Every other line is layout:
#   bullets, numbers, `#`, `>`, `|`, dividers, indentation, brackets, tags, fences;
# - inside a code fence every line is layout;
# - verse has short lines, as in poems and songs; code has signs that prose has not;
# - drawings are made of blanks, punctuation, boxes and blocks. Everything else speaks;
# - a fence opens with a line that starts with three backticks or tildes, after at most three
#   blanks. It closes with a line that contains nothing else, as in CommonMark. A line longer than
#   `FENCE_LINE_CHARS` is no fence.

FENCE_LINE_CHARS = 200
"""Marker and info string; keeps the decision about a line local, so that it cannot depend on how
much text has arrived.
"""

MAX_INDENT = 3
"""Blanks before a fence; four make an indented code block (CommonMark)."""

LEADERS = frozenset(" \t\n\r\u00a0.-_=*~\u00b7\u2022\u2026\u2500\u2501\u2550")
"""The characters with which people fill a line, as long as it takes: padding, leaders, rules. Other
characters make bars of up to 120 (comments).
"""

VERSE_BYTES = 64
"""The longest line of verse, in UTF-8: English verse has 20 to 50 characters, Chinese verse 5 to 12
of three bytes.
"""
CODE_SIGNS = (*"_=<>{}[]\\/@#$|", ";\n")
"""Signs of code and data. Of recorded loops in prose they are at most 0.5 %, of code and settings 2
to 20 %.
"""
CODE_PERCENT = 1
DENSE_PERCENT = 4
"""Prose has 12 to 20 blanks in a hundred characters."""
SIGNED_PERCENT = 90
"""Letters of a hundred characters, where hardly a blank stands between: signs part the values of
source maps and style sheets. A long cry has none.
"""

_MARKERS = ("```", "~~~")
_NO_DIGITS = str.maketrans("", "", "0123456789")
_WORD = re.compile(r"[^\W_]")
_NO_WORDS = re.compile(r"[\x00-\x1f!-@\[-`{-\x7f]+")
"""All of ASCII but letters and the blank."""
_SPEAKS = re.compile(
    r"[^\s!-/:-@\[-`{-~\u00a1-\u00bf\u2000-\u206f\u2190-\u25ff\u2b00-\u2bff\u3000-\u303f\ufe0f\uff01-\uff0f\U0001f7e0-\U0001f7eb]"
)
"""Anything but blanks, punctuation, arrows, boxes, blocks, squares and discs."""


def next_word(text: str, start: int, end: int) -> int:
    """Where the first letter or digit of any script stands in `text[start:end]`; `end` if none
    does.
    """
    word = _WORD.search(text, start, end)
    return word.start() if word else end


def speaks(text: str) -> bool:
    """Whether at least one character is not what drawings are made of: a letter, a digit, a
    smiley.
    """
    return _SPEAKS.search(text) is not None


def words_percent(text: str) -> int:
    """Letters, blanks and what is not ASCII, of a hundred characters; runs of blanks are one."""
    joined = " ".join(text.split())
    others = sum(map(len, _NO_WORDS.findall(joined)))
    return 100 - 100 * others // max(len(joined), 1)


def is_code(text: str) -> bool:
    """Whether more than one character of a hundred is a sign of code or data."""
    return 100 * sum(map(text.count, CODE_SIGNS)) > CODE_PERCENT * len(text)


def is_unbroken(text: str) -> bool:
    """Whether it is ASCII without any blank, and most of it letters and digits. No language that is
    written in ASCII is written so.
    """
    return text.isascii() and len(text.split()) == 1 and 2 * sum(map(str.isalnum, text)) > len(text)


def is_dense(text: str) -> bool:
    """Whether it is code or data with hardly a blank: paths, URLs, minified JSON, source maps."""
    most = DENSE_PERCENT * len(text)
    if 100 * text.count(" ") >= most:
        return False
    if is_code(text):
        return True
    return text.isascii() and 100 * text.count("\n") < most and words_percent(text) < SIGNED_PERCENT


def has_short_lines(text: str) -> bool:
    """Whether all lines are as short as those of verse."""
    return all(
        len(line) <= VERSE_BYTES and len(line.encode("utf-8", "surrogatepass")) <= VERSE_BYTES
        for line in text.split("\n")
    )


def last_layout(text: str, start: int, end: int, *, fenced: bool) -> int:
    """Where the last layout line that starts behind a line break in `text[start:end]` starts; -1 if
    none does.
    """
    line = text.rfind("\n", start, end - 1) + 1
    while line > 0:
        if fenced or is_layout(text[line]):
            return line
        line = text.rfind("\n", start, line - 1) + 1
    return -1


def only_counts(one: str, other: str) -> bool:
    """Whether nothing but digits differs."""
    return one.translate(_NO_DIGITS) == other.translate(_NO_DIGITS)


def only_layout(text: str, start: int, end: int, *, fenced: bool) -> bool:
    """Whether lines start in `text[start:end]` and all of them are layout. `fenced` is the state at
    `end`.
    """
    some = False
    line = text.rfind("\n", start, end - 1) + 1
    while line > 0:
        if text[line : min(line + MAX_INDENT + 3, end)].lstrip(" ").startswith(_MARKERS):
            fenced = not fenced
        elif not fenced and text[line].isalpha():
            return False
        some = True
        line = text.rfind("\n", start, line - 1) + 1
    return some


def is_layout(first: str) -> bool:
    """Whether a line that starts with this character is layout, outside a fence."""
    return not first.isalpha() and first not in "\r\n"


class Fences:
    """Whether the text is inside a code fence, followed on demand. Positions are offsets in the
    channel.
    """

    __slots__ = ("marker", "origin", "seen")

    def __init__(self, origin: int = 0) -> None:
        self.restart(origin)

    def restart(self, origin: int) -> None:
        """A new piece of text begins at `origin`, outside any fence."""
        self.marker = ""
        self.origin = self.seen = origin

    def inside(self, text: str, base: int, end: int) -> bool:
        """The state at `end`, never before an earlier `end`. `text` starts at `base` and reaches
        back to what was seen.
        """
        stop = end - base
        at = self.seen - base
        while (found := _next_marker(text, at, stop)) >= 0:
            line_end = text.find("\n", found, min(stop, found + FENCE_LINE_CHARS))
            if line_end < 0 and stop < found + FENCE_LINE_CHARS:
                at = found
                break
            if line_end >= 0 and self._starts_line(text, base, found):
                self._line(text[found:line_end].rstrip())
            at = line_end if line_end >= 0 else _end_of_run(text, found, stop)
        else:
            at = max(at, stop - len(_MARKERS[0]) + 1)
        self.seen = base + at
        return bool(self.marker)

    def _starts_line(self, text: str, base: int, found: int) -> bool:
        line = text.rfind("\n", max(found - MAX_INDENT - 1, 0), found) + 1
        if line == 0:
            line = self.origin - base
            if found - line > MAX_INDENT:
                return False
        return not text[max(line, 0) : found].strip(" ")

    def _line(self, line: str) -> None:
        if not self.marker:
            if "`" not in line.lstrip("`"):
                self.marker = line[: len(line) - len(line.lstrip(line[0]))]
        elif line.startswith(self.marker) and not line.strip(self.marker[0]):
            self.marker = ""


def _end_of_run(text: str, at: int, stop: int) -> int:
    """Where the run of the character at `at` ends: what is left of it can begin no line."""
    end = at
    while end < stop and text[end] == text[at]:
        end += 1
    return end


def _next_marker(text: str, start: int, stop: int) -> int:
    ticks = _next(_MARKERS[0], text, start, stop)
    tildes = _next(_MARKERS[1], text, start, ticks if ticks >= 0 else stop)
    return tildes if tildes >= 0 else ticks


def _next(marker: str, text: str, start: int, stop: int) -> int:
    """Return what `str.find` does; an absent first character is known forty times as soon."""
    first = text.find(marker[0], start, stop)
    return text.find(marker, first, stop) if first >= 0 else -1


DATA_STARTS = frozenset("<[{(|\"'")
BLOCK_LINES = 2
"""A block has at least this many different lines."""
LEAST_WORDS = 3
"""What a speaker says has at least this many words, and so has an indented line."""
LEAST_FIELDS = 3
MOST_FIELD_WORDS = 2.5
"""Words and numbers of a field, in the mean."""
LEAST_STATEMENT_WORDS = 2
"""The number of words among the first three words and numbers of a line that says something:
`margin: 0 auto`.
"""
INDENTED_PERCENT = 85
"""Letters and blanks of a line of prose; of source code fewer are."""
_SPEECH = frozenset('\u2014\u2013"\u201c\u201e\u00ab\u300c')
"""The signs at the beginning of a line of a novel in which somebody speaks."""
_CLOSERS = frozenset("}])")
MARKED = re.compile(
    r"[-*+#>|<`~\u2022\u2192\u25aa\u25cb\u25cf\u25e6]|[^\w\s\x00-\u25ff\u2b00-\u303f]|\[(?!\d)"
    r"|(?:\d{1,4}|[A-Za-z]|[ivxIVX]{1,5})[.)\u3001]\s"
)
"""How a line of a list, a table or a quotation begins."""
_FENCE = re.compile(r"```|~~~")
_CALL = re.compile(
    r"[<\[{|/_](?:tools?|functions?|invoke|call)\b"
    r"|(?:[Tt]ool|TOOL|[Ff]unction|FUNCTION)_(?:[Cc]all|CALL|[Uu]se|USE|[Cc]ode|CODE)"
    r"|<(?:function|tool|parameter)="
    r"|</?[a-z]{1,20}_[a-z_]{1,30}>|^Action(?: Input)?:",
    re.MULTILINE,
)
_CALL_JSON = re.compile(r'"(?:name|tool|function)":')
_ARGUMENTS = re.compile(r'"(?:arguments|parameters|args|input)":')
_SPEAKER = re.compile(r"\W{0,4}([^\W\d_][\w .'-]{0,24})\W{0,2}[:\uff1a](.*)")
_LETTERS = re.compile(r"[^\W\d_]+")
_TOKEN = re.compile(r"\w+")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_OPENING = re.compile(r"<[A-Za-z]")
_SEPARATORS = re.compile(r"[,;\t|]")
_SENTENCE_END = re.compile(r"[.!?\u2026\u3002\uff01\uff1f](?:\s|$)")
RUNS = re.compile(r"\w\(|=")
"""A call, or an assignment."""
_NO_NUMBERS = re.compile(r"[^\d\s.,:;+()\[\]{}-]")
_WIDE = re.compile(r"[\u0e00-\u0e7f\u3040-\u9fff\uac00-\ud7a3]")
"""Letters of scripts that write no blanks between words, or few."""
_FRAME = re.compile(r"[\w>$)]\.[A-Za-z]{1,5}:(?:line )?\d|\", line \d")


def lines_of(unit: str) -> list[str]:
    """The lines that are not blank. A unit may begin within a line: its two ends are one line
    then.
    """
    head, _, rest = unit.partition("\n")
    return [line for line in (rest + head).split("\n") if line.strip()]


def is_block(unit: str) -> bool:
    """Whether people would call it a list, a table, a fenced block, a tool call: something that is
    not repeated line by line.
    """
    lines = [line.strip() for line in lines_of(unit)]
    if is_call("\n".join(lines)):
        return True
    if len(set(lines)) < BLOCK_LINES or not any(map(MARKED.match, lines)):
        return False
    data = all(line[0] in DATA_STARTS or line[0] in _CLOSERS for line in lines)
    return not data or any(map(_is_divider, lines))


def _is_divider(line: str) -> bool:
    return line[0] == "|" and "-" in line and not line.strip("|:-+ ")


def has_fence(unit: str) -> bool:
    """Whether it holds the marker of a code fence."""
    return _FENCE.search(unit) is not None


def is_call(text: str) -> bool:
    """Whether it is the markup of a tool call."""
    return _CALL.search(text) is not None or (
        _CALL_JSON.search(text) is not None and _ARGUMENTS.search(text) is not None
    )


def is_frame(unit: str) -> bool:
    """Whether every second line at least names a place in a file."""
    lines = lines_of(unit)
    return 2 * sum(_FRAME.search(line) is not None for line in lines) >= len(lines) > 0


def is_dialogue(unit: str) -> bool:
    """Whether at least two speakers say sentences, and nobody else says anything."""
    lines = [line.strip() for line in lines_of(unit)]
    if all(line[0] in _SPEECH for line in lines):
        return len(set(lines)) >= BLOCK_LINES and all(map(_is_sentence, lines))
    said = [_SPEAKER.fullmatch(line) for line in lines]
    if not all(said) or len({one.group(1) for one in said if one}) < BLOCK_LINES:
        return False
    return all(says_something(one.group(2)) for one in said if one)


def is_indented_prose(unit: str) -> bool:
    """Whether each line is indented and a sentence, and would be prose without its indentation."""
    lines = lines_of(unit) if "\n" in unit else []
    return bool(lines) and all(line[0] in " \t" and line.lstrip()[0].isalpha() and _is_sentence(line) for line in lines)


def _is_sentence(line: str) -> bool:
    return says_something(line) and not is_code(line) and words_percent(line.strip()) >= INDENTED_PERCENT


def says_something(text: str) -> bool:
    """Whether it has at least three words, or twice as many letters of a script without blanks."""
    return len(_LETTERS.findall(text)) >= LEAST_WORDS or len(_WIDE.findall(text)) >= 2 * LEAST_WORDS


def is_data(unit: str) -> bool:
    """Layout that stands for data: no letter in it, or a single line that is data (see
    `is_data_line`).
    """
    end = unit.find("\n")
    if unit.find("\n", end + 1) < 0 and is_data_line(unit[end + 1 :] + unit[: end + 1]):
        return True
    return not any(map(str.isalpha, unit))


def is_data_line(line: str) -> bool:
    """A record, or a value: in brackets, quotation marks or tags, or before a comma. A value has
    fewer than three words beside the tags. A call, an assignment and closing tags are no values.
    """
    at = max(line.find("<"), 0)  # within a line, a unit may begin anywhere
    bare = (line[at:] + line[:at]).strip()
    said = _TAG.sub(" ", bare)
    if RUNS.search(said) is not None or ("</" in bare and _OPENING.search(bare) is None):
        return False
    value = bare.endswith((",", ";")) or any(sign in DATA_STARTS or sign in _CLOSERS for sign in bare)
    return is_record(said) or (value and not has_words(said))


def is_record(line: str) -> bool:
    """Whether separators make three fields of it or more, of few words in the mean, and no sentence
    ends in it.
    """
    fields = len(_SEPARATORS.findall(line.strip(" \t|,;"))) + 1
    few = len(_TOKEN.findall(line)) <= MOST_FIELD_WORDS * fields
    return fields >= LEAST_FIELDS and few and _SENTENCE_END.search(line) is None


def is_statement(unit: str, *, fenced: bool) -> bool:
    """Whether each line says something, and none is data, a call or an assignment. In a fence, a
    line that begins with a letter and does not end as declarations do may be anything.
    """
    lines = [_TAG.sub(" ", line).strip() for line in lines_of(unit)]
    if any(not has_words(line) or is_record(line) or RUNS.search(line) for line in lines):
        return False
    return not fenced or all(not line[0].isalpha() or line[-1] == ";" for line in lines)


def has_words(text: str) -> bool:
    """Whether it has three words or numbers, of which two are words, or twice as many letters of a
    script without blanks. A path or a qualified name is one word.
    """
    tokens = [token for token in text.split() if any(map(str.isalnum, token))]
    words = sum(not any(map(str.isdigit, token)) for token in tokens)
    return (len(tokens) >= LEAST_WORDS and words >= LEAST_STATEMENT_WORDS) or len(
        _WIDE.findall(text)
    ) >= 2 * LEAST_WORDS


def is_numbers(text: str) -> bool:
    """Whether it has digits, and nothing but what numbers are written with."""
    return _NO_NUMBERS.search(text) is None and any(map(str.isdigit, text))


def is_block_of_values(unit: str) -> bool:
    """Lines that all begin as data, and none of which says something beside its tags: an element of
    markup, an object. Closing tags alone are none.
    """
    lines = [line.strip() for line in lines_of(unit)]
    data = all(line[0] in DATA_STARTS or line[0] in _CLOSERS for line in lines)
    said = any(has_words(_TAG.sub(" ", line)) for line in lines)
    return data and not said and not all(line.startswith("</") for line in lines)


# --------------------------------------------------------------------------------------------------
# The kind of a text, told by its layout: each kind repeats to its own degree.
#
# No list of words is asked. What counts is how much of it is letters, how long its lines are, and
# how they begin:
#
# - data: fewer than six in ten characters are letters or blanks, or half of the lines are values;
# - table: half of the lines have a bar or a tab within, or are records (see `structure`);
# - markup: half of the lines begin with a tag;
# - code: more than one character of a hundred is a sign of code (see `markdown`). So is text of
#   which half of the lines are frames of a stack trace, or a quarter are calls or statements;
# - list: half of the lines begin with a mark, or as the line before does, numbers and marks aside;
# - verse: four lines or more, none longer than 72 bytes; but who speaks sentences behind a name and
#   a colon makes prose;
# - prose: all other text.

TextKind: TypeAlias = Literal["prose", "verse", "list", "table", "markup", "code", "data"]

DATA_PERCENT = 60
LONG_LINE_BYTES = 32
VERSE_LINE_BYTES = 72
LEAST_LINES = 4
ALIKE_CHARS = 4
"""Two lines are alike if they share this many characters at their beginning."""
_BARS = re.compile(r".[|\t\u2502\u2503\u2551]")
_RUNS = re.compile(r"\w\(|[;{}]$")
_LINE_OF_SPEAKER = re.compile(r"\W{0,4}[^\W\d_][\w .'-]{0,24}\W{0,2}[:\uff1a]")
_ENDS = frozenset(".!?\u2026\u3002\uff01\uff1f")
"""The signs at the end of a sentence."""
_NUMBER = "0123456789.)*-# "
"""The characters with which a numbered line starts."""
_WIDE_LETTER = re.compile(r"[\u0e00-\u0e7f\u3040-\u9fff\uac00-\ud7a3]")


def kind_of(text: str) -> TextKind:
    """The kind of `text`, of which some hundred characters are enough."""
    if words_percent(text) < DATA_PERCENT:
        return "data"
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    half = len(lines) / 2
    if sum(_BARS.search(line) is not None or is_record(line) for line in lines) > half:
        return "table"
    if sum(line[0] == "<" for line in lines) > half:
        return "markup"
    if is_code(text) or is_frame(text):
        return "code"
    if len(lines) < LEAST_LINES:
        return "prose"
    if 4 * sum(_RUNS.search(line) is not None for line in lines) >= len(lines):
        return "code"
    if sum(line[-1] == "," and line[0] in DATA_STARTS for line in lines) > half:
        return "data"
    begins = [line.lstrip(_NUMBER)[:ALIKE_CHARS] for line in lines]
    alike = sum(one == other for one, other in pairwise(begins))
    if max(alike, sum(MARKED.match(line) is not None for line in lines)) >= half:
        return "list"
    speakers = sum(_LINE_OF_SPEAKER.match(line) is not None and line[-1] in _ENDS for line in lines)
    short = all(len(line.encode("utf-8", "surrogatepass")) <= VERSE_LINE_BYTES for line in lines)
    return "verse" if speakers < half and short else "prose"


def is_rows(text: str) -> bool:
    """Whether half of the lines are frames of a stack trace, or half of the characters stand in
    records, which run nothing.
    """
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    in_records = sum(len(line) for line in lines if is_record(line) and RUNS.search(line) is None)
    return is_frame(text) or 2 * in_records > sum(map(len, lines))


def has_long_lines(text: str) -> bool:
    """Whether at least half of the bytes, blanks around lines aside, stand in lines of
    `LONG_LINE_BYTES` or more.
    """
    lengths = [len(line.strip()) for line in text.encode("utf-8", "surrogatepass").split(b"\n")]
    return 2 * sum(length for length in lengths if length >= LONG_LINE_BYTES) >= sum(lengths)


def has_wide_letters(text: str) -> bool:
    """Whether a third of it at least is of scripts whose letters are words or syllables: Chinese,
    Japanese, Korean, Thai.
    """
    return 3 * len(_WIDE_LETTER.findall(text)) >= len(text)

"""The kind of a text, told by its layout: each kind repeats to its own degree.

No list of words is asked. What counts is how much of it is letters, how long its lines are, and how
they begin:

- data: fewer than six in ten characters are letters or blanks, or half of the lines are values;
- table: half of the lines have a bar or a tab within, or are records (see `structure`);
- markup: half of the lines begin with a tag;
- code: more than one character of a hundred is a sign of code (see `markdown`). So is text of which
  half of the lines are frames of a stack trace, or a quarter are calls or statements;
- list: half of the lines begin with a mark, or as the line before does, numbers and marks aside;
- verse: four lines or more, none longer than 72 bytes; but who speaks sentences behind a name and a
  colon makes prose;
- prose: all other text.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal, TypeAlias

from monitor.detectors.text.markdown import is_code, words_percent
from monitor.detectors.text.structure import DATA_STARTS, MARKED, RUNS, is_frame, is_record

TextKind: TypeAlias = Literal["prose", "verse", "list", "table", "markup", "code", "data"]

DATA_PERCENT = 60
LONG_LINE_BYTES = 32
VERSE_LINE_BYTES = 72
LEAST_LINES = 4
ALIKE_CHARS = 4
"""Two lines are alike if they share this many characters at their beginning."""
_BARS = re.compile(r".[|\t\u2502\u2503\u2551]")
_RUNS = re.compile(r"\w\(|[;{}]$")
_SPEAKER = re.compile(r"\W{0,4}[^\W\d_][\w .'-]{0,24}\W{0,2}[:\uff1a]")
_ENDS = frozenset(".!?\u2026\u3002\uff01\uff1f")
"""The signs at the end of a sentence."""
_NUMBER = "0123456789.)*-# "
"""The characters with which a numbered line starts."""
_WIDE = re.compile(r"[\u0e00-\u0e7f\u3040-\u9fff\uac00-\ud7a3]")


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
    speakers = sum(_SPEAKER.match(line) is not None and line[-1] in _ENDS for line in lines)
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
    return 3 * len(_WIDE.findall(text)) >= len(text)

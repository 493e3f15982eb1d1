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

from monitor.detectors.text.markdown import is_code, words_percent

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
_WORD = re.compile(r"[^\W\d_]+")
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
    return len(_WORD.findall(text)) >= LEAST_WORDS or len(_WIDE.findall(text)) >= 2 * LEAST_WORDS


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

"""Removes the parts of a result that change by themselves.

Failure answered: an agent gets the same answer again and again, but the answer contains a time, a
process id or a request id. So it seems to make progress.

Rules:

- A field is known by its name, in a JSON record of any kind: when it was answered, how long that
  took, ids of processes and of requests, counters of attempts. The record of an execution (it has
  an exit code) also names where it ran: folder, host, user, shell.
- In text a thing is known by its form: times of the day with seconds and the date before them,
  UUIDs, hashes, addresses, ids with a prefix (`req_...`). Also the number behind `pid` or
  `attempt`, durations behind `in` or `took`, ages in a table, temporary names.
- Any other number is progress: a percentage, a line, a price, the rest of a wait, a measurement.
- An answer that consists only of such parts was the question, and stays: `date`, a new id. More
  than three ids are a list, and stay as well.
- Only answers to the same call are compared in this way. Different calls may each ask for an id or
  a time. There such fields are removed only from the record of an execution, and from answers to
  one question in other words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from monitor.detectors.calls.patterns import FilteredPattern, outline

READ_CHARS = 32_768
"""How much of a longer text is examined, half of it from each end. The middle is compared
unchanged.
"""
UNPACKED_CHARS = 8 * READ_CHARS
"""A longer record is read as text."""
FEW_IDS = 3
NESTED = 3
"""How often a record is unpacked from a string within a record: tool servers send JSON as text in
JSON.
"""

# Fields of records

_ANSWER = (
    r"time_?stamp|ts|now|as_?of|(server|current|request|response|generated|fetched|retrieved|checked|queried|cached|expires)_?(time|at|on|in)"
    r"|elapsed(_?time)?|took|latency|duration_?(ms|us|ns)|(query|search|processing|execution|wall|run|response)_?time|up_?time"
    r"|(pp?|pg|t)id|(process|request|req|trace|span|correlation|session|invocation|execution|terminal|shell)_?id|nonce"
    r"|(execution|attempt|retry|poll|call|request|invocation)_?(count|number|no)|attempts?|retr(y|ies)|rate_?limit_?remaining"
)
_EXIT = r"exit_?(code|status)|return_?code|stdout"
_EXECUTION = (
    r"duration|execution_?(time|count)|(start(ed)?|finish(ed)?|end(ed)?)(_?(at|time|on))?|cwd|pwd|work(ing)?_?dir(ectory)?"
    r"|current_?(working_?)?dir(ectory)?|directory|host(_?name)?|user(_?name)?|shell|env(ironment)?|venv|py(thon)?_?interpreter_?path"
)
_UNIT = r"(_?(ms|us|ns|s|secs?|seconds|millis|milliseconds))?"
_ANSWER_FIELD = re.compile(f"({_ANSWER}){_UNIT}", re.IGNORECASE)
_EXECUTION_FIELD = re.compile(f"({_ANSWER}|{_EXECUTION}){_UNIT}", re.IGNORECASE)
_NO_FIELD = re.compile(r"(?!)")
_EXIT_FIELD = re.compile(_EXIT, re.IGNORECASE)
_FIELD = re.compile(r'"(\w{2,32})\\{0,3}"\s{0,3}:')
FIELDS_KEPT = 1_024
"""How many classified names of fields are cached."""
_EXIT_TEXT = FilteredPattern(
    re.compile(r"\bexit(ed)?\b.{0,12}\b(code|status)\b", re.IGNORECASE),
    around=re.compile(r"exit(?:ed)?\b.{0,12}\b(?:code|status)\b").search,
)
_PLACE = re.compile(
    r"^[\[(]?(current |working |current working )?(directory|dir|cwd|python"
    r" interpreter|host(name)?|user(name)?|shell): .*$",
    re.IGNORECASE | re.MULTILINE,
)
"""Where a command ran, as a line of its own beside what it printed (OpenHands, Gemini CLI)."""

# Forms in text. Where possible, a pattern begins with one character and a lookbehind after it, so
# that other characters are skipped quickly.

_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_CLOCK = (
    r"\d\d:\d\d(?:[.,]\d{1,9})?(?: ?[AP]M\b)?(?: ?(?:Z|UTC|GMT|CES?T|E[SD]T|P[SD]T)\b| ?[+-]\d\d:?\d\d\b)?(?:"
    r" 20\d\d\b)?"
)
"""The part of a time of day after the hours and the first colon."""
_TIMES = FilteredPattern(
    re.compile(
        r"[0-9](?<![\w.].)(?:"
        r"(?:\d{3}[-/.]\d\d[-/.]\d\d[T ,_]{1,2}|\d?[-/.]\d\d?[-/.]\d{4}[T ,]{1,2}"
        rf"|\d?[ /-]{_MONTH}[ /-]\d{{4}}[: ])\d\d?:{_CLOCK}"
        rf"|\d?:{_CLOCK}|\d{{7}}[T_-]\d{{6}}Z?\b|\d{{9}}\.\d{{3,9}}\b|\d{{0,3}}[smhd] ago\b"
        r"|(?<=\t.)\d{0,5}\.\d{1,9}s$"  # how long a package of tests took (`go test`)
        # the last column of a table: how old something is (`kubectl get pods`)
        r"|(?<=  .)\d{0,3}[dhms](?:\d{1,4}[dhms]){0,2}$"
        r")",
        re.MULTILINE,
    ),
    around=re.compile(
        r"0(?<![\w.].)(?=0?:00|0{0,3}[dhms](?: ago|(?:0{1,4}[dhms]){0,2}(?:\n|\Z))|0?[-/.]00?[-/.]0000"
        r"|0?[ /-][a-z]{3}[ /-]0000|000[-/.]00[-/.]00"
        r"|0{7}[t_-]0{6}|0{9}\.000|0{0,5}\.0{1,9}s)"
    ).search,
)
_MONTH_WORD = re.compile(r" (?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec) ")
_DAYS = FilteredPattern(
    re.compile(
        rf"[A-Z](?<![A-Za-z].)[a-z]{{2}}(?:,? (?=(?:\d\d? )?{_MONTH} )"
        r"| {1,2}\d\d?,? (?:20\d\d,? )?(?=\d\d?:\d\d:\d\d))"
    ),
    around=lambda outline: "0:00:00" in outline or _MONTH_WORD.search(outline),
)
"""The day of the week before a date; month and day before a time."""
_DURATION = FilteredPattern(
    re.compile(
        r"[0-9](?<![\w.].)\d{0,9}(?P<exact>\.\d{1,9} ?|(?= ?[mun]s\b) ?)?"
        r"(?: ?(?:[mun]s|s|secs?|seconds?|m|min|minutes?)\b)"
    ),
    around=re.compile(r"0(?<![\w.].)(?=0{0,9}(?:\.0{1,9})? {0,2}(?:[mun]?s|secs?|seconds?|m|min|minutes?)\b)").search,
)
_INCIDENTAL = re.compile(
    r"(?<![A-Za-z])(?:in|after|took|elapsed|duration|time|finished|completed|done)[:=(]{0,2} {0,10}$", re.IGNORECASE
)
_TOOK = re.compile(r"(?<![A-Za-z])(?:took|elapsed|duration)[:=(]{0,2} {0,10}$", re.IGNORECASE)
_LABEL_CHARS = 24
"""How far the word before a duration may reach."""
_COUNTED = re.compile(r"(?:attempt|try|poll)(?:s|ed)?(?: (?:no\.?|number|count))?[ :=#]{1,2}0")
_PROCESS = re.compile(r"(?:pid|pgid)s?[\"']?\s?[:=#]?\s?0")
_CELL = re.compile(r"(?:in|out) ?\[0")
_LABELS = (
    ("attempt", _COUNTED),
    ("try", _COUNTED),
    ("poll", _COUNTED),
    ("pid", _PROCESS),
    ("pgid", _PROCESS),
    ("[0", _CELL),
)
"""Each label, or another part of it that is rarer, and what it looks like with its number."""
_LABELLED = FilteredPattern(
    re.compile(
        r"(?<![A-Za-z])(?:"
        r"(?:pp?id|pgid|pids)\b[\"']?\s?[:=#]?\s?\d+"
        r"|(?:attempt|retry|try|poll)(?:s|ed)?(?: (?:no\.?|number|count))?[ :=#]{1,2}\d+"
        r"|(?:in|out) ?\[\d+\]"  # cells of a notebook
        r")",
        re.IGNORECASE,
    ),
    around=lambda outline: any(word in outline and number.search(outline) for word, number in _LABELS),
)
_OWNERS = ("request", "trace", "correlation", "session", "span", "operation", "process", "shell")
_ID_OF = FilteredPattern(
    re.compile(
        r"[iI][dD](?:"
        + "|".join(rf"(?<=[{name[0]}{name[0].upper()}]{name[1:]}{gap}..)" for name in _OWNERS for gap in ("", "[ _-]"))
        + r")[\"']?\s?[:=#]?\s?[\"']?[\w.-]{0,64}"
    ),
    around=re.compile(f"id(?:{'|'.join(f'(?<={name}{gap}..)' for name in _OWNERS for gap in ('', '[ _-]'))})").search,
)
"""`request id: 9f3c`, `sessionId=17`: an id of any form."""
_HEX_AS_0 = bytes(ord("0") if chr(code) in "0abcdef" else ord(" ") for code in range(256))
_HEX_RUN = b"0" * 12


def _has_long_hex(outline: str) -> bool:
    """Whether it has as many hexadecimal digits in a row as the last part of a UUID."""
    return _HEX_RUN in outline.encode("latin-1").translate(_HEX_AS_0)


_IDS = FilteredPattern(
    re.compile(
        r"[0-9a-fA-F](?<![0-9A-Za-z].)(?:"
        r"[0-9a-fA-F]{7}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
        r"|(?:(?<=[0-9])(?=[0-9]{0,126}[a-f])|(?<=[a-f])(?=[a-f]{0,126}[0-9]))[0-9a-f]{15,127}"
        r")(?![0-9A-Za-z])"
    ),
    around=_has_long_hex,
)
"""UUIDs and hashes."""
_NAMES = (
    *("request", "req", "run", "resp", "trace", "toolu", "task", "tx", "txn", "span", "session", "ses", "sess", "call"),
    *("conv", "msg", "evt", "job", "op"),
)
_NAMED_IDS = FilteredPattern(
    re.compile(
        rf"(?<![0-9A-Za-z])(?:{'|'.join(_NAMES)})"
        r"[_-](?=[A-Za-z_-]{0,40}\d)[0-9A-Za-z_-]{8,64}(?![0-9A-Za-z])"
    ),
    around=re.compile(
        f"[_-](?=[0a-z_-]{{8}})(?=[a-z_-]{{0,40}}0)(?:{'|'.join(f'(?<={name}.)' for name in _NAMES)})"
    ).search,
)
_ADDRESS = FilteredPattern(re.compile(r"0x(?<![0-9A-Za-z]..)[0-9a-fA-F]{4,16}\b"), ("0x",))
_TEMPORARY = FilteredPattern(
    re.compile(r"(?:tmp(?<=[/\\]tmp)[._]?[0-9A-Za-z_]{6,12}|pytest-(?<=[/\\]pytest-)\d{1,6})\b"), ("tmp", "pytest-0")
)
_PLANNED = re.compile(
    r'"(?:start|begin|end|due|from|to|until|when|slot|deadline|departure|arrival|scheduled|available)(?:_?(?:at|time|date|on))?"\s?:\s?"[^"]{1,40}"',
    re.IGNORECASE,
)
"""Times that were asked for: an appointment, a departure."""
_EMPTIED = re.compile(r'"[^"\\\n]{0,64}"\s?:\s?(?:""|\[(?:""(?:, ?)?){1,9}\]|(?=[,}\]]))')
"""Fields whose value was removed as a whole."""
_SAYS = re.compile(r"[^\W_]")


def at_ends(text: str, change: Callable[[str], str]) -> str:
    """`text` with `change` applied to its beginning and its end, or to all of it if it is short. A
    huge result must not take seconds.
    """
    if len(text) <= READ_CHARS:
        return change(text)
    half = READ_CHARS // 2
    return change(text[:half]) + text[half:-half] + change(text[-half:])


def without_fields(text: str, *, executions_only: bool = False) -> str:
    """A JSON record without the fields that change by themselves, or a text without the lines that
    say where a command ran. `executions_only`: other records keep all fields.
    """
    if text[:1] not in ("{", "["):
        return at_ends(text, _without_place)
    if len(text) > UNPACKED_CHARS or not any(map(_says_when, set(_FIELD.findall(text)))):
        return text
    try:
        record = _stripped(json.loads(text), _NO_FIELD if executions_only else _ANSWER_FIELD, NESTED)
        return json.dumps(record, sort_keys=True) if record else text
    except (ValueError, RecursionError):
        return text


def without_what_changes(text: str) -> str:
    """The form in which an answer without its volatile fields is compared with the next answer to
    the same call.
    """
    rest = at_ends(text, _without_few_forms)
    if text[:1] in ("{", "[") and (planned := _PLANNED.findall(text, 0, READ_CHARS)):
        rest = f"{rest}{planned}"
    return rest if rest == text or _SAYS.search(_EMPTIED.sub("", rest[:READ_CHARS])) else text


@lru_cache(maxsize=FIELDS_KEPT)
def _says_when(name: str) -> bool:
    """Whether a record with this field is worth unpacking."""
    return _ANSWER_FIELD.fullmatch(name) is not None or _EXIT_FIELD.fullmatch(name) is not None


def _without_place(text: str) -> str:
    return _PLACE.sub("", text) if _EXIT_TEXT.is_in(text) else text


def _without_few_forms(text: str) -> str:
    return without_forms(text, lists=True)


def without_forms(text: str, *, lists: bool = False) -> str:
    """Text without times, ids and counters. `lists`: a list of ids stays, because it was the
    question.
    """
    text = _TEMPORARY.replaced(_ID_OF.replaced(text))
    if "0" not in outline(text):
        return text
    text = _TIMES.replaced(_DAYS.replaced(text))
    text = _LABELLED.replaced(_DURATION.replaced(text, _without_incidental))
    fewer, ids = _IDS.counted(_ADDRESS.replaced(text))
    fewer, named = _NAMED_IDS.counted(fewer)
    return text if lists and ids + named > FEW_IDS else fewer


def _without_incidental(duration: re.Match[str]) -> str:
    """Drops a duration that stands beside other text; a duration that stands alone was measured,
    and stays.
    """
    said, end = duration.string, duration.start()
    label = _TOOK if duration["exact"] is None else _INCIDENTAL
    return "" if label.search(said, max(0, end - _LABEL_CHARS), end) else duration[0]


def _stripped(value: Any, volatile: re.Pattern[str], nested: int) -> Any:
    if isinstance(value, dict):
        volatile = _EXECUTION_FIELD if any(map(_EXIT_FIELD.fullmatch, value)) else volatile
        return {key: _stripped(item, volatile, nested) for key, item in value.items() if not volatile.fullmatch(key)}
    if isinstance(value, list):
        return [_stripped(item, volatile, nested) for item in value]
    if isinstance(value, str) and nested and value[:1] in ("{", "["):
        try:
            return _stripped(json.loads(value), volatile, nested - 1)
        except (ValueError, RecursionError):
            return value
    return value

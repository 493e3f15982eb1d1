"""Classifies the text of a tool's answer: an error, nothing found, or something. Failure answered:
half of all tool loops return their errors as plain text, and searches report an empty result in
many different phrases.

Rules:

- An answer is an error if it is marked as one, or begins like one. An exit code without a message
  is not an error: five greps that find nothing are a search.
- An answer found nothing if it is a blank text, an empty list or record, or one short sentence that
  says so. A record is empty if each field holds only words of the question, a zero, or a word of
  success.
"""

from __future__ import annotations

import json
import re
from typing import Any

from monitor.chunks import ToolResult
from monitor.detectors.calls.allowance import FilteredPattern

ERROR_CHARS = 200
"""An error announces itself within this beginning of the answer. goose compares the first 100
characters; shells put a path before the message.
"""
RECORD_CHARS = 1_000
"""If the record of an execution is longer, the command has printed something. A longer answer has
found something."""
_ERROR = FilteredPattern(
    re.compile(
        r"^\W*(\w*error|\w*exception|fatal|traceback|failed|failure)\b"
        r"|\b(not found|no such|does(n't| not) exist|cannot|can't|could not|permission denied|unknown|undefined|syntax"
        r" error)\b"
        r"|\b(invalid|is not (a )?valid|not provided|is required|timed out|refused)\b",
        re.IGNORECASE,
    ),
    (
        *("error", "exception", "fatal", "traceback", "failed", "failure", "not found", "no such", " exist"),
        *("cannot", "can't", "could not", "denied", "unknown", "undefined", "valid", "not provided"),
        *("is required", "timed out", "refused"),
    ),
)
_NO_MESSAGE = re.compile(
    r"\W*((no output|(command |process )?(exited|finished|failed)( with)?( exit)? (code|status):? *-?\d+"
    r"|exit (code|status):? *-?\d+)\W*)?",
    re.IGNORECASE,
)
"""An exit code, or nothing at all: the shell's way to say that a search found nothing."""
_FIELD = re.compile(r'"\w+"\s*:|\b(null|none|true|false)\b', re.IGNORECASE)
"""The parts of a record of a command that printed nothing: `{"output": "", "exit_code": 1}`."""
NOTHING_CHARS = 240
"""The longest sentence, with the repeated question, that says that nothing was found."""
_NOTHING = re.compile(
    r"(sorry,? )?((i |we |it )?(found|returned|could(n't| not) find|did(n't| not) find)|there (are|were|is|was))"
    r" (no|any|nothing|0)\b"
    r"|(none|null|nil|empty|nothing( was)? found|not found)$"
    r"|(no|0|zero) (\w{1,20}[ -]){0,4}?"
    r"(results?|match(es)?|hits?|records?|entries|documents?|items?|rows?|files?|data|pages?|emails?|tasks?|events?|information)\b"
    r"|\u6ca1\u6709|\u672a\u627e\u5230|\u65e0\u7ed3\u679c",
    re.IGNORECASE,
)
_ASIDE = re.compile(r"\w{0,40}(?:[iI]d|_m?s|took|[tT]ime|[tT]imestamp)")
"""Fields of a record that only tell when the answer was given, and how long it took."""
_EDGES = " \t\r\n.!()[]<>\"'*`-"
_SUCCESS = frozenset(
    {"ok", "success", "successful", "done", "true", "complete", "completed", "no_results", "not_found", "empty", "none"}
)


def is_error(result: ToolResult) -> bool:
    """Whether the result is marked as an error, or begins like one."""
    head = result.text[:ERROR_CHARS]
    return (result.is_error or _ERROR.is_in(head)) and not _says_nothing(result.text, head)


def found_nothing(text: str, asked: frozenset[str] = frozenset()) -> bool:
    """Whether the answer says that nothing was found. `asked`: texts of the question, which a
    record may repeat.
    """
    if len(text) > RECORD_CHARS:
        return False
    if text[:1] in ("{", "["):
        try:
            return _is_empty(json.loads(text), asked)
        except (ValueError, RecursionError):
            return False
    return _is_nothing(text)


def _is_nothing(text: str) -> bool:
    text = text.strip(_EDGES)
    return not text or (len(text) <= NOTHING_CHARS and _NOTHING.match(text) is not None)


def _is_empty(value: Any, asked: frozenset[str]) -> bool:
    if isinstance(value, dict):
        return all(_ASIDE.fullmatch(str(key)) or _is_empty(item, asked) for key, item in value.items())
    if isinstance(value, list):
        return not value or (len(value) == 1 and isinstance(value[0], dict) and _is_empty(value[0], asked))
    if isinstance(value, str):
        return value in asked or value.lower() in _SUCCESS or _is_nothing(value)
    return value is None or isinstance(value, bool) or value == 0


def _says_nothing(text: str, head: str) -> bool:
    if text.startswith("{") and len(text) <= RECORD_CHARS:
        return not any(map(str.isalpha, _FIELD.sub("", text)))
    return _NO_MESSAGE.fullmatch(head) is not None

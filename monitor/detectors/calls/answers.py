"""Says whether the text of a tool's answer is an error. Failure answered: half of all tool loops
return their errors as plain text.

Rules:

- An answer is an error if it is marked as one, or begins like one. An exit code without a message
  is not an error: five greps that find nothing are a search.
"""

from __future__ import annotations

import re

from monitor.chunks import ToolResult
from monitor.detectors.calls.allowance import FilteredPattern

ERROR_CHARS = 200
"""An error announces itself within this beginning of the answer. goose compares the first 100
characters; shells put a path before the message.
"""
RECORD_CHARS = 1_000
"""If the record of an execution is longer, the command has printed something."""
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


def is_error(result: ToolResult) -> bool:
    """Whether the result is marked as an error, or begins like one."""
    head = result.text[:ERROR_CHARS]
    return (result.is_error or _ERROR.is_in(head)) and not _says_nothing(result.text, head)


def _says_nothing(text: str, head: str) -> bool:
    if text.startswith("{") and len(text) <= RECORD_CHARS:
        return not any(map(str.isalpha, _FIELD.sub("", text)))
    return _NO_MESSAGE.fullmatch(head) is not None

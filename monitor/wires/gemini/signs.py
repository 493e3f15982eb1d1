"""The signs of Gemini's contents, by which a record is recognised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from monitor.wires.gemini.read import ROLES
from monitor.wires.plain import are_objects, is_one_of

_PARTS: Final = frozenset(
    [
        "text",
        "thought",
        "thoughtsignature",
        "functioncall",
        "functionresponse",
        "inlinedata",
        "filedata",
        "executablecode",
        "codeexecutionresult",
        "videometadata",
        "toolcall",
        "toolresponse",
        "partmetadata",
        "mediaresolution",
        "mediaprocessing",
        "audiotranscription",
        "speechmetadata",
        "documentmetadata",
        "spreadsheetmetadata",
        "audiometadata",
    ]
)
"""Fields of Gemini's parts, without underscores and capitals, because the wire format and the SDK
spell them differently.
"""


def is_content(record: Mapping[str, Any], *, strict: bool = True) -> bool:
    """Whether `record` is a content. `strict`: all of its fields and parts belong to this form, and
    a role may be missing. Otherwise a role and a list of parts are enough.
    """
    parts = record.get("parts")
    if not strict:
        return is_one_of(record.get("role"), {"user", "model"}) and isinstance(parts, list)
    if not record or not record.keys() <= {"role", "parts"} or not is_one_of(record.get("role", "user"), ROLES):
        return False
    return parts is None or are_objects(parts, lambda part: bool(part) and {_plain(name) for name in part} <= _PARTS)


def _plain(name: object) -> str:
    return str(name).replace("_", "").casefold()

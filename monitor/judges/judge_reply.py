"""Reads a judge's reply: strictly if the model kept to the form, leniently if not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from monitor.errors import AdapterError

REPLY_SCHEMA = {
    "type": "object",
    "properties": {
        "analysis": {"type": "string", "description": "two or three sentences"},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
    },
    "required": ["analysis", "confidence"],
    "propertyOrdering": ["analysis", "confidence"],
}
"""The form of every judge's answer. The analysis comes first: the number follows from it."""
MOST_OBJECTS = 100
"""In a reply that is not one object, at most this many beginnings of objects are tried."""
SHOWN_CHARS = 200


@dataclass(slots=True, frozen=True)
class JudgeReply:
    """The reply of a judge's model, read."""

    analysis: str
    confidence: float


def read_reply(text: str) -> JudgeReply:
    """The JSON object with a confidence between 0 and 1 that `text` contains; fences and words
    around it are ignored.

    Models that are asked for JSON may write it in fences, add words, or put the number in quotes.
    Raises `AdapterError` if `text` has no such object, or several that differ: one may be a
    quotation from the judged run. No number is ever guessed.
    """
    replies = [reply for given in _objects(text) if (reply := _reply(given)) is not None]
    if not replies:
        raise AdapterError(f"the judge did not answer with a confidence between 0 and 1: {text[:SHOWN_CHARS]!r}")
    if len({reply.confidence for reply in replies}) > 1:
        raise AdapterError(
            f"the judge answered with several confidences: {', '.join(f'{reply.confidence:g}' for reply in replies)}"
        )
    return replies[0]


_DECODER = json.JSONDecoder()
_OPENING = re.compile(r"\{")


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    position = 0
    for _ in range(MOST_OBJECTS):
        match = _OPENING.search(text, position)
        if match is None:
            return
        try:
            found, position = _DECODER.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            position = match.end()
        else:
            yield found


def _reply(given: Mapping[str, Any]) -> JudgeReply | None:
    confidence, analysis = given.get("confidence"), given.get("analysis")
    if isinstance(confidence, str):
        try:
            confidence = float(confidence)
        except ValueError:
            return None
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        return None
    return JudgeReply(analysis if isinstance(analysis, str) else "", float(confidence))

"""A judge's reply, read strictly where the model kept to the form and leniently where it did not."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from monitor.errors import AdapterError

SHOWN_CHARS = 200


@dataclass(slots=True, frozen=True)
class Reply:
    """What every judge is asked for."""

    analysis: str
    confidence: float


def read_reply(text: str) -> Reply:
    """The first JSON object in `text` that has a confidence between 0 and 1; fences and words around it are passed over.

    Models that are asked for JSON write it in fences, say something first, or put the number in quotes. Raises `AdapterError` for a
    text without such an object: no number is ever guessed.
    """
    for given in _objects(text):
        confidence = _number(given.get("confidence"))
        if confidence is not None:
            analysis = given.get("analysis")
            return Reply(analysis if isinstance(analysis, str) else "", confidence)
    raise AdapterError(f"the judge did not answer with a confidence between 0 and 1: {text[:SHOWN_CHARS]!r}")


_DECODER = json.JSONDecoder()
_OPENING = re.compile(r"\{")


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    position = 0
    while (match := _OPENING.search(text, position)) is not None:
        try:
            found, position = _DECODER.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            position = match.end()
        else:
            if isinstance(found, dict):
                yield found


def _number(value: object) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not 0 <= value <= 1:
        return None
    return float(value)

"""A part of a message that says what OpenAI's services want back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from monitor._util.signatures import mark, origin
from monitor.messages import Reasoning

ORIGIN: Final = origin("openai", None)


def marked(fields: Mapping[str, Any]) -> Reasoning:
    """The part that says `fields`, whose keys are those of the wire format."""
    return Reasoning("", mark(fields), ORIGIN)

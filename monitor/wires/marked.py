"""Fields of a message that OpenAI's services need back, kept as a part of the message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from monitor._util.signatures import mark, origin
from monitor.messages import Reasoning

ORIGIN: Final = origin("openai", None)


def marked(fields: Mapping[str, Any]) -> Reasoning:
    """The part that holds `fields`, by their names in the wire format."""
    return Reasoning("", mark(fields), ORIGIN)

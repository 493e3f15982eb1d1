"""A part of a message that says what OpenAI's services want back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitor._util.signatures import mark
from monitor.messages import Reasoning


def marked(fields: Mapping[str, Any]) -> Reasoning:
    """The part that says `fields`, whose keys are those of the wire format."""
    return Reasoning("", mark(fields))

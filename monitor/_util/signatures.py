"""Signatures that hold more than a signature: what a provider wants back of its reasoning, as the
string that everybody keeps.

OpenAI's services want fields beside text and calls; they are a small JSON object behind a prefix,
so that no other provider's signature is mistaken for one. Anthropic wants its redacted thinking
back, behind a prefix of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

OPENAI: Final = "openai:"
REDACTED: Final = "redacted_thinking:"
"""Before the data of Anthropic's redacted thinking."""


def mark(fields: Mapping[str, Any]) -> str:
    """The signature that says `fields`, whose keys are those of OpenAI's wire format."""
    return OPENAI + json.dumps(fields, sort_keys=True, separators=(",", ":"), default=str)


def read_mark(signature: str | None) -> dict[str, Any] | None:
    """What a signature of OpenAI's says; `None` where it is another provider's, or none."""
    if signature is None or not signature.startswith(OPENAI):
        return None
    try:
        fields = json.loads(signature[len(OPENAI) :])
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None

"""What OpenAI's services want back beside text and calls, as the signature of a `Reasoning`.

A signature is a string to everybody else; here it is a small JSON object behind a prefix, so that no other provider's signature is
mistaken for one. Its keys are those of the wire format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

_PREFIX: Final = "openai:"


def mark(fields: Mapping[str, Any]) -> str:
    """The signature that says `fields`."""
    return _PREFIX + json.dumps(fields, sort_keys=True, separators=(",", ":"))


def read_mark(signature: str | None) -> dict[str, Any] | None:
    """What a signature says; `None` where it is another provider's, or none."""
    if signature is None or not signature.startswith(_PREFIX):
        return None
    try:
        fields = json.loads(signature[len(_PREFIX) :])
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None

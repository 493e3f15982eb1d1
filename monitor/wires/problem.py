"""A problem of a history, and helpers of the validators."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Rule: TypeAlias = Literal["shape", "empty", "role", "order", "pairing", "id", "name", "arguments", "signature"]


@dataclass(slots=True, frozen=True)
class WireProblem:
    """One reason for which the service would refuse the request."""

    index: int
    """The index of the message, content or item."""
    rule: Rule
    """The kind of the broken rule."""
    message: str
    """The problem in words, for people."""


def objects(value: object) -> list[Mapping[str, Any]] | None:
    """A list of objects; `None` for anything else."""
    if (
        isinstance(value, Sequence)
        and not isinstance(value, str | bytes)
        and all(isinstance(one, Mapping) for one in value)
    ):
        return list(value)
    return None


def text(holder: Mapping[str, Any], name: str) -> str:
    """A field that is a text; `""` if it is not one."""
    value = holder.get(name)
    return value if isinstance(value, str) else ""


def is_object(written: object) -> bool:
    """Whether a text is a JSON object."""
    try:
        return isinstance(written, str) and isinstance(json.loads(written), dict)
    except (ValueError, RecursionError):
        return False

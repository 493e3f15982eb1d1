"""What is wrong with a history, and how the validators look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Rule: TypeAlias = Literal["shape", "empty", "role", "order", "pairing", "id", "name", "arguments", "signature"]


@dataclass(slots=True, frozen=True)
class Problem:
    """One reason for which the service would refuse the request."""

    index: int
    """Of the message, content or item."""
    rule: Rule
    """Which kind of rule is broken."""
    message: str
    """For people: what is wrong."""


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
    """A field that is a text; `""` where it is none."""
    value = holder.get(name)
    return value if isinstance(value, str) else ""

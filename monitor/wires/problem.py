"""A problem of a history, for which a service would refuse it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Rule: TypeAlias = Literal["shape", "empty", "role", "order", "pairing", "id", "name", "arguments", "signature"]


@dataclass(slots=True, frozen=True)
class WireProblem:
    """One reason for which the service would refuse the request."""

    index: int
    """The index of the message, content or item."""
    rule: Rule
    """The kind of the rule that the message breaks."""
    message: str
    """The problem in words, for people."""

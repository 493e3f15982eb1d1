"""What a summary must say: its sections, and how it is asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Template:
    """The sections of a summary."""

    name: str
    sections: tuple[str, ...]

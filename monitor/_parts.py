"""Parts that the caller gives: checked where they are given, and not where they first fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monitor.errors import ConfigError


def check_parts(name: str, given: object, method: str) -> Sequence[Any]:
    """A list of detectors or sinks, checked where it is given and not where it first fails."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ConfigError(f"{name} takes a list, not {type(given).__name__}")
    for part in given:
        check_part(name, part, method)
    return given


def check_part(name: str, part: object, method: str) -> None:
    """Raise `ConfigError` for a class in place of an object, and for an object that cannot do its part."""
    if isinstance(part, type):
        raise ConfigError(f"{name} takes objects, and {part.__name__} is a class: write {part.__name__}()")
    if not callable(getattr(part, method, None)):
        raise ConfigError(f"{name}: {part!r} has no {method}()")

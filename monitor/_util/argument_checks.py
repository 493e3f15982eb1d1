"""Checks of arguments, at the place where the caller gives them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import UnionType
from typing import Any, TypeGuard

from monitor.errors import ConfigError

ROUNDING_USD = 1e-9
"""Costs are sums of floats: a limit is passed by more than this, a tenth of what a token costs at a
cent a million.
"""


def is_whole(value: object) -> TypeGuard[int]:
    """Whether `value` is a whole number. `True` is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_finite(value: object) -> TypeGuard[float]:
    """Whether `value` is a number that a float can hold, neither infinite nor NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def check_kind(name: str, given: object, kind: type | UnionType, takes: str) -> None:
    """Raise `ConfigError` for what is neither `None` nor a `kind`; `takes` says what is wanted."""
    if given is not None and not isinstance(given, kind):
        raise ConfigError(f"{name} takes {takes}, not {given!r}")


def check_parts(name: str, given: object, *methods: str) -> Sequence[Any]:
    """`given` as a list of detectors or sinks, checked where it is given. Each has one of
    `methods`.
    """
    if type(given) not in _LISTS and (not isinstance(given, Sequence) or isinstance(given, str)):
        raise ConfigError(f"{name} takes a list, not {type(given).__name__}")
    parts: Sequence[Any] = given  # type: ignore[assignment]
    for part in parts:
        check_part(name, part, *methods)
    return parts


_LISTS = (list, tuple)
"""Known at a glance: to ask whether an object is a sequence takes a microsecond."""


def check_part(name: str, part: object, *methods: str) -> None:
    """Raise `ConfigError` for a class in place of an object, and for an object without any of
    `methods`.
    """
    if isinstance(part, type):
        raise ConfigError(f"{name} takes objects, and {part.__name__} is a class: write {part.__name__}()")
    if isinstance(part, str) and methods == ("stream",):
        raise ConfigError(f"{name}: {part!r} is a name; write monitor.model({part!r})")
    if not any(callable(getattr(part, method, None)) for method in methods):
        raise ConfigError(f"{name}: {part!r} has no {methods[-1]}()")

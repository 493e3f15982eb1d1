"""Conditions as lines to type, for the messages about wrong ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass

from monitor._util.explained_options import SHOWN_CHARS


def spelled(condition: object) -> str:
    """`condition` as a line of Python, such as `monitor.MaxTurns(30)`."""
    if isinstance(parts := getattr(condition, "parts", None), tuple):
        return f" {getattr(condition, 'symbol', '|')} ".join(map(_inside, parts))
    if (part := getattr(condition, "part", None)) is not None:
        return f"~{_inside(part)}"
    kind = type(condition)
    room = "monitor." if kind.__module__.startswith("monitor.") else ""
    return f"{room}{kind.__name__}({', '.join(_arguments(condition))})"


def joined(conditions: Iterable[object]) -> str:
    """The condition that is true when one of `conditions` is, as a line of Python."""
    return " | ".join(map(_inside, conditions))


def another(condition: object) -> str:
    """A condition to show beside `condition`."""
    return "monitor.MaxTurns(30)" if "Timeout" in type(condition).__name__ else "monitor.Timeout(600)"


def wanted(name: str, given: object, kind: type, example: str) -> str:
    """The message about `given`, which is no condition: what it is, and the line to type.

    `kind`: the base of all conditions. `example`: a condition that fits.
    """
    if isinstance(given, list | tuple | set | frozenset) and given and all(isinstance(part, kind) for part in given):
        return f"{name} takes one condition, not a {type(given).__name__} of {len(given)}: write {name}={joined(given)}"
    if isinstance(given, type) and issubclass(given, kind):
        return f"{name} takes a condition, and {given.__name__} is a class: write {name}=monitor.{given.__name__}(...)"
    if isinstance(given, int | float) and not isinstance(given, bool):
        return (
            f"{name} takes a condition such as {example}, not {given!r}, which may be turns or seconds: write"
            f" {name}=monitor.MaxTurns({given!r}) or {name}=monitor.Timeout({given!r})"
        )
    line = f"monitor.Predicate({getattr(given, '__name__', 'function')})" if callable(given) else example
    line = line.replace("<lambda>", "lambda state: ...")
    return f"{name} takes a condition such as {example}, not {given!r:.{SHOWN_CHARS}}: write {name}={line}"


def _inside(condition: object) -> str:
    """`condition` as a part of a longer line."""
    text = spelled(condition)
    return f"({text})" if isinstance(getattr(condition, "parts", None), tuple) else text


def _arguments(condition: object) -> Iterable[str]:
    if not is_dataclass(condition):
        return
    for at, field in enumerate(fields(condition)):
        value = getattr(condition, field.name)
        if field.init and (field.default is MISSING or value != field.default):
            yield repr(value) if at == 0 else f"{field.name}={value!r}"

"""Descriptions of parameters in a docstring, in the styles of Google, numpy and Sphinx.

Only names that the function has are read as parameters. So a section that merely looks like a list
of parameters stays a part of the description. A docstring is read once, line by line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic.fields import FieldInfo

from monitor._util.argument_checks import signature_of

HEADINGS: Final = frozenset(
    {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters"}
)
"""Headings of sections that describe parameters, in the styles of Google and numpy."""
_FIELDS: Final = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
"""Fields of Sphinx that describe a parameter."""


@dataclass(slots=True)
class ReadDocstring:
    """A docstring, taken apart."""

    text: str
    """The docstring without what it says about single parameters."""
    parameters: dict[str, str] = field(default_factory=dict)
    """The description of each parameter that has one."""


@dataclass(slots=True)
class _ParameterEntry:
    """What is said about one parameter, or about several of the same kind (`x, y : int`)."""

    names: list[str]
    indent: int
    lines: list[str]


def docstring_of(fn: Callable[..., Any], text: str | None) -> ReadDocstring:
    """`text`, the docstring of `fn`, taken apart."""
    try:
        names: Collection[str] = signature_of(fn).parameters
    except (TypeError, ValueError):  # the reader of its arguments says so
        names = ()
    return read_docstring(text or "", names)


def is_described(annotation: object) -> bool:
    """Whether the annotation of a parameter has a description of its own."""
    return any(isinstance(one, FieldInfo) and one.description for one in getattr(annotation, "__metadata__", ()))


def read_docstring(text: str, names: Collection[str]) -> ReadDocstring:
    """Take `text` apart. `names`: the parameters of the function."""
    lines = text.split("\n")
    kept: list[str] = []
    found: dict[str, str] = {}
    at = 0
    while at < len(lines):
        end, entries = _section(lines, at, names)
        if not entries:
            kept.append(lines[at])
            at += 1
            continue
        for entry in entries:
            said = " ".join(" ".join(entry.lines).split())
            found.update({name: said for name in entry.names if said and name not in found})
        if end < len(lines) and _indent(lines[end]) > _indent(lines[at]):
            kept.append(lines[at])  # the heading of entries that are no parameters
        elif kept and not kept[-1].strip():
            kept.pop()
        at = end
    return ReadDocstring("\n".join(kept).strip("\n").rstrip(), found)


def _section(lines: list[str], at: int, names: Collection[str]) -> tuple[int, list[_ParameterEntry]]:
    """The entries of the section that begins at a line, and the line behind it. No entries: none
    begins there.
    """
    line = lines[at].strip()
    if line.startswith(":"):
        entry = _sphinx(lines[at], names)
        return _described(lines, at + 1, entry) if entry is not None else (at, [])
    title, colon, rest = line.partition(":")
    if title.lower() not in HEADINGS or rest:
        return at, []
    if colon:
        return _listed(lines, at + 1, names, least=_indent(lines[at]) + 1, google=True)
    ruled = at + 1 < len(lines) and len(lines[at + 1].strip()) > 2 and set(lines[at + 1].strip()) == {"-"}  # noqa: PLR2004 - a rule
    return _listed(lines, at + 2, names, least=_indent(lines[at]), google=False) if ruled else (at, [])


def _listed(
    lines: list[str], at: int, names: Collection[str], *, least: int, google: bool
) -> tuple[int, list[_ParameterEntry]]:
    """The entries of a section from the line `at` on, which are indented by `least` or more. The
    section ends at the first line that is none of it.
    """
    entries: list[_ParameterEntry] = []
    indent: int | None = None
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
            continue
        depth = _indent(line)
        if indent is not None and depth > indent:
            entries[-1].lines.append(line)
            at += 1
            continue
        entry = _google(line, names) if google else _numpy(line, names)
        if entry is None or depth < least or (indent is not None and depth < indent):
            break
        indent = depth
        entries.append(entry)
        at += 1
    return at, entries


def _described(lines: list[str], at: int, entry: _ParameterEntry) -> tuple[int, list[_ParameterEntry]]:
    """One entry with the deeper lines below it."""
    while at < len(lines) and lines[at].strip() and _indent(lines[at]) > entry.indent:
        entry.lines.append(lines[at])
        at += 1
    return at, [entry]


def _google(line: str, names: Collection[str]) -> _ParameterEntry | None:
    """`name (type): description`; the type may be missing, or hold colons."""
    head, _, rest = line.strip().partition(":")
    if "(" in head and ")" not in head:
        inner, closed, rest = line.strip().partition("):")
        head = inner if closed else ""
    name = head.partition("(")[0].strip().lstrip("*")
    return _ParameterEntry([name], _indent(line), [rest]) if name in names else None


def _numpy(line: str, names: Collection[str]) -> _ParameterEntry | None:
    """`name : type`, or `one, other : type`, with the description in the lines below."""
    head = line.partition(" :")[0].partition(":")[0]
    said = [name.strip().lstrip("*") for name in head.split(",")]
    return _ParameterEntry(said, _indent(line), []) if said and all(name in names for name in said) else None


def _sphinx(line: str, names: Collection[str]) -> _ParameterEntry | None:
    """`:param type name: description`, and `:type name:`, which is left out."""
    words = line.strip()[1:].partition(":")[0].split()
    if len(words) < 2 or (name := words[-1].lstrip("*")) not in names:  # noqa: PLR2004 - `param` and a name
        return None
    kind = words[0]
    if kind == "type":
        return _ParameterEntry([], _indent(line), [])
    rest = line.strip()[1:].partition(":")[2]
    return _ParameterEntry([name], _indent(line), [rest]) if kind in _FIELDS else None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())

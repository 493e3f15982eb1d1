"""Every regular expression of the package takes linear time, on whatever a model, a tool or a file
says.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pkgutil
import re
import typing
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import monitor
from monitor.chunks import ToolResult
from monitor.context.overflow import OverflowKind, OverflowRow
from monitor.detectors.calls.tool_policy import ToolPolicy
from monitor.errors import MissingExtra
from monitor.moved import MOVED
from tests.linear_time import How, ambiguities, pumps, slowest
from tests.parsed import tree_of

PACKAGE = Path(monitor.__file__).parent
CHARS = 3_000
BOUND_S = 0.05
"""For 3,000 characters. A pattern whose time grows with the square takes twice as long at least,
one that is linear a twentieth.
"""

PARTS = 4
"""Tests among which the patterns are divided, for those who run the tests at once."""

_HOWS: dict[str, How] = {"match": "match", "fullmatch": "fullmatch"}
_FUNCTIONS = {"compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn"}


@dataclasses.dataclass(frozen=True)
class Use:
    """A pattern, and how it is asked. `where`: for people."""

    where: str
    pattern: re.Pattern[str]
    how: How


# --- what there is


@cache
def modules() -> dict[str, ModuleType]:
    found = pkgutil.walk_packages(monitor.__path__, f"{monitor.__name__}.")
    names = [
        monitor.__name__,
        *(one.name for one in found if not one.name.endswith("__main__") and one.name not in MOVED),
    ]
    loaded: dict[str, ModuleType] = {}
    for name in names:
        try:
            loaded[name] = importlib.import_module(name)
        except MissingExtra as missing:
            if missing.extra not in NOT_IN_TEST:
                raise
    return loaded


NOT_IN_TEST = {"adk", "agent-framework", "crewai", "strands"}
"""Extras that have environments of their own."""


@cache
def nodes(name: str) -> list[ast.AST]:
    return list(ast.walk(tree_of(Path(typing.cast("str", modules()[name].__file__)))))


def calls_of_re(name: str) -> Iterator[ast.Call]:
    for node in nodes(name):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FUNCTIONS:
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "re":
                yield node


def made_by(name: str, call: ast.Call) -> re.Pattern[str] | None:
    """What a call of `re` compiles, if that does not depend on what a function is given."""
    assert isinstance(call.func, ast.Attribute)
    parts = [call.args[0]]
    flags = call.args[1:2] if call.func.attr == "compile" else []
    flags += [keyword.value for keyword in call.keywords if keyword.arg == "flags"]
    if call.func.attr in {"search", "match", "fullmatch", "findall", "finditer"}:
        flags += call.args[2:3]
    try:
        values = [eval(compile(ast.Expression(part), name, "eval"), vars(modules()[name])) for part in (*parts, *flags)]
    except NameError:
        return None
    return re.compile(*values)


@cache
def hows_by_name(private_in: str | None) -> dict[str, frozenset[How]]:
    """How each name is asked, in one module or all over the package; passed on to somebody, it may
    be searched for.
    """
    found: dict[str, set[How]] = {}
    for name in modules() if private_in is None else (private_in,):
        asked: set[int] = set()
        for node in nodes(name):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in _FUNCTIONS | {"scanner"}
            ):
                owner = node.func.value
                called = (
                    owner.id
                    if isinstance(owner, ast.Name)
                    else owner.attr
                    if isinstance(owner, ast.Attribute)
                    else None
                )
                if called is not None:
                    found.setdefault(called, set()).add(_HOWS.get(node.func.attr, "search"))
                    asked.add(id(owner))
        for node in nodes(name):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in asked:
                found.setdefault(node.id, set()).add("search")
    return {name: frozenset(hows) for name, hows in found.items()}


def patterns_in(value: object, depth: int = 6) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, dict):
        for one in (*value, *value.values()):
            yield from patterns_in(one, depth - 1)
    elif depth and isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from patterns_in(one, depth - 1)
    elif depth and dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from patterns_in(getattr(value, field.name, None), depth - 1)


def as_text(pattern: re.Pattern[Any]) -> re.Pattern[str]:
    """A pattern of bytes as the same one of characters."""
    if isinstance(pattern.pattern, str):
        return pattern
    return re.compile(pattern.pattern.decode("latin-1"), pattern.flags | re.ASCII)


@cache
def uses() -> list[Use]:
    found: dict[tuple[str, int, How], Use] = {}

    def add(where: str, given: re.Pattern[Any], how: How) -> None:
        pattern = as_text(given)
        found.setdefault((pattern.pattern, pattern.flags, how), Use(where, pattern, how))

    for name, module in modules().items():
        held: list[re.Pattern[str]] = []
        for attribute, value in vars(module).items():
            for pattern in patterns_in(value) if not attribute.startswith("__") else ():
                asked = (
                    hows_by_name(name if attribute.startswith("_") else None).get(attribute)
                    if pattern is value
                    else None
                )
                held.append(pattern)
                for how in sorted(asked or frozenset[How](("search",))):
                    add(f"{name}.{attribute}", pattern, how)
        for call in calls_of_re(name):
            made = made_by(name, call)
            assert isinstance(call.func, ast.Attribute)
            if made is not None and made not in held:
                add(f"{name}:{call.lineno}", made, _HOWS.get(call.func.attr, "search"))
    return list(found.values())


def function_around(name: str, call: ast.Call) -> str:
    found = [node for node in nodes(name) if isinstance(node, ast.FunctionDef) and call in ast.walk(node)]
    return f"{name}.{found[-1].name}"


# --- what holds


def _hides(alias: ast.alias) -> bool:
    return alias.name.startswith(("re.", "regex", "sre_")) or (alias.name == "re" and alias.asname is not None)


def test_no_pattern_is_out_of_sight():
    """All of them are asked for by `re.`, and what a function makes of its arguments is in the
    table below.
    """
    hidden = {
        f"{name}:{node.lineno}"
        for name in modules()
        for node in nodes(name)
        if (isinstance(node, ast.ImportFrom) and node.module in {"re", "regex", "sre_compile", "sre_parse"})
        or (isinstance(node, ast.Import) and any(_hides(alias) for alias in node.names))
    }
    assert not hidden
    made = {
        function_around(name, call) for name in modules() for call in calls_of_re(name) if made_by(name, call) is None
    }
    assert made == {*MADE, *GIVEN}
    assert len(uses()) > 60


MADE: dict[str, Callable[[], object]] = {
    "monitor.context.overflow.__post_init__": lambda: OverflowRow(
        "any", OverflowKind.OVERFLOW, phrase="<used> are more than <limit>"
    ),
    "monitor.detectors.calls.tool_policy._without": lambda: ToolPolicy(volatile=("pid", "a.b")).outcome_of(
        ToolResult("1", "t", "pid 3")
    ),
}
"""Functions that make a pattern of what they are given, and a call of each."""

GIVEN = {"monitor.tools.files.search_program.compiled"}
"""Functions that compile a pattern which a model wrote. No test can say how long it takes, so it
is searched for in a process of its own, which is killed at its deadline:
tests/tools/files/test_file_tools.py, `test_a_pattern_of_exponential_time_is_ended`.
"""


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_of_arguments_takes_linear_time(name: str, monkeypatch: pytest.MonkeyPatch):
    compiled: list[re.Pattern[str]] = []
    compiler = re._compile  # type: ignore[attr-defined]

    def seen(pattern: Any, flags: int) -> re.Pattern[str]:
        compiled.append(compiler(pattern, flags))
        return compiled[-1]

    with monkeypatch.context() as patched:
        patched.setattr(re, "_compile", seen)
        MADE[name]()
    assert compiled
    for pattern in compiled:
        assert ambiguities(pattern, "search") == []
        took, text = slowest(pattern.findall, pumps(pattern), bound_s=BOUND_S, chars=CHARS)
        assert took <= BOUND_S, text


def test_no_text_can_be_read_in_many_ways():
    found = {f"{use.where}-{use.how}": ambiguities(use.pattern, use.how) for use in uses()}
    assert {where: ways for where, ways in found.items() if ways} == {}


@pytest.mark.parametrize("part", range(PARTS))
def test_texts_made_to_slow_a_pattern_down_take_linear_time(part: int):
    for use in uses()[part::PARTS]:
        asks: dict[How, Callable[[str], Any]] = {
            "match": use.pattern.match,
            "fullmatch": use.pattern.fullmatch,
            "search": use.pattern.findall,
        }
        took, text = slowest(asks[use.how], pumps(use.pattern), bound_s=BOUND_S, chars=CHARS)
        assert took <= BOUND_S, (use.where, use.how, text)

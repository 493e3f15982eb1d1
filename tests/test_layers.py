"""The library's layers, as far as import-linter cannot see them: the standard library's clocks, and
circles.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.parsed import tree_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "monitor"

LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
CONTRACTS = {contract["id"]: contract for contract in LINTER["contracts"]}
LAYERS = [set(re.split(r"[\s|:]+", layer)) for layer in CONTRACTS["layers"]["layers"]]
PURE = set().union(*LAYERS[next(i for i, layer in enumerate(LAYERS) if "core" in layer) :])
"""The core and all rooms below it: what they answer depends on what they are given and on nothing
else.
"""

IMPURE = {
    *("datetime", "sched", "signal", "time"),
    *("random", "secrets", "uuid"),
    *("anyio", "asyncio", "concurrent", "multiprocessing", "queue", "sniffio", "threading", "trio"),
    *("aiohttp", "http", "httpx", "httpx2", "socket", "ssl", "urllib"),
    *("io", "os", "pathlib", "shutil", "sqlite3", "subprocess", "tempfile"),
    *("logging", "structlog", "warnings"),
    *("anthropic", "google", "openai"),
    *("importlib", "runpy"),
}

ALLOWED = {
    "monitor._util.lazy",  # loads our own modules, and nothing else
    "monitor._util.package_data",  # reads our own data files, as modules are read
}
"""Modules of pure rooms that may load a part of `IMPURE`."""

ONLY_IN = {
    "xxhash": ("_util",),
    # DBOS, Temporal and the proxy's server run on asyncio; local servers run a loop in a thread
    "asyncio": (
        "cli.commands.proxy",
        "guard.streams",
        "integrations.dbos",
        "integrations.temporal",
        "tools.base",
        "testing",
    ),
    "trio": ("guard.streams", "tools.base"),
    "sniffio": ("guard.streams",),
    "google": ("adapters", "cli", "integrations.adk"),  # the demo is a client of the SDK
    "openai": ("adapters", "integrations.langchain", "integrations.openai_agents"),
    "anthropic": ("adapters",),
    "agent_framework": ("integrations.agent_framework",),
    "agents": ("integrations.openai_agents",),
    "autogen_agentchat": ("integrations.autogen",),
    "autogen_core": ("integrations.autogen",),
    "langchain": ("integrations.langchain",),
    "langchain_core": ("integrations.langchain",),
    "pydantic_ai": ("integrations.pydantic_ai", "integrations.pydantic_ai_conversations"),
    "crewai": ("integrations.crewai",),
    "dbos": ("integrations.dbos",),
    "strands": ("integrations.strands",),
    "temporalio": ("integrations.temporal",),
    "mcp": ("tools.remote.mcp_transport",),
}


@dataclass(frozen=True)
class Import:
    """One import statement, wherever in the module it stands."""

    name: str
    """Absolute and dotted; for `from a import b` it is `a.b`."""
    line: int
    eager: bool
    """Carried out when the module is loaded: not inside a function, not under `if
    TYPE_CHECKING`.
    """


def imports(tree: ast.Module, package: str) -> Iterator[Import]:
    """Every import of `tree`, a module that stands in `package`."""

    def walk(node: ast.AST, *, eager: bool) -> Iterator[Import]:
        match node:
            case ast.Import(names=names, lineno=line):
                yield from (Import(alias.name, line, eager) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level, lineno=line):
                above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base = ".".join([*above, *([module] if module else [])])
                yield from (Import(f"{base}.{alias.name}", line, eager) for alias in names)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                eager = False
            case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), body=body, orelse=orelse):
                for statement in body:
                    yield from walk(statement, eager=False)
                for statement in orelse:
                    yield from walk(statement, eager=eager)
                return
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):  # an import is a statement
                yield from walk(child, eager=eager)

    return walk(tree, eager=True)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).parent.parts)


FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {module_name(path): path for path in FILES}


@cache
def all_imports() -> dict[str, list[Import]]:
    return {name: list(imports(tree_of(path), package_of(path))) for name, path in MODULES.items()}


def room(module: str) -> str:
    """`monitor.detectors.text.chant` stands in the room `detectors`."""
    return module.split(".")[1] if "." in module else ""


def target(name: str) -> str:
    """The module of ours that an imported name stands in."""
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def test_the_core_reads_no_clock_and_does_no_io():
    found = [
        f"{module}:{use.line} imports {use.name}"
        for module, uses in all_imports().items()
        if room(module) in PURE and module not in ALLOWED
        for use in uses
        if use.name.split(".")[0] in IMPURE
    ]
    assert found == []


@pytest.mark.parametrize("package", ONLY_IN)
def test_a_package_is_imported_only_in_its_place(package: str):
    found = [
        f"{module}:{use.line} imports {use.name}"
        for module, uses in all_imports().items()
        if not any(f"{module}.".startswith(f"monitor.{place}.") for place in ONLY_IN[package])
        for use in uses
        if use.name.split(".")[0] == package
    ]
    assert found == []


def test_modules_import_where_a_name_is_defined_and_not_from_the_front_door():
    """`from monitor import Timeout` inside the library would make a circle of everything."""
    found = [
        f"{module}:{use.line} imports {use.name}"
        for module, uses in all_imports().items()
        if room(module) not in {"", "cli"}
        for use in uses
        if use.name.split(".")[0] == "monitor" and target(use.name) == "monitor"
    ]
    assert found == []


def test_no_module_imports_itself_by_a_detour():
    """Every import is an arrow: also one in a function, and one that only type checkers see.

    Names that a package hands on from its own modules, loaded at first use, are no arrow.
    """
    graph = {
        module: {
            target(use.name)
            for use in uses
            if use.eager or not (MODULES[module].name == "__init__.py" and use.name.startswith(f"{module}."))
        }
        - {"", module}
        for module, uses in all_imports().items()
    }
    assert len(list(TopologicalSorter(graph).static_order())) >= len(graph)  # else CycleError with the circle


def test_the_contract_of_the_pure_rooms_follows_from_the_layers():
    assert set(CONTRACTS["pure"]["source_modules"]) == {f"monitor.{name}" for name in PURE}
    assert set(CONTRACTS["pure"]["forbidden_modules"]) <= IMPURE


def test_each_room_and_word_stands_in_one_layer():
    assert sorted(name for layer in LAYERS for name in layer) == sorted({room(module) for module in MODULES} - {""})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import time", [Import("time", 1, eager=True)]),
        ("import os.path as p, re", [Import("os.path", 1, eager=True), Import("re", 1, eager=True)]),
        ("from time import monotonic as now", [Import("time.monotonic", 1, eager=True)]),
        ("def f():\n import time", [Import("time", 2, eager=False)]),
        ("class A:\n import time", [Import("time", 2, eager=True)]),
        ("try:\n import time\nexcept ImportError: pass", [Import("time", 2, eager=True)]),
        ("if TYPE_CHECKING:\n import a\nelse:\n import b", [Import("a", 2, eager=False), Import("b", 4, eager=True)]),
        ("from . import x", [Import("monitor.detectors.x", 1, eager=True)]),
        ("from .x import y", [Import("monitor.detectors.x.y", 1, eager=True)]),
        ("from ..chunks import Chunk", [Import("monitor.chunks.Chunk", 1, eager=True)]),
    ],
)
def test_imports_are_found_wherever_they_stand(source: str, expected: list[Import]):
    assert list(imports(ast.parse(source), "monitor.detectors")) == expected


def test_nothing_outside_the_benches_imports_them():
    files = [file for folder in ("monitor", "tests", "examples", "scripts") for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 600
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    found = {
        str(file.relative_to(ROOT)): one.name
        for file, text in texts.items()
        if re.search(r"\bimport\b.*\bbench\b|\bfrom bench\b", text)  # most files need not be parsed
        for one in imports(ast.parse(text), package_of(file))
        if one.name.split(".")[0] == "bench"
    }
    assert found == {}

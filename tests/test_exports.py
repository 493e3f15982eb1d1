"""The front door: what a user imports, and what importing it costs."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import monitor

PACKAGE = Path(str(files("monitor")))
INITS = sorted(path for path in PACKAGE.rglob("__init__.py") if path.stat().st_size)
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path.stat().st_size)


def module_of(path: Path) -> str:
    parts = ("monitor", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def exported(path: Path) -> dict[str, str]:
    """Every `from a import B as B` of a file: the name, and where it comes from."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    return {alias.asname: f"{node.module}.{alias.name}" for node in imports for alias in node.names if alias.asname}


# --- names


def test_all_is_sorted_and_names_nothing_twice():
    assert monitor.__all__ == sorted(set(monitor.__all__))


@pytest.mark.parametrize("name", monitor.__all__)
def test_every_name_is_there(name: str):
    assert getattr(monitor, name) is not None


def test_all_and_the_imports_agree():
    defined = {name for name in vars(monitor) if name.startswith("__version")}
    assert set(monitor.__all__) == set(exported(PACKAGE / "__init__.py")) | defined


@pytest.mark.parametrize("path", INITS, ids=module_of)
def test_an_import_that_is_an_export_keeps_its_name(path: Path):
    for name, origin in exported(path).items():
        assert origin.rpartition(".")[2] == name
        module = importlib.import_module(origin.rpartition(".")[0])
        assert getattr(importlib.import_module(module_of(path)), name) is getattr(module, name)


@pytest.mark.parametrize("path", INITS, ids=module_of)
def test_exports_are_written_in_the_form_that_type_checkers_take_for_one(path: Path):
    """`from a import B` alone is private to a strict type checker."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    froms = [
        node
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__" and (node.module or "").startswith("monitor")
    ]
    if any(alias.asname for node in froms for alias in node.names):
        assert [alias.name for node in froms for alias in node.names if alias.asname is None and not alias.name.startswith("_")] == []


@pytest.mark.parametrize(
    "names",
    [
        "watch Guard Watched",
        "MaxTurns Timeout IdleTimeout FirstChunkTimeout MaxModelCalls MaxToolCalls TokenLimit MaxConsecutiveErrors Predicate Condition",
        "CostLimit ToolCalled OutputsComplete PlanComplete TaskDone Budget Price LimitWarning WindowWarning ContextFull",
        "TextDelta ReasoningDelta ToolCallDelta ToolCall ToolResult UsageReport TurnFinished StreamRetried",
        "Outcome TerminateReason FinishReason Turn Usage RunState Detection Evidence",
        "Continue Nudge WithdrawTool Compact LastTurn Stop Met",
        "MonitorError ConfigError AdapterError RunFailed StoreError MissingExtra",
        "Compaction CompactionResult CompactionRecord CompactionStore CompactionError Extractive PinnedFacts History repair to_form",
        "ContentRepetition SimilarMessages ToolCallRepetition Detector default_detectors",
        "JsonlSink LogSink MemorySink EventSink RunTerminated",
    ],
)
def test_what_users_rely_on_is_at_the_front_door(names: str):
    assert set(names.split()) <= set(monitor.__all__)


@pytest.mark.parametrize("package", ["monitor.compaction", "monitor.context"])
def test_what_a_package_exports_is_what_it_says(package: str):
    module = importlib.import_module(package)
    assert len(module.__all__) == len(set(module.__all__))
    assert set(module.__all__) == set(exported(Path(module.__file__ or "")))


def test_whoever_makes_a_part_of_a_compaction_finds_it_in_one_place():
    from monitor import compaction
    from monitor.compaction import base, hooks, keep

    made = [(one.__name__, one.__module__) for module in (base, hooks, keep) for one in vars(module).values() if inspect.isclass(one)]
    names = {name for name, module in made if module in {base.__name__, hooks.__name__, keep.__name__}} - {"Wishes"}
    assert names <= set(compaction.__all__)


def test_every_class_that_is_an_event_a_chunk_a_verdict_or_an_error_is_at_the_front_door():
    from monitor import errors
    from monitor.chunks import CHUNK_TYPES
    from monitor.events import EVENT_TYPES
    from monitor.verdicts import verdict_codec

    wanted = {cls.__name__ for cls in (*CHUNK_TYPES, *EVENT_TYPES, *verdict_codec._tags)}
    wanted |= {name for name, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Exception)}
    assert wanted - set(monitor.__all__) == set()


# --- what it costs


def test_importing_the_library_imports_no_sdk_no_other_event_loop_and_no_command_line():
    heavy = ("google", "openai", "anthropic", "httpx", "httpx2", "aiohttp", "requests", "trio", "typer", "sqlite3")
    program = f"import sys, monitor; print(*sorted({{name.split('.')[0] for name in sys.modules}} & set({heavy!r})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.split() == []


def test_importing_the_library_says_nothing_and_configures_nothing():
    handlers = "logging.getLogger().handlers + logging.getLogger('monitor').handlers"
    program = f"import logging, structlog, monitor; print(structlog.is_configured(), {handlers})"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout == "False []\n"
    assert done.stderr == ""


# --- what ships


def test_the_types_ship():
    assert (PACKAGE / "py.typed").is_file()


def test_the_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert monitor.__version__ == version("agent-monitor")


# --- what is said


def undocumented(path: Path) -> list[str]:
    """What of a module has no docstring: itself, its public classes and functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_"]
    public = [node for node in named if "overload" not in map(ast.unparse, node.decorator_list)]  # the implementation says it for all
    return [*(["the module"] if not ast.get_docstring(tree) else []), *(node.name for node in public if not ast.get_docstring(node))]


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_every_public_class_and_function_says_what_it_is(path: Path):
    assert undocumented(path) == []


@pytest.mark.parametrize("name", monitor.__all__)
def test_what_is_at_the_front_door_can_be_read_with_help(name: str):
    value: Any = getattr(monitor, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        doc = inspect.getdoc(value)
        assert doc
        assert not doc.startswith(f"{name}(")  # what `dataclass` writes where nobody else did

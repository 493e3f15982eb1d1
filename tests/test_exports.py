"""The front door: what a user imports, and what importing it costs."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import monitor
from monitor._util.lazy import lazy_names
from monitor.moved import MOVED as MOVED_TO
from monitor.moved import REMOVED_IN
from tests.parsed import tree_of

ROOMS = monitor._ROOMS.split()
MOVED = monitor._MOVED.split()
FRONT: ModuleType = monitor
PACKAGE = Path(str(files("monitor")))
INITS = sorted(path for path in PACKAGE.rglob("__init__.py") if path.stat().st_size)
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path.stat().st_size)


def module_of(path: Path) -> str:
    parts = ("monitor", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def froms(path: Path) -> list[ast.ImportFrom]:
    """Every `from monitor... import` of a file that a type checker reads: those under `if
    TYPE_CHECKING` too.
    """
    tree = tree_of(path)
    body = [*tree.body, *(node for block in tree.body if isinstance(block, ast.If) for node in block.body)]
    return [node for node in body if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("monitor")]


def exported(path: Path) -> dict[str, str]:
    """What a file hands on: `from a import B` with `B` in its `__all__`, or `B as B`. The name, and
    where it comes from.
    """
    listed = set(getattr(importlib.import_module(module_of(path)), "__all__", ()))
    names = ((node, alias) for node in froms(path) for alias in node.names)
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node, alias in names
        if alias.asname or alias.name in listed
    }


LAZY = [path for path in INITS if "lazy_names(" in path.read_text(encoding="utf-8")]
"""Packages whose names are loaded at first use."""


def loaded_later(path: Path) -> dict[str, str]:
    """The names of a package that are loaded at first use, and where each comes from."""
    importlib.import_module(module_of(path))
    _, get, _ = lazy_names(module_of(path))
    origins: dict[str, tuple[str, str]] = inspect.getclosurevars(get).nonlocals["origins"]
    return {name: f"{module}.{original}" for name, (module, original) in origins.items()}


# --- names


def test_all_is_sorted_and_names_nothing_twice():
    *names, last = FRONT.__all__
    assert names == sorted(set(names))
    assert last == "__version__"


@pytest.mark.parametrize("name", FRONT.__all__)
def test_every_name_is_there(name: str):
    assert getattr(monitor, name) is not None


def test_all_and_the_imports_agree():
    assert set(FRONT.__all__) == set(exported(PACKAGE / "__init__.py")) - {*ROOMS, *MOVED} | {"__version__"}


def test_the_front_door_is_small():
    assert len(FRONT.__all__) <= 70


def test_a_name_that_is_not_there_is_an_attribute_error():
    name = "Watchdog"  # a type checker knows it as well
    with pytest.raises(AttributeError, match="has no attribute 'Watchdog'"):
        getattr(monitor, name)
    assert {"Supervisor", "events"} <= set(dir(monitor))


@pytest.mark.parametrize("path", INITS, ids=module_of)
def test_an_import_that_is_an_export_keeps_its_name(path: Path):
    for name, origin in exported(path).items():
        if path.parent == PACKAGE and name in MOVED:  # it warns whoever asks for it
            continue
        assert origin.rpartition(".")[2] == name
        module = importlib.import_module(origin.rpartition(".")[0])
        assert getattr(importlib.import_module(module_of(path)), name) is getattr(module, name)


@pytest.mark.parametrize("path", INITS, ids=module_of)
def test_exports_are_written_in_the_form_that_type_checkers_take_for_one(path: Path):
    """`from a import B` alone, without `__all__`, is private to a strict type checker. So are the
    names of a package that computes its `__all__`.
    """
    computed = "__all__" not in bound_in(path) or path in LAZY
    listed = set() if computed else set(importlib.import_module(module_of(path)).__all__)
    names = {alias.name for node in froms(path) for alias in node.names if alias.asname is None}
    if listed or path in LAZY:
        assert {name for name in names if not name.startswith("_")} - listed - {"lazy_names"} == set()


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("monitor", "watch Guard Supervisor Run Compaction model load_settings"),
        (
            "monitor",
            (
                "MaxTurns Timeout IdleTimeout FirstChunkTimeout MaxModelCalls MaxToolCalls TokenLimit"
                " MaxConsecutiveErrors Predicate Condition"
            ),
        ),
        ("monitor", "CostLimit Budget Price Retries Plan Window"),
        ("monitor", "Outcome TerminateReason FinishReason "),
        ("monitor", "Verdict Continue Nudge WithdrawTool Compact LastTurn Stop Ladder StopAtFirstLoop "),
        (
            "monitor",
            ("ContentRepetition ToolCallRepetition ToolPolicy default_detectors"),
        ),
        (
            "monitor",
            ("ConfigError ToolError tool ToolContext UserMessage AssistantMessage  "),
        ),
        ("monitor.chunks", "Usage"),
        ("monitor.conditions", "OutputsComplete PlanComplete ToolCalled TaskDone"),
        ("monitor.detectors", "NoProgress UnknownTool ToolCallCycle SimilarMessages"),
        ("monitor.errors", "MonitorError"),
        ("monitor.guard", "guarding"),
        ("monitor.judges", "DoneJudge"),
        ("monitor.messages", "Media Text"),
        ("monitor.outcome", "Turn RunFailed"),
        ("monitor.policy", "ObserveOnly"),
        ("monitor.sinks", "JsonlSink LogSink"),
        ("monitor.verdicts", "Detection"),
        (
            "monitor.chunks",
            "TextDelta ReasoningDelta ToolCallDelta ToolCall ToolResult UsageReport TurnFinished StreamRetried",
        ),
        ("monitor.events", "RunTerminated LimitWarning WindowWarning ContextFull Event event_codec"),
        ("monitor.errors", "AdapterError StoreError MissingExtra"),
        (
            "monitor.context",
            "CompactionResult CompactionRecord CompactionStore CompactionError Extractive PinnedFacts",
        ),
        ("monitor.context", "History repair window_of"),
        ("monitor.adapters", "to_form"),
        ("monitor.sinks", "MemorySink EventSink"),
        ("monitor.core", "RunCore"),
        ("monitor.guard", "Guard Watch Watched Clock SystemClock"),
        ("monitor.goal", "Outputs PlanState Step"),
        ("monitor.verdicts", "Evidence Met Judgement"),
    ],
)
def test_what_users_rely_on_is_there(module: str, names: str):
    assert set(names.split()) <= set(dir(importlib.import_module(module)))
    if module == "monitor":
        assert set(names.split()) <= set(FRONT.__all__)


@pytest.mark.parametrize("package", ["monitor.guard", "monitor.context"])
def test_what_a_package_exports_is_what_it_says(package: str):
    module = importlib.import_module(package)
    assert len(module.__all__) == len(set(module.__all__))
    assert set(module.__all__) == set(exported(Path(module.__file__ or "")))


def test_whoever_makes_a_part_of_a_compaction_finds_it_in_one_place():
    """The classes that the methods of such a part take and give."""
    from monitor.context import cut
    from monitor.context.compaction import hooks, summarizer

    modules = (summarizer, hooks, cut)
    parts = [one for module in modules for one in vars(module).values() if getattr(one, "_is_protocol", False)]
    said = [str(hint) for part in parts for method in vars(part).values() for hint in hints_of(method).values()]
    classes = {
        name
        for module in modules
        for name, one in vars(module).items()
        if inspect.isclass(one) and one.__module__.startswith("monitor.")
    }
    used = classes & set(re.findall(r"\w+", " ".join(said)))
    assert {"SummaryTask", "Summary"} <= used
    public = [importlib.import_module(f"monitor.{name}") for name in ROOMS]
    assert used <= {name for module in public for name in module.__all__}


def hints_of(method: object) -> dict[str, object]:
    return inspect.get_annotations(method) if inspect.isfunction(method) else {}


@pytest.mark.parametrize("path", LAZY, ids=module_of)
def test_a_name_that_is_loaded_later_is_no_name_of_a_submodule(path: Path):
    """Importing `monitor.context.cut` makes `cut` a name of `monitor.context`: a function of that
    name would be hidden by it, but only where the module is loaded already.
    """
    beside = {one.stem for one in path.parent.iterdir() if one.suffix == ".py" or (one / "__init__.py").is_file()}
    assert set(importlib.import_module(module_of(path)).__all__) & beside == set()


def bound_in(path: Path) -> set[str]:
    """The names of a module, as far as assignments and functions at its top make them."""
    seen = tree_of(path).body
    bound = {
        node.id
        for statement in seen
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return bound | {statement.name for statement in seen if isinstance(statement, ast.FunctionDef)}


def test_no_module_makes_type_checkers_believe_that_every_name_is_there():
    """They take a module with a `__getattr__` for one that has any name, `Superviser` too."""
    named = [path for path in SOURCES if "__getattr__" in path.read_text(encoding="utf-8")]
    assert [module_of(path) for path in named if "__getattr__" in bound_in(path)] == []


@pytest.mark.parametrize("path", LAZY, ids=module_of)
def test_what_is_loaded_later_is_what_type_checkers_are_shown(path: Path):
    assert loaded_later(path) == exported(path)


@pytest.mark.parametrize("path", LAZY, ids=module_of)
def test_what_is_loaded_later_is_listed_and_imported_by_a_star(path: Path):
    module = importlib.import_module(module_of(path))
    assert set(module.__all__) == {
        name for name in loaded_later(path) if path.parent != PACKAGE or name not in {*ROOMS, *MOVED}
    } | ({"__version__"} if module is monitor else set())
    assert {*module.__all__, *loaded_later(path)} - (set(MOVED) if module is monitor else set()) <= set(dir(module))
    taken: dict[str, Any] = {}
    exec(f"from {module_of(path)} import *", taken)
    assert {name: taken[name] for name in module.__all__} == {name: getattr(module, name) for name in module.__all__}


@pytest.mark.parametrize("name", [name.removeprefix("monitor.") for name in MOVED_TO])
def test_an_old_address_has_the_names_of_the_new_one_and_warns(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, f"monitor.{name}", raising=False)
    monkeypatch.delitem(vars(monitor), name, raising=False)
    new = importlib.import_module(MOVED_TO[f"monitor.{name}"])
    said = f"monitor.{name} is {new.__name__} now, and goes with {REMOVED_IN}"
    with pytest.warns(DeprecationWarning, match=said) as told:
        exec(compile(f"from monitor.{name} import {new.__all__[0]}", "a_program.py", "exec"))
    assert [one.filename for one in told] == ["a_program.py"], "the warning names whoever imports"
    old = sys.modules[f"monitor.{name}"]
    assert {one: getattr(old, one) for one in new.__all__} == {one: getattr(new, one) for one in new.__all__}


def test_the_table_of_old_addresses_is_whole():
    assert set(MOVED_TO) <= {f"monitor.{name}" for name in MOVED}
    assert set(MOVED) & {*dir(monitor), *FRONT.__all__} == set()


@pytest.mark.parametrize("name", sorted(set(MOVED) - {name.removeprefix("monitor.") for name in MOVED_TO}))
def test_an_old_name_of_the_front_door_is_the_one_of_its_room_and_warns(name: str):
    new = exported(PACKAGE / "__init__.py")[name]
    module, _, original = new.rpartition(".")
    assert module.removeprefix("monitor.") in ROOMS
    with pytest.warns(DeprecationWarning, match=f"monitor.{name} is {new} now, and goes with {REMOVED_IN}") as told:
        value = getattr(monitor, name)
    assert value is getattr(importlib.import_module(module), original)
    assert [one.filename for one in told] == [__file__]


# --- what it costs


def loaded_by(program: str) -> set[str]:
    """The modules that are loaded when a new process has run `program`."""
    program += "\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250, check=True)
    return set(done.stdout.split())


def ours(loaded: set[str]) -> set[str]:
    return {name for name in loaded if name.partition(".")[0] == "monitor"}


def test_importing_the_library_loads_nothing_that_is_not_used():
    """Each name is loaded at its first use. It was 62 modules of ours, and 119 in all that Python
    does not load by itself.
    """
    loaded = loaded_by("import monitor")
    assert ours(loaded) == {"monitor", "monitor._util", "monitor._util.lazy"}
    assert len(loaded - loaded_by("pass")) <= 50


def test_a_guard_loads_at_most_100_modules_of_ours():
    """`monitor.Guard` loads 100, and none of the rooms that a guard does not need."""
    loaded = ours(loaded_by("import monitor; monitor.Guard"))
    assert len(loaded) <= 100
    rooms = {
        "monitor.adapters.model_names",
        "monitor.context.compaction",
        "monitor.wires.read",
        "monitor.context.repairs",
    }
    rooms |= {"monitor.cli", "monitor.settings", "monitor.testing", "monitor.tools.functions", "monitor.transcripts"}
    rooms |= {"monitor.detectors.defaults", "monitor.detectors.text"}
    assert loaded & rooms == set()


def test_a_guarded_stream_of_text_needs_no_pydantic():
    program = """
import asyncio, monitor

async def said():
    yield "Paris."

async def main():
    async with monitor.watch(said(), stop_when=monitor.Timeout(300)) as watched:
        async for _ in watched:
            pass
    assert watched.outcome.ok

asyncio.run(main())
"""
    assert {name for name in loaded_by(program) if name.partition(".")[0] in {"pydantic", "pydantic_core"}} == set()


def test_importing_the_library_imports_no_sdk_no_other_event_loop_no_logging_library_and_no_command_line():
    heavy = (
        "google",
        "openai",
        "anthropic",
        "httpx",
        "httpx2",
        "aiohttp",
        "requests",
        "trio",
        "typer",
        "sqlite3",
        "structlog",
        "rich",
        "pydantic",
    )
    assert {name.partition(".")[0] for name in loaded_by("import monitor")} & set(heavy) == set()


def test_importing_the_library_says_nothing_and_configures_nothing():
    handlers = "logging.getLogger().handlers + logging.getLogger('monitor').handlers"
    program = f"import logging, structlog, monitor; print(structlog.is_configured(), {handlers})"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=250, check=True
    )
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
    tree = tree_of(path)
    named = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_"
    ]
    # the implementation says it for all
    public = [node for node in named if "overload" not in map(ast.unparse, node.decorator_list)]
    return [
        *(["the module"] if not ast.get_docstring(tree) else []),
        *(node.name for node in public if not ast.get_docstring(node)),
    ]


def test_every_public_class_and_function_says_what_it_is():
    found = {module_of(path): undocumented(path) for path in SOURCES}
    assert {module: names for module, names in found.items() if names} == {}


@pytest.mark.parametrize("name", FRONT.__all__)
def test_what_is_at_the_front_door_can_be_read_with_help(name: str):
    value: Any = getattr(monitor, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        doc = inspect.getdoc(value)
        assert doc
        assert not doc.startswith(f"{name}(")  # what `dataclass` writes where nobody else did

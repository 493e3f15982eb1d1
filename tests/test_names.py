"""One word, one idea: a name stands for one class, and for one module."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import monitor
from tests.parsed import tree_of

ROOT = Path(__file__).resolve().parents[1]
OLD = {ROOT / "monitor" / f"{name}.py" for name in monitor._MOVED.split()}
"""Old addresses, which hand on the names of another module."""
FILES = sorted(set((ROOT / "monitor").rglob("*.py")) - OLD)

EQUAL_FOLDERS = (
    *(f"monitor/adapters/{sdk}" for sdk in ("anthropic", "google", "openai")),
    *("monitor/cli/hooks", "monitor/integrations", "monitor/proxy/formats", "monitor/transcripts/readers"),
)
"""Folders of one provider each, or with a module for each provider, program or framework. The
folder or the module says whose a like name is.
"""
COMMANDS = ("monitor/cli/commands",)
"""A module of a command has the name that the user types."""

PLAIN = {"__init__", "__main__", "base"}
"""Modules that are told apart by their folder alone."""
EQUAL_MODULES = {"app"}  # the command line, and the proxy as an ASGI application
EQUAL_CLASSES = {
    *("Pause", "Stall"),  # steps of a local server's answer, named in its module only
}


def is_in(folders: tuple[str, ...], file: str) -> bool:
    return file.startswith(tuple(f"{folder}/" for folder in folders))


def doubled_classes(places: dict[str, list[str]]) -> set[str]:
    """The class names with several places that are not all among equals."""
    return {
        name
        for name, files in places.items()
        if len(files) > 1 and not all(is_in(EQUAL_FOLDERS, file) for file in files)
    }


def doubled_modules(places: dict[str, list[str]]) -> set[str]:
    """The module names with several places beside those among equals."""
    apart = EQUAL_FOLDERS + COMMANDS
    return {name for name, files in places.items() if sum(not is_in(apart, file) for file in files) > 1}


def test_a_class_name_stands_for_one_class():
    """A leading underscore makes no other word of it."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(str(path.relative_to(ROOT)))
    assert {name: places[name] for name in doubled_classes(places) - EQUAL_CLASSES} == {}
    assert (EQUAL_CLASSES) - doubled_classes(places) == set(), "it stands for one class now"


def test_a_module_name_stands_for_one_module():
    places: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        if path.stem not in PLAIN:
            places[path.stem].append(str(path.relative_to(ROOT)))
    assert {name: places[name] for name in doubled_modules(places) - EQUAL_MODULES} == {}
    assert (EQUAL_MODULES) - doubled_modules(places) == set(), "it stands for one module now"


def test_the_folder_says_whose_a_like_name_is_only_among_equals():
    adk, strands, reader = "monitor/integrations/adk.py", "monitor/integrations/strands.py", "monitor/core/reader.py"
    assert doubled_classes({"Stopped": [adk, strands]}) == set()
    assert doubled_classes({"Stopped": [adk, strands, reader]}) == {"Stopped"}
    assert doubled_modules({"errors": ["monitor/errors.py", "monitor/adapters/openai/errors.py"]}) == set()
    assert doubled_modules({"errors": ["monitor/errors.py", "monitor/core/errors.py"]}) == {"errors"}

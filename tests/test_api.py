"""What is public stands in a page for users, and what the pages name is there."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import monitor

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*.py"))]
ROOM_NAMES = monitor._ROOMS.split()
ROOMS = {f"monitor.{room}": importlib.import_module(f"monitor.{room}") for room in ROOM_NAMES}
PUBLIC = {"monitor": monitor, **ROOMS}
DOTTED = re.compile(r"(?<![\w./-])monitor((?:\.[A-Za-z_]\w*)+)(?![\w/]|\.py)")
WRITTEN = re.compile(r"\"monitor(\.[\w.]+)")
"""Attributes and spans of telemetry."""


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api_script", ROOT / "scripts" / "api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_of_public_names_are_up_to_date():
    stored = [ROOT / "docs" / "api.md", *(ROOT / "docs").glob("api/*.md")]
    pages = {str(page.relative_to(ROOT / "docs")): page.read_text(encoding="utf-8") for page in stored}
    assert pages == load_script().pages(), "run: python scripts/api.py"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_said_in_a_sentence(name: str):
    said = load_script().said
    names = [public for public in PUBLIC[name].__all__ if not public.startswith("__")]
    assert [public for public in names if not said(PUBLIC[name], public)] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_lists_its_names_and_has_them(name: str):
    module = PUBLIC[name]
    assert len(module.__all__) == len(set(module.__all__))
    assert [missing for missing in module.__all__ if not hasattr(module, missing)] == []


def test_a_public_name_means_one_thing():
    """`monitor.context.read` beside `monitor.transcripts.read` would be two things of one name."""
    meanings: dict[str, set[int]] = {}
    for module in PUBLIC.values():
        for name in module.__all__:
            meanings.setdefault(name, set()).add(id(getattr(module, name)))
    assert [name for name, things in meanings.items() if len(things) > 1] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_names_of_a_page_are_there_and_public(page: Path):
    """`monitor.events.Nudged` is a public name, `monitor.Guard.watch` an attribute of one. Names of
    telemetry, such as `monitor.reason`, are those that the sink writes. A module of a framework is
    imported by its name.
    """
    wrong = []
    written = {
        name for file in (ROOT / "monitor" / "sinks").glob("otel/*.py") for name in WRITTEN.findall(file.read_text())
    }
    golden = (ROOT / "fixtures" / "telemetry").glob("*.json")
    written |= {name for file in golden for name in WRITTEN.findall(file.read_text(encoding="utf-8"))}
    for dotted in DOTTED.findall(page.read_text(encoding="utf-8")):
        if page.name == "telemetry.md" and dotted in written:
            continue
        first, *rest = dotted[1:].split(".")
        public = PUBLIC.get(f"monitor.{first}")
        if (
            first == "integrations" and rest and rest[0] not in getattr(public, "__all__", ())
        ):  # imported by name only, because each imports its framework
            wrong += [dotted] * (importlib.util.find_spec(f"monitor.{first}.{rest[0]}") is None)
        elif first in ROOM_NAMES and rest:
            wrong += [dotted] * (rest[0] not in PUBLIC[f"monitor.{first}"].__all__)
        elif first not in ROOM_NAMES:
            wrong += [dotted] * (first not in PUBLIC["monitor"].__all__)
    assert wrong == []

"""The page of the design and the table of CONTRIBUTING name the house as it is."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "monitor"
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
WALKS = dict(re.findall(r"^## (The way of [^\n]+)\n(.*?)(?=^## )", DESIGN, re.MULTILINE | re.DOTALL))
FILE = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)`")
MOST_FILES = 12
"""The most files that one walk may name."""
MOST_READ = 20
"""The most files of an evening's reading."""
MOST_FLAT = 14
"""The most files that one folder may hold."""
EQUALS = {"transcripts/readers", "cli/commands", "integrations", ""}
"""Folders that list equals: readers, commands, frameworks, and the words in the root."""


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("design_script", ROOT / "scripts" / "design.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_plan_of_the_house_is_up_to_date():
    assert load_script().page() == DESIGN, "run: python scripts/design.py"


def test_every_room_says_what_it_is_for():
    said = load_script().said
    rooms = {path.parent for path in PACKAGE.rglob("__init__.py")} - {PACKAGE}
    assert [room for room in sorted(rooms) if not said(room)] == []
    shown = set(re.findall(r"^\| `([\w/]+/)` \| \S", DESIGN, re.MULTILINE))
    assert {f"{room.name}/" for room in rooms if room.parent == PACKAGE} == shown


def test_the_walks_of_a_newcomer_are_there():
    """The way of a chunk is the reading order of the evening."""
    ways = {"a call to its record", "a step to the file"}
    ways |= {"a line of a transcript to the page", "a proxied request"}
    assert {f"The way of {way}" for way in ways} <= set(WALKS)


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_names_files_that_are_there(walk: str):
    named = set(FILE.findall(WALKS[walk]))
    assert 0 < len(named) <= MOST_FILES
    assert [name for name in sorted(named) if not (PACKAGE / name).is_file()] == []


def test_the_evening_reads_twenty_files_that_are_there():
    (section,) = re.findall(r"^## The reading order[^\n]*\n(.*?)(?=^## )", DESIGN, re.MULTILINE | re.DOTALL)
    named = re.findall(r"^\| `([a-z_/]+\.py)` \| \S.*? \| \S.*? \|$", section, re.MULTILINE)
    assert 0 < len(named) == len(set(named)) <= MOST_READ
    assert [name for name in named if not (PACKAGE / name).is_file()] == []


def test_a_contributor_is_sent_to_places_that_are_there():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = re.findall(r"`((?:monitor|tests|scripts|docs|fixtures|bench)/[\w./-]*)`", page)
    missing = [place for place in places if not (ROOT / re.sub(r"(?:test_)?my_\w+(?:\.py|/)?$", "", place)).exists()]
    assert places
    assert missing == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_a_page_names_tests_that_are_there(page: Path):
    """The page of laws is worth what its tests are worth: each file, and each test by its name."""
    text = page.read_text(encoding="utf-8")
    files = re.findall(r"`(tests/[\w/]+\.py)`", text)
    assert [file for file in files if not (ROOT / file).is_file()] == []
    named = set(re.findall(r"`(test_\w+)`", text))
    if named:
        tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
        assert [name for name in sorted(named) if f"def {name}(" not in tests] == []


def test_a_folder_of_many_files_has_rooms():
    crowded = {
        folder.relative_to(PACKAGE).as_posix().removeprefix("."): count
        for folder in {path.parent for path in PACKAGE.rglob("*.py")}
        if (count := len(list(folder.glob("*.py")))) > MOST_FLAT
    }
    assert {room: count for room, count in crowded.items() if room not in EQUALS} == {}

"""No room of the package is larger than its row in `size.tsv`."""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from monitor.moved import MOVED
from tests.parsed import tree_of

ROOT = Path(__file__).resolve().parents[1]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROWS = Path(__file__).with_name("size.tsv").read_text(encoding="utf-8")


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("size_script", ROOT / "scripts" / "size.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SMALL = 60
"""A file with fewer code lines is small."""
REASONS = {
    "monitor._util.package_data": "the one module of pure rooms that may read a file",
    "monitor.integrations.openai_agents_session": "each part for a framework is imported by name",
    "monitor.tools.processes.keeper": "runs as a program of its own",
    "monitor.tools.sandbox.seatbelt": "one kind of sandbox among equals",
    "monitor.transcripts.readers.factory_droid": "one format among equals",
    "monitor.transcripts.recorded_history": "needs the messages, for which a hook does not wait",
}
"""Small files with one importer, and why they stand alone."""

size = load_script()
TABLE = size.rows(ROWS)


@cache
def rooms() -> dict[str, Any]:
    found: dict[str, Any] = size.rooms()
    return found


def test_no_room_is_larger_than_its_row():
    assert size.grown(TABLE, rooms()) == [], "take something away; or raise the row by hand and say why"


def test_no_row_is_left_for_a_room_that_is_gone():
    assert set(TABLE) == set(rooms()), "run: make size"


def test_contributing_shows_the_sum_of_the_rows():
    assert "\n| now | " in CONTRIBUTING
    assert size.landing(CONTRIBUTING, size.total(TABLE)) == CONTRIBUTING, "run: make size"


def test_a_small_file_that_one_module_imports_has_a_reason():
    """Elsewhere it would live with its importer."""
    importers: dict[str, set[str]] = {}
    for path in (ROOT / "monitor").rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    importers.setdefault(name, set()).add(str(path))
    small = {
        module
        for path in (ROOT / "monitor").rglob("*.py")
        if not path.stem.startswith("__") and size.size_of(path.read_text(encoding="utf-8")).code_lines < SMALL
        for module in [".".join(path.relative_to(ROOT).with_suffix("").parts)]
        if len(importers.get(module, ())) == 1 and module not in MOVED
    }
    assert small == set(REASONS)


def test_a_room_that_grows_by_a_line_a_file_or_a_number_is_named(tmp_path: Path):
    (tmp_path / "room").mkdir()
    module = tmp_path / "room" / "module.py"
    module.write_text('"""Words."""\n\nLIMIT = 3\n')
    before = size.rooms(tmp_path)
    assert before == {"room": (1, 1, 1)}
    code = 'def one() -> int:\n    """Words."""\n    return 1\n'
    module.write_text(f'"""Words."""\n\nLIMIT = 3  # a comment\n# another\n\n\n{code}')
    assert size.grown(before, size.rooms(tmp_path)) == ["room: 3 code_lines, and its row allows 1"]
    module.write_text('"""Words."""\n\nLIMITS = {"a": 3, "b": [-4]}\n')
    assert size.grown(before, size.rooms(tmp_path)) == ["room: 2 numbers, and its row allows 1"]
    (tmp_path / "new.py").write_text("")
    assert "." in size.grown(before, size.rooms(tmp_path))[0]


def test_rows_are_lowered_and_never_raised_or_added():
    row, small, large = size.Size(10, 2, 3), size.Size(9, 2, 3), size.Size(9, 3, 4)
    assert size.lowered({"a": row}, {"a": small, "b": small}) == {"a": small}
    assert size.lowered({"a": row}, {"a": large}) == {"a": size.Size(9, 2, 3)}
    assert size.lowered({"a": row}, {}) == {}

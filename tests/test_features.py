"""The tool behind `make features`: a table that nobody checks is a promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.features import Line, Proofs, Table, judge, read_list, read_table

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "features.py"
ROWS = {"ST-01": "maximum turns", "ST-02": "maximum time"}


def table(*, todo: str = "", later: str = "") -> Table:
    return Table(ROWS, frozenset(todo.split()), frozenset(later.split()))


def proofs(**tests: tuple[str, bool | None]) -> Proofs:
    """Tests by name, each with the ids it claims to prove and whether it passed; `None`: it was
    skipped.
    """
    out = Proofs()
    for name, (ids, passed) in tests.items():
        out.tests[name] = tuple(ids.split())
        if passed is not None:
            out.passed[name] = passed
    return out


def results(table: Table, proofs: Proofs) -> dict[str, str]:
    return {line.id: line.result for line in judge(table, proofs)[0]}


def test_a_row_with_passing_tests_passes():
    lines, problems = judge(table(), proofs(a=("ST-01", True), b=("ST-01 ST-02", True)))
    assert lines == [Line("ST-01", 2, "passes"), Line("ST-02", 1, "passes")]
    assert problems == []


def test_a_row_without_a_test_is_a_problem_unless_it_is_listed():
    assert results(table(), proofs(a=("ST-01", True))) == {"ST-01": "passes", "ST-02": "NOT PROVEN"}
    assert judge(table(), proofs(a=("ST-01", True)))[1] == ["ST-02: no test of it is marked, and it is in neither list"]
    assert judge(table(todo="ST-02"), proofs(a=("ST-01", True)))[1] == []
    assert judge(table(later="ST-02"), proofs(a=("ST-01", True)))[1] == []
    assert results(table(todo="ST-01", later="ST-02"), proofs()) == {"ST-01": "todo", "ST-02": "later"}


def test_a_failing_test_is_a_problem_even_where_others_pass_and_the_row_is_listed():
    for listed in ("", "ST-01"):
        lines, problems = judge(table(todo=f"{listed} ST-02"), proofs(a=("ST-01", True), b=("ST-01", False)))
        assert lines[0] == Line("ST-01", 2, "FAILS")
        assert problems == ["ST-01: a test fails: b"]


def test_a_skipped_test_proves_nothing():
    lines, problems = judge(table(todo="ST-02"), proofs(a=("ST-01", None)))
    assert lines[0] == Line("ST-01", 1, "NOT PROVEN")
    assert problems == ["ST-01: no test of it was run, and it is in neither list"]


def test_a_listed_row_that_passes_is_pointed_out_but_no_problem():
    lines, problems = judge(table(todo="ST-01 ST-02"), proofs(a=("ST-01", True)))
    assert lines[0].result.startswith("passes (listed as todo")
    assert problems == []


def test_ids_that_are_no_rows_are_problems():
    _, problems = judge(table(todo="ST-01 ST-02"), proofs(a=("XX-99", True), b=("", True)))
    assert problems == ["a: proves XX-99, which is no row of features.md", "b: the mark `feature` names no row"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    rows = "".join(f"| {id} | {text} |\n" for id, text in ROWS.items())
    (tmp_path / "docs" / "features.md").write_text(f"# Features\n\n| id | behaviour |\n| --- | --- |\n{rows}")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = "-p no:asyncio"\nmarkers = ["feature(*ids)"]\n'
    )
    return tmp_path


def test_lists_may_hold_several_ids_a_line_and_comments(tmp_path: Path):
    (tmp_path / "list").write_text("# nothing\nST-01 ST-02 # why\n\nST-03\n")
    assert read_list(tmp_path / "list") == ["ST-01", "ST-02", "ST-03"]
    assert read_list(tmp_path / "absent") == []


def test_contradictions_of_the_documents_are_problems(root: Path):
    page = root / "docs" / "features.md"
    page.write_text(page.read_text() + "| ST-01 | again |\n| ST-3 | a slip |\n")
    (root / "docs" / "features_todo.txt").write_text("ST-01 ST-01 XX-99\n")
    (root / "docs" / "features_later.txt").write_text("ST-01\n")
    assert read_table(root / "docs").problems == [
        "features.md has ST-01 2 times",
        "features.md has a row that cannot be read: | ST-3 | a slip |",
        "features_todo.txt has ST-01 2 times",
        "features_todo.txt names XX-99, which is no row of features.md",
        "ST-01 is both in features_todo.txt and in features_later.txt",
    ]


def run(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--root", str(root), *options]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=50, check=False)


TESTS = """
import pytest

@pytest.mark.feature("ST-01")
@pytest.mark.parametrize("n", [1, 2])
def test_one(n): pass

@pytest.mark.feature("ST-02")
def test_two(): assert {truth}

def test_without_a_row(): assert False
"""


def test_the_command_prints_a_table_and_succeeds_when_all_is_proven(root: Path):
    (root / "tests" / "test_it.py").write_text(TESTS.format(truth=True))
    done = run(root)
    assert "ST-01       2  passes\nST-02       1  passes\n2 rows: 2 passes\n" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_fails_with_a_failing_test_and_names_it(root: Path):
    (root / "tests" / "test_it.py").write_text(TESTS.format(truth=False))
    done = run(root)
    assert "problem: ST-02: a test fails: tests/test_it.py::test_two" in done.stderr
    assert done.returncode == 1


def test_collecting_only_runs_nothing_but_sees_missing_tests(root: Path):
    (root / "tests" / "test_it.py").write_text(TESTS.format(truth=False))
    done = run(root, "--collect-only")
    assert "features: 2 rows, 3 tests, 0 problems" in done.stdout
    assert done.returncode == 0
    (root / "tests" / "test_it.py").unlink()
    done = run(root, "--collect-only")
    assert "problem: ST-01: no test of it is marked" in done.stderr
    assert done.returncode == 1


def test_tests_that_cannot_be_collected_are_a_problem(root: Path):
    (root / "docs" / "features_todo.txt").write_text("ST-01 ST-02")
    (root / "tests" / "test_it.py").write_text("import nonsense_that_is_not_there")
    for options in ((), ("--collect-only",)):
        done = run(root, *options)
        assert "could not all be collected" in done.stderr
        assert done.returncode == 1

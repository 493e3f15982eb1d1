"""The table of features is proven by the run of the tests itself: a table that nobody checks is a
promise.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.config import _prepareconfig

from scripts.features import Line, Proofs, Table, judge, read_table, runs_everything

ROOT = Path(__file__).resolve().parent.parent
TABLE = Table(["ST-01", "ST-02"])


def proofs(**tests: tuple[str, bool | None]) -> Proofs:
    """Tests by name, each with the ids it claims to prove and whether it passed; `None`: it was
    skipped.
    """
    out = Proofs()
    for name, (ids, passed) in tests.items():
        out.tests[name] = tuple(ids.split()) or ("",)
        if passed is not None:
            out.passed[name] = passed
    return out


def results(proofs: Proofs) -> dict[str, str]:
    return {line.id: line.result for line in judge(TABLE, proofs)[0]}


def test_a_row_with_passing_tests_passes():
    lines, problems = judge(TABLE, proofs(a=("ST-01", True), b=("ST-01 ST-02", True)))
    assert lines == [Line("ST-01", 2, "passes"), Line("ST-02", 1, "passes")]
    assert problems == []


def test_a_row_without_a_test_is_a_problem():
    assert results(proofs(a=("ST-01", True))) == {"ST-01": "passes", "ST-02": "NOT PROVEN"}
    assert judge(TABLE, proofs(a=("ST-01", True)))[1] == ["ST-02: no test of it is marked"]


def test_a_failing_test_is_a_problem_even_where_others_pass():
    lines, problems = judge(TABLE, proofs(a=("ST-01", True), b=("ST-01", False), c=("ST-02", True)))
    assert lines[0] == Line("ST-01", 2, "FAILS")
    assert problems == ["ST-01: a test fails: b"]


def test_a_skipped_test_proves_nothing():
    lines, problems = judge(TABLE, proofs(a=("ST-01", None), b=("ST-02", True)))
    assert lines[0] == Line("ST-01", 1, "NOT PROVEN")
    assert problems == ["ST-01: no test of it was run"]


def test_ids_that_are_no_rows_are_problems():
    _, problems = judge(TABLE, proofs(a=("XX-99", True), b=("", True), c=("ST-01 ST-02", True)))
    assert problems == [
        "a: proves XX-99, which is no row of fixtures/features.tsv",
        "b: the mark `feature` names no row",
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "fixtures").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "fixtures" / "features.tsv").write_text("ST-01\tmaximum turns\nST-02\tmaximum time\n")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\ntestpaths = ["tests"]\naddopts = "-p no:asyncio"\nmarkers = ["feature(*ids)"]\n'
    )
    (tmp_path / "tests" / "conftest.py").write_text('pytest_plugins = ["scripts.features"]\n')
    (tmp_path / "tests" / "inner").mkdir()
    # as the real tests have: pluggy looks at the plugins again there
    (tmp_path / "tests" / "inner" / "conftest.py").write_text("")
    return tmp_path


def test_a_slip_in_the_rows_is_a_problem(root: Path):
    file = root / "fixtures" / "features.tsv"
    file.write_text(file.read_text() + "ST-01\tagain\nST-3\ta slip\n")
    assert read_table(file).problems == [
        "features.tsv has ST-01 2 times",
        "features.tsv has a row that cannot be read: ST-3\ta slip",
    ]


def run(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on the tests below `root`, with its temporary files there too.

    Plugins of installed packages are left out, because importing them takes seconds.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    (root / "tmp").mkdir(exist_ok=True)
    environment["PYTEST_DEBUG_TEMPROOT"] = str(root / "tmp")
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=250, check=False)


TESTS = """
import pytest

@pytest.mark.feature("ST-01")
@pytest.mark.parametrize("n", [1, 2])
def test_one(n): pass

{mark}
def test_two(): assert {truth}

def test_without_a_row(): pass
"""
PROVES = '@pytest.mark.feature("ST-02")'


def write_tests(root: Path, *, mark: str = PROVES, truth: bool = True) -> None:
    (root / "tests" / "inner" / "test_it.py").write_text(TESTS.format(mark=mark, truth=truth))


@pytest.mark.parametrize("spread", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_the_whole_run_fails_when_a_row_has_no_passing_test_although_every_test_passes(
    root: Path, spread: tuple[str, ...]
):
    write_tests(root, mark="")
    done = run(root, *spread)
    assert "4 passed" in done.stdout
    assert "features: 2 rows, 1 passes, 1 NOT PROVEN" in done.stdout
    assert "problem: ST-02: no test of it is marked" in done.stdout
    assert done.returncode == 1
    write_tests(root)
    done = run(root, *spread)
    assert "features: 2 rows, 2 passes" in done.stdout
    assert "problem: " not in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("spread", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_the_table_names_the_row_whose_test_fails(root: Path, spread: tuple[str, ...]):
    write_tests(root, truth=False)
    done = run(root, *spread, "-m", "feature", "--features")
    assert "ID      tests  result\nST-01       2  passes\nST-02       1  FAILS\n" in done.stdout
    assert "problem: ST-02: a test fails: tests/inner/test_it.py::test_two" in done.stdout
    assert done.returncode == 1


def test_a_row_whose_only_test_is_skipped_is_not_proven(root: Path):
    write_tests(root, mark=f'{PROVES}\n@pytest.mark.skip(reason="not here")')
    done = run(root)
    assert "problem: ST-02: no test of it was run" in done.stdout
    assert done.returncode == 1


@pytest.mark.parametrize("options", [("-k", "one"), ("tests/inner/test_it.py",)], ids=["by name", "by file"])
def test_a_part_of_the_suite_is_not_held_to_the_whole_table(root: Path, options: tuple[str, ...]):
    write_tests(root, mark="")
    done = run(root, *options)
    assert "features: " not in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ([], True),
        (["tests"], True),
        (["."], True),
        (["tests/test_a.py"], False),
        (["-k", "x"], False),
        (["-m", "feature"], False),
        (["--deselect", "tests/test_a.py::test_b"], False),
        (["--ignore", "tests/cli"], False),
        (["--lf"], False),
        (["--co"], False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_which_runs_are_held_to_the_whole_table(
    given: list[str], whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\ntestpaths = ["tests"]\n')
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert runs_everything(_prepareconfig(["-p", "no:terminal", *given])) is whole


def test_a_part_is_judged_when_the_table_is_asked_for(root: Path):
    write_tests(root)
    done = run(root, "-k", "one", "--features")
    assert "ST-02       0  NOT PROVEN" in done.stdout
    assert done.returncode == 1


def test_a_slip_in_the_rows_fails_a_run_in_which_all_is_proven(root: Path):
    write_tests(root)
    with (root / "fixtures" / "features.tsv").open("a") as file:
        file.write("ST-3\ta slip\n")
    done = run(root)
    assert "problem: features.tsv has a row that cannot be read: ST-3\ta slip" in done.stdout
    assert done.returncode == 1


def test_a_stopped_run_is_not_held_to_the_whole_table(root: Path):
    write_tests(root, mark="", truth=False)
    done = run(root, "-x")
    assert "features: " not in done.stdout
    assert done.returncode == 1


def test_this_suite_is_judged(pytestconfig: pytest.Config):
    assert pytestconfig.pluginmanager.hasplugin("scripts.features")


def test_every_target_that_runs_tests_is_judged_and_the_gate_runs_all_of_them():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    commands = re.findall(r"^\t@\S+/python -m pytest (.*)$", makefile, re.MULTILINE)
    whole, frameworks, rows = commands
    assert (whole, rows) == ("-q -n auto --dist worksteal", "-q -n auto --dist worksteal -m feature --features")
    # What cannot be installed beside the rest proves no row.
    assert frameworks == "-q -n auto tests/integrations"
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text("utf-8")

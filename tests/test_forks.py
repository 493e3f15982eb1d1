"""The run of the tests in several processes: it says what a run in one process says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on these tests, which are in two files, in three processes."""
    (folder / "conftest.py").write_text('pytest_plugins = ["scripts.forks"]\n')
    for name in ("test_a.py", "test_b.py"):
        (folder / name).write_text(f"import os, pytest, threading\n{tests}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--forks", "3", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
    (folder / "tmp").mkdir(exist_ok=True)
    environment["PYTEST_DEBUG_TEMPROOT"] = str(folder / "tmp")
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=250, check=False
    )


def sums(done: subprocess.CompletedProcess[str]) -> str:
    """How many tests passed and failed, as pytest says in its last line."""
    return re.sub(r" in \d.*", "", done.stdout.splitlines()[-1])


def test_every_test_runs_once_and_its_reports_and_what_it_printed_are_told(tmp_path: Path):
    done = run(
        tmp_path,
        """
@pytest.fixture(scope="module")
def shared():
    yield "shared"
    print("the end of the fixture")

@pytest.mark.parametrize("number", range(60))
def test_it(number, shared, tmp_path):
    with open(os.path.join(os.environ["PYTEST_DEBUG_TEMPROOT"], "ran"), "a") as ran:
        ran.write(f"{os.getpid()} {__file__} {number} {tmp_path}\\n")
    print(f"printed by {number}")
    assert number != 40, "a lone \\ud800"
    if number == 41:
        pytest.skip()
""",
    )
    assert sums(done) == "2 failed, 116 passed, 2 skipped"
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.count("printed by 40") == 2
    assert "printed by 4\n" not in done.stdout
    ran = [line.split() for line in (tmp_path / "tmp" / "ran").read_text().splitlines()]
    assert sorted((Path(file).name, int(number)) for _, file, number, _ in ran) == [
        (file, number) for file in ("test_a.py", "test_b.py") for number in range(60)
    ]
    assert len({folder for *_, folder in ran}) == 120


@pytest.mark.parametrize(("way", "code"), [("os.kill(os.getpid(), 9)", -9), ("os._exit(0)", 0), ("os._exit(3)", 3)])
def test_a_process_that_dies_fails_its_test_and_those_that_it_had_taken(tmp_path: Path, way: str, code: int):
    done = run(
        tmp_path,
        f"""
@pytest.mark.parametrize("number", range(60))
def test_it(number):
    if number == 30 and __file__.endswith("test_a.py"):
        {way}
""",
    )
    failed = re.findall(r"^FAILED (\S+) - (.*)$", done.stdout, re.MULTILINE)
    died = [why for test, why in failed if test == "test_a.py::test_it[30]"]
    assert [re.sub(r"\d", "N", why, count=1) for why in died] == [f"process N of the tests ended with the code {code}"]
    assert {why for _, why in failed} - {*died} <= {"this test was not run: the process that had taken it has ended"}
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) + len(failed) == 120
    assert done.returncode == 1


def test_a_process_that_ends_badly_after_its_tests_fails_the_run(tmp_path: Path):
    done = run(
        tmp_path,
        """
@pytest.fixture(scope="session", autouse=True)
def leave():
    yield
    os._exit(3)

def test_it(): pass
""",
    )
    assert "of the tests ended with the code 3" in done.stdout
    assert done.returncode == 1


def test_after_the_first_failure_no_more_tests_are_begun(tmp_path: Path):
    done = run(tmp_path, '@pytest.mark.parametrize("n", range(2_000))\ndef test_it(n): assert n', "-x")
    assert "stopping after 1 failures" in done.stdout
    assert int((re.search(r"(\d+) passed", done.stdout) or ["", "0"])[1]) < 3_998
    assert done.returncode == 1


def test_nothing_is_forked_beside_a_thread(tmp_path: Path):
    done = run(
        tmp_path,
        "threading.Thread(target=threading.Event().wait, name='mine', daemon=True).start()\n\ndef test_it(): pass",
    )
    assert "collecting the tests has left threads, which no child would have: ['mine', 'mine']" in done.stderr
    assert done.returncode == 4


def test_errors_of_the_collection_are_told_once(tmp_path: Path):
    done = run(tmp_path, "1 / 0")
    assert done.stdout.count("ERROR test_a.py") == 1
    assert done.returncode == 2


def test_where_no_test_is_chosen_none_is_said_to_have_failed(tmp_path: Path):
    done = run(tmp_path, "def test_it(): pass", "-k", "other")
    assert (sums(done), done.returncode) == ("2 deselected", 5)

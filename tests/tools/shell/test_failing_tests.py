"""What the test programs print, as recorded from real runs, shortened."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.tools.shell.shell_jobs import (
    READ_CHARS,
    READERS,
    cargo_failures,
    failing_tests,
    go_failures,
    jest_failures,
    pytest_failures,
)

PYTEST = {
    "== 2 failed, 10 passed, 1 skipped in 0.12s ==": 2,
    "=== 1 failed, 2 passed, 3 errors in 12.05s ===": 4,
    "=== 5 passed in 0.01s ===": 0,
    "5 passed, 2 warnings in 75.32s (0:01:15)": 0,
    "1 failed in 0.03s": 1,
    "!!! Interrupted: 1 error during collection !!!\n=== 1 error in 0.10s ===": 1,
    "=== no tests ran in 0.00s ===": None,
    "=== 3 deselected in 0.00s ===": None,
    "=== 1 xfailed, 2 deselected in 0.02s ===": 0,
    "3 files changed in 0.02s": None,
    "\x1b[31m\x1b[1m2 failed\x1b[0m, \x1b[32m3 passed\x1b[0m\x1b[31m in 0.06s\x1b[0m": 2,
    "== 4 failed in 1.00s ==\n... again ...\n== 1 failed, 3 passed in 1.00s ==": 1,
}
JEST = {
    "Test Suites: 1 failed, 2 passed, 3 total\nTests:       2 failed, 7 passed, 9 total\nSnapshots:   0 total": 2,
    "Test Suites: 2 passed, 2 total\nTests:       9 passed, 9 total\nTime:        1.2 s": 0,
    "Test Suites: 1 failed, 1 total\nTests:       0 total": 1,
    "Tests: I will write some": None,
    "PASS ./b.test.js\n\nTest Suites: 2 failed, 1 passed, 3 total\n"
    "Tests:       2 failed, 1 skipped, 1 todo, 2 passed, 6 total": 2,
    "\x1b[1mTest Suites: \x1b[22m\x1b[1m\x1b[31m1 failed\x1b[39m\x1b[22m, 1 total\n"
    "\x1b[1mTests:       \x1b[22m\x1b[1m\x1b[31m2 failed\x1b[39m\x1b[22m, \x1b[1m1 passed\x1b[22m, 3 total": 2,
    "Error: Tests: 9 failed, 9 total\n\nTests:       1 failed, 1 total": 1,
    "Tests:       1 failed, 1 skipped, 2 todo, 5 passed, 9 total": 1,
}
GO = {
    "--- FAIL: TestA (0.00s)\n    a_test.go:5: wrong\nFAIL\nFAIL\tm/a\t0.002s\nok  \tm/b\t0.003s\nFAIL": 1,
    "--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/one (0.00s)\n    --- FAIL: TestA/two (0.00s)\nFAIL\nFAIL\tm\t0.1s": 2,
    "ok  \texample.com/a\t(cached)\nok  \texample.com/b\t0.003s": 0,
    "# m [m.test]\n./a_test.go:3:1: undefined: x\nFAIL\tm [build failed]\nok  \tn\t0.1s\nFAIL": 1,
    "FAIL\tm [setup failed]": 1,
    "--- FAIL: TestA (0.00s)\nFAIL\tm\t0.1s\n--- FAIL: TestA (0.00s)\nFAIL\tn\t0.1s": 2,
    "panic: boom\nFAIL\tm\t0.012s": 1,
    "FAIL to see the point": None,
    "?   \tm\t[no test files]": None,
    "ok  \tm\t0.012s\tcoverage: 81.2% of statements\n\tm/c\t\tcoverage: 0.0% of statements": 0,
    "testing: warning: no tests to run\nPASS\nok  \tm\t0.01s [no tests to run]": 0,
    "=== RUN   TestA\n    a_test.go:9: no\n--- FAIL: TestA (0.41s)\n=== RUN   TestB\n--- PASS: TestB (0.00s)\n"
    "FAIL\nexit status 1\nFAIL\tm\t0.5s": 1,
    "--- FAIL: TestA (0.00s)\npanic: runtime error [recovered]\n\ngoroutine 7 [running]:\nFAIL\tm\t0.008s\nFAIL": 1,
    "# m/a [m/a.test]\na/a_test.go:14:18: undefined: f\nFAIL\tm/a [build failed]\nFAIL\tm/b [build failed]\nFAIL": 2,
}
RAN = "0 ignored; 0 measured; 0 filtered out; finished in 0.49s"
CARGO = {
    f"test a ... FAILED\n\ntest result: FAILED. 3 passed; 1 failed; {RAN}": 1,
    f"test result: ok. 3 passed; 0 failed; {RAN}\n   Doc-tests x\ntest result: FAILED. 0 passed; 2 failed; {RAN}": 2,
    "test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.00s": 0,
    f"test result: FAILED. 1 passed; 2 failed; {RAN}\n\nerror: test failed, to rerun pass `--lib`": 2,
    "error: could not compile `x` (lib test) due to 2 previous errors": None,
    # a line that a test has printed
    f"test result: ok. 0 passed; 7 failed; x\ntest result: ok. 1 passed; 0 failed; {RAN}": 0,
    f"test result: ok. 0 passed; 7 failed; {RAN}": None,
}


@pytest.mark.parametrize(("output", "failing"), PYTEST.items())
def test_pytest(output: str, failing: int | None):
    assert pytest_failures(output) == failing


@pytest.mark.parametrize(("output", "failing"), JEST.items())
def test_jest(output: str, failing: int | None):
    assert jest_failures(output) == failing


@pytest.mark.parametrize(("output", "failing"), GO.items())
def test_go(output: str, failing: int | None):
    assert go_failures(output) == failing


@pytest.mark.parametrize(("output", "failing"), CARGO.items())
def test_cargo(output: str, failing: int | None):
    assert cargo_failures(output) == failing


def test_readers_do_not_read_each_other():
    for own, outputs in {"pytest": PYTEST, "jest": JEST, "go": GO, "cargo": CARGO}.items():
        for output in outputs:
            assert [name for name, reader in READERS.items() if name != own and reader(output) is not None] == []


def test_the_numbers_of_several_programs_are_added():
    assert failing_tests("== 2 failed, 3 passed in 0.12s ==\nTests:       1 failed, 2 passed, 3 total") == 3
    assert failing_tests("all is well") is None


def test_a_real_run_of_pytest_is_read(tmp_path: Path):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.fixture\ndef broken(): raise ValueError\n"
        "def test_a(): assert 0\ndef test_b(): pass\ndef test_c(broken): pass\n"
        "@pytest.mark.xfail\ndef test_d(): assert 0\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "--color=yes", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert failing_tests(done.stdout) == 2, done.stdout


def test_of_a_very_long_output_the_end_is_read_and_a_sum_is_not_guessed():
    noise = "x" * 100 + "\n"
    long = noise * (READ_CHARS // 50)
    assert failing_tests(f"{long}== 2 failed in 0.10s ==\n") == 2
    assert failing_tests(f"{long}test result: FAILED. 3 passed; 1 failed; {RAN}") is None
    assert failing_tests(f"{long}FAIL\tm\t0.1s") is None


WORDS = [
    *"0129 ,=.s\n-:",
    "failed",
    " in ",
    "Tests:",
    "--- FAIL: ",
    "FAIL",
    "ok",
    "passed",
    "total",
    "test result: ok. ",
]


@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_any_text_is_read(words: list[str]):
    number = failing_tests("".join(words))
    assert number is None or number >= 0


def test_hostile_outputs_take_little_time():
    began = time.process_time()
    for unit in (
        "1 a, ",
        "== 1 failed in 0.1",
        "--- FAIL: x (0\n",
        "Tests: 1 a, ",
        "test result: ok. 1",
        "1 passed in 0.10s\n",
    ):
        failing_tests(unit * (16_000_000 // len(unit)))
    assert time.process_time() - began < 5


def test_the_numbers_do_not_depend_on_words_around_them():
    for outputs in (PYTEST, JEST, GO, CARGO):
        for output, failing in outputs.items():
            assert failing_tests(f"$ run the tests\n{re.sub(r'$', '', output)}\n\nDone.\n") == failing

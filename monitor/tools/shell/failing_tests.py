"""Reads the number of failing tests from the output of pytest, jest, go test and cargo test.

The detector `NoProgress` needs a number that the run tries to lower: see
`monitor.detectors.ProgressRule`. Each reader gives the number of failing tests, and 0 when all
pass. `None`: the text is no such output, or says nothing about its tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

_PYTEST_LINE: Final = re.compile(r"(?:=+ )?((?:\d+ [a-z]+, ){0,9}\d+ [a-z]+) in \d+\.\d\ds")
_PYTEST_FAILS: Final = frozenset({"failed", "error", "errors"})
_PYTEST_COUNTS: Final = _PYTEST_FAILS | {"passed", "skipped", "xfailed", "xpassed", "deselected", "warning", "warnings"}
_PYTEST_RAN: Final = _PYTEST_FAILS | {"passed", "xfailed", "xpassed"}
_JEST_LINE: Final = re.compile(r"\s*(Test Suites|Tests): +((?:\d+ [a-z]+, ){0,9}\d+ total)")
_GO_FAIL: Final = re.compile(r"\s*--- FAIL: (\S+) \(\d")
_GO_PACKAGE: Final = re.compile(r"(ok|FAIL)\s+(\S+)\s+(\d+\.\d+s|\(cached\)|\[[a-z ]+\])")
_CARGO_RESULT: Final = re.compile(
    r"test result: (?:ok\. \d+ passed; (0) failed|FAILED\. \d+ passed; (\d+) failed);"
    r" \d+ ignored; \d+ measured; \d+ filtered out"
)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_DIGITS: Final = 12
"""A longer number counts no tests, and Python refuses very long ones."""
LINE_CHARS: Final = 500
"""A longer line is no summary, and is not looked at."""
READ_CHARS: Final = 1_000_000
"""Only the end of a longer output is read. If a reader needs the numbers of all parts, it then
answers `None`.
"""


def pytest_failures(output: str) -> int | None:
    """Failed tests and errors of the last summary: `== 2 failed, 1 passed, 1 error in 0.12s ==`."""
    found = None
    for line in _lines(output, " in "):
        if (match := _PYTEST_LINE.match(line)) is not None:
            counts = _counts(match[1])
            if counts.keys() <= _PYTEST_COUNTS and not _PYTEST_RAN.isdisjoint(counts):
                found = sum(number for word, number in counts.items() if word in _PYTEST_FAILS)
    return found


def jest_failures(output: str) -> int | None:
    """Failed tests of the last summary. If no test failed: the suites that could not be run."""
    failed: dict[str, int] = {}
    for line in _lines(output, "Test"):
        if (match := _JEST_LINE.match(line)) is not None:
            failed[match[1]] = _counts(match[2]).get("failed", 0)
    return (failed["Tests"] or failed.get("Test Suites", 0)) if "Tests" in failed else None


def go_failures(output: str) -> int | None:
    """Failed tests, plus packages that failed without a test, e.g. because they do not compile. A
    test that failed only because a test within it failed does not count.
    """
    if len(output) > READ_CHARS:
        return None
    failed: list[str] = []
    number: int | None = None
    for line in _lines(output, "FAIL", "ok"):
        if (test := _GO_FAIL.match(line)) is not None:
            failed.append(test[1])
        elif (package := _GO_PACKAGE.match(line)) is not None:
            around = {name.rpartition("/")[0] for name in failed}
            leaves = sum(name not in around for name in failed)
            number = (number or 0) + (leaves or int(package[1] == "FAIL"))
            failed = []
    return number


def cargo_failures(output: str) -> int | None:
    """Failed tests of all test programs. `None` if the code did not compile: no test was run."""
    if len(output) > READ_CHARS:
        return None
    results = [match for line in _lines(output, "test result:") if (match := _CARGO_RESULT.match(line)) is not None]
    return sum(int((match[1] or match[2])[:_DIGITS]) for match in results) if results else None


READERS: Final[Mapping[str, Callable[[str], int | None]]] = MappingProxyType(
    {"pytest": pytest_failures, "jest": jest_failures, "go": go_failures, "cargo": cargo_failures}
)
"""The readers by the program whose output they read."""


def failing_tests(output: str) -> int | None:
    """The sum of the numbers that the readers find. `None`: this is no output of tests."""
    found = [number for reader in READERS.values() if (number := reader(output)) is not None]
    return sum(found) if found else None


def _counts(listed: str) -> dict[str, int]:
    """The numbers in `2 failed, 3 passed`, by their words."""
    pairs = (one.split(" ") for one in listed.split(", "))
    return {word: int(number[:_DIGITS]) for number, word in pairs}


def _lines(output: str, *words: str) -> Iterator[str]:
    """The lines that have one of `words`, without colours."""
    text = output[-READ_CHARS:]
    if not any(word in text for word in words):
        return
    for line in text.splitlines():
        if len(line) <= LINE_CHARS and any(word in line for word in words):
            yield _COLOURS.sub("", line) if "\x1b" in line else line

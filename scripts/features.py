"""Which rows of docs/features.md are proven, by which tests.

python scripts/features.py                  run the tests marked `feature`, print the table
python scripts/features.py --collect-only   only check that the table, the lists and tests agree
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROW = re.compile(r"^\| ([A-Z]{2}-\d\d) \| (.+) \|$", re.MULTILINE)
LIKE_A_ROW = re.compile(r"^\|\s*\w+-\d.*$", re.MULTILINE)


@dataclass(slots=True)
class Table:
    """What the documents say."""

    rows: Mapping[str, str]
    """The text of each row by its id, in the order of the page."""
    todo: frozenset[str]
    later: frozenset[str]
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Proofs:
    """What the tests say. A pytest plugin that notes the ids of every marked test, and how it
    went.
    """

    collect_only: bool = False
    tests: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Ids by test."""
    passed: dict[str, bool] = field(default_factory=dict)
    """By test; a skipped one is absent, because it proves nothing."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note what each test claims to prove."""
        for item in session.items:
            self.tests[item.nodeid] = tuple(
                dict.fromkeys(str(id) for mark in item.iter_markers("feature") for id in mark.args)
            )
            if self.collect_only:
                self.passed[item.nodeid] = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how it went: a failing set-up or tear-down is a failure too."""
        if report.failed:
            self.passed[report.nodeid] = False
        elif report.when == "call" and report.passed:
            self.passed.setdefault(report.nodeid, True)

    def of(self, id: str) -> list[str]:
        """The tests that claim to prove row `id`."""
        return [test for test, ids in self.tests.items() if id in ids]


@dataclass(slots=True, frozen=True)
class Line:
    """One printed line."""

    id: str
    tests: int
    result: str


def read_list(path: Path) -> list[str]:
    """The ids in a list: separated by white space, `#` starts a comment."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [word for line in lines for word in line.partition("#")[0].split()]


def read_table(docs: Path) -> Table:
    """Read the page and the two lists, and say where they contradict themselves or each other."""
    page = (docs / "features.md").read_text(encoding="utf-8")
    found = ROW.findall(page)
    rows = dict(found)
    problems = [
        f"features.md has {id} {times} times" for id, times in Counter(id for id, _ in found).items() if times > 1
    ]
    problems += [
        f"features.md has a row that cannot be read: {line}" for line in LIKE_A_ROW.findall(page) if not ROW.match(line)
    ]
    lists: dict[str, frozenset[str]] = {}
    for name in ("features_todo.txt", "features_later.txt"):
        ids = read_list(docs / name)
        problems += [f"{name} has {id} {times} times" for id, times in Counter(ids).items() if times > 1]
        problems += [
            f"{name} names {id}, which is no row of features.md" for id in dict.fromkeys(ids) if id not in rows
        ]
        lists[name] = frozenset(ids)
    todo, later = lists["features_todo.txt"], lists["features_later.txt"]
    problems += [f"{id} is both in features_todo.txt and in features_later.txt" for id in sorted(todo & later)]
    return Table(rows, todo, later, problems)


def judge(table: Table, proofs: Proofs) -> tuple[list[Line], list[str]]:
    """One line a row, and everything that is wrong."""
    lines: list[Line] = []
    problems = list(table.problems)
    for id in table.rows:
        tests = proofs.of(id)
        ran = [proofs.passed[test] for test in tests if test in proofs.passed]
        listed = "todo" if id in table.todo else "later" if id in table.later else None
        if not all(ran):
            result = "FAILS"
            problems.append(
                f"{id}: a test fails: {', '.join(test for test in tests if proofs.passed.get(test) is False)}"
            )
        elif ran:
            result = f"passes (listed as {listed}: take it out if this is all of it)" if listed else "passes"
        elif listed:
            result = listed
        else:
            result = "NOT PROVEN"
            problems.append(f"{id}: no test of it {'was run' if tests else 'is marked'}, and it is in neither list")
        lines.append(Line(id, len(tests), result))
    for test, ids in proofs.tests.items():
        if not ids:
            problems.append(f"{test}: the mark `feature` names no row")
        problems += [f"{test}: proves {id}, which is no row of features.md" for id in ids if id not in table.rows]
    return lines, problems


def show(lines: Sequence[Line], problems: Sequence[str]) -> None:
    """Print the table, the sum, and the problems."""
    print(f"{'ID':<6}  {'tests':>5}  result")
    for line in lines:
        print(f"{line.id:<6}  {line.tests:>5}  {line.result}")
    sums = Counter(line.result.split(" (")[0] for line in lines)
    print(f"{len(lines)} rows: {', '.join(f'{number} {result}' for result, number in sums.most_common())}")
    for problem in problems:
        print(f"problem: {problem}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0 if every row is proven or listed, and everything agrees."""
    parser = argparse.ArgumentParser(description="Which rows of docs/features.md are proven, by which tests.")
    parser.add_argument(
        "--collect-only", action="store_true", help="do not run the tests; only see that table, lists and tests agree"
    )
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="the checkout")
    options = parser.parse_args(arguments)
    root: Path = options.root
    proofs = Proofs(collect_only=options.collect_only)
    how = ["--collect-only", "-qqq"] if options.collect_only else ["-q"]
    ended = pytest.main(["-m", "feature", *how, f"--rootdir={root}", str(root / "tests")], plugins=[proofs])
    lines, problems = judge(read_table(root / "docs"), proofs)
    if ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        problems.append(f"pytest ended with {pytest.ExitCode(ended).name}: the tests could not all be collected")
    if options.collect_only:
        for problem in problems:
            print(f"problem: {problem}", file=sys.stderr)
        print(f"features: {len(lines)} rows, {len(proofs.tests)} tests, {len(problems)} problems")
    else:
        show(lines, problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

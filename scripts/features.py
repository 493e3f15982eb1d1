"""Which rows of docs/features.md are proven, by which tests. A plugin of pytest: the run of the
tests is the proof.

pytest                the whole suite: it fails if a row that is not "later" has no passing test
pytest --features     the same of the tests that were chosen, and the table, a line a row
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROW = re.compile(r"^\| ([A-Z]{2}-\d\d) \| (.+) \|$", re.MULTILINE)
LIKE_A_ROW = re.compile(r"^\|\s*\w+-\d.*$", re.MULTILINE)
LATER = "**later:** "
"""So begins the text of a row that is planned for a later release."""
MARK = "feature"
NARROWING = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise", "collectonly")
"""Options of pytest with which not every test is run."""


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
    """What the tests say."""

    tests: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Ids by test."""
    passed: dict[str, bool] = field(default_factory=dict)
    """By test; a skipped one is absent, because it proves nothing."""

    def add(self, report: pytest.TestReport) -> None:
        """Note how a test went: a failing set-up or tear-down is a failure too."""
        ids = tuple(dict.fromkeys(str(id) for name, id in report.user_properties if name == MARK))
        if not ids:
            return
        self.tests[report.nodeid] = ids
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
    marked = {id for id, text in rows.items() if text.startswith(LATER)}
    problems += [
        f"{id} stands in features_later.txt, and features.md does not say so: {LATER.strip()}"
        for id in sorted(later - marked)
    ]
    problems += [
        f"{id} is marked as later in features.md, and does not stand in features_later.txt"
        for id in sorted(marked - later)
    ]
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
        if "" in ids:
            problems.append(f"{test}: the mark `feature` names no row")
        problems += [
            f"{test}: proves {id}, which is no row of features.md" for id in ids if id and id not in table.rows
        ]
    return lines, problems


def in_words(lines: Sequence[Line], problems: Sequence[str], *, whole: bool) -> Iterator[str]:
    """What is printed. `whole`: a line for each row, not only the sum."""
    if whole:
        yield f"{'ID':<6}  {'tests':>5}  result"
        for line in lines:
            yield f"{line.id:<6}  {line.tests:>5}  {line.result}"
    sums = Counter(line.result.split(" (")[0] for line in lines)
    yield f"features: {len(lines)} rows, {', '.join(f'{number} {result}' for result, number in sums.most_common())}"
    for problem in problems:
        yield f"problem: {problem}"


# ------------------------------------------------------------------ the plugin


class Judged:
    """Judges the table at the end of a run. With pytest-xdist in the process that hears of all
    workers.
    """

    def __init__(self) -> None:
        self.proofs = Proofs()
        self.lines: list[Line] = []
        self.problems: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has come a step further."""
        self.proofs.add(report)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """All tests are done: a row without a proof fails the run."""
        config = session.config
        ended = exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED} and not (
            session.shouldfail or session.shouldstop
        )
        if not config.option.features and not (ended and runs_everything(config)):
            return
        self.lines, self.problems = judge(read_table(config.rootpath / "docs"), self.proofs)
        if self.problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """Print the table."""
        if self.lines:
            terminalreporter.ensure_newline()
            for line in in_words(self.lines, self.problems, whole=config.option.features):
                terminalreporter.write_line(line, red=line.startswith("problem: "))


def runs_everything(config: pytest.Config) -> bool:
    """No test was left out by an option or by naming others."""
    if any(getattr(config.option, name, None) for name in NARROWING):
        return False
    given = [config.invocation_params.dir.joinpath(argument).resolve() for argument in config.args]
    wanted = [config.rootpath.joinpath(path).resolve() for path in config.getini("testpaths")]
    return all(any(path.is_relative_to(one) for one in given) for path in wanted)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--features`."""
    parser.addoption(
        "--features",
        action="store_true",
        help="print which rows of docs/features.md are proven by the tests that were chosen",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Listen, but not in a worker, which knows its own tests only."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Judged(), "features")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """What a test claims to prove goes with its reports, from the workers too."""
    for item in items:
        for mark in item.iter_markers(MARK):
            item.user_properties += [(MARK, id) for id in mark.args or ("",)]

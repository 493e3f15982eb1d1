"""Which rows of fixtures/features.tsv are proven, by which tests. A plugin of pytest: the run of
the tests is the proof.

pytest                the whole suite: it fails if a row has no passing test
pytest --features     the same of the tests that were chosen, and the table, a line a row
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROW = re.compile(r"([A-Z]{2}-\d\d)\t\S.*")
ROWS = Path("fixtures", "features.tsv")
"""The rows as they were written before anything was built."""
MARK = "feature"
NARROWING = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise", "collectonly")
"""Options of pytest with which not every test is run."""


@dataclass(slots=True)
class Table:
    """The rows as they were asked for."""

    rows: Sequence[str]
    """Their ids, in the order of the file."""
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


def read_table(path: Path) -> Table:
    """Read the rows: an id and its behaviour, with a tab between them, a row a line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [row[1] for line in lines if (row := ROW.fullmatch(line))]
    problems = [f"{path.name} has {id} {times} times" for id, times in Counter(found).items() if times > 1]
    problems += [f"{path.name} has a row that cannot be read: {line}" for line in lines if not ROW.fullmatch(line)]
    return Table(list(dict.fromkeys(found)), problems)


def judge(table: Table, proofs: Proofs) -> tuple[list[Line], list[str]]:
    """One line a row, and everything that is wrong."""
    lines: list[Line] = []
    problems = list(table.problems)
    for id in table.rows:
        tests = proofs.of(id)
        ran = [proofs.passed[test] for test in tests if test in proofs.passed]
        if not all(ran):
            result = "FAILS"
            problems.append(
                f"{id}: a test fails: {', '.join(test for test in tests if proofs.passed.get(test) is False)}"
            )
        elif ran:
            result = "passes"
        else:
            result = "NOT PROVEN"
            problems.append(f"{id}: no test of it {'was run' if tests else 'is marked'}")
        lines.append(Line(id, len(tests), result))
    for test, ids in proofs.tests.items():
        if "" in ids:
            problems.append(f"{test}: the mark `feature` names no row")
        problems += [f"{test}: proves {id}, which is no row of {ROWS}" for id in ids if id and id not in table.rows]
    return lines, problems


def in_words(lines: Sequence[Line], problems: Sequence[str], *, whole: bool) -> Iterator[str]:
    """What is printed. `whole`: a line for each row, not only the sum."""
    if whole:
        yield f"{'ID':<6}  {'tests':>5}  result"
        for line in lines:
            yield f"{line.id:<6}  {line.tests:>5}  {line.result}"
    sums = Counter(line.result for line in lines)
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
        self.lines, self.problems = judge(read_table(config.rootpath / ROWS), self.proofs)
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
        help="print which rows of fixtures/features.tsv are proven by the tests that were chosen",
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

"""Run the tests in several processes, and collect them once. A plugin of pytest.

pytest --forks 4       in four processes
pytest --forks auto    in one more than there are processors, because tests wait for other processes

The process that has collected the tests forks, and each child takes pieces of their list from one
pipe. It sends the reports of each test to the parent, which prints and counts them as pytest does.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import create_terminal_writer

PIECE = 25
"""How many tests of one file a child takes at once: few enough that all children end together."""
NUMBER_BYTES = 4
QUIET_S = 1.0
"""Where no child has said anything for so long, the parent asks whether they live: a process that a
child has left behind may hold its pipe open.
"""


@dataclass(slots=True)
class Worker:
    """A child, as the parent sees it."""

    number: int
    pid: int
    reports: Connection
    has_failures: bool = False
    code: int | None = None
    """Its exit code, or the negative number of the signal that ended it."""

    def has_ended(self, *, waits: bool = False) -> bool:
        """Whether the process has ended. With `waits` it is waited for."""
        if self.code is None and (ended := os.waitpid(self.pid, 0 if waits else os.WNOHANG))[0]:
            self.code = os.waitstatus_to_exitcode(ended[1])
        return self.code is not None


class Shared:
    """Numbers that the parent and all children see: whether to stop, and the test of each child."""

    def __init__(self, workers: int) -> None:
        self._numbers = memoryview(mmap.mmap(-1, NUMBER_BYTES * (workers + 1))).cast("i")

    @property
    def stop(self) -> bool:
        """Whether no further test is begun."""
        return bool(self._numbers[0])

    @stop.setter
    def stop(self, value: bool) -> None:
        self._numbers[0] = value

    def begin(self, worker: int, test: int | None) -> None:
        """This child runs the test with this index now, or none."""
        self._numbers[worker] = 0 if test is None else test + 1

    def running(self, worker: int) -> int | None:
        """The index of the test that this child runs."""
        return self._numbers[worker] - 1 if self._numbers[worker] else None


def _number(text: str) -> int:
    return (os.cpu_count() or 1) + 1 if text == "auto" else max(1, int(text))


def _pieces(items: Sequence[pytest.Item]) -> Iterator[range]:
    """The list of tests in pieces. Each is of one file, whose tests may share fixtures."""
    for _, indexes in groupby(range(len(items)), lambda index: items[index].path):
        first, *_, last = [*indexes] * 2
        for start in range(first, last + 1, PIECE):
            yield range(start, min(start + PIECE, last + 1))


def _queue(pieces: int) -> int:
    """A pipe with the numbers of all pieces. Whoever reads from it has taken the next one."""
    read, write = os.pipe()
    os.set_blocking(write, False)  # a list that does not fit is an error, and no hang
    numbers = b"".join(number.to_bytes(NUMBER_BYTES) for number in range(pieces))
    written = os.write(write, numbers)
    os.close(write)
    if written < len(numbers):
        raise pytest.UsageError(f"--forks: a pipe holds {written // NUMBER_BYTES} pieces of {PIECE} tests, no more")
    return read


def _taken(queue: int, pieces: Sequence[range]) -> Iterator[int]:
    while number := os.read(queue, NUMBER_BYTES):
        yield from pieces[int.from_bytes(number)]


# ------------------------------------------------------------------ the child


class _Reports:
    """Keeps what pytest reports of a test, to be sent."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.kept: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has come a step further."""
        self.kept.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def _become_a_worker(config: Any, folder: Path) -> None:
    """Print nothing, capture output in files of its own, and make temporary files in `folder`."""
    config.workerinput = {}  # how plugins tell a process that knows its own tests only
    reporter, capture = (config.pluginmanager.get_plugin(name) for name in ("terminalreporter", "capturemanager"))
    nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    reporter._tw = create_terminal_writer(config, nowhere)  # noqa: SLF001
    capture.stop_global_capturing()
    capture.start_global_capturing()
    folder.mkdir()
    config._tmp_path_factory._basetemp = folder  # noqa: SLF001


def _run(session: pytest.Session, worker: int, indexes: Iterator[int], reports: Connection, shared: Shared) -> None:
    sender = _Reports(session.config)
    session.config.pluginmanager.register(sender)
    for index, following in pairwise(chain(indexes, [None])):
        if index is None or shared.stop:
            break
        shared.begin(worker, index)
        item, nextitem = session.items[index], None if following is None else session.items[following]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        reports.send((index, sender.kept))
        sender.kept = []
        shared.begin(worker, None)
    reports.send(None)


# ------------------------------------------------------------------ the parent


def _hear(session: pytest.Session, workers: Sequence[Worker], shared: Shared) -> None:
    """Report what the children report, until all have ended. What a child that died has not run is
    a failure.
    """
    hook = session.config.hook
    unheard: set[int | None] = {*range(len(session.items))}
    living = {worker.reports: worker for worker in workers}
    while living:
        ready = [connection for connection in wait([*living], QUIET_S) if isinstance(connection, Connection)]
        for connection in ready:
            try:
                said = connection.recv()
            except EOFError:
                said = None
            if said is None:
                del living[connection]
                continue
            index, reports = said
            unheard.discard(index)
            item = session.items[index]
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            for data in reports:
                report = hook.pytest_report_from_serializable(config=session.config, data=data)
                living[connection].has_failures |= report.failed
                hook.pytest_runtest_logreport(report=report)
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            shared.stop = bool(session.shouldfail or session.shouldstop)
        if not ready:
            living = {connection: worker for connection, worker in living.items() if not worker.has_ended()}
    for worker in workers:
        worker.has_ended(waits=True)
        running = shared.running(worker.number)
        if running is not None or worker.code not in ({0, 1} if worker.has_failures else {0}):
            _fail(session, running, f"process {worker.number} of the tests ended with the code {worker.code}")
            unheard.discard(running)
    if not shared.stop:
        for index in sorted(index for index in unheard if index is not None):
            _fail(session, index, "this test was not run: the process that had taken it has ended")


def _fail(session: pytest.Session, index: int | None, why: str) -> None:
    item = None if index is None else session.items[index]
    nodeid, location = (item.nodeid, item.location) if item else ("the end of the tests", ("", None, ""))
    report = pytest.TestReport(nodeid, location, {}, "failed", why, "call")
    session.config.hook.pytest_runtest_logreport(report=report)


def _forked(session: pytest.Session, shared: Shared) -> list[Worker] | None:
    """The children. `None` in a child, which has run its share of the tests then."""
    config: Any = session.config
    pieces = [*_pieces(session.items)]
    queue = _queue(len(pieces))
    folder = config._tmp_path_factory.getbasetemp()  # noqa: SLF001
    workers: list[Worker] = []
    for stream in (config.get_terminal_writer(), sys.stdout, sys.stderr):
        stream.flush()
    for number in range(1, config.option.forks + 1):
        here, there = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            here.close()
            _become_a_worker(config, folder / f"fork{number}")
            _run(session, number, _taken(queue, pieces), there, shared)
            return None
        there.close()
        workers.append(Worker(number, pid, here))
    os.close(queue)
    return workers


# ------------------------------------------------------------------ the plugin


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--forks`."""
    parser.addoption(
        "--forks",
        type=_number,
        default=1,
        metavar="N",
        help="run the tests in N processes, which are forked from the one that has collected them; "
        "auto: one more than there are processors",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in children. A child goes on as a run of pytest that prints nothing."""
    config: Any = session.config
    option = config.option
    if option.forks == 1 or option.collectonly or option.usepdb or session.testsfailed or not session.items:
        return None
    if threads := [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]:
        raise pytest.UsageError(f"--forks: collecting the tests has left threads, which no child would have: {threads}")
    shared = Shared(option.forks)
    workers = _forked(session, shared)
    if workers is None:
        return True
    try:
        _hear(session, workers, shared)
    finally:
        shared.stop = True
        for worker in workers:
            if not worker.has_ended():
                os.kill(worker.pid, signal.SIGINT)
                worker.has_ended(waits=True)
            worker.reports.close()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True

"""A command of the shell tools: its input, its output, its end, and what is said about them."""

from __future__ import annotations

import codecs
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import anyio
import anyio.lowlevel

from monitor.errors import ToolError, ToolErrorKind
from monitor.tools.base import NETWORK, SOMETHING
from monitor.tools.processes.command import Command
from monitor.tools.processes.printed_output import screen_pieces
from monitor.tools.processes.process_table import ProcessInfo, command_of
from monitor.tools.results.call_results import ToolAnswer
from monitor.tools.sandbox.confinement import Confinement

# --------------------------------------------------------------------------------------------------
# Reads the number of failing tests from the output of pytest, jest, go test and cargo test.
#
# The detector `NoProgress` needs a number that the run tries to lower: see
# `monitor.detectors.ProgressRule`. Each reader gives the number of failing tests, and 0 when all
# pass. `None`: the text is no such output, or says nothing about its tests.

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
_NO_NETWORK: Final = re.compile(r"name resolution|resolve host|Network is unreachable|ENETUNREACH|EAI_AGAIN")
_NO_RIGHT: Final = re.compile(r"Read-only file system|Permission denied|EROFS|EACCES")
"""How programs repeat what the operating system has answered."""
_PATH: Final = re.compile(r"/[^\s'\"`:;,()<>|]+")
_SAID_CHARS: Final = 4_000
"""The end of an output in which that is looked for."""
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


SHOWN: Final = 5
"""The most background processes that are named."""


@dataclass(slots=True, eq=False)
class ShellJob:
    """A command, and the state of its output."""

    command: Command
    confinement: Confinement | None = None
    """What confines it. `None`: nothing."""
    before: Mapping[Path, object] = field(default_factory=dict)
    """What stood at its start where programs outside of the sandbox run it."""
    decoder: Any = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))
    busy: anyio.Lock = field(default_factory=anyio.Lock)
    """Held by the call that waits for the process: two such calls take turns."""

    def take(self, *, last: bool = False) -> str:
        """The text since the last call of `take`."""
        text: str = self.decoder.decode(self.command.take(), last)
        return text


def answer_of(
    job: ShellJob, text: str, status: str, others: Sequence[ProcessInfo] = (), kind: ToolErrorKind | None = None
) -> ToolAnswer:
    """The answer about a command that has ended. `kind`: of the error, if it is one."""
    code = job.command.returncode
    data = {
        "pid": job.command.pid,
        "exit_code": code if code is not None and code >= 0 else None,
        "signal": _signal_name(-code) if code is not None and code < 0 else None,
        "duration_s": job.command.elapsed_s,
        "background": [entry.pid for entry in others],
        "progress": failing_tests(text),
    }
    return ToolAnswer(text, is_error=kind is not None, error_kind=kind, status=status, data=data)


def kept_from(text: str, root: Path) -> str:
    """What the sandbox has kept a command from, as far as the last lines of its output say so. A
    file of the workspace `root` is no news: it has its own rights. Empty: they do not say so.
    """
    for line in reversed(text[-_SAID_CHARS:].splitlines()):
        if _NO_NETWORK.search(line):
            return NETWORK
        if _NO_RIGHT.search(line):
            named = [Path(one.rstrip(".,")) for one in _PATH.findall(line)]
            near = [one if os.path.lexists(one) else one.parent for one in named if not one.is_relative_to(root)]
            return next((str(one) for one in near if one.is_dir() or one.is_file()), SOMETHING)
    return ""


def ending_of(command: Command) -> str:
    """How the command has ended, and how long it took."""
    code = command.returncode
    took = f"{command.elapsed_s:.2f} s"
    if code is None:
        return f"still running after KILL, pid {command.pid}, {took}"
    if code < 0:
        return f"ended by {_signal_name(-code)}, {took}"
    # 128 + n is how a shell says that its command was ended by signal n
    by = f" ({_signal_name(code - 128)})" if code > 128 and _signal_name(code - 128) else ""  # noqa: PLR2004
    return f"exit code {code}{by}, {took}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def roots(entries: Sequence[ProcessInfo]) -> list[ProcessInfo]:
    """The entries whose parent is not one of `entries`."""
    pids = {entry.pid for entry in entries}
    return [entry for entry in entries if entry.parent not in pids]


def background_processes(others: Sequence[ProcessInfo], *, kept: bool) -> str:
    """Names the processes that a command has left, for its status line. `kept`: they run on."""
    if not others:
        return ""
    named = ", ".join(f"pid {entry.pid} ({command_of(entry.pid)})" for entry in others[:SHOWN])
    what = f"{len(others)} background process{'es' if len(others) > 1 else ''}"
    return f"; {what}: {named}" if kept else f"; {what} ended with it"


async def screened(text: str) -> str:
    """`text` as a person would see it on a screen. Other tasks may run meanwhile."""
    pieces: list[str] = []
    for piece in screen_pieces(text):
        pieces.append(piece)
        if len(pieces) > 1:
            await anyio.lowlevel.checkpoint()
    return "".join(pieces)


def with_dropped(job: ShellJob, text: str) -> str:
    """`text`, with a note about output that was dropped before it."""
    dropped = job.command.dropped_bytes
    return f"[the first {dropped:,} bytes were dropped: nobody read them]\n{text}" if dropped else text


async def written_to(command: Command, text: str, deadline: float) -> str:
    """Write `text` to the command. Returns a note if it did not take all of it."""
    if not text:
        return ""
    if not command.takes_input:
        raise ToolError("its input is not open: start it with background", kind=ToolErrorKind.INVALID_ARGUMENTS)
    data = text.encode("utf-8", "replace")
    try:
        taken = await command.write(data, max(0.0, deadline - time.monotonic()))
    except OSError:
        command.close_input()
        return "; it has closed its input, and has not read the text"
    return "" if taken == len(data) else f"; it has taken {taken:,} of {len(data):,} bytes and reads no more"

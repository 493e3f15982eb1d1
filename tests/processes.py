"""What tests of commands share: a look at the processes that this one has started, and asking a
tool.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from monitor.chunks import ToolCall
from monitor.tools import find_sandbox
from monitor.tools.base import CallListener, CallReporter, Tool, ToolContext
from monitor.tools.processes.keeper import start_keeper
from monitor.tools.processes.process_table import ProcessInfo, command_of, living, owner_token
from monitor.tools.results.call_results import ToolAnswer
from monitor.tools.sandbox.box_program import version

PATIENCE_S = 60.0
"""What has been killed may live on in the process table for so long, where other programs have the
processors. Whatever a test could leave by mistake sleeps for longer.
"""


def commands_left() -> list[ProcessInfo]:
    """The living processes that a command of this process has started."""
    mine = owner_token("")
    return [entry for entry in living() if any(token.startswith(mine) for token in entry.tokens)]


def no_command_is_left(within_s: float = PATIENCE_S) -> bool:
    """Whether all processes that a command of this process has started end."""
    return _becomes_true(lambda: not commands_left(), within_s)


BUBBLEWRAP = pytest.mark.skipif(
    (here := find_sandbox()).kind != "bubblewrap", reason=f"bubblewrap does not work here: {here.detail}"
)
LANDLOCK = pytest.mark.skipif(version() == 0, reason="this kernel has no Landlock")


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fails a test that leaves a process of a command, a descriptor or a reading thread."""
    start_keeper()  # it stays, with its pipe
    descriptors = _descriptors()
    yield
    assert no_command_is_left(), commands_left()
    assert _descriptors() <= descriptors
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("output of")]


def _descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def is_gone(pid: int, within_s: float = PATIENCE_S) -> bool:
    """Whether this process, which a command of this one has started, ends."""
    return _becomes_true(lambda: all(entry.pid != pid for entry in commands_left()), within_s)


def is_running(text: str) -> bool:
    """Whether a process has this text in its command line; for texts that no other program has."""
    return text in " ".join(command_of(entry.pid) for entry in living())


def is_running_no_more(text: str) -> bool:
    """Whether the processes that have this text in their command line end."""
    return _becomes_true(lambda: not is_running(text), PATIENCE_S)


def _becomes_true(condition: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not (true := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return true


class Heard(CallListener):
    """Takes the live output of a call that a scheduler carries out."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.something = anyio.Event()

    async def output(self, call: ToolCall, stream: str, text: str) -> None:
        self.pieces.append(text)
        self.something.set()


@dataclass
class Reporter(CallReporter):
    """Takes the live output of a call by itself."""

    heard: Heard
    call: ToolCall

    async def output(self, text: str, stream: str) -> None:
        await self.heard.output(self.call, stream, text)


async def ask(tools: Iterable[Tool], name: str, heard: Heard | None = None, /, **arguments: Any) -> ToolAnswer:
    """What the tool `name` answers."""
    (tool,) = [tool for tool in tools if tool.spec.name == name]
    call = ToolCall("1", name, arguments)
    reporter = Reporter(heard, call) if heard is not None else None
    answer = await tool.call(arguments, ToolContext(call, reporter=reporter))
    assert isinstance(answer, ToolAnswer)
    return answer

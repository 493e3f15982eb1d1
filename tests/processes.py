"""What tests of commands share: a count in the process table, and asking a tool."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from monitor.chunks import ToolCall
from monitor.tools.base import Tool, ToolContext
from monitor.tools.processes.process_table import ProcessInfo, living
from monitor.tools.protocols import CallListener
from monitor.tools.results.tool_answer import ToolAnswer


def commands_left() -> list[ProcessInfo]:
    """The living processes that a command of this process has started."""
    return [entry for entry in living() if any(token.startswith(f"{os.getpid()}-") for token in entry.tokens)]


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fails a test that leaves a process of a command, a descriptor or a reading thread."""
    descriptors = _descriptors()
    yield
    assert commands_left() == []
    assert _descriptors() <= descriptors
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("output of")]


def _descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def is_gone(pid: int, within_s: float = 1.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if all(entry.pid != pid for entry in living()):
            return True
        time.sleep(0.01)
    return False


class Heard(CallListener):
    """Takes the live output of a call that a scheduler carries out."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.something = anyio.Event()

    async def output(self, call: ToolCall, stream: str, text: str) -> None:
        self.pieces.append(text)
        self.something.set()


@dataclass
class Reporter:
    """Takes the live output of a call by itself."""

    heard: Heard
    call: ToolCall

    async def output(self, text: str, stream: str) -> None:
        await self.heard.output(self.call, stream, text)

    def progress(self, done: float | None, total: float | None, note: str) -> None:
        pass

    def thread_left(self) -> None:
        pass

    def thread_ended(self) -> None:
        pass


async def ask(tools: Iterable[Tool], name: str, heard: Heard | None = None, /, **arguments: Any) -> ToolAnswer:
    """What the tool `name` answers."""
    (tool,) = [tool for tool in tools if tool.spec.name == name]
    call = ToolCall("1", name, arguments)
    reporter = Reporter(heard, call) if heard is not None else None
    answer = await tool.call(arguments, ToolContext(call, reporter=reporter))
    assert isinstance(answer, ToolAnswer)
    return answer

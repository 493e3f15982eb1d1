"""What all engines carry out: the script of a run, its tools, its budget, and where it leaves
traces that can be counted afterwards.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import anyio

import bench.fleets
import monitor
from monitor._util.codec import text_of
from monitor._util.text import eighths_of_tokens
from monitor.chunks import Chunk, TextDelta, ToolCall, TurnFinished
from monitor.errors import FinishReason, MissingExtra
from monitor.fleet import (
    Control,
    FolderControl,
    FolderSessions,
    PostgresControl,
    PostgresSessions,
    Receipt,
    Sessions,
    Supervisors,
)
from monitor.messages import AssistantMessage, UserMessage
from monitor.models import ModelRequest
from monitor.shared import BudgetStore, SharedBudget, budgets_at

NAME = "bench"
"""The supervisor, and the budget."""
TURNS = 5
CHUNKS = 12
CHUNK_S = 0.01
TEXT = "one more piece of the answer, which says little. "
SLICE_TOKENS = 40
LEASE_S = 5.0
CONCURRENCY = 4
MAX_LOSSES = 10
"""Workers are killed here for no fault of their runs, and every few seconds. With the default of 3
some runs would be parked, and could only go on when somebody says so.
"""
POLL_S = 0.1
_SERVERS = "servers.json"


@dataclass(frozen=True)
class Servers:
    """What an engine runs on, while the bench is open."""

    address: str
    """Of the engine."""
    sessions: str | None = None
    """The PostgreSQL that holds the sessions. `None`: the folder does."""
    budgets: str | None = None
    """The store of the budget. `None`: a file of the folder."""
    crashes: Sequence[Callable[[], None]] = ()
    """Each kills one server, and starts it again a moment later."""


@dataclass(frozen=True)
class Engine:
    """One row of the table."""

    name: str
    server: Callable[[Path], AbstractContextManager[Servers]]
    """Starts what the engine needs."""
    worker: str
    """The module that is a worker: `python -m WORKER ADDRESS FOLDER NAME`. `""`: the engine starts
    its workers itself, and starts those again that were killed. See `placed`.
    """
    carry_out: Callable[[str, Path, Sequence[str]], Any]
    """`await carry_out(address, folder, keys)` submits a run for each key, and answers with their
    sessions and last receipts when all have ended.
    """
    packages: tuple[str, ...] = ()
    """Distributions that must be installed. The results name their versions."""
    ready: str | None = None
    """Why the engine cannot run here. `None`: it can."""
    runs: int = 200
    kills: int = 30
    hosts: int = 0
    """The workers are spread over so many hosts: folders and network namespaces that share nothing
    but the servers. A worker that was killed has another name when it comes back. 0: all of them
    share one folder.
    """


def engines() -> dict[str, Engine]:
    """Every engine that has a module here, by its name."""
    found: dict[str, Engine] = {}
    for module in pkgutil.iter_modules(bench.fleets.__path__):
        if module.name != "base":
            with contextlib.suppress(ModuleNotFoundError, MissingExtra):  # it is not installed here
                for engine in getattr(importlib.import_module(f"bench.fleets.{module.name}"), "ENGINES", ()):
                    found[engine.name] = engine
    return found


class Talker:
    """A model without a network: some text, slowly, then a call of each tool; at last an answer."""

    name = "bench:talker"

    def __init__(self, folder: Path) -> None:
        self._log = Log(folder / "tokens.log")
        self._calls = Log(folder / "calls.log")

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The next answer. What it costs is on the disk before it is sent."""
        replies = sum(isinstance(one, AssistantMessage) for one in request.messages)
        asked = next(one for one in request.messages if isinstance(one, UserMessage))
        self._calls.add(f"{asked.content[0]} {replies}")
        for piece in range(CHUNKS):
            await anyio.sleep(CHUNK_S)
            text = f"{replies}.{piece} {TEXT}"
            self._log.add(str(eighths_of_tokens(text)))
            yield TextDelta(text)
        if replies < TURNS - 1:
            for tool in ("put", "note"):
                arguments = {"text": f"turn {replies}"}
                self._log.add(str(eighths_of_tokens(text_of(arguments))))
                yield ToolCall(f"{tool}-{replies}", tool, arguments)
        yield TurnFinished(FinishReason.DONE)


class Log:
    """Lines that survive the death of the process, from many processes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, line: str) -> None:
        """One line, in one write."""
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{line}\n".encode())
        finally:
            os.close(file)

    def lines(self) -> list[str]:
        """All lines."""
        return self._path.read_text("utf-8").splitlines() if self._path.exists() else []


def supervisors(folder: Path) -> Supervisors:
    """The one supervisor of the bench. Its tools leave a line for each time that they are entered.

    `put` may be repeated with its key, and has its effect once by that. `note` cannot be repeated:
    it is the ledger alone that keeps it from happening twice.
    """
    (folder / "effects").mkdir(exist_ok=True)
    tried, noted = Log(folder / "put.log"), Log(folder / "note.log")

    @monitor.tool(idempotent=True)
    async def put(text: str, context: monitor.ToolContext) -> str:
        """Store a text."""
        await anyio.sleep(CHUNK_S)
        key = context.idempotency_key
        (folder / "effects" / key).write_text(text)
        tried.add(key)
        await anyio.sleep(CHUNK_S)
        return "stored"

    @monitor.tool
    async def note(text: str, context: monitor.ToolContext) -> str:
        """Note a text."""
        await anyio.sleep(CHUNK_S)
        noted.add(f"{context.idempotency_key} {text}")
        await anyio.sleep(CHUNK_S)
        return "noted"

    known = Supervisors()
    budget = SharedBudget(budgets(folder), NAME, slice_tokens=SLICE_TOKENS, lease_s=LEASE_S)
    known.add(NAME, monitor.Supervisor(Talker(folder), tools=[put, note], budget=budget))
    return known


def share(folder: Path, servers: Servers) -> None:
    """Make the folder of a host, which knows the servers."""
    (folder / "sessions").mkdir(parents=True)
    (folder / _SERVERS).write_text(json.dumps(asdict(replace(servers, crashes=()))))


def _servers(folder: Path) -> Servers:
    return Servers(**json.loads((folder / _SERVERS).read_text()))


def sessions(folder: Path) -> Sessions:
    """Where the sessions are."""
    address = _servers(folder).sessions
    return FolderSessions(folder / "sessions") if address is None else PostgresSessions(address)


def control(folder: Path) -> Control:
    """Where aborts are."""
    address = _servers(folder).sessions
    return FolderControl(folder / "sessions") if address is None else PostgresControl(address)


def budgets(folder: Path) -> BudgetStore:
    """Where the budget is."""
    return budgets_at(_servers(folder).budgets or str(folder / "budgets.db"))


def hosts(folder: Path) -> list[Path]:
    """The folders in which workers leave traces."""
    return sorted(folder.glob("host-*")) or [folder]


def task(key: str) -> str:
    """What a run is asked for."""
    return f"Write down all that is asked for: {key}."


def ready(folder: Path, name: str) -> Path:
    """The file that a worker makes when it is at work. Only such workers are killed."""
    return folder / f"{name}.ready"


def is_ready(folder: Path, name: str) -> bool:
    """Whether the worker is at work."""
    return ready(folder, name).exists()


def placed(folder: Path, name: str, process: int) -> None:
    """Say that a worker that the engine has started is at work, and what its process is."""
    ready(folder, name).write_text(str(process))


async def until_killed(folder: Path, name: str) -> None:
    """Say that this worker is at work, and work until somebody kills it, or the bench is gone."""
    ready(folder, name).touch()
    while os.getppid() == _PARENT:  # noqa: ASYNC110 - the system tells nobody
        await anyio.sleep(1.0)


_PARENT = os.getppid()
Ended = dict[str, Receipt]
"""By session, the last receipt."""

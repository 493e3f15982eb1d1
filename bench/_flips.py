"""Flipped bits in the file of a session: each is said, or nothing that is read is another."""

from __future__ import annotations

import random
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import monitor
from monitor.errors import StoreError
from monitor.sessions import SessionReader, SQLiteSession, exported
from monitor.sessions.tables.marked_folder import blobs_path
from monitor.testing import ScriptedModel, call

LONG_CHARS: Final = 80_000


@dataclass(slots=True)
class Flips:
    """The outcomes of flipped bits."""

    said: int = 0
    """The session is refused, or `verify` finds it."""
    harmless: int = 0
    """Everything that is read is as it was."""
    silent: int = 0
    """Something else is read, and nothing says so."""


async def flips(number: int, seed: int = 0) -> Flips:
    """Flip `number` bits, each in a copy of its own."""
    found = Flips()
    with tempfile.TemporaryDirectory() as made:
        path, copy = Path(made) / "a.session", Path(made) / "copy.session"
        await _fill(path)
        with SessionReader(path) as session:
            whole = [*exported(session)]
        shutil.copytree(blobs_path(path), blobs_path(copy))
        data, chance = path.read_bytes(), random.Random(seed)
        for _ in range(number):
            harmed = bytearray(data)
            harmed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            copy.write_bytes(harmed)
            what = _look(copy, whole)
            setattr(found, what, getattr(found, what) + 1)
    return found


def _look(path: Path, whole: list[str]) -> str:
    try:
        with SessionReader(path) as session:
            if session.verify():
                return "said"
            return "harmless" if [*exported(session)] == whole else "silent"
    except StoreError:
        return "said"


async def _fill(path: Path) -> None:
    """A session with rows in every table: also questions, a nested run and a long text."""

    @monitor.tool(needs_approval=True)
    def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    def read(n: int) -> str:
        """Read something long."""
        return "ab" * (n // 2)

    inner = monitor.Supervisor(ScriptedModel(call("read", n=40), "Found.")).as_tool(name="sub", description="Dig.")
    turns = [call("sub", task="deep"), *(call("read", n=n) for n in (40, 4_000, LONG_CHARS)), call("pay", n=1)]
    options: dict[str, Any] = {
        "tools": [pay, read, inner],
        "calls": monitor.runs.ToolCalls(approver=monitor.tools.PendingApprovals()),
        "results": monitor.runs.Results(bound=None),
    }
    async with SQLiteSession(path, chunks=True) as session:
        for _ in range(3):  # each run closes the one before it, which waits
            await monitor.Supervisor(ScriptedModel(*turns), session=session, **options).run("do it")

"""Simulated power cuts: an SQLite whose writes and syncs are logged, and what a cut leaves of them.

A killed process loses nothing that the system has taken, so a kill cannot tell a synced write from
one that was not. A power cut can: what was synced is there, of the rest any part may be.
"""

from __future__ import annotations

import hashlib
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import apsw

from monitor.errors import StoreError
from monitor.messages import Text, UserMessage
from monitor.sessions import Compacted, Node, SQLiteSession, compaction, message
from monitor.sessions.nodes import canonical
from monitor.sessions.tables import schema
from monitor.sessions.tables.marked_folder import MARK
from monitor.sessions.tables.schema import APPLICATION_ID

SECTOR = 512
"""What a disk writes whole."""
OLDER = Path(__file__).parents[1] / "tests" / "sessions" / "tables" / "format_4.sql"
"""The statements that make a session of an older format, which the first write brings forward."""
NAME = "a.session"
SMALL_CHECKPOINT_PAGES = 60
"""So that checkpoints fall between all other steps."""

Op: TypeAlias = tuple[Any, ...]


class Log:
    """Every write, sync, truncation and deletion, in order; and what was acknowledged when."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def add(self, *op: Any) -> None:
        """The next one."""
        self.ops.append(op)


class _File(apsw.VFSFile):  # type: ignore[misc, unused-ignore]
    def __init__(self, vfs: str, name: Any, flags: Any, log: Log) -> None:
        super().__init__(vfs, name, flags)
        self._log = log
        self._name = Path(name.filename() if hasattr(name, "filename") else str(name)).name

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's names
        super().xWrite(data, offset)
        self._log.add("write", self._name, offset, bytes(data))

    def xTruncate(self, size: int) -> None:  # noqa: N802
        super().xTruncate(size)
        self._log.add("truncate", self._name, size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._log.add("sync", self._name)


class _Vfs(apsw.VFS):  # type: ignore[misc, unused-ignore]
    def __init__(self, name: str, log: Log) -> None:
        self.vfs_name = name
        self._log = log
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: Any) -> _File:  # noqa: N802
        return _File("", name, flags, self._log)

    def xDelete(self, name: str, sync_folder: bool) -> None:  # noqa: N802, FBT001
        super().xDelete(name, sync_folder)
        self._log.add("delete", Path(name).name, sync_folder)


class Careless:
    """A connection that syncs less than it is asked to: the proof that a loss is seen."""

    def __init__(self, connection: Any, synchronous: str) -> None:
        self._connection = connection
        self._synchronous = synchronous

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        """As it says, but for the one setting."""
        return self._connection.execute(sql.replace("synchronous=FULL", f"synchronous={self._synchronous}"), parameters)

    def close(self) -> None:
        """Close it."""
        self._connection.close()


def logged(log: Log, *, synchronous: str = "FULL") -> Iterator[Callable[[Path], Any]]:
    """A `connect` for sessions, whose writes are logged."""
    vfs = _Vfs(f"power-{id(log)}", log)
    made: list[str] = []

    def connect(path: Path) -> Any:
        if path.name != NAME:
            made.append(path.name)
        elif made:  # what was made under another name has its own by now, and synced
            log.add("rename", made.pop(), NAME)
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        connection = apsw.Connection(str(path), flags=flags, vfs=vfs.vfs_name)
        return connection if synchronous == "FULL" else Careless(connection, synchronous)

    pages, schema.CHECKPOINT_PAGES = schema.CHECKPOINT_PAGES, SMALL_CHECKPOINT_PAGES
    yield connect
    schema.CHECKPOINT_PAGES = pages
    vfs.unregister()


# ------------------------------------------------------------------ what is written


async def write(folder: Path, connect: Callable[[Path], Any], log: Log, *, seed: int, steps: int) -> None:
    """Make a session, or take one of an older format; write, compact, close; open it and go on."""
    chance = random.Random(seed)
    log.add("phase", "migrating" if seed % 2 else "creating")
    if seed % 2:
        _make_older(folder / NAME)
        log.add("write", NAME, 0, (folder / NAME).read_bytes())
        log.add("sync", NAME)
    for part in (steps, steps // 3):
        async with SQLiteSession(folder / NAME, connect=connect) as session:
            await _append(session, log, chance)
            await _work(session, log, chance, part)
            log.add("phase", "closing")


def _make_older(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(OLDER.read_text("utf-8"))
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute("PRAGMA user_version=4")
        connection.execute("PRAGMA journal_mode=WAL").fetchall()
    _keep_long_body(path.parent)


def _keep_long_body(folder: Path) -> None:
    """Write the long text of the older session. Its file is not logged: it was synced long ago."""
    blobs = folder / f"{NAME}.blobs"
    blobs.mkdir()
    (blobs / MARK).touch()
    body = canonical({"content": [{"text": "x" * 70_000}], "type": "user_message"}).encode()
    (blobs / hashlib.sha256(body).hexdigest()).write_bytes(body)


async def _work(session: SQLiteSession, log: Log, chance: random.Random, steps: int) -> None:
    for _ in range(steps):
        kind = chance.random()
        if kind < 0.7:
            log.add("phase", "writing")
            await _append(session, log, chance)
        elif kind < 0.85:
            log.add("phase", "writing side by side")
            async with anyio.create_task_group() as group:
                for number in range(chance.randint(2, 8)):
                    group.start_soon(partial(_append, session, log, chance, branch=f"side {number}"))
        else:
            log.add("phase", "compacting")
            path = [node for node in await session.active_path() if "tool_result" not in node.body]
            kept = chance.choice(path).id if path else None
            if path:
                summary = UserMessage((Text("s" * chance.randint(1, 3_000)),), synthetic=True)
                done = Compacted(
                    summary="s", shown=(summary,), first_kept_node_id=kept, tokens_before=2, tokens_after=1
                )
                _acknowledge(log, await session.append(compaction(done)))


async def _append(session: SQLiteSession, log: Log, chance: random.Random, branch: str = "active") -> None:
    text = "t" * int(chance.choice((10, 400, 5_000)) * (0.5 + chance.random()))
    drafts = [message(UserMessage((Text(text),))) for _ in range(chance.randint(1, 3))]
    _acknowledge(log, await session.append(*drafts, branch=branch))


def _acknowledge(log: Log, nodes: tuple[Node, ...]) -> None:
    for node in nodes:
        log.add("ack", node.id, node.digest)


# ------------------------------------------------------------------ what a cut leaves


@dataclass(slots=True)
class _Disk:
    """Files: what was synced of each, and what may or may not be there."""

    synced: dict[str, bytearray] = field(default_factory=dict)
    pending: list[Op] = field(default_factory=list)

    def take(self, op: Op) -> None:
        """The next operation has been made."""
        match op:
            case ("write" | "truncate", _, *_):
                self.pending.append(op)
            case ("sync", name):
                later = []
                for one in self.pending:
                    if one[1] == name or one[0] == "delete":
                        _apply(self.synced, one)
                    else:
                        later.append(one)
                self.pending = later
            case ("rename", name, to) if name in self.synced:
                self.take(("sync", name))
                self.synced[to] = self.synced.pop(name)
                self.pending = [one for one in self.pending if not one[1].startswith(name)]
            case ("delete", name, synced):
                self.pending.append(("delete", name))
                if synced:  # the folder is synced, and all names in it
                    self.pending = [one for one in self.pending if one[0] != "delete" and one[1] != name]
                    self.synced.pop(name, None)

    def cut(self, chance: random.Random) -> dict[str, bytearray]:
        """The files after a power cut at this moment."""
        files = {name: bytearray(data) for name, data in self.synced.items()}
        share = chance.choice((0.0, 0.5, 0.9, 1.0, chance.random()))
        for op in self.pending:
            if op[0] != "write":
                if chance.random() < share:
                    _apply(files, op)
                continue
            _, name, offset, data = op
            for start in range(0, len(data), SECTOR):
                if chance.random() < share:
                    _apply(files, ("write", name, offset + start, data[start : start + SECTOR]))
        return files


def _apply(files: dict[str, bytearray], op: Op) -> None:
    match op:
        case ("write", name, offset, data):
            content = files.setdefault(name, bytearray())
            if len(content) < offset:
                content.extend(bytes(offset - len(content)))
            content[offset : offset + len(data)] = data
        case ("truncate", name, size):
            content = files.setdefault(name, bytearray())
            del content[size:]
        case ("delete", name):
            files.pop(name, None)


@dataclass(slots=True)
class Cuts:
    """What came of some cuts."""

    cuts: int = 0
    lost: int = 0
    """Cuts after which an acknowledged node was missing."""
    worst: int = 0
    """The most acknowledged nodes that one cut lost."""
    damaged: int = 0
    """Cuts after which the session did not open, or was not whole."""
    unacknowledged: int = 0
    """Cuts after which more was there than had been acknowledged: that is allowed."""
    syncs: int = 0
    phases: dict[str, int] = field(default_factory=dict)
    """How many cuts fell into which work."""
    what: list[str] = field(default_factory=list)
    """The first damages, for people."""


def cuts(number: int, *, seed: int = 0, steps: int = 90, synchronous: str = "FULL", logs: int = 4) -> Cuts:
    """Write, log, and look at the files of `number` cuts."""
    found = Cuts()
    for which in range(logs):
        share = number // logs + (which < number % logs)
        if share:
            _cuts_of_one(found, share, seed=seed + which, steps=steps, synchronous=synchronous)
    return found


def _cuts_of_one(found: Cuts, number: int, *, seed: int, steps: int, synchronous: str) -> None:
    log, chance = Log(), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        for connect in logged(log, synchronous=synchronous):
            anyio.run(partial(write, Path(folder), connect, log, seed=seed, steps=steps))
    found.syncs += sum(op[0] == "sync" for op in log.ops)
    points = sorted(chance.choices(range(len(log.ops) + 1), k=number))
    disk, known, phase, done = _Disk(), {}, "creating", 0
    for point in points:
        for op in log.ops[done:point]:
            if op[0] == "ack":
                known[op[1]] = op[2]
            elif op[0] == "phase":
                phase = op[1]
            else:
                disk.take(op)
        done = point
        found.cuts += 1
        found.phases[phase] = found.phases.get(phase, 0) + 1
        _look(found, disk.cut(chance), known, phase)


def _look(found: Cuts, files: dict[str, bytearray], known: dict[str, str], phase: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            if name.startswith(NAME):
                (Path(folder) / name).write_bytes(data)
        _keep_long_body(Path(folder))
        (Path(folder) / f"{NAME}.lock").write_bytes(bytes(512) if len(known) % 2 else b"")  # what a cut may leave
        try:
            there = anyio.run(_opened, Path(folder) / NAME)
        except (StoreError, AssertionError) as error:
            found.damaged += 1
            found.what.append(f"{phase}: {error}")
            return
    missing = [id for id, digest in known.items() if there.get(id) != digest]
    found.lost += bool(missing)
    found.worst = max(found.worst, len(missing))
    found.unacknowledged += bool(there.keys() - known.keys())


async def _opened(path: Path) -> dict[str, str]:
    """The nodes that are there, after the session was opened, verified and written to."""
    async with SQLiteSession(path) as session:
        problems = await session.verify()
        assert not problems, problems[0]
        there = {node.id: node.digest for node in await session.nodes()}
        await session.context()
        (node,) = await session.append(message(UserMessage((Text("after the cut"),))))
        assert node.seq == len(there) + 1
        assert not await session.verify()
    return there

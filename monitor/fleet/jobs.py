"""The sessions of a fleet: where they are, what each is to do, and which receipts it has."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
from anyio import to_thread

from monitor._util.hashing import fingerprint
from monitor.errors import ConfigError, SessionBusy, SessionDamaged
from monitor.fleet.receipts import MAX_NAME_CHARS, Receipt
from monitor.runs.supervisor import Supervisor
from monitor.sessions.closed_runs import SessionStore
from monitor.sessions.nodes import Node, NodeKind, marker
from monitor.sessions.reader import ENDING, SessionReader
from monitor.sessions.sqlite_session import SQLiteSession

# --------------------------------------------------------------------------------------------------
# The supervisors of a fleet, by name and version.


class UnknownSupervisor(ConfigError):
    """The worker has no supervisor for the run. The run waits for a worker that has it."""

    def __init__(self, name: str, version: str) -> None:
        super().__init__(f"no supervisor {name!r} of version {version!r} here: the run waits for a worker that has it")
        self.name = name
        self.version = version

    def __reduce__(self) -> tuple[type[UnknownSupervisor], tuple[str, str]]:
        return type(self), (self.name, self.version)


@dataclass(slots=True, frozen=True)
class _Registered:
    supervisor: Supervisor[Any]
    version: str
    runs: frozenset[str]
    """The versions whose runs it may carry out."""


class Supervisors:
    """The supervisors that a worker can run. Every worker registers them in its code.

        supervisors = Supervisors()
        supervisors.add("writer", supervisor, version="2", also=["1"])

    A run is carried out by the version that it was submitted to. Another version takes it only if
    that was declared with `also`. Otherwise the run waits.
    """

    def __init__(self) -> None:
        self._known: dict[str, list[_Registered]] = {}

    def add(
        self, name: str, supervisor: Supervisor[Any], *, version: str = "1", also: Collection[str] = ()
    ) -> Supervisor[Any]:
        """Register `supervisor`, and return it. `also`: the other versions whose runs it may carry
        out. Raises `ConfigError` if two supervisors would carry out the same version.
        """
        if isinstance(also, str):
            raise ConfigError(f"also is a list of versions, not the text {also!r}")
        if not isinstance(supervisor, Supervisor):
            raise ConfigError(f"{name} is a monitor.Supervisor, not {supervisor!r}")
        for text in (name, version, *also):
            check_name(text)
        runs = frozenset({version, *also})
        beside = self._known.setdefault(name, [])
        for one in beside:
            if both := sorted(one.runs & runs):
                raise ConfigError(f"two supervisors {name!r} would carry out the version {', '.join(both)}")
        beside.append(_Registered(supervisor, version, runs))
        return supervisor

    def find(self, name: str, version: str) -> Supervisor[Any]:
        """The supervisor that carries out runs of this version. Raises `UnknownSupervisor`."""
        for one in self._known.get(name, ()):
            if version in one.runs:
                return one.supervisor
        raise UnknownSupervisor(name, version)

    def newest(self, name: str) -> str:
        """The version of the supervisor of this name that was registered last. Raises
        `ConfigError` if there is none.
        """
        known = self._known.get(name)
        if not known:
            raise ConfigError(f"no supervisor {name!r} is registered here")
        return known[-1].version

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """The name and the version of all runs that can be carried out here."""
        return ((name, version) for name, known in self._known.items() for one in known for version in sorted(one.runs))


def check_name(text: object) -> None:
    """Raise `ConfigError` if `text` cannot name a supervisor or a version."""
    if not isinstance(text, str) or not text or len(text) > MAX_NAME_CHARS or not set(text) <= _ALLOWED:
        raise ConfigError(
            f"a name is 1 to {MAX_NAME_CHARS} ASCII letters, digits, dots, hyphens and underscores, not {text!r}"
        )


_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


JOB: Final = "fleet job"
"""The name of the marker that says what a session is to do."""
ATTEMPT: Final = "fleet attempt"
"""The name of the marker of each attempt at a step."""
POSTPONED: Final = "fleet postponed"
"""The name of the marker of an attempt that could not have its shared budget: no worker was lost.
"""
RECEIPT: Final = "fleet receipt"
"""The name of the marker of each step that is stored."""

ENTER_ATTEMPTS: Final = 100
ENTER_AGAIN_S: Final = 0.05
"""Two programs may enter the same job at once. One of them waits for the other."""


@dataclass(slots=True, frozen=True, kw_only=True)
class FleetJob:
    """The task of a session, and the supervisor for it."""

    supervisor: str
    version: str
    task: str

    def __post_init__(self) -> None:
        check_name(self.supervisor)
        check_name(self.version)
        if not str(self.task).strip():
            raise ConfigError("a job has a task: a text that says what to do")


class Sessions(Protocol):
    """Where the sessions of a fleet are. All workers reach the same ones."""

    def open(self, id: str, /, *, create: bool = False) -> AbstractAsyncContextManager[SessionStore]:
        """Become the owner of a session. Raises `SessionBusy` while another worker has it, and
        `StoreError` if it is not there and is not to be made.
        """
        ...

    async def look(self, id: str, /) -> Sequence[Node]:
        """The nodes of a session, oldest first, also while a worker has it. Empty: it is not there
        yet.
        """
        ...


class FolderSessions:
    """One file for each session, in a folder that all workers share. It must not be on a network
    disk that several hosts write to.
    """

    def __init__(self, folder: str | os.PathLike[str], *, wait_s: float | None = None, takeover: bool = False) -> None:
        """`wait_s`, `takeover`: see `SQLiteSession`. A worker that has died needs neither: the
        system has released its lock.
        """
        self.folder = Path(folder)
        self._wait_s = wait_s
        self._takeover = takeover

    def path(self, id: str) -> Path:
        """The file that holds the session `id`."""
        check_name(id)
        return self.folder / f"{id}{ENDING}"

    @asynccontextmanager
    async def open(self, id: str, *, create: bool = False) -> AsyncIterator[SessionStore]:
        if create:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        session = SQLiteSession(self.path(id), create=create, wait_s=self._wait_s, takeover=self._takeover)
        async with session:
            yield session

    async def look(self, id: str) -> Sequence[Node]:
        path = self.path(id)

        def read() -> Sequence[Node]:
            if not path.exists() or not path.stat().st_size:
                return ()
            with SessionReader(path) as reader:
                return reader.active_path()

        return await to_thread.run_sync(read)


def session_id(key: str | None = None) -> str:
    """The id of the session for a job with this key. Without a key, a new one."""
    return uuid.uuid4().hex if key is None else fingerprint(key.encode("utf-8", "surrogatepass"))


async def enter(sessions: Sessions, id: str, job: FleetJob) -> bool:
    """Store what the session `id` is to do. False: that was stored before. Raises `ConfigError` if
    the session has another job, also while a worker has the session. Raises `SessionBusy` if
    somebody has it who stores no job in it.
    """
    known: FleetJob | None = None
    for attempts_left in reversed(range(ENTER_ATTEMPTS)):
        try:
            async with sessions.open(id, create=True) as store:
                known = job_of(await store.active_path())
                if known is None:
                    await store.append(marker(JOB, asdict(job)))
                    return True
        except SessionBusy:
            known = job_of(await sessions.look(id))
            if known is None:  # it is being entered, or somebody else's session
                if not attempts_left:
                    raise
                await anyio.sleep(ENTER_AGAIN_S)
                continue
        break
    if known != job:
        raise ConfigError(f"the session {id} has another job already: give another key for another job")
    return False


def job_of(path: Sequence[Node]) -> FleetJob | None:
    """The job of the session with this path. `None`: it is no session of a fleet."""
    for node in path:
        if (data := marked(node, JOB)) is not None:
            try:
                return FleetJob(**data)
            except (TypeError, ConfigError) as error:
                raise SessionDamaged(f"the job in node {node.id} cannot be read: {error}") from None
    return None


def receipts_of(path: Sequence[Node]) -> list[Receipt]:
    """The receipts of a session, in the order of its steps."""
    return [receipt for node in path if (receipt := receipt_of(node)) is not None]


def receipt_of(node: Node) -> Receipt | None:
    """The receipt that a node holds. `None`: it holds none."""
    line = marked(node, RECEIPT)
    return replace(Receipt.from_json(line), head=node.parent or "") if isinstance(line, str) else None


async def receipts_in(sessions: Sessions, id: str) -> list[Receipt]:
    """The receipts of a session that no worker has at the moment."""
    async with sessions.open(id) as store:
        return receipts_of(await store.active_path())


def attempt(turn: int, ended_calls: int) -> dict[str, int]:
    """The data of the marker of an attempt: its turn, and how many calls had ended before."""
    return {"turn": turn, "ended_calls": ended_calls}


def losses_of(path: Sequence[Node], now: Mapping[str, int]) -> int:
    """The number of attempts that have followed each other without anything between them. `now`:
    the attempt that would be the next.
    """
    return sum(1 for _ in takewhile(lambda node: marked(node, ATTEMPT) == now, reversed(path)))


def marked(node: Node, name: str) -> Any:
    """The data of the marker `name`. `None`: the node is something else."""
    if node.kind is not NodeKind.MARKER:
        return None
    body = node.data
    return body.get("data") if body.get("name") == name else None

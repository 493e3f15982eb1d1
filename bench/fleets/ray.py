"""Ray. It starts its workers itself, as actors, and starts those again that were killed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import anyio

from bench.fleets import base

LOOK_S = 0.5


@contextmanager
def server(_: Path) -> Iterator[str]:
    """A cluster of this machine."""
    import ray  # noqa: PLC0415 - an environment of its own has it

    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
    try:
        yield "local"
    finally:
        ray.shutdown()


async def carry_out(_: str, folder: Path, keys: Sequence[str]) -> base.Ended:
    """Submit a run for each key, and drive all to their ends."""
    from monitor.integrations.ray import Fleet  # noqa: PLC0415

    place = base.sessions(folder), base.control(folder)
    setup = partial(base.supervisors, folder)
    ended: base.Ended = {}
    async with Fleet(setup, *place, workers=4, streams=base.CONCURRENCY, options={"num_cpus": 0}) as fleet:
        ids = [await fleet.submit(base.NAME, base.task(key), key=key) for key in keys]

        async def drive(id: str) -> None:
            ended[id] = await fleet.drive(id)

        async with _seen(fleet, folder), anyio.create_task_group() as tasks:
            for id in ids:
                tasks.start_soon(drive, id)
    return ended

"""Ray. It starts its workers itself, as actors, and starts those again that were killed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio

from bench.fleets import base

LOOK_S = 0.5


@contextmanager
def server(_: Path) -> Iterator[base.Servers]:
    """A cluster of this machine."""
    import ray  # noqa: PLC0415 - an environment of its own has it

    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
    try:
        yield base.Servers("local")
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

        async with anyio.create_task_group() as beside:
            beside.start_soon(_see, fleet, folder)
            async with anyio.create_task_group() as tasks:
                for id in ids:
                    tasks.start_soon(drive, id)
            beside.cancel_scope.cancel()
    return ended


async def _see(fleet: Any, folder: Path) -> None:
    """Say which actors are at work, so that they can be killed."""
    while True:
        at_work = {f"worker-{process}": process for process in await fleet.processes()}
        _say(folder, at_work)
        await anyio.sleep(LOOK_S)


def _say(folder: Path, at_work: dict[str, int]) -> None:
    for file in folder.glob(base.ready(folder, "*").name):
        if file.stem not in at_work:
            file.unlink(missing_ok=True)
    for name, process in at_work.items():
        base.placed(folder, name, process)


_NO_RAY = None if find_spec("ray") else "no Ray here: pip install 'agent-monitor[ray]', or see `make engines`"
ENGINES = (base.Engine("ray", server, "", carry_out, ("ray",), _NO_RAY, runs=40, kills=6),)

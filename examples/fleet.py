"""A fleet: many runs on a few workers, which are killed at random. Every run ends once, and no
letter is sent twice.

python examples/fleet.py                 6 runs on 2 workers, one of which is killed
python examples/fleet.py 200 4 30        200 runs on 4 workers, 30 kills

The model is scripted, so the example needs no key and no network. DBOS keeps the queue in an SQLite
file; with PostgreSQL only the address changes.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio

import monitor
from monitor.chunks import Chunk, TextDelta, ToolCall, TurnFinished
from monitor.errors import FinishReason
from monitor.fleet import FolderControl, FolderSessions, Receipt, Supervisors
from monitor.integrations.dbos import Fleet
from monitor.messages import AssistantMessage
from monitor.models import ModelRequest

LETTERS = ["Ada", "Bob"]


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


def fleet(folder: Path) -> Fleet:
    """The same in all processes: the queue, the sessions, and where aborts are written."""
    return Fleet(
        f"sqlite:///{folder / 'fleet.db'}",
        FolderSessions(folder / "sessions"),
        control=FolderControl(folder / "sessions"),
        poll_s=0.1,
    )


async def work(folder: Path, name: str) -> None:
    """A worker: it carries out runs until it is killed, or until the example is over."""
    async with fleet(folder).work(supervisors(folder), worker=name, concurrency=4):
        while not (folder / "over").exists():
            await anyio.sleep(0.1)


def started(folder: Path, n: int) -> subprocess.Popen[bytes]:
    """A new process that works under the name of worker `n`."""
    return subprocess.Popen([sys.executable, __file__, "work", str(folder), f"worker-{n}"])


async def kill(folder: Path, workers: int, kills: int) -> None:
    """Start the workers. Kill some while the runs go on, and start each again under its name."""
    working = [started(folder, n) for n in range(workers)]
    letters, sent = folder / "letters.txt", 0
    while not (folder / "over").exists():
        await anyio.sleep(0.05)
        now = len(letters.read_text().splitlines()) if letters.exists() else 0
        if kills and now > sent:  # somebody is at work
            sent, kills, n = now, kills - 1, random.randrange(workers)
            working[n].kill()
            working[n].wait()
            print(f"worker-{n} was killed")
            working[n] = started(folder, n)
    for process in working:
        await anyio.to_thread.run_sync(process.wait)


async def main(runs: int = 6, workers: int = 2, kills: int = 1) -> None:
    """Submit the runs, and wait for all of them."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "sessions").mkdir()
        queue = fleet(folder)
        ended: list[Receipt] = []
        async with anyio.create_task_group() as tasks:
            ids = [await queue.submit("writer", "Write to Ada and to Bob.", key=f"letters {n}") for n in range(runs)]
            tasks.start_soon(kill, folder, workers, kills)
            ended += [await queue.result(id) for id in ids]
            (folder / "over").touch()
        await queue.aclose()
        letters = (folder / "letters.txt").read_text().splitlines()
    print(f"{sum(one.ok for one in ended)} of {runs} runs have reached their goal")
    print(f"{len(letters) - len(set(letters))} letters were sent twice")
    assert all(one.next == "end" and one.ok for one in ended)
    assert len(letters) == len(set(letters)) <= 2 * runs


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", folder, name]:
            anyio.run(work, Path(folder), name)
        case numbers:
            anyio.run(partial(main, *(int(one) for one in numbers)))

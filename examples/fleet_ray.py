"""A fleet on Ray: many runs on a few actors, whose processes are killed at random. Every run ends
once, and no letter is sent twice.

python examples/fleet_ray.py                 6 runs on 2 workers, one of which is killed
python examples/fleet_ray.py 200 4 30        200 runs on 4 workers, 30 kills

The model is scripted, so the example needs no key and no network. It needs the extra `ray`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio
import ray

import monitor
from monitor.chunks import Chunk, TextDelta, ToolCall, TurnFinished
from monitor.errors import FinishReason
from monitor.fleet import FolderControl, FolderSessions, Receipt, Supervisors
from monitor.integrations.ray import Fleet
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
    """What a worker can carry out. Ray calls this once in each actor."""

    def send(to: str, context: monitor.ToolContext) -> str:
        """Send a letter. It cannot be taken back."""
        with (folder / "letters.txt").open("a") as letters:
            letters.write(f"{context.idempotency_key} {to}\n")
        return f"sent to {to}"

    known = Supervisors()
    known.add("writer", monitor.Supervisor(Writer(), tools=[send]))
    return known


async def kill(fleet: Fleet, folder: Path, kills: int) -> None:
    """Kill workers while the runs go on. Ray starts each again."""
    letters, sent = folder / "letters.txt", 0
    while kills:
        await anyio.sleep(0.05)
        now = len(letters.read_text().splitlines()) if letters.exists() else 0
        if now > sent and (living := await fleet.processes()):  # somebody is at work
            sent, kills = now, kills - 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(secrets.choice(living), signal.SIGKILL)
            print(f"a worker was killed, {kills} more will be")


async def main(runs: int = 6, workers: int = 2, kills: int = 1) -> None:
    """Submit the runs, and drive all of them to their ends."""
    ray.init(include_dashboard=False, log_to_driver=False)
    ended: list[Receipt] = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        places = FolderSessions(folder), FolderControl(folder)
        setup = partial(supervisors, folder)
        async with Fleet(setup, *places, workers=workers, streams=4, options={"num_cpus": 0}) as fleet:
            ids = [await fleet.submit("writer", "Write to Ada and to Bob.", key=f"letters {n}") for n in range(runs)]

            async def drive(id: str) -> None:
                ended.append(await fleet.drive(id))

            async with anyio.create_task_group() as killing:
                killing.start_soon(kill, fleet, folder, kills)
                async with anyio.create_task_group() as driving:
                    for id in ids:
                        driving.start_soon(drive, id)
                killing.cancel_scope.cancel()
        letters = (folder / "letters.txt").read_text().splitlines()
    ray.shutdown()
    print(f"{sum(one.ok for one in ended)} of {runs} runs have reached their goal")
    print(f"{len(letters) - len(set(letters))} letters were sent twice")
    assert all(one.next == "end" and one.ok for one in ended)
    assert len(letters) == len(set(letters)) <= 2 * runs


if __name__ == "__main__":
    anyio.run(partial(main, *(int(one) for one in sys.argv[1:])))

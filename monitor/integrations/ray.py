"""Ray (2.40 or newer): the workers of a fleet are actors, and each turn is a call of one of them.

    ray.init()
    async with Fleet(setup, sessions, control, workers=4) as fleet:
        run = await fleet.submit("writer", "Write a poem.", key="poem-7")
        receipt = await fleet.drive(run)

Ray only places the turns: it keeps no state that survives it. The session is the truth. A program
that died submits the same keys again, and every run goes on where it was.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self

import anyio

from monitor._util.argument_checks import is_whole
from monitor.errors import ConfigError, MissingExtra, StoreError
from monitor.fleet import (
    MAX_LOSSES,
    Control,
    NextTurn,
    Receipt,
    Sessions,
    Supervisors,
    decide,
    is_passing,
    take_turn,
)
from monitor.fleet.control import FleetClient
from monitor.runs.supervised_run import Run

try:
    import ray
    from ray.exceptions import RayActorError
except ImportError:
    raise MissingExtra("ray", "ray") from None

__all__ = ["Fleet", "FleetWorker"]

_TALKS: Final = 8
"""The questions that an actor answers at once, beside its turns."""
_DOWN_S: Final = 2.0
"""An actor that has died gets no turn for so long: Ray needs seconds to start it again."""
_BUSY_S: Final = 0.5
_log = logging.getLogger(__name__)


class FleetWorker:
    """One worker process. `Fleet` makes actors of it."""

    def __init__(
        self, setup: Callable[[], Supervisors], sessions: Sessions, control: Control, max_losses: int = MAX_LOSSES
    ) -> None:
        self._take = partial(take_turn, setup(), sessions, control=control, max_losses=max_losses)
        self._running: dict[str, Run[Any]] = {}

    @ray.method(concurrency_group="turns")
    async def turn(self, session: str, turn: int) -> str:
        """Make one turn, or find it in the session. Returns its receipt as JSON."""

        def began(run: Run[Any]) -> None:
            self._running[session] = run

        try:
            return (await self._take(session, turn, began=began)).to_json()
        finally:
            self._running.pop(session, None)

    @ray.method(concurrency_group="talk")
    async def snapshots(self, session: str) -> dict[str, Any] | None:
        """The snapshots of a run's detectors, by their names. `None`: this worker makes no turn
        of it at the moment.
        """
        run = self._running.get(session)
        return run.snapshots() if run is not None else None

    @ray.method(concurrency_group="talk")
    async def process(self) -> int:
        """The id of the worker's process."""
        return os.getpid()


class Fleet(FleetClient):
    """A fleet whose workers are actors of Ray. `ray.init()` comes first.

    `setup`: makes the supervisors, in each worker. `sessions`, `control`: where the sessions are,
    and what was said to them; the same for all workers. `workers`: how many actors. `streams`: how
    many turns an actor makes at once. `options`: passed to each actor as they are, such as
    `{"num_cpus": 0.5}`. `max_losses`: a run is parked when this number of workers have died in one
    turn without any progress.

    `drive` goes on with an answer. Abort a run with `abort`: `ray.cancel` would leave its turn
    open.
    """

    def __init__(
        self,
        setup: Callable[[], Supervisors],
        sessions: Sessions,
        control: Control,
        *,
        workers: int = 2,
        streams: int = 200,
        options: Mapping[str, Any] | None = None,
        max_losses: int = MAX_LOSSES,
    ) -> None:
        if not is_whole(workers) or workers < 1 or not is_whole(streams) or streams < 1:
            raise ConfigError(f"workers and streams are whole numbers from 1, not {workers!r} and {streams!r}")
        super().__init__(sessions, control)
        self._made = (setup, sessions, control, max_losses)
        self._number = workers
        # A turn that was lost is made anew by `drive`, on an actor that lives. Ray would make it on
        # the same actor, which takes seconds to start again.
        self._options = {
            "max_restarts": -1,
            "max_task_retries": 0,
            "concurrency_groups": {"turns": streams, "talk": _TALKS},
            **(options or {}),
        }
        self._workers: list[_Placed] = []

    async def __aenter__(self) -> Self:
        if not ray.is_initialized():
            raise ConfigError("Ray does not run here: call ray.init() first")
        actor = ray.remote(**self._options)(FleetWorker)
        self._workers = [_Placed(actor.remote(*self._made)) for _ in range(self._number)]
        return self

    async def __aexit__(self, *_: object) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:
            ray.kill(worker.actor)

    async def submit(self, supervisor: str, task: str, *, key: str | None = None, version: str = "1") -> str:
        """Store what is to be done. Returns the id of the run. The same `key` is the same run."""
        return await self._enter(supervisor, task, version=version, key=key)

    async def drive(self, id: str, *, turn: int = 1) -> Receipt:
        """Make turns until the run ends, waits for an answer, or is parked. Returns the last
        receipt. Turns that are stored are not made again.

        A run that waits goes on with `turn=receipt.turn + 1`, when it has its answer.
        """
        while True:
            receipt = await self._turn(id, turn)
            following = decide(receipt)
            if not isinstance(following, NextTurn):
                return receipt
            turn = following.turn

    async def _turn(self, id: str, turn: int) -> Receipt:
        """One turn. If its worker dies, another one makes it."""
        while True:
            worker = await self._free()
            worker.turns[id] = worker.turns.get(id, 0) + 1
            try:
                return Receipt.from_json(await worker.actor.turn.remote(id, turn))
            except RayActorError:
                worker.down_until = anyio.current_time() + _DOWN_S
            except StoreError as error:
                if not is_passing(error):
                    raise
                _log.warning("turn %d of the run %s is tried again: %s", turn, id, error)
                await anyio.sleep(_BUSY_S)
            finally:
                worker.turns[id] -= 1
                if not worker.turns[id]:
                    del worker.turns[id]

    async def _free(self) -> _Placed:
        """The worker with the fewest turns, of those that are not down."""
        if not self._workers:
            raise ConfigError("the fleet is not entered: async with Fleet(...) as fleet")
        while True:
            now = anyio.current_time()
            up = [one for one in self._workers if one.down_until <= now]
            if up:
                return min(up, key=lambda one: len(one.turns))
            await anyio.sleep(min(one.down_until for one in self._workers) - now)

    async def snapshots(self, id: str) -> dict[str, Any] | None:
        """The snapshots of a running turn's detectors, by their names, from the worker that
        makes it. `None`: none makes a turn of this run now.
        """
        for worker in [one for one in self._workers if id in one.turns]:
            with suppress(RayActorError):
                found: dict[str, Any] | None = await worker.actor.snapshots.remote(id)
                if found is not None:
                    return found
        return None

    async def processes(self) -> list[int]:
        """The process of each worker, without those that Ray starts again at the moment."""
        found: list[int] = []
        for worker in self._workers:
            with suppress(RayActorError):
                found.append(await worker.actor.process.remote())
        return found


class _Placed:
    """An actor, as the fleet sees it."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.turns: dict[str, int] = {}
        """How many turns of each run it makes."""
        self.down_until = 0.0

"""DBOS (3.4 or newer): a queue of runs over workers that may die, on SQLite or PostgreSQL.

    sessions, control = FolderSessions("sessions"), FolderControl("sessions")
    fleet = Fleet("sqlite:///fleet.db", sessions, control=control)
    session = await fleet.submit("writer", "Write to Ada.", key="letter-1")   # in any process

    async with fleet.work(supervisors, worker="worker-1"):                    # in each worker
        await anyio.sleep_forever()

One run is one workflow, and one turn is one step of it, whose result is a receipt of at most 2 KB.
Everything else stands in the session. DBOS only decides which worker makes the next turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import to_thread

from monitor._util.argument_checks import check_number
from monitor.errors import ConfigError, MissingExtra, StoreError
from monitor.fleet import (
    MAX_LOSSES,
    Control,
    NextTurn,
    Park,
    Receipt,
    Sessions,
    Supervisors,
    Wait,
    decide,
    is_passing,
    take_turn,
)
from monitor.fleet.control import RUN, TURN, FleetClient, FleetRun, RunState
from monitor.integrations._fleet_runs import runs_of
from monitor.tools.base import Background

try:
    from dbos import DBOS, DBOSClient
except ImportError:
    raise MissingExtra("dbos", "dbos") from None

from sqlalchemy.exc import DBAPIError

from monitor.integrations._fleet_runs import (
    Heartbeats,
    check_sqlite,
    engine_at,
    is_postgres,
    keep_alive,
    reached,
)

if TYPE_CHECKING:
    from dbos import EnqueueOptions, WorkflowHandleAsync
    from sqlalchemy import Engine

__all__ = ["Fleet"]

APP_VERSION: Final = "1"
"""The version of the workflow below. DBOS lets no other version go on with a run, so it changes
only with the order of the steps. The version of a supervisor is a part of the name of its queue.
"""
CONCURRENCY: Final = 200
"""Runs of one queue at once in one worker, by default."""
POSTPONED_S: Final = 5.0
"""The longest pause of a step that cannot be made now. The first one is a tenth of it."""

WAKE_S: Final = 5.0
"""How long an answer or an abort looks for the end of the turn that is being made."""
_log = logging.getLogger(__name__)
_FAILED: Final = frozenset({"ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"})


class Fleet(FleetClient):
    """Runs in the queue of one DBOS database. Submit to it, abort and wait in any process; `work`
    makes this process a worker.

    After an answer and an abort, it waits at most 5 seconds for the turn that is being made.
    """

    def __init__(
        self,
        database: str,
        sessions: Sessions,
        *,
        control: Control,
        name: str = "agent-monitor",
        partition_concurrency: int | None = None,
        poll_s: float = 1.0,
        silent_s: float = 15.0,
    ) -> None:
        """`database`: the address for DBOS, `sqlite:///path` or `postgresql://...`. `sessions`,
        `control`: the same ones in all processes. `name`: of the application in DBOS.

        `partition_concurrency`: this many runs of one partition go on at once at most, over all
        workers. Then each `submit` names a partition, such as a tenant. `poll_s`: seconds between
        two looks into the database, for work and for results. `silent_s`: seconds without a
        heartbeat after which the runs of a worker are adopted by the others.

        Raises `ConfigError` where DBOS cannot run: on SQLite, Python 3.12 needs SQLite 3.42.
        """
        check_sqlite(database)
        super().__init__(sessions, control)
        self._database = database
        self._name = name
        self._partitions = partition_concurrency
        self._poll_s = poll_s
        self._silent_s = silent_s
        self._client: DBOSClient | None = None
        self._engine: Engine | None = None
        self._connecting = anyio.Lock()

    # ------------------------------------------------------------------ what any process may do

    async def submit(
        self,
        supervisor: str,
        task: str,
        *,
        version: str = "1",
        key: str | None = None,
        partition: str | None = None,
        priority: int | None = None,
    ) -> str:
        """Queue a run, and return the id of its session. The same `key` is the same run, however
        often it is submitted. `priority`: smaller numbers come first.
        """
        if (partition is None) != (self._partitions is None):
            raise ConfigError(
                "a partition is given for each run of a fleet with partition_concurrency, and for no other"
            )
        id = await self._enter(supervisor, task, version=version, key=key)
        await self._enqueue(id, 1, queue_of(supervisor, version), partition=partition, priority=priority)
        return id

    async def _wake(self, id: str) -> None:
        """Let the run go on. A turn that ends after the answer was stored sees it by itself. One
        that is just ending may not, so a workflow that is being carried out is looked at again.
        """
        until = anyio.current_time() + WAKE_S
        while await self._goes_on(id) == "PENDING" and anyio.current_time() < until:  # noqa: ASYNC110 - a database
            await anyio.sleep(self._poll_s)

    async def go_on(self, id: str) -> None:
        """Let a run go on that waits, that is parked, or whose workflow has failed. Nothing happens
        to any other run.
        """
        await self._goes_on(id)

    async def _goes_on(self, session: str) -> str:
        """See `go_on`. Returns the state that the run's newest workflow had."""
        client = await self._connected()
        workflow, receipt = await self._newest(session)
        status = await (await client.retrieve_workflow_async(workflow)).get_status()
        following = decide(receipt) if receipt is not None else None
        if isinstance(following, Wait | Park):
            queue, partition = str(status.queue_name), status.queue_partition_key
            await self._enqueue(session, following.turn, queue, partition=partition)
            if isinstance(following, Wait) and following.wake_at_s is not None:  # it is queued for that time already
                await client.set_workflow_delay_async(workflow_of(session, following.turn), delay_seconds=0)
        elif status.status in _FAILED:  # turns that are stored are not made again
            queue, partition = str(status.queue_name), status.queue_partition_key
            await client.rewind_workflow_async(workflow, queue_name=queue, queue_partition_key=partition)
        return str(status.status)

    async def list(self, *, state: RunState | None = None, limit: int = 1_000) -> Sequence[FleetRun]:
        """The runs whose workflows were begun last, newest first. `state`: only those in this
        state. `limit`: how many are returned at most.
        """
        client = await self._connected()
        look = partial(client.list_workflows, name=RUN, sort_desc=True, load_input=False)
        return await to_thread.run_sync(runs_of, look, state, limit)  # DBOS ends the loop's own threads with a worker

    async def result(self, id: str) -> Receipt:
        """The receipt with which the run ended, waits or was parked, as soon as there is one."""
        client = await self._connected()
        workflow, receipt = await self._newest(id)
        if receipt is not None:
            return receipt
        running: WorkflowHandleAsync[Any] = await client.retrieve_workflow_async(workflow)
        return Receipt.from_json(str(await running.get_result(polling_interval_sec=self._poll_s)))

    async def aclose(self) -> None:
        """Close the connections to the database."""
        client, self._client = self._client, None
        engine, self._engine = self._engine, None
        if client is not None:
            await to_thread.run_sync(client.destroy)
        if engine is not None:
            await to_thread.run_sync(engine.dispose)

    async def _newest(self, session: str) -> tuple[str, Receipt | None]:
        """The workflow that carries the run out now, and its last receipt if it is over. Each
        question to a person ends a workflow, and the answer begins another.
        """
        client = await self._connected()
        workflow = session
        while True:
            found = await client.list_workflows_async(workflow_ids=[workflow])
            if not found:
                raise StoreError(f"the fleet has no run {session}")
            if found[0].status != "SUCCESS":
                return workflow, None
            receipt = Receipt.from_json(str(found[0].output))
            following = decide(receipt)
            if not isinstance(following, Wait | Park):
                return workflow, receipt
            coming = workflow_of(session, following.turn)
            found = await client.list_workflows_async(workflow_ids=[coming], load_output=False)
            if not found or found[0].status == "DELAYED":
                return workflow, receipt
            workflow = coming

    async def _enqueue(
        self, session: str, turn: int, queue: str, *, partition: str | None, priority: int | None = None
    ) -> None:
        options = options_of(session, turn, queue, self._name, partition=partition, priority=priority)
        client = await self._connected()
        await client.enqueue_async(options, session, turn, queue, partition)

    async def _connected(self) -> DBOSClient:
        async with self._connecting:
            if self._client is None:
                self._engine = self._engine or engine_at(self._database)  # kept by a connecting that failed
                self._client = await to_thread.run_sync(reached, partial(self._connect, self._engine))
            return self._client

    def _connect(self, engine: Engine) -> DBOSClient:
        DBOS.migrate(self._database)
        return DBOSClient(
            system_database_url=self._database,
            system_database_engine=engine if is_postgres(self._database) else None,
            application_name=self._name,
        )

    # ------------------------------------------------------------------ a worker

    @asynccontextmanager
    async def work(
        self,
        supervisors: Supervisors,
        *,
        worker: str | None = None,
        concurrency: int = CONCURRENCY,
        max_losses: int = MAX_LOSSES,
        grace_s: float = 30.0,
    ) -> AsyncIterator[None]:
        """Make this process a worker while the block is open, in this event loop of asyncio.

        `worker`: its name, which no other living worker has; by default a new one. A process with
        the name of one that has died takes up what that one had. If none comes, the other workers
        adopt it after `silent_s` seconds. `concurrency`: how many runs of each supervisor's version
        it carries out at once.
        `max_losses`: when this number of workers has died in one turn of a run, the run is parked.
        `grace_s`: how long the end of the block waits for running turns. A turn that takes longer
        is left to another worker.
        """
        check_number("concurrency", concurrency, 1)
        queues = sorted({queue_of(name, version) for name, version in supervisors})
        if not queues:
            raise ConfigError("a worker needs a supervisor: add one to the Supervisors")
        if _Worker.here is not None:
            raise ConfigError("this process is a worker already: DBOS has one instance in a process")
        worker = worker or uuid.uuid4().hex
        here = _Worker.here = _Worker(supervisors, self._sessions, self._control, self._name, max_losses)
        beats: Heartbeats | None = None
        adopting: Background | None = None
        engine = engine_at(self._database)
        try:
            await to_thread.run_sync(reached, partial(self._configure, engine, worker, queues))
            beats = await to_thread.run_sync(reached, partial(Heartbeats, engine))
            await to_thread.run_sync(beats.beat, worker)
            adopting = Background(
                partial(keep_alive, beats, worker, self._silent_s, _recover), "agent-monitor heartbeats"
            )
            DBOS.launch()  # here, so that DBOS runs the turns in this event loop
            for queue in queues:
                await DBOS.register_queue_async(
                    queue,
                    worker_concurrency=concurrency,
                    partition_concurrency=self._partitions,
                    polling_interval_sec=self._poll_s,
                    on_conflict="always_update",
                )
            yield
        finally:
            await here.leave(grace_s)
            _Worker.here = None
            if adopting is not None:
                adopting.cancel()
                await adopting.wait()
            if beats is not None:
                await to_thread.run_sync(_leave, beats, worker)
            await to_thread.run_sync(DBOS.destroy)
            await to_thread.run_sync(engine.dispose)

    def _configure(self, engine: Engine, worker: str, queues: Sequence[str]) -> None:
        DBOS.migrate(self._database)
        DBOS(
            config={
                "name": self._name,
                "system_database_url": self._database,
                "system_database_engine": engine if is_postgres(self._database) else None,
                "application_version": APP_VERSION,
                "executor_id": worker,
                "log_level": "WARNING",
                "notification_listener_polling_interval_sec": self._poll_s,
            }
        )
        DBOS.listen_queues([*queues])


def _recover(worker: str) -> bool:
    """Put the runs of a silent worker back into their queues. Each gets one worker, however many do
    this at once: DBOS takes only what still belongs to the silent one. False: it had none.
    """
    return bool(DBOS._recover_pending_workflows([worker]))  # noqa: SLF001 - as DBOS's own server does on request


def _leave(beats: Heartbeats, worker: str) -> None:
    """Say that the worker has left. If the database is away, the others find out by its silence."""
    with contextlib.suppress(DBAPIError):
        beats.end(worker)


class _Worker:
    """The state that the workflows of this process need. DBOS calls them by name, so they find it
    here.
    """

    here: _Worker | None = None

    def __init__(
        self, supervisors: Supervisors, sessions: Sessions, control: Control, name: str, max_losses: int
    ) -> None:
        self.name = name
        self._take = partial(take_turn, supervisors, sessions, control=control, max_losses=max_losses)
        self._leaving = anyio.Event()
        self._runs: set[asyncio.Task[Any]] = set()
        self._turns = 0
        self._idle = anyio.Event()

    def joins(self) -> asyncio.Task[Any] | None:
        """The running task is a run of this worker."""
        task = asyncio.current_task()
        if task is not None:
            self._runs.add(task)
            task.add_done_callback(self._runs.discard)
        return task

    async def turn(self, session: str, turn: int) -> str:
        """Make one turn, and try again while a store is away. A worker that leaves begins none."""
        pause_s = POSTPONED_S / 10
        while True:
            if self._leaving.is_set():
                await anyio.sleep_forever()
            self._turns += 1
            try:
                return (await self._take(session, turn)).to_json()
            except StoreError as error:
                if not is_passing(error):
                    raise
                _log.warning("turn %d of the run %s is tried again: %s", turn, session, error)
            finally:
                self._turns -= 1
                if not self._turns:
                    self._idle.set()
            with anyio.move_on_after(pause_s):
                await self._leaving.wait()
            pause_s = min(2 * pause_s, POSTPONED_S)

    async def leave(self, grace_s: float) -> None:
        """Wait for the turns that are being made, then drop the runs: DBOS still has them."""
        self._leaving.set()
        self._idle = anyio.Event()
        if self._turns:
            with anyio.move_on_after(grace_s):
                await self._idle.wait()
        runs = tuple(self._runs)
        for run in runs:
            run.cancel()
        if runs:
            await asyncio.wait(runs, timeout=grace_s)


@DBOS.workflow(name=RUN, max_recovery_attempts=None)
async def _run(session: str, turn: int, queue: str, partition: str | None) -> str:
    """One run, from `turn` on. Returns its last receipt."""
    worker = _here()
    worker.joins()
    while True:
        line = await _turn(session, turn)
        following = decide(Receipt.from_json(line))
        if isinstance(following, NextTurn):
            turn = following.turn
            continue
        if isinstance(following, Wait) and following.wake_at_s is not None:
            options = options_of(session, following.turn, queue, worker.name, partition=partition)
            options["delay_seconds"] = max(0.0, following.wake_at_s - time.time())
            await DBOS.enqueue_workflow_with_options_async(options, session, following.turn, queue, partition)
        return line


@DBOS.step(name=TURN)
async def _turn(session: str, turn: int) -> str:
    return await _here().turn(session, turn)


def _here() -> _Worker:
    if _Worker.here is None:
        raise ConfigError("this process is no worker: use `async with fleet.work(...)`")
    return _Worker.here


def queue_of(supervisor: str, version: str) -> str:
    """The queue for runs of this supervisor: only workers that have this version listen to it."""
    return f"{supervisor}/{version}"


def workflow_of(session: str, turn: int) -> str:
    """The id of the workflow that begins with this turn."""
    return session if turn == 1 else f"{session}.{turn}"


def options_of(
    session: str, turn: int, queue: str, name: str, *, partition: str | None, priority: int | None = None
) -> EnqueueOptions:
    """How a workflow is queued. One that is queued already stays as it is."""
    options: EnqueueOptions = {
        "workflow_name": RUN,
        "workflow_id": workflow_of(session, turn),
        "queue_name": queue,
        "app_version": APP_VERSION,
        "application_name": name,
    }
    if partition is not None:
        options["queue_partition_key"] = partition
    if priority is not None:
        options["priority"] = priority
    return options

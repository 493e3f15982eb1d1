"""Temporal (temporalio 1.20 or newer): a run is a workflow, and each of its turns an activity.

    plugin = FleetPlugin(supervisors, sessions, control)
    worker = Worker(client, task_queue="agents", plugins=[plugin])

    fleet = Fleet(client, sessions, control, task_queue="agents")
    run = await fleet.submit("writer", "Write a poem.", key="poem-7")
    receipt = await fleet.result(run)

The session is the truth, and Temporal decides which worker makes the next turn. Its history holds
ids, receipts of at most 2 KB, and wake-ups. Tasks, messages, answers and results stand only in the
session and beside it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

import anyio
from anyio import to_thread

from monitor.errors import ConfigError, MissingExtra, SessionBusy, SessionDamaged
from monitor.fleet import (
    MAX_LOSSES,
    Control,
    End,
    Park,
    Receipt,
    Sessions,
    Supervisors,
    UnknownSupervisor,
    Wait,
    decide,
    take_turn,
)
from monitor.fleet.control import RUN, TURN, FleetClient, FleetRun, RunState
from monitor.runs.supervised_run import Run
from monitor.tools.base import Background

try:
    from temporalio import activity, workflow
    from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus, WorkflowHandle
    from temporalio.common import Priority, RetryPolicy, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
    from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
    from temporalio.plugin import SimplePlugin
    from temporalio.service import RPCError, RPCStatusCode
except ImportError:
    raise MissingExtra("temporalio", "temporal") from None

__all__ = ["ABORT", "GO_ON", "RECEIPT", "RUN", "TURN", "Fleet", "FleetPlugin", "FleetWorkflow"]

ABORT: Final = "agent_monitor.abort"
"""The name of the activity that stores an abort. The workflow is called `RUN`, and the activity of
one turn `TURN`. Runs that are under way know these names, `GO_ON` and `RECEIPT`.
"""
GO_ON: Final = "agent_monitor.go_on"
"""The name of the signal: an answer or an abort is stored, or a parked run is to go on."""
RECEIPT: Final = "agent_monitor.receipt"
"""The name of the query for the newest receipt."""
_HELD: Final = "agent_monitor.held"
"""The key of the memo that says why a run makes no turn: `wait`, `park`, or nothing."""
_HELD_STATES: Final[Mapping[str | None, RunState]] = {"wait": "waits", "park": "parked"}
_VERSION: Final = 1
"""The version of a workflow's argument."""
_BEAT_S: Final = 1.0
_BUSY = timedelta(seconds=1)
_UNKNOWN = timedelta(seconds=10)
_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))
_ABORT_WITHIN = timedelta(seconds=30)


@workflow.defn(name=RUN, sandboxed=False)
class FleetWorkflow:
    """One run: one activity for each turn, and between two turns what `decide` says.

    It is deterministic, so it needs no sandbox, which would load this library anew for every run.
    An answer and an abort are stored before the signal says so. So the next turn sees them, and no
    signal is needed twice.
    """

    def __init__(self) -> None:
        self._woken = 0
        self._cancelled = False
        self._receipt: dict[str, Any] | None = None

    @workflow.run
    async def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Make one turn after the other. Returns the last receipt."""
        if order.get("version") != _VERSION:
            raise ApplicationError(f"this worker reads version {_VERSION} of a run", non_retryable=True)
        while True:
            woken = self._woken
            receipt = self._receipt = await self._turn(order)
            following = decide(_read(receipt))
            if isinstance(following, End):
                if self._cancelled:
                    raise asyncio.CancelledError
                return receipt
            if isinstance(following, Wait):
                await self._hold("wait", order, woken, following.wake_at_s)
            elif isinstance(following, Park):
                await self._hold("park", order, woken, None)
            order = {**order, "turn": following.turn}
            if workflow.info().is_continue_as_new_suggested() and not self._cancelled:
                workflow.continue_as_new(order)

    @workflow.signal(name=GO_ON)
    def go_on(self) -> None:
        """An answer or an abort is stored, or a parked run is to go on."""
        self._woken += 1

    @workflow.query(name=RECEIPT)
    def receipt(self) -> dict[str, Any] | None:
        """The receipt of the newest turn."""
        return self._receipt

    async def _turn(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """One turn. If the workflow is cancelled, the run is aborted and ends its turn itself."""
        turn = workflow.start_activity(
            TURN,
            {"session": order["session"], "turn": order["turn"]},
            result_type=dict[str, Any],
            start_to_close_timeout=timedelta(seconds=order["turn_s"]),
            heartbeat_timeout=timedelta(seconds=order["heartbeat_s"]),
            retry_policy=_RETRY,
            cancellation_type=workflow.ActivityCancellationType.ABANDON,
        )
        try:
            done: dict[str, Any] = await asyncio.shield(turn)
        except asyncio.CancelledError:
            await self._abort(order)
            done = await turn
        return done

    async def _hold(self, why: str, order: Mapping[str, Any], woken: int, wake_at_s: float | None) -> None:
        """Wait for a signal, or until `wake_at_s`."""
        if self._woken > woken:
            return
        timeout = None if wake_at_s is None else max(0.0, wake_at_s - workflow.now().timestamp())
        workflow.upsert_memo({_HELD: why})
        try:
            await workflow.wait_condition(lambda: self._woken > woken, timeout=timeout)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            await self._abort(order)
        workflow.upsert_memo({_HELD: None})

    async def _abort(self, order: Mapping[str, Any]) -> None:
        """Store that the run is to be aborted."""
        self._cancelled = True
        await workflow.execute_activity(
            ABORT,
            {"session": order["session"], "why": "the workflow was cancelled"},
            start_to_close_timeout=_ABORT_WITHIN,
            retry_policy=_RETRY,
        )


class _Activities:
    """The activities that a worker of Temporal offers."""

    def __init__(self, supervisors: Supervisors, sessions: Sessions, control: Control, max_losses: int) -> None:
        self._take = partial(take_turn, supervisors, sessions, control=control, max_losses=max_losses)
        self._control = control

    @activity.defn(name=TURN)
    async def turn(self, order: dict[str, Any]) -> dict[str, Any]:
        """Make one turn, or hand back the receipt of a turn that is stored."""
        running: list[Run[Any]] = []
        beating = Background(partial(_beat, running), "agent-monitor heartbeat")
        try:
            receipt = await self._take(order["session"], order["turn"], began=running.append)
        except SessionBusy as error:  # by a worker that has lost its heartbeat, and not its life
            raise _failure(error, next_retry_delay=_BUSY) from error
        except UnknownSupervisor as error:
            raise _failure(error, next_retry_delay=_UNKNOWN) from error
        except (ConfigError, SessionDamaged) as error:
            raise _failure(error, non_retryable=True) from error
        finally:
            beating.cancel()
            with anyio.CancelScope(shield=True):
                await beating.wait()
        return _data(receipt)

    @activity.defn(name=ABORT)
    async def abort(self, order: dict[str, Any]) -> None:
        """Store that a run is to be aborted. The running turn sees that within a second."""
        await to_thread.run_sync(self._control.abort, order["session"], order["why"])


async def _beat(running: list[Run[Any]]) -> None:
    """Say each second that the turn goes on, with the tokens of the run so far."""
    while True:
        activity.heartbeat({"tokens": running[-1].usage.total_tokens} if running else {})
        await anyio.sleep(_BEAT_S)


def _failure(error: Exception, **how: Any) -> ApplicationError:
    return ApplicationError(str(error), type=type(error).__name__, **how)


class FleetPlugin(SimplePlugin):
    """Lets a worker of Temporal carry out the runs of a fleet, beside its own workflows.

    `supervisors`: what this worker can run. `sessions`, `control`: where the sessions are, and what
    was said to them; the same for all workers. `max_losses`: a run is parked when this number of
    workers have died in one turn without any progress.
    """

    def __init__(
        self, supervisors: Supervisors, sessions: Sessions, control: Control, *, max_losses: int = MAX_LOSSES
    ) -> None:
        steps = _Activities(supervisors, sessions, control, max_losses)
        super().__init__("agent-monitor", workflows=[FleetWorkflow], activities=[steps.turn, steps.abort])


class Fleet(FleetClient):
    """Submits runs to the workers of a task queue, and talks to them.

    It needs the folder, or whatever else `sessions` and `control` stand for, as the workers do: a
    task, an answer and an abort are stored there before Temporal hears of them.
    """

    def __init__(self, client: Client, sessions: Sessions, control: Control, *, task_queue: str) -> None:
        super().__init__(sessions, control)
        self._client = client
        self._task_queue = task_queue

    async def submit(
        self,
        supervisor: str,
        task: str,
        *,
        key: str | None = None,
        version: str = "1",
        partition: str | None = None,
        priority: int | None = None,
        turn_timeout_s: float = 3600.0,
        heartbeat_timeout_s: float = 10.0,
    ) -> str:
        """Store what is to be done, and start the run. Returns its id, which is the id of the
        session; that of the workflow is `task_queue/id`. The same `key` is the same run, also after
        it has ended.

        `version`: of the supervisor. `partition`: the workers are shared fairly between
        partitions, such as tenants.
        `priority`: 1 to 5, 1 first. `turn_timeout_s`: a turn that takes longer is made anew.
        `heartbeat_timeout_s`: a worker that is silent for so long is taken for dead. A run whose
        workflow failed, or was terminated, goes on where it was.
        """
        id = await self._enter(supervisor, task, version=version, key=key)
        order = {
            "version": _VERSION,
            "session": id,
            "turn": 1,
            "turn_s": turn_timeout_s,
            "heartbeat_s": heartbeat_timeout_s,
        }
        with suppress(WorkflowAlreadyStartedError):
            await self._start(
                order,
                static_summary=f"{supervisor} {version}",
                priority=Priority(priority_key=priority, fairness_key=partition),
            )
        return id

    async def _start(self, order: Mapping[str, Any], **options: Any) -> None:
        await self._client.start_workflow(
            RUN,
            order,
            id=self._workflow(order["session"]),
            task_queue=self._task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            **options,
        )

    def handle(self, id: str) -> WorkflowHandle[Any, dict[str, Any]]:
        """The workflow of a run, for everything else that Temporal can do with it."""
        return self._client.get_workflow_handle(self._workflow(id), result_type=dict[str, Any])

    def _workflow(self, id: str) -> str:
        """The id of a workflow: fleets that share a namespace of Temporal may use the same keys."""
        return f"{self._task_queue}/{id}"

    async def result(self, id: str) -> Receipt:
        """Wait for the end of a run. Raises `WorkflowFailureError` if the workflow fails or was
        cancelled; the session says more.
        """
        return _read(await self.handle(id).result())

    async def receipt(self, id: str) -> Receipt | None:
        """The newest receipt of a run, from one of its workers. `None`: no turn is over yet."""
        data = await self.handle(id).query(RECEIPT, result_type=dict[str, Any])
        return _read(data) if data is not None else None

    async def list(self, *, state: RunState | None = None, limit: int = 1_000) -> Sequence[FleetRun]:
        """The runs: those under way first, then those that ended last. `state`: only those in this
        state; a run for which no worker is there counts as `running`. `limit`: how many are
        returned at most.

        Temporal tells neither workers nor receipts here; see `receipt` and `handle`.
        """
        under_way = "" if state in {None, "ended", "failed"} else " AND ExecutionStatus = 'Running'"
        seen: set[str] = set()
        found: list[FleetRun] = []
        async for one in self._client.list_workflows(f"WorkflowType = '{RUN}'{under_way}"):
            if len(found) == limit:
                break
            if one.task_queue == self._task_queue and one.id not in seen:  # else it has been begun again since then
                seen.add(one.id)
                now = await _state_of(one)
                if state in {None, now}:
                    since_s = (one.close_time or one.start_time).timestamp()
                    id = one.id.rpartition("/")[2]
                    found.append(
                        FleetRun(
                            session=id, state=now, queue=one.task_queue, worker=None, since_s=since_s, receipt=None
                        )
                    )
        return found

    async def go_on(self, id: str) -> None:
        """Let a run that is held make another turn, and try one again whose workflow has failed.
        Raises `ConfigError` if the run of this id has ended, or there is none.
        """
        try:
            await self.handle(id).signal(GO_ON)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            await self._begin_again(id)

    async def _begin_again(self, id: str) -> None:
        """Start a workflow that is over with the order and the priority that it had. Turns that are
        stored are not made again.
        """
        try:
            begun = await anext(self.handle(id).fetch_history_events(page_size=1))
            given = begun.workflow_execution_started_event_attributes
            (order,) = await self._client.data_converter.decode(given.input.payloads)
            was = given.priority
            priority = Priority(priority_key=was.priority_key or None, fairness_key=was.fairness_key or None)
            await self._start(order, priority=priority)
        except (RPCError, WorkflowAlreadyStartedError) as error:
            if isinstance(error, RPCError) and error.status is not RPCStatusCode.NOT_FOUND:
                raise
            raise ConfigError(f"no run {id} is under way: it has ended, or was never submitted") from None

    async def _wake(self, id: str) -> None:
        await self.go_on(id)


async def _state_of(execution: WorkflowExecution) -> RunState:
    if execution.status is WorkflowExecutionStatus.COMPLETED:
        return "ended"
    if execution.status is not WorkflowExecutionStatus.RUNNING:
        return "failed"
    return _HELD_STATES.get((await execution.memo()).get(_HELD), "running")


def _data(receipt: Receipt) -> dict[str, Any]:
    """A receipt as JSON data: as a text it would be quoted, and longer than 2 KB."""
    data: dict[str, Any] = json.loads(receipt.to_json())
    return data


def _read(data: Mapping[str, Any]) -> Receipt:
    return Receipt.from_json(json.dumps(data, separators=(",", ":")))

"""The part of a fleet's client that is equal in all engines: enter a job, answer, abort."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from anyio import to_thread

from monitor.calls import ApprovalAnswer
from monitor.fleet.control import Control
from monitor.fleet.jobs import FleetJob, Sessions, enter, session_id
from monitor.fleet.receipts import Receipt

RUN: Final = "agent_monitor.run"
"""The name of a run in an engine's database, which knows it for years."""
TURN: Final = "agent_monitor.turn"
"""The name of a turn in an engine's database, which knows it for years."""


RunState: TypeAlias = Literal["queued", "running", "waits", "parked", "ended", "failed"]
"""`waits`: for a person. `failed`: the engine has given its workflow up; `go_on` tries it again."""


@dataclass(slots=True, frozen=True, kw_only=True)
class FleetRun:
    """A run of a fleet, as its engine knows it."""

    session: str
    state: RunState
    queue: str
    """The queue of the engine. On DBOS it names the supervisor and its version."""
    worker: str | None
    """The worker that carries it out, or has last done so. `None`: none has begun it, or the engine
    does not say it.
    """
    since_s: float
    """The time of the last change of its workflow, in seconds since 1970."""
    receipt: Receipt | None
    """The last receipt of a run that waits, is parked or has ended, where the engine lists it."""


class FleetClient:
    """Stores what people say to the runs of a fleet before an engine hears of it."""

    def __init__(self, sessions: Sessions, control: Control) -> None:
        self._sessions = sessions
        self._control = control

    async def answer(self, id: str, answer: ApprovalAnswer) -> None:
        """Answer a question of a run that waits, and let the run go on."""
        await to_thread.run_sync(self._control.answer, id, answer)
        await self._wake(id)

    async def abort(self, id: str, why: str = "aborted") -> None:
        """Abort a run: a turn that is under way ends within a second or so, with its reason."""
        await to_thread.run_sync(self._control.abort, id, why)
        await self._wake(id)

    async def _enter(self, supervisor: str, task: str, *, version: str, key: str | None) -> str:
        """Store what is to be done, and return the id of the run."""
        id = session_id(key)
        await enter(self._sessions, id, FleetJob(supervisor=supervisor, version=version, task=task))
        return id

    async def _wake(self, id: str) -> None:
        """Let the run go on, after something was said to it. Most engines need no signal."""

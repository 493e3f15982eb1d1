"""The part of a fleet's client that is equal in all engines: enter a job, answer, abort."""

from __future__ import annotations

from typing import Final

from anyio import to_thread

from monitor.calls import ApprovalAnswer
from monitor.fleet.control import Control
from monitor.fleet.jobs import FleetJob, Sessions, enter, session_id

RUN: Final = "agent_monitor.run"
"""The name of a run in an engine's database, which knows it for years."""
TURN: Final = "agent_monitor.turn"
"""The name of a turn in an engine's database, which knows it for years."""


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

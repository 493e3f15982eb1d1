"""Parts of the tests of fleets: sessions in memory, workers that die, and a script with everything
in it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import monitor
from monitor.chunks import ToolCall
from monitor.errors import BudgetUnreachable, SessionNotFound
from monitor.fleet import FleetJob, NextTurn, Receipt, Supervisors, decide, enter, take_turn
from monitor.messages import AssistantMessage, CallRecord
from monitor.models import ModelRequest
from monitor.sessions import Changes, Committed, InMemorySession, Node, SessionStore
from monitor.shared import SQLiteBudgets
from monitor.testing import ScriptedModel
from monitor.tools import ToolContext

G = TypeVar("G")
T = TypeVar("T")

ID = "s" * 32
JOB = FleetJob(supervisor="writer", version="1", task="Write to Ada and Bob, then report.")


class Died(BaseException):
    """The worker is gone: nothing after it is stored."""


class Mortal:
    """A session that stores `steps` more steps. Then its worker dies, before or after the next."""

    def __init__(self, store: SessionStore, steps: int, *, after: bool) -> None:
        self._store = store
        self.left = steps
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, changes: Changes) -> Committed:
        return await self._step(self._store.commit, changes)

    async def advance(self, record: CallRecord) -> bool:
        return await self._step(self._store.advance, record)

    async def _step(self, step: Callable[[G], Awaitable[T]], given: G) -> T:
        if self.left <= 0:
            if self.left == 0 and self._after:
                self.left -= 1
                await step(given)
            raise Died
        self.left -= 1
        return await step(given)


class MemorySessions:
    """Sessions in memory. `dies`: the worker dies after so many steps of all its sessions."""

    def __init__(self) -> None:
        self.stores: dict[str, InMemorySession] = {}
        self.dies: tuple[int, bool] | None = None

    @asynccontextmanager
    async def open(self, id: str, *, create: bool = False) -> AsyncIterator[SessionStore]:
        if id not in self.stores:
            if not create:
                raise SessionNotFound(f"there is no session {id}")
            self.stores[id] = InMemorySession()
        if self.dies is None:
            yield self.stores[id]
            return
        mortal: Any = Mortal(self.stores[id], self.dies[0], after=self.dies[1])
        try:
            yield mortal
        finally:
            self.dies = (mortal.left, self.dies[1])

    async def look(self, id: str) -> Sequence[Node]:
        return await self.stores[id].active_path() if id in self.stores else ()


class Effects:
    """What the tools did: the idempotency key of each effect, in order."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.again: list[str] = []

    def make(self, key: str) -> None:
        """An effect: a second one with the same key is not made."""
        (self.again if key in self.made else self.made).append(key)


def script(request: ModelRequest) -> Any:
    """Two calls at once, a text that is no end, an output beside a call, and the last output."""
    replies = sum(isinstance(one, AssistantMessage) for one in request.messages)
    match replies:
        case 0:
            return ["I write both. ", ToolCall("1", "send", {"to": "Ada"}), ToolCall("2", "send", {"to": "Bob"})]
        case 1:
            return "Both letters are sent."
        case 2:
            return [ToolCall("3", "emit_value", {"name": "sent", "value": 2}), ToolCall("4", "send", {"to": "Cy"})]
        case _:
            return [
                ToolCall("5", "emit_value", {"name": "report", "value": "Done"}),
                ToolCall("6", "send", {"to": "Di"}),
            ]


def supervisors(effects: Effects, *, idempotent: bool = True, model: Any = script, **options: Any) -> Supervisors:
    @monitor.tool(idempotent=idempotent)
    def send(to: str, context: ToolContext) -> str:
        """Send a letter."""
        effects.make(context.idempotency_key)
        return f"sent to {to}"

    given = {"outputs": {"sent": int, "report": str}, **options}
    known = Supervisors()
    known.add("writer", monitor.Supervisor(ScriptedModel(model), tools=[send], **given))
    return known


async def driven(
    known: Supervisors, sessions: MemorySessions, *, lives: Sequence[tuple[int, bool] | None] = ()
) -> list[Receipt]:
    """Carry out the job as an engine does: each death is followed by another attempt. `lives`: when
    each worker dies; the last one lives on.
    """
    coming = [*lives, None]
    sessions.dies = None
    await enter(sessions, ID, JOB)
    sessions.dies = coming.pop(0)
    receipts: list[Receipt] = []
    turn = 1
    while True:
        try:
            receipt = await take_turn(known, sessions, ID, turn)
        except Died:
            sessions.dies = coming.pop(0)
            continue
        receipts.append(receipt)
        following = decide(receipt)
        if not isinstance(following, NextTurn):
            return receipts
        turn = following.turn


def facts(receipts: Sequence[Receipt]) -> list[Receipt]:
    """The receipts without the names of nodes, which are chance."""
    return [replace(one, head="") for one in receipts]


class Away(SQLiteBudgets):
    """A store of budgets that does not answer its first `left` steps, or those behind step `at`."""

    def __init__(self, left: int, at: int = 0) -> None:
        super().__init__(":memory:")
        self.left = left
        self.at = at

    async def _step(self, name: str | None, step: Any) -> Any:
        self.at -= 1
        if self.at < 0 < self.left:
            self.left -= 1
            raise BudgetUnreachable("it is being restarted")
        return await super()._step(name, step)

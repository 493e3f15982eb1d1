"""The session of one step: what it says of the step is written together with the turn itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from monitor.errors import SessionDamaged, StoreError
from monitor.events import RunTerminated
from monitor.fleet.jobs import ATTEMPT, POSTPONED, RECEIPT, receipt_of
from monitor.fleet.receipts import Receipt
from monitor.outcome import Outcome
from monitor.reasons import PASSING_REASONS, TerminateReason
from monitor.sessions.nodes import Draft, marker
from monitor.sessions.run_records import Changes, Committed
from monitor.sessions.session_store import SessionStore
from monitor.sessions.tree import ACTIVE
from monitor.sessions.writer import committed_in, note_committed

_LOST: Final = frozenset({TerminateReason.CANCELLED, TerminateReason.CLOSED_BY_CALLER})
"""Ends that an engine makes, which has cancelled the step. The run has not ended by them."""


class StepPostponed(StoreError):
    """The shared budget of a run could not be had for too long. The run has not ended: its step is
    to be tried again.
    """


class StepStore:
    """`store`, for one attempt at one step.

    The first commit of the attempt says that it began. The commit that holds the end of the step
    holds its receipt as well. A step that was cancelled from outside leaves the run as a worker
    leaves it that was killed.
    """

    def __init__(self, store: SessionStore, attempt: Mapping[str, int]) -> None:
        """`attempt`: what its marker says."""
        self._store = store
        self.attempt = attempt
        self._begun = False
        self.receipt: Callable[[Outcome[Any]], Receipt] | None = None
        """Makes the receipt of the step, without its newest node."""
        self.stored: Receipt | None = None
        """The receipt, when it is stored."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def add(self, receipt: Receipt) -> Receipt:
        """Store the receipt of a step that carries nothing out."""
        (node,) = await self._store.append(self._draft(receipt))
        self.stored = stored = receipt_of(node)
        if stored is None:
            raise SessionDamaged(f"node {node.id} holds no receipt")
        return stored

    async def commit(self, changes: Changes) -> Committed:
        if changes.branch != ACTIVE:  # of a nested run
            return await self._store.commit(changes)
        own: list[Draft] = []
        if not self._begun:
            own.append(marker(ATTEMPT, self.attempt))
        end = _end_in(changes)
        if end is not None and end.outcome.reason in _LOST:
            raise StoreError("the step was cancelled: what it did since the last commit is not stored")
        if end is not None and end.outcome.reason in PASSING_REASONS:
            await self._store.append(marker(POSTPONED, end.outcome.reason.value))
            raise StepPostponed(f"the step is tried again: {end.outcome.reason.value}: {end.outcome.detail}")
        if end is not None and self.receipt is not None:
            own.append(self._draft(self.receipt(end.outcome)))
        try:
            done = await self._store.commit(replace(changes, nodes=[*changes.nodes, *own]))
        except BaseException as error:
            if (stored := committed_in(error)) is not None:
                note_committed(error, self._took(stored, len(own)))
            raise
        return self._took(done, len(own))

    def _took(self, done: Committed, own: int) -> Committed:
        """`done`, without the nodes that the run does not know of."""
        self._begun = True
        for node in done.nodes[len(done.nodes) - own :]:
            self.stored = receipt_of(node) or self.stored
        return replace(done, nodes=done.nodes[: len(done.nodes) - own])

    def _draft(self, receipt: Receipt) -> Draft:
        return marker(RECEIPT, receipt.to_json(), run=None, turn=receipt.turns)


def _end_in(changes: Changes) -> RunTerminated | None:
    """The end of the run that these changes hold. Those of nested runs are written elsewhere."""
    return next((one for one in changes.events if isinstance(one, RunTerminated)), None)

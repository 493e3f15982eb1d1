"""The runs of a fleet as the states of an engine's workflows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from monitor.fleet import Park, Receipt, Wait, decide
from monitor.fleet.fleet_client import FleetRun, RunState

_STATES: Final[Mapping[str, RunState]] = {
    "ENQUEUED": "queued",
    "PENDING": "running",
    "DELAYED": "waits",
    "ERROR": "failed",
    "CANCELLED": "failed",
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": "failed",
}
"""The states of DBOS workflows that have no receipt."""


PAGE: Final = 1_000
"""Workflows that are read at once."""


def runs_of(look: Callable[..., Sequence[Any]], state: RunState | None, limit: int) -> Sequence[FleetRun]:
    """The first `limit` runs in this state; `None`: in any. `look`: reads workflows from an offset
    on, newest first.
    """
    seen: set[str] = set()
    found: list[FleetRun] = []
    offset = 0
    while len(found) < limit:
        page = look(limit=PAGE, offset=offset)
        for status in page:
            session = str(status.workflow_id).partition(".")[0]
            if session not in seen:  # else it is an earlier workflow of the run
                seen.add(session)
                run = _run_of(session, status)
                found += [run] if state in {None, run.state} else []
        if len(page) < PAGE:
            break
        offset += PAGE
    return found[:limit]


def _run_of(session: str, status: Any) -> FleetRun:
    """A run, from the status of its newest DBOS workflow."""
    receipt = Receipt.from_json(str(status.output)) if status.status == "SUCCESS" else None
    return FleetRun(
        session=session,
        state=_STATES[status.status] if receipt is None else _after(receipt),
        queue=str(status.queue_name),
        worker=status.executor_id,
        since_s=(status.updated_at or status.created_at or 0) / 1000,
        receipt=receipt,
    )


def _after(receipt: Receipt) -> RunState:
    following = decide(receipt)
    return "waits" if isinstance(following, Wait) else "parked" if isinstance(following, Park) else "ended"

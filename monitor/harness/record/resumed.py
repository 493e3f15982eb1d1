"""What a session says of a run that goes on: its past, and its nested runs."""

from __future__ import annotations

from monitor.core.past import Past, past_of
from monitor.events import RunTerminated
from monitor.outcome import Outcome
from monitor.sessions.run_records import SUBAGENT, RunRecord, RunStage
from monitor.sessions.session_store import SessionStore

CALL = "call"
"""The key, in the data of a nested run's record, of the call that began it."""


async def past_in(store: SessionStore, run: str) -> Past:
    """The past of a run. A nested run that has not ended goes on by itself, and counts then."""
    past = past_of([stored.event for stored in await store.events(run)])
    ended = [one for one in await store.runs() if one.parent_run == run and one.state is RunStage.ENDED]
    outcomes = [await outcome_in(store, one.id) for one in ended]
    past.nested = [(one.usage, one.cost_usd or 0.0) for one in outcomes if one is not None]
    return past


async def outcome_in(store: SessionStore, run: str) -> Outcome | None:
    """How a run has ended. `None`: the session does not say."""
    ends = [one.event.outcome for one in await store.events(run) if isinstance(one.event, RunTerminated)]
    return ends[-1] if ends else None


async def nested_in(store: SessionStore, caller: str, call: str) -> RunRecord | None:
    """The nested run that the call with the key `call` began before the process died."""
    began = (one for one in await store.runs() if one.parent_run == caller and one.purpose == SUBAGENT)
    return next((one for one in began if one.data.get(CALL) == call), None)

"""The past and the nested runs of a run that goes on, read from its session."""

from __future__ import annotations

from monitor.core.resumed import ResumedRun, resumed_run
from monitor.events import RunTerminated, TurnEnded
from monitor.harness.record.compaction_runs import USAGE
from monitor.outcome import Outcome
from monitor.sessions.run_records import COMPACT, SUBAGENT, RunRecord, RunStage
from monitor.sessions.session_store import SessionStore
from monitor.usage import NO_COST, AskCost

CALL = "call"
"""The key, in the data of a nested run's record, of the call that began it."""


async def past_in(store: SessionStore, run: str) -> ResumedRun:
    """The past of a run. A nested run that has not ended goes on by itself, and counts then."""
    past = resumed_run([stored.event for stored in await store.events(run)])
    of_run = [one for one in await store.runs(hidden=True) if one.parent_run == run]
    outcomes = [await outcome_in(store, one.id) for one in of_run if not one.hidden and one.state is RunStage.ENDED]
    past.nested = [(one.usage, one.cost_usd) for one in outcomes if one is not None]
    for child in of_run:
        if child.purpose == COMPACT and USAGE not in child.data:  # the process ended before its event was stored
            turns = (one.event.turn for one in await store.events(child.id) if isinstance(one.event, TurnEnded))
            past.compaction_cost += sum((AskCost(turn.usage, turn.usage_estimated) for turn in turns), NO_COST)
    return past


async def outcome_in(store: SessionStore, run: str) -> Outcome | None:
    """How a run has ended. `None`: the session does not say."""
    ends = [one.event.outcome for one in await store.events(run) if isinstance(one.event, RunTerminated)]
    return ends[-1] if ends else None


async def nested_in(store: SessionStore, caller: str, call: str) -> RunRecord | None:
    """The nested run that the call with the key `call` began before the process died."""
    began = (one for one in await store.runs() if one.parent_run == caller and one.purpose == SUBAGENT)
    return next((one for one in began if one.data.get(CALL) == call), None)

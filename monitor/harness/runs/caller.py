"""The run that calls another one as a tool, and what a run has from it and from its supervisor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from monitor.budget import Budget
from monitor.conditions import Condition, MaxTurns, Timeout
from monitor.conditions.usage_limits import DefaultLimits
from monitor.core.run import RunCore
from monitor.harness.checks import must_know_price
from monitor.harness.events.delivery import Delivery
from monitor.harness.record.recorder import TASK
from monitor.harness.record.stored_runs import CALL
from monitor.harness.runs.budget_hold import BudgetHold
from monitor.harness.runs.supervisor_options import RunOptions, checked_session
from monitor.harness.streams.clock import Clock
from monitor.prices import list_price
from monitor.sessions.run_records import SUBAGENT, RunRecord
from monitor.sessions.session_store import SessionStore
from monitor.usage import Price, price_of

DEFAULT_LIMITS = DefaultLimits((MaxTurns(100), Timeout(3600)))
"""The limits of a run without limits of the caller's. Gemini CLI gives a whole conversation with
its user 100 turns; an unwatched agent should not need more, nor more than an hour. A loop that no
detector sees then costs a few dollars at most.
"""
SUBAGENT_LIMITS = DefaultLimits((MaxTurns(30), Timeout(600)))
"""The limits of a run that is called as a tool, because its caller waits for it. Gemini CLI has the
same numbers.
"""


def limits_of(supervisor: RunOptions, *, as_tool: bool) -> Condition | None:
    """The limits of the run, without its budget."""
    if supervisor.limits_given:
        return supervisor.stop_when
    if as_tool:
        return SUBAGENT_LIMITS
    budgets = supervisor.budget.chain if supervisor.budget is not None else ()
    return None if any(budget.tokens is not None or budget.usd is not None for budget in budgets) else DEFAULT_LIMITS


class Abortable(Protocol):
    """A nested run, as its caller sees it."""

    def abort(self, why: str = ...) -> None:
        """End the run at once."""


@dataclass(slots=True, eq=False)
class Caller:
    """The run that calls a nested run, as the nested run sees it."""

    core: RunCore
    clock: Clock
    budgets: tuple[Budget, ...]
    supervisors: tuple[RunOptions, ...]
    """The supervisor of the calling run, then that of its own caller, and so on."""
    wake: Callable[[], None]
    """Makes the calling run check at once whether it must end."""
    delivery: Delivery
    """The sinks and the reader of the caller, who get the events of the nested run as well."""
    run_id: str = ""
    session: SessionStore | None = None
    resumed: bool = False
    """The calling run goes on where another process has left it."""
    deps: object = None
    called: set[Abortable] = field(default_factory=set[Abortable])
    """The nested runs of the calling run: its abort aborts them too."""


def store_of(session: SessionStore | str | None, supervisor: RunOptions, caller: Caller | None) -> SessionStore | None:
    """The session of a run: the given one, else the supervisor's, else that of the run above."""
    ledger = supervisor.calls.ledger
    above = caller.session if caller is not None and ledger is None else None
    return checked_session(session, ledger) or supervisor.session or above


def budgets_of(supervisor: RunOptions, budget_hold: BudgetHold | None, caller: Caller | None) -> tuple[Budget, ...]:
    """The budgets of a run: its own, what it holds of a shared one, and a share of each of its
    caller's.
    """
    own = (supervisor.budget, budget_hold.grant if budget_hold is not None else None)
    above = caller.budgets if caller is not None else ()
    return (*(budget for budget in own if budget is not None), *(budget.share() for budget in above))


def record_of(id: str, task: str, caller: Caller | None, agent: str, call: str) -> RunRecord:
    """The record of a new run of `agent`. `call`: the key of the call that a nested run is for."""
    if caller is None:
        return RunRecord(id=id, agent=agent, data={TASK: task})
    return RunRecord(id=id, parent_run=caller.run_id, agent=agent, purpose=SUBAGENT, data={TASK: task, CALL: call})


def price_known_to(supervisors: Sequence[RunOptions]) -> Price | None:
    """The price of the first supervisor's model, by its own prices or by those of the runs above.
    Raises `ConfigError` if a limit in US dollars needs a price that is not known.
    """
    model = supervisors[0].model.name
    own = (price for above in supervisors if (price := price_of(above.prices, model)) is not None)
    price = next(own, None) or list_price(model)
    for above in supervisors:
        must_know_price(price, above.stop_when, above.budget, model, f"prices={{{model!r}: monitor.Price(...)}}")
    return price

"""Checks that guard and supervisor share, and the end of a run whose block is left."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from os import PathLike, fspath
from typing import Any

from monitor._util.argument_checks import check_part, is_finite, is_whole
from monitor.budget import Budget
from monitor.conditions import Condition, CostLimit, OutputsComplete, PlanComplete, TaskDone
from monitor.conditions.condition import leaves
from monitor.errors import ConfigError, describe
from monitor.harness.streams.clock import Clock, SystemClock
from monitor.harness.streams.error_origin import cancelled_types
from monitor.judges.judge import Judge, as_judges
from monitor.reasons import TerminateReason
from monitor.usage import Price
from monitor.verdicts import Stop

KEEP_TEXT_CHARS = 1_000_000
"""How much text of a turn is kept, in code points. No model answers as much, so only a flood is
cut, which would fill the memory.
"""

CLOSE_GRACE_S = 2.0
"""How long closing a source may take, in seconds. Real SDKs take below a millisecond."""


def ending_by(error: BaseException | None) -> Stop | None:
    """The end of a run whose block is left by `error`, if nothing was decided before."""
    if error is None:
        return None
    cancelled = cancelled_types()  # a task may be destroyed with its event loop
    # On trio a cancellation that passes through a nursery arrives in an exception group.
    if isinstance(error, cancelled) or (isinstance(error, BaseExceptionGroup) and error.split(cancelled)[1] is None):
        return Stop(TerminateReason.CANCELLED, "a cancellation went through the run", "caller")
    if isinstance(error, GeneratorExit):
        return Stop(TerminateReason.CLOSED_BY_CALLER, "the generator around the run was closed", "caller")
    return Stop(TerminateReason.ERROR, describe(error), "caller")


def must_know_price(
    price: Price | None, stop_when: Condition | None, budget: Budget | None, model: str, give: str
) -> None:
    """Raise `ConfigError` for a limit in US dollars without a known price."""
    in_usd: list[object] = (
        [part for part in leaves(stop_when) if _is_in_usd(type(part))] if stop_when is not None else []
    )
    in_usd += [part for part in (budget.chain if budget is not None else ()) if part.usd is not None]
    if in_usd and price is None:
        raise ConfigError(f"{in_usd[0]!r} needs to know what {model} costs: give {give}")


def checked_judges(
    given: Judge | Sequence[Judge] | None, stop_when: Condition | None, *, outputs: bool, plan: bool
) -> tuple[Judge, ...]:
    """The judges of a run. `outputs`, `plan`: whether the run has outputs, and a plan.

    Raises `ConfigError` for what is no judge, and for a condition that nothing can make true.
    """
    judges = as_judges(given)
    for part in leaves(stop_when) if stop_when is not None else ():
        if isinstance(part, TaskDone) and not any(judge.fact == "done" for judge in judges):
            raise ConfigError("TaskDone needs a judge that says when: write judge=monitor.DoneJudge(model)")
        if isinstance(part, OutputsComplete) and not outputs:
            raise ConfigError("OutputsComplete needs declared outputs: write outputs={'summary': str}")
        if isinstance(part, PlanComplete) and not plan:
            raise ConfigError(
                "PlanComplete needs the plan of a supervisor: write monitor.Supervisor(model,"
                " plan=monitor.Plan(['look', 'mend', 'test']))"
            )
    return judges


@cache
def _is_in_usd(kind: type) -> bool:
    return issubclass(kind, CostLimit)


def check_session(session: object, method: str) -> Any:
    """`session`. Raises `ConfigError` for a path, and for an object without `method`."""
    if isinstance(session, str | PathLike):
        path = fspath(session)
        raise ConfigError(
            f"session takes an open session, not the path {path!r}: write async with"
            f" monitor.sessions.SQLiteSession({path!r}) as session: ... session=session"
        )
    check_part("session", session, method)
    return session


def check_bounds(keep_text_chars: int | None, close_grace_s: float | None, max_nudges: int | None) -> None:
    """Raise `ConfigError` for a bound that is out of range."""
    if keep_text_chars is not None and not (is_whole(keep_text_chars) and keep_text_chars >= 0):
        raise ConfigError(
            f"keep_text_chars is {keep_text_chars!r}; give a whole number, or None to keep all of the text"
        )
    if close_grace_s is not None and not (is_finite(close_grace_s) and close_grace_s > 0):
        raise ConfigError(f"close_grace_s is {close_grace_s!r}; give seconds above 0, or None for no bound")
    if max_nudges is not None and not (is_whole(max_nudges) and max_nudges >= 0):
        raise ConfigError(f"max_nudges is {max_nudges!r}; give 0 or more, or None for no bound")


_SYSTEM_CLOCK = SystemClock()


def clock_of(given: Clock | None) -> Clock:
    """`given`, checked. `None`: the system's clock."""
    if given is None:
        return _SYSTEM_CLOCK
    check_part("clock", given, "call_at")
    return given

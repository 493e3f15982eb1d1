"""What guard and supervisor check alike, and how a block that is left ends its run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from monitor._util.checks import check_part, is_finite, is_whole
from monitor.budget import Budget
from monitor.calls import CallLedger
from monitor.conditions import Condition, CostLimit
from monitor.conditions.base import leaves
from monitor.errors import ConfigError, describe
from monitor.harness.streams.clock import Clock, SystemClock
from monitor.harness.streams.wait import cancelled_types
from monitor.reasons import TerminateReason
from monitor.tools.approval import Approval, Approver, AskFunction, approver_of
from monitor.usage import Price
from monitor.verdicts import Stop

KEEP_TEXT_CHARS = 1_000_000
"""Text of a turn that is kept, in code points: more than any model answers, so that only a flood is
cut, which would fill the memory.
"""

CLOSE_GRACE_S = 2.0
"""How long closing a source may take, in seconds. Real SDKs take below a millisecond."""


Offer: TypeAlias = Callable[[int, Sequence[str]], Collection[str]]
"""Which tools the model is offered, by the number of the turn and the names of the tools."""


@dataclass(slots=True, frozen=True)
class CallOptions:
    """How the calls of a run are carried out."""

    max_parallel: int
    ledger: CallLedger | None
    approval: Approval
    approver: Approver | AskFunction | None
    offer: Offer | None
    artifacts: Any

    def __post_init__(self) -> None:
        if not is_whole(self.max_parallel) or self.max_parallel < 1:
            raise ConfigError(f"max_parallel_tools={self.max_parallel!r}: give 1 or more")
        if self.ledger is not None:
            check_part("ledger", self.ledger, "advance")
        approver_of(self.approver)
        if self.offer is not None and not callable(self.offer):
            raise ConfigError(f"offer takes a function of the turn and the tools' names, not {self.offer!r}")


def ending_by(error: BaseException | None) -> Stop | None:
    """How a run ends that is left by `error`, if nothing was decided before."""
    if error is None:
        return None
    cancelled = cancelled_types()  # a task may be destroyed with its event loop
    # On trio a cancellation that goes through somebody's nursery comes out in a group.
    if isinstance(error, cancelled) or (isinstance(error, BaseExceptionGroup) and error.split(cancelled)[1] is None):
        return Stop(TerminateReason.CANCELLED, "a cancellation went through the run", "caller")
    if isinstance(error, GeneratorExit):
        return Stop(TerminateReason.CLOSED_BY_CALLER, "the generator around the run was closed", "caller")
    return Stop(TerminateReason.ERROR, describe(error), "caller")


def must_know_price(
    price: Price | None, stop_when: Condition | None, budget: Budget | None, model: str, give: str
) -> None:
    """Raise `ConfigError` for a limit in US dollars that nobody can count."""
    in_usd: list[object] = (
        [part for part in leaves(stop_when) if isinstance(part, CostLimit)] if stop_when is not None else []
    )
    in_usd += [part for part in (budget.chain if budget is not None else ()) if part.usd is not None]
    if in_usd and price is None:
        raise ConfigError(f"{in_usd[0]!r} needs to know what {model} costs: give {give}")


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


def clock_of(given: Clock | None) -> Clock:
    """The clock that was given, checked, or the system's."""
    if given is None:
        return SystemClock()
    check_part("clock", given, "call_at")
    return given

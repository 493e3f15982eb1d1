"""The limits of a run: what it may use at most, what it has used, when to look again, and what it is warned of."""

from __future__ import annotations

import math
from collections.abc import Sequence

from monitor.budget import Budget
from monitor.conditions.base import Condition
from monitor.events import LimitWarning
from monitor.prices import Price
from monitor.schedule import Schedule
from monitor.spending import Spending
from monitor.state import RunState
from monitor.verdicts import Stop
from monitor.warner import Warner

ASK_AGAIN_S = 0.001
"""A condition of the caller's may name a deadline at which it is not true: so it is asked no more often than this, in seconds."""


class Limits:
    """Condition and budgets of one run. `nested`: it is the tool of another one, whose limits count as well.

    A condition may be the caller's code: whatever it raises goes on, and `name` says whose it was.
    """

    __slots__ = ("_condition", "_nested", "_price", "_schedule", "_warner", "spending")

    def __init__(
        self, condition: Condition | None, *, price: Price | None = None, budgets: Sequence[Budget] = (), nested: bool = False
    ) -> None:
        self.spending = Spending(price, budgets)
        self._price = price
        self._nested = nested
        self._warner = Warner()
        self.replace(condition)

    def replace(self, condition: Condition | None) -> None:
        """Another condition from now on. Budgets stay."""
        self._condition = condition
        self._schedule = Schedule(condition, self._price, self.spending.budgets, nested=self._nested)

    def __bool__(self) -> bool:
        """There is anything to look at."""
        return self._condition is not None or self._nested or bool(self.spending.budgets)

    @property
    def name(self) -> str:
        """Who is to blame for an exception."""
        return self.condition_name or "budget"

    @property
    def condition_name(self) -> str | None:
        """Of the condition, if there is one."""
        return self._condition.name if self._condition is not None else None

    @property
    def timed(self) -> bool:
        """Something of it may become true by time alone."""
        return self._condition is not None

    def look(self, state: RunState, overspent: Stop | None) -> Stop | None:
        """Is a limit exceeded? `overspent`: what the budgets say. If not, the next look is planned. `state` must be the caller's alone."""
        stop = (self._condition.evaluate(state) if self._condition is not None else None) or overspent
        if stop is None:
            if state.phase == "streaming" and state.waiting_since_s is None:
                # The next read can begin now at the earliest: planning for that gives the lower bound that a deadline promises.
                object.__setattr__(state, "waiting_since_s", state.elapsed_s)  # a copy would cost as much as a look
            self._schedule.plan(state)
        elif not isinstance(stop, Stop):
            raise TypeError(f"expected a Stop or None, got {stop!r}")
        return stop

    @property
    def deadline_s(self) -> float:
        """Before it, in seconds since the run began, no limit can have been exceeded by time alone."""
        return self._schedule.deadline_s

    def exact_deadline_s(self, state: RunState) -> float:
        """The same, made exact for the read that `state` waits for. Never raises."""
        try:
            self._schedule.plan(state)
            due_s = self._schedule.deadline_s
            if due_s <= state.elapsed_s and self._condition is not None and self._condition.evaluate(state) is None:
                return state.elapsed_s + ASK_AGAIN_S
        except Exception:  # noqa: BLE001 - the look that follows meets the same error, and names it
            return -math.inf
        return due_s

    def warnings(self, state: RunState) -> Sequence[LimitWarning]:
        """Which limits are nearly used up, each told once."""
        return self._warner.look(self._condition, self.spending.budgets, state)

    def spend(self, eighths: int) -> bool:
        """So many eighths of an output token have come. True: a limit may have been passed."""
        return self._schedule.spend(eighths)

    @property
    def free_chars(self) -> int:
        """Characters that may come before the text must be looked at, so that no limit is overrun unseen."""
        return self._schedule.free_chars

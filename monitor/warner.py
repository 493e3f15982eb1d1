"""Which limits of a run are nearly used up, each told once."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.budget import Budget
from monitor.conditions.base import Condition
from monitor.events import LimitWarning
from monitor.state import RunState
from monitor.verdicts import Met

WARN_AT = 0.8
"""A warning is early enough to finish in order, and late enough to be news: of 30 turns six are left."""


class Warner:
    """The warnings of one run."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: set[tuple[int, int]] = set()

    def look(self, condition: Condition | None, budgets: Sequence[Budget], state: RunState) -> list[LimitWarning]:
        """The limits that have come to `WARN_AT` since the last look. To be asked when nothing ends the run."""
        sources = [condition.progress(state) if condition is not None else (), *(budget.progress() for budget in budgets)]
        found: list[LimitWarning] = []
        for source, used in enumerate(sources):
            for place, met in enumerate(used):
                if (source, place) not in self._told and (warning := _warning(met, state)) is not None:
                    self._told.add((source, place))
                    found.append(warning)
        return found


def _warning(met: Met, state: RunState) -> LimitWarning | None:
    value, limit = met.value, met.limit
    if isinstance(value, int | float) and isinstance(limit, int | float) and limit > 0 and value / limit >= WARN_AT:
        return LimitWarning(state.elapsed_s, met.condition, value, limit)
    return None

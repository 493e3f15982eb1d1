"""Models that loop in most runs behind the proxy: one line for all of those runs.

A model that loops in one run is the trouble of that run. If it loops in most runs at once, that is
the trouble of the model, and one line says so.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from monitor.outage import Failure, OutageRule, Trouble
from monitor.verdicts import FleetFinding

MODELS_KEPT: Final = 200
"""Models whose runs are counted: those that were asked last. Clients choose the names."""


class ModelOutages:
    """The outages of the models behind one proxy. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._rule = OutageRule()
        self._troubles: OrderedDict[str, Trouble] = OrderedDict()

    def looped(self, model: str, run: str, now: float) -> bool:
        """Note that `model` has looped in `run`. True: with this run it is an outage."""
        failure = Failure(model, f"model {model}", "loop", "loop: the model repeats itself", by_chance=True)
        return self._rule.failed(self._of(model), failure, run, now) is not None

    def worked(self, model: str, run: str, now: float) -> None:
        """Note that an answer of `model` in `run` has come to its end."""
        if model in self._troubles:
            trouble = self._of(model)
            self._rule.succeeded(trouble, run, now, now)
            if self._rule.is_over(trouble, now):
                del self._troubles[model]

    def going_on(self, now: float) -> list[FleetFinding]:
        """The outages that have not ended, of models that are still asked."""
        since = now - self._rule.window_s
        return [
            one.outage.finding() for one in self._troubles.values() if one.outage is not None and one.changed_s >= since
        ]

    def _of(self, model: str) -> Trouble:
        trouble = self._troubles.setdefault(model, Trouble())
        self._troubles.move_to_end(model)
        if len(self._troubles) > MODELS_KEPT:
            self._troubles.popitem(last=False)
        return trouble

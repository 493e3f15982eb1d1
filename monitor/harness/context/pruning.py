"""The pruning of a history after a turn, in the background."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Final

import anyio.to_thread

from monitor.context.history import CommittedEdit, History
from monitor.context.measure.tokens import ContextMeter
from monitor.context.reduce.reduction import Reducer, Reduction, propose_for
from monitor.context.reduce.unread import Sparing
from monitor.context.turns import unread_from
from monitor.errors import describe
from monitor.tools.event_loop import Background

WORTH_A_LOOK_TOKENS: Final = 5_000
"""Tokens by which the context must grow before it is pruned after a turn again."""


@dataclass(slots=True)
class Pruning:
    """Applies `reducers` to a history beside the run, in a thread: a look takes as long as the
    history is. `done` gets each reduction that the history has taken, `failed` what went wrong.
    """

    reducers: Sequence[Reducer]
    history: History
    meter: ContextMeter
    _: KW_ONLY
    head: Callable[[], int]
    done: Callable[[Reduction], None]
    failed: Callable[[str], None]
    task: Background | None = None
    cancelled: bool = False
    pruned_at: int = 0
    """The tokens at the last look, or the fewest since."""

    def turn_ended(self) -> None:
        """A turn is part of the history. Once enough has come for a look, one begins."""
        if not self.reducers or (self.task is not None and not self.task.ended):
            return
        tokens = self.meter.count().tokens
        self.pruned_at = min(self.pruned_at, tokens)
        if tokens >= self.pruned_at + WORTH_A_LOOK_TOKENS:
            self.pruned_at = tokens
            self.cancelled = False
            self.task = Background(self._prune, "agent-monitor prune")

    def cancel(self) -> None:
        """The run ends: what is found is not wanted any more."""
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()

    async def _prune(self) -> None:
        history, head = self.history, self.head()
        messages = history.messages
        unread = unread_from(messages, head=head)
        reducers = [Sparing(reducer, unread) for reducer in self.reducers]
        try:
            look = partial(propose_for, messages, history.version, *reducers, head=head)
            reduction = await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
            if reduction is None or self.cancelled or not isinstance(history.commit(reduction.edit), CommittedEdit):
                return
        except Exception as error:  # noqa: BLE001 - a reducer may be the caller's code
            self.failed(f"after a turn: {describe(error)}")
            return
        self.pruned_at = self.meter.count().tokens
        self.done(reduction)

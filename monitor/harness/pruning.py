"""What a preset takes out after a turn goes in the background."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import anyio.to_thread

from monitor.context.history import Committed, History
from monitor.context.reduction import Reducer, Reduction, propose_for
from monitor.context.tokens import ContextMeter
from monitor.context.turns import unread_from
from monitor.context.unread import Sparing
from monitor.errors import describe
from monitor.harness.streams.background import Background

WORTH_A_LOOK_TOKENS: Final = 5_000
"""Tokens by which the context must grow before it is pruned after a turn again."""


class Pruning:
    """Applies `reducers` to a history beside the run, in a thread: a look takes as long as the
    history is. `done` gets each reduction that the history has taken, `failed` what went wrong.
    """

    def __init__(
        self,
        reducers: Sequence[Reducer],
        history: History,
        meter: ContextMeter,
        *,
        head: Callable[[], int],
        done: Callable[[Reduction], None],
        failed: Callable[[str], None],
    ) -> None:
        self._reducers = reducers
        self._history = history
        self._meter = meter
        self._head = head
        self._done = done
        self._failed = failed
        self.task: Background | None = None
        self._cancelled = False
        self._pruned_at = 0
        """The tokens at the last look, or the fewest since."""

    def turn_ended(self) -> None:
        """A turn is part of the history. Once enough has come for a look, one begins."""
        if not self._reducers or (self.task is not None and not self.task.ended):
            return
        tokens = self._meter.count().tokens
        self._pruned_at = min(self._pruned_at, tokens)
        if tokens >= self._pruned_at + WORTH_A_LOOK_TOKENS:
            self._pruned_at = tokens
            self._cancelled = False
            self.task = Background(self._prune, "agent-monitor prune")

    def cancel(self) -> None:
        """The run ends: what is found is not wanted any more."""
        self._cancelled = True
        if self.task is not None:
            self.task.cancel()

    async def _prune(self) -> None:
        history, head = self._history, self._head()
        messages = history.messages
        unread = unread_from(messages, head=head)
        reducers = [Sparing(reducer, unread) for reducer in self._reducers]
        try:
            look = partial(propose_for, messages, history.version, *reducers, head=head)
            reduction = await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
            if reduction is None or self._cancelled or not isinstance(history.commit(reduction.edit), Committed):
                return
        except Exception as error:  # noqa: BLE001 - a reducer may be the caller's code
            self._failed(f"after a turn: {describe(error)}")
            return
        self._pruned_at = self._meter.count().tokens
        self._done(reduction)

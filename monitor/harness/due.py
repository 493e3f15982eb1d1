"""When the history of one run is compacted: before a request, or while an answer is worked on."""

from __future__ import annotations

from monitor.compaction.preset import Preset
from monitor.compaction.records import CompactionError
from monitor.compaction.watermarks import Hysteresis, Marks
from monitor.context.history import History
from monitor.context.tokens import ContextMeter, TokenCount
from monitor.context.window import Window, WindowSource
from monitor.messages import UserMessage
from monitor.reasons import PRESSING, CompactionFailure, CompactionReason


class Due:
    """Measures a run's history against the watermarks of its model, and remembers what came of the
    compactions before.
    """

    def __init__(self, preset: Preset, history: History, meter: ContextMeter, window: Window) -> None:
        self._background = preset.background
        self._history = history
        self._meter = meter
        self._hysteresis = Hysteresis(Marks(window, preset.headroom, preset.low_water))
        self.count = TokenCount(0, 0, 0)
        """The newest count of the next request."""
        self.read = 0
        """The number of originals that the model has answered to."""
        self.pressed: CompactionReason | None = None
        """Why the next request must not be sent as it stands, whatever is counted."""
        self.hurried = False
        """The run has its last turn: a compaction at the mark is not worth its time."""
        self._nothing_at: int | None = None
        """The number of originals when there was nothing to compact at the mark."""
        self._waits_for_reading = False
        """There was nothing because of results that the model had not read."""

    @property
    def marks(self) -> Marks:
        """As far as the window is known by now."""
        return self._hysteresis.marks

    @property
    def window(self) -> Window:
        """As far as it is known by now."""
        return self.marks.window

    def learned(self, window_tokens: int) -> None:
        """The provider has stated its limit."""
        self._hysteresis.relearned(self.window.learned(window_tokens))

    def recount(self) -> None:
        """Count the next request anew."""
        self.count = self._meter.count()

    def before_request(self) -> CompactionReason | None:
        """Why the next request is to be made smaller before it is sent; `None`: it need not be."""
        if self.marks.high is None:  # only a refusal tells: there is nothing to count for
            return self.pressed
        self._look_for_users()
        self.recount()
        return self.pressed or self.at(self.count.tokens)

    def at(self, tokens: int) -> CompactionReason | None:
        """Why a request of `tokens` is to be made smaller."""
        reason = self._hysteresis.due(tokens)
        return None if reason is CompactionReason.HIGH_WATER and self.hurried else reason

    def beside(self, tokens: int) -> bool:
        """Whether a compaction begins while the tools run. `tokens`: what the provider has counted;
        0: it has not.
        """
        high_water = CompactionReason.HIGH_WATER
        if not tokens or not self._background or self.at(tokens) is not high_water:
            return False
        count = self._meter.count()  # what the provider counted may have been made smaller while it answered
        if self.at(count.tokens) is not high_water:
            return False
        self.count = count
        return True

    def waits_for(self, reason: CompactionReason) -> bool:
        """Whether the run waits for a compaction for this reason."""
        return reason is not CompactionReason.HIGH_WATER or not self._background

    def warns(self) -> bool:
        """Whether to tell that a compaction is near: once, until one is accepted."""
        return self._hysteresis.warn(self.count.tokens)

    def asks_model(self, reason: CompactionReason) -> bool:
        """Whether a model is asked for a compaction: not in a run's last turn, and with the breaker
        open now and then only.
        """
        return not self.hurried and (reason not in PRESSING or self._hysteresis.asks_model)

    @property
    def surely_too_long(self) -> str | None:
        """Why the request that was last asked about will be refused, whatever the estimate is off
        by; `None`: it may well be taken.
        """
        window, count = self.window, self.count
        if window.tokens is None or window.source is WindowSource.DEFAULT or count.low <= window.tokens:
            return None
        return (
            f"the next request has about {count.tokens:,} tokens, at least {count.low:,}, and the window has"
            f" {window.tokens:,}"
        )

    # --- what has happened

    def answered(self) -> None:
        """The model has answered to the history as it stands: none of its results is unread."""
        self.read = self._originals()
        if self._waits_for_reading:
            self._something_changed()

    def accepted(self, *, made_do: bool) -> None:
        """A compaction is part of the history. `made_do`: something else had to do instead of a
        summary.
        """
        self.pressed = None
        self._hysteresis.accepted(made_do=made_do)

    def failed(self, error: CompactionError, reason: CompactionReason, tokens: int) -> None:
        """A compaction of a request with `tokens` has failed."""
        if error.failure is not CompactionFailure.ABORTED:  # which says nothing of the next one
            self._hysteresis.failed(error.failure, reason, tokens)
        if error.failure is CompactionFailure.NOTHING_TO_COMPACT and reason is CompactionReason.HIGH_WATER:
            self._nothing_at, self._waits_for_reading = self._originals(), error.retryable

    def _originals(self) -> int:
        return self._history.originals_before(len(self._history))

    def _look_for_users(self) -> None:
        """A new message of the user may be where the history can be cut: then it is worth another
        look.
        """
        if self._nothing_at is None:
            return
        messages = self._history.messages
        new = self._originals() - self._nothing_at
        if any(isinstance(message, UserMessage) for message in messages[max(0, len(messages) - new) :]):
            self._something_changed()

    def _something_changed(self) -> None:
        self._hysteresis.changed()
        self._nothing_at, self._waits_for_reading = None, False

"""When the history of one run is compacted: before a request, or while an answer is worked on."""

from __future__ import annotations

from monitor.compaction.preset import Preset
from monitor.compaction.watermarks import Hysteresis, Marks
from monitor.context.history import History
from monitor.context.measure.tokens import ContextMeter, TokenCount
from monitor.context.measure.window import Window, WindowSource
from monitor.messages import UserMessage
from monitor.reasons import PRESSING, CompactionFailure, CompactionReason


class CompactionTrigger(Hysteresis):
    """Measures a run's history against the watermarks of its model, and remembers what came of the
    compactions before.
    """

    def __init__(self, preset: Preset, history: History, meter: ContextMeter, window: Window) -> None:
        super().__init__(Marks(window, preset.headroom, preset.low_water))
        self._background = preset.background
        self._history = history
        self._meter = meter
        self.count = TokenCount(0, 0, 0)
        """The newest count of the next request."""
        self.read = 0
        """The number of originals that the model has answered to."""
        self.pressed: CompactionReason | None = None
        """Why the next request must not be sent as it stands, whatever is counted."""
        self.hurried = False
        """The run has its last turn: a compaction at the mark is not worth its time."""
        self._nothing_at = 0
        """The number of originals when there was nothing to compact at the mark."""
        self._waits_for_reading = False
        """There was nothing because of results that the model had not read."""

    def recount(self) -> None:
        """Count the tokens of the next request anew."""
        self.count = self._meter.count()

    def before_request(self) -> CompactionReason | None:
        """Why the next request is to be made smaller before it is sent; `None`: it need not be."""
        if self.marks.high is None:  # only a refusal tells: there is nothing to count for
            return self.pressed
        self._look_for_users()
        self.recount()
        return self.pressed or self.due(self.count.tokens)

    def due(self, tokens: int) -> CompactionReason | None:
        """Why a request of `tokens` is to be made smaller."""
        reason = super().due(tokens)
        return None if reason is CompactionReason.HIGH_WATER and self.hurried else reason

    def beside(self, tokens: int) -> bool:
        """Whether a compaction begins while the tools run. `tokens`: what the provider has counted;
        0: it has not.
        """
        high_water = CompactionReason.HIGH_WATER
        if not tokens or not self._background or self.due(tokens) is not high_water:
            return False
        count = self._meter.count()  # what the provider counted may have been made smaller while it answered
        if self.due(count.tokens) is not high_water:
            return False
        self.count = count
        return True

    def waits_for(self, reason: CompactionReason) -> bool:
        """Whether the run waits for a compaction for this reason."""
        return reason is not CompactionReason.HIGH_WATER or not self._background

    def may_ask_model(self, reason: CompactionReason) -> bool:
        """Whether a model is asked for a compaction: not in a run's last turn, and with the breaker
        open now and then only.
        """
        return not self.hurried and (reason not in PRESSING or self.asks_model)

    @property
    def surely_too_long(self) -> str | None:
        """Why the request that was last asked about will be refused, whatever the estimate is off
        by; `None`: it may well be taken.
        """
        window, count = self.marks.window, self.count
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
            self.changed()

    def failed(
        self, failure: CompactionFailure, reason: CompactionReason, tokens: int, *, before_read: bool = False
    ) -> None:
        """See `Hysteresis`. `before_read`: it may succeed when the model has read the newest
        results.
        """
        super().failed(failure, reason, tokens)
        if failure is CompactionFailure.NOTHING_TO_COMPACT and reason is CompactionReason.HIGH_WATER:
            self._nothing_at, self._waits_for_reading = self._originals(), before_read

    def _originals(self) -> int:
        return self._history.originals_before(len(self._history))

    def _look_for_users(self) -> None:
        """A new message of the user may be where the history can be cut: then it is worth another
        look.
        """
        if self._nothing:
            messages = self._history.messages
            new = self._originals() - self._nothing_at
            if any(isinstance(message, UserMessage) for message in messages[max(0, len(messages) - new) :]):
                self.changed()

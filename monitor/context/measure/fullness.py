"""Whether a conversation has filled the usable part of its window: checked before each call and
after each answer.

Failure answered: a provider that refuses the request, cuts off the answer, or silently reads only a
part of the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitor.chunks import UsageReport
from monitor.context.history import History
from monitor.context.measure.headroom import DEFAULT, Headroom
from monitor.context.measure.overflow import OverflowKind, read_answer, read_failure
from monitor.context.measure.tokens import ContextMeter, total_tokens
from monitor.context.measure.window import Window
from monitor.models import ErrorKind, ModelError, ToolSpec
from monitor.outcome import Turn
from monitor.reasons import FinishReason
from monitor.usage import Usage


@dataclass(slots=True, frozen=True)
class Full:
    """The context has filled the usable part of the window, or more."""

    tokens: int
    usable_tokens: int
    detail: str
    """How the fullness is known, for people."""
    overflow: OverflowKind | None = None
    """How the provider met the end of the window without an error. `None`: the window did not
    end."""


class Fullness:
    """Watches how full the context of one conversation with one model is.

    A window of unknown size is never full and is not measured, until the provider refuses a request
    and states its limit. A full context is reported once, and again only after it was made smaller.
    The cost of a call here does not grow with the history.
    """

    def __init__(self, history: History, window: Window, headroom: Headroom = DEFAULT) -> None:
        self.window: Window = window
        """The window as known by now: the provider's error may state that it is smaller."""
        self._headroom = headroom
        self._usable = headroom.usable(window)
        self.meter: ContextMeter = ContextMeter(history)
        self._told = False

    @property
    def full(self) -> bool:
        """Whether the context was full at the last check."""
        return self._told

    def before_call(self, instructions: str | None, tools: Sequence[ToolSpec]) -> Full | None:
        """Check the request that is about to be sent with `instructions` and `tools`. Returns a
        `Full` if the context is full now, and was not reported before.
        """
        if self._usable is None:
            return None
        self.meter.fixed(instructions, tools)
        count = self.meter.count()
        self.meter.sent()
        return self._told_once(
            count.tokens, f"the next request has about {count.tokens:,} tokens ({count.low:,} to {count.high:,})"
        )

    def after_call(
        self,
        usage: Usage,
        *,
        well: bool,
        finish_reason: FinishReason | None = None,
        raw_finish_reason: str | None = None,
    ) -> Full | None:
        """Check the context after an answer. `usage`: the provider's count of this one call.
        `well`: the answer is complete and not an error.
        """
        overflow = read_answer(
            usage, self.window.tokens, finish_reason=finish_reason, raw_finish_reason=raw_finish_reason
        )
        tokens = total_tokens(usage) or 0
        if overflow is not None and overflow.kind in _SAID:
            self._told = True
            return Full(tokens, self._usable or tokens, _SAID[overflow.kind], overflow.kind)
        if self._usable is None or not usage.input_tokens:
            return None
        self.meter.reported(
            UsageReport(
                usage.input_tokens, usage.output_tokens, usage.reasoning_tokens, usage.cached_tokens, usage.total_tokens
            )
        )
        if well:
            self.meter.answered()
        return self._told_once(tokens, f"the provider counted {tokens:,} tokens, the answer included") if well else None

    def after_turn(self, turn: Turn) -> Full | None:
        """Judge like `after_call`, for a turn of one call that ended in any way. A refusal that
        states the limit makes the window smaller from now on.
        """
        if turn.model_error is not None:
            self._learn(turn.model_error)
        well = turn.stopped is None and turn.finish_reason is not None
        return self.after_call(
            turn.usage, well=well, finish_reason=turn.finish_reason, raw_finish_reason=turn.raw_finish_reason
        )

    def _learn(self, error: ModelError) -> None:
        is_overflow = error.kind is ErrorKind.OVERFLOW
        overflow = read_failure(error.message, status=error.status, code=error.code) if is_overflow else None
        if overflow is not None and overflow.window_tokens:
            self.window = self.window.learned(overflow.window_tokens)
            self._usable = self._headroom.usable(self.window)

    def _told_once(self, tokens: int, detail: str) -> Full | None:
        full = self._usable is not None and tokens >= self._usable
        told, self._told = self._told, full
        if not full or told or self._usable is None:
            return None
        return Full(
            tokens, self._usable, f"{detail}; {self._usable:,} of the window's {self.window.tokens:,} may be used"
        )


_SAID = {
    OverflowKind.SILENT: "the provider answered a prompt that fills the window: it may not have read all of it",
    OverflowKind.OUTPUT_TRUNCATED: "the answer was cut off at the end of the window",
}

"""One model response in numbers and pieces, changed in place while it streams."""

from __future__ import annotations

import math

from monitor._tokens import estimate_tokens
from monitor.chunks import ToolCall, TurnFinished, UsageReport
from monitor.models import ModelError
from monitor.outcome import Turn
from monitor.state import Usage
from monitor.verdicts import Stop


class TurnTally:
    """What has come of a turn so far. `keep_chars`: how much of its visible text is kept."""

    def __init__(self, *, number: int, keep_chars: float, started_at: float) -> None:
        self.number = number
        self.started_at = started_at
        """When its stream was first asked for something, in the harness's clock."""
        self.first_chunk_seen = False
        self.parts: list[str] = []
        """Visible text since the last `fold()`."""
        self.text_chars = 0
        self.calls: list[ToolCall] = []
        self.finish: TurnFinished | None = None
        self._keep_chars = keep_chars
        self._kept: list[str] = []
        self._reported = Usage()
        self._has_report = False
        self._unreported_tokens = 0

    def fold(self) -> int:
        """Pack the text that came since the last time; answers its estimated tokens."""
        text = "".join(self.parts)
        self.parts.clear()
        room = self._keep_chars - self.text_chars
        if text and room > 0:
            self._kept.append(text if len(text) <= room else text[: int(room)])
        self.text_chars += len(text)
        return self.add_tokens(estimate_tokens(text))

    def add_tokens(self, estimated: int) -> int:
        """Output that the provider has not reported yet; answers the same number."""
        self._unreported_tokens += estimated
        return estimated

    def report(self, usage: UsageReport) -> None:
        """The provider's own count replaces the estimate of what came before it."""
        self._reported = self._reported.merged(usage)
        self._has_report = True
        if usage.output_tokens is not None:
            self._unreported_tokens = 0

    def roll_back(self) -> None:
        """The attempt so far is void: no text, no calls. The tokens that it cost were spent."""
        self.parts.clear()
        self._kept.clear()
        self.calls.clear()
        self.text_chars = 0
        self.finish = None

    @property
    def usage(self) -> Usage:
        """By the latest report, plus an estimate of what came since."""
        extra = self._unreported_tokens
        return self._reported + Usage(output_tokens=extra, total_tokens=extra) if extra else self._reported

    @property
    def usage_estimated(self) -> bool:
        """The provider has not reported all of `usage`."""
        return self._unreported_tokens > 0 or not self._has_report

    def ended(self, *, stopped: Stop | None, error: BaseException | None, model_error: ModelError | None) -> Turn:
        """The turn as the caller sees it."""
        return Turn(
            number=self.number,
            text="".join(self._kept),
            text_chars=self.text_chars,
            tool_calls=tuple(self.calls),
            usage=self.usage,
            usage_estimated=self.usage_estimated,
            finish_reason=self.finish.finish_reason if self.finish else None,
            raw_finish_reason=self.finish.raw_finish_reason if self.finish else None,
            stopped=stopped,
            model_error=model_error,
            error=error,
        )


def keep_limit(keep_text_chars: int | None) -> float:
    """`None` is no limit."""
    return math.inf if keep_text_chars is None else keep_text_chars

"""One model response in numbers and pieces, changed in place while it streams."""

from __future__ import annotations

import math
from dataclasses import replace

from monitor._codec import text_of
from monitor._tokens import eighths_of_tokens
from monitor.chunks import ToolCall, ToolCallDelta, TurnFinished, UsageReport
from monitor.models import ModelError
from monitor.outcome import Turn
from monitor.state import Usage
from monitor.verdicts import Stop


class TurnTally:
    """What has come of a turn so far. `keep_chars`: how much of its visible text is kept."""

    __slots__ = (
        "_has_report",
        "_ids",
        "_keep_chars",
        "_reported",
        "_streamed",
        "_unreported_eighths",
        "_void",
        "_void_estimated",
        "calls",
        "finish",
        "first_chunk_seen",
        "number",
        "parts",
        "reasoning_chars",
        "started_at",
        "text",
        "text_chars",
    )

    def __init__(self, *, number: int, keep_chars: float, started_at: float) -> None:
        self.number = number
        self.started_at = started_at
        """When its stream was first asked for something, in the harness's clock."""
        self.first_chunk_seen = False
        self.parts: list[str] = []
        """Visible text since the last `take()`."""
        self.text = ""
        """The visible text before that, as far as it is kept."""
        self.text_chars = 0
        self.reasoning_chars = 0
        self.calls: list[ToolCall] = []
        self.finish: TurnFinished | None = None
        self._keep_chars = keep_chars
        self._void = Usage()
        """Spent on attempts that were rolled back."""
        self._void_estimated = False
        self._reported = Usage()
        self._has_report = False
        self._unreported_eighths = 0
        self._streamed: set[str] = set()
        self._ids: set[str] = set()

    def take(self) -> str:
        """The visible text since the last time, kept as far as there is room."""
        text = "".join(self.parts)
        self.parts.clear()
        room = self._keep_chars - self.text_chars
        if room > 0:
            self.text += text if len(text) <= room else text[: int(room)]
        self.text_chars += len(text)
        return text

    def count(self, text: str) -> int:
        """Any output, hidden or visible, that the provider has not reported yet; answers its eighths of a token."""
        eighths = eighths_of_tokens(text)
        self._unreported_eighths += eighths
        return eighths

    def count_arguments(self, delta: ToolCallDelta) -> int:
        """As `count`, of a call's arguments while they are written."""
        self._streamed.add(delta.id)
        return self.count(delta.arguments_text)

    def add_call(self, call: ToolCall) -> int:
        """A complete call; answers the eighths of a token of its arguments, unless they were counted while they were written."""
        self.calls.append(call)
        return 0 if call.id in self._streamed else self.count(text_of(call.arguments))

    def with_own_id(self, call: ToolCall) -> ToolCall:
        """`call`; with an id that is made up if it has none, or that of another call of this turn. Results are told apart by it."""
        if not call.id or call.id in self._ids:
            call = replace(call, id=f"{call.id or 'call'}_{self.number}_{len(self.calls)}")
        self._ids.add(call.id)
        return call

    def report(self, usage: UsageReport) -> None:
        """The provider's own count replaces the estimate of what came before it."""
        self._reported = self._reported.merged(usage)
        self._has_report = True
        if usage.output_tokens is not None or usage.total_tokens is not None:
            self._unreported_eighths = 0

    def roll_back(self) -> None:
        """The attempt so far is void: no text, no calls. The tokens that it cost were spent."""
        self._void, self._void_estimated = self.usage, self.usage_estimated
        self._reported, self._has_report, self._unreported_eighths = Usage(), False, 0
        self.parts.clear()
        self.calls.clear()
        self._ids.clear()
        self.text = ""
        self.text_chars = self.reasoning_chars = 0
        self.finish = None

    @property
    def usage(self) -> Usage:
        """By the latest report, plus an estimate of what came since."""
        extra = -(-self._unreported_eighths // 8)
        usage = self._reported + Usage(output_tokens=extra, total_tokens=extra) if extra else self._reported
        return self._void + usage if self._void.total_tokens else usage

    @property
    def usage_estimated(self) -> bool:
        """The provider has not reported all of `usage`."""
        return self._void_estimated or self._unreported_eighths > 0 or not self._has_report

    def ended(
        self, *, stopped: Stop | None, error: BaseException | None, model_error: ModelError | None, loop_offset: int | None = None
    ) -> Turn:
        """The turn as the caller sees it."""
        return Turn(
            number=self.number,
            text=self.text,
            text_chars=self.text_chars,
            tool_calls=tuple(self.calls),
            usage=self.usage,
            usage_estimated=self.usage_estimated,
            finish_reason=self.finish.finish_reason if self.finish else None,
            raw_finish_reason=self.finish.raw_finish_reason if self.finish else None,
            stopped=stopped,
            loop_offset=loop_offset,
            model_error=model_error,
            error=error,
        )


class ErrorStreak:
    """Turns in a row that failed: the model call did, or a tool did and none succeeded. Siblings that fail together are one error."""

    __slots__ = ("_failed", "_succeeded", "count")

    def __init__(self) -> None:
        self.count = 0
        self._failed = self._succeeded = False

    def turn_started(self) -> None:
        """Another turn, or another attempt at one. If nothing failed in the one before, it was a success."""
        if not self._failed:
            self.count = 0
        self._failed = self._succeeded = False

    def add(self, *, is_error: bool) -> None:
        """A tool result, or a model call that failed."""
        if not is_error:
            self.count, self._failed, self._succeeded = 0, False, True
        elif not self._failed and not self._succeeded:
            self.count, self._failed = self.count + 1, True


def keep_limit(keep_text_chars: int | None) -> float:
    """`None` is no limit."""
    return math.inf if keep_text_chars is None else keep_text_chars

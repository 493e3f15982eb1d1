"""How large the next request is, in the tokens of its provider, and who gets how much of its room.

A message is estimated once. The provider may count more than the estimate, so every size is scaled:
the whole request then has the size that is known of it. The room below the target is shared by the
summary, what is pinned beside it, and the messages that are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio.lowlevel

from monitor.context.compaction.pinned import PinnedFacts
from monitor.context.compaction.preset import Preset
from monitor.context.compaction.summarizer import MOST_LENGTH
from monitor.context.compaction.triggers import Marks
from monitor.context.reduce import Messages, once
from monitor.context.tokens import message_tokens, size_of_text, size_of_tools
from monitor.context.window import Window
from monitor.errors import CompactionReason
from monitor.messages import Message
from monitor.models import ToolSpec
from monitor.wires.fields import Form

PINNED_SHARE: Final = 1 / 2
"""The most that the pinned facts get of the room beside instructions and tools."""
SUMMARY_SHARE: Final = 1 / 6
"""The summary's share of the same room. The summary may be half as long again (`MOST_LENGTH`), so a
quarter of the room at least is left for the messages that are kept.
"""
LEAST_TOKENS: Final = 400
"""The least tokens for a summary, and for the pinned facts: a shorter text says nothing."""
FRAME_TOKENS: Final = 50
"""Tokens for the marks around the new messages, and for the acknowledgement."""
LEAST_GAIN: Final = 0.05
"""The least share of the request that a compaction must save. Ours."""
AT_ONCE: Final = 1_000
"""Messages that are measured before other tasks may run: about 30 ms."""
_ROUNDING: Final = 1e-6
"""Tolerance for floats: a sum that was divided and multiplied by the scale stays the same count."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Situation:
    """The history that is to be made smaller, and what is known about the next request."""

    messages: Messages
    version: int = 0
    head: int = 0
    """The number of messages at the beginning that an earlier compaction put there."""
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    marks: Marks
    """The watermarks of the model that reads the history."""
    tokens: int
    """The tokens of the next request as it stands. Estimates of messages are scaled to this sum."""
    reported: bool = False
    """Whether the provider has counted `tokens`."""
    scale: float = 1.0
    """The provider's count, divided by the estimate."""
    reason: CompactionReason = CompactionReason.MANUAL
    harder: int = 0
    """The number of compactions that the same refusal has had before: each one keeps half as much.
    """
    facts: PinnedFacts = field(default_factory=PinnedFacts)
    """Facts that are known besides the messages: outputs, plan, rules."""
    form: Form | None = None
    originals_before: Callable[[int], int] = int
    """Maps a number of messages at the beginning to the number of originals behind them."""
    unread: int | None = None
    """The index of the turn whose results the model has not read, if any."""
    original: Message | None = None
    """The turn with the unread results, before these were clipped; `None`: they were not clipped.
    """

    @property
    def window(self) -> Window:
        """The window of the model that reads the history."""
        return self.marks.window


class Sizes:
    """The sizes of one compaction. `weigh` must be called before anything but `raw` is asked, and
    `pin` before `room`.
    """

    def __init__(self, preset: Preset, situation: Situation) -> None:
        self._preset = preset
        self._now = situation
        self.raw = once(message_tokens)
        """The estimated tokens of a message."""
        self._raw_fixed = (size_of_text(situation.instructions or "") + size_of_tools(situation.tools)).tokens
        self._scale: float
        self.fixed: int
        """Tokens of the instructions and the tools."""
        self.before: int
        """Tokens of the next request as it stands."""
        self.target: int
        """The compacted request must have fewer tokens than this."""
        self.pinned_tokens: int
        """The most that the pinned facts may have, estimated."""

    async def weigh(self) -> None:
        """Measure every message. Other tasks run in between: there may be thousands of
        messages.
        """
        now = self._now
        for number, message in enumerate(now.messages, 1):
            self.raw(message)
            if number % AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
        self._scale = self._scale_of(self._raw_fixed + sum(map(self.raw, now.messages)))
        self.fixed = self.request(())
        self.before = self.request(now.messages)
        self.target = min(now.marks.target(now.reason, self.before), int(self.before * (1 - LEAST_GAIN)) + 1)

    def _scale_of(self, raw: int) -> float:
        """The request's real size, divided by its estimate `raw`. A refused request is larger than
        the window, whatever is counted.
        """
        now, raw = self._now, max(1, raw)
        if now.reason in {CompactionReason.OVERFLOW, CompactionReason.SILENT_OVERFLOW}:
            return max(now.scale, now.tokens / raw, (now.window.tokens or 0) / raw)
        counted = now.reported and now.tokens
        return now.tokens / raw if counted else max(now.scale, now.tokens / raw)

    # --- in one unit or the other

    def tokens(self, message: Message) -> int:
        """The tokens of `message`, as the provider would count them."""
        return self._scaled(self.raw(message))

    def request(self, messages: Sequence[Message]) -> int:
        """The tokens of a whole request with `messages`, as the provider would count them."""
        return self._scaled(self._raw_fixed + sum(map(self.raw, messages)))

    def estimated(self, tokens: float) -> int:
        """The provider's `tokens` as an estimate, which is how texts are measured while they are
        written.
        """
        return max(0, int(tokens / self._scale))

    def _scaled(self, raw: int) -> int:
        return math.ceil(raw * self._scale - _ROUNDING)

    # --- the room, and who gets how much of it

    @property
    def free(self) -> int:
        """The room below the target, beside instructions and tools."""
        return max(0, self.target - self.fixed)

    @property
    def most_pinned(self) -> int:
        """The most that the pinned facts can get, estimated."""
        return max(LEAST_TOKENS, self.estimated(self.free * PINNED_SHARE))

    def pin(self, needs: int) -> None:
        """Reserve room for the pinned facts, which need `needs`. What they do not need is for the
        messages that are kept.
        """
        notes = LEAST_TOKENS if self._preset.hooks else 0  # what the hooks will add is not known yet
        self.pinned_tokens = max(LEAST_TOKENS, min(needs + notes, self.most_pinned))

    @property
    def summary_tokens(self) -> int:
        """The most that the summary may have, estimated."""
        return max(LEAST_TOKENS, self.estimated(min(self._preset.summary_tokens, self.free * SUMMARY_SHARE)))

    @property
    def room(self) -> int:
        """The room for the messages that are kept, halved by each compaction for the same
        refusal.
        """
        taken = math.ceil(self.summary_tokens * MOST_LENGTH) + self.pinned_tokens + FRAME_TOKENS
        return max(0, self.free - self._scaled(taken)) >> self._now.harder

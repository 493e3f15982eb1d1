"""Tool results that are too long, cut to a length that the model can read. Failure answered: one
result that fills the window.
"""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from typing import Final

from monitor._util.argument_checks import check_number, is_finite
from monitor._util.cuts import cut_after, cut_before
from monitor.context.reduce.reduction import Messages, changed_by, with_texts
from monitor.errors import ConfigError
from monitor.messages import AssistantMessage, Message

SUMMARY_RESULT_CHARS: Final = 2_000
"""How much of a result a summariser reads. Source: opencode, pi."""
MIN_KEPT_CHARS: Final = 2_000
"""How much of a result is kept at least. Source: OpenClaw."""
MAX_RESULT_CHARS: Final = 400_000
"""No result is longer, whatever the window. Source: OpenClaw."""
WINDOW_SHARE: Final = 0.3
"""The share of the window that one result may fill. Source: OpenClaw."""
CHARS_PER_TOKEN: Final = 4
"""Converts the window to characters. Source: OpenClaw."""
NEWLINE_SHARE: Final = 0.2
"""A cut is moved back to the end of a line within this last part of what is kept. Source:
OpenClaw.
"""
ENDING_SHARE: Final = 0.3
ENDING_CHARS: Final = 4_000
"""How much of the end is kept at most, if the end reports an outcome. Source: OpenClaw."""
ADVICE: Final = "ask for a smaller part if you need more"
"""For a model that can call the tool again."""

_NOTE_CHARS: Final = 60
"""Room for a note without advice. A text that exceeds the limit by no more than the note is not
cut, because that would save nothing.
"""

_TELLS: Final = re.compile(
    r"\b(?:errors?|exception|traceback|fail(?:ed|ure)?|fatal|panic|exit code|exited|passed|summary|total)\b",
    re.IGNORECASE,
)
"""Words of an ending that reports an outcome."""


def oversized_chars(window_tokens: int | None = None) -> int:
    """How long one tool result may be, in characters: 30 % of the window at 4 characters a token,
    at most 400,000. For an unknown window (`None`): 400,000.
    """
    if window_tokens is None:
        return MAX_RESULT_CHARS
    check_number("window_tokens", window_tokens, 1)
    return min(int(window_tokens * WINDOW_SHARE) * CHARS_PER_TOKEN, MAX_RESULT_CHARS)


def clip(text: str, max_chars: int, *, ending: float | None = None, advice: str = "") -> str:
    """`text` with about `max_chars` of its characters, and a note that says how many were left out;
    `text` itself if that saves nothing.

    `ending`: the share of the characters that is taken from the end. `None`: nothing, unless the
    end reports an outcome (an error, a summary); then up to 30 %, at most 4,000. The beginning
    stops at the end of a line within its last fifth, but not before its 2,000th character. No cut
    parts a surrogate pair or an escape sequence. `advice` is part of the note. A second clipping
    changes nothing.
    """
    if len(text) <= max_chars + _NOTE_CHARS + len(advice):
        return text
    end = _telling(text, max_chars) if ending is None else int(max_chars * ending)
    begin = max_chars - end
    newline = text.rfind("\n", max(int(begin * (1 - NEWLINE_SHARE)), min(MIN_KEPT_CHARS, begin)), begin)
    if newline >= 0:
        begin = newline
    begin, rest = cut_before(text, begin), cut_after(text, len(text) - end)
    left_out = rest - begin
    note = f"[{left_out} of {len(text)} characters left out{advice and '; '}{advice}]"
    return f"{text[:begin]}\n{note}\n{text[rest:]}" if end else f"{text[:begin]}\n{note}"


def _telling(text: str, max_chars: int) -> int:
    """How much of the end to keep, because it reports an outcome."""
    if max_chars < 2 * MIN_KEPT_CHARS:
        return 0
    end = min(int(max_chars * ENDING_SHARE), ENDING_CHARS)
    return end if _TELLS.search(text, len(text) - end) else 0


@dataclass(slots=True, frozen=True)
class ClipResults:
    """Tool results longer than `max_chars` are clipped (see `clip`). Each result for itself.

    `ClipResults(2_000)` is what a summariser reads, `ClipResults.oversized(window_tokens)` what may
    stand in a history.
    """

    name = "truncate"

    max_chars: int = SUMMARY_RESULT_CHARS
    _: KW_ONLY
    ending: float | None = 0.0
    """The share that is taken from the end. `None`: as in `clip`."""
    advice: str = ""
    """Advice to the model, which the note gives."""

    def __post_init__(self) -> None:
        check_number("max_chars", self.max_chars, 1)
        if self.ending is not None and not (is_finite(self.ending) and 0 <= self.ending <= 1):
            raise ConfigError(f"ending is {self.ending!r}; it must be a share between 0 and 1, or None")

    @classmethod
    def oversized(cls, window_tokens: int | None = None) -> ClipResults:
        """Results longer than `oversized_chars` of the window, note included; they keep 2,000
        characters at least.
        """
        return cls(
            max(oversized_chars(window_tokens) - _NOTE_CHARS - len(ADVICE), MIN_KEPT_CHARS), ending=None, advice=ADVICE
        )

    def reduce(self, messages: Messages, *, head: int = 0) -> Messages:
        """See `Reducer`. A second time it does nothing."""
        return changed_by(self._clipped, messages, head)

    def _clipped(self, message: Message) -> Message:
        if not isinstance(message, AssistantMessage):
            return message
        texts = (
            clip(result.text, self.max_chars, ending=self.ending, advice=self.advice) for result in message.results
        )
        return with_texts(message, texts)

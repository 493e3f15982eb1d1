"""When a context is too full. Failure answered: formulas that become 0, after which every answer
counts as an overflow.

A `Headroom` says how much of a window may be used. The formulas are those of known agents, with
their edge cases corrected:

- If a model's greatest answer is as large as its window, which is common, a part of the window is
  kept for the prompt.
- If a limit on the prompt is as large as the window, room is kept for the answer.
- A window of unknown size is never full; only the provider's refusal shows that it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from monitor._util.argument_checks import is_finite, is_whole
from monitor.context.measure.window import Window
from monitor.errors import ConfigError


@dataclass(slots=True, frozen=True)
class Headroom:
    """How much of a window a prompt may use: the `share` of the window without its reserve.

    `reserve_tokens`: kept for the answer. `None`: the model's greatest answer, or
    `unknown_reserve_tokens` if that is unknown. `prompt_reserve_tokens`: kept free below a separate
    limit on the prompt, if there is one; at most the greatest answer. `least_reserved`: a share of
    the window, prompt and answer together, that is kept for the answer in any case.
    `most_reserved`: the share that a reserve never goes beyond.
    """

    share: float = 1.0
    reserve_tokens: int | None = None
    prompt_reserve_tokens: int = 20_000
    most_reserved: float = 0.25
    unknown_reserve_tokens: int = 0
    least_reserved: float = 0.0

    def __post_init__(self) -> None:
        reserved = (
            is_finite(self.most_reserved)
            and is_finite(self.least_reserved)
            and 0 <= self.least_reserved <= self.most_reserved < 1
        )
        if not (is_finite(self.share) and 0 < self.share <= 1) or not reserved:
            raise ConfigError(
                f"shares of a window are above 0 and at most 1, and what is reserved is below 1, not {self}"
            )
        for tokens in (self.reserve_tokens, self.prompt_reserve_tokens, self.unknown_reserve_tokens):
            if tokens is not None and not (is_whole(tokens) and tokens >= 0):
                raise ConfigError(f"a reserve is a number of tokens, not {tokens!r}")

    def usable(self, window: Window) -> int | None:
        """The number of tokens that a prompt may have. `None`: the window is unknown. Never 0."""
        output = window.max_output_tokens
        answer = self.unknown_reserve_tokens if output is None else output
        reserve = self.reserve_tokens if self.reserve_tokens is not None else answer
        room = []
        if window.context_tokens is not None:
            room.append(self._left(window.context_tokens, max(reserve, window.context_tokens * self.least_reserved)))
        if window.input_tokens is not None:
            least = self.prompt_reserve_tokens if output is None else min(self.prompt_reserve_tokens, output)
            room.append(self._left(window.input_tokens, least))
        return max(1, math.floor(min(room) * self.share + 1e-6)) if room else None

    def _left(self, limit: int, reserve: float) -> float:
        return limit - min(reserve, limit * self.most_reserved)


DEFAULT: Final = Headroom(0.85)
"""Our default: 85 % of the window without the greatest answer, which takes at most a quarter."""
OPENCODE: Final = Headroom(most_reserved=0.75, unknown_reserve_tokens=20_000, least_reserved=0.05)
"""The window less the greatest answer, or less 20,000 tokens if that is unknown. Below a limit on
the prompt, 20,000 tokens or the greatest answer stay free. Our addition: a twentieth of the window
is always kept for the answer.
"""
PI: Final = Headroom(reserve_tokens=16_384, prompt_reserve_tokens=16_384, most_reserved=0.75)
OPENCLAW: Final = Headroom(reserve_tokens=20_000)
"""The window less 20,000 tokens, but at most less a quarter."""
CLAUDE_CODE: Final = Headroom(0.92, reserve_tokens=0, prompt_reserve_tokens=0)
GEMINI_CLI: Final = Headroom(0.70, reserve_tokens=0, prompt_reserve_tokens=0)

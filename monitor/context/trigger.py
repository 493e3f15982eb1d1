"""When a context is too full. Failure answered: formulas that become 0, after which every answer
counts as an overflow.

A `Headroom` says how much of a window may be used. A `Trigger` says what must be true before the
context is made smaller. The formulas are those of known agents, with their edge cases corrected:

- If a model's greatest answer is as large as its window, which is common, a part of the window is
  kept for the prompt.
- If a limit on the prompt is as large as the window, room is kept for the answer.
- A window of unknown size is never full; only the provider's refusal shows that it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from monitor._util.checks import is_finite, is_whole
from monitor.context.window import Window
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
        """How many tokens a prompt may have. `None`: the window is unknown. Never 0."""
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


@dataclass(slots=True, frozen=True, kw_only=True)
class Trigger:
    """The conditions under which the context is made smaller; all that are set must be true.

    `headroom`: the context has filled it. `tokens`, `messages`: there are at least this many.
    Raises `ConfigError` if nothing is set, or for a number that is not positive.
    """

    headroom: Headroom | None = None
    tokens: int | None = None
    messages: int | None = None

    def __post_init__(self) -> None:
        if self.headroom is None and self.tokens is None and self.messages is None:
            raise ConfigError("a Trigger names a headroom, tokens or messages; leave it out to have none")
        if self.headroom is not None and not isinstance(self.headroom, Headroom):
            raise ConfigError(f"Trigger.headroom takes a Headroom, not {self.headroom!r}")
        for name, least in (("tokens", self.tokens), ("messages", self.messages)):
            if least is not None and not (is_whole(least) and least > 0):
                raise ConfigError(f"Trigger.{name} takes a whole number above 0, not {least!r}")

    def met(self, *, tokens: int, messages: int, window: Window) -> bool:
        """Whether a context of `tokens` and `messages` is too full for `window`."""
        if self.headroom is not None:
            usable = self.headroom.usable(window)
            if usable is None or tokens < usable:
                return False
        return (self.tokens is None or tokens >= self.tokens) and (self.messages is None or messages >= self.messages)


def first_met(triggers: Iterable[Trigger], *, tokens: int, messages: int, window: Window) -> Trigger | None:
    """The first of several that is met; `None`: none is, or there are none."""
    return next((trigger for trigger in triggers if trigger.met(tokens=tokens, messages=messages, window=window)), None)


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
CODEX: Final = Headroom(0.90, reserve_tokens=0, prompt_reserve_tokens=0)

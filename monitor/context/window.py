"""The limits of a model, and their source. Failure answered: a wrong limit without a known source,
and runs that compact from the first message.

    window = monitor.context.window_of("google:gemini-2.5-pro", agent_cap=200_000)
    window.context_tokens, window.source, window.problem, window.warning

A number that was not stated for this very model is marked as a default. Without any number the
window is unknown, and only the provider's refusal shows that it is full.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from monitor._util.argument_checks import is_finite, is_whole
from monitor._util.checked_words import checked
from monitor.errors import ConfigError

# --- The limits of known models, with the date of the data. For any other model,
# `monitor.context.window` says that its number is a default.
#
# Source: `model_prices_and_context_window.json` of LiteLLM 1.109.1, which cites the providers'
# own pages. Gemma 4 has the smaller number of Gemini CLI. Where hosts of the same model differ,
# the smallest number is taken.

DATE: Final = "2026-11-20"


@dataclass(slots=True, frozen=True)
class ModelLimits:
    """Limits in tokens. `context`: prompt and answer together. `prompt`: the prompt alone, if the
    provider limits it separately.
    """

    context: int
    output: int
    prompt: int | None = None


_GROUPS: Final[tuple[tuple[ModelLimits, str], ...]] = (
    (
        ModelLimits(1_048_576, 65_536),
        (
            "gemini-2.5-pro gemini-2.5-flash gemini-2.5-flash-lite gemini-3-flash-preview gemini-3.1-pro-preview"
            " gemini-3.1-flash-lite gemini-3.1-flash-lite-preview gemini-3.5-flash gemini-3.5-flash-lite"
            " gemini-3.6-flash gemini-3.7-flash gemini-3.8-flash gemini-flash-latest gemini-flash-lite-latest"
            " gemini-pro-latest"
        ),
    ),
    (ModelLimits(131_072, 65_536), "gemini-omni-flash-preview gemini-robotics-er-2-preview"),
    (ModelLimits(128_000, 64_000), "gemini-2.5-computer-use-preview-10-2025"),
    (ModelLimits(256_000, 32_768), "gemma-4-31b-it gemma-4-26b-a4b-it"),
    (ModelLimits(131_072, 8_192), "gemma-3-27b-it"),
    (ModelLimits(200_000, 64_000), "claude-haiku-4-5 claude-sonnet-4-5 claude-opus-4-5"),
    (
        ModelLimits(1_000_000, 128_000),
        (
            "claude-sonnet-4-6 claude-opus-4-6 claude-opus-4-7 claude-opus-4-8 claude-sonnet-5 claude-sonnet-5-5"
            " claude-opus-5 claude-opus-5-5 claude-haiku-5-5 claude-fable-5 claude-fable-5-1"
        ),
    ),
    (
        ModelLimits(400_000, 128_000, 272_000),
        (
            "gpt-5 gpt-5-mini gpt-5-nano gpt-5-codex gpt-5.1 gpt-5.1-codex gpt-5.1-codex-mini gpt-5.1-codex-max gpt-5.2"
            " gpt-5.2-pro gpt-5.2-codex gpt-5.3-codex gpt-5.4-mini gpt-5.4-nano"
        ),
    ),
    (ModelLimits(400_000, 272_000), "gpt-5-pro"),
    (
        ModelLimits(1_050_000, 128_000, 922_000),
        (
            "gpt-5.4 gpt-5.4-pro gpt-5.5 gpt-5.5-pro gpt-5.6 gpt-5.6-sol gpt-5.6-terra gpt-5.6-luna gpt-6-astra"
            " gpt-6-sol gpt-6-luna gpt-6.1-sol gpt-6.1-terra"
        ),
    ),
    (ModelLimits(128_000, 16_384), "gpt-5-chat gpt-5.1-chat gpt-5.2-chat gpt-5.3-chat gpt-4o gpt-4o-mini"),
    (ModelLimits(1_047_576, 32_768), "gpt-4.1 gpt-4.1-mini gpt-4.1-nano"),
    (ModelLimits(200_000, 100_000), "o1 o1-pro o3 o3-mini o3-pro o3-deep-research o4-mini o4-mini-deep-research"),
    (ModelLimits(128_000, 4_096), "gpt-4-turbo"),
    (ModelLimits(8_192, 4_096), "gpt-4"),
    (ModelLimits(16_385, 4_096), "gpt-3.5-turbo"),
    (ModelLimits(131_072, 65_536), "gpt-oss-120b gpt-oss-20b"),
    (ModelLimits(131_072, 8_192), "deepseek-chat"),
    (ModelLimits(131_072, 65_536), "deepseek-reasoner"),
    (ModelLimits(1_000_000, 393_216), "deepseek-v4-flash deepseek-v4-pro"),
    (
        ModelLimits(262_144, 262_144),
        "kimi-k2.5 kimi-k2.6 mistral-large mistral-medium mistral-small magistral-medium magistral-small",
    ),
    (ModelLimits(1_048_576, 1_048_576), "kimi-k3 kimi-k3.1-pro mistral-large-4"),
    (ModelLimits(128_000, 128_000), "codestral"),
    (ModelLimits(256_000, 256_000), "devstral devstral-medium devstral-small grok-code-fast-1"),
    (ModelLimits(1_000_000, 1_000_000), "grok-4.20 grok-4.3"),
    (ModelLimits(500_000, 500_000), "grok-4.5 grok-4.6 grok-4.7"),
    (ModelLimits(128_000, 32_000), "glm-4.5 glm-4.5-air"),
    (ModelLimits(200_000, 128_000), "glm-4.6 glm-4.7 glm-5 glm-5.1"),
    (ModelLimits(1_000_000, 128_000), "glm-5.2 glm-5.3"),
    (ModelLimits(258_048, 65_536), "qwen3-max"),
    (ModelLimits(997_952, 65_536), "qwen3-coder-plus qwen3-coder-flash"),
    (ModelLimits(991_808, 65_536), "qwen3.5-plus qwen3.7-plus qwen3.7-max"),
    (ModelLimits(200_000, 8_192), "minimax-m2"),
    (ModelLimits(1_000_000, 8_192), "minimax-m2.1 minimax-m2.5"),
)

MODELS: Final[Mapping[str, ModelLimits]] = {name: limits for limits, names in _GROUPS for name in names.split()}
"""The limits by the model's name without provider, date and `latest`."""

FAMILIES: Final[Mapping[str, ModelLimits]] = {
    "gemini-": ModelLimits(1_048_576, 65_536),  # Gemini CLI takes every unknown model for this
    "claude-": ModelLimits(200_000, 64_000),  # the smallest that is still served
}
"""Defaults for models that the table does not have, by the beginning of their names. A `Window`
made from one says that it is a default.
"""

_EDITION: Final = re.compile(r"(?:[-@](?:v\d|20\d{6}|20\d\d-\d\d-\d\d|\d{4}|latest|default)|:[a-z0-9.]+)$")


def limits_of(model_name: str) -> ModelLimits | None:
    """The limits of a model in the table: by its name as it stands, without its provider, or
    without its date.
    """
    return next((MODELS[name] for name in _names(model_name) if name in MODELS), None)


def family_of(model_name: str) -> tuple[str, ModelLimits] | None:
    """The family whose names begin like the name of an unknown model, and the family's default
    limits.
    """
    bare = min(_names(model_name), key=len)
    return next(((family, limits) for family, limits in FAMILIES.items() if bare.startswith(family)), None)


LONGEST_NAME_CHARS = 256
"""A longer name is of no model, and nothing is looked for in it."""


def _names(model_name: str) -> Iterator[str]:
    """The names under which the table may know a model, from the whole name to the bare one.
    Examples: `google:models/gemini-2.5-pro`, `openrouter/anthropic/claude-opus-5:free`,
    `gpt-5-2025-08-07`.
    """
    name = model_name.lower()
    while True:
        yield name
        if len(name) > LONGEST_NAME_CHARS:
            return
        provider = re.match(r"[a-z_-]+[:/.]", name)
        shorter = name[provider.end() :] if provider else _EDITION.sub("", name)
        if shorter in {name, ""}:
            return
        name = shorter


TOO_SMALL_TOKENS: Final = 16_000
"""A smaller window is refused: an agent's instructions, tools and one result leave no room to work.
OpenClaw's number.
"""
SMALL_TOKENS: Final = 32_000
"""A smaller window causes a warning, because an agent works badly in it. OpenClaw's number."""


def _check(name: str, tokens: object) -> None:
    if tokens is not None and not (is_whole(tokens) and tokens > 0):
        raise ConfigError(
            f"{name} is a number of tokens above 0, or None where it is not known, not {tokens!r}: as in window=128_000"
        )


class WindowSource(StrEnum):
    """The source that said how large the window is."""

    CONFIG = "config"
    """The caller's configuration said it."""
    MODEL = "model"
    """The table of known models said it."""
    AGENT_CAP = "agent_cap"
    """The caller, who gives this agent less than its model's window."""
    LEARNED = "learned"
    """The provider, when it refused a request."""
    DEFAULT = "default"
    """A default for models of this kind."""
    UNKNOWN = "unknown"


@dataclass(slots=True, frozen=True)
@checked
class Window:
    """The limits of one model, in tokens. `None`: not known.

    Raises `ConfigError` for anything but a positive number of tokens.
    """

    context_tokens: int | None
    """Limit on prompt and answer together."""
    max_output_tokens: int | None = None
    """The largest answer of the model, in tokens. `None`: it is not known."""
    input_tokens: int | None = None
    """Limit on the prompt alone, if the provider has one."""
    source: WindowSource = WindowSource.CONFIG
    """Where the number comes from."""
    note: str = ""
    """Where the number comes from, for people."""

    def __post_init__(self) -> None:
        for name in ("context_tokens", "max_output_tokens", "input_tokens"):
            _check(f"Window.{name}", getattr(self, name))

    @property
    def tokens(self) -> int | None:
        """The most tokens that a prompt may have."""
        if self.context_tokens is None or self.input_tokens is None:
            return self.context_tokens or self.input_tokens
        return min(self.context_tokens, self.input_tokens)

    @property
    def problem(self) -> str | None:
        """Why no run should begin. `None`: there is no problem."""
        if self.tokens is None or self.tokens >= TOO_SMALL_TOKENS:
            return None
        return f"the window is {self._described()}, and an agent needs at least {TOO_SMALL_TOKENS:,}; {self._remedy()}"

    @property
    def warning(self) -> str | None:
        """A warning for the user before a run begins. `None`: there is nothing to say."""
        if self.tokens is None or not TOO_SMALL_TOKENS <= self.tokens < SMALL_TOKENS:
            return None
        return (
            f"the window is {self._described()}; below {SMALL_TOKENS:,} an agent soon forgets what it did:"
            f" {self._remedy()}"
        )

    def learned(self, tokens: int) -> Window:
        """The window after its provider has refused a request and stated its limit: it can only be
        smaller than was thought.
        """
        _check("the learned limit", tokens)
        if self.tokens is not None and tokens >= self.tokens:
            return self
        before = "it was not known before" if self.tokens is None else f"it was thought to be {self.tokens:,}"
        return self._lowered(tokens, WindowSource.LEARNED, f"the provider's own error states it; {before}")

    def _lowered(self, tokens: int, source: WindowSource, note: str) -> Window:
        prompt = None if self.input_tokens is None else min(self.input_tokens, tokens)
        return replace(self, context_tokens=tokens, input_tokens=prompt, source=source, note=note)

    def _described(self) -> str:
        return f"{self.tokens:,} tokens ({self.source.value}{': ' if self.note else ''}{self.note})"

    def _remedy(self) -> str:
        match self.source:
            case WindowSource.AGENT_CAP:
                return "raise the cap of this agent"
            case WindowSource.CONFIG:
                return "configure a larger one if the model has it"
        return "choose another model, or have its server serve it with a larger one"


UNKNOWN: Final = Window(
    None,
    source=WindowSource.UNKNOWN,
    note="no table knows the model; give its window to have the context kept inside it",
)
"""The window of an unknown model: only the provider's refusal tells that the context is full."""


NEVER_FULL: Final = (
    "nothing is called full, and nothing is compacted before the provider refuses a request; give window=, in tokens"
)
"""The numbers of a window of unknown size."""


def window_of(
    model_name: str | None,
    *,
    config: Window | int | None = None,
    agent_cap: int | None = None,
    default_tokens: int | None = None,
) -> Window:
    """The window of a model: as configured, else from the table of known models, else a default,
    and never above `agent_cap`.

    `config`: the caller's own number. It overrides the table, upwards and downwards, until the
    provider contradicts. `default_tokens`: for a model that is not in the table and belongs to no
    known family; without it, the window of such a model is unknown. Raises `ConfigError` for
    anything but a number of tokens.
    """
    _check("agent_cap", agent_cap)
    _check("default_tokens", default_tokens)
    window = _stated(model_name, config)
    if window is None:
        window = (
            UNKNOWN
            if default_tokens is None
            else Window(default_tokens, source=WindowSource.DEFAULT, note="no table knows the model")
        )
    if agent_cap is not None and (window.tokens is None or agent_cap < window.tokens):
        note = "the window itself is not known" if window.tokens is None else f"the window itself is {window.tokens:,}"
        window = window._lowered(agent_cap, WindowSource.AGENT_CAP, note)  # noqa: SLF001 - the class stands above
    return window


def _stated(model_name: str | None, config: Window | int | None) -> Window | None:
    if isinstance(config, Window):
        return config
    known = None
    if model_name is not None:
        limits, family = limits_of(model_name), family_of(model_name)
        if limits is not None:
            known = Window(limits.context, limits.output, limits.prompt, WindowSource.MODEL, f"the table of {DATE}")
        elif family is not None:
            note = f"the table of {DATE} does not know {model_name!r}; it is taken for a {family[0].rstrip('-')} model"
            known = Window(family[1].context, family[1].output, family[1].prompt, WindowSource.DEFAULT, note)
    if config is None:
        return known
    _check("the window", config)
    if known is None:
        return Window(config)
    prompt = known.input_tokens if known.context_tokens is None or config <= known.context_tokens else None
    return Window(config, known.max_output_tokens, prompt and min(prompt, config))


# --- When a context is too full. Failure answered: formulas that become 0, after which every answer
# counts as an overflow.
#
# A `Headroom` says how much of a window may be used. The formulas are those of known agents, with
# their edge cases corrected:
#
# - If a model's greatest answer is as large as its window, which is common, a part of the window is
#   kept for the prompt.
# - If a limit on the prompt is as large as the window, room is kept for the answer.
# - A window of unknown size is never full; only the provider's refusal shows that it is.


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

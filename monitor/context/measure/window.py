"""The limits of a model, and their source. Failure answered: a wrong limit without a known source,
and runs that compact from the first message.

    window = monitor.context.window_of("google:gemini-2.5-pro", agent_cap=200_000)
    window.context_tokens, window.source, window.problem, window.warning

A number that was not stated for this very model is marked as a default. Without any number the
window is unknown, and only the provider's refusal shows that it is full.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from monitor._util.argument_checks import is_whole
from monitor.context.measure.known_models import DATE, family_of, limits_of
from monitor.errors import ConfigError

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

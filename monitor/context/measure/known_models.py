"""The limits of known models, with the date of the data. For any other model,
`monitor.context.measure.window` says that its number is a default.

Source: `model_prices_and_context_window.json` of LiteLLM 1.109.1, which cites the providers' own
pages. Gemma 4 has the smaller number of Gemini CLI. Where hosts of the same model differ, the
smallest number is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

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

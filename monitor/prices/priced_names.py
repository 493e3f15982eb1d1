"""Reads the name of a model as transcripts, gateways and clouds write it.

A name says who sells the model (`bedrock/`, `vertex_ai/`, `openai:`) and which model it is. A tail
that is no date and no version may mean another model with another price, so it stays part of the
name.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

MAKERS: Final = (
    "anthropic",
    "openai",
    "google",
    "x-ai",
    "deepseek",
    "mistral",
    "moonshotai",
    "zai",
    "minimax",
    "cohere",
)
"""The providers that sell their own models, by their names in the price table. A name that does
not say its seller is looked for here, in this order.
"""

_SELLERS: Final = {
    **{name: name for name in (*MAKERS, "groq", "cerebras", "azure", "github-copilot")},
    "bedrock": "aws",
    "aws": "aws",
    "amazon-bedrock": "aws",
    "gemini": "google",
    "google-gla": "google",
    "google-vertex": "google",
    "vertex_ai": "google",
    "vertex": "google",
    "xai": "x-ai",
    "mistralai": "mistral",
    "moonshot": "moonshotai",
    "moonshot-ai": "moonshotai",
    "z-ai": "zai",
    "azure_ai": "azure",
    "openai-responses": "openai",
    "openai-chat": "openai",
    "github_copilot": "github-copilot",
}
"""Prefixes of names, and the seller in the price table that each stands for."""
_THROUGH: Final = frozenset({"litellm_proxy", "litellm", "models", "openrouter"})
"""Prefixes of gateways that pass a call on to the seller named behind them."""
_PREFIX: Final = re.compile(r"([a-z0-9_-]+)[/:](?=[^/:])")
_REGION: Final = re.compile(r"(?:[a-z]{2,6}\.)?(anthropic|amazon|meta|mistral|cohere|deepseek|openai|qwen)\.(?=[a-z])")
"""The beginning of a Bedrock name: `us.anthropic.`, `anthropic.`."""
_TAILS: Final = (
    re.compile(r"\[1m\]$"),
    re.compile(r"-v\d(?::\d+)?$"),
    re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|2[3-9][01]\d)$"),
    re.compile(r"[-@](?:latest|default)$"),
)
"""Tails that do not change the price: a wide window, the version of a Bedrock model, a date."""


class ModelName(NamedTuple):
    """A model, as the price table knows it."""

    seller: str | None
    """`None`: the name does not say who sells the model."""
    name: str
    """In lower case, with `-` for `.`, and without seller."""

    @property
    def spellings(self) -> tuple[str, ...]:
        """The name, and the name without each of its dates and versions, the longest first. Some
        models of Bedrock stand in the table with their scope.
        """
        found, name = [self.name], self.name
        for tail in _TAILS:
            shorter = tail.sub("", name)
            if shorter != name:
                found.append(name := shorter)
        if self.seller == "aws":
            found += [f"regional-{one}" for one in found]
        return tuple(found)


@lru_cache(maxsize=256)
def read_name(name: str) -> ModelName:
    """The seller and the model of `name`."""
    rest = name.strip().lower()
    if rest.startswith("arn:aws:bedrock:"):
        return ModelName("aws", _bedrock(rest.rpartition("/")[2]))
    seller = None
    while match := _PREFIX.match(rest):
        prefix = match[1]
        if prefix not in _SELLERS and prefix not in _THROUGH:
            break
        seller = _SELLERS.get(prefix, seller)
        rest = rest[match.end() :]
    if seller == "aws" or (seller is None and _REGION.match(rest)):
        return ModelName("aws", _bedrock(rest))
    return ModelName(seller, rest.replace(".", "-"))


def _bedrock(name: str) -> str:
    """A name of Bedrock without its region. Calls all over the world have a price of their own."""
    match = _REGION.match(name)
    scope = "global-" if name.startswith("global.") else ""
    return scope + (name[match.start(1) :] if match else name).replace(".", "-")

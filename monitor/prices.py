"""What tokens cost, by a table that the user gives: prices change, and a library that knew them would be wrong tomorrow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monitor._numbers import is_finite
from monitor.errors import ConfigError
from monitor.state import Usage


@dataclass(slots=True, frozen=True)
class Price:
    """US dollars per million tokens. `cached`: of input that came from the provider's cache; `None`: the same as other input."""

    input: float
    output: float
    """Reasoning included."""
    cached: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("input", self.input), ("output", self.output), ("cached", self.cached)):
            if (value is None and name != "cached") or (value is not None and not (is_finite(value) and value >= 0)):
                raise ConfigError(f"Price.{name} takes US dollars per million tokens, finite and not negative, not {value!r}")

    def cost(self, usage: Usage) -> float:
        """What `usage` costs, in US dollars. Tokens that are in its total alone (of tool prompts) are input."""
        cached = self.input if self.cached is None else self.cached
        neither = max(0, usage.total_tokens - max(usage.input_tokens, usage.cached_tokens) - usage.output_tokens)
        fresh = max(0, usage.input_tokens - usage.cached_tokens) + neither
        return (fresh * self.input + usage.cached_tokens * cached + usage.output_tokens * self.output) / 1_000_000


def price_of(prices: Mapping[str, Price] | Price | None, model_name: str | None) -> Price | None:
    """The price of a model: by its exact name, or by its name without the provider ("google:x" -> "x"); `None`: not known.

    One `Price` is that of every model. Raises `ConfigError` for what is no price table.
    """
    if prices is None or isinstance(prices, Price):
        return prices
    if not isinstance(prices, Mapping):
        raise ConfigError(f"prices takes a Price, or a dict of model names and Prices, not {prices!r}")
    table: Mapping[Any, Any] = prices
    for name, price in table.items():
        if not isinstance(name, str) or not isinstance(price, Price):
            raise ConfigError(f"prices takes a Price for each model name, not {name!r}: {price!r}")
    if model_name is None:
        return None
    return prices.get(model_name) or prices.get(model_name.partition(":")[2])

"""Tokens that were used, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monitor._util.argument_checks import is_finite
from monitor._util.explained_options import explained
from monitor.chunks import UsageReport
from monitor.errors import ConfigError

__all__ = ["AskCost", "Price", "Usage"]


@dataclass(slots=True, frozen=True)
class Usage:
    """Tokens of a turn or of a run. Output includes reasoning; input includes tokens that came from
    a cache.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    total_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        if self is NO_USAGE:
            return other
        if other is NO_USAGE:
            return self
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cached_tokens + other.cached_tokens,
            self.total_tokens + other.total_tokens,
        )

    def merged(self, report: UsageReport) -> Usage:
        """The running total, updated by a later report of the same call. Numbers that the report
        does not contain stay.
        """

        def later(new: int | None, old: int) -> int:
            return old if new is None else max(new, old)

        input_tokens = later(report.input_tokens, self.input_tokens)
        output_tokens = later(report.output_tokens, self.output_tokens)
        return Usage(
            input_tokens,
            output_tokens,
            later(report.reasoning_tokens, self.reasoning_tokens),
            later(report.cached_tokens, self.cached_tokens),
            max(later(report.total_tokens, self.total_tokens), input_tokens + output_tokens),
        )


NO_USAGE = Usage()
"""One for all who have used nothing."""


@dataclass(slots=True, frozen=True)
class AskCost:
    """The tokens of questions beside the run, to a judge or for a summary. They count even if no
    answer came.
    """

    usage: Usage = NO_USAGE
    estimated: bool = False
    """Part of `usage` is an estimate, because a provider did not report it."""

    def __add__(self, other: AskCost) -> AskCost:
        return AskCost(self.usage + other.usage, self.estimated or other.estimated)


NO_COST = AskCost()
"""One for all runs that have asked nothing."""


@explained(example="monitor.Price(2.5, 10.0), in US dollars per million tokens of input and output")
@dataclass(slots=True, frozen=True)
class Price:
    """US dollars per million tokens. `cached`: price of input from the provider's cache. `None`:
    the same as other input.
    """

    input: float
    output: float
    """Price of output, reasoning included."""
    cached: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("input", self.input), ("output", self.output), ("cached", self.cached)):
            if (value is None and name != "cached") or (value is not None and not (is_finite(value) and value >= 0)):
                raise ConfigError(
                    f"Price.{name} takes US dollars per million tokens, finite and not negative, not {value!r}"
                )

    def cost(self, usage: Usage) -> float:
        """The cost of `usage` in US dollars. Tokens that only its total contains (of tool prompts)
        count as input.
        """
        cached = self.input if self.cached is None else self.cached
        neither = max(0, usage.total_tokens - max(usage.input_tokens, usage.cached_tokens) - usage.output_tokens)
        fresh = max(0, usage.input_tokens - usage.cached_tokens) + neither
        return (fresh * self.input + usage.cached_tokens * cached + usage.output_tokens * self.output) / 1_000_000


_LINE = "write prices=monitor.Price(2.5, 10.0), in US dollars per million tokens of input and output"


def price_of(prices: Mapping[str, Price] | Price | None, model_name: str | None) -> Price | None:
    """The price of a model, found by its exact name or by its name without the provider ("google:x"
    -> "x"). `None`: unknown.

    A single `Price` applies to every model. Raises `ConfigError` if `prices` is not a price table.
    """
    if prices is None or isinstance(prices, Price):
        return prices
    if not isinstance(prices, Mapping):
        raise ConfigError(f"prices takes a Price, or a dict of model names and Prices, not {prices!r}: {_LINE}")
    table: Mapping[Any, Any] = prices
    for name, price in table.items():
        if not isinstance(name, str) or not isinstance(price, Price):
            raise ConfigError(f"prices takes a Price for each model name, not {name!r}: {price!r}; {_LINE}")
    if model_name is None:
        return None
    return prices.get(model_name) or prices.get(model_name.partition(":")[2])

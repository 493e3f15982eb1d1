"""Tokens that were used, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monitor._util.argument_checks import is_finite, is_whole
from monitor._util.explained_options import explained
from monitor.chunks import UsageReport
from monitor.errors import ConfigError

__all__ = ["AskCost", "Price", "Usage"]
__dir__ = __all__.copy


@dataclass(slots=True, frozen=True)
class Usage:
    """Tokens of a turn or of a run. Output includes reasoning; input includes tokens that came from
    a cache, and those that were written to one.
    """

    input_tokens: int = 0
    """Tokens of prompts, the cached ones included."""
    output_tokens: int = 0
    """Tokens of answers, reasoning included."""
    reasoning_tokens: int = 0
    """The part of the output that is reasoning."""
    cached_tokens: int = 0
    """The part of the input that the provider had cached."""
    total_tokens: int = 0
    """Input and output together, as the provider counts them."""
    cache_write_tokens: int = 0
    """Input that the provider has written to its cache, for whatever time."""
    cache_write_1h_tokens: int = 0
    """The part of `cache_write_tokens` that is kept for an hour, which costs more."""

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
            self.cache_write_tokens + other.cache_write_tokens,
            self.cache_write_1h_tokens + other.cache_write_1h_tokens,
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
            later(report.cache_write_tokens, self.cache_write_tokens),
            later(report.cache_write_1h_tokens, self.cache_write_1h_tokens),
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
    """US dollars per million tokens. A price that is `None` is the price of other input."""

    input: float
    """Price of input that is not cached."""
    output: float
    """Price of output, reasoning included."""
    cached: float | None = None
    """Price of input from the provider's cache."""
    cache_write: float | None = None
    """Price of input that is written to the provider's cache for some minutes."""
    cache_write_1h: float | None = None
    """Price of input that is written to the provider's cache for an hour. `None`: that of
    `cache_write`.
    """
    above: tuple[tuple[int, Price], ...] = ()
    """Prices of long requests: `((200_000, Price(6, 22.5)),)` holds for all tokens of a request
    with more than 200,000 input tokens. The bounds rise.
    """

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached", "cache_write", "cache_write_1h"):
            value = getattr(self, name)
            if value is None and name not in {"input", "output"}:
                continue
            if not (is_finite(value) and value >= 0):
                raise ConfigError(
                    f"Price.{name} takes US dollars per million tokens, finite and not negative, not {value!r}:"
                    " write monitor.Price(2.5, 10.0)"
                )
        bounds = [bound for bound, _ in self.above]
        if any(not is_whole(bound) for bound in bounds) or bounds != sorted(set(bounds)):
            raise ConfigError(
                f"Price.above takes rising numbers of tokens, each with a Price, not {self.above!r}: write"
                " above=((200_000, monitor.Price(6, 22.5)),)"
            )

    @property
    def dearest_output(self) -> float:
        """The highest price of output, whatever the length of the request."""
        return max(self.output, *(higher.output for _, higher in self.above)) if self.above else self.output

    def cost(self, usage: Usage) -> float:
        """The cost of one request in US dollars. Tokens that only its total contains (of tool
        prompts) count as input.
        """
        price = self
        for bound, higher in self.above:
            price = higher if usage.input_tokens > bound else price
        cached = price.input if price.cached is None else price.cached
        written = price.input if price.cache_write is None else price.cache_write
        written_1h = written if price.cache_write_1h is None else price.cache_write_1h
        for_1h = min(usage.cache_write_1h_tokens, usage.cache_write_tokens)
        stored = usage.cached_tokens + usage.cache_write_tokens
        neither = max(0, usage.total_tokens - max(usage.input_tokens, stored) - usage.output_tokens)
        fresh = max(0, usage.input_tokens - stored) + neither
        return (
            fresh * price.input
            + usage.cached_tokens * cached
            + (usage.cache_write_tokens - for_1h) * written
            + for_1h * written_1h
            + usage.output_tokens * price.output
        ) / 1_000_000


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

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import Price, Usage, price_of
from monitor.errors import ConfigError

FLASH = Price(0.30, 2.50, 0.075)
PRO = Price(1.25, 10.0)
TABLE = {"gemini-flash": FLASH, "google:gemini-pro": PRO, "llama:8b": Price(0, 0)}


@pytest.mark.parametrize(
    ("price", "usage", "usd"),
    [
        (PRO, Usage(), 0),
        (PRO, Usage(input_tokens=1_000_000, total_tokens=1_000_000), 1.25),
        (PRO, Usage(output_tokens=1_000_000, total_tokens=1_000_000), 10),
        (PRO, Usage(2_000, 1_000, total_tokens=3_000), 0.0125),
        # reasoning is part of the output, and is not paid twice
        (PRO, Usage(0, 1_000, reasoning_tokens=800, total_tokens=1_000), 0.01),
        # what came from the cache is part of the input
        (FLASH, Usage(1_000_000, 0, cached_tokens=1_000_000, total_tokens=1_000_000), 0.075),
        (FLASH, Usage(1_000_000, 0, cached_tokens=600_000, total_tokens=1_000_000), 0.4 * 0.30 + 0.6 * 0.075),
        (PRO, Usage(1_000_000, 0, cached_tokens=600_000, total_tokens=1_000_000), 1.25),
        # tokens that the provider tells in its total alone are input
        (PRO, Usage(total_tokens=1_000_000), 1.25),
        (PRO, Usage(100_000, 100_000, total_tokens=300_000), 0.25 + 1),
        # a provider that tells of more cached input than of input
        (FLASH, Usage(0, 0, cached_tokens=1_000_000), 0.075),
    ],
)
def test_a_cost_is_tokens_times_their_price(price: Price, usage: Usage, usd: float):
    assert price.cost(usage) == pytest.approx(usd)


COUNTS = st.integers(0, 10**9)
USAGES = st.builds(lambda i, o, c: Usage(i, o, cached_tokens=min(i, c), total_tokens=i + o), COUNTS, COUNTS, COUNTS)
PRICES = st.builds(
    lambda i, o, share: Price(i, o, i * share), st.floats(0, 1e3), st.floats(0, 1e3), st.floats(0, 1) | st.just(1.0)
)


@given(PRICES, USAGES, USAGES)
def test_two_calls_cost_what_each_of_them_costs(price: Price, one: Usage, other: Usage):
    assert price.cost(one + other) == pytest.approx(price.cost(one) + price.cost(other))


@given(PRICES, USAGES, st.integers(0, 10**6))
def test_output_costs_the_same_however_much_came_before_it(price: Price, usage: Usage, tokens: int):
    """So dollars that are left can be counted down as tokens."""
    more = usage + Usage(output_tokens=tokens, total_tokens=tokens)
    assert price.cost(more) - price.cost(usage) == pytest.approx(price.output * tokens / 1_000_000, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "price"),
    [
        ("gemini-flash", FLASH),
        ("google:gemini-flash", FLASH),
        ("vertex:gemini-flash", FLASH),
        ("google:gemini-pro", PRO),
        ("gemini-pro", None),
        ("llama:8b", Price(0, 0)),
        ("gemini-flash-2", None),
        ("", None),
        (None, None),
    ],
)
def test_a_model_is_found_by_its_name_with_or_without_the_provider(name: str | None, price: Price | None):
    assert price_of(TABLE, name) == price


def test_the_exact_name_comes_first():
    assert price_of({"x": FLASH, "google:x": PRO}, "google:x") is PRO


def test_one_price_is_that_of_every_model_and_no_table_knows_none():
    assert price_of(PRO, "anything") is price_of(PRO, None) is PRO
    assert price_of(None, "gemini-flash") is None
    assert price_of({}, "gemini-flash") is None


@pytest.mark.parametrize("prices", [5, "cheap", [PRO], {"x": 1.5}, {"x": None}, {5: PRO}], ids=repr)
def test_what_is_no_price_table_is_refused(prices: Any):
    with pytest.raises(ConfigError, match="prices takes a Price"):
        price_of(prices, "x")


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "1", True, [1], 10**400], ids=lambda value: repr(value)[:9])
@pytest.mark.parametrize("name", ["input", "output", "cached"])
def test_what_is_no_price_is_refused_by_name(name: str, value: Any):
    with pytest.raises(ConfigError, match=f"Price.{name} takes US dollars per million tokens"):
        Price(**{"input": 1.0, "output": 1.0, name: value})


def test_a_price_cannot_be_left_out():
    with pytest.raises(ConfigError, match=r"Price\.output"):
        Price(1.0, None)  # type: ignore[arg-type]


def test_a_price_is_a_value():
    assert pickle.loads(pickle.dumps(FLASH)) == FLASH
    assert len({FLASH, Price(0.30, 2.50, 0.075), PRO}) == 2

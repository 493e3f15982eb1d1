from __future__ import annotations

import datetime as dt

import pytest

from monitor.chunks import Price, Usage
from monitor.prices import known_price, list_price, table_facts

DAY = 86_400.0


def at(day: str) -> float:
    return dt.datetime.fromisoformat(day).replace(tzinfo=dt.UTC).timestamp()


def price(name: str, *, at_s: float | None = None) -> Price:
    found = list_price(name, at_s=at_s)
    assert found is not None
    return found


def test_the_table_says_where_it_comes_from_and_of_which_day_it_is():
    facts = table_facts()
    assert facts.source.startswith("genai-prices ")
    assert facts.date >= dt.date(2026, 11, 1)
    assert str(facts) == f"list prices of {facts.date} ({facts.source})"


def test_a_price_is_that_of_the_day_of_the_call():
    before, after = price("claude-opus-4-6", at_s=at("2026-03-12")), price("claude-opus-4-6", at_s=at("2026-03-13"))
    assert (dict(before.above)[200_000].input, after.above) == (10.0, ())
    assert price("claude-opus-4-6") == after


def test_a_long_request_is_dearer_in_all_its_parts():
    known = price("claude-sonnet-4-5")
    short, long = (Usage(size, 1_000, total_tokens=size + 1_000) for size in (200_000, 200_001))
    assert known.cost(short) == pytest.approx((200_000 * 3 + 1_000 * 15) / 1e6)
    assert known.cost(long) == pytest.approx((200_001 * 6 + 1_000 * 22.5) / 1e6)


def test_writing_to_the_cache_costs_more_than_input_and_more_for_an_hour():
    known = price("claude-opus-4-5")
    usage = Usage(1_000_000, 0, 0, 500_000, 1_000_000, 300_000, 100_000)
    assert known.cost(usage) == pytest.approx(0.2 * 5 + 0.5 * 0.5 + 0.2 * 6.25 + 0.1 * 10)


def test_more_tokens_for_an_hour_than_were_written_are_not_believed():
    assert price("claude-opus-4-5").cost(Usage(10, 0, 0, 0, 10, 10, 99)) == pytest.approx(10 * 10 / 1e6)


def test_the_prices_of_a_caller_win_over_the_table():
    own = Price(1.0, 1.0)
    assert known_price({"claude-opus-4-5": own}, "anthropic:claude-opus-4-5") == own
    assert known_price({"another": own}, "anthropic:claude-opus-4-5") == price("claude-opus-4-5")
    assert known_price(own, "anything") == own
    assert known_price(None, "anything") is None


@pytest.mark.parametrize("at_s", [-1e30, 1e30, float("inf"), float("nan")])
def test_a_time_that_no_calendar_has_takes_the_newest_price(at_s: float):
    assert price("claude-opus-4-6", at_s=at_s) == price("claude-opus-4-6")

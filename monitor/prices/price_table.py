"""The list price of a model on a day, from `table.json`, which `scripts/prices.py` writes."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from monitor.chunks import Price, price_of

# --------------------------------------------------------------------------------------------------
# Reads the name of a model as transcripts, gateways and clouds write it.
#
# A name says who sells the model (`bedrock/`, `vertex_ai/`, `openai:`) and which model it is. A
# tail that is no date and no version may mean another model with another price, so it stays part
# of the name.

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


_TABLE: Final = Path(__file__).with_name("table.json")


class TableFacts(NamedTuple):
    """Where the shipped prices come from."""

    source: str
    """The package that the prices were taken from, with its version."""
    date: dt.date
    """The day on which they were taken."""

    def __str__(self) -> str:
        return f"list prices of {self.date.isoformat()} ({self.source})"


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return table


@cache
def _rows(seller: str) -> dict[str, list[Any]]:
    """The dated prices of each model of a seller, by each of its names."""
    return {name: dated for names, dated in _table()[seller] for name in names}


@cache
def table_facts() -> TableFacts:
    """Where the shipped prices come from, and of which day they are."""
    table = _table()
    return TableFacts(table["source"], dt.date.fromisoformat(table["date"]))


def list_price(model: str, *, seller: str | None = None, at_s: float | None = None) -> Price | None:
    """The price of `model`, per million tokens; `None`: the table does not have the model.

    `model`: a name as providers, gateways and transcripts write it, such as `claude-sonnet-4-5`,
    `google:gemini-2.5-flash`, `us.anthropic.claude-sonnet-4-5-20250929-v1:0`. `seller`: who sells
    it, where the name does not say so, such as `anthropic`. `at_s`: the time of the call, in
    seconds since 1970; by default the prices are the newest.

    A name with an unknown tail has no price, because it may be another model, as in
    `gpt-4o-mini-of-mine`.
    """
    named = read_name(model)
    day = "9" if at_s is None else _day(at_s)
    return _price(named if named.seller is not None else named._replace(seller=seller), day)


def known_price(prices: Mapping[str, Price] | Price | None, model: str) -> Price | None:
    """The price of `model` by `prices`, a caller's own, else its list price. `None`: neither is
    known.
    """
    return price_of(prices, model) or list_price(model)


@cache
def _price(named: ModelName, day: str) -> Price | None:
    sellers = MAKERS if named.seller is None else (named.seller,)
    for seller in sellers:
        rows = _rows(seller) if seller in _table() else {}
        for name in named.spellings:
            if (dated := rows.get(name)) is not None:
                return _of_row(max(one for one in dated if one[0] <= day)[1]) if dated[0][0] <= day else None
    return None


def _of_row(row: list[Any]) -> Price:
    """The price of a row, whose numbers may be a base price and the prices above some sizes."""
    bounds = sorted({bound for value in row if isinstance(value, list) for bound, _ in value[1:]})
    above = tuple((bound, Price(*(_above(value, bound) for value in row))) for bound in bounds)
    return replace(Price(*(_above(value, 0) for value in row)), above=above)


def _above(value: Any, bound: int) -> Any:
    """A price of the row for requests with more than `bound` input tokens."""
    if not isinstance(value, list):
        return value
    base, *steps = value
    return next((price for start, price in reversed(steps) if start <= bound), base)


def _day(at_s: float) -> str:
    try:
        return _day_numbered(int(at_s // DAY_S))
    except (OverflowError, OSError, ValueError):
        return "9"


@lru_cache(maxsize=1_024)
def _day_numbered(number: int) -> str:
    """The date of the day `number`, counted from 1970-01-01."""
    return dt.datetime.fromtimestamp(number * DAY_S, dt.UTC).date().isoformat()


DAY_S: Final = 86_400

"""Writes the price table of the package from genai-prices (MIT), which must be installed for it:

    pip install genai-prices && python scripts/prices.py

A row is `[names, [[from, prices], ...]]`. `names`: lower case, with `-` for `.`. `from`: the first
day of the prices, `""` for always. `prices`: US dollars per million tokens of input, output, cached
input, input that is written to a cache for five minutes, and for an hour. A list is the base price
and then `[above, price]` for requests with more input tokens.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from genai_prices import data, types

TABLE = Path(__file__).parent.parent / "monitor" / "prices" / "table.json"
KEPT = (
    *("anthropic", "openai", "google", "x-ai", "deepseek", "mistral", "moonshotai", "zai", "minimax", "cohere"),
    *("groq", "cerebras", "aws", "azure", "github-copilot"),
)
"""Providers with prices of their own for models that agents use. The makers come first."""
COLUMNS = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok")


def names_of(match: Any) -> Iterator[str]:
    """The names in a rule. The beginning of a name counts as a name: a reader knows the tails."""
    for part in (*getattr(match, "or_", ()), *getattr(match, "and_", ())):
        yield from names_of(part)
    for kind in ("equals", "starts_with"):
        if name := getattr(match, kind, None):
            yield name.rpartition("/")[2].rstrip("-@:").lower().replace(".", "-")


def price_of(value: Any) -> Any:
    """A number, or a list of the base price and the prices above some sizes."""
    if isinstance(value, types.TieredPrices):
        return [float(value.base), *([tier.start, float(tier.price)] for tier in value.tiers)]
    return None if value is None else float(value)


def dated(prices: Any) -> Iterator[list[Any]]:
    """The prices with their first days, without the prices for hours of the day."""
    for one in prices if isinstance(prices, list) else [types.ConditionalPrice(prices=prices, constraint=None)]:
        if one.constraint is None or isinstance(one.constraint, types.StartDateConstraint):
            row = [price_of(getattr(one.prices, name)) for name in COLUMNS]
            if row[0] is not None and row[1] is not None:
                yield [str(getattr(one.constraint, "start_date", "")), row]


def main() -> None:
    """Write the table."""
    found: dict[str, list[Any]] = {}
    providers = {provider.id: provider for provider in data.providers}
    for provider in KEPT:
        rows = found.setdefault(provider, [])
        for model in providers[provider].models:
            names = dict.fromkeys([model.id.lower().replace(".", "-"), *names_of(model.match)])
            if prices := sorted(dated(model.prices)):
                rows.append([list(names), prices])
    head = {
        "source": f"genai-prices {version('genai-prices')}",
        "licence": "MIT",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    for provider, rows in found.items():
        lines += [f"{json.dumps(provider)}: [", *(f"{json.dumps(row, separators=(',', ':'))}," for row in rows)]
        lines[-1] = lines[-1].removesuffix(",")
        lines.append("],")
    lines[-1] = lines[-1].removesuffix(",")
    TABLE.write_text("{\n" + "\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{TABLE.name}: {sum(map(len, found.values()))} models, {TABLE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

import monitor
from monitor.prices import list_price, table_facts

print(table_facts())  # list prices of 2026-11-23 (genai-prices 0.2.3)
price = list_price("us.anthropic.claude-sonnet-4-5-20250929-v1:0")
assert price is not None and price.input == 3.3  # US dollars per million tokens
assert list_price("my-gpt-4o-clone") is None  # a model that the table does not have has no price

usage = monitor.chunks.Usage(input_tokens=10_000, output_tokens=500, total_tokens=10_500)
assert round(price.cost(usage), 4) == 0.0413

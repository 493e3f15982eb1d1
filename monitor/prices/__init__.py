"""List prices of models, from a dated table that is shipped with the package."""

from monitor.prices.price_table import TableFacts, known_price, list_price, table_facts

__all__ = ["TableFacts", "known_price", "list_price", "table_facts"]
__dir__ = __all__.copy

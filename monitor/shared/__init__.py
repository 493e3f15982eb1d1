"""Budgets and outages, which many processes count together.

    from monitor.shared import SharedBudget, SQLiteBudgets

    budget = SharedBudget(SQLiteBudgets("budgets.db"), "research/night")
    supervisor = Supervisor(model, task, budget=budget)

**Budgets.** Tokens and money are reserved before they are spent. A store keeps, for each name, the
limit, what is spent, and what is held. A run holds an amount before each model call and a slice
more while it streams. At its end it settles what it has used. The hold of a process that died
expires, and the amount comes back.

**Outages.** What fails in many runs is found once, and the runs wait for it:

    from monitor.shared import Outages

    outages = Outages()
    researcher = Supervisor(model, tools=[search], requests=Requests(outages=outages))
    writer = Supervisor(model, tools=[search, publish], requests=Requests(outages=outages))

**Rows.** Processes tell each other what they know: each writes rows by name, and asks for what is
newer than what it has seen. `rows_at(address)` opens such a store.

`monitor.outage` has the arithmetic, this room the places where failures are counted.
"""

from monitor.outage import Failure, OutageRule, Trouble
from monitor.shared.budgets import budgets_at
from monitor.shared.budgets.base import Amount, BudgetState, BudgetStore, Refused, Reservation, SharedBudget
from monitor.shared.budgets.redis import RedisBudgets
from monitor.shared.budgets.sql_budgets import PostgresBudgets, SQLiteBudgets
from monitor.shared.outages import InMemoryOutages, Outages, OutageStore, SQLiteOutages
from monitor.shared.shared_rows import RowNews, RowStore, SharedRow, rows_at

__all__ = [
    "Amount",
    "BudgetState",
    "BudgetStore",
    "Failure",
    "InMemoryOutages",
    "OutageRule",
    "OutageStore",
    "Outages",
    "PostgresBudgets",
    "RedisBudgets",
    "Refused",
    "Reservation",
    "RowNews",
    "RowStore",
    "SQLiteBudgets",
    "SQLiteOutages",
    "SharedBudget",
    "SharedRow",
    "Trouble",
    "budgets_at",
    "rows_at",
]
__dir__ = __all__.copy

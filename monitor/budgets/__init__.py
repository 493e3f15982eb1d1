"""One budget for many processes: tokens and money are reserved before they are spent.

    from monitor.budgets import SharedBudget, SQLiteBudgets

    budget = SharedBudget(SQLiteBudgets("budgets.db"), "research/night")
    supervisor = Supervisor(model, task, budget=budget)

A store keeps, for each name, the limit, what is spent, and what is held. A run holds an amount
before each model call and a slice more while it streams. At its end it settles what it has used.
The hold of a process that died expires, and the amount comes back.
"""

from monitor.budgets._places import budgets_at
from monitor.budgets.base import Amount, BudgetState, BudgetStore, Hold, Refused
from monitor.budgets.postgres import PostgresBudgets
from monitor.budgets.redis import RedisBudgets
from monitor.budgets.shared import SharedBudget
from monitor.budgets.sqlite import SQLiteBudgets

__all__ = [
    "Amount",
    "BudgetState",
    "BudgetStore",
    "Hold",
    "PostgresBudgets",
    "RedisBudgets",
    "Refused",
    "SQLiteBudgets",
    "SharedBudget",
    "budgets_at",
]

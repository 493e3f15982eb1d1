"""Outages over many runs: what fails in many of them is found once, and the runs wait for it.

    from monitor.outages import Outages

    outages = Outages()
    researcher = Supervisor(model, tools=[search], outages=outages)
    writer = Supervisor(model, tools=[search, publish], outages=outages)

`monitor.outage` has the arithmetic, this room the places where failures are counted.
"""

from monitor.outage import Failure, OutageRule, Trouble
from monitor.outages.base import InMemoryOutages, OutageStore
from monitor.outages.shared import Outages
from monitor.outages.sqlite import SQLiteOutages

__all__ = [
    "Failure",
    "InMemoryOutages",
    "OutageRule",
    "OutageStore",
    "Outages",
    "SQLiteOutages",
    "Trouble",
]

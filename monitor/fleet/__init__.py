"""Many supervised runs, carried out by workers that may die: the parts that every engine uses."""

from monitor.fleet.control import Control, FolderControl, PostgresControl, PostgresSessions, StepPostponed
from monitor.fleet.jobs import (
    FleetJob,
    FolderSessions,
    Sessions,
    Supervisors,
    UnknownSupervisor,
    enter,
    receipts_in,
    session_id,
)
from monitor.fleet.receipts import MAX_LOSSES, Decision, End, NextTurn, Park, Receipt, Wait, decide
from monitor.fleet.steps import is_passing, take_turn

__all__ = [
    "MAX_LOSSES",
    "Control",
    "Decision",
    "End",
    "FleetJob",
    "FolderControl",
    "FolderSessions",
    "NextTurn",
    "Park",
    "PostgresControl",
    "PostgresSessions",
    "Receipt",
    "Sessions",
    "StepPostponed",
    "Supervisors",
    "UnknownSupervisor",
    "Wait",
    "decide",
    "enter",
    "is_passing",
    "receipts_in",
    "session_id",
    "take_turn",
]
__dir__ = __all__.copy

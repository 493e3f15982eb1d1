"""Many supervised runs, carried out by workers that may die: the parts that every engine uses."""

from monitor.fleet.control import Control as Control
from monitor.fleet.control import FolderControl as FolderControl
from monitor.fleet.decisions import MAX_LOSSES as MAX_LOSSES
from monitor.fleet.decisions import Decision as Decision
from monitor.fleet.decisions import End as End
from monitor.fleet.decisions import NextTurn as NextTurn
from monitor.fleet.decisions import Park as Park
from monitor.fleet.decisions import Wait as Wait
from monitor.fleet.decisions import decide as decide
from monitor.fleet.jobs import FleetJob as FleetJob
from monitor.fleet.jobs import FolderSessions as FolderSessions
from monitor.fleet.jobs import Sessions as Sessions
from monitor.fleet.jobs import enter as enter
from monitor.fleet.jobs import receipts_in as receipts_in
from monitor.fleet.jobs import session_id as session_id
from monitor.fleet.receipts import Receipt as Receipt
from monitor.fleet.shared_sessions import PostgresControl as PostgresControl
from monitor.fleet.shared_sessions import PostgresSessions as PostgresSessions
from monitor.fleet.step_store import StepPostponed as StepPostponed
from monitor.fleet.steps import is_passing as is_passing
from monitor.fleet.steps import take_turn as take_turn
from monitor.fleet.supervisors import Supervisors as Supervisors
from monitor.fleet.supervisors import UnknownSupervisor as UnknownSupervisor

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

"""The conversation as the model is shown it: always valid, and never larger than it must be. No model, no clock, no I/O."""

from monitor.context.curate import curated as curated
from monitor.context.curate import recorded as recorded
from monitor.context.forms import Form as Form
from monitor.context.history import Committed as Committed
from monitor.context.history import History as History
from monitor.context.history import HistoryEdit as HistoryEdit
from monitor.context.history import Stale as Stale
from monitor.context.prepare import prepare as prepare
from monitor.context.raw import RawMessage as RawMessage
from monitor.context.raw import RawPart as RawPart
from monitor.context.raw import Unread as Unread
from monitor.context.readers import read as read
from monitor.context.repair import repair as repair
from monitor.context.report import Repair as Repair
from monitor.context.report import RepairKind as RepairKind
from monitor.context.report import RepairReport as RepairReport
from monitor.context.validate import validate as validate
from monitor.context.validate._problem import Problem as Problem

__all__ = [
    "Committed",
    "Form",
    "History",
    "HistoryEdit",
    "Problem",
    "RawMessage",
    "RawPart",
    "Repair",
    "RepairKind",
    "RepairReport",
    "Stale",
    "Unread",
    "curated",
    "prepare",
    "read",
    "recorded",
    "repair",
    "validate",
]

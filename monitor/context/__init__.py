"""The conversation as the model is shown it: always valid, and never larger than it must be. No model, no clock, no I/O."""

from monitor.context.curate import curated as curated
from monitor.context.curate import recorded as recorded
from monitor.context.forms import Form as Form
from monitor.context.history import Committed as Committed
from monitor.context.history import History as History
from monitor.context.history import HistoryEdit as HistoryEdit
from monitor.context.history import Stale as Stale
from monitor.context.overflow import OVERFLOW_ROWS as OVERFLOW_ROWS
from monitor.context.overflow import Overflow as Overflow
from monitor.context.overflow import OverflowKind as OverflowKind
from monitor.context.overflow import OverflowRow as OverflowRow
from monitor.context.overflow import read_answer as read_answer
from monitor.context.overflow import read_failure as read_failure
from monitor.context.prepare import prepare as prepare
from monitor.context.raw import RawMessage as RawMessage
from monitor.context.raw import RawPart as RawPart
from monitor.context.raw import Unread as Unread
from monitor.context.readers import read as read
from monitor.context.repair import repair as repair
from monitor.context.report import Repair as Repair
from monitor.context.report import RepairKind as RepairKind
from monitor.context.report import RepairReport as RepairReport
from monitor.context.tokens import ContextMeter as ContextMeter
from monitor.context.tokens import Size as Size
from monitor.context.tokens import TokenCount as TokenCount
from monitor.context.tokens import sizes_by_source as sizes_by_source
from monitor.context.trigger import Headroom as Headroom
from monitor.context.trigger import Trigger as Trigger
from monitor.context.trigger import first_met as first_met
from monitor.context.validate import validate as validate
from monitor.context.validate._problem import Problem as Problem
from monitor.context.window import Window as Window
from monitor.context.window import WindowSource as WindowSource
from monitor.context.window import window_of as window_of

__all__ = [
    "OVERFLOW_ROWS",
    "Committed",
    "ContextMeter",
    "Form",
    "Headroom",
    "History",
    "HistoryEdit",
    "Overflow",
    "OverflowKind",
    "OverflowRow",
    "Problem",
    "RawMessage",
    "RawPart",
    "Repair",
    "RepairKind",
    "RepairReport",
    "Size",
    "Stale",
    "TokenCount",
    "Trigger",
    "Unread",
    "Window",
    "WindowSource",
    "curated",
    "first_met",
    "prepare",
    "read",
    "read_answer",
    "read_failure",
    "recorded",
    "repair",
    "sizes_by_source",
    "validate",
    "window_of",
]

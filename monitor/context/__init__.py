"""The conversation as the model is shown it: always valid, and never larger than it must be. No
model, no clock, no I/O.
"""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.context.curate import curated as curated
    from monitor.context.curate import recorded as recorded
    from monitor.context.cut import Cut as Cut
    from monitor.context.cut import cut_by_turns as cut_by_turns
    from monitor.context.forms import Form as Form
    from monitor.context.fullness import Full as Full
    from monitor.context.fullness import Fullness as Fullness
    from monitor.context.history import Committed as Committed
    from monitor.context.history import History as History
    from monitor.context.history import HistoryEdit as HistoryEdit
    from monitor.context.history import Stale as Stale
    from monitor.context.limits import HistoryLimits as HistoryLimits
    from monitor.context.limits import KeepTurns as KeepTurns
    from monitor.context.limits import SessionKind as SessionKind
    from monitor.context.media import DropMedia as DropMedia
    from monitor.context.media import without_media as without_media
    from monitor.context.overflow import OVERFLOW_ROWS as OVERFLOW_ROWS
    from monitor.context.overflow import Overflow as Overflow
    from monitor.context.overflow import OverflowKind as OverflowKind
    from monitor.context.overflow import OverflowRow as OverflowRow
    from monitor.context.overflow import read_answer as read_answer
    from monitor.context.overflow import read_failure as read_failure
    from monitor.context.prepared import prepare as prepare
    from monitor.context.prune import PruneArguments as PruneArguments
    from monitor.context.prune import PruneResults as PruneResults
    from monitor.context.raw import RawMessage as RawMessage
    from monitor.context.raw import RawPart as RawPart
    from monitor.context.raw import Unread as Unread
    from monitor.context.readers import read as read
    from monitor.context.reduction import Reducer as Reducer
    from monitor.context.reduction import Reduction as Reduction
    from monitor.context.reduction import propose_edit as propose_edit
    from monitor.context.reduction import reduced as reduced
    from monitor.context.repairs import repair as repair
    from monitor.context.tokens import ContextMeter as ContextMeter
    from monitor.context.tokens import Size as Size
    from monitor.context.tokens import TokenCount as TokenCount
    from monitor.context.tokens import sizes_by_source as sizes_by_source
    from monitor.context.trigger import Headroom as Headroom
    from monitor.context.truncate import ClipResults as ClipResults
    from monitor.context.truncate import clip as clip
    from monitor.context.truncate import oversized_chars as oversized_chars
    from monitor.context.turns import COMPACTION as COMPACTION
    from monitor.context.turns import head_of as head_of
    from monitor.context.turns import user_turns as user_turns
    from monitor.context.validation import validate as validate
    from monitor.context.validation._problem import Problem as Problem
    from monitor.context.window import Window as Window
    from monitor.context.window import WindowSource as WindowSource
    from monitor.context.window import window_of as window_of
    from monitor.messages import Repair as Repair
    from monitor.messages import RepairKind as RepairKind
    from monitor.messages import RepairReport as RepairReport

__all__ = [
    "COMPACTION",
    "OVERFLOW_ROWS",
    "ClipResults",
    "Committed",
    "ContextMeter",
    "Cut",
    "DropMedia",
    "Form",
    "Full",
    "Fullness",
    "Headroom",
    "History",
    "HistoryEdit",
    "HistoryLimits",
    "KeepTurns",
    "Overflow",
    "OverflowKind",
    "OverflowRow",
    "Problem",
    "PruneArguments",
    "PruneResults",
    "RawMessage",
    "RawPart",
    "Reducer",
    "Reduction",
    "Repair",
    "RepairKind",
    "RepairReport",
    "SessionKind",
    "Size",
    "Stale",
    "TokenCount",
    "Unread",
    "Window",
    "WindowSource",
    "clip",
    "curated",
    "cut_by_turns",
    "head_of",
    "oversized_chars",
    "prepare",
    "propose_edit",
    "read",
    "read_answer",
    "read_failure",
    "recorded",
    "reduced",
    "repair",
    "sizes_by_source",
    "user_turns",
    "validate",
    "window_of",
    "without_media",
]

if not TYPE_CHECKING:  # a type checker would believe that every name is there
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "COMPACTION": "monitor.context.turns",
            "OVERFLOW_ROWS": "monitor.context.overflow",
            "ClipResults": "monitor.context.truncate",
            "Committed": "monitor.context.history",
            "ContextMeter": "monitor.context.tokens",
            "Cut": "monitor.context.cut",
            "DropMedia": "monitor.context.media",
            "Form": "monitor.context.forms",
            "Full": "monitor.context.fullness",
            "Fullness": "monitor.context.fullness",
            "Headroom": "monitor.context.trigger",
            "History": "monitor.context.history",
            "HistoryEdit": "monitor.context.history",
            "HistoryLimits": "monitor.context.limits",
            "KeepTurns": "monitor.context.limits",
            "Overflow": "monitor.context.overflow",
            "OverflowKind": "monitor.context.overflow",
            "OverflowRow": "monitor.context.overflow",
            "Problem": "monitor.context.validation._problem",
            "PruneArguments": "monitor.context.prune",
            "PruneResults": "monitor.context.prune",
            "RawMessage": "monitor.context.raw",
            "RawPart": "monitor.context.raw",
            "Reducer": "monitor.context.reduction",
            "Reduction": "monitor.context.reduction",
            "Repair": "monitor.messages",
            "RepairKind": "monitor.messages",
            "RepairReport": "monitor.messages",
            "SessionKind": "monitor.context.limits",
            "Size": "monitor.context.tokens",
            "Stale": "monitor.context.history",
            "TokenCount": "monitor.context.tokens",
            "Unread": "monitor.context.raw",
            "Window": "monitor.context.window",
            "WindowSource": "monitor.context.window",
            "clip": "monitor.context.truncate",
            "curated": "monitor.context.curate",
            "cut_by_turns": "monitor.context.cut",
            "head_of": "monitor.context.turns",
            "oversized_chars": "monitor.context.truncate",
            "prepare": "monitor.context.prepared",
            "propose_edit": "monitor.context.reduction",
            "read": "monitor.context.readers",
            "read_answer": "monitor.context.overflow",
            "read_failure": "monitor.context.overflow",
            "recorded": "monitor.context.curate",
            "reduced": "monitor.context.reduction",
            "repair": "monitor.context.repairs",
            "sizes_by_source": "monitor.context.tokens",
            "user_turns": "monitor.context.turns",
            "validate": "monitor.context.validation",
            "window_of": "monitor.context.window",
            "without_media": "monitor.context.media",
        },
    )

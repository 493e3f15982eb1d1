"""The conversation as the model is shown it: always valid, and never larger than it must be. No model, no clock, no I/O."""

from monitor.context.curate import curated as curated
from monitor.context.curate import recorded as recorded
from monitor.context.cut import Cut as Cut
from monitor.context.cut import cut_by_share as cut_by_share
from monitor.context.cut import cut_by_tokens as cut_by_tokens
from monitor.context.cut import cut_by_turns as cut_by_turns
from monitor.context.cut import tail_budget as tail_budget
from monitor.context.forms import Form as Form
from monitor.context.history import Committed as Committed
from monitor.context.history import History as History
from monitor.context.history import HistoryEdit as HistoryEdit
from monitor.context.history import Stale as Stale
from monitor.context.limits import HistoryLimits as HistoryLimits
from monitor.context.limits import KeepTurns as KeepTurns
from monitor.context.limits import SessionKind as SessionKind
from monitor.context.media import DropMedia as DropMedia
from monitor.context.media import without_media as without_media
from monitor.context.prepare import prepare as prepare
from monitor.context.prune import PruneArguments as PruneArguments
from monitor.context.prune import PruneResults as PruneResults
from monitor.context.raw import RawMessage as RawMessage
from monitor.context.raw import RawPart as RawPart
from monitor.context.raw import Unread as Unread
from monitor.context.readers import read as read
from monitor.context.reduction import Reducer as Reducer
from monitor.context.reduction import Reduction as Reduction
from monitor.context.reduction import propose as propose
from monitor.context.reduction import reduced as reduced
from monitor.context.repair import repair as repair
from monitor.context.report import Repair as Repair
from monitor.context.report import RepairKind as RepairKind
from monitor.context.report import RepairReport as RepairReport
from monitor.context.truncate import ClipResults as ClipResults
from monitor.context.truncate import clip as clip
from monitor.context.truncate import oversized_chars as oversized_chars
from monitor.context.turns import COMPACTION as COMPACTION
from monitor.context.turns import head_of as head_of
from monitor.context.turns import user_turns as user_turns
from monitor.context.validate import validate as validate
from monitor.context.validate._problem import Problem as Problem

__all__ = [
    "COMPACTION",
    "ClipResults",
    "Committed",
    "Cut",
    "DropMedia",
    "Form",
    "History",
    "HistoryEdit",
    "HistoryLimits",
    "KeepTurns",
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
    "Stale",
    "Unread",
    "clip",
    "curated",
    "cut_by_share",
    "cut_by_tokens",
    "cut_by_turns",
    "head_of",
    "oversized_chars",
    "prepare",
    "propose",
    "read",
    "recorded",
    "reduced",
    "repair",
    "tail_budget",
    "user_turns",
    "validate",
    "without_media",
]

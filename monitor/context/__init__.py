"""The conversation as the model is shown it: always valid, and never larger than it must be. No
model, no clock, no I/O.
"""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.context.cut import CutPoint as CutPoint
    from monitor.context.cut import cut_by_turns as cut_by_turns
    from monitor.context.history import CommittedEdit as CommittedEdit
    from monitor.context.history import History as History
    from monitor.context.history import HistoryEdit as HistoryEdit
    from monitor.context.history import Stale as Stale
    from monitor.context.measure.fullness import Fullness as Fullness
    from monitor.context.measure.headroom import Headroom as Headroom
    from monitor.context.measure.overflow import OVERFLOW_ROWS as OVERFLOW_ROWS
    from monitor.context.measure.overflow import Overflow as Overflow
    from monitor.context.measure.overflow import OverflowKind as OverflowKind
    from monitor.context.measure.overflow import OverflowRow as OverflowRow
    from monitor.context.measure.overflow import read_answer as read_answer
    from monitor.context.measure.overflow import read_failure as read_failure
    from monitor.context.measure.tokens import ContextMeter as ContextMeter
    from monitor.context.measure.tokens import sizes_by_source as sizes_by_source
    from monitor.context.measure.window import Window as Window
    from monitor.context.measure.window import window_of as window_of
    from monitor.context.reduce.keep_turns import HistoryLimits as HistoryLimits
    from monitor.context.reduce.keep_turns import KeepTurns as KeepTurns
    from monitor.context.reduce.media import DropMedia as DropMedia
    from monitor.context.reduce.prune import PruneArguments as PruneArguments
    from monitor.context.reduce.prune import PruneResults as PruneResults
    from monitor.context.reduce.reduction import Reducer as Reducer
    from monitor.context.reduce.reduction import Reduction as Reduction
    from monitor.context.reduce.reduction import propose_edit as propose_edit
    from monitor.context.reduce.reduction import reduced as reduced
    from monitor.context.reduce.truncate import ClipResults as ClipResults
    from monitor.context.reduce.truncate import oversized_chars as oversized_chars
    from monitor.context.repairs.curate import curated as curated
    from monitor.context.repairs.curate import recorded as recorded
    from monitor.context.repairs.prepare import prepare as prepare
    from monitor.context.repairs.repair import repair as repair
    from monitor.context.turns import head_of as head_of
    from monitor.messages import RepairReport as RepairReport
    from monitor.wires.check import validate as validate
    from monitor.wires.forms import Form as Form
    from monitor.wires.problem import WireProblem as WireProblem
    from monitor.wires.raw import RawMessage as RawMessage
    from monitor.wires.read import read_history as read_history
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)

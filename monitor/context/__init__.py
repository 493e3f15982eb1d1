"""The conversation as the model is shown it: always valid, and never larger than it must be. No
model, no clock, no I/O.
"""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor._util.text import foreign as foreign
    from monitor.context.compaction.extractive import Extractive as Extractive
    from monitor.context.compaction.hooks import AskTurn as AskTurn
    from monitor.context.compaction.hooks import BeforeCompaction as BeforeCompaction
    from monitor.context.compaction.hooks import CompactionAsked as CompactionAsked
    from monitor.context.compaction.hooks import CompactionError as CompactionError
    from monitor.context.compaction.hooks import CompactionHook as CompactionHook
    from monitor.context.compaction.hooks import CompactionRecord as CompactionRecord
    from monitor.context.compaction.hooks import CompactionResult as CompactionResult
    from monitor.context.compaction.hooks import CompactionStore as CompactionStore
    from monitor.context.compaction.hooks import InMemoryCompactions as InMemoryCompactions
    from monitor.context.compaction.hooks import compaction_codec as compaction_codec
    from monitor.context.compaction.hooks import shown as shown
    from monitor.context.compaction.pinned import PinnedFacts as PinnedFacts
    from monitor.context.compaction.summarizer import Checkpoint as Checkpoint
    from monitor.context.compaction.summarizer import CompactionProgress as CompactionProgress
    from monitor.context.compaction.summarizer import Summarizer as Summarizer
    from monitor.context.compaction.summarizer import Summary as Summary
    from monitor.context.compaction.templates import CHECKPOINT as CHECKPOINT
    from monitor.context.compaction.templates import EIGHT_SECTIONS as EIGHT_SECTIONS
    from monitor.context.compaction.templates import FIVE_SECTIONS as FIVE_SECTIONS
    from monitor.context.compaction.templates import MARKDOWN as MARKDOWN
    from monitor.context.compaction.templates import SummaryTask as SummaryTask
    from monitor.context.compaction.templates import Template as Template
    from monitor.context.cut import CutPoint as CutPoint
    from monitor.context.cut import Keep as Keep
    from monitor.context.cut import KeepMessages as KeepMessages
    from monitor.context.cut import KeepNewTurns as KeepNewTurns
    from monitor.context.cut import KeepShare as KeepShare
    from monitor.context.cut import KeepTokens as KeepTokens
    from monitor.context.cut import cut_by_turns as cut_by_turns
    from monitor.context.history import CommittedEdit as CommittedEdit
    from monitor.context.history import History as History
    from monitor.context.history import HistoryEdit as HistoryEdit
    from monitor.context.history import Stale as Stale
    from monitor.context.history import head_of as head_of
    from monitor.context.overflow import OVERFLOW_ROWS as OVERFLOW_ROWS
    from monitor.context.overflow import Fullness as Fullness
    from monitor.context.overflow import Overflow as Overflow
    from monitor.context.overflow import OverflowKind as OverflowKind
    from monitor.context.overflow import OverflowRow as OverflowRow
    from monitor.context.overflow import read_answer as read_answer
    from monitor.context.overflow import read_failure as read_failure
    from monitor.context.reduce import ClipResults as ClipResults
    from monitor.context.reduce import DropMedia as DropMedia
    from monitor.context.reduce import HistoryLimits as HistoryLimits
    from monitor.context.reduce import KeepTurns as KeepTurns
    from monitor.context.reduce import PruneArguments as PruneArguments
    from monitor.context.reduce import PruneResults as PruneResults
    from monitor.context.reduce import Reducer as Reducer
    from monitor.context.reduce import Reduction as Reduction
    from monitor.context.reduce import oversized_chars as oversized_chars
    from monitor.context.reduce import propose_edit as propose_edit
    from monitor.context.reduce import reduced as reduced
    from monitor.context.repairs import curated as curated
    from monitor.context.repairs import prepare as prepare
    from monitor.context.repairs import recorded as recorded
    from monitor.context.repairs import repair as repair
    from monitor.context.tokens import ContextMeter as ContextMeter
    from monitor.context.tokens import sizes_by_source as sizes_by_source
    from monitor.context.window import Headroom as Headroom
    from monitor.context.window import Window as Window
    from monitor.context.window import window_of as window_of
    from monitor.messages import RepairReport as RepairReport
    from monitor.wires.fields import Form as Form
    from monitor.wires.fields import RawMessage as RawMessage
    from monitor.wires.fields import WireProblem as WireProblem
    from monitor.wires.read import read_history as read_history
    from monitor.wires.read import validate as validate
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)

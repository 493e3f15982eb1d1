"""A history that stays inside the window: what a `Compaction` is made of, and what a part of one's own is made from."""

from monitor.compacting import AskTurn as AskTurn
from monitor.compacting import CompactionDetails as CompactionDetails
from monitor.compacting import CompactionError as CompactionError
from monitor.compacting import CompactionFailure as CompactionFailure
from monitor.compacting import CompactionIneffective as CompactionIneffective
from monitor.compacting import CompactionReason as CompactionReason
from monitor.compacting import CompactionRecord as CompactionRecord
from monitor.compacting import CompactionResult as CompactionResult
from monitor.compacting import CompactionStore as CompactionStore
from monitor.compacting import record_codec as record_codec
from monitor.compacting import shown as shown
from monitor.compaction.base import Checkpoint as Checkpoint
from monitor.compaction.base import Progress as Progress
from monitor.compaction.base import Summarizer as Summarizer
from monitor.compaction.base import Summary as Summary
from monitor.compaction.base import SummaryTask as SummaryTask
from monitor.compaction.engine import Compaction as Compaction
from monitor.compaction.extractive import Extractive as Extractive
from monitor.compaction.hooks import BeforeCompaction as BeforeCompaction
from monitor.compaction.hooks import CompactionAsked as CompactionAsked
from monitor.compaction.hooks import CompactionHook as CompactionHook
from monitor.compaction.keep import Keep as Keep
from monitor.compaction.keep import KeepMessages as KeepMessages
from monitor.compaction.keep import KeepNewTurns as KeepNewTurns
from monitor.compaction.keep import KeepShare as KeepShare
from monitor.compaction.keep import KeepTokens as KeepTokens
from monitor.compaction.pinned import PinnedFacts as PinnedFacts
from monitor.compaction.preset import PRESETS as PRESETS
from monitor.compaction.summarize import ModelSummarizer as ModelSummarizer
from monitor.compaction.templates import CHECKPOINT as CHECKPOINT
from monitor.compaction.templates import EIGHT_SECTIONS as EIGHT_SECTIONS
from monitor.compaction.templates import FIVE_SECTIONS as FIVE_SECTIONS
from monitor.compaction.templates import MARKDOWN as MARKDOWN
from monitor.compaction.templates import Template as Template

__all__ = [
    "CHECKPOINT",
    "EIGHT_SECTIONS",
    "FIVE_SECTIONS",
    "MARKDOWN",
    "PRESETS",
    "AskTurn",
    "BeforeCompaction",
    "Checkpoint",
    "Compaction",
    "CompactionAsked",
    "CompactionDetails",
    "CompactionError",
    "CompactionFailure",
    "CompactionHook",
    "CompactionIneffective",
    "CompactionReason",
    "CompactionRecord",
    "CompactionResult",
    "CompactionStore",
    "Extractive",
    "Keep",
    "KeepMessages",
    "KeepNewTurns",
    "KeepShare",
    "KeepTokens",
    "ModelSummarizer",
    "PinnedFacts",
    "Progress",
    "Summarizer",
    "Summary",
    "SummaryTask",
    "Template",
    "record_codec",
    "shown",
]

"""A history that stays inside the window: the parts of a `Compaction`, and what a part of your own
is made from.
"""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor._util.quoting import foreign as foreign
    from monitor.compaction.hooks import BeforeCompaction as BeforeCompaction
    from monitor.compaction.hooks import CompactionAsked as CompactionAsked
    from monitor.compaction.hooks import CompactionHook as CompactionHook
    from monitor.compaction.pinned import PinnedFacts as PinnedFacts
    from monitor.compaction.records import AskTurn as AskTurn
    from monitor.compaction.records import CompactionError as CompactionError
    from monitor.compaction.records import CompactionRecord as CompactionRecord
    from monitor.compaction.records import CompactionResult as CompactionResult
    from monitor.compaction.records import CompactionStore as CompactionStore
    from monitor.compaction.records import InMemoryCompactions as InMemoryCompactions
    from monitor.compaction.records import compaction_codec as compaction_codec
    from monitor.compaction.records import shown as shown
    from monitor.compaction.summaries.extractive import Extractive as Extractive
    from monitor.compaction.summaries.summarizer import Checkpoint as Checkpoint
    from monitor.compaction.summaries.summarizer import CompactionProgress as CompactionProgress
    from monitor.compaction.summaries.summarizer import Summarizer as Summarizer
    from monitor.compaction.summaries.summarizer import Summary as Summary
    from monitor.compaction.summaries.templates import CHECKPOINT as CHECKPOINT
    from monitor.compaction.summaries.templates import EIGHT_SECTIONS as EIGHT_SECTIONS
    from monitor.compaction.summaries.templates import FIVE_SECTIONS as FIVE_SECTIONS
    from monitor.compaction.summaries.templates import MARKDOWN as MARKDOWN
    from monitor.compaction.summaries.templates import SummaryTask as SummaryTask
    from monitor.compaction.summaries.templates import Template as Template
    from monitor.context.cut import Keep as Keep
    from monitor.context.cut import KeepMessages as KeepMessages
    from monitor.context.cut import KeepNewTurns as KeepNewTurns
    from monitor.context.cut import KeepShare as KeepShare
    from monitor.context.cut import KeepTokens as KeepTokens
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)

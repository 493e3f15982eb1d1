"""A history that stays inside the window: the parts of a `Compaction`, and what a part of your own
is made from.
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
    from monitor.context.cut import Keep as Keep
    from monitor.context.cut import KeepMessages as KeepMessages
    from monitor.context.cut import KeepNewTurns as KeepNewTurns
    from monitor.context.cut import KeepShare as KeepShare
    from monitor.context.cut import KeepTokens as KeepTokens
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)

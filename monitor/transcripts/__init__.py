"""Readers of recorded runs, one file a format."""

from monitor.transcripts.base import LoopLabel as LoopLabel
from monitor.transcripts.base import RecordedCall as RecordedCall
from monitor.transcripts.base import RecordedMessage as RecordedMessage
from monitor.transcripts.base import RecordedResult as RecordedResult
from monitor.transcripts.base import RecordedRun as RecordedRun
from monitor.transcripts.corpus import BadLine as BadLine
from monitor.transcripts.corpus import Corpus as Corpus

__all__ = ["BadLine", "Corpus", "LoopLabel", "RecordedCall", "RecordedMessage", "RecordedResult", "RecordedRun"]

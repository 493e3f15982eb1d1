"""Transcripts of agents: thirty formats, each recognised by its content."""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.transcripts.analysis.survey import SurveyedRun as SurveyedRun
    from monitor.transcripts.analysis.survey import survey as survey
    from monitor.transcripts.base import Began as Began
    from monitor.transcripts.base import CompactionSeen as CompactionSeen
    from monitor.transcripts.base import Ended as Ended
    from monitor.transcripts.base import LoopLabel as LoopLabel
    from monitor.transcripts.base import ReadReport as ReadReport
    from monitor.transcripts.base import RecordedCall as RecordedCall
    from monitor.transcripts.base import RecordedMessage as RecordedMessage
    from monitor.transcripts.base import RecordedResult as RecordedResult
    from monitor.transcripts.base import RecordedRun as RecordedRun
    from monitor.transcripts.base import Said as Said
    from monitor.transcripts.base import TranscriptEntry as TranscriptEntry
    from monitor.transcripts.corpus import BadLine as BadLine
    from monitor.transcripts.corpus import Corpus as Corpus
    from monitor.transcripts.places import read_transcript as read_transcript
    from monitor.transcripts.places import runs as runs
    from monitor.transcripts.places import sources as sources
    from monitor.transcripts.source import Source as Source
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)

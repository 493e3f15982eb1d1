"""What watches a run. A detector answers chunks with findings; it is pure, so every finding replays from a recording."""

from monitor.detectors.base import NOTHING, ChannelDetector, Detector, FactDetector, TextFeed
from monitor.detectors.similar_messages import SimilarMessages
from monitor.detectors.text import ContentRepetition, RecurrenceRule, TailRule, WindowRule
from monitor.detectors.tool_repetition import ToolCallRepetition

__all__ = [
    "NOTHING",
    "ChannelDetector",
    "ContentRepetition",
    "Detector",
    "FactDetector",
    "RecurrenceRule",
    "SimilarMessages",
    "TailRule",
    "TextFeed",
    "ToolCallRepetition",
    "WindowRule",
    "default_detectors",
]


def default_detectors() -> list[Detector]:
    """New instances of the detectors that are on by default; they watch one run."""
    return [ToolCallRepetition(), ContentRepetition(), SimilarMessages()]

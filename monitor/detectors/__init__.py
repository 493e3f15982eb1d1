"""The detectors of loops. A detector takes chunks and returns findings. It is pure, so every
finding can be replayed from a recording.
"""

from monitor.detectors.base import NOTHING, ChannelDetector, Detector, FactDetector, TextFeed
from monitor.detectors.calls.no_progress import NoProgress
from monitor.detectors.calls.progress import ProgressRule
from monitor.detectors.calls.tool_cycle import ToolCallCycle
from monitor.detectors.calls.tool_policy import ToolPolicy
from monitor.detectors.calls.tool_repetition import ToolCallRepetition
from monitor.detectors.calls.unknown_tool import UnknownTool
from monitor.detectors.defaults import default_detectors
from monitor.detectors.similar_messages import SimilarMessages
from monitor.detectors.text import ContentRepetition, CountedRule, RecurrenceRule, TailRule, WindowRule

__all__ = [
    "NOTHING",
    "ChannelDetector",
    "ContentRepetition",
    "CountedRule",
    "Detector",
    "FactDetector",
    "NoProgress",
    "ProgressRule",
    "RecurrenceRule",
    "SimilarMessages",
    "TailRule",
    "TextFeed",
    "ToolCallCycle",
    "ToolCallRepetition",
    "ToolPolicy",
    "UnknownTool",
    "WindowRule",
    "default_detectors",
]

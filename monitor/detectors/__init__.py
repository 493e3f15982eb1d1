"""The detectors of loops. A detector takes chunks and returns findings. It is pure, so every
finding can be replayed from a recording.
"""

from monitor._util.lazy import lazy_names

TYPE_CHECKING = False  # a hook is waited for, and `typing` takes 3 ms

if TYPE_CHECKING:
    from monitor.detectors.calls.learned_evidence import LearnedEvidence as LearnedEvidence
    from monitor.detectors.calls.no_progress import NoProgress as NoProgress
    from monitor.detectors.calls.repeated_error import RepeatedError as RepeatedError
    from monitor.detectors.calls.repeated_error import UnknownTool as UnknownTool
    from monitor.detectors.calls.tool_cycle import ToolCallCycle as ToolCallCycle
    from monitor.detectors.calls.tool_policy import ProgressRule as ProgressRule
    from monitor.detectors.calls.tool_policy import ToolPolicy as ToolPolicy
    from monitor.detectors.calls.tool_repetition import ToolCallRepetition as ToolCallRepetition
    from monitor.detectors.defaults import default_detectors as default_detectors
    from monitor.detectors.detector import NOTHING as NOTHING
    from monitor.detectors.detector import ChannelDetector as ChannelDetector
    from monitor.detectors.detector import Detector as Detector
    from monitor.detectors.detector import FactDetector as FactDetector
    from monitor.detectors.detector import RequestReader as RequestReader
    from monitor.detectors.detector import TextFeed as TextFeed
    from monitor.detectors.function_detector import as_detector as as_detector
    from monitor.detectors.similar_messages import SimilarMessages as SimilarMessages
    from monitor.detectors.text import ContentRepetition as ContentRepetition
    from monitor.detectors.text import CountedRule as CountedRule
    from monitor.detectors.text import InformationRule as InformationRule
    from monitor.detectors.text import RecurrenceRule as RecurrenceRule
    from monitor.detectors.text import TailRule as TailRule
    from monitor.detectors.text import WindowRule as WindowRule
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)

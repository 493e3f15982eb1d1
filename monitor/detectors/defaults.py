"""The detectors that a run has by default."""

from __future__ import annotations

from collections.abc import Mapping

from monitor.detectors.calls.default_calls import of_calls
from monitor.detectors.calls.tool_policy import ToolPolicy
from monitor.detectors.detector import Detector
from monitor.detectors.similar_messages import SimilarMessages
from monitor.detectors.text import ContentRepetition


def default_detectors(*, tools: Mapping[str, ToolPolicy] | None = None) -> list[Detector]:
    """New instances of the default detectors, for one run. `tools`: what is special about a tool,
    by its name.
    """
    return [*of_calls(tools), *of_text()]


def of_text() -> list[Detector]:
    """The default detectors that read text."""
    return [ContentRepetition(), SimilarMessages()]

"""The detectors that a run has by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from monitor._util.explained_options import explains_options
from monitor.detectors.calls.no_progress import NoProgress
from monitor.detectors.calls.novelty.state_novelty import StateNovelty
from monitor.detectors.calls.tool_cycle import ToolCallCycle
from monitor.detectors.calls.tool_policy import ToolPolicy
from monitor.detectors.calls.tool_repetition import ToolCallRepetition
from monitor.detectors.calls.unknown_tool import UnknownTool
from monitor.detectors.detector import Detector, MadeLate
from monitor.detectors.similar_messages import SimilarMessages
from monitor.detectors.text import ContentRepetition


@explains_options(example="monitor.default_detectors(tools={'wait': monitor.ToolPolicy(polling=True)})")
def default_detectors(*, tools: Mapping[str, ToolPolicy] | None = None) -> list[Detector]:
    """New instances of the default detectors, for one run. `tools`: what is special about a tool,
    by its name.
    """
    return [*_of_calls(tools), *of_text()]


def of_text() -> list[Detector]:
    """The default detectors that read text."""
    return [ContentRepetition(), SimilarMessages()]


def _of_calls(tools: Mapping[str, ToolPolicy] | None = None) -> list[Detector]:
    return [
        ToolCallRepetition(tools=tools),
        ToolCallCycle(tools=tools),
        NoProgress(tools=tools),
        StateNovelty(tools=tools),
        UnknownTool(tools=tools),
    ]


OF_CALLS: Final = MadeLate(_of_calls)
"""The default detectors of calls, made with the first call."""

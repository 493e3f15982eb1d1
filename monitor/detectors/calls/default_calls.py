"""The detectors of calls that a run has by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from monitor.detectors.calls.no_progress import NoProgress
from monitor.detectors.calls.novelty.state_novelty import StateNovelty
from monitor.detectors.calls.tool_cycle import ToolCallCycle
from monitor.detectors.calls.tool_policy import ToolPolicy
from monitor.detectors.calls.tool_repetition import ToolCallRepetition
from monitor.detectors.calls.unknown_tool import UnknownTool
from monitor.detectors.detector import Detector, MadeLate


def of_calls(tools: Mapping[str, ToolPolicy] | None = None) -> list[Detector]:
    """New instances, for one run. `tools`: what is special about a tool, by its name."""
    return [
        ToolCallRepetition(tools=tools),
        ToolCallCycle(tools=tools),
        NoProgress(tools=tools),
        StateNovelty(tools=tools),
        UnknownTool(tools=tools),
    ]


OF_CALLS: Final = MadeLate(of_calls)
"""The default detectors of calls, made with the first call."""

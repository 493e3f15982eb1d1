"""The detectors of calls that a run has by default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from monitor.detectors.detector import Detector, MadeLate

if TYPE_CHECKING:
    from monitor.detectors.calls.tool_policy import ToolPolicy


def of_calls(tools: Mapping[str, ToolPolicy] | None = None) -> Iterator[Detector]:
    """New instances, for one run. `tools`: what is special about a tool, by its name.

    Each is imported when it is asked for: a hook is waited for, and often the first one is enough.
    """
    from monitor.detectors.calls.tool_repetition import ToolCallRepetition  # noqa: PLC0415

    yield ToolCallRepetition(tools=tools)
    from monitor.detectors.calls.tool_cycle import ToolCallCycle  # noqa: PLC0415

    yield ToolCallCycle(tools=tools)
    from monitor.detectors.calls.no_progress import NoProgress  # noqa: PLC0415

    yield NoProgress(tools=tools)
    from monitor.detectors.calls.novelty.state_novelty import StateNovelty  # noqa: PLC0415

    yield StateNovelty(tools=tools)
    from monitor.detectors.calls.unknown_tool import UnknownTool  # noqa: PLC0415

    yield UnknownTool(tools=tools)


OF_CALLS: Final = MadeLate(of_calls)
"""The default detectors of calls, made with the first call."""

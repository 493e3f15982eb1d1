"""The detectors that a run has by default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from monitor._util.explained_options import explains_options
from monitor.detectors.calls.tool_policy import ToolPolicy
from monitor.detectors.detector import Detector, MadeLate
from monitor.detectors.similar_messages import SimilarMessages
from monitor.detectors.text import ContentRepetition

if TYPE_CHECKING:
    from monitor.detectors.calls.tool_policy import ToolPolicy


# --------------------------------------------------------------------------------------------------
# The detectors of calls that a run has by default.


def of_calls(tools: Mapping[str, ToolPolicy] | None = None) -> Iterator[Detector]:
    """New instances, for one run. `tools`: what is special about a tool, by its name.

    Each is imported when it is asked for: a hook is waited for, and often the first one is enough.
    """
    from monitor.detectors.calls.tool_repetition import ToolCallRepetition  # noqa: PLC0415

    yield ToolCallRepetition(tools=tools)
    from monitor.detectors.calls.tool_cycle import ToolCallCycle  # noqa: PLC0415

    yield ToolCallCycle(tools=tools)
    from monitor.detectors.calls.repeated_error import RepeatedError  # noqa: PLC0415

    yield RepeatedError(tools=tools)
    from monitor.detectors.calls.learned_evidence import LearnedEvidence  # noqa: PLC0415

    yield LearnedEvidence(tools=tools)


OF_CALLS: Final = MadeLate(of_calls)
"""The default detectors of calls, made with the first call."""


@explains_options(example="monitor.default_detectors(tools={'wait': monitor.ToolPolicy(polling=True)})")
def default_detectors(*, tools: Mapping[str, ToolPolicy] | None = None) -> list[Detector]:
    """New instances of the default detectors, for one run. `tools`: what is special about a tool,
    by its name.
    """
    return [*of_calls(tools), *of_text()]


def of_text() -> list[Detector]:
    """The default detectors that read text."""
    return [ContentRepetition(), SimilarMessages()]

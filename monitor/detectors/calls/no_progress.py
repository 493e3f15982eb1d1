"""A detector of a number that is to be lowered, and is not. Failure answered: an agent edits and
runs its tests for hours, and as many fail as before. Each edit is another one, so no call is equal.

Rules:

- The number is that of a tool's result: failing tests, open items, lines to translate. A result
  without a number is not counted.
- Each call has a number of its own, and stands still while that does not become lower
  (`monitor.detectors.calls.tool_policy`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from monitor._util.explained_options import explains_options
from monitor.chunks import ToolResult
from monitor.detectors.calls.front import (
    EXCERPT_CHARS,
    OFFSETS_SHOWN,
    CallAnswer,
    CallRule,
    SeenCall,
    UnansweredCall,
    remember,
)
from monitor.detectors.calls.tool_policy import ProgressRule, Standstill, ToolPolicy, reported
from monitor.detectors.detector import NOTHING
from monitor.errors import ConfigError
from monitor.verdicts import Detection, Evidence, Level

RESULTS_COMPARED = 64
"""The greatest threshold."""
OPEN_KEPT = 64
"""The number of unanswered calls that are kept, the newest ones."""


@dataclass(slots=True)
class _Numbers:
    """The state of `NoProgress`."""

    standstill: Standstill = field(default_factory=Standstill)
    open: dict[str, str] = field(default_factory=dict[str, str])
    """The hash of each call without a result, by its index."""


class NoProgress(CallRule[_Numbers]):
    """Finds a call whose number does not become lower.

    `stalled_suspect_at`, `stalled_at`: the results of one call, without a lower number, that make a
    suspicion and a loop; `None` switches one off. `progress` (a `ProgressRule`) reads the number,
    by default what the tool reports.
    """

    __slots__ = ("_progress", "_stalled_at", "_stalled_suspect_at")

    @explains_options(example="monitor.detectors.NoProgress(stalled_at=12)")
    def __init__(
        self,
        *,
        stalled_suspect_at: int | None = 6,
        stalled_at: int | None = 12,
        progress: Callable[[ToolResult], float | None] | None = None,
        tools: Mapping[str, ToolPolicy] | None = None,
        name: str = "no_progress",
    ) -> None:
        for option, value in (("stalled_suspect_at", stalled_suspect_at), ("stalled_at", stalled_at)):
            if value is not None and not 1 < value <= RESULTS_COMPARED:
                raise ConfigError(f"NoProgress({option}={value}): give 2 to {RESULTS_COMPARED}, or None")
        if progress is not None and not callable(progress):
            raise ConfigError(f"NoProgress(progress={progress!r}): give a function of a tool result")
        self._stalled_suspect_at = stalled_suspect_at
        self._stalled_at = stalled_at
        self._progress: ProgressRule = progress or reported
        super().__init__(_Numbers, tools=tools, name=name)

    def options(self) -> dict[str, Any]:
        """The options that make the detector again."""
        return {
            "stalled_suspect_at": self._stalled_suspect_at,
            "stalled_at": self._stalled_at,
            "progress": None if self._progress is reported else self._progress,
            "tools": self.tools,
            "name": self.name,
        }

    def called(self, call: SeenCall) -> Sequence[Detection]:
        if not call.exempt:
            remember(self._state.open, str(call.index), call.key.xxhash, OPEN_KEPT)
        return NOTHING

    def answered(self, answer: CallAnswer) -> Sequence[Detection]:
        asked, result = answer.call, answer.result
        xxhash, left = self._state.open.pop(str(asked.index), None), self._progress(result)
        if xxhash is None or left is None:
            return NOTHING
        self._state.standstill.took(xxhash, left, asked.index)
        best, offsets = self._state.standstill.of(xxhash)
        count = len(offsets)
        level: Level
        if self._stalled_at is not None and count >= self._stalled_at:
            level, threshold = "loop", self._stalled_at
        elif self._stalled_suspect_at is not None and count == self._stalled_suspect_at:
            level, threshold = "suspect", self._stalled_suspect_at
        else:
            return NOTHING
        return (
            Detection(
                detector=self.name,
                kind="stalled",
                channel="tools",
                level=level,
                count=count,
                threshold=threshold,
                start_offset=offsets[0],
                offset=offsets[-1],
                evidence=Evidence(
                    f"{asked.name}(...) -> {left:g} left, at best {best:g}"[:EXCERPT_CHARS],
                    xxhash,
                    len(result.text),
                    tuple(offsets[-OFFSETS_SHOWN:]),
                ),
                message=f"{asked.name} was run {count} times, and what is left has not become less than {best:g}",
            ),
        )

    def vetoed(self, call: UnansweredCall) -> Sequence[Detection]:
        self._state.open.pop(str(call.index), None)
        return NOTHING

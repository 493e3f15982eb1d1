"""A detector of a number that is to be lowered and is not: failing tests, open items. Failure
answered: an agent that edits and runs the tests for hours, each time with other errors, and never
with fewer.

Rules:

- The number of a call is what `progress` reads out of its result, by default what the tool reports.
- Each call has a number of its own. It stands still if it does not become lower, whatever is done
  between (`monitor.detectors.calls.progress_rule`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from monitor._util.explained_options import explains_options
from monitor.chunks import ToolResult
from monitor.detectors.calls.call_detector import (
    CALLS_KEPT,
    EXCERPT_CHARS,
    OFFSETS_SHOWN,
    CallDetector,
    Called,
    DetectorCall,
    remember,
)
from monitor.detectors.calls.progress_rule import OFFSETS_KEPT, ProgressRule, Standstill, reported
from monitor.detectors.calls.tool_policy import ToolPolicy
from monitor.detectors.detector import NOTHING
from monitor.errors import ConfigError
from monitor.verdicts import Detection, Evidence, Level


class NoProgress(CallDetector):
    """Finds a call whose number does not become lower.

    `stalled_suspect_at`, `stalled_at`: the results of one call without a lower number that are a
    suspicion, and a loop; `None`: never. `progress` (a `ProgressRule`) reads the number, by default
    what the tool reports.
    """

    __slots__ = ("_open", "_progress", "_stalled_at", "_stalled_suspect_at", "_standstill")
    _standstill: Standstill
    _open: dict[str, str]
    """The hashes of calls without a result, by their index."""

    @explains_options(example="monitor.NoProgress()")
    def __init__(
        self,
        *,
        stalled_suspect_at: int | None = 6,
        stalled_at: int | None = 12,
        progress: Callable[[ToolResult], float | None] | None = None,
        tools: Mapping[str, ToolPolicy] | None = None,
        name: str = "no_progress",
    ) -> None:
        for option, value in {"stalled_suspect_at": stalled_suspect_at, "stalled_at": stalled_at}.items():
            if value is not None and not 1 < value <= OFFSETS_KEPT:
                raise ConfigError(f"NoProgress({option}={value}): give 2 to {OFFSETS_KEPT}, or None to switch it off")
        self._stalled_at = stalled_at
        self._stalled_suspect_at = stalled_suspect_at
        if progress is not None and not callable(progress):
            raise ConfigError(f"NoProgress(progress={progress!r}): give a function of a tool result")
        self._progress: ProgressRule = progress or reported
        super().__init__(tools=tools, name=name)

    def options(self) -> dict[str, Any]:
        """The options that make the detector again."""
        return {
            "stalled_suspect_at": self._stalled_suspect_at,
            "stalled_at": self._stalled_at,
            "progress": None if self._progress is reported else self._progress,
            "tools": self._tools,
            "name": self.name,
        }

    def _called(self, call: Called) -> Sequence[Detection]:
        if not call.exempt:
            remember(self._open, str(call.index), call.xxhash, CALLS_KEPT)
        return NOTHING

    def _answered(self, asked: DetectorCall, policy: ToolPolicy, result: ToolResult) -> Sequence[Detection]:
        xxhash = self._open.pop(str(asked.index), None)
        left = self._progress(result)
        if left is None or xxhash is None:
            return NOTHING
        self._standstill.took(xxhash, left, asked.index)
        best, offsets = self._standstill.of(xxhash)
        count = len(offsets)
        level: Level
        if self._stalled_at is not None and count >= self._stalled_at:
            level, threshold = "loop", self._stalled_at
        elif count and count == self._stalled_suspect_at:
            level, threshold = "suspect", count
        else:
            return NOTHING
        excerpt = f"{asked.name}(...) -> {left:g} left, at best {best:g}"
        found = Detection(
            detector=self.name,
            kind="stalled",
            channel="tools",
            level=level,
            count=count,
            threshold=threshold,
            start_offset=offsets[0],
            offset=offsets[-1],
            evidence=Evidence(excerpt[:EXCERPT_CHARS], xxhash, len(excerpt), tuple(offsets[-OFFSETS_SHOWN:])),
            message=f"{asked.name} was run {count} times, and what is left has not become less than {best:g}",
        )
        return (found,)

    def _save(self) -> dict[str, Any]:
        return {"open": dict(self._open), "standstill": self._standstill.save()}

    def _load(self, state: Mapping[str, Any] | None) -> None:
        self._open = {str(index): str(xxhash) for index, xxhash in state["open"].items()} if state else {}
        self._standstill = Standstill(state["standstill"] if state else None)

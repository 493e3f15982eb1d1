"""A run that repeats itself right after a compaction. Failure answered: the messages that said what
was done are gone, so the model does it again, is compacted, and does it again (OpenClaw #78562).

Other detectors also remember across compactions; this one is quicker, for a short time. Right after
a compaction, a few equal calls with equal results that had come before it are a loop. OpenClaw
calls it `compaction_loop_persisted`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from monitor._util.hashing import canonical_json, identity
from monitor.chunks import ToolCall, ToolResult
from monitor.detectors.calls.call_detector import EXCERPT_CHARS
from monitor.detectors.calls.tool_policy import is_veto
from monitor.verdicts import Detection, Evidence

WINDOW: Final = 3
"""The equal results after a compaction that make a finding. The number is OpenClaw's."""
REMEMBERED: Final = 30
"""The number of newest calls before a compaction that are remembered. OpenClaw's number."""


class RepeatsAfterCompaction:
    """Sees the same call with the same result three times in a row right after a compaction, if
    it had come before it as well.

    Give it every result with its call, in order, both without fields that always differ (times, ids
    of requests). Leave out calls of tools that are polled.
    """

    def __init__(self) -> None:
        self._recent: deque[str] = deque(maxlen=REMEMBERED)
        self._seen = 0
        """The number of results so far."""
        self._before: frozenset[str] = frozenset()
        """The results from before the newest compaction; empty: something new has come since."""
        self._key = ""
        self._offsets: list[int] = []

    def compacted(self) -> None:
        """A compaction was accepted: the next results are looked at."""
        self._before = frozenset(self._recent)
        self._key = ""
        self._offsets = []

    def observe(self, call: ToolCall, result: ToolResult) -> Detection | None:
        """A tool has answered. Returns what was found, or `None`. Linear in call and result."""
        if is_veto(result):  # the monitor's own answer to a call that was not carried out
            return None
        arguments = canonical_json(call.arguments)
        text = f"{call.name}({arguments})"
        key = identity(canonical_json([text, result.text, result.is_error]))
        index, self._seen = self._seen, self._seen + 1
        self._recent.append(key)
        if key not in self._before or (self._offsets and key != self._key):
            self._before = frozenset()
            return None
        self._key = key
        self._offsets.append(index)
        if len(self._offsets) < WINDOW:
            return None
        self._before = frozenset()
        return self._detection(call.name, text, len(arguments))

    def _detection(self, tool: str, text: str, length: int) -> Detection:
        count = len(self._offsets)
        return Detection(
            detector="compaction_guard",
            kind="compaction_loop",
            channel="tools",
            level="loop",
            count=count,
            threshold=WINDOW,
            start_offset=self._offsets[0],
            offset=self._offsets[-1],
            evidence=Evidence(text[:EXCERPT_CHARS], identity(text), length, tuple(self._offsets)),
            message=(
                f"right after a compaction, {tool} was called {count} times in a row with arguments and a result that"
                " had come before it"
            ),
        )

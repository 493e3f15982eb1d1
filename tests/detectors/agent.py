"""An agent for tests of the detectors of calls: says in one line what a turn called and what came
back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monitor.chunks import Chunk, ToolCall, ToolResult, TurnFinished
from monitor.detectors import Detector
from monitor.errors import FinishReason
from monitor.verdicts import Detection

DONE = TurnFinished(FinishReason.DONE)


class Agent:
    """Speaks to a detector; every call gets an id of its own."""

    def __init__(self, *detectors: Detector) -> None:
        self.detectors = detectors
        self.calls = 0
        self.found: list[Detection] = []

    def observe(self, chunk: Chunk) -> None:
        for detector in self.detectors:
            self.found += detector.observe(chunk)

    def turn(self, *calls: tuple[Any, ...]) -> None:
        """One turn with `calls`: (tool, arguments, result, is_error, vetoed), the later ones
        optional; `None` as a result: not seen.
        """
        results: list[ToolResult] = []
        for tool, *rest in calls:
            defaults: list[Any] = [{}, "the same", False, False]
            arguments, result, is_error, vetoed = [*rest, *defaults[len(rest) :]]
            self.observe(ToolCall(f"call_{self.calls}", tool, arguments))
            if result is not None:
                results.append(ToolResult(f"call_{self.calls}", tool, result, is_error, vetoed=vetoed))
            self.calls += 1
        self.observe(DONE)
        for answer in results:
            self.observe(answer)

    def turns(self, *calls: tuple[Any, ...], rounds: int = 1) -> None:
        """One turn for each of `calls`, again and again."""
        for _ in range(rounds):
            for call in calls:
                self.turn(call)

    @property
    def levels(self) -> list[tuple[str, int]]:
        return [(detection.level, detection.count) for detection in self.found]

    @property
    def kinds(self) -> set[str]:
        return {detection.kind for detection in self.found if detection.level == "loop"}


def letters(pattern: str, results: Sequence[str | None] = ()) -> list[tuple[Any, ...]]:
    """`ABAB` as calls, each letter a file that is read."""
    return [("read", {"path": letter}, *results[place : place + 1]) for place, letter in enumerate(pattern)]

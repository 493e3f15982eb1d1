"""Runs of calls for the tests of state novelty: a step is a tool, its arguments and its answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from monitor.chunks import Chunk, ToolCall, ToolResult, TurnFinished
from monitor.detectors import StateNovelty
from monitor.errors import FinishReason
from monitor.verdicts import Detection

Step: TypeAlias = tuple[str, dict[str, Any], str] | tuple[str, dict[str, Any], str, bool]
WORDS = [
    *("amber", "birch", "coral", "dune", "elm", "flint", "grove", "heath", "iris"),
    *("jade", "knoll", "larch", "mesa", "north", "opal", "pine", "quill", "reed"),
]


def chunks_of(steps: Iterable[Step | Sequence[Step]]) -> Iterator[Chunk]:
    """The steps as chunks; a list of steps is one turn."""
    for turn, given in enumerate(steps):
        calls: Sequence[Any] = given if isinstance(given, list) else [given]
        for place, (name, arguments, *_) in enumerate(calls):
            yield ToolCall(f"{turn}.{place}", name, arguments)
        yield TurnFinished(FinishReason.DONE)
        for place, (name, _, text, *error) in enumerate(calls):
            yield ToolResult(f"{turn}.{place}", name, text, bool(error and error[0]))


def found(steps: Iterable[Step | Sequence[Step]], request: str = "Do it.", **options: Any) -> list[Detection]:
    """What the detector finds."""
    detector = StateNovelty(**options)
    if request:
        detector.request(request)
    return [one for chunk in chunks_of(steps) for one in detector.observe(chunk)]


def stopped(steps: Iterable[Step | Sequence[Step]], request: str = "Do it.", **options: Any) -> bool:
    """Whether a loop is found."""
    return any(one.level == "loop" for one in found(steps, request, **options))

"""What the tables of the peers are written in: one row is a run, told in a line, and whether our
default detectors call it a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pytest

from monitor.chunks import ReasoningDelta, StreamRetried, TextDelta
from monitor.detectors import ContentRepetition, Detector, ToolPolicy, default_detectors
from monitor.verdicts import Level
from tests.detectors.agent import Agent

Call: TypeAlias = tuple[Any, ...]
"""tool, arguments, result, is_error; the later ones optional; `None` as a result: not seen."""
LOST = "the stream is lost, and starts again"
"""In a script: what stands before it in its turn is void."""
Step: TypeAlias = Call | list[Call] | str | TextDelta | ReasoningDelta
"""A turn with one call, a turn with several, a turn without, or what is said before the next
call.
"""
CUTS = (1, 7, 64, 4096)
"""A text is fed in pieces of each size: a row holds for all."""


def row(id: str, script: Any, ours: bool, *, theirs: bool | None = None, why: str = "", **options: Any) -> Any:
    """One row of a table. `theirs` is what the peer says where that is not what we say, and then
    `why` says why.
    """
    assert (theirs is not None) == bool(why), f"{id}: say why we differ, or do not"
    assert theirs is not ours, f"{id}: this is no difference"
    return pytest.param(script, ours, options, id=id)


def agent(tools: Mapping[str, ToolPolicy] | None = None, detectors: Sequence[Detector] | None = None) -> Agent:
    """A run that is watched by the default detectors."""
    return Agent(*(default_detectors(tools=tools) if detectors is None else detectors))


def play(run: Agent, script: Iterable[Step]) -> Agent:
    """Let `run` do what the script says."""
    for step in script:
        if isinstance(step, TextDelta | ReasoningDelta):
            run.observe(step)
        elif step == LOST:
            run.observe(StreamRetried(LOST))
        elif isinstance(step, str):
            run.observe(TextDelta(step))
            run.turn()
        elif isinstance(step, list):
            run.turn(*step)
        else:
            run.turn(step)
    return run


def loops(script: Iterable[Step], **options: Any) -> bool:
    """Whether a sure loop was found."""
    return bool(play(agent(**options), script).kinds)


def numbered(
    tool: str,
    count: int,
    result: str | None = "same",
    arguments: Mapping[str, Any] | None = None,
    *,
    error: bool = False,
) -> list[Call]:
    """`count` calls; `{n}` in the result is their number; without `arguments` these differ."""
    return [
        (tool, {"n": n} if arguments is None else dict(arguments), result and result.replace("{n}", str(n)), error)
        for n in range(count)
    ]


def in_pieces(text: str, size: int, *, thinking: bool = False) -> list[tuple[str, Level]]:
    """What the detector of text finds, by kind and level."""
    detector = ContentRepetition()
    make = ReasoningDelta if thinking else TextDelta
    pieces = (text[at : at + size] for at in range(0, len(text), size))
    return [(found.kind, found.level) for piece in pieces for found in detector.observe(make(piece))]


def chants(text: str) -> bool:
    """Whether a sure loop was found in `text`, the same in every cut. What is none is not even
    suspected.
    """
    (found,) = {tuple(in_pieces(text, size)) for size in CUTS}
    sure = any(level == "loop" for _, level in found)
    assert sure or not found
    return sure

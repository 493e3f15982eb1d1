"""Results of one turn that together fill the window: what the next request shows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio

import monitor
from bench._compaction_runs import PRESETS
from bench._compaction_script import Model, missing_from, pieces
from monitor.chunks import TextDelta, ToolCall
from monitor.messages import AssistantMessage
from monitor.models import ModelRequest
from monitor.testing import FakeClock, call

SHAPES: Final = ((4, 9_000, 32_000), (4, 25_000, 100_000), (50, 5_000, 200_000))
"""So many results of so many tokens each, in a window of so many."""
WAYS: Final = ("at the ceiling", "refused", "by hand")
"""How the compaction comes about. Refused: the run thinks that the window is larger by a half."""
BEFORE: Final = 8
"""Turns that come before it."""
LINE: Final = "    value = compute(rows, scale)\n"


@dataclass
class Unread:
    """What became of one turn's results."""

    preset: str
    calls: int
    tokens: int
    window: int
    way: str
    missing: int
    """Results of which the next request shows nothing, and does not say so either."""
    shown: float
    """Share of their text that it shows."""
    refused: int
    well: bool
    """The run has ended well, and no request was larger than the window but for the one that was to
    be refused.
    """


class _Agent:
    """Reads some things one after another, then many at once."""

    def __init__(self, calls: int, tokens: int) -> None:
        self.calls, self.text = calls, LINE * (tokens // pieces(LINE))
        self.turns = 0
        self.asked: list[str] = []
        self.missing = 0
        self.shown = 0.0

    def answer(self, request: ModelRequest) -> Sequence[TextDelta | ToolCall]:
        """The next turn."""
        self.turns += 1
        if self.turns <= BEFORE:
            return [TextDelta(f"I read part {self.turns}."), call("read", part=-self.turns)]
        if self.turns == BEFORE + 1:
            calls = [call("read", part=part) for part in range(self.calls)]
            self.asked = [one.id for one in calls]
            return [TextDelta("Now all parts at once."), *calls]
        self._look(request)
        return [TextDelta("It is done.")]

    def _look(self, request: ModelRequest) -> None:
        self.missing = missing_from(request.messages, self.asked)
        newest = [message for message in request.messages if isinstance(message, AssistantMessage)][-1:]
        texts = [result.text for message in newest for result in message.results if result.id in self.asked]
        self.missing += sum(LINE.strip() not in text and "left out" not in text for text in texts)
        self.shown = sum(map(len, texts)) / (self.calls * len(self.text))

    def read(self, part: int) -> str:
        """Read a part."""
        return f"part {part}\n{self.text if part >= 0 else LINE * 40}"


def unread(preset: str, shape: tuple[int, int, int], way: str) -> Unread:
    """One run of a preset."""
    return anyio.run(_run, preset, shape, way)


async def _run(preset: str, shape: tuple[int, int, int], way: str) -> Unread:
    calls, tokens, window = shape
    agent, clock = _Agent(calls, tokens), FakeClock()
    model = Model(agent.answer, clock, window_tokens=window)
    believed = window * 3 // 2 if way == "refused" else window
    supervisor = monitor.Supervisor(
        model,
        tools=[agent.read],
        window=monitor.Window(believed, 4_096),
        compaction=PRESETS[preset](),
        last_turn=None,
        clock=clock,
    )
    async with supervisor.stream("Read all parts.") as run:
        async for event in run:
            if way == "by hand" and _is_last_result(event, calls):
                await _by_hand(run)
    outcome: Any = run.outcome
    well = outcome.ok and not model.seen.problems and (way == "refused" or not model.seen.refused)
    return Unread(preset, calls, tokens, window, way, agent.missing, round(agent.shown, 3), model.seen.refused, well)


def _is_last_result(event: monitor.events.Event, calls: int) -> bool:
    return isinstance(event, monitor.events.ToolFinished) and event.result.text.startswith(f"part {calls - 1}\n")


async def _by_hand(run: monitor.Run) -> None:
    try:
        await run.compact()
    except monitor.context.CompactionError:
        return

"""What a compaction costs beside its model: processor time, the longest time for which the event
loop stands still, and a turn's share.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import anyio

import monitor
from monitor.chunks import TextDelta, ToolResult, TurnFinished, UsageReport
from monitor.context.tokens import message_tokens
from monitor.errors import FinishReason
from monitor.messages import AssistantMessage, Message, Text, UserMessage
from monitor.models import ModelRequest
from monitor.testing import call
from monitor.testing.scripted import ScriptedStream

SIZES: Final = (100, 1_000, 10_000)
FULL_WINDOW: Final = 200_000
ROWS: Final[dict[str, Callable[[], monitor.Compaction]]] = {
    "default": monitor.Compaction.default,
    "default, nothing taken out before": lambda: monitor.Compaction(steps=()),
    "gemini_cli, the same": lambda: monitor.Compaction.gemini_cli(steps=()),
    "claude_code": monitor.Compaction.claude_code,
    "opencode": monitor.Compaction.opencode,
    "openclaw": monitor.Compaction.openclaw,
    "pi": monitor.Compaction.pi,
    "extractive, nothing taken out before": lambda: monitor.Compaction(
        steps=(), summarizer=monitor.context.Extractive()
    ),
}
ON: Final = "with compaction"
OFF: Final = "without"
LARGE: Final = 200_000
"""A window in which nothing is ever due."""


@dataclass
class Cost:
    """Of one compaction, in milliseconds: medians of rounds."""

    row: str
    messages: int
    tokens: int
    by: str
    cpu_ms: float
    """Processor time, without the model's."""
    blocked_ms: float
    """The longest time between two turns of the event loop."""


def _settle(rounds: int) -> None:
    """Leave nothing to be tidied up while something is timed. A single round is no measurement."""
    if rounds > 1:
        gc.collect()


class _Heart:
    """Notes when the event loop comes round. By processor time: what other programs take is no part
    of it.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def beat(self) -> None:
        """Until it is cancelled."""
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest_s = max(self.longest_s, now - last)
            last = now


class _Instant:
    """Answers every request with the same summary, made beforehand."""

    name = "instant:model"

    def __init__(self, text: str) -> None:
        self._text = text

    def stream(self, _: ModelRequest) -> ScriptedStream:
        """The summary."""
        return ScriptedStream(TextDelta(self._text), UsageReport(None, 500), TurnFinished(FinishReason.DONE))


def history(count: int, seed: int = 3) -> tuple[Message, ...]:
    """An agent's: `count` messages, each tenth of them the user's, results of 100 to 3,000
    characters.
    """
    return tuple(_messages(count, random.Random(seed)))


def _messages(count: int, chance: random.Random) -> Iterator[Message]:
    for number in range(count):
        if number % 10 == 0:
            yield UserMessage(
                (Text(f"Request {number}: what does /srv/app/part_{number}.py do? Answer in a sentence."),)
            )
            continue
        asked = call("read_file", path=f"src/module_{number % 97}/part_{number}.py")
        lines = chance.randint(2, 60)
        result = "".join(
            f"    value_{chance.randrange(10**4)} = compute(rows[{at}], {chance.random():.3f})\n" for at in range(lines)
        )
        yield AssistantMessage(
            (Text(f"I look at part {number} of the service."), asked), (ToolResult(asked.id, asked.name, result),)
        )


def full(tokens: int) -> tuple[Message, ...]:
    """One that has so many tokens, estimated."""
    long = history(tokens // 100)
    have, at = 0, 0
    while have < tokens and at < len(long):
        have += message_tokens(long[at])
        at += 1
    return long[:at]


def costs(sizes: Sequence[int], rounds: int) -> list[Cost]:
    """Of histories with so many messages, in windows that they fill to nine tenths."""
    found = []
    for size in sizes:
        messages = history(size)
        tokens = sum(map(message_tokens, messages))
        found += [
            _cost(row, messages, tokens, tokens * 10 // 9, rounds if size < SIZES[-1] else max(1, rounds // 3))
            for row in ROWS
        ]
    return found


def full_windows(tokens: int, rounds: int) -> list[Cost]:
    """Of a history that fills a window."""
    messages = full(tokens * 9 // 10)
    have = sum(map(message_tokens, messages))
    return [_cost(row, messages, have, tokens, rounds) for row in ROWS]


def _cost(row: str, messages: tuple[Message, ...], tokens: int, window: int, rounds: int) -> Cost:
    cpu, blocked, by = [], [], ""
    for number in range(rounds + 1):
        compaction = ROWS[row]()
        model = _Instant(
            compaction.template.skeleton({compaction.template.sections[0]: "- The service is looked through."})
        )
        copied = tuple(messages)
        _settle(rounds)
        spent_s, longest_s, by = asyncio.run(_once(compaction, model, copied, window))
        if number:
            cpu.append(spent_s * 1e3)
            blocked.append(longest_s * 1e3)
    return Cost(row, len(messages), tokens, by, median(cpu), median(blocked))


async def _once(
    compaction: monitor.Compaction, model: Any, messages: Sequence[Message], window: int
) -> tuple[float, float, str]:
    heart = _Heart()
    beating = asyncio.ensure_future(heart.beat())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    heart.longest_s = 0.0
    began = time.thread_time()
    result = await compaction.compact(messages, window=window, model=model)
    spent = time.thread_time() - began
    await asyncio.sleep(0)
    beating.cancel()
    return spent, heart.longest_s, result.summarised_by


# --- a turn


@dataclass
class Turn:
    """Processor time of a turn, in microseconds."""

    off_us: float
    on_us: float
    growing_off_us: float
    growing_on_us: float
    """In a run whose history grows to some 150,000 tokens, without a compaction."""

    @property
    def ratio(self) -> float:
        """Small turns."""
        return self.on_us / self.off_us

    @property
    def growing_ratio(self) -> float:
        """Large ones."""
        return self.growing_on_us / self.growing_off_us


def turn(turns: int, rounds: int) -> Turn:
    """With compaction on and off, in turn."""
    times: dict[tuple[str, int], list[float]] = {}
    for number in range(rounds + 1):
        for chars in (20, 1_500):
            for row in (OFF, ON):
                _settle(rounds)
                began = time.process_time()
                anyio.run(_run, turns, chars, monitor.Compaction() if row == ON else None)
                if number:
                    times.setdefault((row, chars), []).append((time.process_time() - began) / turns * 1e6)
    small, large = 20, 1_500
    return Turn(*(median(times[row, chars]) for chars in (small, large) for row in (OFF, ON)))


async def _run(turns: int, chars: int, compaction: monitor.Compaction | None) -> None:
    made = 0
    line = "    value_1 = compute(rows[7], 0.125)\n"

    def read_file(path: str) -> str:
        """Read a file."""
        return f"{path}: {line * (chars // len(line))}"

    class Script:
        name = "script:model"

        def stream(self, _: ModelRequest) -> ScriptedStream:
            nonlocal made
            made += 1
            if made > turns:
                return ScriptedStream(TextDelta("Done."), TurnFinished(FinishReason.DONE))
            asked = call("read_file", path=f"src/part_{made}.py")
            return ScriptedStream(
                TextDelta(f"I read part {made}."), asked, UsageReport(None, 20), TurnFinished(FinishReason.DONE)
            )

    supervisor = monitor.Supervisor(Script(), tools=[read_file], stop_when=None, window=LARGE, compaction=compaction)
    outcome = await supervisor.run("Read everything.")
    assert outcome.ok, outcome.detail
    assert not outcome.compaction_usage.input_tokens

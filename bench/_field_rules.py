"""The rules of other systems for loops of calls, written from their descriptions. A rule takes the
events of a run and returns the index of the message at which it stops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from monitor._util.hashing import canonical_json
from monitor.chunks import TextDelta, ToolCall, ToolResult
from monitor.transcripts.base import RecordedRun


@dataclass(slots=True, frozen=True)
class Asked:
    """A call."""

    message: int
    """The index of its message in the run."""
    call: tuple[str, str]
    """The name of the tool, and the arguments as canonical JSON."""


@dataclass(slots=True, frozen=True)
class Answered:
    """The result of a call."""

    message: int
    call: tuple[str, str]
    thought: str
    """What the model said before the call, in the same message. Empty: nothing, or it belongs to an
    earlier call.
    """
    text: str
    failed: bool


Event: TypeAlias = Asked | Answered
Rule: TypeAlias = Callable[[Sequence[Event]], int | None]


def events(run: RecordedRun) -> Iterator[Event]:
    """The calls and results of a run, in order."""
    calls: dict[str, tuple[tuple[str, str], str]] = {}
    thought, at = "", -1
    for message, chunk in run.chunks():
        thought, at = thought if message == at else "", message
        if isinstance(chunk, TextDelta):
            thought += chunk.text
        elif isinstance(chunk, ToolCall):
            calls[chunk.id] = (chunk.name, canonical_json(chunk.arguments)), thought
            yield Asked(message, calls[chunk.id][0])
            thought = ""
        elif isinstance(chunk, ToolResult):
            call, said = calls.get(chunk.id, ((chunk.name, ""), ""))
            yield Answered(message, call, said, chunk.text, chunk.is_error)


def _again(steps: Sequence[Event], rounds: int, periods: range) -> int | None:
    """Where the last calls come `rounds` times. `periods`: how many calls a round may have."""
    calls: list[tuple[str, str]] = []
    for step in steps:
        if isinstance(step, Asked):
            calls.append(step.call)
            for period in periods:
                tail = calls[-period * rounds :]
                if len(tail) == period * rounds and tail[period:] == tail[:-period]:
                    return step.message
    return None


def gemini_cli(steps: Sequence[Event]) -> int | None:
    """Gemini CLI 0.61.0, `LoopDetectionService`: five rounds of 1 to 5 equal calls. Its judge is
    off.
    """
    return _again(steps, 5, range(1, 6))


def tail_test(steps: Sequence[Event]) -> int | None:
    """The test that one writes by hand: four rounds of 1 to 16 equal calls."""
    return _again(steps, 4, range(1, 17))


def opencode(steps: Sequence[Event]) -> int | None:
    """opencode, as its page of permissions says: three equal calls in a row. The code of 1.18.33
    compares only the calls of one response.
    """
    last: deque[tuple[str, str]] = deque(maxlen=3)
    for step in steps:
        if isinstance(step, Asked):
            last.append(step.call)
            if len(last) == last.maxlen and len(set(last)) == 1:
                return step.message
    return None


OPENHANDS_PAIRS: Final = 4
OPENHANDS_ERRORS: Final = 4
OPENHANDS_ALTERNATING: Final = 6


def openhands(steps: Sequence[Event]) -> int | None:
    """OpenHands SDK 1.58.0, `StuckDetector`: four equal pairs of call and result, four equal calls
    that fail, or six pairs in which two alternate. What was said before a call is part of it, so
    another sentence hides a loop.
    """
    pairs: list[tuple[Any, ...]] = []
    for step in steps:
        if not isinstance(step, Answered):
            continue
        pairs.append(((step.call, step.thought), step.failed, step.text))
        tail = pairs[-OPENHANDS_PAIRS:]
        same = len(tail) == OPENHANDS_PAIRS and len(set(tail)) == 1
        failing = pairs[-OPENHANDS_ERRORS:]
        fails = len(failing) == OPENHANDS_ERRORS and {pair[:2] for pair in failing} == {(pairs[-1][0], True)}
        rounds = pairs[-OPENHANDS_ALTERNATING:]
        alternates = len(rounds) == OPENHANDS_ALTERNATING and rounds[2:] == rounds[:-2]
        if same or fails or alternates:
            return step.message
    return None


def pydantic_ai_harness(steps: Sequence[Event]) -> int | None:
    """pydantic-ai-harness, pull request 336: a call five times among the last ten, two calls that
    alternate three times, or a call whose result is three times the same.
    """
    window: deque[tuple[str, str]] = deque(maxlen=10)
    results: dict[tuple[str, str], tuple[str, int]] = {}
    for step in steps:
        if isinstance(step, Asked):
            window.append(step.call)
            tail = [*window][-6:]
            alternates = len(tail) == 6 and tail[2:] == tail[:-2]
            if alternates or window.count(step.call) >= 5:
                return step.message
        else:
            known, count = results.get(step.call, ("", 0))
            results[step.call] = step.text, count + 1 if count and known == step.text else 1
            if results[step.call][1] >= 3:
                return step.message
    return None


PORTS: Final[dict[str, Rule]] = {
    "Gemini CLI 0.61.0, without its judge": gemini_cli,
    "opencode, as documented": opencode,
    "OpenHands SDK 1.58.0": openhands,
    "pydantic-ai-harness, PR 336": pydantic_ai_harness,
    "a tail test, 4 times 1 to 16 calls": tail_test,
}

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import monitor


@dataclass(frozen=True)
class TooManyErrors(monitor.Condition):
    """A condition keeps nothing itself: it is asked about the `RunState` at turns, calls, results and usage reports."""

    limit: int

    def evaluate(self, state: monitor.outcome.RunState) -> monitor.Stop | None:
        if state.consecutive_errors <= self.limit:
            return None
        return monitor.Stop(
            "condition_met", f"{state.consecutive_errors} errors", self.name, self.limit, state.consecutive_errors
        )


class WarnOnce:
    """A policy makes a verdict of each finding: `Continue`, `Nudge`, `WithdrawTool`, `LastTurn` or `Stop`."""

    def __init__(self) -> None:
        self.warned = False

    def decide(self, detection: monitor.verdicts.Detection) -> monitor.Verdict:
        if detection.level == "suspect":
            return monitor.Continue()
        if not self.warned:
            self.warned = True
            return monitor.Nudge(f"You are going in circles: {detection.message}. Try something else.")
        return monitor.Stop("loop_detected", detection.message, detection.detector, evidence=detection)

    def reset(self) -> None:
        self.warned = False

    def snapshot(self) -> dict[str, object]:
        return {"version": 1, "warned": self.warned}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.warned = state["warned"]


class Counter:
    """A sink hears of every event; what it does not know it lets pass, for there will be new ones."""

    def __init__(self) -> None:
        self.calls = 0

    def emit(self, event: monitor.events.Event) -> None:
        self.calls += isinstance(event, monitor.events.ToolStarted)


class Stubborn:
    """A model answers a request with chunks: `TextDelta`, `ReasoningDelta`, `ToolCall`, `UsageReport`, `TurnFinished`."""

    name = "mine:stubborn"

    async def stream(self, request: monitor.models.ModelRequest) -> AsyncIterator[monitor.chunks.Chunk]:
        yield monitor.chunks.TextDelta("Let me look. ")
        yield monitor.chunks.ToolCall(f"call_{len(request.messages)}", "look", {"at": "door"})
        yield monitor.chunks.TurnFinished(monitor.FinishReason.DONE)


def look(at: str) -> str:
    """Look at something."""
    return f"The {at} is shut."


counter = Counter()
supervisor = monitor.Supervisor(
    Stubborn(),
    tools=[look],
    policy=WarnOnce(),
    stop_when=TooManyErrors(3) | monitor.Predicate(lambda state: state.turns >= 20, name="twenty_turns"),
    sinks=[counter],
)
outcome = asyncio.run(supervisor.run("Open the door"))
print(outcome.reason, "-", outcome.detail, "-", counter.calls, "calls")
assert outcome.reason == "loop_detected"

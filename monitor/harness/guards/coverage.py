"""The parts of its run that a guard has seen, and those that it has not: a detector without data
finds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.events import Event, StreamClosed, TurnEnded


@dataclass(slots=True, frozen=True)
class Covered:
    """One thing that a guard needs, and whether it has it."""

    what: str
    """`limits`, `detectors`, `results`, `usage`, `closing`, `checks` or `interruption`."""
    guarded: bool
    detail: str
    """Why not, and what to do; or what was seen. For people."""


@dataclass(slots=True)
class RunCounts:
    """Counts of one run, for `Guard.coverage`."""

    turns: int = 0
    calls: int = 0
    results: int = 0
    checks: int = 0
    estimated: int = 0
    left_open: str | None = None
    inside: int = 0
    """Results that the SDK has shown by itself."""
    synchronous: int = 0
    agents: int = 1
    """Each agent of the run has a first turn, before which nobody checks."""

    def hear(self, event: Event) -> None:
        """Count an event of the run."""
        if isinstance(event, TurnEnded):
            self.turns += 1
            if event.turn.stopped is None:  # the calls of a turn that ends the run need no result
                self.calls += len(event.turn.tool_calls)
            self.estimated += event.turn.usage_estimated
        elif isinstance(event, StreamClosed) and not event.closed:
            self.left_open = event.note or "the source stayed open"

    def covered(self, *, limits: bool, detectors: tuple[str, ...]) -> tuple[Covered, ...]:
        """One entry for each thing that a guard needs."""
        results = self.results + self.inside
        missing = self.calls - results
        return (
            Covered("limits", limits, "there is a limit" if limits else "nothing ends the run: set stop_when"),
            Covered("detectors", bool(detectors), ", ".join(detectors) or "no detector is on, so no loop is found"),
            Covered(
                "results",
                missing <= 0,
                f"{results} of {self.calls} calls have their result"
                + (": pass each to guard.tool_result, or loops of calls are not found" if missing > 0 else ""),
            ),
            Covered(
                "usage",
                not self.estimated,
                f"the provider did not report the tokens of {self.estimated} of {self.turns} turns: limits and "
                "budgets count estimates"
                if self.estimated
                else f"reported for {self.turns} turns",
            ),
            Covered("closing", self.left_open is None, self.left_open or "no stream was left open"),
            Covered(
                "checks",
                self.turns <= self.checks + self.agents,
                f"check() was called {self.checks} times in {self.turns} turns"
                + ("" if self.turns <= self.checks + self.agents else ": call it before each turn"),
            ),
            Covered(
                "interruption",
                not self.synchronous,
                f"{self.synchronous} streams were synchronous: nothing interrupts their reads"
                if self.synchronous
                else "a read that waits is interrupted",
            ),
        )

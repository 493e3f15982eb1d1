"""What a fleet saves that waits together for an outage.

    python -m bench.outages [--quick]

100 runs of one supervisor, scripted, on a clock that moves by itself: each asks 12 questions of a
search tool, then answers. A turn takes 5 s and the tool 1 s. The tool is down for ten minutes. When
a call fails, one kind of agent asks again in other words, the other kind in the same words. The
runs are watched by the default detectors with the default policy. Tokens are estimated: those of
the answers, since a scripted model reports no usage.

A second table counts false outages: fleets whose calls fail independently, with one error, at
ordinary rates.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any, Final

import anyio
from rich.console import Console
from rich.table import Table

import monitor
from bench import _report
from monitor.events import OutageFound, RunReleased
from monitor.models import ModelRequest
from monitor.outage import Failure, OutageRule, Trouble
from monitor.shared import InMemoryOutages, Outages
from monitor.testing import CapturedEvents, FakeClock, ScriptedModel, call

QUESTIONS: Final = 12
DOWN: Final = (60.0, 660.0)
FAILING: Final = Failure("tool search", "tool search", "503", "the index answered 503")
_console = Console(width=140)


@dataclass
class Row:
    """One fleet."""

    agents: str
    outages: bool
    runs: int
    reached_their_goal: int
    reasons: dict[str, int]
    failed_calls: int
    turns: int
    tokens: int
    found: int
    """Outages that were told."""
    seen_after_s: float | None
    """From the beginning of the outage to the finding."""
    waited_s: float
    """The time that a run waited, in the middle of all that did."""


@dataclass
class Calm:
    """Fleets without an outage."""

    rate: float
    calls: int
    outages: int


class _Model:
    """An agent that asks until it has all answers, in other words after a failure."""

    name = "scripted:agent"

    def __init__(self, clock: FakeClock, *, rewords: bool) -> None:
        self._clock = clock
        self._rewords = rewords
        self._chance = random.Random(19)

    async def stream(self, request: ModelRequest) -> Any:
        await self._clock.sleep(5.0)
        asked = sum("all about" in str(message) for message in request.messages)
        words = " ".join(f"{self._chance.randrange(10**6):x}" for _ in range(20))
        question = f"part {asked}: {words[:30]}" if self._rewords else f"part {asked}"
        step = "done: " + words if asked >= QUESTIONS else [words, call("search", q=question)]
        return ScriptedModel(step).stream(request)


async def _fleet(runs: int, *, rewords: bool, outages: bool) -> Row:
    clock, events = FakeClock(), CapturedEvents()
    outcomes: list[monitor.Outcome[Any]] = []
    failed = 0

    async def search(q: str) -> str:
        """Search."""
        nonlocal failed
        await clock.sleep(1.0)
        if DOWN[0] <= clock.now() < DOWN[1]:
            failed += 1
            raise ConnectionError(f"the index answered 503 to {q}")
        return f"all about {q}"

    shared = Outages(InMemoryOutages(clock=clock.now)) if outages else None
    supervisor = monitor.Supervisor(
        _Model(clock, rewords=rewords),
        tools=[search],
        requests=monitor.runs.Requests(outages=shared),
        clock=clock,
        sinks=[events],
    )

    async def one(after_s: float) -> None:
        await clock.sleep(after_s)
        outcomes.append(await supervisor.run("task"))

    async with clock.autojump(), anyio.create_task_group() as group:
        for number in range(runs):
            group.start_soon(one, number + 1.0)
    found, released = events.of(OutageFound), events.of(RunReleased)
    reasons = Counter(outcome.reason.value for outcome in outcomes)
    return Row(
        "reword" if rewords else "repeat",
        outages,
        runs,
        sum(outcome.ok for outcome in outcomes),
        dict(reasons),
        failed,
        sum(outcome.turns for outcome in outcomes),
        sum(outcome.usage.total_tokens for outcome in outcomes),
        len(found),
        found[0].finding.found_s - DOWN[0] if found else None,
        median(one.after_s for one in released) if released else 0.0,
    )


def _false(rate: float, fleets: int) -> Calm:
    """Each fleet: 100 runs with 200 calls, all of one tool and with one error, the worst case."""
    rule, chance, outages = OutageRule(), random.Random(7), 0
    for _ in range(fleets):
        trouble, now = Trouble(), 0.0
        for _ in range(20_000):
            now += 0.05
            if chance.random() >= rate:
                rule.succeeded(trouble, str(chance.randrange(100)), now, now)
            elif rule.failed(trouble, FAILING, str(chance.randrange(100)), now) is not None:
                outages += 1
    return Calm(rate, fleets * 20_000, outages)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.outages", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--quick", action="store_true", help="little of everything; writes nothing")
    options = parser.parse_args(arguments)
    runs = 20 if options.quick else 100
    kinds = [(rewords, outages) for rewords in (True, False) for outages in (False, True)]
    rows = [anyio.run(partial(_fleet, runs, rewords=rewords, outages=outages)) for rewords, outages in kinds]
    table = Table(
        "agents", "outages", "runs", "goal", "failed calls", "turns", "tokens", "told", "seen after s", "waited s"
    )
    for row in rows:
        seen = "-" if row.seen_after_s is None else f"{row.seen_after_s:.0f}"
        numbers = (f"{row.failed_calls:,}", f"{row.turns:,}", f"{row.tokens:,}", str(row.found), seen)
        table.add_row(
            row.agents,
            "on" if row.outages else "off",
            str(row.runs),
            str(row.reached_their_goal),
            *numbers,
            f"{row.waited_s:.0f}",
        )
    _console.print(table)
    for row in rows:
        _console.print(row.agents, "on " if row.outages else "off", row.reasons)
    false = [_false(rate, 1 if options.quick else 50) for rate in (0.01, 0.05, 0.1, 0.2, 0.3)]
    table = Table("calls fail with a chance of", "calls", "false outages")
    for one in false:
        table.add_row(f"{one.rate:.0%}", f"{one.calls:,}", str(one.outages))
    _console.print(table)
    if not options.quick:
        _report.write("outages", {"fleets": [asdict(row) for row in rows], "false": [asdict(one) for one in false]})
    return 0


if __name__ == "__main__":
    sys.exit(main())

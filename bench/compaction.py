"""Whether a run of thousands of turns stays inside a small window, what it still knows at its end,
and what that costs.

    python -m bench.compaction [--turns 5000] [--runs 1000] [--seed 1] [--only 17] [--quick]

Runs in a window of 32,000 tokens by a simulated clock, with every preset: one long run, many runs
that hand their history on, the same with summary calls that fail, facts that are looked for after
so many compactions; then results of one turn that together fill a window, runs that are struck
while they are being compacted, and the processor time of a compaction. Every request is checked as
all four providers would. Agent and summariser are stand-ins without a model behind them
(`bench._compaction_script` says what they do): what is kept word for word is the library's doing,
but how good a summary is cannot be seen here. Exits with 1 if a goal was missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench import _report
from bench._compaction_cost import FULL_WINDOW, SIZES, Cost, Turn, costs, full_windows, turn
from bench._compaction_faults import FaultRun, Soak, soak
from bench._compaction_runs import AGES, KINDS, PINNED, PRESETS, Row, Script, measure
from bench._compaction_script import WINDOW_TOKENS
from bench._compaction_unread import SHAPES, WAYS, Unread, unread
from bench._quiet import quiet

TURNS: Final = 5_000
RUNS: Final = 1_000
SEED: Final = 1
JOINED: Final = 100
"""Runs that hand on their history: as many user messages."""
FACT_TURNS, FACT_RUNS, FACTS = 1_000, 20, 20
FAILING: Final = 0.2
"""Of the summary calls."""
GOAL_BLOCKED_MS: Final = 50.0
GOAL_TURN: Final = 1.15
"""Our own: what having compaction on adds to a turn in which none is due."""
GOAL_GROWTH: Final = 1.2
"""A turn at the end of a long run by one at its beginning; the history is no longer by then, only
what is pinned is.
"""

_console = Console(width=170)


@dataclass
class Results:
    """Everything that was measured."""

    turns: int
    long: list[Row]
    joined: list[Row]
    failing: list[Row]
    facts: list[Row]
    unread: list[Unread]
    soak: Soak
    full: list[Cost]
    costs: list[Cost]
    turn: Turn

    def goals(self) -> list[dict[str, Any]]:
        """What was promised, and what came of it."""
        rows = [*self.long, *self.joined, *self.failing, *self.facts]
        ended = [*self.long, *self.joined, *self.failing]
        return [
            _goal("requests larger than the window", sum(row.seen.refused for row in rows), 0),
            _goal("requests for a summary larger than the window", sum(row.seen.summaries_refused for row in rows), 0),
            _goal("requests that one of four providers would refuse", sum(len(row.seen.problems) for row in rows), 0),
            _goal(
                "requests that were not checked",
                sum(row.seen.requests - row.seen.refused - row.seen.checked for row in rows),
                0,
            ),
            _goal("unread results missing from the next request", sum(row.missing for row in self.unread), 0),
            _goal("the same, in all other runs", sum(row.seen.unread_missing for row in rows), 0),
            _goal(
                "runs with results that fill the window that did not end well",
                sum(not row.well for row in self.unread),
                0,
            ),
            _goal("runs that did not reach their goal", sum(row.runs - row.ended_well for row in rows), 0),
            _goal("outputs of the run that are gone at its end", sum(row.outputs["gone"] for row in ended), 0),
            _goal(
                "outputs of earlier runs that are gone in silence", sum(row.earlier_outputs["gone"] for row in ended), 0
            ),
            _goal("user messages that are gone in silence", sum(row.users["gone"] for row in ended), 0),
            _goal("user messages that are left out", sum(row.users["left out"] for row in ended), 0),
            _goal(
                "a turn at the end of a long run by one at its beginning",
                max(row.growth for row in self.long),
                GOAL_GROWTH,
            ),
            _goal("histories between before and after", self.soak.between, 0),
            _goal("struck runs with anything wrong", len(self.soak.wrong), 0),
            _goal(
                f"event loop blocked, a full window of {FULL_WINDOW:,} tokens, ms",
                max(c.blocked_ms for c in self.full),
                GOAL_BLOCKED_MS,
            ),
            _goal("a turn with compaction on by one with it off", self.turn.ratio, GOAL_TURN),
            _goal("a turn of a growing history, the same", self.turn.growing_ratio, GOAL_TURN),
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        named = {"long": self.long, "joined": self.joined, "failing": self.failing, "facts": self.facts}
        return {
            "stand_ins": "agent, provider and summariser are scripts; see bench/_compaction_script.py",
            "window_tokens": WINDOW_TOKENS,
            "turns": self.turns,
            **{name: [row.to_dict() for row in rows] for name, rows in named.items()},
            "unread": [asdict(row) for row in self.unread],
            "struck": self.soak.to_dict(),
            "full_window": [_rounded(cost) for cost in self.full],
            "costs": [_rounded(cost) for cost in self.costs],
            "turn": {
                **_rounded(self.turn),
                "ratio": round(self.turn.ratio, 3),
                "growing_ratio": round(self.turn.growing_ratio, 3),
            },
            "goals": self.goals(),
        }


def _goal(name: str, value: float, limit: float) -> dict[str, Any]:
    return {"goal": name, "value": round(value, 3), "limit": limit, "passed": value <= limit}


def _rounded(row: Cost | Turn) -> dict[str, Any]:
    return {name: round(value, 2) if isinstance(value, float) else value for name, value in asdict(row).items()}


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    presets: Sequence[str] = tuple(PRESETS)
    turns: int = TURNS
    joined: int = JOINED
    runs: int = RUNS
    fact_turns: int = FACT_TURNS
    fact_runs: int = FACT_RUNS
    facts: int = FACTS
    every: int = 10
    shapes: Sequence[tuple[int, int, int]] = SHAPES
    full: int = FULL_WINDOW
    sizes: Sequence[int] = SIZES
    rounds: int = 9
    workers: int = 2
    turn_turns: int = 300


QUICK: Final = Sizes(
    turns=300,
    joined=20,
    runs=60,
    fact_turns=200,
    fact_runs=10,
    facts=8,
    sizes=(100, 300),
    rounds=1,
    turn_turns=50,
    workers=1,
)


def run_all(sizes: Sizes, seed: int = SEED) -> Results:
    """All of it."""
    turns, joined, every = sizes.turns, sizes.joined, sizes.every
    jobs = [
        *(_Job(preset, Script(turns, seed=seed), every) for preset in sizes.presets),
        *(_Job(preset, Script(turns, joined, seed=seed), every) for preset in sizes.presets),
        *(_Job(preset, Script(turns, joined, seed=seed, oversized=True), every, FAILING) for preset in sizes.presets),
        *(
            _Job(preset, Script(sizes.fact_turns, sizes.fact_runs, seed=seed, facts=sizes.facts, plan=True), every)
            for preset in (*sizes.presets, *PINNED)
        ),
    ]
    with quiet("monitor.sinks", "asyncio"):
        rows = iter(_measured(jobs, sizes.workers))
        long, joined_, failing = (list(islice(rows, len(sizes.presets))) for _ in range(3))
        return Results(
            turns,
            long,
            joined_,
            failing,
            list(rows),
            [unread(preset, shape, way) for preset in sizes.presets for shape in sizes.shapes for way in WAYS],
            soak(seed, range(sizes.runs)),
            full_windows(sizes.full, sizes.rounds),
            costs(sizes.sizes, sizes.rounds),
            turn(sizes.turn_turns, sizes.rounds),
        )


@dataclass
class _Job:
    preset: str
    script: Script
    every: int
    failing: float = 0.0

    def measure(self) -> Row:
        return measure(self.preset, self.script, every=self.every, failing=self.failing)


def _measured(jobs: Sequence[_Job], workers: int) -> list[Row]:
    """In so many processes; what is timed is processor time."""
    if workers == 1:
        return [job.measure() for job in jobs]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(_Job.measure, jobs))


# --- tables


def show(results: Results) -> None:
    """As tables."""
    _console.print(_runs_table(results.long, f"One run of {results.turns:,} turns in {WINDOW_TOKENS:,} tokens"))
    _console.print(_runs_table(results.joined, f"{results.turns:,} turns in runs that hand on their history"))
    share = f"{FAILING:.0%} of the summary calls fail, and one tool result is larger than the window"
    _console.print(_runs_table(results.failing, f"The same; {share}"))
    _console.print(_survival_table(results.facts))
    _console.print(_kept_table(results.facts))
    _console.print(
        "The summariser is a stand-in: it keeps first sentences and first lines, the newest that fit, and understands"
        " nothing."
    )
    _console.print(
        "'pinned only' has a summary without a word in it: what it keeps is pinned, or among the newest messages."
    )
    _console.print(_unread_table(results.unread))
    for found in results.unread:
        if found.missing or not found.well:
            _console.print(f"WRONG  {found}", markup=False)
    _console.print(_soak_table(results.soak))
    for run in results.soak.wrong[:20]:
        _console.print(
            f"WRONG  run {run.number} on {run.backend}, {run.fault}: {'; '.join(run.violations)}", markup=False
        )
    _console.print(_cost_table(results.full, results.costs))
    _console.print(
        f"a turn, small: {results.turn.off_us:,.0f} us without compaction, {results.turn.on_us:,.0f} us with it,"
        f" nothing due: x{results.turn.ratio:.2f}; in a growing history {results.turn.growing_off_us:,.0f} and"
        f" {results.turn.growing_on_us:,.0f} us: x{results.turn.growing_ratio:.2f}"
    )
    for row in (*results.long, *results.joined, *results.failing, *results.facts):
        for problem in row.seen.problems[:3]:
            _console.print(f"WRONG  {row.preset}: {problem}", markup=False)
        for ending, count in row.endings.items():
            if ending != "goal":
                _console.print(f"WRONG  {row.preset}: {count} x {ending}", markup=False)
    for goal in results.goals():
        _console.print(
            f"{'PASS' if goal['passed'] else 'FAIL'}  {goal['goal']}: {goal['value']} (at most {goal['limit']})"
        )


def _runs_table(rows: Sequence[Row], title: str) -> Table:
    heads = (
        "preset",
        "requests",
        "over",
        "largest",
        "refused by 4 forms",
        "compactions",
        "failed",
        "summary calls (faults)",
    )
    table = Table(
        *heads, "their tokens", "outputs", "earlier outputs", "user messages", "ms a turn", "growth", title=title
    )
    for row in rows:
        seen = row.seen
        table.add_row(
            row.preset,
            f"{seen.requests:,}",
            str(seen.refused),
            f"{seen.most_tokens:,}",
            f"{len(seen.problems)} of {seen.checked:,}",
            _counted(row.compactions),
            _counted(row.failed),
            f"{seen.summaries} ({sum(seen.struck.values())})",
            f"{seen.summary_tokens / max(1, seen.tokens):.1%}",
            _counted(row.outputs),
            _counted(row.earlier_outputs),
            _counted(row.users),
            f"{row.turn_ms:.2f}",
            f"{row.growth:.2f}",
        )
    return table


def _counted(counts: dict[str, int]) -> str:
    return (
        "\n".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda one: -one[1]) if count) or "-"
    )


def _survival_table(rows: Sequence[Row]) -> Table:
    title = (
        f"Facts that the history still says {', '.join(map(str, AGES))} compactions after they were planted (a stand-in"
        " summarises)"
    )
    table = Table("kind", *(row.preset for row in rows), title=title)
    for kind in KINDS:
        cells = []
        for row in rows:
            ages = row.survived.get(kind, {})
            cells.append(" ".join(f"{ages[age][0] / ages[age][1]:.0%}" if age in ages else "-" for age in AGES))
        table.add_row(kind, *cells)
    return table


def _kept_table(rows: Sequence[Row]) -> Table:
    table = Table("kind", *(row.preset for row in rows), title="The same facts in the last request: kept / planted")
    for kind in KINDS:
        table.add_row(kind, *("/".join(map(str, row.kept[kind])) if kind in row.kept else "-" for row in rows))
    return table


def _unread_table(rows: Sequence[Unread]) -> Table:
    shapes = list(dict.fromkeys((row.calls, row.tokens, row.window) for row in rows))
    heads = (f"{calls} x {tokens:,} in {window:,}" for calls, tokens, window in shapes)
    title = (
        f"Results of one turn that fill the window: missing from the next request ({', '.join(WAYS)}); share of their"
        " text that is shown"
    )
    table = Table("preset", *heads, title=title)
    for preset in dict.fromkeys(row.preset for row in rows):
        cells = []
        for shape in shapes:
            of_shape = [row for row in rows if row.preset == preset and (row.calls, row.tokens, row.window) == shape]
            cells.append(f"{sum(row.missing for row in of_shape)}; {' '.join(f'{row.shown:.0%}' for row in of_shape)}")
        table.add_row(preset, *cells)
    return table


def _soak_table(found: Soak) -> Table:
    title = f"{len(found.runs)} runs that were struck, seed {found.seed}: {found.between} between before and after"
    table = Table(
        "fault", "runs", "on trio", "struck", "during a compaction", "before", "after", "between", "wrong", title=title
    )
    for fault, row in found.rows().items():
        names = ("runs", "trio", "struck", "during", "before", "after", "between", "wrong")
        table.add_row(fault, *(str(row[name]) for name in names))
    return table


def _cost_table(full: Sequence[Cost], rows: Sequence[Cost]) -> Table:
    table = Table(
        "messages", "tokens", "preset", "by", "CPU, ms", "loop blocked, ms", title="One compaction, without its model"
    )
    for part in (full, rows):
        for cost in part:
            table.add_row(
                f"{cost.messages:,}",
                f"{cost.tokens:,}",
                cost.row,
                cost.by,
                f"{cost.cpu_ms:,.1f}",
                f"{cost.blocked_ms:,.1f}",
            )
        table.add_section()
    return table


def _show_one(seed: int, number: int) -> None:
    """The events of one struck run."""
    run = FaultRun(seed, number)
    result = run.play()
    for event in run.events:
        _console.print(f"{event.at_s:10.3f}  {event}", overflow="ellipsis", no_wrap=True, markup=False)
    _console.print(f"{result}", markup=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.compaction", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--turns", type=int, default=TURNS, help=f"of each long run; {TURNS} if not given")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"that are struck; {RUNS} if not given")
    parser.add_argument(
        "--every", type=int, default=10, help="so manieth request is checked whole, the others where they are new"
    )
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", type=int, help="this struck run alone, with its events; writes nothing")
    parser.add_argument(
        "--quick", action="store_true", help="little of everything, to see that it works; writes nothing"
    )
    options = parser.parse_args(arguments)
    if options.only is not None:
        _show_one(options.seed, options.only)
        return 0
    results = run_all(
        QUICK if options.quick else Sizes(turns=options.turns, runs=options.runs, every=options.every), options.seed
    )
    show(results)
    if not options.quick:
        _report.write("compaction", results.to_dict())
    return 0 if all(goal["passed"] for goal in results.goals()) else 1


if __name__ == "__main__":
    sys.exit(main())

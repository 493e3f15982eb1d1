"""How many tokens of looping runs are saved by a stop line at which at most 5 % of good runs stop.

    python -m bench.saved [--quick]

The runs are those of `fixtures/transcripts/dev.jsonl.gz` with calls: half of the good runs draw the
line, the other half and all loops are tried; means over `SPLITS` random halves. Beside the default
detectors stand the number of turns alone, and two packages where they are installed:

- loopbrake (`pip install loopbrake`): its own line from its own score, the number of steps. A step
  is a call.
- unwedge (`pip install unwedge`): its rules without a model. It has no line to draw, so it counts
  as stopping a run at its first alert. By itself it stops none without a model.

The recordings count no tokens, so they are estimated: each turn sends the whole history again, and
a token is four characters. One loop of text has more than half of all the tokens. So the share of
each loop, averaged, stands beside the share of the sum.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench import _report
from monitor.cli.options.levels import Levels, levels_of
from monitor.settings import Settings
from monitor.transcripts.analysis.calibration import EVIDENCE, LENGTH, Trace, evidence_and_length, line, usual_length
from monitor.transcripts.analysis.survey import survey
from monitor.transcripts.analysis.traces import ALL, TracedRun
from monitor.transcripts.base import RecordedRun
from monitor.transcripts.corpus import Corpus
from monitor.transcripts.source import Source

RUNS: Final = Path(__file__).parents[1] / "fixtures" / "transcripts" / "dev.jsonl.gz"
AT_MOST: Final = 0.05
SPLITS: Final = 40
QUICK_EVERY: Final = 6
GOOD: Final = ("clean", "hard_negative")


@dataclass(slots=True)
class Run:
    """A run, its label, and what each system needs of it."""

    label: str
    trace: Trace
    call_turns: tuple[int, ...]
    """The turn of each call, counted from 1."""
    alert: int | None = None
    """The call at which unwedge first says something, counted from 1."""


Stop = Callable[[Run], float | None]
"""Tokens spent up to the stop of a run; `None`: it is not stopped."""


@dataclass(slots=True, frozen=True)
class Row:
    """One system."""

    name: str
    good_stopped: float
    """The share of the good runs that did not draw the line."""
    loops_stopped: float
    saved: float
    """The share of the tokens of all loops."""
    saved_of_each: float
    """The share of the tokens of a loop, averaged over all loops."""


def read(*, every: int = 1) -> list[Run]:
    """The labelled runs that have calls or a loop."""
    watcher = Levels(tuple(json.dumps(level) for level in levels_of(Settings()))).watcher
    unwedge = unwedge_alert()
    found: list[Run] = []
    chosen = [run for number, run in enumerate(Corpus(RUNS)) if number % every == 0]
    told = (run for number, run in enumerate(survey(Source.of_path(RUNS), watcher=watcher)) if number % every == 0)
    for recorded, run in zip(chosen, told, strict=True):
        assert isinstance(run, TracedRun)
        assert run.id == recorded.id
        label = str(recorded.label)
        if label not in {*GOOD, "loop"}:
            continue
        turns = [number for number, one in _turns(recorded) for _ in one]
        made = Run(label, run.traces[ALL], tuple(turns))
        if unwedge is not None:
            made.alert = unwedge(recorded)
        found.append(made)
    return found


def _turns(run: RecordedRun) -> list[tuple[int, Sequence[Any]]]:
    own = [message for message in run.messages if message.role == "assistant"]
    return [(number, message.tool_calls) for number, message in enumerate(own, 1)]


def _steps(run: RecordedRun) -> list[tuple[str, str, bool]]:
    """Each call as a command, with its result."""
    results = [result for message in run.messages for result in message.tool_results]
    steps = []
    for number, call in enumerate(call for message in run.messages for call in message.tool_calls):
        arguments = call.arguments
        command = arguments.get("command") if isinstance(arguments, dict) else None
        result = results[number] if number < len(results) else None
        said = command if isinstance(command, str) else f"{call.name} {json.dumps(arguments, sort_keys=True)}"
        steps.append((said, result.distinct_text if result else "", bool(result and result.is_error)))
    return steps


def unwedge_alert() -> Callable[[RecordedRun], int | None] | None:
    """The number of the call at which unwedge first says something. `None`: it is not installed."""
    if importlib.util.find_spec("unwedge") is None:
        return None
    package: Any = importlib.import_module("unwedge")
    generic: Any = importlib.import_module("unwedge.adapters.generic")
    quiet: Any = importlib.import_module("unwedge.replay").QUIET

    def watched(run: RecordedRun) -> int | None:
        guard = package.Guard(run.task or "", None, package.GuardConfig(shadow=False))
        for number, (command, result, failed) in enumerate(_steps(run), 1):
            turn = generic.turn_from_command(number, command, result, failed=failed or None)
            if guard.on_turn(turn).decision.action not in quiet:
                return number
        return None

    return watched


def _after_call(run: Run, call: int | None) -> float | None:
    """Tokens up to the end of the turn of a call. A stop after the last turn is none."""
    if call is None or call > len(run.call_turns):
        return None
    turn = run.call_turns[call - 1]
    return run.trace.costs[turn - 1] if turn <= run.trace.turns else None


def _loopbrake(fit: Sequence[Run]) -> Stop | None:
    if importlib.util.find_spec("loopbrake") is None:
        return None
    conformal: Any = importlib.import_module("loopbrake.conformal")
    at = conformal.threshold([len(run.call_turns) for run in fit], AT_MOST)
    return lambda run: _after_call(run, int(at) + 1) if len(run.call_turns) > at else None


def _stops(fit: Sequence[Run]) -> dict[str, Stop]:
    traces = [run.trace for run in fit]
    found: dict[str, Stop] = {}
    for rule in (EVIDENCE, evidence_and_length(usual_length(traces)), LENGTH):
        at = line([rule.score(trace) for trace in traces], AT_MOST)
        found[f"ours: {rule.name}" if rule is not LENGTH else rule.name] = _ruled(rule.stop, at)
    default = levels_of(Settings())
    at_default = next(n for n, level in enumerate(default) if level["ToolCallRepetition"]["loop_at"] == 5)
    found["ours: the defaults, without a line"] = _ruled(_stop_of_level, at_default)
    if (loopbrake := _loopbrake(fit)) is not None:
        found["loopbrake: steps"] = loopbrake
    if importlib.util.find_spec("unwedge") is not None:
        found["unwedge: first alert, without a line"] = lambda run: _after_call(run, run.alert)
    return found


def _stop_of_level(trace: Trace, level: float) -> float | None:
    """Tokens spent up to the stop of this level of settings."""
    stop = trace.stops[int(level)]
    return None if stop is None else stop.spent


def _ruled(stop: Callable[[Trace, float], float | None], at: float) -> Stop:
    return lambda run: stop(run.trace, at)


def measure(runs: Sequence[Run], splits: int = SPLITS) -> list[Row]:
    """All systems on the same halves."""
    good, loops = [run for run in runs if run.label in GOOD], [run for run in runs if run.label == "loop"]
    of_all = sum(run.trace.total for run in loops)
    found: dict[str, list[tuple[float, float, float, float]]] = {}
    for seed in range(splits):
        mixed = random.Random(seed).sample(good, len(good))
        fit, rest = mixed[: len(good) // 2], mixed[len(good) // 2 :]
        for name, stop in _stops(fit).items():
            spent = [(run, stop(run)) for run in loops]
            saved = [(run, run.trace.total - at) for run, at in spent if at is not None]
            found.setdefault(name, []).append(
                (
                    sum(stop(run) is not None for run in rest) / len(rest),
                    len(saved) / len(loops),
                    sum(tokens for _, tokens in saved) / of_all,
                    sum(tokens / run.trace.total for run, tokens in saved if run.trace.total) / len(loops),
                )
            )
    means = {name: [statistics.fmean(column) for column in zip(*rows, strict=True)] for name, rows in found.items()}
    return [Row(name, *numbers) for name, numbers in means.items()]


def show(console: Console, rows: Sequence[Row]) -> None:
    """As a table."""
    table = Table(title=f"tokens saved, with a line at which at most {AT_MOST:.0%} of good runs stop")
    for column in ("row", "good stopped", "loops stopped", "tokens saved", "of each loop"):
        table.add_column(column, justify="left" if column == "row" else "right", no_wrap=True)
    for row in rows:
        numbers = (row.good_stopped, row.loops_stopped, row.saved, row.saved_of_each)
        table.add_row(row.name, *(f"{number:.1%}" for number in numbers))
    console.print(table)
    for package in ("loopbrake", "unwedge"):
        if importlib.util.find_spec(package) is None:
            console.print(f"{package} is not installed: pip install {package}")


def to_dict(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """As JSON."""
    return [asdict(row) for row in rows]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m bench.saved", description="Tokens saved at a promised line.")
    parser.add_argument("--quick", action="store_true", help="one run of six; writes nothing")
    options = parser.parse_args(arguments)
    rows = measure(read(every=QUICK_EVERY if options.quick else 1))
    show(Console(width=150), rows)
    if not options.quick:
        _report.write("saved", {"rows": to_dict(rows), "at_most": AT_MOST, "splits": SPLITS})
    return 0


if __name__ == "__main__":
    sys.exit(main())

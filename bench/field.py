"""Loops of calls and good runs that are stopped, by this library and by others, on the same runs.

    python -m bench.field [--write] [--explain]

Three sets of runs: the recorded ones of `fixtures/transcripts/dev.jsonl.gz`, those that were
composed to be hard while this library was made, and those that others composed without a look at
it. Rows:

- this library: the defaults of a guard, which know the request of the run;
- systems that install: `unwedge`, and `loopbrake`, whose line is drawn on the good runs of the same
  set, as its README asks;
- systems whose rule is written from its description (`bench/_field_rules.py`).

A loop that was stopped before it began counts as early, and not as stopped. A system that is not
installed keeps its row, with the reason. Results and pages are written only if all were measured.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeAlias

from rich.console import Console
from rich.table import Table

from bench import _report
from bench._field_rules import PORTS, Asked, Rule, events
from bench.quality import TOOLS
from bench.saved import AT_MOST, GOOD, unwedge_alert
from monitor.transcripts.analysis.scan import watch_run
from monitor.transcripts.base import RecordedRun
from monitor.transcripts.corpus import Corpus

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "fixtures" / "transcripts"
PAGES: Final = (ROOT / "docs" / "comparison.md", ROOT / "README.md")
BEGIN: Final = "<!-- the table of bench.field -->"
END: Final = "<!-- end of the table -->"
COLUMNS: Final = (
    *("recorded loops", "recorded good", "composed loops", "composed good"),
    *("others' loops", "others' good"),
)

Stop: TypeAlias = Callable[[RecordedRun], int | None]
"""The index of the message at which a run is stopped. `None`: it is not stopped."""


@dataclass(slots=True)
class Row:
    """What a system did with both sets of runs."""

    name: str
    why: str = ""
    """Why it was not measured here. Empty: it was."""
    stopped: list[int] = field(default_factory=lambda: [0] * len(COLUMNS))
    early: list[int] = field(default_factory=lambda: [0] * len(COLUMNS))
    """Loops that were stopped before they began."""
    odd: list[str] = field(default_factory=list)
    """Loops that were missed, and good runs that were stopped."""

    def cells(self) -> list[str]:
        """What stands beside the name, for each column."""
        if self.why:
            return [f"not measured here: {self.why}"] * len(COLUMNS)
        pairs = zip(self.stopped, self.early, strict=True)
        return [f"{stopped}, {early} early" if early else str(stopped) for stopped, early in pairs]


def is_early(run: RecordedRun, message: int) -> bool:
    """Whether a stop at `message` came before the loop of `run` began."""
    return run.loop is not None and run.loop.turn is not None and message < run.loop.turn


def ours(run: RecordedRun) -> int | None:
    """Where the defaults of a guard stop."""
    scanner = watch_run(run)
    return None if scanner.ended_by is None else scanner.ended_by.message


def by_rule(rule: Rule) -> Stop:
    """`rule` on the events of a run."""
    return lambda run: rule([*events(run)])


def at_call(number_of: Callable[[RecordedRun], int | None]) -> Stop:
    """`number_of` says the call at which a run is stopped, counted from 1."""

    def stop(run: RecordedRun) -> int | None:
        number = number_of(run)
        calls = [event.message for event in events(run) if isinstance(event, Asked)]
        return None if number is None or number > len(calls) else calls[number - 1]

    return stop


def calls_of(run: RecordedRun) -> int:
    """The number of calls of a run."""
    return sum(isinstance(event, Asked) for event in events(run))


def systems(good: Sequence[RecordedRun]) -> dict[str, Stop | str]:
    """All systems, and why one cannot be asked here. `good`: the runs that draw the line of
    `loopbrake`.
    """
    found: dict[str, Stop | str] = {"**agent-monitor**, the defaults": ours}
    alert = unwedge_alert()
    found[f"{_named('unwedge')}, its first alert"] = _missing("unwedge") if alert is None else at_call(alert)
    name = f"{_named('loopbrake')}, line at {AT_MOST:.0%}"
    if _missing("loopbrake"):
        found[name] = _missing("loopbrake")
    else:
        conformal: Any = importlib.import_module("loopbrake.conformal")
        line = int(conformal.threshold([calls_of(run) for run in good], AT_MOST))
        found[name] = at_call(lambda _: line + 1)
    return found | {name: by_rule(rule) for name, rule in PORTS.items()}


def _missing(package: str) -> str:
    return "" if importlib.util.find_spec(package) else f"{package} is not installed"


def _named(package: str) -> str:
    return package if _missing(package) else f"{package} {version(package)}"


def read() -> dict[str, list[RecordedRun]]:
    """The runs of each column."""
    recorded = [*Corpus(FOLDER / "dev.jsonl.gz")]
    composed, by_others = ([*Corpus(FOLDER / f"{name}.jsonl.gz")] for name in ("composed", "composed_by_others"))
    return {
        "recorded loops": [run for run in recorded if run.loop is not None and run.loop.kind in TOOLS],
        "recorded good": [run for run in recorded if run.label in GOOD],
        "composed loops": [run for run in composed if run.label == "loop"],
        "composed good": [run for run in composed if run.label in GOOD],
        "others' loops": [run for run in by_others if run.label == "loop"],
        "others' good": [run for run in by_others if run.label in GOOD],
    }


def measure(runs: dict[str, list[RecordedRun]]) -> list[Row]:
    """A row for each system."""
    rows: dict[str, Row] = {}
    for column, (what, these) in enumerate(runs.items()):
        for name, stop in systems(runs[f"{what.split()[0]} good"]).items():
            row = rows.setdefault(name, Row(name))
            if isinstance(stop, str):
                row.why = stop
                continue
            for run in these:
                at = stop(run)
                early = at is not None and is_early(run, at)
                counts = at is not None and not early
                row.stopped[column] += counts
                row.early[column] += early
                if counts != what.endswith("loops"):
                    row.odd.append(f"{what}: {run.id}")
    return [*rows.values()]


def results(rows: Sequence[Row], sizes: Sequence[int], today: dt.date) -> dict[str, Any]:
    """The measurement as JSON data."""
    counted = dict(zip(COLUMNS, sizes, strict=True))
    return {"date": today.isoformat(), "sizes": counted, "rows": [asdict(row) for row in rows]}


def lines(found: Mapping[str, Any]) -> list[str]:
    """`results` as a table in Markdown."""
    heads = [f"{name}, of {size}" for name, size in found["sizes"].items()]
    return [
        f"| stopped ({found['date']}) | {' | '.join(heads)} |",
        f"| --- |{' --- |' * len(heads)}",
        *(f"| {row['name']} | {' | '.join(Row(**row).cells())} |" for row in found["rows"]),
    ]


def write(table: Sequence[str], page: Path) -> None:
    """Put `table` between the marks of `page`."""
    before, rest = page.read_text("utf-8").split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{chr(10).join(table)}\n\n{END}{rest.split(END)[1]}", "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m bench.field", description="Stops of calls, beside other systems.")
    parser.add_argument("--write", action="store_true", help="put the table into README.md and docs/comparison.md")
    parser.add_argument("--explain", action="store_true", help="name the runs that this library misjudges")
    options = parser.parse_args(arguments)
    runs = read()
    rows = measure(runs)
    sizes = [len(these) for these in runs.values()]
    table = Table(title="runs that were stopped")
    for column in ("system", *(f"{name}\n/{size}" for name, size in zip(COLUMNS, sizes, strict=True))):
        table.add_column(column)
    for row in rows:
        table.add_row(row.name, *row.cells())
    console = Console(width=150)
    console.print(table)
    if options.explain:
        console.print("\n".join(rows[0].odd), markup=False)
    if missing := [row.why for row in rows if row.why]:
        console.print(f"nothing is written: {', '.join(missing)}", markup=False)
        return 1 if options.write else 0
    found = results(rows, sizes, dt.datetime.now(dt.UTC).date())
    _report.write("field", found)
    for page in PAGES if options.write else ():
        write(lines(found), page)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`agent-monitor scan`: which recorded runs loop, where, and what stopping them would have saved."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from monitor.cli import _view
from monitor.errors import RunFailed
from monitor.transcripts import BadLine, Corpus
from monitor.transcripts.scan import Amount, ScanResult, scan_run

LOOPS_FOUND, BAD_INPUT = 1, 2
STDIN = "-"
LABELLED_LOOP = "loop"
NOT_COUNTED = "borderline"
"""Runs that a person would call neither; see the corpus."""
SHORTEST_ID = 20
EVIDENCE_COLUMNS = 100
"""Below this width there is no room for the evidence; --json has it in full."""
NAMED_OTHERS = 5


def scan(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Recorded runs: JSON lines, plain or gzipped; - is stdin.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines: one object a run, then one summary.")] = False,
    every: Annotated[bool, typer.Option("--all", help="List the runs without a loop too.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N runs.")] = None,
) -> None:
    """Look for loops in recorded runs, with the same core that watches live ones.

    \b
    A line is one run:
      {"id": "...", "messages": [{"role": "assistant", "text": "...",
       "tool_calls": [{"name": "...", "args": {}}],
       "tool_results": [{"name": "...", "text": "..."}]}]}

    \b
    Examples:
      agent-monitor scan runs.jsonl.gz
      agent-monitor scan --all --limit 20 runs.jsonl
      zcat logs/*.gz | agent-monitor scan --json -

    With --json, stdout is JSON lines: one of type "run" for each run that loops (with --all for every run), then a "summary".

    Exit code: 0 no loop; 1 a loop was found; 2 a file or a line could not be read (the rest is reported all the same).
    """  # noqa: D301 - \b keeps the lines of an example apart
    console, complaints = _view.stdout(), _view.stderr()
    with _view.tidy_exit():
        report = _Report()
        began = time.perf_counter()
        with _progress(complaints) as tick:
            for file, result in _results(files, limit, report, complaints):
                report.add(file, result, listed=every)
                if as_json and (result.loops or every):
                    print(json.dumps(_run_as_json(file, result)))
                tick(report)
        if as_json:
            print(json.dumps(_summary_as_json(report)))
        else:
            _show(console, report, time.perf_counter() - began)
        raise typer.Exit(BAD_INPUT if report.bad else LOOPS_FOUND if report.loops else 0)


# ------------------------------------------------------------------ reading


def _results(files: Iterable[str], limit: int | None, report: _Report, complaints: Console) -> Iterator[tuple[str, ScanResult]]:
    """Every run of every file; what cannot be read is said and noted."""
    left = limit
    for file in files:
        if left == 0:
            return
        with _opened(file) as path:
            corpus = Corpus(path)
            try:
                for run in corpus:
                    try:
                        yield file, scan_run(run)
                    except RunFailed as error:
                        report.bad += 1
                        complaints.print(_view.on_one_line(f"{file}: run {run.id}: {error}"), style="red", soft_wrap=True)
                    if left is not None:
                        left -= 1
                        if left == 0:
                            break
            except OSError as error:
                report.bad += 1
                complaints.print(f"agent-monitor: cannot read {file}: {error.strerror or error}", style="red", soft_wrap=True)
            for bad in corpus.bad_lines:
                report.bad += 1
                complaints.print(_view.on_one_line(str(_named(bad, file))), style="red", soft_wrap=True)


@contextmanager
def _opened(file: str) -> Iterator[Path]:
    """A path that can be read twice from its start, as the reader does to see whether it is gzipped; a pipe cannot."""
    if file != STDIN:
        yield Path(file)
        return
    with tempfile.TemporaryDirectory(prefix="agent-monitor-") as folder:
        path = Path(folder, "stdin")
        with path.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield path


def _named(bad: BadLine, file: str) -> BadLine:
    return replace(bad, file="<stdin>") if file == STDIN else bad


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[_Report], None]]:
    """A bar on a terminal, nothing elsewhere."""
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (BarColumn(pulse_style="cyan"), TextColumn("{task.fields[runs]} runs, {task.fields[loops]} loop"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None, runs=0, loops=0)
        yield lambda report: progress.update(task, runs=report.runs, loops=report.loops)


# ------------------------------------------------------------------ what was found


@dataclass(slots=True)
class _Report:
    """Counts of everything, and the runs to list."""

    runs: int = 0
    bad: int = 0
    """Lines and files that could not be read."""
    listed: list[tuple[str, ScanResult]] = field(default_factory=list)
    by_kind: Counter[str] = field(default_factory=Counter)
    saved_by_kind: dict[str, Amount] = field(default_factory=dict)
    labelled: Counter[str] = field(default_factory=Counter)
    """Labelled loops by kind."""
    found: Counter[str] = field(default_factory=Counter)
    """Those of them that were found."""
    others: int = 0
    others_flagged: list[str] = field(default_factory=list)

    @property
    def loops(self) -> int:
        return self.by_kind.total()

    @property
    def saved(self) -> Amount:
        return sum(self.saved_by_kind.values(), Amount())

    def add(self, file: str, result: ScanResult, *, listed: bool) -> None:
        self.runs += 1
        if result.detection is not None:
            kind = _kind(result)
            self.by_kind[kind] += 1
            self.saved_by_kind[kind] = self.saved_by_kind.get(kind, Amount()) + result.saved
        if result.loops or listed:
            self.listed.append((file, result))
        self._compare(result)

    def _compare(self, result: ScanResult) -> None:
        run = result.run
        if run.label == LABELLED_LOOP:
            kind = run.loop.kind if run.loop else LABELLED_LOOP
            self.labelled[kind] += 1
            self.found[kind] += result.loops
        elif run.label not in {None, NOT_COUNTED}:
            self.others += 1
            if result.loops:
                self.others_flagged.append(run.id)


def _kind(result: ScanResult) -> str:
    return f"{result.detection.detector}/{result.detection.kind}" if result.detection else ""


# ------------------------------------------------------------------ for people


def _show(console: Console, report: _Report, elapsed_s: float) -> None:
    if report.listed:
        console.print(_runs_table(console, report))
    if report.loops:
        console.print(_kinds_table(console, report))
    console.print(Text(f"{_count(report.runs, 'run')} in {elapsed_s:.1f} s, {report.loops} of them with a loop", style="bold"))
    if report.loops:
        saved = report.saved
        console.print(
            f"Stopping them there would have saved {_count(saved.turns, 'turn')}, {_count(saved.tool_calls, 'tool call')} "
            f"and {_count(saved.chars, 'character')}."
        )
    if report.labelled or report.others:
        console.print(_labels(report))
    if report.bad:
        console.print(Text(f"{_count(report.bad, 'line or file', 'lines or files')} could not be read; see above.", style="red"))


def _runs_table(console: Console, report: _Report) -> Table:
    """One line a run. The evidence gets the room that is left, and none on a narrow terminal."""
    several = len({file for file, _ in report.listed}) > 1
    wide = console.width >= EVIDENCE_COLUMNS
    names = (["file"] if several else []) + ["run", "loop", "message", "at", "saved"] + (["evidence"] if wide else [])
    table = _view.table(console, *names)
    if wide:
        table.expand = True
        table.columns[-1].ratio = 1
    for file, result in report.listed:
        run = _view.shortened(_view.on_one_line(result.run.id), max(console.width // 5, SHORTEST_ID))
        cells = ([_view.shortened(_view.on_one_line(file), SHORTEST_ID)] if several else []) + [run]
        table.add_row(*cells, *_found(result)[: len(names) - len(cells)])
    return table


def _found(result: ScanResult) -> list[str | Text]:
    found = result.detection
    if found is None:
        return [Text("-", style="dim"), "", "", "", ""]
    return [
        Text(f"{found.kind} x {found.count}", style="red"),
        str(result.message),
        f"call {found.offset + 1}" if result.char is None else f"char {result.char}",
        _saved(result.saved),
        Text(_view.on_one_line(found.evidence.excerpt), style="yellow"),
    ]


def _saved(saved: Amount) -> str:
    return _count(saved.tool_calls, "call") if saved.tool_calls else f"{saved.chars:,} chars"


def _kinds_table(console: Console, report: _Report) -> Table:
    table = _view.table(console, "found by", "runs", "saved: turns", "calls", "chars")
    for column in table.columns[1:]:
        column.justify = "right"
    for kind, runs in report.by_kind.most_common():
        saved = report.saved_by_kind[kind]
        table.add_row(kind, str(runs), f"{saved.turns:,}", f"{saved.tool_calls:,}", f"{saved.chars:,}")
    return table


def _labels(report: _Report) -> str:
    said = f"{len(report.others_flagged)} of {_count(report.others, 'other')} flagged"
    if report.labelled:
        said = f"of {_count(report.labelled.total(), 'labelled loop')} {report.found.total()} found, {said}"
    if report.others_flagged:
        more = "" if len(report.others_flagged) <= NAMED_OTHERS else ", ..."
        said += f" ({', '.join(map(_view.on_one_line, report.others_flagged[:NAMED_OTHERS]))}{more})"
    return f"Labels: {said}."


def _count(number: int, noun: str, nouns: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


# ------------------------------------------------------------------ for programs


def _run_as_json(file: str, result: ScanResult) -> dict[str, Any]:
    return {
        "type": "run",
        "file": file,
        "id": result.run.id,
        "model": result.run.model,
        "label": result.run.label,
        "labelled_kind": result.run.loop.kind if result.run.loop else None,
        "loop": result.loops,
        "message": result.message,
        "char": result.char,
        "detection": result.detection.to_dict() if result.detection else None,
        "saved": _amount_as_json(result.saved),
        "total": _amount_as_json(result.total),
    }


def _summary_as_json(report: _Report) -> dict[str, Any]:
    labels = {
        "loops": dict(sorted(report.labelled.items())),
        "found": dict(sorted(report.found.items())),
        "others": report.others,
        "others_flagged": report.others_flagged,
    }
    return {
        "type": "summary",
        "runs": report.runs,
        "loops": report.loops,
        "by_kind": dict(report.by_kind.most_common()),
        "saved": _amount_as_json(report.saved),
        "labels": labels if report.labelled or report.others else None,
        "unreadable": report.bad,
    }


def _amount_as_json(amount: Amount) -> dict[str, int]:
    return {"chars": amount.chars, "tool_calls": amount.tool_calls, "turns": amount.turns}

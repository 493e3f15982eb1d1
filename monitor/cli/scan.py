"""`agent-monitor scan`: which recorded runs loop, where, and what stopping them would have
saved.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from monitor.cli import _view
from monitor.cli._explain import explain as explain_run
from monitor.cli._judge import CacheOption, ConfirmOption, JudgeOption, offline_judge
from monitor.cli._report import Report, run_as_json, show, summary_as_json
from monitor.cli._settings import ConfigOption, DetectorsOption, PolicyOption, SetOption, settings_of
from monitor.cli._unread import complain_of
from monitor.errors import ConfigError
from monitor.judges.base import FIRST_TURN
from monitor.outcome import RunFailed
from monitor.policy import StopAtFirstLoop
from monitor.transcripts import Corpus, RecordedRun
from monitor.transcripts.scan import Amount, ScanResult, scan_run

LOOPS_FOUND, BAD_INPUT = 1, 2
STDIN = "-"


def scan(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Recorded runs: JSON lines, plain or gzipped; - is stdin.")
    ],
    *,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say everything that was seen, and what the policy did.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines: one object a run, then one summary.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="List the runs without a loop too.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N runs.")] = None,
    detectors: DetectorsOption = None,
    policy: PolicyOption = None,
    settings: SetOption = None,
    config: ConfigOption = None,
    judge: JudgeOption = None,
    judge_confirm: ConfirmOption = None,
    judge_cache: CacheOption = None,
    judge_from: Annotated[
        int, typer.Option(min=1, metavar="TURN", help="The turn at which the judge is asked first.")
    ] = FIRST_TURN,
    judge_suspicion: Annotated[
        float | None,
        typer.Option(
            min=0.1, max=1.0, metavar="SCORE", help="Ask earlier where a run looks as if it got nowhere: 0.6."
        ),
    ] = None,
) -> None:
    """Look for loops in recorded runs, with the same core that watches live ones.

    \b
    A line is one run; a log of agent-monitor run --log is read too:
      {"id": "...", "messages": [{"role": "assistant", "text": "...",
       "tool_calls": [{"name": "...", "args": {}}],
       "tool_results": [{"name": "...", "text": "..."}]}]}

    \b
    Examples:
      agent-monitor scan runs.jsonl.gz
      agent-monitor scan --explain --limit 20 runs.jsonl
      zcat logs/*.gz | agent-monitor scan --json -

    \b
    Would other numbers do better, or a warning first?
      agent-monitor scan --set ToolCallRepetition.loop_at=7 runs.jsonl
      agent-monitor scan --explain --policy ladder runs.jsonl
      agent-monitor scan --detectors tool-call-cycle,no-progress runs.jsonl

    \b
    A judge may see loops that no counter sees, such as other queries for the same page:
      agent-monitor scan --judge google:gemini-2.5-flash --judge-suspicion 0.6 runs.jsonl

    \b
    With --json, stdout is JSON lines: one of type "run" for each run that loops,
    then one of type "summary". With --explain suspected runs are there too, and
    with --all every run.

    \b
    A recording cannot react to a warning: --policy ladder shows how many steps the
    policy would have taken, not what its warnings would have changed.

    \b
    Exit code: 0 no loop; 1 a loop was found; 2 a file or a line could not be
    read (the rest is still reported), a file has no run, or a setting is invalid.
    """  # noqa: D301 - \b keeps the lines of an example apart
    console, complaints = _view.stdout(), _view.stderr()
    with _view.tidy_exit(), ExitStack() as stack:
        if judge is None:
            _refuse_without_judge(
                {
                    "--judge-confirm": judge_confirm is not None,
                    "--judge-cache": judge_cache is not None,
                    "--judge-from": judge_from != FIRST_TURN,
                    "--judge-suspicion": judge_suspicion is not None,
                }
            )
        chosen = settings_of(config, detectors, settings, policy)
        decides = chosen.policy() or StopAtFirstLoop()
        report = Report(warns=not isinstance(decides, StopAtFirstLoop))
        asker = (
            stack.enter_context(
                offline_judge(judge, judge_confirm, judge_cache, first_turn=judge_from, suspicion=judge_suspicion)
            )
            if judge is not None
            else None
        )
        examine = partial(
            scan_run,
            detectors=chosen.detectors(),
            policy=decides,
            judge=asker.judge if asker else None,
            ask_judge=asker,
        )
        began = time.perf_counter()
        with _progress(complaints, quiet=(as_json or explain) and console.is_terminal) as tick:
            for file, result in _results(files, limit, examine, report, complaints):
                listed = every or result.loops or (explain and bool(result.findings))
                report.add(file, result, listed=listed and not as_json and not explain)
                if listed and as_json:
                    _view.write_json(run_as_json(file, result, explain=explain))
                elif listed and explain:
                    explain_run(console, file, result)
                tick(file, report)
        if asker is not None:
            asker.complain(complaints)
        if as_json:
            summary = summary_as_json(report, settings=chosen.source)
            _view.write_json(summary if asker is None else {**summary, "judge": asker.as_json()})
        else:
            if explain and report.runs:
                _view.heading(console, "in short")
            show(console, report, elapsed_s=time.perf_counter() - began, settings=chosen.source)
            if asker is not None:
                console.print(asker.said(), soft_wrap=True)
        raise typer.Exit(BAD_INPUT if report.bad else LOOPS_FOUND if report.loops else 0)


def _refuse_without_judge(given: Mapping[str, bool]) -> None:
    if idle := [option for option, is_given in given.items() if is_given]:
        raise ConfigError(f"{' and '.join(idle)} without a judge to ask: add --judge google:NAME")


# ------------------------------------------------------------------ reading


def _results(
    files: Iterable[str],
    limit: int | None,
    examine: Callable[[RecordedRun], ScanResult],
    report: Report,
    complaints: Console,
) -> Iterator[tuple[str, ScanResult]]:
    """Every run of every file. Unreadable lines are reported and counted."""
    left = limit
    for file in files:
        if left == 0:
            return
        with _opened(file) as path:
            corpus, silent = Corpus(path), list[str]()
            runs = 0
            try:
                for run in corpus:
                    runs += 1
                    try:
                        result = examine(run)
                    except RunFailed as error:
                        report.bad += 1
                        _view.complain(complaints, f"{file}: run {run.id}: {error}")
                    else:
                        yield file, result
                        if result.total == Amount():
                            silent.append(run.id)
                    if left is not None:
                        left -= 1
                        if left == 0:
                            break
            except OSError as error:
                report.bad += 1
                _view.complain(complaints, f"agent-monitor: cannot read {file}: {error.strerror or error}")
                continue
            name = "<stdin>" if file == STDIN else file
            report.bad += complain_of(complaints, corpus, name, runs, whole=left != 0)
            if silent:
                report.bad += len(silent)
                which = (
                    f"run {silent[0]}" if len(silent) == 1 else f"{len(silent):,} runs, {silent[0]} the first of them,"
                )
                _view.complain(
                    complaints, f"{name}: in {which} a model says and does nothing, so there is nothing to look at"
                )


@contextmanager
def _opened(file: str) -> Iterator[Path]:
    """A path that can be read twice from its start, which the reader needs to recognise gzip. A
    pipe is copied to a file.
    """
    if file != STDIN:
        yield Path(file)
        return
    with tempfile.TemporaryDirectory(prefix="agent-monitor-") as folder:
        path = Path(folder, "stdin")
        with path.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield path


@contextmanager
def _progress(console: Console, *, quiet: bool) -> Iterator[Callable[[str, Report], None]]:
    """A progress bar on a terminal, nothing elsewhere. `quiet`: no bar, because results are written
    to the terminal.
    """
    if quiet or not console.is_terminal:
        yield lambda *_: None
        return
    columns = (
        BarColumn(pulse_style="cyan"),
        TextColumn("{task.fields[runs]:,} runs, {task.fields[loops]:,} with a loop"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[file]}", style="dim"),
    )
    # Results that are printed meanwhile belong to stdout, and must not be drawn above the bar on
    # stderr.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
        task = progress.add_task("", total=None, runs=0, loops=0, file="")
        yield lambda file, report: progress.update(
            task, runs=report.runs, loops=report.loops, file=_view.on_one_line(file)
        )

"""`agent-monitor scan`: which recorded runs loop, where, and what a stop would have saved."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Annotated

import typer
from rich.console import Console

from monitor.cli.exit_code import INTERRUPTED
from monitor.cli.inputs.offline_judge import CacheOption, ConfirmOption, JudgeOption, OfflineJudge, offline_judge
from monitor.cli.inputs.survey import Chosen
from monitor.cli.inputs.transcripts import Inputs, Reading, Wanted, inputs_of, since_when
from monitor.cli.options.selection import FormatOption, LimitOption, ProjectOption, SinceOption
from monitor.cli.options.settings_options import ConfigOption, DetectorsOption, PolicyOption, SetOption, settings_of
from monitor.cli.render import output
from monitor.cli.render.csv_rows import rows_to
from monitor.cli.render.explain import explain as explain_run
from monitor.cli.render.output import STDIN
from monitor.cli.render.progress import progress
from monitor.cli.render.scan_report import Report, run_as_json, show, summary_as_json
from monitor.cli.render.tool_counts import count
from monitor.errors import ConfigError
from monitor.judges.judge import FIRST_TURN
from monitor.policy import StopAtFirstLoop
from monitor.settings import Settings
from monitor.transcripts.analysis.scan import scan_run
from monitor.transcripts.analysis.survey import SurveyedRun

LOOPS_FOUND, BAD_INPUT = 1, 2


def scan(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH...]",
            help="Transcripts: files, folders, patterns, archives; - is stdin. Without any, the known places are read.",
        ),
    ] = None,
    *,
    since: SinceOption = None,
    only: FormatOption = None,
    project: ProjectOption = None,
    csv: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a row for each run to this file; - is stdout.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say everything that was seen, and what the policy did.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines: one object a run, then one summary.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="List the runs without a loop too.")] = False,
    limit: LimitOption = None,
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
    Without a path it reads what the agents of this user have written: Claude Code,
    Codex, Gemini CLI, opencode, Copilot CLI and others. It knows some thirty formats,
    and each file by its content. It never changes a file, and sends nothing anywhere.

    \b
    Examples:
      agent-monitor scan
      agent-monitor scan --since 7d --project webshop
      agent-monitor scan ~/.codex/sessions --csv loops.csv
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
    console, complaints = output.stdout(), output.stderr()
    with output.tidy_exit(), ExitStack() as stack:
        asker = None
        if judge is not None:
            asker = stack.enter_context(
                offline_judge(judge, judge_confirm, judge_cache, first_turn=judge_from, suspicion=judge_suspicion)
            )
        else:
            _refuse_without_judge(
                {
                    "--judge-confirm": judge_confirm is not None,
                    "--judge-cache": judge_cache is not None,
                    "--judge-from": judge_from != FIRST_TURN,
                    "--judge-suspicion": judge_suspicion is not None,
                }
            )
        chosen = settings_of(config, detectors, settings, policy)
        wanted = Wanted(only, project, since_when(since))
        inputs = stack.enter_context(inputs_of(paths, complaints, wanted))
        reading = _reading(chosen, asker, complaints, inputs, wanted)
        rows = stack.enter_context(rows_to(csv))
        shown = _Shown(console, explain=explain, as_json=as_json, every=every, write_row=rows)
        report = Report(warns=not isinstance(chosen.policy() or StopAtFirstLoop(), StopAtFirstLoop), bad=inputs.missing)
        began = time.perf_counter()
        interrupted = _read(reading, report, shown, bar=complaints, total=inputs.bytes, limit=limit)
        reading.complain(report, whole=not interrupted and (limit is None or report.runs < limit))
        if asker is not None:
            asker.complain(complaints)
        if as_json:
            summary = {**summary_as_json(report, settings=chosen.source), **reading.as_json()}
            output.write_json(summary if asker is None else {**summary, "judge": asker.as_json()})
        elif csv != STDIN:
            if explain and report.runs:
                output.heading(console, "in short")
            show(console, report, elapsed_s=time.perf_counter() - began, settings=chosen.source)
            reading.show(console)
            if asker is not None:
                console.print(asker.said(), soft_wrap=True)
        if interrupted:
            output.complain(complaints, f"interrupted: {reading.read} of {count(len(inputs.paths), 'file')} were read")
            raise typer.Exit(INTERRUPTED)
        raise typer.Exit(BAD_INPUT if report.incomplete else LOOPS_FOUND if report.loops else 0)


@dataclass(slots=True)
class _Shown:
    """Shows each run while the others are read."""

    console: Console
    explain: bool
    as_json: bool
    every: bool
    write_row: Callable[[SurveyedRun], None]

    def add(self, run: SurveyedRun, report: Report) -> None:
        """Count a run, and show it if it is to be shown at once."""
        listed = self.every or run.loops or (self.explain and bool(run.findings))
        report.add(run, listed=listed and not self.as_json and not self.explain)
        self.write_row(run)
        if listed and self.as_json:
            output.write_json(run_as_json(run, explain=self.explain))
        elif listed and self.explain:
            explain_run(self.console, run)


def _reading(
    chosen: Settings, asker: OfflineJudge | None, complaints: Console, inputs: Inputs, wanted: Wanted
) -> Reading:
    examine = partial(
        scan_run,
        detectors=chosen.detectors(),
        policy=chosen.policy() or StopAtFirstLoop(),
        judge=asker.judge if asker else None,
        ask_judge=asker,
    )
    return Reading(Chosen.of(chosen), examine, complaints, inputs, wanted, by_judge=asker is not None)


def _read(reading: Reading, report: Report, shown: _Shown, *, bar: Console, total: int, limit: int | None) -> bool:
    """Read until the end, until `limit`, or until Ctrl-C: then what was read is kept. Returns
    whether it was Ctrl-C.
    """
    quiet = (shown.as_json or shown.explain) and shown.console.is_terminal
    try:
        with progress(bar, total, quiet=quiet) as tick:
            for run in islice(reading.results(report), limit):
                shown.add(run, report)
                tick(reading.done_bytes, report.runs, report.loops, run.file)
    except KeyboardInterrupt:
        if not report.runs:
            raise
        return True
    return False


def _refuse_without_judge(given: Mapping[str, bool]) -> None:
    if idle := [option for option, is_given in given.items() if is_given]:
        raise ConfigError(f"{' and '.join(idle)} without a judge to ask: add --judge google:NAME")

"""`agent-monitor scan`: which recorded runs loop, where, and what a stop would have saved."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console

from monitor.cli.inputs.cache_folder import cache_folder
from monitor.cli.inputs.survey_workers import ScanCache, SurveySettings, judge_of
from monitor.cli.inputs.transcripts import InputReader, RunSelection, inputs_of
from monitor.cli.options.shared import (
    CardOption,
    CardTaskOption,
    JudgeOptions,
    LimitOption,
    SelectionOptions,
    SettingsOptions,
    TranscriptsArgument,
    flag,
    option,
)
from monitor.cli.render import output
from monitor.cli.render.files import check_card, rows_to, write_card
from monitor.cli.render.output import STDIN
from monitor.cli.render.scan_report import RUN, Report, run_as_json, show, summary_as_json
from monitor.cli.render.scan_report import explain as explain_run
from monitor.policy import StopAtFirstLoop
from monitor.transcripts.analysis.survey import SurveyedRun

if TYPE_CHECKING:
    from monitor.cli.inputs.offline_judge import OfflineJudge

LOOPS_FOUND, BAD_INPUT = 1, 2


@dataclass(slots=True, frozen=True, kw_only=True)
class ScanOptions:
    """How the runs are shown, and where."""

    csv: Annotated[str | None, option("FILE", "Write a row for each run to this file; - is stdout.")] = None
    explain: Annotated[bool, flag("--explain", "Say everything that was seen, and what the policy did.")] = False
    as_json: Annotated[bool, flag("--json", "Print JSON lines: one object a run, then one summary.")] = False
    every: Annotated[bool, flag("--all", "List the runs without a loop too.")] = False
    card: CardOption = None
    card_task: CardTaskOption = False


def scan(
    paths: TranscriptsArgument = None,
    *,
    selection: SelectionOptions,
    shown: ScanOptions,
    limit: LimitOption = None,
    cache: Annotated[
        bool, flag("--cache/--no-cache", "Take the results of unchanged files from earlier scans.")
    ] = True,
    settings: SettingsOptions,
    judge: JudgeOptions,
) -> None:
    """Look for loops in recorded runs, with the same core that watches live ones.

    Without a path it reads what the agents of this user have written: Claude Code,
    Codex, Gemini CLI, opencode, Copilot CLI and others. It knows some thirty formats,
    and each file by its content. It never changes a file, and sends nothing anywhere.

    Examples:
      agent-monitor scan
      agent-monitor scan --since 7d --project webshop
      agent-monitor scan ~/.codex/sessions --csv loops.csv --card card.svg
      zcat logs/*.gz | agent-monitor scan --json -
      agent-monitor scan --set ToolCallRepetition.loop_at=7 runs.jsonl
      agent-monitor scan --explain --policy ladder --limit 20 runs.jsonl
      agent-monitor scan --judge google:gemini-2.5-flash runs.jsonl

    A recording cannot react to a warning: --policy ladder shows how many steps the
    policy would have taken, not what its warnings would have changed.

    Exit code: 0 no loop; 1 a loop was found; 2 none was found, and a file or a line
    could not be read, a file has no run, or a setting is invalid.
    """
    console, complaints = output.stdout(), output.stderr()
    with ExitStack() as stack:
        check_card(shown.card)
        asker = stack.enter_context(judge_of(judge))
        chosen = settings.read()
        wanted = RunSelection.of(selection)
        inputs = stack.enter_context(inputs_of(paths, wanted))
        given = SurveySettings.of(chosen, asker=asker)
        place = cache_folder("scans") / "results.db" if cache and asker is None else None
        known = stack.enter_context(ScanCache(place, given.settings))
        reading = InputReader(given, complaints, inputs, wanted, cache=known)
        printer = _RunPrinter(console, shown, stack.enter_context(rows_to(shown.csv, RUN)))
        report = Report(warns=not isinstance(chosen.policy() or StopAtFirstLoop(), StopAtFirstLoop), bad=inputs.missing)
        began = time.perf_counter()
        quiet = (shown.as_json or shown.explain) and console.is_terminal
        reading.read_all(report, lambda run: printer.add(run, report), limit=limit, quiet=quiet)
        if asker is not None:
            asker.complain(complaints)
        write_card(shown.card, report.card, task=shown.card_task)
        printer.end(report, reading, asker, chosen.source, time.perf_counter() - began)
        reading.leave(LOOPS_FOUND if report.loops else BAD_INPUT if report.incomplete else 0)


@dataclass(slots=True)
class _RunPrinter:
    """Shows each run while the others are read, and at the end all of them together."""

    console: Console
    shown: ScanOptions
    write_row: Callable[[SurveyedRun], None]

    def add(self, run: SurveyedRun, report: Report) -> None:
        """Count a run, and show it if it is to be shown at once."""
        shown = self.shown
        listed = shown.every or run.loops or (shown.explain and bool(run.findings))
        report.add(run, listed=listed and not shown.as_json and not shown.explain)
        self.write_row(run)
        if listed and shown.as_json:
            output.write_json(run_as_json(run, explain=shown.explain))
        elif listed and shown.explain:
            explain_run(self.console, run)

    def end(
        self, report: Report, reading: InputReader, asker: OfflineJudge | None, settings: Path | None, elapsed_s: float
    ) -> None:
        """Show the sums. `settings`: the file from which the settings come."""
        if self.shown.as_json:
            summary = {**summary_as_json(report, settings=settings), **reading.as_json()}
            output.write_json(summary if asker is None else {**summary, "judge": asker.as_json()})
        elif self.shown.csv != STDIN:
            if self.shown.explain and report.runs:
                output.heading(self.console, "in short")
            show(self.console, report, elapsed_s=elapsed_s, settings=settings)
            reading.show(self.console)
            if asker is not None:
                self.console.print(asker.said(), soft_wrap=True)

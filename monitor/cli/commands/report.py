"""`agent-monitor report`: recorded runs as one HTML page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from monitor.cli.inputs.survey_workers import SurveySettings
from monitor.cli.inputs.transcripts import InputReader, RunSelection, inputs_of
from monitor.cli.options.shared import (
    CardOption,
    CardTaskOption,
    LimitOption,
    SelectionOptions,
    SettingsOptions,
    TranscriptsArgument,
    flag,
    option,
)
from monitor.cli.render import output
from monitor.cli.render.files import check_card, check_out, write_card, write_out
from monitor.cli.render.output import BAD_USE as BAD_INPUT
from monitor.cli.render.scan_report import Report
from monitor.report import ReportPage, StoryWatcher
from monitor.transcripts.analysis.survey import SurveyedRun
from monitor.view.status import count


def report(
    paths: TranscriptsArgument = None,
    *,
    out: Annotated[Path, option("FILE", "The page to write.", "--out", "-o")] = Path("agent-runs.html"),
    title: Annotated[str, option("TEXT", "What stands above the page.")] = "Agent runs",
    no_text: Annotated[
        bool, flag("--no-text", "Leave the words of the transcripts out: numbers and names only.")
    ] = False,
    card: CardOption = None,
    card_task: CardTaskOption = False,
    selection: SelectionOptions,
    limit: LimitOption = None,
    settings: SettingsOptions,
) -> None:
    """Write recorded runs as one HTML page: what ran, what looped, where, and what it cost.

    The page is one file. It loads nothing and sends nothing, and a browser opens
    it from the disk. It holds pieces of the transcripts: share it as you would
    share them, or leave their words out with --no-text.

    Examples:
      agent-monitor report -o page.html
      agent-monitor report --since 30d --project webshop -o webshop.html
      agent-monitor report runs.jsonl.gz logs/ --no-text -o numbers.html

    Exit code: 0 the page was written; 2 it could not be written, or there was
    nothing to show. 2 also if a file or a line could not be read; it says so.
    """
    console, complaints = output.stdout(), output.stderr()
    check_out(out, "--out")
    check_card(card)
    given, wanted = SurveySettings.of(settings.read(), StoryWatcher), RunSelection.of(selection)
    found, page = Report(), ReportPage(title=title, texts=not no_text)

    def add(run: SurveyedRun) -> None:
        found.add(run, listed=False)
        page.add(run)

    with inputs_of(paths, wanted) as inputs:
        found.bad += inputs.missing
        reading = InputReader(given, complaints, inputs, wanted)
        reading.read_all(found, add, limit=limit)
    if not found.runs:
        reading.complain()
        raise typer.Exit(BAD_INPUT)
    pieces = page.pieces(facts={"made": time.time(), "bad": found.bad})
    write_out(out, (piece.encode("utf-8", "replace") for piece in pieces), "--out")
    write_card(card, found.card, task=card_task)
    loops = f"{found.loops:,} with a loop"
    size = out.stat().st_size / 1_000_000
    console.print(f"{out}: {count(found.runs, 'run')}, {loops}, {size:,.1f} MB", soft_wrap=True)
    reading.leave(BAD_INPUT if found.incomplete else 0)

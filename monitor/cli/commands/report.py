"""`agent-monitor report`: recorded runs as one HTML page."""

from __future__ import annotations

import time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from monitor.cli.exit_code import INTERRUPTED
from monitor.cli.inputs.survey import Chosen
from monitor.cli.inputs.transcripts import Reading, Wanted, inputs_of, since_when
from monitor.cli.options.selection import FormatOption, LimitOption, ProjectOption, SinceOption
from monitor.cli.options.settings_options import ConfigOption, DetectorsOption, PolicyOption, SetOption, settings_of
from monitor.cli.render import output
from monitor.cli.render.out_file import check_out, write_out
from monitor.cli.render.progress import progress
from monitor.cli.render.scan_report import Report
from monitor.cli.render.tool_counts import count
from monitor.report import Page, StoryWatcher
from monitor.transcripts.analysis.scan import scan_run

BAD_INPUT = 2


def report(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH...]",
            help="Transcripts: files, folders, patterns, archives; - is stdin. Without any, the known places are read.",
        ),
    ] = None,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The page to write.")] = Path(
        "agent-runs.html"
    ),
    title: Annotated[str, typer.Option(metavar="TEXT", help="What stands above the page.")] = "Agent runs",
    no_text: Annotated[
        bool, typer.Option("--no-text", help="Leave the words of the transcripts out: numbers and names only.")
    ] = False,
    since: SinceOption = None,
    only: FormatOption = None,
    project: ProjectOption = None,
    limit: LimitOption = None,
    detectors: DetectorsOption = None,
    policy: PolicyOption = None,
    settings: SetOption = None,
    config: ConfigOption = None,
) -> None:
    """Write recorded runs as one HTML page: what ran, what looped, where, and what it cost.

    \b
    The page is one file. It loads nothing and sends nothing, and a browser opens
    it from the disk. It holds pieces of the transcripts: share it as you would
    share them, or leave their words out with --no-text.

    \b
    Examples:
      agent-monitor report -o page.html
      agent-monitor report --since 30d --project webshop -o webshop.html
      agent-monitor report runs.jsonl.gz logs/ --no-text -o numbers.html

    \b
    Exit code: 0 the page was written; 2 it could not be written, or there was
    nothing to show. 2 also if a file or a line could not be read; it says so.
    """  # noqa: D301 - \b keeps the lines of an example apart
    console, complaints = output.stdout(), output.stderr()
    with output.tidy_exit():
        check_out(out, "--out")
        chosen = settings_of(config, detectors, settings, policy)
        given = Chosen.of(chosen, StoryWatcher)
        examine = partial(scan_run, detectors=chosen.detectors(), policy=chosen.policy())
        wanted = Wanted(only, project, since_when(since))
        found, page, interrupted = Report(), Page(title=title, texts=not no_text), False
        with inputs_of(paths, complaints, wanted) as inputs:
            found.bad += inputs.missing
            reading = Reading(given, examine, complaints, inputs, wanted, by_judge=False)
            try:
                with progress(complaints, inputs.bytes, quiet=False) as tick:
                    for run in islice(reading.results(found), limit):
                        found.add(run, listed=False)
                        page.add(run)
                        tick(reading.done_bytes, found.runs, found.loops, run.file)
            except KeyboardInterrupt:
                if not found.runs:
                    raise
                interrupted = True
            reading.complain(found, whole=not interrupted and (limit is None or found.runs < limit))
        if not page.runs:
            raise typer.Exit(BAD_INPUT)
        pieces = page.pieces(facts={"made": time.time(), "bad": found.bad})
        write_out(out, (piece.encode("utf-8", "replace") for piece in pieces), "--out")
        loops = f"{found.loops:,} with a loop"
        size = out.stat().st_size / 1_000_000
        console.print(f"{out}: {count(page.runs, 'run')}, {loops}, {size:,.1f} MB", soft_wrap=True)
        if interrupted:
            output.complain(complaints, f"interrupted: {reading.read} of {count(len(inputs.paths), 'file')} were read")
            raise typer.Exit(INTERRUPTED)
        raise typer.Exit(BAD_INPUT if found.incomplete else 0)

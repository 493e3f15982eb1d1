"""`agent-monitor watch`: follows sessions while they are written, and says when a loop begins."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from monitor.cli.inputs.survey_workers import judge_of, strange
from monitor.cli.inputs.transcripts import duration_s
from monitor.cli.options.shared import DetectorOptions, JudgeOptions, argument, flag, option
from monitor.cli.render import output
from monitor.cli.render.scan_report import project_of
from monitor.errors import ConfigError
from monitor.policy import ObserveOnly
from monitor.transcripts.analysis.following import Begun, Follower, Live, States
from monitor.transcripts.analysis.survey import SurveyedFile
from monitor.transcripts.places import files, known_places
from monitor.transcripts.readers.registry import AGENTS, reader_of
from monitor.transcripts.source import Source
from monitor.view.status import count

LOOPS_FOUND, BAD_INPUT = 1, 2
ID_CHARS: Final = 20
REPEATED_CHARS: Final = 160
RECENT_S: Final = 600.0
"""A file of a folder that was written so shortly before is read at the start."""


def watch(
    paths: Annotated[
        list[str] | None,
        argument("FILE|DIR", "Transcripts to follow. Without any, the known places."),
    ] = None,
    *,
    bell: Annotated[bool, flag("--bell", "Ring the terminal's bell when a loop begins.")] = False,
    until_loop: Annotated[bool, flag("--until-loop", "End with the first loop that begins.")] = False,
    last: Annotated[str | None, option("TIME", "End after 30s, 10m, 8h.", "--for")] = None,
    interval: Annotated[float, option("SECONDS", "How often the files are looked at.", min=0.05)] = 1.0,
    as_json: Annotated[bool, flag("--json", "Print a JSON object for each loop.")] = False,
    judge: JudgeOptions,
    settings: DetectorOptions,
) -> None:
    """Follow sessions that are being written, and say when a loop begins.

    It only reads. What stops an agent is a hook (agent-monitor hook), or a guard
    in the program itself.

    Examples:
      agent-monitor watch --bell
      agent-monitor watch ~/.claude/projects --until-loop
      agent-monitor watch session.jsonl --for 30m --json
      agent-monitor watch --judge google:gemini-2.5-flash-lite

    Exit code: 0 the time of --for is over and no loop began; 1 a loop began;
    2 there is nothing to follow, or a named file is no transcript; 130 Ctrl-C.
    """
    console, complaints = output.stdout(), output.stderr()
    chosen = settings.read()
    for_s = None if last is None else duration_s(last, "--for")
    named, folders = _given(paths)
    loops, until = 0, None if for_s is None else time.monotonic() + for_s
    with judge_of(judge) as asker:
        asked = None if asker is None else asker.judge
        live = Live(
            lambda: _listed(named, folders),
            Follower(States(), detectors=chosen.detectors, policy=ObserveOnly, judge=asked, ask_judge=asker).survey,
            time.monotonic,
            start=[*named, *_recent(_listed([], folders))],
        )
        output.line(console, f"{count(live.files, 'file')} followed; Ctrl-C ends it", "dim")
        while until is None or time.monotonic() < until:
            for news in live.poll():
                if isinstance(news, SurveyedFile):
                    if news.error:
                        output.complain(complaints, f"agent-monitor: cannot read {news.file}: {news.error}")
                    continue
                _say(console, news, bell=bell, as_json=as_json)
                loops += not news.before
                if loops and until_loop:
                    raise typer.Exit(LOOPS_FOUND)
            if output.nobody_reads():
                break
            time.sleep(interval if until is None else max(0.0, min(interval, until - time.monotonic())))
        if asker is not None:
            asker.complain(complaints)
    raise typer.Exit(LOOPS_FOUND if loops else 0)


def _given(paths: list[str] | None) -> tuple[list[Path], list[str]]:
    """The files that are named, which must be transcripts, and the folders and patterns."""
    named = [Path(one).expanduser() for one in paths or () if Path(one).expanduser().is_file()]
    folders = [one for one in paths or () if Path(one).expanduser() not in named]
    for path in named:
        source = Source.of_path(path)
        if path.stat().st_size and reader_of(source) is None:
            raise ConfigError(f"{path}: {strange(source)}")
    for one in folders:
        if not Path(one).expanduser().is_dir() and not list(files([one])):
            raise ConfigError(f"{one}: No such file or directory")
    if not paths and not any(True for _ in known_places()):
        raise ConfigError("nothing is in the known places; give a file or a folder")
    return named, folders if paths else [""]


def _listed(named: Iterable[Path], folders: Iterable[str]) -> Iterator[Path]:
    yield from named
    for one in folders:
        yield from files([one]) if one else (path for _, path in known_places())


def _recent(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        try:
            if time.time() - path.stat().st_mtime < RECENT_S:
                yield path
        except OSError:
            continue


def _say(console: Console, begun: Begun, *, bell: bool, as_json: bool) -> None:
    run, found = begun.run, begun.finding.detection
    first = run.finding is begun.finding  # whose result it is
    result = run.result if first and found.channel == "tools" else ""
    if as_json:
        output.write_json(
            {
                "type": "loop",
                "file": run.file,
                "format": run.format,
                "project": run.began.project,
                "run": run.id,
                "turn": begun.finding.turn,
                "before": begun.before,
                "result": result,
                "detection": found.to_dict(),
            }
        )
    else:
        line = Text.assemble(
            (f"{datetime.now().astimezone():%H:%M:%S}  ", "dim"),
            (AGENTS.get(run.format, run.format), "bold"),
            f"  {project_of(run)}  ",
            (output.shortened(run.id, ID_CHARS), "dim"),
            ("  already there: " if begun.before else "  a loop begins: "),
            (output.on_one_line(found.message), "red"),
            ("  repeated: ", "dim"),
            (output.on_one_line(found.evidence.excerpt[:REPEATED_CHARS]), "yellow"),
        )
        if result:
            line.append("  result: ", "dim").append(output.on_one_line(" ".join(result[:REPEATED_CHARS].split())))
        console.print(line, soft_wrap=True)
    if bell and not begun.before:
        sys.stderr.write("\a")
        sys.stderr.flush()

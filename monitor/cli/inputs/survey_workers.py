"""Reads the transcripts of a scan, on all cores if that is faster."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from rich.console import Console

from monitor.cli.render import output
from monitor.settings import Settings
from monitor.transcripts.analysis.scan import RunScanner
from monitor.transcripts.analysis.survey import SurveyedFile, Watcher, WatchSettings, survey_file
from monitor.transcripts.entries import Began, ReadReport
from monitor.transcripts.kinds import HEAD_BYTES, kind_of
from monitor.transcripts.places import sources_of
from monitor.transcripts.source import Source
from monitor.view.run_ending import count

PAYS_BYTES: Final = 8 * 1024 * 1024
"""With fewer bytes a second process takes more time than it saves: it has to import the library."""


SHOWN: Final = 3
"""How many lines of a file are named. If a file is not understood, mostly all lines have the same
fault.
"""


@dataclass(slots=True, frozen=True)
class SurveySettings:
    """The settings of a scan, in a form that another process can be given."""

    settings: str
    """The settings as a JSON object."""
    watcher: Callable[[Began, RunScanner], Watcher] | None = None
    """The class that watches a run in place of the usual one."""

    @classmethod
    def of(cls, settings: Settings, watcher: Callable[[Began, RunScanner], Watcher] | None = None) -> SurveySettings:
        """`settings`, as they were read from the file and the command line."""
        return cls(json.dumps(settings.settings), watcher)

    def examine(self, path: Path) -> list[SurveyedFile]:
        """The transcripts in one file, read and watched."""
        chosen = _settings(self.settings)
        watched = WatchSettings(chosen.detectors, chosen.policy, self.watcher or Watcher)
        return [survey_file(source, watched=watched) for source in sources_of(path)]


@cache
def _settings(text: str) -> Settings:
    """Made once in each process, and not for each file."""
    return Settings(json.loads(text))


def surveyed_files(paths: Sequence[Path], chosen: SurveySettings) -> Iterator[list[SurveyedFile]]:
    """The transcripts of each path, in the order of `paths`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores > 1 and len(paths) > 1 and sum(map(size_of, paths)) >= PAYS_BYTES:
        with _workers(min(cores, len(paths))) as examine_all:
            yield from examine_all(chosen.examine, paths)
    else:
        for path in paths:
            yield chosen.examine(path)


@contextmanager
def _workers(
    number: int,
) -> Iterator[Callable[[Callable[[Path], list[SurveyedFile]], Sequence[Path]], Iterator[list[SurveyedFile]]]]:
    """Processes that end with the block. Only this process gets Ctrl-C."""
    pool = multiprocessing.get_context("spawn").Pool(number, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    try:
        yield pool.imap
    finally:
        pool.terminate()
        pool.join()


def size_of(path: Path) -> int:
    """The bytes of a file; 0 if it cannot be looked at."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def complain_of(console: Console, found: SurveyedFile) -> int:
    """Report the unreadable parts of a transcript. Returns how many there are."""
    if found.error:
        output.complain(console, f"agent-monitor: cannot read {found.file}: {found.error}")
        return 1
    bad = complain_of_report(console, found.file, found.report)
    crashed = [run for run in found.runs if run.failed]
    for run in crashed:
        output.complain(console, f"{found.file}: run {run.id}: {run.failed}")
    return bad + len(crashed)


def complain_of_report(console: Console, name: str, report: ReadReport) -> int:
    """Report the unreadable parts that a reader noted. Returns how many there are."""
    for line, why in report.first_bad[:SHOWN]:
        output.complain(console, f"{name}:{line}: {why}")
    if (more := report.bad - SHOWN) > 0:
        output.complain(console, f"{name}: and {count(more, 'more line')} could not be read")
    if report.unknown:
        kinds = ", ".join(sorted(report.unknown)[:SHOWN])
        output.complain(
            console,
            f"{name}: {count(sum(report.unknown.values()), 'record')} of unknown types left out: {kinds}",
            style="yellow",
        )
    return report.bad


def why_missing(path: str) -> str:
    """Why no transcript was found at `path`."""
    return "there is no transcript in it" if Path(path).is_dir() else "No such file or directory"


def strange(source: Source) -> str:
    """The kind of a file that no reader knows, for the message that refuses it."""
    if not source.head.strip():
        return "it is empty"
    kind = kind_of(source.head[:HEAD_BYTES])
    return f"it is {kind}" if kind else "it is no transcript of a known format"

"""Reads the transcripts of a scan, on all cores if that is faster."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from monitor.cli import _view
from monitor.cli._settings import settings_of
from monitor.cli._tools import OWN_FORMATS, count
from monitor.cli._unread import SHOWN
from monitor.transcripts.entries import Began
from monitor.transcripts.kinds import HEAD_BYTES, kind_of
from monitor.transcripts.places import sources_of
from monitor.transcripts.scan import RunScanner
from monitor.transcripts.source import Source
from monitor.transcripts.survey import SurveyedFile, Watcher, survey_file

PAYS_BYTES: Final = 8 * 1024 * 1024
"""With fewer bytes a second process takes more time than it saves: it has to import the library."""


@dataclass(slots=True, frozen=True)
class Chosen:
    """The settings of the command line, which each process reads anew."""

    config: Path | None
    detectors: str | None
    settings: tuple[str, ...]
    policy: str | None
    watcher: Callable[[Began, RunScanner], Watcher] | None = None
    """Who watches a run, in place of the usual one, in the project's own formats as well."""

    def examine(self, path: Path) -> list[SurveyedFile]:
        """The transcripts in one file, read and watched."""
        chosen = settings_of(self.config, self.detectors, self.settings, self.policy)
        examine = partial(
            survey_file,
            detectors=chosen.detectors,
            policy=chosen.policy,
            without=() if self.watcher else OWN_FORMATS,
            watcher=self.watcher or Watcher,
        )
        return [examine(source) for source in sources_of(path)]


def surveyed_files(paths: Sequence[Path], chosen: Chosen) -> Iterator[list[SurveyedFile]]:
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
        _view.complain(console, f"agent-monitor: cannot read {found.file}: {found.error}")
        return 1
    report = found.report
    for line, why in report.first_bad[:SHOWN]:
        _view.complain(console, f"{found.file}:{line}: {why}")
    if (more := report.bad - SHOWN) > 0:
        _view.complain(console, f"{found.file}: and {count(more, 'more line')} could not be read")
    if report.unknown:
        kinds = ", ".join(sorted(report.unknown)[:SHOWN])
        _view.complain(
            console,
            f"{found.file}: {count(sum(report.unknown.values()), 'record')} of unknown types left out: {kinds}",
            style="yellow",
        )
    crashed = [run for run in found.runs if run.failed]
    for run in crashed:
        _view.complain(console, f"{found.file}: run {run.id}: {run.failed}")
    return report.bad + len(crashed)


def strange(source: Source) -> str:
    """The kind of a file that no reader knows, for the message that refuses it."""
    kind = kind_of(source.head[:HEAD_BYTES])
    return f"it is {kind}" if kind else "it is no transcript of a known format"

"""The input of a scan: its files in their order, and complaints about unreadable ones."""

from __future__ import annotations

import csv
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from monitor.cli import _view
from monitor.cli._report import Report
from monitor.cli._survey import Chosen, complain_of, size_of, strange, surveyed_files
from monitor.cli._tools import count
from monitor.errors import ConfigError
from monitor.outcome import RunFailed
from monitor.transcripts import RecordedRun
from monitor.transcripts.entries import ReadReport, collected
from monitor.transcripts.places import files, known_places, sources_of
from monitor.transcripts.readers import READERS, reader_of
from monitor.transcripts.scan import Amount, ScanResult
from monitor.transcripts.source import Source
from monitor.transcripts.survey import SurveyedFile, SurveyedRun, surveyed

STDIN: Final = "-"
STDIN_NAME: Final = "<stdin>"
_AGO: Final = re.compile(r"(\d{1,5})([mhdw])")
_FOR: Final = re.compile(r"(\d{1,5})([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(slots=True, frozen=True)
class Wanted:
    """The choice of runs that a scan looks at."""

    format: str | None
    project: str | None
    since: float | None
    """Seconds since 1970."""

    def __post_init__(self) -> None:
        formats = sorted(reader.format for reader in READERS)
        if self.format is not None and self.format not in formats:
            raise ConfigError(f"--format takes one of {', '.join(formats)}, not {self.format!r}")

    def wants(self, run: SurveyedRun) -> bool:
        """Whether the scan looks at `run`."""
        if self.format is not None and run.format != self.format:
            return False
        if self.project is not None and self.project.lower() not in run.began.project.lower():
            return False
        return self.since is None or run.last_at is None or run.last_at >= self.since


def since_when(text: str | None) -> float | None:
    """`--since` as seconds since 1970."""
    if text is None:
        return None
    if ago := _AGO.fullmatch(text):
        return (datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).timestamp()
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--since takes 7d, 24h, 2w or a date such as 2026-01-31, not {text!r}") from None
    return (when if when.tzinfo is not None else when.astimezone()).timestamp()


def duration_s(text: str, option: str) -> float:
    """A length of time such as `30s`, `10m` or `8h`, in seconds."""
    found = _FOR.fullmatch(text)
    if found is None:
        raise ConfigError(f"{option} takes 30s, 10m, 8h or 2d, not {text!r}")
    return timedelta(**{_UNITS[found[2]]: int(found[1])}).total_seconds()


@dataclass(slots=True)
class Inputs:
    """The files to be read."""

    paths: list[Path] = field(default_factory=list[Path])
    named: set[Path] = field(default_factory=set[Path])
    """Files that were named one by one. They must be transcripts."""
    names: dict[Path, str] = field(default_factory=dict[Path, str])
    """Names for files whose paths say nothing, such as stdin."""
    missing: int = 0
    """The number of paths where nothing was found."""

    @property
    def bytes(self) -> int:
        """The bytes of all files together."""
        return sum(map(size_of, self.paths))


@contextmanager
def inputs_of(given: Sequence[str] | None, complaints: Console, wanted: Wanted) -> Iterator[Inputs]:
    """The files that the command line names, or those of the known places."""
    inputs = Inputs()
    with ExitStack() as stack:
        if not given:
            inputs.paths = [path for kind, path in known_places() if wanted.format in {None, kind}]
            if not inputs.paths:
                inputs.missing = 1
                _view.complain(complaints, f"agent-monitor: nothing is in the known places; {_places(wanted)}")
        for one in given or ():
            if one == STDIN or Path(one).is_fifo():
                path = stack.enter_context(_copied(one))
                inputs.paths.append(path)
                inputs.named.add(path)
                inputs.names[path] = STDIN_NAME if one == STDIN else one
                continue
            missing: list[str] = []
            found = list(files([one], missing=missing))
            inputs.paths += found
            if found == [Path(one).expanduser()]:
                inputs.named.update(found)
            elif missing:
                inputs.missing += 1
                why = "there is no transcript in it" if Path(one).is_dir() else "No such file or directory"
                _view.complain(complaints, f"agent-monitor: cannot read {one}: {why}")
        if wanted.since is not None:
            inputs.paths = [path for path in inputs.paths if _changed(path) >= wanted.since]
        yield inputs


def _places(wanted: Wanted) -> str:
    places = [place for reader in READERS if wanted.format in {None, reader.format} for place in reader.places]
    shown = ", ".join(f"~/{place}" for place in places[:4])
    more = f" and {len(places) - 4} more" if len(places) > 4 else ""  # noqa: PLR2004 - as many as a line holds
    return f"looked for {shown}{more}; give a file or a folder" if places else "this format has none; give a file"


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return float("inf")


@contextmanager
def _copied(name: str) -> Iterator[Path]:
    """A pipe, copied into a file: a reader looks at the beginning before it reads the whole."""
    with tempfile.TemporaryDirectory(prefix="agent-monitor-") as folder:
        path = Path(folder, "stdin")
        with path.open("wb") as copy:
            if name == STDIN:
                shutil.copyfileobj(sys.stdin.buffer, copy)
            else:
                with Path(name).open("rb") as pipe:
                    shutil.copyfileobj(pipe, copy)
        yield path


class Reading:
    """Reads the transcripts of a scan, one file after the other, and reports unreadable ones."""

    def __init__(
        self,
        given: Chosen,
        examine: Callable[[RecordedRun], ScanResult],
        complaints: Console,
        inputs: Inputs,
        wanted: Wanted,
        *,
        by_judge: bool,
    ) -> None:
        self.read = 0
        """The number of files that were read."""
        self.done_bytes = 0
        self._given = given
        self._examine = examine
        self._complaints = complaints
        self._inputs = inputs
        self._wanted = wanted
        self._by_judge = by_judge
        self._strangers = 0
        self._copied = self._repeated = 0
        self._silent: list[tuple[str, str]] = []
        self._silent_runs = 0
        """The number of runs in which a model says and does nothing. Many sessions on a disk have
        no answer.
        """

    def results(self, report: Report) -> Iterator[SurveyedRun]:
        """The runs that were asked for. Unreadable files and lines are reported, and counted in
        `report`.
        """
        paths = self._inputs.paths
        found = (self._asked(path) for path in paths) if self._by_judge else surveyed_files(paths, self._given)
        for path, transcripts in zip(paths, found, strict=True):
            runs = [run for transcript in transcripts for run in self._runs(path, transcript, report)]
            self.read += 1
            self.done_bytes += size_of(path)
            yield from runs

    def _runs(self, path: Path, found: SurveyedFile, report: Report) -> Iterator[SurveyedRun]:
        name = self._inputs.names.get(path, found.file)
        if found.format is None and not found.error:
            if path in self._inputs.named:
                report.bad += 1
                _view.complain(self._complaints, f"{name}: {strange(Source.of_path(path))}")
            else:
                self._strangers += 1
            return
        report.bad += complain_of(self._complaints, replace(found, file=name))
        self._copied += found.report.copied
        self._repeated += found.report.repeated
        looked_at = [run for run in found.runs if not run.failed and self._wanted.wants(run)]
        self._silent_runs += sum(run.silent for run in looked_at)
        if path in self._inputs.named and looked_at and all(run.silent for run in looked_at):
            self._silent += [(name, run.id) for run in looked_at]
        for run in looked_at:
            yield replace(run, file=name)

    def _asked(self, path: Path) -> list[SurveyedFile]:
        """The transcripts of a file, where a judge is asked. A judge has to see each run whole."""
        found: list[SurveyedFile] = []
        for source in sources_of(path):
            reader, report = reader_of(source), ReadReport()
            runs: list[SurveyedRun] = []
            if reader is not None:
                for run, ended in collected(reader.read(source, report)):
                    try:
                        seen = surveyed(source.name, self._examine(run))
                    except RunFailed as error:
                        seen = replace(surveyed(source.name, ScanResult(run=run, total=Amount())), failed=str(error))
                    runs.append(replace(seen, format=reader.format, ended=ended))
            kind = reader.format if reader else None
            found.append(SurveyedFile(file=source.name, format=kind, runs=tuple(runs), report=report))
        return found

    def complain(self, report: Report, *, whole: bool) -> None:
        """Report runs in which there is nothing to look at. `whole`: all was read to its end."""
        by_file: dict[str, list[str]] = {}
        for name, run in self._silent:
            by_file.setdefault(name, []).append(run)
        for name, silent in by_file.items():
            report.bad += len(silent)
            which = f"run {silent[0]}" if len(silent) == 1 else f"{len(silent):,} runs, {silent[0]} the first of them,"
            _view.complain(
                self._complaints, f"{name}: in {which} a model says and does nothing, so there is nothing to look at"
            )
        if whole and not report.bad and report.runs == self._silent_runs:
            report.bad += 1
            left = f"{count(self._strangers, 'file')} of no known format" if self._strangers else "nothing to look at"
            found = f"in {count(report.runs, 'run')} no model says anything" if report.runs else "no run was found"
            _view.complain(self._complaints, f"agent-monitor: {found}; {left}")

    def show(self, console: Console) -> None:
        """Print the counts of the runs, files and records that were left out."""
        left = [
            count(number, noun, nouns)
            for number, noun, nouns in (
                (self._silent_runs, "run without an answer", "runs without an answer"),
                (self._strangers, "file of no known format", "files of no known format"),
                (self._copied, "record copied from another session", "records copied from other sessions"),
                (self._repeated, "record that stood twice", "records that stood twice"),
            )
            if number
        ]
        if left:
            console.print(f"Not looked at: {', '.join(left)}.", soft_wrap=True)

    def as_json(self) -> dict[str, Any]:
        """The same counts, for programs."""
        return {
            "files": self.read,
            "unknown_files": self._strangers,
            "silent_runs": self._silent_runs,
            "copied_records": self._copied,
            "repeated_records": self._repeated,
        }


# ------------------------------------------------------------------ rows


_COLUMNS: Final = (
    *("file", "format", "project", "run", "parent", "first_at", "last_at", "state", "turns", "calls", "errors"),
    *("tokens", "usd", "loop", "found_by", "count", "repeated", "result", "saved_turns", "saved_calls"),
    *("saved_tokens", "saved_usd"),
)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a cell that begins with one of these for a formula."""


@contextmanager
def rows_to(file: str | None) -> Iterator[Callable[[SurveyedRun], None]]:
    """Writes a row for each run. `file`: `-` is stdout, `None` nowhere."""
    if file is None:
        yield lambda _: None
        return
    with ExitStack() as stack:
        out = sys.stdout if file == STDIN else stack.enter_context(_created(Path(file)))
        writer = csv.writer(out)
        writer.writerow(_COLUMNS)
        yield lambda run: writer.writerow(map(_cell, _row(run)))


def _created(path: Path) -> Any:
    try:
        return path.open("w", newline="", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def _cell(value: object) -> object:
    if isinstance(value, str):
        shown = _view.on_one_line(value)
        return f"'{shown}" if shown.startswith(_FORMULA) else shown
    return value


def _row(run: SurveyedRun) -> tuple[object, ...]:
    found = run.detection
    times = [None if at is None else datetime.fromtimestamp(at, UTC).isoformat() for at in (run.first_at, run.last_at)]
    return (
        *(run.file, run.format, run.began.project, run.id, run.began.parent, *times, run.ended.state),
        *(run.total.turns, run.total.tool_calls, run.errors),
        *(run.usage.total_tokens if run.usage else None, run.cost_usd, run.loops),
        f"{found.detector}/{found.kind}" if found else None,
        found.count if found else None,
        found.evidence.excerpt if found else None,
        run.result if found else None,
        *(run.saved.turns, run.saved.tool_calls, run.saved_tokens, run.saved_usd),
    )


# ------------------------------------------------------------------ progress


@contextmanager
def progress(console: Console, total: int, *, quiet: bool) -> Iterator[Callable[[int, int, int, str], None]]:
    """A bar on a terminal, and nothing elsewhere. `total`: the bytes to read. `quiet`: no bar,
    because results are written to the terminal.
    """
    if quiet or not console.is_terminal:
        yield lambda *_: None
        return
    columns = (
        BarColumn(pulse_style="cyan"),
        TextColumn("{task.fields[runs]:,} runs, {task.fields[loops]:,} with a loop"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[file]}", style="dim"),
    )
    # Results that are printed meanwhile belong to stdout, and must not be drawn above the bar on
    # stderr.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("", total=total or None, runs=0, loops=0, file="")
        yield lambda done, runs, loops, file: bar.update(
            task, completed=done, runs=runs, loops=loops, file=_view.on_one_line(file)
        )

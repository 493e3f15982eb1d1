"""The input of a scan: its files in their order, and complaints about unreadable ones."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from monitor.cli import INTERRUPTED
from monitor.cli.inputs.survey_workers import (
    BytesRead,
    ScanCache,
    SurveySettings,
    size_of,
    strange,
    surveyed_files,
    why_missing,
)
from monitor.cli.options.shared import SelectionOptions
from monitor.cli.render import output
from monitor.cli.render.output import STDIN
from monitor.cli.render.scan_report import Report, progress
from monitor.errors import ConfigError
from monitor.transcripts.analysis.copied_runs import Copies
from monitor.transcripts.analysis.survey import SurveyedFile, SurveyedRun
from monitor.transcripts.base import ReadReport
from monitor.transcripts.places import MAGIC_BYTES, files, kind_of, known_places
from monitor.transcripts.readers.registry import READERS, reader_of
from monitor.transcripts.source import BOM, HEAD_BYTES, MAX_DOCUMENT_BYTES, Source, damage
from monitor.view.status import count

# --------------------------------------------------------------------------------------------------
# The parts of a scan's input that could not be read: what is said of them, and when they count.
#
# Everything is said after the result, a few files by name. A file that was named must be whole.
# In a folder, or in the places of the agents, a few torn lines are usual: an agent was killed
# while it wrote. They are said, and the input still counts as read, as long as they are few in
# their file.

FEW: Final = 0.1
"""The share of the lines of a file that may be torn or unknown. Of 17 shared sessions of Claude
Code one had 8 % of torn lines, and two fewer.
"""
LINES: Final = (".jsonl", ".ndjson")
"""The endings of files that must be text."""
SHOWN_FILES: Final = 5
SHOWN_LINES: Final = 3
"""How many lines of a file are named. If a file is not understood, mostly all lines have the same
fault.
"""


@dataclass(slots=True)
class Complaints:
    """The lines about one file."""

    lines: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Each with the style in which it is shown."""

    def add(self, text: str, style: str = "red") -> None:
        """One more line."""
        self.lines.append((text, style))

    def show(self, console: Console) -> None:
        """Print all of them."""
        for text, style in self.lines:
            output.line(console, text, style)


@dataclass(slots=True)
class UnreadableParts:
    """The parts that could not be read, in all files."""

    files: list[Complaints] = field(default_factory=list[Complaints])
    torn: int = 0
    """Lines that could not be read, few in each of their files."""

    def take(self, found: SurveyedFile, *, named: bool) -> int:
        """Note the unreadable parts of a transcript. Returns how many of them count. `named`: the
        file was named by itself.
        """
        said = complaints_of(found.file, found.report)
        if found.error:
            said.add(f"agent-monitor: cannot read {found.file}: {found.error}")
        crashed = [run for run in found.runs if run.failed]
        for run in crashed:
            said.add(f"{found.file}: run {run.id}: {run.failed}")
        if said.lines:
            self.files.append(said)
        unread = found.report.bad + found.report.left_out
        if not named and found.runs and not found.report.lost and unread <= FEW * found.report.lines:
            self.torn += unread
            unread = 0
        return unread + bool(found.error) + len(crashed)

    def refuse(self, name: str, why: str) -> None:
        """Note a file that is no transcript."""
        said = Complaints()
        said.add(f"{name}: {why}")
        self.files.append(said)

    def show(self, console: Console) -> None:
        """Print what is to be said of the first files, and how many more there are."""
        for said in self.files[:SHOWN_FILES]:
            said.show(console)
        if (more := len(self.files) - SHOWN_FILES) > 0:
            output.complain(console, f"and {count(more, 'more file')} with parts that could not be read")


def complaints_of(name: str, report: ReadReport) -> Complaints:
    """The lines about the unreadable parts that a reader noted. `name`: the file."""
    said = Complaints()
    for line, why in report.first_bad[:SHOWN_LINES]:
        said.add(f"{name}:{line}: {why}")
    if (more := report.bad - SHOWN_LINES) > 0:
        said.add(f"{name}: and {count(more, 'more line')} could not be read")
    if report.unknown:
        kinds = ", ".join(sorted(report.unknown)[:SHOWN_LINES])
        said.add(f"{name}: {count(report.left_out, 'record')} of unknown types left out: {kinds}", "yellow")
    return said


def hides_a_transcript(source: Source) -> str:
    """Why a file whose format is unknown may be a transcript all the same; empty: it is none."""
    head, is_lines = source.head, source.name.removesuffix(".gz").removesuffix(".zst").endswith(LINES)
    kind = kind_of(head[:MAGIC_BYTES])
    if kind and (is_lines or head.decode("utf-16", "replace").lstrip()[:1] in {"{", "["}):
        return f"it is {kind}"
    if head.lstrip()[:1] not in {b"{", b"["}:
        return ""
    if len(head) >= HEAD_BYTES and b"\n" not in head:
        return f"its first line is longer than {HEAD_BYTES // 2**20} MB, so its format is not recognised"
    return "" if is_lines else _broken(source)


def _broken(source: Source) -> str:
    """Why a file that begins as a JSON document is none; empty: it is one, or something else."""
    text = ""
    try:
        with source.open() as file:
            text = file.read(MAX_DOCUMENT_BYTES + 1).removeprefix(BOM).decode("utf-8", "replace").strip()
        json.loads(text)
    except RecursionError:
        return "its JSON is nested too deeply"
    except damage() as error:
        return f"the file is damaged or cut: {error}"
    except json.JSONDecodeError as error:
        if error.pos >= len(text) or error.msg.startswith("Unterminated string"):
            return "its JSON is cut"
        begins = Source.of_bytes(source.name, text[: error.pos].encode())
        if error.msg == "Extra data" and reader_of(begins) is not None:
            return "more stands behind the end of its JSON"
    return ""


STDIN_NAME: Final = "<stdin>"
NAMED: Final = 3
"""The most files of no known format that are named."""
_AGO: Final = re.compile(r"(\d{1,5})([mhdw])")
_FOR: Final = re.compile(r"(\d{1,5})([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(slots=True, frozen=True)
class RunSelection:
    """The choice of runs that a scan looks at."""

    format: str | None
    project: str | None
    since: float | None
    """The earliest time of a run, in seconds since 1970."""

    @classmethod
    def of(cls, options: SelectionOptions) -> RunSelection:
        """The choice that `options` name. Raises `ConfigError` for an unknown format or time."""
        formats = sorted(reader.format for reader in READERS)
        if options.only is not None and options.only not in formats:
            raise ConfigError(f"--format takes one of {', '.join(formats)}, not {options.only!r}")
        return cls(options.only, options.project, _since(options.since))

    def __str__(self) -> str:
        """The options that were given, for a message."""
        given = (("--format", self.format), ("--project", self.project), ("--since", self.since))
        return ", ".join(option for option, value in given if value is not None)

    def wants(self, run: SurveyedRun) -> bool:
        """Whether the scan looks at `run`."""
        if self.format is not None and run.format != self.format:
            return False
        if self.project is not None and self.project.lower() not in run.began.project.lower():
            return False
        return self.since is None or run.last_at is None or run.last_at >= self.since


def _since(text: str | None) -> float | None:
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
    """The files that a scan reads."""

    paths: list[Path] = field(default_factory=list[Path])
    named: set[Path] = field(default_factory=set[Path])
    """Files that were named one by one. They must be transcripts."""
    names: dict[Path, str] = field(default_factory=dict[Path, str])
    """Names for files whose paths say nothing, such as stdin."""
    missing: int = 0
    """The number of paths where nothing was found."""
    older: int = 0
    """The number of files that were last written before `--since`."""
    complaints: Complaints = field(default_factory=Complaints)
    """Complaints about the paths, for the end of the output."""

    @property
    def bytes(self) -> int:
        """The bytes of all files together."""
        return sum(map(size_of, self.paths))


@contextmanager
def inputs_of(given: Sequence[str] | None, wanted: RunSelection) -> Iterator[Inputs]:
    """The files that the command line names, or those of the known places."""
    inputs = Inputs()
    with ExitStack() as stack:
        if not given:
            inputs.paths = [path for kind, path in known_places() if wanted.format in {None, kind}]
            if not inputs.paths:
                inputs.complaints.add(f"agent-monitor: {_places(wanted)}")
        for one in given or ():
            if one == STDIN or _is_fifo(Path(one)):
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
                inputs.complaints.add(f"agent-monitor: cannot read {one}: {why_missing(one)}")
        if wanted.since is not None:
            recent = [path for path in inputs.paths if _changed(path) >= wanted.since]
            inputs.older, inputs.paths = len(inputs.paths) - len(recent), recent
        yield inputs


def _places(wanted: RunSelection) -> str:
    if wanted.format is not None:
        places = [f"~/{place}" for reader in READERS if reader.format == wanted.format for place in reader.places]
        looked = f"looked for {', '.join(places)}" if places else f"{wanted.format} has no place of its own"
    else:
        agents = sorted({reader.agent for reader in READERS if reader.places}, key=str.lower)
        looked = f"looked below {Path.home()} in the places of {', '.join(agents)}"
    return f"no transcript was found; {looked}. Give a file or a folder."


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return float("inf")


def _is_fifo(path: Path) -> bool:
    try:
        return path.is_fifo()
    except OSError:
        return False


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


def _named(files: Sequence[str]) -> str:
    """The names of a few files, in brackets."""
    if len(files) > NAMED:
        return ""
    return f" ({', '.join(output.on_one_line(Path(name).name) for name in files)})"


LEFT_OUT: Final = {
    "silent_runs": ("run without an answer", "runs without an answer"),
    "copied_records": ("record copied from another session", "records copied from other sessions"),
    "repeated_records": ("record that stood twice", "records that stood twice"),
    "repeated_runs": ("run that stands in two files", "runs that stand in two files"),
    "torn_lines": ("torn line", "torn lines"),
}
"""What a scan does not look at. Many sessions on a disk have no answer."""


class InputReader:
    """Reads the transcripts of a scan, one file after the other, and reports unreadable ones."""

    def __init__(
        self,
        given: SurveySettings,
        complaints: Console,
        inputs: Inputs,
        wanted: RunSelection,
        *,
        cache: ScanCache | None = None,
    ) -> None:
        """`cache`: the results of earlier scans."""
        self.read = 0
        """The number of files that were read."""
        self._bytes = BytesRead()
        self._cache = cache or ScanCache(None, "")
        self.interrupted = False
        """Whether Ctrl-C has ended the reading."""
        self._given = given
        self._complaints = complaints
        self._unread = UnreadableParts()
        self._inputs = inputs
        self._wanted = wanted
        self._strangers: list[str] = []
        self._unwanted = 0
        """The number of runs that do not fit `--format`, `--project` or `--since`."""
        self._left_out = Counter[str]()
        """The numbers of what was not looked at, by their names in `LEFT_OUT`."""
        self._copies = Copies()
        self._silent: list[tuple[str, str]] = []

    def results(self, report: Report) -> Iterator[SurveyedRun]:
        """The runs that were asked for. Unreadable files and lines are reported, and counted in
        `report`.
        """
        paths = self._inputs.paths
        found = surveyed_files(paths, self._given, self._bytes, self._cache)
        for path, transcripts in zip(paths, found, strict=True):
            runs = [run for transcript in transcripts for run in self._runs(path, transcript, report)]
            self.read += 1
            yield from runs

    def _runs(self, path: Path, found: SurveyedFile, report: Report) -> Iterator[SurveyedRun]:
        name = self._inputs.names.get(path, found.file)
        if found.format is None and not found.error:
            source = Source.of_path(path)
            why = strange(source) if path in self._inputs.named else hides_a_transcript(source)
            if why:
                report.bad += 1
                self._unread.refuse(name, why)
            else:
                self._strangers.append(name)
            return
        report.bad += self._unread.take(replace(found, file=name), named=path in self._inputs.named)
        self._left_out["copied_records"] += found.report.copied
        self._left_out["repeated_records"] += found.report.repeated
        watched = [run for run in found.runs if not run.failed]
        wanted = [run for run in watched if self._wanted.wants(run)]
        self._unwanted += len(watched) - len(wanted)
        looked_at = [new for run in wanted if (new := self._copies.without(run)) is not None]
        self._left_out["repeated_runs"] += len(wanted) - len(looked_at)
        self._left_out["silent_runs"] += sum(run.silent for run in looked_at)
        if path in self._inputs.named and looked_at and all(run.silent for run in looked_at):
            self._silent += [(name, run.id) for run in looked_at]
        for run in looked_at:
            yield replace(run, file=name)

    def read_all(
        self,
        report: Report,
        add: Callable[[SurveyedRun], None],
        *,
        limit: int | None,
        quiet: bool = False,
        partly: bool = True,
    ) -> None:
        """Give each run that was asked for to `add`, at most `limit` of them, with a progress bar.

        With `partly`, Ctrl-C ends the reading early, and what was read is kept.
        """
        try:
            with progress(self._complaints, self._inputs.bytes, lambda: self._bytes.total, quiet=quiet) as tick:
                for run in islice(self.results(report), limit):
                    add(run)
                    tick(report.runs, report.loops, run.file)
        except KeyboardInterrupt:
            if not (report.runs and partly):
                raise
            self.interrupted = True
        self._complain(report, whole=not self.interrupted and (limit is None or report.runs < limit))

    def leave(self, code: int) -> NoReturn:
        """Say what could not be read, and end the command with `code`, or with that of an
        interruption.
        """
        self.complain()
        if self.interrupted:
            files = count(len(self._inputs.paths), "file")
            output.complain(self._complaints, f"interrupted: {self.read} of {files} were read")
        raise typer.Exit(INTERRUPTED if self.interrupted else code)

    def complain(self) -> None:
        """Say what could not be read."""
        self._inputs.complaints.show(self._complaints)
        self._unread.show(self._complaints)

    def _complain(self, report: Report, *, whole: bool) -> None:
        """Report runs in which there is nothing to look at. `whole`: all was read to its end."""
        by_file: dict[str, list[str]] = {}
        for name, run in self._silent:
            by_file.setdefault(name, []).append(run)
        for name, silent in by_file.items():
            report.bad += len(silent)
            which = f"run {silent[0]}" if len(silent) == 1 else f"{len(silent):,} runs, {silent[0]} the first of them,"
            self._inputs.complaints.add(
                f"{name}: in {which} a model says and does nothing, so there is nothing to look at"
            )
        if whole and not report.bad and report.runs == self._left_out["silent_runs"]:
            report.idle = True
            if self._inputs.paths or self._inputs.older:
                self._inputs.complaints.add(f"agent-monitor: {self._nothing(report)}")

    def _nothing(self, report: Report) -> str:
        """Why there is nothing to look at."""
        left = [
            f"{count(number, noun)} {why}"
            for number, noun, why in (
                (self._inputs.older, "file", "not written since then"),
                (self._unwanted, "run", f"left out by {self._wanted}"),
                (len(self._strangers), "file", f"of no known format{_named(self._strangers)}"),
            )
            if number
        ]
        found = f"in {count(report.runs, 'run')} no model says anything" if report.runs else "no run was found"
        return f"{found}; {', '.join(left) or 'nothing to look at'}"

    def show(self, console: Console) -> None:
        """Print the counts of the runs, files and records that were left out."""
        left = [count(number, *LEFT_OUT[name]) for name, number in self._counted().items() if number]
        if self._strangers:
            left.append(f"{count(len(self._strangers), 'file')} of no known format{_named(self._strangers)}")
        if left:
            console.print(Text(f"Not looked at: {', '.join(left)}."), soft_wrap=not console.is_terminal)

    def as_json(self) -> dict[str, Any]:
        """The counts that `show` prints, as JSON data."""
        return {
            "files": self.read,
            "unchanged_files": self._cache.hits,
            "unknown_files": len(self._strangers),
            **self._counted(),
        }

    def _counted(self) -> dict[str, int]:
        return {name: self._left_out[name] for name in LEFT_OUT} | {"torn_lines": self._unread.torn}

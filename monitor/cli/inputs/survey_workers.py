"""Reads the transcripts of a scan, on all cores if that is faster."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from monitor._util.hashing import fingerprint
from monitor.settings import Settings
from monitor.transcripts.analysis.recorded_steps import code_version, dumped, is_own, loaded
from monitor.transcripts.analysis.scan import RunScanner
from monitor.transcripts.analysis.survey import SurveyedFile, Watcher, WatchSettings, survey_file
from monitor.transcripts.base import Began
from monitor.transcripts.places import HEAD_BYTES, is_folder, kind_of, sources_of
from monitor.transcripts.source import SQLITE_MAGIC, Source

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

    from monitor.cli.inputs.offline_judge import OfflineJudge
    from monitor.cli.options.shared import JudgeOptions

    SharedNumber: TypeAlias = Synchronized[int]

QUIET_S: Final = 2.0
"""A file that was written more recently may change again within one tick of its time."""
MOST_ROWS: Final = 100_000
"""The number of results from which on the oldest are removed."""
_TABLE: Final = """create table if not exists results
(path blob primary key, state text not null, version text not null, found blob not null)"""

_OF_FILE: Final = "from results where path = ? and state = ? and version = ?"


class ScanCache:
    """Keeps results in the file `path`; `None`: nowhere. `settings`: what results depend on beside
    their file.
    """

    def __init__(self, path: Path | None, settings: str) -> None:
        self.hits = 0
        """The number of files whose result was taken from here."""
        self._version = fingerprint(f"{settings}\n{code_version()}".encode())
        self._rows = None if path is None else _opened(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Store the results, also those of a scan that was interrupted."""
        if self._rows is not None:
            with suppress(sqlite3.Error):
                self._rows.execute(
                    "delete from results where rowid <= (select max(rowid) from results) - ?", (MOST_ROWS,)
                )
                self._rows.commit()
            self._rows.close()

    def has(self, path: Path) -> bool:
        """Whether the file is unchanged since its result was kept."""
        if self._rows is None or (state := _state(path)) is None:
            return False
        with suppress(sqlite3.Error):
            asked = (_key(path), state, self._version)
            return self._rows.execute(f"select 1 {_OF_FILE}", asked).fetchone() is not None
        return False

    def get(self, path: Path) -> list[SurveyedFile] | None:
        """The transcripts of an unchanged file; `None`: it must be read."""
        if self._rows is None or (state := _state(path)) is None:
            return None
        with suppress(sqlite3.Error):
            asked = (_key(path), state, self._version)
            row = self._rows.execute(f"select found {_OF_FILE}", asked).fetchone()
            found = loaded(row[0]) if row is not None else None
            if isinstance(found, list) and all(isinstance(one, SurveyedFile) for one in found):
                self.hits += 1
                return found
        return None

    def put(self, path: Path, before: str | None, found: list[SurveyedFile]) -> None:
        """Keep the transcripts of a file. `before`: its `state` before it was read."""
        if self._rows is None or before is None or before != _state(path) or any(one.error for one in found):
            return
        if (data := dumped(found)) is not None:
            with suppress(sqlite3.Error):
                self._rows.execute(
                    "insert or replace into results values (?, ?, ?, ?)",
                    (_key(path), before, self._version, data),
                )

    def state(self, path: Path) -> str | None:
        """What changes when the file does. `None`: its result cannot be kept."""
        return None if self._rows is None else _state(path)


def _key(path: Path) -> bytes:
    """The name of a file, which is bytes: not every name is text."""
    return os.fsencode(path.absolute())


def _state(path: Path) -> str | None:
    try:
        status = path.stat()
    except OSError:
        return None
    if time.time() - status.st_mtime < QUIET_S or path.with_name(f"{path.name}-wal").exists():
        return None  # it is being written; a database is also written in the file beside it
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_dev} {status.st_ino}"


def _opened(path: Path) -> sqlite3.Connection | None:
    """The results in the file, which is made with the first scan. `None`: it cannot be used."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_own(path.parent):
            return None
        path.touch(mode=0o600)
        if not is_own(path):
            return None
        return _with_table(path)
    except OSError:
        return None


def _with_table(path: Path) -> sqlite3.Connection | None:
    for _ in range(2):
        rows = sqlite3.connect(path, timeout=0.5)
        try:
            rows.execute("pragma synchronous = off")
            rows.execute(_TABLE)
            rows.execute("select path, state, version, found from results limit 1").fetchone()
        except sqlite3.OperationalError:  # another scan holds it
            rows.close()
            return None
        except sqlite3.Error:  # it is damaged: begin again
            rows.close()
            path.unlink(missing_ok=True)
        else:
            return rows
    return None


# --------------------------------------------------------------------------------------------------
# Reads the transcripts of a scan, on all cores if that is faster.

PAYS_BYTES: Final = 8 * 1024 * 1024
"""With fewer bytes a second process takes more time than it saves: it has to import the library."""


ATTEMPTS: Final = 3
"""How often a file is read that is written anew meanwhile."""
END_BYTES: Final = 4_096
COLLECT_AT: Final = 50_000
"""The objects after which the garbage collector looks for circles."""


@dataclass(slots=True, frozen=True)
class SurveySettings:
    """The settings of a scan, in a form that another process can be given."""

    settings: str
    """The settings as a JSON object."""
    watcher: Callable[[Began, RunScanner], Watcher] | None = None
    """The class that watches a run in place of the usual one."""
    asker: OfflineJudge | None = None
    """Who asks the judge about each run, from this process."""

    @classmethod
    def of(
        cls,
        settings: Settings,
        watcher: Callable[[Began, RunScanner], Watcher] | None = None,
        asker: OfflineJudge | None = None,
    ) -> SurveySettings:
        """`settings`, as they were read from the file and the command line."""
        return cls(json.dumps(settings.settings), watcher, asker)

    def examine(self, path: Path, read: Callable[[int], None]) -> list[SurveyedFile]:
        """The transcripts in one file, read and watched. `read` is called now and then,
        with the number of bytes that were read since its last call.
        """
        chosen = _settings(self.settings)
        judge = None if self.asker is None else self.asker.judge
        watched = WatchSettings(chosen.detectors, chosen.policy, self.watcher or Watcher, judge, self.asker)
        told = 0

        def tell(number: int) -> None:
            nonlocal told
            told += number
            read(number)

        found: list[SurveyedFile] = []
        for _ in range(ATTEMPTS):
            before, found = FileState.of(path), []
            for source in sources_of(path):
                source.on_read = tell
                found.append(survey_file(source, watched=watched))
            if before is None or before.still_holds(path):
                break
        else:
            found = [SurveyedFile(file=one.file, format=None, error="it changes while it is read") for one in found]
        read(size_of(path) - told)
        return found


@dataclass(slots=True, frozen=True)
class FileState:
    """The state of a file before it is read. While it is read, its owner may write to it."""

    status: tuple[int, int, int, int]
    """The device and inode of the file, its size, and the time of its last change."""
    ends: tuple[bytes, bytes]
    """The first and the last bytes of the file."""

    @classmethod
    def of(cls, path: Path, size: int | None = None) -> FileState | None:
        """The state of the file at `path`, as far as its first `size` bytes. `None`: it cannot be
        read.
        """
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                length = status.st_size if size is None else size
                first = file.read(min(END_BYTES, length))
                file.seek(max(length - END_BYTES, 0))
                ends = first, file.read(min(END_BYTES, length))
                return cls((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns), ends)
        except OSError:
            return None

    def still_holds(self, path: Path) -> bool:
        """Whether what was read is one state of the file: it is unchanged, has grown at its end, or
        has gone. A database gives one state by itself.
        """
        now = FileState.of(path, self.status[2])
        if now is None or now.status == self.status or self.ends[0].startswith(SQLITE_MAGIC):
            return True
        return now.status[:2] == self.status[:2] and now.status[2] >= self.status[2] and now.ends == self.ends


@cache
def _settings(text: str) -> Settings:
    """Made once in each process, and not for each file."""
    return Settings(json.loads(text))


class BytesRead:
    """The bytes that were read until now, in this process and in the workers."""

    def __init__(self) -> None:
        self._here = 0
        self.workers: SharedNumber | None = None

    def add(self, number: int) -> None:
        """Count `number` bytes that were read in this process."""
        self._here += number

    @property
    def total(self) -> int:
        """All of them."""
        return self._here + (self.workers.value if self.workers is not None else 0)


def surveyed_files(
    paths: Sequence[Path], chosen: SurveySettings, read: BytesRead, cache: ScanCache
) -> Iterator[list[SurveyedFile]]:
    """The transcripts of each path, in the order of `paths`. Those of an unchanged file are taken
    from `cache`.
    """
    known = {path for path in paths if cache.has(path)}
    states = [(path, cache.state(path)) for path in paths if path not in known]
    with closing(_read([path for path, _ in states], chosen, read)) as found:
        unread = iter(states)
        for path in paths:
            if path not in known:
                transcripts = next(found)
                cache.put(*next(unread), transcripts)
                yield transcripts
            else:
                read.add(size_of(path))
                kept = cache.get(path)
                yield chosen.examine(path, _nothing) if kept is None else kept


def _read(paths: Sequence[Path], chosen: SurveySettings, read: BytesRead) -> Generator[list[SurveyedFile]]:
    """The transcripts of each path, read from their files."""
    _collect_seldom()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if chosen.asker is None and cores > 1 and len(paths) > 1 and sum(map(size_of, paths)) >= PAYS_BYTES:
        with _workers(min(cores, len(paths)), read) as examine_all:
            yield from examine_all(partial(_examine, chosen), paths)
    else:
        for path in paths:
            yield chosen.examine(path, read.add)


def _nothing(number: int) -> None:
    """Counts nothing: the bytes were counted."""


@contextmanager
def _workers(
    number: int, read: BytesRead
) -> Iterator[Callable[[Callable[[Path], list[SurveyedFile]], Sequence[Path]], Iterator[list[SurveyedFile]]]]:
    """Processes that end with the block. Only this process gets Ctrl-C."""
    context = multiprocessing.get_context("spawn")
    read.workers = context.Value("Q", 0)
    with without_interrupts():
        pool = context.Pool(number, _begin_worker, (read.workers,))
    try:
        yield pool.imap
    finally:
        pool.terminate()
        pool.join()


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Ctrl-C waits for the end of the block. A process that is started in it never gets Ctrl-C, not
    even before its first line.
    """
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_read_by_workers: list[SharedNumber] = []
"""In a worker: the number that all workers add to."""


def _begin_worker(read: SharedNumber) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _collect_seldom()
    _read_by_workers.append(read)


def _examine(chosen: SurveySettings, path: Path) -> list[SurveyedFile]:
    """What a worker does."""

    def add(number: int) -> None:
        shared = _read_by_workers[0]
        with shared.get_lock():
            shared.value += number

    return chosen.examine(path, add)


def _collect_seldom() -> None:
    """Let the garbage collector pass over what was imported. A scan makes few circles, and a
    collection for every 700 objects takes a twentieth of its time.
    """
    gc.freeze()
    gc.set_threshold(COLLECT_AT)


def size_of(path: Path) -> int:
    """The bytes of a file; 0 if it cannot be looked at."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def why_missing(path: str) -> str:
    """Why no transcript was found at `path`."""
    return "there is no transcript in it" if is_folder(Path(path)) else "No such file or directory"


def strange(source: Source) -> str:
    """The kind of a file that no reader knows, for the message that refuses it."""
    if not source.head.strip():
        return "it is empty"
    kind = kind_of(source.head[:HEAD_BYTES])
    return f"it is {kind}" if kind else "it is no transcript of a known format"


def judge_of(options: JudgeOptions) -> AbstractContextManager[OfflineJudge | None]:
    """The judge that `options` name, if any. Raises `ConfigError` if they name none, and have
    more.
    """
    if not options.asked:
        return nullcontext()
    from monitor.cli.inputs.offline_judge import offline_judge  # noqa: PLC0415 - takes long to import

    return offline_judge(options)

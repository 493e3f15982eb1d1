"""The results of earlier scans: a file that has not changed is not read again.

A result belongs to a path, and to the size, the times and the inode of its file. It also belongs to
the settings and to the code that has read the file. The cache is one SQLite file for its owner
alone. Without a usable cache everything is read.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from monitor._util.hashing import fingerprint
from monitor.transcripts.analysis.recorded_steps import code_version, dumped, is_own, loaded
from monitor.transcripts.analysis.survey import SurveyedFile

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

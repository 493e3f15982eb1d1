"""Makes SQLite's errors the typed errors of a session, which say what happened and what is safe."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from monitor.errors import SessionBusy, SessionDamaged, SessionLost, SessionUnavailable, StoreError
from monitor.sessions.lock import lock_path, owner_of

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_MISMATCH}
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG}
_READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
SAFE = "What was acknowledged before is stored, and this step is not"


READ_FAULTS: Final = (sqlite3.Error, UnicodeDecodeError)
"""The exceptions of reading a damaged file. SQLite may quote it in bytes that are no text."""


def typed(error: BaseException, path: Path) -> StoreError:
    """Our own error for `error`, which SQLite or the system raised."""
    if isinstance(error, StoreError):
        return again(error)
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    said = f"{path.name}: {error}"
    if code in _DAMAGED or isinstance(error, UnicodeDecodeError) or "decode to UTF-8" in str(error):
        fault: StoreError = SessionDamaged(
            f"{said}. The file was not changed: copy it, then see what `sessions verify` finds"
        )
    elif code in _BUSY:
        fault = SessionBusy(path.stem, owner_of(lock_path(path)), "it is in the middle of a transaction")
    elif code in _FULL:
        fault = SessionUnavailable(f"{said}. {SAFE}: make room and try again")
    elif code in _READ_ONLY:
        fault = SessionUnavailable(f"{said}. {SAFE}: the file is read only")
    else:
        fault = SessionUnavailable(f"{said}. {SAFE}: close the session, and open it again when the disk is well")
    fault.__cause__ = error
    return fault


def not_text(error: UnicodeEncodeError) -> str:
    """Says which text SQLite has refused."""
    shown = ascii(error.object[:40])
    return f"{shown} cannot be an id, a key or a name of a session: it has a lone surrogate. Nothing was stored"


def again(error: StoreError) -> StoreError:
    """A copy of `error` for another waiting task: one object cannot be raised in two."""
    if isinstance(error, SessionBusy):
        return SessionBusy(error.session, error.owner, error.why)
    copy = type(error)(*error.args) if type(error) in {SessionDamaged, SessionLost, SessionUnavailable} else error
    copy.__cause__ = error.__cause__
    return copy


def is_lasting(error: BaseException) -> bool:
    """Whether nothing more may be written after `error` until the session is opened again. After a
    failed sync it is not known which pages are on the disk.
    """
    if isinstance(error, SessionLost | SessionDamaged):
        return True
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF in {sqlite3.SQLITE_IOERR, *_DAMAGED}

"""The session that an argument names, by a name, an id, a part of either, or a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

from monitor.cli.options.shared import argument, option
from monitor.cli.render import output
from monitor.errors import ConfigError, SessionBusy, StoreError
from monitor.sessions import ENDING, PostgresSession, SessionReader, SQLiteSession, default_folder, sessions_in
from monitor.sessions.postgres.postgres_reader import AnyReader, without_password
from monitor.sessions.postgres.postgres_session import WAIT_S, is_database, parts_of, reader_at


def complete(incomplete: str) -> list[str]:
    """Names of sessions that begin like this, for the shell."""
    return [one.name for one in sessions_in(default_folder()) if one.name.startswith(incomplete)]


FolderOption: TypeAlias = Annotated[
    Path | None,
    option(
        "FOLDER",
        "Where the sessions are; otherwise AGENT_MONITOR_SESSIONS, or the user's folder for state.",
        "--folder",
    ),
]
DatabaseOption: TypeAlias = Annotated[
    str | None, option("ADDRESS", "Those in postgresql://user@host/db.", "--database")
]
SessionArgument: TypeAlias = Annotated[
    str,
    argument(
        "SESSION", "Its name, its id or a part of either, its file, or postgresql://...#NAME.", autocompletion=complete
    ),
]
SessionsArgument: TypeAlias = Annotated[
    list[str] | None,
    argument("SESSION", "Their names, ids or files.", autocompletion=complete),
]


@contextmanager
def opened_reader(given: str, folder: Path | None) -> Iterator[AnyReader]:
    """The session that `given` means, in a file or in a database, as it is at this moment."""
    with reader_at(found_place(given, folder)) as session, session.snapshot():
        yield session


def found_place(given: str, folder: Path | None) -> Path | str:
    """The file that `given` means, or the address of a session in a database."""
    return given if is_database(given) else found_file(given, folder)


def found_file(given: str, folder: Path | None) -> Path:
    """The file that `given` means. Raises `ConfigError` if it means no session, or several."""
    if is_database(given):
        raise ConfigError(f"{without_password(given)} is in a database, and this command takes a file")
    if given.endswith(ENDING) or "/" in given:
        if not Path(given).is_file():
            raise ConfigError(f"there is no session {given}")
        return Path(given)
    there = sessions_in(folder or default_folder())
    matching = [one.path for one in there if one.name == given] or [one.path for one in there if given in one.name]
    if not matching:
        matching = [one.path for one in there if _has_id(one.path, given)]
    if len(matching) == 1:
        return matching[0]
    if not matching and Path(given).is_file():
        raise ConfigError(f"{given} is no session: the name of a session's file ends with {ENDING}")
    if not matching:
        raise ConfigError(f"there is no session {given!r} in {folder or default_folder()}")
    names = ", ".join(one.stem for one in matching[:5])
    raise ConfigError(f"{given!r} means {len(matching)} sessions: {names}{', ...' if len(matching) > 5 else ''}")  # noqa: PLR2004 - enough to see


def _has_id(path: Path, part: str) -> bool:
    try:
        with SessionReader(path) as session:
            return part in session.id
    except StoreError:
        return False


def session_name(place: Path | str) -> str:
    """The name of a session in its folder; of one in a database, its address."""
    return place.stem if isinstance(place, Path) else without_password(place)


def short_name(place: Path | str) -> str:
    """The name of a session in its folder or in its database."""
    return place.stem if isinstance(place, Path) else parts_of(place)[1]


def new_file(name: str, folder: Path | None) -> Path:
    """The file of a new session with this name. Its folder is made."""
    if not name or Path(name).name != name or name.startswith("."):
        raise ConfigError(f"{name!r} is no name for a session: it becomes the name of a file")
    where = folder or default_folder()
    where.mkdir(parents=True, exist_ok=True, mode=0o700)
    return where / f"{name}{ENDING}"


def session_to_write(given: str, *, create: bool = True, folder: Path | None = None) -> SQLiteSession | PostgresSession:
    """The session that `given` means, to be opened by its owner. `create`: it may be made."""
    if is_database(given):
        return PostgresSession(*parts_of(given), create=create, chunks=True, wait_s=WAIT_S, waits=_say_why)
    path = session_file(given) if create else found_file(given, folder).absolute()
    return SQLiteSession(path, create=create, chunks=True)


def _say_why(busy: SessionBusy) -> None:
    output.complain(output.stderr(), f"agent-monitor: waiting, because the session is in use: {busy.why}")


def session_file(given: str) -> Path:
    """The file that `--session` means: it may be there, or be made."""
    path = Path(given)
    if given.endswith(ENDING) or "/" in given:
        if path.suffix != ENDING or not path.absolute().parent.is_dir():
            raise ConfigError(
                f"--session {given}: give a name, or a file that ends with {ENDING} in a folder that exists"
            )
        return path
    return new_file(given, None)

"""Commands that make a session of another one: import, copy, fork and salvage."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import count as count_from
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from monitor.cli.options.session_file import (
    DatabaseOption,
    FolderOption,
    JsonOption,
    SessionArgument,
    found_file,
    found_place,
    new_file,
    session_file,
    short_name,
)
from monitor.cli.render import output
from monitor.cli.render.output import STDIN
from monitor.errors import ConfigError, StoreError
from monitor.sessions import ENDING, copy_session, fork, imported, salvage
from monitor.sessions.postgres.postgres_reader import SessionsReader, without_password
from monitor.sessions.postgres.postgres_session import is_database, parts_of, reader_at
from monitor.view.status import count

LOST: Final = 1


def import_session(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Lines that export has written; - is stdin.")],
    *,
    name: Annotated[str | None, typer.Option("--name", help="Name of the new session, otherwise its id.")] = None,
    database: DatabaseOption = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a session from exported lines. Lines that were changed are refused."""
    try:
        text = sys.stdin.read() if file == STDIN else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{file} cannot be read: {error}") from None
    lines = text.split("\n")
    place = f"{database}#{name or _id_of(lines)}" if database else new_file(name or _id_of(lines), folder)
    imported(lines, place)
    _made(as_json, "imported as", place)


def _id_of(lines: Sequence[str]) -> str:
    """The id in the first line. The other lines are checked when they are read."""
    marker = '"id":"'
    start = lines[0].find(marker) + len(marker)
    id = lines[0][start : start + 32]
    if len(id) != 32 or any(char not in "0123456789abcdef" for char in id):  # noqa: PLR2004 - digits of an id
        raise StoreError("the first line is not that of an exported session; nothing was made")
    return id


def copy_it(
    session: SessionArgument,
    into: Annotated[str, typer.Argument(metavar="TO", help=f"A name, or a file that ends with {ENDING}.")],
    *,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a session with its id, also one that is being written: a backup.

    cp is no way to copy a session: what its owner has not yet put into the file is
    missing then, and long texts stand beside the file.
    """
    source = found_place(session, folder)
    into_file = into.endswith(ENDING) or ("/" in into and not is_database(into))
    place = into if is_database(into) else session_file(into) if into_file else new_file(into, _beside(source, folder))
    copy_session(source, place)
    _made(as_json, "copied to", place)


def fork_session(
    session: SessionArgument,
    *,
    at: Annotated[str | None, typer.Option("--at", metavar="NODE", help="Go on from this node.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the copy, otherwise a number is added.")] = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a session, also one that is being written. The copy gets its own id."""
    source = found_place(session, folder)
    node = None
    if at is not None:
        with reader_at(source) as found:
            nodes = [one.id for one in found.nodes() if one.id.endswith(at) or one.id.startswith(at)]
        if len(nodes) != 1:
            raise ConfigError(f"{at!r} means {count(len(nodes), 'node')}; `sessions tree` shows them")
        node = nodes[0]
    place = _new_place(source, name, folder)
    id = fork(source, place, at=node)
    _made(as_json, "forked as", place, id=id)


def salvage_session(
    session: SessionArgument,
    *,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the new session, otherwise a number is added.")
    ] = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Save what is readable of a damaged session into a new one, and say what is lost.

    Exit code: 0 nothing is lost; 1 something is.
    """
    source = found_file(session, folder)
    path = Path(_new_place(source, name, folder))
    saved = salvage(source, path)
    lost = [problem.what for problem in saved.lost]
    gone = f"{len(lost):,} rows lost" if lost else "nothing is lost"
    data = {"name": path.stem, "path": str(path), "id": saved.id, "nodes": saved.nodes, "lost": lost}
    output.say(as_json, f"{count(saved.nodes, 'node')} saved as {path.stem}, {gone}", data)
    if not as_json:
        for problem in lost:
            output.line(output.stdout(), f"  {problem}", "red")
    if lost:
        raise typer.Exit(LOST)


def _beside(source: Path | str, folder: Path | None) -> Path | None:
    """The folder of a new session that is made of `source`."""
    return folder or (source.parent if isinstance(source, Path) else None)


def _made(as_json: bool, how: str, place: Path | str, **data: Any) -> None:
    """Say which session was made."""
    shown = without_password(str(place))
    said = shown if how == "copied to" or not isinstance(place, Path) else place.stem
    output.say(as_json, f"{how} {said}", {"name": short_name(place), "path": shown, **data})


def _new_place(source: Path | str, name: str | None, folder: Path | None) -> Path | str:
    """The place of a session that is made of `source`. Without a `name`, a number is added to
    its own.
    """
    if is_database(source):
        where, own = parts_of(source)
        if name:
            return f"{where}#{name}"
        names = (f"{own}-{number}" for number in count_from(2))
        with SessionsReader(where) as there:
            return f"{where}#{next(one for one in names if one not in there)}"
    if name:
        return new_file(name, _beside(source, folder))
    near = Path(source)
    files = (near.with_name(f"{near.stem}-{number}{ENDING}") for number in count_from(2))
    return next(one for one in files if not one.exists())

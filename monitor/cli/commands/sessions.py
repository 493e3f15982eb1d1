"""`agent-monitor sessions`: look at stored sessions, check them, copy them, clean up."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import count as count_from
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import anyio
import typer
from rich.text import Text

from monitor.cli.options.session_file import (
    DatabaseOption,
    FolderOption,
    SessionArgument,
    SessionsArgument,
    found_file,
    found_place,
    new_file,
    opened_reader,
    session_file,
    session_name,
    short_name,
)
from monitor.cli.options.shared import JsonOption, argument, flag, option
from monitor.cli.render import output, session_view
from monitor.cli.render.output import STDIN
from monitor.cli.render.session_view import listed, listed_in, size
from monitor.errors import ConfigError, MonitorError, StoreError
from monitor.sessions import (
    ACTIVE,
    ENDING,
    copy_session,
    default_folder,
    exported,
    fork,
    found_in,
    imported,
    remove,
    retain,
    salvage,
    sessions_in,
    trim,
)
from monitor.sessions.postgres.postgres_reader import SessionsReader, without_password
from monitor.sessions.postgres.postgres_session import is_database, parts_of, reader_at, sessions_at
from monitor.sessions.tables.schema import FORMAT, SQLITE_FLOOR, check_sqlite, has_reset_bug
from monitor.view.status import count

LOST: Final = 1


def import_session(
    file: Annotated[str, argument("FILE", "Lines that export has written; - is stdin.")],
    *,
    name: Annotated[str | None, option("NAME", "Name of the new session, otherwise its id.")] = None,
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
    into: Annotated[str, argument("TO", f"A name, or a file that ends with {ENDING}.")],
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
    at: Annotated[str | None, option("NODE", "Go on from this node.")] = None,
    name: Annotated[str | None, option("NAME", "Name of the copy, otherwise a number is added.")] = None,
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
    name: Annotated[str | None, option("NAME", "Name of the new session, otherwise a number is added.")] = None,
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


# --------------------------------------------------------------------------------------------------
# `agent-monitor sessions`: look at stored sessions, check them, copy them, clean up.

PROBLEMS: Final = 1
DAY_S: Final = 86_400

sessions = typer.Typer(
    name="sessions",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@sessions.callback()
def about() -> None:
    """Look at stored sessions: list them, read them, check them, copy them, clean up.

    Examples:
      agent-monitor sessions list
      agent-monitor sessions show 01a2
      agent-monitor sessions export 01a2 --out kept.jsonl
      agent-monitor sessions copy 01a2 backup/01a2.session
      agent-monitor sessions fork 01a2 --at 9f3c
      agent-monitor sessions rm --older-than 30 --dry-run

    Only rm removes sessions, and only trim changes one. The others read them
    while their owner writes. SESSION is a name, an id, a part of either, or a file.
    """


@sessions.command("list")
def list_sessions(
    *,
    database: DatabaseOption = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the sessions of a folder, the one that was written last at the end."""
    where = folder or default_folder() if database is None else without_password(database)
    rows = [listed(one) for one in sessions_in(Path(where))] if database is None else listed_in(database)
    if as_json:
        for row in rows:
            output.write_json(row)
        return
    console = output.stdout()
    if rows:
        session_view.LISTED.show(console, rows)
    total = "" if database else f", {size(sum(row['bytes'] for row in rows))}"
    output.line(console, f"{count(len(rows), 'session')} in {where}{total}")


@sessions.command()
def find(
    text: Annotated[str, argument("TEXT", "Upper and lower case are the same.")],
    *,
    database: DatabaseOption = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search the messages, calls and results of all sessions of a folder.

    Exit code: 0 something was found; 1 nothing was.
    """
    found = [*found_in((place for place, _ in sessions_at(database or folder or default_folder())), text)]
    for one in found:
        name = session_name(one.session)
        if as_json:
            path = without_password(str(one.session))
            told = {"session": name, "path": path, "node": one.node, "run": one.run}
            output.write_json({**told, "turn": one.turn, "at_ms": one.at_ms, "excerpt": one.excerpt})
        else:
            said = Text.assemble((f"{name} ", "bold"), (f"{one.node[-8:]} ", "cyan"), one.excerpt)
            output.stdout().print(said, soft_wrap=True)
    if not found:
        raise typer.Exit(PROBLEMS)


BranchOption: TypeAlias = Annotated[str, option("NAME", "Another branch.", "--branch")]


@sessions.command()
def show(
    session: SessionArgument, *, branch: BranchOption = ACTIVE, folder: FolderOption = None, as_json: JsonOption = False
) -> None:
    """Show a session, and the conversation that the model gets."""
    with opened_reader(session, folder) as found:
        if branch != ACTIVE and branch not in found.heads():
            raise ConfigError(f"the session has no branch {branch!r}; it has {', '.join(found.heads()) or 'none'}")
        context = found.context(branch)
        data = session_view.described(found, context, branch)
        if as_json:
            output.write_json(data)
        else:
            session_view.show_session(output.stdout(), data, context)


@sessions.command()
def tree(session: SessionArgument, *, folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """Show all nodes of a session. Nodes that branch off are indented, and branches are named."""
    with opened_reader(session, folder) as found:
        if as_json:
            for node in found.nodes():
                output.write_json(session_view.node_as_json(node))
            return
        console = output.stdout()
        for line in session_view.tree_lines(found.nodes(), found.heads()):
            if output.is_unbounded(console):
                console.print(line, soft_wrap=True)
            else:
                console.print(line, no_wrap=True, overflow="ellipsis")


@sessions.command()
def events(
    session: SessionArgument,
    *,
    run: Annotated[str | None, option("ID", "Events of this run alone.")] = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the stored events of a session."""
    with opened_reader(session, folder) as found:
        some = found.events(run)
        if as_json:
            for event in some:
                output.write_json(session_view.event_as_json(event))
        elif some:
            session_view.show_events(output.stdout(), some)
        else:
            output.stdout().print("no events are stored")


@sessions.command("export")
def export_session(
    session: SessionArgument,
    *,
    out: Annotated[Path | None, option("FILE", "A new file, otherwise stdout.")] = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a session as lines of JSON: the same session always gives the same bytes."""
    with opened_reader(session, folder) as found:
        if out is None:
            for line in exported(found):
                output.write_json(line)
            return
        lines = 0
        try:
            handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # what models said is in it
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                for line in exported(found):
                    file.write(f"{line}\n")
                    lines += 1
        except OSError as error:
            raise StoreError(f"{out} cannot be written: {error.strerror}") from None
        output.say(as_json, f"{count(lines, 'line')} written to {out}", {"lines": lines, "path": str(out)})


sessions.command("import")(import_session)
sessions.command("copy")(copy_it)
sessions.command("fork")(fork_session)
sessions.command("salvage")(salvage_session)


@sessions.command("trim")
def trim_session(
    session: SessionArgument,
    *,
    erase: Annotated[
        list[str] | None,
        option("TEXT", "Put [erased] in its place. Pieces of answers go."),
    ] = None,
    events_older_than: Annotated[
        float | None,
        option("DAYS", "Remove events of runs that ended before.", min=0),
    ] = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove texts, or old events, from the inside of a session. It is written anew.

    The conversation of an old run stays without its events. With --erase the stored pieces
    of answers go, and the session is not replayed any more. A session in use is refused.
    """
    before_s = None if events_older_than is None else time.time() - events_older_than * DAY_S
    work = partial(trim, found_place(session, folder), erase=erase or (), events_before_s=before_s)
    done = anyio.run(work)
    said = (
        f"{done.events:,} events and {done.pieces:,} rows with pieces of answers removed, a text erased in"
        f" {done.erased:,} rows, {size(done.bytes_after)} left"
    )
    output.say(as_json, said, asdict(done))


@sessions.command()
def verify(given: SessionsArgument = None, *, folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """Check every page, node and long text of the named sessions, or of all.

    Exit code: 0 everything is as it was written; 1 something is not.
    """
    where = folder or default_folder()
    asked = [(one, short_name(found_place(one, folder))) for one in given or ()]
    console, wrong = output.stdout(), 0
    for session, name in asked if given else [(str(one.path), one.name) for one in sessions_in(where)]:
        nodes, problems = _verified(session, folder)
        wrong += bool(problems)
        if as_json:
            output.write_json({"name": name, "ok": not problems, "nodes": nodes, "problems": problems})
        else:
            said = Text.assemble((name, "bold"), f": {count(nodes, 'node')}, ")
            said.append(
                "as written" if not problems else f"{count(len(problems), 'problem')}",
                "red" if problems else "green",
            )
            console.print(said, soft_wrap=True)
            for problem in problems[:20]:
                output.line(console, f"  {problem['what']}", "red")
    raise typer.Exit(PROBLEMS if wrong else 0)


def _verified(given: str, folder: Path | None) -> tuple[int, list[dict[str, Any]]]:
    try:
        with opened_reader(given, folder) as session:
            found = session.verify()
            return session.count(), [{"what": one.what, "seq": one.seq, "node": one.node} for one in found]
    except MonitorError as error:
        return 0, [{"what": str(error), "seq": None, "node": None}]


@sessions.command()
def doctor(*, folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """Show the SQLite and the folder that sessions use here, and whether it can be written."""
    where = folder or default_folder()
    try:
        check_sqlite()
        usable = True
    except ConfigError:
        usable = False
    there = sessions_in(where)
    data = {
        "sqlite": sqlite3.sqlite_version,
        "sqlite_needed": ".".join(map(str, SQLITE_FLOOR)),
        "usable": usable,
        "wal_reset_bug": has_reset_bug(),
        "format": FORMAT,
        "folder": str(where),
        "writable": _writable(where),
        "sessions": len(there),
        "bytes": sum(one.size for one in there),
    }
    if as_json:
        output.write_json(data)
    else:
        _show_doctor(data)
    raise typer.Exit(0 if usable and data["writable"] else PROBLEMS)


def _writable(folder: Path) -> bool:
    """Whether sessions can be made in `folder`, also if the folder itself has to be made first."""
    there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    return there.is_dir() and os.access(there, os.W_OK)


def _show_doctor(data: dict[str, Any]) -> None:
    bug = (
        "has the WAL-reset bug, which one writing connection cannot meet: write sessions with this library only"
        if data["wal_reset_bug"]
        else "has not the WAL-reset bug"
    )
    rows: list[tuple[str, str | Text]] = [
        ("SQLite", f"{data['sqlite']} ({data['sqlite_needed']} or newer is needed); {bug}"),
        ("storage", "one file a session, WAL, synchronous=FULL, one owner"),
        ("format", str(data["format"])),
        ("folder", f"{output.on_one_line(data['folder'])}{'' if data['writable'] else ' (cannot be written)'}"),
        ("sessions", f"{data['sessions']:,}, {size(data['bytes'])}"),
    ]
    output.card(output.stdout(), "sessions", rows, style="cyan" if data["usable"] else "red")


@sessions.command()
def rm(
    given: SessionsArgument = None,
    *,
    older_than: Annotated[float | None, option("DAYS", "Sessions not written for this long.", min=0)] = None,
    over: Annotated[float | None, option("MB", "The oldest, until the others have this size.", min=0)] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Say what would be removed.")] = False,
    folder: FolderOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove whole sessions: by name, by age, by size. A session in use stays.

    Exit code: 0 done; 1 some are in use; 2 nothing was named.
    """
    limits = older_than is not None or over is not None
    if bool(given) is limits:
        raise ConfigError("name the sessions to remove, or give --older-than or --over")
    if given and database:
        raise ConfigError(f"name a session in a database by its address, such as {without_password(database)}#NAME")
    removed, busy = ([], []) if limits else _by_name(given or (), folder, dry=dry_run)
    if limits:
        done = retain(
            database or folder or default_folder(),
            max_age_s=None if older_than is None else older_than * DAY_S,
            max_bytes=None if over is None else round(over * 1e6),
            dry=dry_run,
        )
        removed, busy = [one.name for one in done.removed], [one.name for one in done.busy]
    would = "would be removed" if dry_run else "removed"
    said = f"{count(len(removed), 'session')} {would}{': ' if removed else ''}{', '.join(removed)}"
    if busy:
        said += f"; in use, and left: {', '.join(busy)}"
    output.say(as_json, said, {"removed": removed, "busy": busy, "dry_run": dry_run})
    raise typer.Exit(PROBLEMS if busy else 0)


def _by_name(given: Sequence[str], folder: Path | None, *, dry: bool) -> tuple[list[str], list[str]]:
    places = [found_place(one, folder) for one in given]
    for place in places:  # all are found before any is removed
        if is_database(place):
            reader_at(place).close()
    for place in places if not dry else ():
        remove(place)
    return [short_name(place) for place in places], []

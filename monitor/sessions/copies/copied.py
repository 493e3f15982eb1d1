"""Sessions in files and in databases: copied from one to the other, forked, removed."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from monitor.errors import StoreError
from monitor.sessions.copies.json_lines import exported, imported
from monitor.sessions.files import copy_file, fork_file, remove_file
from monitor.sessions.nodes import ID_CHANCE_BYTES, canonical, new_id
from monitor.sessions.postgres.postgres_reader import SessionsReader
from monitor.sessions.postgres.session_address import is_database, parts_of, reader_at
from monitor.sessions.tree import ACTIVE

Place = str | PathLike[str]
"""The file of a session, or `postgresql://user@host/db#name`."""


def copy_session(source: Place, into: Place) -> None:
    """Copy a session with its id, also one that is being written: all that is stored now, with its
    long texts. A plain copy of an open file has neither. `source`, `into`: files, or
    `postgresql://user@host/db#name`.

    Raises `StoreError` if `into` exists already. A database has no two sessions with one id.
    """
    if not is_database(source) and not is_database(into):
        copy_file(Path(source), Path(into))
        return
    with reader_at(source) as session:
        imported(exported(session), _place(into))


def fork(source: Place, into: Place, *, at: str | None = None, clock_s: float | None = None) -> str:
    """Copy a session, also one that is being written, with an id of its own. Returns that id.
    `source`, `into`: files, or `postgresql://user@host/db#name`.

    `at`: the node at which the copy's active path ends. Raises `StoreError` if `into` exists
    already, or if the session has no such node.
    """
    if not is_database(source) and not is_database(into):
        return fork_file(Path(source), Path(into), at=at, clock_s=clock_s)
    at_ms = round((time.time() if clock_s is None else clock_s) * 1000)
    id = new_id(at_ms, secrets.token_bytes(ID_CHANCE_BYTES))
    with reader_at(source) as session, session.snapshot():
        if at is not None and all(node.id != at for node in session.nodes()):
            raise StoreError(f"there is no node {at}")
        imported(
            _forked(exported(session), {"id": id, "created_ms": at_ms, "forked_from": session.id}, at), _place(into)
        )
    return id


def _place(given: Place) -> Path | str:
    return given if is_database(given) else Path(given)


def _forked(lines: Iterator[str], facts: dict[str, object], at: str | None) -> Iterator[str]:
    """The lines of an export with other facts about the session, and another end of its path."""
    yield canonical(json.loads(next(lines)) | facts)
    yield from lines
    if at is not None:  # the last line about a branch counts
        yield canonical({"type": "head", "name": ACTIVE, "node": at})


def remove(place: Place) -> None:
    """Remove a session, and what we have made beside it. Nothing else is touched. `place`: its
    file, or `postgresql://user@host/db#name`.

    Raises `SessionBusy` while it has an owner, and `SessionDamaged` if it is no session.
    """
    if not is_database(place):
        remove_file(Path(place))
        return
    address, name = parts_of(place)
    with SessionsReader(address) as there:
        there.remove(name)

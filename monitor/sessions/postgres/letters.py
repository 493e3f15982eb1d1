"""Messages of other processes to the runs of a session, as rows."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from monitor.errors import ConfigError, StoreError
from monitor.messages import SteerMessage
from monitor.sessions.beside.mailbox import Letter, letter_codec
from monitor.sessions.nodes import canonical
from monitor.sessions.postgres.database import Database
from monitor.sessions.postgres.session_rows import kept

if TYPE_CHECKING:
    from monitor.sessions.postgres.database import Connection

LOOK_S: Final = 0.5
"""Seconds between two questions for letters."""
_NUMBER: Final = "(select number from monitor_sessions where name = %s)"
_PUT: Final = f"insert into monitor_letters (session, id, body) values ({_NUMBER}, %s, %s) on conflict do nothing"  # noqa: S608 - a fixed text
_LETTERS: Final = f"select id, body from monitor_letters where session = {_NUMBER} order by id"  # noqa: S608 - a fixed text
_REMOVE: Final = f"delete from monitor_letters where session = {_NUMBER} and id = any(%s)"  # noqa: S608 - a fixed text


class Letters:
    """The mailbox of the session `name`. The event loop asks it often, so it answers with what a
    worker thread has read within the last second.
    """

    def __init__(self, name: str) -> None:
        self._name = kept(name)
        self._database: Database | None = None
        self._known: list[Letter] = []
        self._gone: set[str] = set()
        self._looked_s = float("-inf")
        self._looks = False

    def connect(self, database: Database | None) -> None:
        """Read from `database` from now on. `None`: the session is closed."""
        self._database = database
        if database is None:
            self._known, self._looks, self._looked_s = [], False, float("-inf")

    def put(self, run: str, message: SteerMessage) -> Letter:
        """See `Mailbox.put`."""
        if self._database is None:
            raise StoreError("the session is closed")
        letter = made(run, message)
        self._database.run(lambda one: put(one, self._name, letter))
        return letter

    def letters(self) -> list[Letter]:
        """See `Mailbox.letters`."""
        if self._database is not None and not self._looks and time.monotonic() - self._looked_s >= LOOK_S:
            self._looks = True
            self._database.workers.submit(self._look, self._database)
        return [one for one in self._known if one.file not in self._gone]

    def remove(self, letters: Iterable[Letter]) -> None:
        """See `Mailbox.remove`."""
        files = [one.file for one in letters]
        self._gone.update(files)
        if self._database is not None and files:
            self._database.workers.submit(self._remove, self._database, files)

    def _look(self, database: Database) -> None:
        try:
            self._known = database.run(lambda one: read(one, self._name), patience_s=0)
        except StoreError:  # it is looked at again
            return
        finally:
            self._looked_s = time.monotonic()
            self._looks = False

    def _remove(self, database: Database, files: list[str]) -> None:
        try:
            database.run(lambda one: one.execute(_REMOVE.encode(), (self._name, files)))
        except StoreError:  # the id of the message says that it is stored
            return


def made(run: str, message: SteerMessage) -> Letter:
    """A new letter. Raises `ConfigError` for an empty text."""
    if not message.text.strip():
        raise ConfigError("a message to a run has a text")
    sent_at_s = time.time()
    file = f"{int(sent_at_s * 1000):014}-{secrets.token_hex(8)}"
    return Letter(run=run, message=message, sent_at_s=sent_at_s, file=file)


def put(connection: Connection, name: str, letter: Letter) -> None:
    """Store a letter. A second time changes nothing."""
    connection.execute(_PUT.encode(), (name, letter.file, canonical(letter_codec.to_dict(letter))))


def read(connection: Connection, name: str) -> list[Letter]:
    """The letters that are there, oldest first. One that cannot be read is left where it is."""
    found: list[Letter] = []
    for _, body in connection.execute(_LETTERS.encode(), (name,)).fetchall():
        try:
            found.append(letter_codec.from_dict(json.loads(body)))
        except ValueError:
            continue
    return found

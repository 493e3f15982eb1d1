"""Messages of other processes to the runs of a session, as rows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from anyio import to_thread

from monitor.errors import StoreError
from monitor.messages import ApprovalAnswer, SteerMessage
from monitor.sessions.mail.mailbox import AnswerLetter, Letter, letter_codec, made, new_file
from monitor.sessions.nodes import canonical
from monitor.sessions.postgres.database import Database
from monitor.sessions.tables.rows import kept

if TYPE_CHECKING:
    from monitor.sessions.postgres.database import Connection

L = TypeVar("L", Letter, AnswerLetter)

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
        self._known: list[Letter | AnswerLetter] = []
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
        return self._put(made(run, message, new_file()))

    def put_answer(self, answer: ApprovalAnswer) -> AnswerLetter:
        """See `Mailbox.put_answer`."""
        return self._put(AnswerLetter(answer=answer, file=new_file()))

    def _put(self, letter: L) -> L:
        if self._database is None:
            raise StoreError("the session is closed")
        self._database.run(lambda one: put(one, self._name, letter))
        return letter

    def letters(self) -> list[Letter]:
        """See `Mailbox.letters`."""
        return [one for one in self._all() if isinstance(one, Letter)]

    def answers(self) -> list[AnswerLetter]:
        """See `Mailbox.answers`."""
        return [one for one in self._all() if isinstance(one, AnswerLetter)]

    async def look(self) -> None:
        """See `Mailbox.look`."""
        if self._database is not None:
            await to_thread.run_sync(self._look, self._database)

    def _all(self) -> list[Letter | AnswerLetter]:
        if self._database is not None and not self._looks and time.monotonic() - self._looked_s >= LOOK_S:
            self._looks = True
            self._database.workers.submit(self._look, self._database)
        return [one for one in self._known if one.file not in self._gone]

    def remove(self, letters: Iterable[Letter | AnswerLetter]) -> None:
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


def put(connection: Connection, name: str, letter: Letter | AnswerLetter) -> None:
    """Store a letter. A second time changes nothing."""
    connection.execute(_PUT.encode(), (name, letter.file, canonical(letter_codec.to_dict(letter))))


def read(connection: Connection, name: str) -> list[Letter | AnswerLetter]:
    """The letters that are there, oldest first. One that cannot be read is left where it is."""
    found: list[Letter | AnswerLetter] = []
    for _, body in connection.execute(_LETTERS.encode(), (name,)).fetchall():
        try:
            found.append(letter_codec.from_dict(json.loads(body)))
        except ValueError:
            continue
    return found

"""Messages of other processes to the runs of a session, as rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from anyio import to_thread

from monitor.errors import StoreError
from monitor.sessions.mail.mailbox import AnswerLetter, Letter, Mailbox, decoded, encoded
from monitor.sessions.postgres.database import Database
from monitor.sessions.tables.rows import kept

if TYPE_CHECKING:
    from monitor.sessions.postgres.database import Connection

T = TypeVar("T")

LOOK_S: Final = 0.5
"""Seconds between two questions for letters."""
_NUMBER: Final = "(select number from monitor_sessions where name = %s)"
_PUT: Final = f"insert into monitor_letters (session, id, body) values ({_NUMBER}, %s, %s) on conflict do nothing"  # noqa: S608 - a fixed text
_LETTERS: Final = f"select id, body from monitor_letters where session = {_NUMBER} order by id"  # noqa: S608 - a fixed text
_REMOVE: Final = f"delete from monitor_letters where session = {_NUMBER} and id = any(%s)"  # noqa: S608 - a fixed text


class MailTable(Mailbox):
    """The mailbox of the session `name`, which is asked whenever it is read."""

    def __init__(self, name: str, asked: Callable[[Callable[[Connection], Any]], Any]) -> None:
        """`asked`: does some work with a connection."""
        self._name = kept(name)
        self._asked = asked

    def _store(self, letter: Letter | AnswerLetter) -> None:
        self._asked(lambda one: one.execute(_PUT.encode(), (self._name, letter.file, encoded(letter))))

    def _all(self) -> Sequence[Letter | AnswerLetter]:
        rows = self._asked(lambda one: one.execute(_LETTERS.encode(), (self._name,)).fetchall())
        return [letter for id, body in rows if (letter := decoded(body, id)) is not None]

    def take_back(self, letter: Letter) -> bool:
        """See `Mailbox.take_back`."""
        return bool(self._asked(lambda one: one.execute(_REMOVE.encode(), (self._name, [letter.file])).rowcount))

    def remove(self, letters: Iterable[Letter | AnswerLetter]) -> None:
        """See `Mailbox.remove`."""
        files = [one.file for one in letters]
        self._asked(lambda one: one.execute(_REMOVE.encode(), (self._name, files)))


class Letters(MailTable):
    """The mailbox of a session for its owner. The event loop asks it often, so it answers with what
    a worker thread has read within the last second.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, self._in_database)
        self._database: Database | None = None
        self._known: Sequence[Letter | AnswerLetter] = ()
        self._gone: set[str] = set()
        self._looked_s = float("-inf")
        self._looks = False
        self._is_open = False

    def connect(self, database: Database | None) -> None:
        """Read from `database` from now on. `None`: the session is closed."""
        self._is_open = database is not None
        self._database = database or self._database  # letters are still removed
        self._known, self._looks, self._looked_s = (), False, float("-inf")

    def _in_database(self, work: Callable[[Connection], T]) -> T:
        if self._database is None:
            raise StoreError("the session is closed")
        return self._database.run(work)

    def _store(self, letter: Letter | AnswerLetter) -> None:
        if not self._is_open:
            raise StoreError("the session is closed")
        super()._store(letter)

    async def look(self) -> None:
        """See `Mailbox.look`."""
        if self._is_open:
            await to_thread.run_sync(self._look)

    def _all(self) -> list[Letter | AnswerLetter]:
        if (
            self._is_open
            and self._database is not None
            and not self._looks
            and time.monotonic() - self._looked_s >= LOOK_S
        ):
            self._looks = True
            self._database.workers.submit(self._look)
        return [one for one in self._known if one.file not in self._gone]

    def remove(self, letters: Iterable[Letter | AnswerLetter]) -> None:
        """See `Mailbox.remove`."""
        gone = [*letters]
        self._gone.update(one.file for one in gone)
        if self._database is not None and gone:
            self._database.workers.submit(self._remove, gone)

    def _look(self) -> None:
        try:
            self._known = super()._all()
        except StoreError:  # it is looked at again
            return
        finally:
            self._looked_s = time.monotonic()
            self._looks = False

    def _remove(self, letters: Iterable[Letter | AnswerLetter]) -> None:
        try:
            super().remove(letters)
        except StoreError:  # the id of the message says that it is stored
            return

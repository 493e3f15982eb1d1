"""One digest over everything that a session in a database holds: for each table a sum of its rows'
digests, as in a file; see `monitor.sessions.tables.seal`.

The owner knows the sums, and each step writes them with its rows. Letters are not in them: other
processes write those.
"""

# ruff: noqa: S608 - only names of tables and columns are put into a statement; values are not

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from monitor.errors import SessionDamaged
from monitor.sessions.postgres.statements import COLUMNS, PARTS
from monitor.sessions.tables.seal import MODULUS, MOST_ROWS, row_digest
from monitor.sessions.tree import TreeProblem

if TYPE_CHECKING:
    from monitor.sessions.postgres.database import Connection

KEYS: Final = {"heads": "name", "runs": "id", "calls": "key", "approvals": "id"}
"""The columns that name a row of the tables whose rows change."""
_STORED: Final = "select to_jsonb(mine) ->> 'seal' from monitor_sessions mine where number = %s"
"""The seal of a session; NULL as well in tables of an older version, which have no such column."""
_FACTS: Final = "session"
"""The sum over the facts of the session itself."""


class SessionSeal:
    """The sums of a session, as its owner knows them."""

    def __init__(self, sums: Mapping[str, int], rows: Mapping[tuple[str, str], int] | None = None) -> None:
        """`rows`: the digests of rows that may change, as far as known, by table and key."""
        self._sums = dict(sums)
        self._rows = dict(rows or {})

    def after(
        self,
        rows: Mapping[str, Sequence[Mapping[str, Any]]],
        connection: Connection,
        session: int,
        *,
        new: Collection[tuple[str, str]],
    ) -> SessionSeal:
        """The sums after a step that writes `rows`, by their tables. `new`: the tables and keys of
        rows that are known not to be there.
        """
        sums, known = dict(self._sums), dict(self._rows)
        for table, some in rows.items():
            of_table = {(table, row[KEYS[table]]) for row in some} if table in KEYS else set()
            asked = [key for _, key in of_table - known.keys() - {*new}]
            gone = [row_digest(table, row) for row in _rows_of(connection, table, session, asked)]
            gone += [known.pop(one) for one in of_table & known.keys()]
            digests = [row_digest(table, [row[name] for name in COLUMNS[table]]) for row in some]
            sums[table] = (sums[table] + sum(digests) - sum(gone)) % MODULUS
            if table in KEYS:
                known |= {(table, row[KEYS[table]]): digest for row, digest in zip(some, digests, strict=True)}
        while len(known) > MOST_ROWS:
            del known[next(iter(known))]
        return SessionSeal(sums, known)

    def stored(self) -> str:
        """The sums as they are stored."""
        return json.dumps({table: f"{number:032x}" for table, number in self._sums.items()})

    def differs(self, sums: Mapping[str, int]) -> list[str]:
        """The tables whose sums are others."""
        return [table for table, number in sums.items() if number != self._sums[table]]


def broken(connection: Connection, session: int) -> Iterator[TreeProblem]:
    """The tables that are not as they were written. None, if an older version wrote the session."""
    found = connection.execute(_STORED, (session,)).fetchone()
    if found is None or found[0] is None:
        return
    try:
        for table in seal_of(found[0]).differs(sums_of(connection, session)):
            yield TreeProblem(f"the table {table} is not as it was written: its digest differs")
    except SessionDamaged as error:
        yield TreeProblem(str(error))


def seal_of(stored: str) -> SessionSeal:
    """The seal that a session says. Raises `SessionDamaged`."""
    try:
        sums = {table: int(number, 16) for table, number in json.loads(stored).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise SessionDamaged(f"the digests of the session cannot be read: {error}") from None
    if sums.keys() != {_FACTS, *PARTS}:
        raise SessionDamaged("the digests of the session are not those of its tables")
    return SessionSeal(sums)


def sums_of(connection: Connection, session: int) -> dict[str, int]:
    """The sums of the rows that are there."""
    facts = connection.execute("select id, created_ms from monitor_sessions where number = %s", (session,)).fetchall()
    sums = {_FACTS: sum(row_digest(_FACTS, row) for row in facts) % MODULUS}
    for table in PARTS:
        sums[table] = sum(row_digest(table, row) for row in _rows_of(connection, table, session, None)) % MODULUS
    return sums


def _rows_of(connection: Connection, table: str, session: int, keys: Sequence[str] | None) -> list[tuple[Any, ...]]:
    """The rows of a table, all or those with these keys."""
    sql = f"select {', '.join(COLUMNS[table])} from monitor_{table} where session = %s"
    if keys is None:
        return connection.execute(sql.encode(), (session,)).fetchall()
    if not keys:
        return []
    return connection.execute(f"{sql} and {KEYS[table]} = any(%s)".encode(), (session, [*keys])).fetchall()

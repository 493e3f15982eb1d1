"""One digest over everything that a session holds: for each table a sum of its rows' digests.

The chain of the nodes shows one changed node. The sums show every other change too: a call that was
set back, an event that is missing, a branch that ends elsewhere. Adding a row adds its digest, and
changing it takes the old digest away, so a step costs the same however much is stored. Sums are
taken modulo 2**128. They find accidents: somebody who can write the file can write the sums too.

The owner knows the sums, and each step writes them with its rows. Letters are not in them: other
processes write those.
"""

# ruff: noqa: S608 - only names of tables and columns are put into a statement; values are not

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from monitor.errors import SessionDamaged
from monitor.sessions.tables.schema import COLUMNS, KEYS, SqlConnection
from monitor.sessions.tree import TreeProblem

MODULUS: Final = 1 << 128
"""Sums are taken modulo this."""
_FACTS: Final = {"session": "select id, created_ms, forked_from from monitor_sessions where number = ?"}
SEALED: Final = _FACTS | {
    table: f"select {', '.join(columns)} from monitor_{table} where session = ?" for table, columns in COLUMNS.items()
}
"""The rows that each sum is over, with their columns in the order in which they are digested."""
_STORED: Final = "select seal, step from monitor_sessions where number = ?"
OLDER: Final = "older"
"""Stands in the place of the sums of an older version. The next step takes them anew."""
MOST_ROWS: Final = 256
"""The most rows that may change whose digests are remembered."""


def row_digest(table: str, row: Sequence[Any]) -> int:
    """The digest of one row: BLAKE2b over the table, the kinds and lengths of the values, and the
    values.
    """
    kinds: list[str] = []
    values: list[bytes] = []
    for value in row:
        if isinstance(value, str):
            data = value.encode("utf-8", "surrogatepass")
        elif value is None:
            data = b""
        elif isinstance(value, int):
            data = b"%d" % value
        else:
            data = value if isinstance(value, bytes) else repr(value).encode()
        kinds.append(f"{type(value).__name__}{len(data)}")
        values.append(data)
    hashed = hashlib.blake2b(f"{table}:{','.join(kinds)}\n".encode() + b"".join(values), digest_size=16)
    return int.from_bytes(hashed.digest(), "big")


class Seal:
    """The sums of a session, as its owner knows them."""

    def __init__(self, sums: Mapping[str, int], rows: Mapping[tuple[str, str], int] | None = None) -> None:
        """`rows`: the digests of rows that may change, as far as known, by table and key."""
        self._sums = dict(sums)
        self._rows = dict(rows or {})

    @classmethod
    def of(cls, connection: SqlConnection, session: int) -> Seal:
        """The sums that a session says, or those of its rows, if it has none yet. Raises
        `SessionDamaged`.
        """
        said, step = connection.execute(_STORED, (session,)).fetchone()
        if said == OLDER or (said is None and not step):
            return cls(sums_of(connection, session))
        try:
            sums = {table: int(number, 16) for table, number in json.loads(str(said)).items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise SessionDamaged(f"the digests of the session cannot be read: {error}") from None
        if sums.keys() != SEALED.keys():
            raise SessionDamaged("the digests of the session are not those of its tables")
        return cls(sums)

    def after(
        self,
        rows: Mapping[str, Sequence[Mapping[str, Any]]],
        connection: SqlConnection,
        session: int,
        *,
        new: Collection[tuple[str, str]],
    ) -> Seal:
        """The sums after a step that writes `rows`, by their tables. `new`: the tables and keys of
        rows that are known not to be there.
        """
        sums, known = dict(self._sums), dict(self._rows)
        for table, some in rows.items():
            digests = [row_digest(table, [row[name] for name in COLUMNS[table]]) for row in some]
            sums[table] += sum(digests)
            for row, digest in zip(some, digests, strict=True) if table in KEYS else ():
                key = table, row[KEYS[table]]
                if key in known:
                    sums[table] -= known[key]
                elif key not in new:
                    before = connection.execute(f"{SEALED[table]} and {KEYS[table]} = ?", (session, key[1]))
                    sums[table] -= sum(row_digest(table, one) for one in before.fetchall())
                known[key] = digest
            sums[table] %= MODULUS
        while len(known) > MOST_ROWS:
            del known[next(iter(known))]
        return Seal(sums, known)

    def stored(self) -> str:
        """The sums as they are stored."""
        return json.dumps({table: f"{number:032x}" for table, number in self._sums.items()})

    def differs(self, sums: Mapping[str, int]) -> Iterator[TreeProblem]:
        """The tables whose sums are others."""
        for table, number in sums.items():
            if number != self._sums[table]:
                yield TreeProblem(f"the table {table} is not as it was written: its digest differs")


def sums_of(connection: SqlConnection, session: int) -> dict[str, int]:
    """The sums of the rows that are there."""
    return {
        table: sum(row_digest(table, row) for row in connection.execute(select, (session,))) % MODULUS
        for table, select in SEALED.items()
    }


def broken(connection: SqlConnection, session: int) -> Iterator[TreeProblem]:
    """The tables that are not as they were written."""
    try:
        yield from Seal.of(connection, session).differs(sums_of(connection, session))
    except SessionDamaged as error:
        yield TreeProblem(str(error))

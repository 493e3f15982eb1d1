"""One digest over everything that a session holds: for each table a sum of its rows' digests.

The chain of the nodes shows one changed node. The sums show every other change too: a call that was
set back, an event that is missing, a branch that ends elsewhere. Adding a row adds its digest, and
changing it takes the old digest away, so a step costs the same however much is stored. Sums are
taken modulo 2**128. They find accidents: somebody who can write the file can write the sums too.

The row `in_use` says that an owner writes, whose steps may stand in the log alone. It is in the
file itself before the first step is acknowledged. So a file with it and without its log has lost
steps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from monitor.errors import SessionDamaged
from monitor.sessions.tables.schema import SqlConnection
from monitor.sessions.tree import TreeProblem

KEY: Final = "seal"
"""The row of `meta` that has the sums. It is in no sum itself."""
IN_USE: Final = "in_use"
"""The row of `meta` that is 1 while an owner writes, and whose steps may stand in the log alone."""
FIRST_FORMAT: Final = 3
"""Sessions of older formats have no seal until their first write."""
MODULUS: Final = 1 << 128
"""Sums are taken modulo this."""
TABLES: Final = {
    "schema": "SELECT type, name, tbl_name, sql FROM sqlite_schema",
    "meta": "SELECT key, value FROM meta WHERE key <> 'seal'",
    "run": "SELECT number, id, parent_run, agent, purpose, state, started_ms, ended_ms, body FROM run",
    "artifact": "SELECT digest, size, kind FROM artifact",
    "node": "SELECT seq, id, parent, kind, run, turn, at_ms, tokens, digest, body, artifact FROM node",
    "head": "SELECT name, node FROM head",
    "call": "SELECT number, run, call_id, node, key, state, body FROM call",
    "approval": "SELECT number, id, run, request, answer FROM approval",
    "event": "SELECT seq, run, at_ms, type, body FROM event",
    "chunk": "SELECT seq, run, turn, at_ms, body FROM chunk",
}
"""The rows of each table, with their columns in the order in which they are digested."""
_KEYS: Final = {"run": "id", "head": "name", "call": "key", "approval": "id"}
"""The columns that name a row of the tables whose rows change."""
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

    def __init__(self, connection: SqlConnection) -> None:
        """Read the sums, or take them anew, if the session has none."""
        self._sums = stored_sums(connection) or sums_of(connection)
        self._rows: dict[tuple[str, str], int] = {}
        """The digests of rows that may change, by table and key."""

    def add(self, table: str, row: Sequence[Any]) -> None:
        """A row was added."""
        self._sums[table] = (self._sums[table] + row_digest(table, row)) % MODULUS

    def add_again(self, table: str, key: str, row: Sequence[Any]) -> None:
        """A row that may change was added, or changed after `take_out`."""
        digest = row_digest(table, row)
        self._sums[table] = (self._sums[table] + digest) % MODULUS
        self._rows[table, key] = digest
        if len(self._rows) > MOST_ROWS:
            del self._rows[next(iter(self._rows))]

    def take_out(self, connection: SqlConnection, table: str, key: str) -> None:
        """The row with this key is about to change. Nothing happens if there is none."""
        digest = self._rows.pop((table, key), None)
        if digest is None:
            found = connection.execute(f"{TABLES[table]} WHERE {_KEYS[table]} = ?", (key,)).fetchone()
            if found is None:
                return
            digest = row_digest(table, found)
        self._sums[table] = (self._sums[table] - digest) % MODULUS

    def meta_changed(self, connection: SqlConnection, *, migrated: bool = False) -> None:
        """Facts about the file were changed. There are only a few. `migrated`: the tables too."""
        self._sums["meta"] = _sum_of(connection, "meta")
        if migrated:
            self._sums["schema"] = _sum_of(connection, "schema")

    def write(self, connection: SqlConnection) -> None:
        """Store the sums, in the transaction of the step."""
        connection.execute(
            "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (KEY, json.dumps({table: f"{number:032x}" for table, number in self._sums.items()})),
        )


def sums_of(connection: SqlConnection) -> dict[str, int]:
    """The sums of the rows that are there."""
    return {table: _sum_of(connection, table) for table in TABLES}


def _sum_of(connection: SqlConnection, table: str) -> int:
    return sum(row_digest(table, row) for row in connection.execute(TABLES[table])) % MODULUS


def stored_sums(connection: SqlConnection) -> dict[str, int] | None:
    """The sums that the session says. `None`: it is of an older format. Raises `SessionDamaged`."""
    found = connection.execute("SELECT value FROM meta WHERE key = ?", (KEY,)).fetchone()
    if found is None:
        return None
    try:
        sums = {table: int(number, 16) for table, number in json.loads(found[0]).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise SessionDamaged(f"the digests of the session cannot be read: {error}") from None
    if sums.keys() != TABLES.keys():
        raise SessionDamaged("the digests of the session are not those of its tables")
    return sums


def seal_anew(connection: SqlConnection) -> None:
    """Store the sums of a session that was filled as a whole. It is not in use."""
    connection.execute("DELETE FROM meta WHERE key IN (?, ?)", (KEY, IN_USE))
    Seal(connection).write(connection)


def broken(connection: SqlConnection, found_format: int) -> Iterator[TreeProblem]:
    """The tables that are not as they were written."""
    stored = stored_sums(connection)
    if stored is None:
        if found_format >= FIRST_FORMAT:
            yield TreeProblem("the digests of the tables are missing")
        return
    if found_format < FIRST_FORMAT:
        yield TreeProblem(f"the session has digests of its tables, and says that its format is {found_format}")
    for table, number in sums_of(connection).items():
        if number != stored[table]:
            yield TreeProblem(f"the table {table} is not as it was written: its digest differs")

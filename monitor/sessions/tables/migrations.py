"""Numbered steps from one format of a session's file to the next.

Step 1 makes the tables. Step 2 adds triggers and the state of a call that waits for an approval.
Step 3 adds the state of a call that waits for its result. It also adds digests of the tables
(`seal`), which the first write takes of what is there. Step 4 adds indexes
by run. A session is opened in its old format, and brought to the present one in the transaction of
its first write: looking never changes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from monitor.errors import SessionTooNew
from monitor.sessions.tables.schema import APPLICATION_ID, FIRST, FOURTH, SECOND, THIRD, SqlConnection

Steps: TypeAlias = Mapping[int, Sequence[str]]
"""For each format, the statements that lead to it from the one before. A step only adds, or makes
an index anew: readers of this version read every older format with the same statements.
"""

STEPS: Final[Steps] = {1: FIRST, 2: SECOND, 3: THIRD, 4: FOURTH}


def format_of(connection: SqlConnection) -> int:
    """The format of a file; 0: it is empty."""
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def check_format(session: str, found: int, steps: Steps = STEPS) -> None:
    """Raise `SessionTooNew` for a format that is not known yet."""
    if found > max(steps):
        raise SessionTooNew(session, found, max(steps))


def migrate(connection: SqlConnection, steps: Steps = STEPS) -> bool:
    """Bring a file to the newest format, in the transaction that the caller has begun. True: the
    format was changed.
    """
    found, newest = format_of(connection), max(steps)
    if found >= newest:
        return False
    for number in range(found + 1, newest + 1):
        for statement in steps[number]:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={newest}")
    return True

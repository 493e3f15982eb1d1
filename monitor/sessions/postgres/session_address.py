"""A session by its address, which is opened while somebody uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import Final, Protocol, TypeGuard, runtime_checkable

import anyio

from monitor.errors import ConfigError
from monitor.sessions.files import sessions_in
from monitor.sessions.postgres.database import LEASE_S
from monitor.sessions.postgres.postgres_reader import AnyReader, PostgresReader, SessionsReader, without_password
from monitor.sessions.postgres.postgres_session import PostgresSession
from monitor.sessions.reader import SessionReader
from monitor.sessions.sqlite_session import SQLiteSession

POSTGRES: Final = ("postgresql://", "postgres://")
"""How the address of a PostgreSQL database begins."""
WAIT_S: Final = LEASE_S + 2
"""Seconds that a run waits for its session: the lease of a dead owner has ended then."""


@runtime_checkable
class OpenedByUse(Protocol):
    """A session that is open while it is used."""

    async def use(self) -> None:
        """Open the session, unless somebody uses it already."""
        ...

    async def leave(self) -> None:
        """Close the session with its last use."""
        ...


@asynccontextmanager
async def in_use(store: object) -> AsyncIterator[None]:
    """Hold a session open in this block, if it is opened by its use."""
    if not isinstance(store, OpenedByUse):
        yield
        return
    await store.use()
    try:
        yield
    finally:
        await store.leave()


class AddressedSession(PostgresSession):
    """A session in PostgreSQL that its runs open and close."""

    def __init__(self, address: str, name: str) -> None:
        super().__init__(address, name, wait_s=WAIT_S)
        self._users = 0
        self._turn = anyio.Lock()

    async def use(self) -> None:
        async with self._turn:
            if not self._users:
                await self.__aenter__()
            self._users += 1

    async def leave(self) -> None:
        with anyio.CancelScope(shield=True):
            async with self._turn:
                self._users -= 1
                if not self._users:
                    await self.aclose()


def reader_at(place: str | PathLike[str]) -> AnyReader:
    """A reader of the session at `place`: its file, or `postgresql://user@host/db#name`."""
    return PostgresReader(*parts_of(place)) if is_database(place) else SessionReader(place)


def owner_at(place: str | PathLike[str], *, create: bool = True) -> SQLiteSession | PostgresSession:
    """The session at `place`, to be opened by its owner. `create`: it may be made."""
    if is_database(place):
        return PostgresSession(*parts_of(place), create=create)
    return SQLiteSession(place, create=create)


def sessions_at(where: str | PathLike[str]) -> list[tuple[str | Path, float]]:
    """The sessions in a folder, or in the database at `postgresql://user@host/db`: the file or the
    address of each, and the time of its last write in seconds since 1970. The newest is at the end.
    """
    if not is_database(where):
        return [(one.path, one.changed_s) for one in sessions_in(Path(where))]
    database = where.partition("#")[0]
    with SessionsReader(database) as there:
        return [(f"{database}#{name}", changed_s) for name, changed_s in there.changed().items()]


def is_database(address: object) -> TypeGuard[str]:
    """Whether it is the address of a database, and not the path of a file."""
    return isinstance(address, str) and address.startswith(POSTGRES)


def session_at(address: str) -> AddressedSession:
    """The session at `postgresql://user@host/db#name`. Raises `ConfigError` for another address."""
    return AddressedSession(*parts_of(address))


def parts_of(address: str) -> tuple[str, str]:
    """The address of the database, and the name of the session. Raises `ConfigError`."""
    where, _, name = address.partition("#")
    if not is_database(where) or not name:
        raise ConfigError(
            f"{without_password(address)!r} names no session: write postgresql://user@host/db#name, with the name of"
            " the session"
        )
    return where, name

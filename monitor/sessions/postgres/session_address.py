"""A session by its address, which is opened while somebody uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeGuard, runtime_checkable

import anyio

from monitor.errors import ConfigError
from monitor.sessions.postgres.database import LEASE_S
from monitor.sessions.postgres.postgres_reader import without_password
from monitor.sessions.postgres.postgres_session import PostgresSession

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

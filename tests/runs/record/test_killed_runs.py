"""A run whose process dies at any commit ends as the run that nothing has disturbed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from monitor.sessions import PostgresSession, SQLiteSession
from tests import databases
from tests.examples import ALL_CASES, every_second
from tests.runs.record.kills import SCENARIOS, Kill, check, in_memory, lived

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_run_that_is_killed_at_any_commit_ends_as_the_undisturbed_one(name: str, anyio_backend_name: str):
    scenario = SCENARIOS[name]
    whole = await lived(scenario, in_memory())
    await check(scenario, whole, whole)
    for at in range(whole.commits):
        for after in every_second((False, True), odd=anyio_backend_name == "trio"):
            once = await lived(scenario, in_memory(), Kill(at, after=after))
            await check(scenario, whole, once)
            assert once.requests <= whole.requests + 1, "an answer that is stored is asked for again"
    for at in range(whole.commits) if ALL_CASES else range(0, whole.commits, 3):
        after = at % 2 == 0  # a second death is tried in one of the two ways
        await check(scenario, whole, await lived(scenario, in_memory(), Kill(at, after=not after), Kill(at + 2, after)))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with databases.postgres() as address:
        yield address


@pytest.mark.parametrize("where", ["a file", "PostgreSQL"])
async def test_the_same_holds_for_a_session_that_is_opened_anew(
    where: str, address: str, tmp_path: Path, anyio_backend_name: str
):
    scenario = SCENARIOS["approval"]
    whole = await lived(scenario, in_memory())
    for at in range(0, whole.commits, 3):
        path, name = tmp_path / f"{at}.session", f"{anyio_backend_name} {at}"

        @asynccontextmanager
        async def opening(path: Path = path, name: str = name) -> AsyncIterator[Any]:
            async with SQLiteSession(path) if where == "a file" else PostgresSession(address, name) as store:
                yield store

        other = await lived(scenario, opening, Kill(at, after=anyio_backend_name == "trio"))
        async with opening() as other.store:
            await check(scenario, whole, other)

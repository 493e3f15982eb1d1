"""A run whose process dies at any commit ends as the run that nothing has disturbed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from monitor.sessions import SQLiteSession
from monitor.sessions.sql_session import SqlSession
from tests.harness.record.kills import SCENARIOS, Kill, check, in_memory, lived

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_run_that_is_killed_at_any_commit_ends_as_the_undisturbed_one(name: str, anyio_backend_name: str):
    scenario = SCENARIOS[name]
    whole = await lived(scenario, in_memory())
    await check(scenario, whole, whole)
    after = anyio_backend_name == "trio"  # each of the two ways on one of the two backends
    for at in range(whole.commits):
        once = await lived(scenario, in_memory(), Kill(at, after=after))
        await check(scenario, whole, once)
        assert once.requests <= whole.requests + 1, "an answer that is stored is asked for again"
        await check(scenario, whole, await lived(scenario, in_memory(), Kill(at, after=not after), Kill(at + 2, after)))


async def test_the_same_holds_for_a_session_in_a_file(tmp_path: Path, anyio_backend_name: str):
    scenario = SCENARIOS["approval"]
    whole = await lived(scenario, in_memory())
    for at in range(0, whole.commits, 3):
        path = tmp_path / f"{at}.session"

        @asynccontextmanager
        async def opening(path: Path = path) -> AsyncIterator[SqlSession]:
            async with SQLiteSession(path) as store:
                yield store

        other = await lived(scenario, opening, Kill(at, after=anyio_backend_name == "trio"))
        async with opening() as other.store:
            await check(scenario, whole, other)

"""What holds for every store of shared rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from monitor.errors import ConfigError, StoreError
from monitor.shared import RowStore, rows_at
from tests import databases

pytestmark = pytest.mark.anyio
KEEP_S = 1_000.0
MOST = 1_000
KINDS = ("sqlite", "valkey", "postgres")


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str], str]]:
    """The address of a server by its name. It is started at the first use."""
    running: dict[str, str] = {}
    with ExitStack() as open_ones:

        def address(name: str) -> str:
            if name not in running:
                running[name] = open_ones.enter_context(getattr(databases, name)())
            return running[name]

        yield address


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, servers: Callable[[str], str], tmp_path: Path) -> str:
    return str(tmp_path / "rows.db") if request.param == "sqlite" else servers(request.param)


@pytest.fixture
async def stores(address: str) -> AsyncIterator[tuple[RowStore, RowStore]]:
    """Two processes, as far as the store can tell."""
    one, other = rows_at(address), rows_at(address)
    yield one, other
    await one.aclose()
    await other.aclose()


def room() -> str:
    """A room that no other test uses: the servers are shared."""
    return uuid4().hex


async def test_a_reader_gets_what_is_newer_than_what_it_has_seen_in_the_order_of_writing(stores: Any) -> None:
    (one, other), here = stores, room()
    first = await one.swap(here, {"a": "1", "b": "ä\n"}, after=0, keep_s=KEEP_S, most=MOST)
    assert [(row.name, row.value) for row in first.rows] == [("a", "1"), ("b", "ä\n")]
    second = await other.swap(here, {"a": "2"}, after=first.version, keep_s=KEEP_S, most=MOST)
    assert [(row.name, row.value) for row in second.rows] == [("a", "2")]
    all_rows = await one.swap(here, {}, after=0, keep_s=KEEP_S, most=MOST)
    assert [row.name for row in all_rows.rows] == ["b", "a"]
    assert [row.version for row in all_rows.rows] == sorted(row.version for row in all_rows.rows)
    assert all_rows.rows[-1].version == all_rows.version == second.version
    assert (await one.swap(here, {}, after=all_rows.version, keep_s=KEEP_S, most=MOST)).rows == []


async def test_rooms_know_nothing_of_each_other(stores: Any) -> None:
    (one, other), here, there = stores, room(), room()
    await one.swap(here, {"a": "1"}, after=0, keep_s=KEEP_S, most=MOST)
    assert (await other.swap(there, {}, after=0, keep_s=KEEP_S, most=MOST)).rows == []


async def test_rows_that_nobody_writes_are_removed_and_versions_go_on(stores: Any) -> None:
    (one, other), here = stores, room()
    before = await one.swap(here, {"a": "1", "b": "1"}, after=0, keep_s=KEEP_S, most=MOST)
    await other.swap(here, {}, after=0, keep_s=-1.0, most=MOST)
    after = await other.swap(here, {"c": "1"}, after=before.version, keep_s=KEEP_S, most=MOST)
    assert [row.name for row in after.rows] == ["c"]
    assert after.version > before.version
    assert "a" not in [row.name for row in (await one.swap(here, {}, after=0, keep_s=KEEP_S, most=MOST)).rows]


async def test_a_reader_of_a_store_that_was_emptied_sees_what_is_written_then(stores: Any) -> None:
    one, _ = stores
    news = await one.swap(room(), {"a": "1"}, after=1_000, keep_s=KEEP_S, most=MOST)
    assert [row.name for row in news.rows] == ["a"]


async def test_no_reader_misses_a_row_that_is_written_beside_it(stores: Any) -> None:
    (one, other), here, seen = stores, room(), list[str]()

    async def write(store: RowStore, name: str) -> None:
        for number in range(20):
            await store.swap(here, {f"{name}{number}": ""}, after=0, keep_s=KEEP_S, most=MOST)

    async with anyio.create_task_group() as group:
        group.start_soon(write, one, "a")
        group.start_soon(write, other, "b")
        version = 0
        while len(seen) < 40:
            news = await other.swap(here, {}, after=version, keep_s=KEEP_S, most=MOST)
            version = news.version
            seen += [row.name for row in news.rows]
    assert len(set(seen)) == len(seen)


async def test_the_oldest_rows_of_a_room_that_has_too_many_are_removed(stores: Any) -> None:
    (one, other), here = stores, room()
    for name in "abcd":
        await one.swap(here, {name: "1"}, after=0, keep_s=KEEP_S, most=3)
    await one.swap(here, {"b": "2"}, after=0, keep_s=KEEP_S, most=3)
    left = await other.swap(here, {}, after=0, keep_s=KEEP_S, most=3)
    assert [row.name for row in left.rows] == ["c", "d", "b"]


@pytest.mark.parametrize("address", ["redis://127.0.0.1:1", "postgresql://127.0.0.1:1/x", "/no/such/folder/rows.db"])
async def test_a_store_that_does_not_answer_says_so(address: str) -> None:
    store = rows_at(address)
    with pytest.raises(StoreError, match=r"the rows in .* cannot be used"):
        await store.swap("here", {}, after=0, keep_s=KEEP_S, most=MOST)
    await store.aclose()


def test_an_address_of_something_else_is_no_store() -> None:
    with pytest.raises(ConfigError, match="no store of rows"):
        rows_at("mysql://x")

"""openai-agents' `Session` on a session of ours: its contract, and what it adds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from monitor.errors import ConfigError
from monitor.integrations import AgentsSession
from monitor.sessions import InMemorySession, SQLiteSession, marker
from tests.sessions.making import says

pytestmark = pytest.mark.anyio

MAKERS: dict[str, Callable[[Path], Any]] = {
    "memory": lambda _: InMemorySession(),
    "sqlite": lambda folder: SQLiteSession(folder / "a.session"),
}


@pytest.fixture(params=list(MAKERS))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    return partial(MAKERS[request.param], tmp_path)


def item(number: int) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": f"{number} \ud800\0", "$node": None}]}


async def test_items_come_back_in_their_order_and_the_newest_of_them_with_a_limit(opened: Callable[[], Any]):
    async with opened() as store:
        session = AgentsSession(store)
        assert await session.get_items() == []
        await session.add_items([item(1), item(2)])
        await session.add_items([])
        await session.add_items([item(3)])
        assert await session.get_items() == [item(1), item(2), item(3)]
        assert await session.get_items(2) == [item(2), item(3)]
        assert await session.get_items(9) == [item(1), item(2), item(3)]
        assert await session.get_items(0) == []
        session.session_settings = type("Settings", (), {"limit": 1})()
        assert await session.get_items() == [item(3)]


async def test_a_popped_item_is_gone_from_the_conversation_and_not_from_the_store(opened: Callable[[], Any]):
    async with opened() as store:
        session = AgentsSession(store)
        assert await session.pop_item() is None
        await session.add_items([item(1), item(2)])
        await store.append(marker("a bookmark"), says("of another part of the program"))
        assert await session.pop_item() == item(2)
        assert await session.get_items() == [item(1)]
        await session.add_items([item(4)])
        assert await session.get_items() == [item(1), item(4)]
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None
        await session.add_items([item(5)])
        assert await session.get_items() == [item(5)]
        assert len(await store.nodes()) == 6
        assert await store.verify() == ()


async def test_conversations_of_one_store_do_not_mix(opened: Callable[[], Any]):
    async with opened() as store:
        one, other = AgentsSession(store), AgentsSession(store, branch="b")
        await one.add_items([item(1)])
        await other.add_items([item(2)])
        assert (await one.get_items(), await other.get_items()) == ([item(1)], [item(2)])
        assert one.session_id == store.id
        assert other.session_id == f"{store.id}:b"


async def test_a_conversation_goes_on_in_another_process(tmp_path: Path):
    for number in (1, 2):
        async with SQLiteSession(tmp_path / "a.session") as store:
            await AgentsSession(store).add_items([item(number)])
    async with SQLiteSession(tmp_path / "a.session") as store:
        assert await AgentsSession(store).get_items() == [item(1), item(2)]


def test_something_else_than_a_store_is_refused():
    with pytest.raises(ConfigError, match="SessionStore"):
        AgentsSession("a.session")  # type: ignore[arg-type]


def test_it_is_the_session_of_the_installed_sdk():
    memory = pytest.importorskip("agents.memory.session", reason="openai-agents is not installed")
    assert isinstance(AgentsSession(InMemorySession()), memory.Session)

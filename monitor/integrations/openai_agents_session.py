"""openai-agents: its `Session`, kept by a session of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from monitor.errors import ConfigError
from monitor.integrations._guarded_requests import newest_nodes
from monitor.sessions import ACTIVE, Node, NodeKind, SessionStore, marker

ITEM: Final = "openai_agents.item"
"""The name of the markers that hold an item."""


class AgentsSession:
    """The history of an agent of openai-agents: acknowledged means stored, and nothing is deleted.

        async with SQLiteSession("work.session") as store:
            await Runner.run(agent, "hello", session=AgentsSession(store))

    `pop_item` and `clear_session` let the branch end earlier. What they leave stays in the file,
    where `agent-monitor sessions tree` shows it.
    """

    session_settings: Any = None
    """The SDK's own settings for this session, e.g. how many items it loads."""

    def __init__(self, store: SessionStore, *, branch: str = ACTIVE) -> None:
        """`branch`: several conversations may share a store, each on a branch of its own. One
        conversation is written by one task at a time, as the SDK does.
        """
        if not callable(getattr(store, "append", None)):
            raise ConfigError(f"a SessionStore is needed, not {type(store).__name__}")
        self._store = store
        self._branch = branch
        self.session_id = store.id if branch == ACTIVE else f"{store.id}:{branch}"

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The items of the conversation, oldest first; with `limit` the newest ones."""
        if limit is None:
            limit = getattr(self.session_settings, "limit", None)
        number = None if limit is None else max(0, limit)
        return [node.data["data"] for node in await newest_nodes(self._store, self._branch, number, _is_item)]

    async def add_items(self, items: Sequence[Any]) -> None:
        """Store items, all or none, behind the others."""
        if items:
            await self._store.append(*(marker(ITEM, item) for item in items), branch=self._branch)

    async def pop_item(self) -> Any:
        """Take the newest item off the conversation. `None`: there is none."""
        for node in await newest_nodes(self._store, self._branch, 1, _is_item):
            await self._store.switch_node(node.parent, branch=self._branch)
            return node.data["data"]
        return None

    async def clear_session(self) -> None:
        """Begin the conversation anew, on the same branch."""
        await self._store.switch_node(None, branch=self._branch)


def _is_item(node: Node) -> bool:
    return node.kind is NodeKind.MARKER and node.data.get("name") == ITEM

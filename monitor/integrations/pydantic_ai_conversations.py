"""Pydantic AI (2.66 or newer): its `ConversationStore`, kept by a session of ours.

async with SQLiteSession("talks.session") as session:
store = StoredConversations(session)
conversation = await store.load("a") or Conversation(conversation_id="a")
result = await agent.run("hello", conversation=conversation)
await store.save(result)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import anyio

from monitor.errors import ConfigError, MissingExtra, SessionDamaged
from monitor.integrations._guarded_requests import newest_nodes
from monitor.sessions import FOLLOW, Changes, Draft, Node, NodeKind, SessionStore, marker

try:
    import pydantic
    import pydantic_ai
    from pydantic_ai.messages import ModelMessagesTypeAdapter
except ImportError:
    raise MissingExtra("pydantic-ai-slim", "pydantic-ai") from None
try:
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
except ImportError:
    raise ConfigError(
        f"conversations need pydantic-ai-slim 2.66 or newer, and {pydantic_ai.__version__} is installed"
    ) from None

__all__ = ["StoredConversations"]

ENTRY: Final = "pydantic_ai.entry"
RECORD: Final = "pydantic_ai.record"
"""The names of the markers that hold an entry, and the newest record of a conversation."""
BRANCH: Final = "pydantic_ai:"
"""A conversation is a branch of the session: this, and its id in the form of an address."""

_records: pydantic.TypeAdapter[list[ConversationRecord]] = pydantic.TypeAdapter(
    list[ConversationRecord], config=pydantic.ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
)  # of a list, because a configuration for a dataclass itself would have no effect


class StoredConversations(ConversationStore):
    """The conversations of Pydantic AI in a session: acknowledged means stored, and a save is
    stored whole or not at all.

    Any number of conversations may share a session, each on a branch of its own. An entry is a node
    behind the entry before it, so forks and branches share nodes. Nothing is erased: `delete` takes
    a conversation off the list, and its entries stay in the file. To erase, remove the session.
    """

    def __init__(self, session: SessionStore) -> None:
        """`session`: open as long as the store is used."""
        if not callable(getattr(session, "commit", None)):
            raise ConfigError(f"a SessionStore is needed, not {type(session).__name__}")
        self._session = session
        self._nodes: dict[str, str] = {}
        """The node of each entry that was read or written: no other process writes."""
        self._has_all = False
        """Whether all entries of the session are among them."""
        self._branches: dict[str, str] = {}
        """The branch of each conversation that was read or written, by its newest entry."""
        self._lock = anyio.Lock()

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        return await self._record_on(_branch(conversation_id))

    async def _record_on(self, branch: str) -> ConversationRecord | None:
        """The record of the conversation on `branch`. `None`: there is none."""
        path = await self._session.active_path(branch, last=1)
        if not path:
            return None
        if not _holds(path[0], RECORD):
            raise SessionDamaged(f"the node {path[0].id} should be the record of a conversation")
        (record,) = _records.validate_python([path[0].data["data"]])
        if record.head_id is not None:
            self._branches[record.head_id] = branch
        return record

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        read = [await self._record_on(name) for name in await self._session.heads() if name.startswith(BRANCH)]
        found = [one for one in read if one is not None and (scope is None or one.scope == scope)]
        found.sort(key=lambda record: record.updated_at, reverse=True)
        return found[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """See `ConversationStore`. The entries and the record are one step."""
        async with self._lock:
            await self._check(record.conversation_id, expected_revision)
            new = {entry.id for entry in new_entries}
            for id in {record.head_id, *(entry.parent_id for entry in new_entries)} - new:
                if id is not None and await self._node_of(id) is None:
                    raise ConversationConflict(record.conversation_id)
            drafts = _drafts(record, new_entries, self._nodes)
            branch = _branch(record.conversation_id)
            committed = await self._session.commit(Changes(nodes=drafts, branch=branch))
            self._nodes |= {entry.id: node.id for entry, node in zip(new_entries, committed.nodes, strict=False)}
            if record.head_id is not None:
                self._branches[record.head_id] = branch

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """See `ConversationStore`. The entries stay in the file."""
        async with self._lock:
            await self._check(conversation_id, expected_revision)
            await self._session.switch_node(None, branch=_branch(conversation_id))

    async def _check(self, conversation_id: str, expected_revision: str | None) -> None:
        stored = await self.read_record(conversation_id)
        if (stored.revision if stored is not None else None) != expected_revision:
            raise ConversationConflict(conversation_id)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        id = await self._node_of(entry_id)
        node = await self._session.find_node(id) if id is not None else None
        if node is None:
            raise LookupError(entry_id)
        return _entry(node)

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """See `ConversationStore`. The history of a conversation as it stands is one query."""
        if head_id is None:
            return []
        if (branch := self._branches.get(head_id)) is not None:
            nodes = await newest_nodes(self._session, branch, limit, lambda one: _holds(one, ENTRY))
            entries = [*map(_entry, nodes)]
            if entries and entries[-1].id == head_id:
                self._nodes |= {entry.id: node.id for entry, node in zip(entries, nodes, strict=True)}
                return entries
        return await super().read_history(head_id, limit=limit)

    async def _node_of(self, entry_id: str) -> str | None:
        """The id of the node that holds an entry. `None`: the session has no such entry."""
        if entry_id not in self._nodes and not self._has_all:
            nodes = await self._session.nodes()
            self._nodes = {node.data["data"]["id"]: node.id for node in nodes if _holds(node, ENTRY)}
            self._has_all = True
        return self._nodes.get(entry_id)


def _branch(conversation_id: str) -> str:
    """The branch of a conversation. An id may be any text, and SQLite holds no lone surrogate."""
    return BRANCH + quote(conversation_id, safe=" /:@", errors="surrogatepass")


def _drafts(record: ConversationRecord, new_entries: Sequence[ConversationEntry], nodes: dict[str, str]) -> list[Draft]:
    """A draft for each entry behind the one that it points to, and the record at the end."""
    drafts: list[Draft] = []
    before: str | None = None
    for entry in new_entries:
        follows = bool(drafts) and entry.parent_id == before
        drafts.append(_draft(ENTRY, _plain(entry), FOLLOW if follows else nodes.get(entry.parent_id or "")))
        before = entry.id
    follows = bool(drafts) and record.head_id == before
    (data,) = _records.dump_python([record], mode="json")
    return [*drafts, _draft(RECORD, data, FOLLOW if follows else nodes.get(record.head_id or ""))]


def _draft(name: str, data: Any, parent: Any) -> Draft:
    made = marker(name, data)
    return Draft(kind=made.kind, body=made.body, parent=parent)


def _plain(entry: ConversationEntry) -> dict[str, Any]:
    (message,) = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json")
    return {"id": entry.id, "parent_id": entry.parent_id, "kind": entry.kind, "message": message}


def _entry(node: Node) -> ConversationEntry:
    data = node.data["data"]
    (message,) = ModelMessagesTypeAdapter.validate_python([data["message"]])
    return ConversationEntry(id=data["id"], parent_id=data["parent_id"], message=message)


def _holds(node: Node, name: str) -> bool:
    return node.kind is NodeKind.MARKER and node.data.get("name") == name

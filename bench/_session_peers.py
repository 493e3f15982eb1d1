"""Other libraries' stores of a conversation, where they are installed, with the same messages."""

from __future__ import annotations

import importlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

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
    empty = importlib.import_module("langgraph.checkpoint.base").empty_checkpoint
    history: list[str] = []
    async with saver_class.from_conn_string(str(folder / "peer.db")) as saver:
        config: dict[str, Any] = {"configurable": {"thread_id": "s", "checkpoint_ns": ""}}

        async def append(text: str) -> None:
            nonlocal config
            history.append(text)
            version = f"{len(history):032}"
            checkpoint = {**empty(), "channel_values": {"messages": list(history)}}
            checkpoint["channel_versions"] = {"messages": version}
            config = await saver.aput(config, checkpoint, {"step": len(history)}, {"messages": version})

        yield append


PEERS = {"openai-agents SQLiteSession": openai_agents, "LangGraph AsyncSqliteSaver": langgraph}
MODULES = {
    "openai-agents SQLiteSession": "agents",
    "LangGraph AsyncSqliteSaver": "langgraph.checkpoint.sqlite.aio",
}


def installed() -> list[str]:
    """The peers that can be measured here."""
    found = []
    for name, module in MODULES.items():
        try:
            importlib.import_module(module)
        except ImportError:
            continue
        found.append(name)
    return found


async def timed(append: Append, texts: Sequence[str]) -> list[float]:
    """Seconds of each append."""
    took = []
    for text in texts:
        began = time.perf_counter()
        await append(text)
        took.append(time.perf_counter() - began)
    return took

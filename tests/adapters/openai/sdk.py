"""The real OpenAI SDK against a local server: both of its APIs, on both of its transports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import openai
import pytest
from openai import AsyncOpenAI
from openai._models import construct_type
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent

from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.chunks import Chunk
from monitor.testing import LocalOpenAI

TRANSPORTS = ["aiohttp", "httpx2"]
APIS = ["chat", "responses"]

# The SDK's aiohttp transport leaves a connection that was cut to the collector.
aiohttp_warnings = pytest.mark.filterwarnings("ignore:Unclosed connection:ResourceWarning")


@asynccontextmanager
async def sdk(server: LocalOpenAI, transport: str = "httpx2", *, retries: int = 0) -> AsyncIterator[AsyncOpenAI]:
    options: dict[str, Any] = {"http_client": openai.DefaultAioHttpClient()} if transport == "aiohttp" else {}
    async with AsyncOpenAI(api_key="x", base_url=server.base_url, max_retries=retries, **options) as client:
        yield client


async def stream(client: AsyncOpenAI, api: str = "chat", **options: Any) -> Any:
    if api == "chat":
        return await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hello"}], stream=True, **options
        )
    return await client.responses.create(model="m", input="hello", stream=True, **options)


async def received(client: AsyncOpenAI, api: str = "chat") -> list[Any]:
    return [item async for item in await stream(client, api)]


def chunk_of(event: Any) -> Any:
    """A chunk of chat completions, as the SDK makes it: without validation."""
    return construct_type(type_=ChatCompletionChunk, value=event)


def event_of(event: Any) -> Any:
    """The same of an event of a response."""
    return construct_type(type_=ResponseStreamEvent, value=event)


def read(*events: Any, turn: int = 0, ended: bool = True) -> list[Chunk]:
    """The chunks of a stream of these wire events, the end of the stream included."""
    adapter = OpenAIAdapter(turn)
    items = [event_of(event) if "type" in event else chunk_of(event) for event in events]
    chunks = [one for item in items for one in adapter.decode(item)]
    return [*chunks, *adapter.finish()] if ended else chunks


T = TypeVar("T")


def of_type(kind: type[T], chunks: Sequence[object]) -> list[T]:
    return [chunk for chunk in chunks if isinstance(chunk, kind)]

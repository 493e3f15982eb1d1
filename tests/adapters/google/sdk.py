"""The real google-genai against a local server, on both of its transports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx2
import pytest
from google import genai
from google.genai import types
from google.genai.client import AsyncClient

from monitor.adapters.google.stream import GoogleAdapter
from monitor.chunks import Chunk
from monitor.testing import LocalGemini

TRANSPORTS = ["aiohttp", "httpx2"]

# The SDK subclasses aiohttp's session each time a client is used first; aiohttp discourages that,
# and nobody here can change it.
sdk_warnings = pytest.mark.filterwarnings(
    "ignore:Inheritance class AiohttpClientSession from ClientSession:DeprecationWarning"
)

PLAIN = types.GenerateContentConfig(automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True))


@asynccontextmanager
async def sdk(server: LocalGemini, transport: str = "httpx2", *, retries: int = 0) -> AsyncIterator[AsyncClient]:
    options: dict[str, Any] = {"base_url": server.base_url}
    if retries:
        options["retry_options"] = types.HttpRetryOptions(attempts=retries + 1)
    if transport == "httpx2":
        options["async_client_args"] = {"transport": httpx2.AsyncHTTPTransport()}
    client = genai.Client(api_key="x", http_options=types.HttpOptions(**options))
    try:
        yield client.aio
    finally:
        await client.aio.aclose()
        client.close()


async def stream(
    client: AsyncClient, config: types.GenerateContentConfig = PLAIN
) -> AsyncIterator[types.GenerateContentResponse]:
    return await client.models.generate_content_stream(model="gemini-test", contents="hello", config=config)


async def received(
    client: AsyncClient, config: types.GenerateContentConfig = PLAIN
) -> list[types.GenerateContentResponse]:
    return [item async for item in await stream(client, config)]


async def decoded(
    client: AsyncClient, config: types.GenerateContentConfig = PLAIN, adapter: GoogleAdapter | None = None
) -> list[Chunk]:
    adapter = adapter or GoogleAdapter()
    chunks: list[Chunk] = []
    async for item in await stream(client, config):
        chunks += adapter.decode(item)
    return [*chunks, *adapter.finish()]


T = TypeVar("T")


def of_type(kind: type[T], chunks: Sequence[object]) -> list[T]:
    return [chunk for chunk in chunks if isinstance(chunk, kind)]

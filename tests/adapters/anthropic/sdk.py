"""The real anthropic against a local server: on both of its transports, and in each of its ways to
stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, TypeVar

from anthropic import AsyncAnthropic, DefaultAioHttpClient

from monitor.adapters.anthropic.stream import AnthropicAdapter
from monitor.chunks import Chunk
from monitor.testing import LocalAnthropic
from monitor.testing.anthropic_steps import Script

TRANSPORTS = ["aiohttp", "httpx2"]

ASKED: Final[dict[str, Any]] = {
    "model": "claude-test",
    "max_tokens": 99,
    "messages": [{"role": "user", "content": "hello"}],
}


@asynccontextmanager
async def sdk(server: LocalAnthropic, transport: str = "httpx2", *, retries: int = 0) -> AsyncIterator[AsyncAnthropic]:
    http_client = DefaultAioHttpClient() if transport == "aiohttp" else None
    async with AsyncAnthropic(
        api_key="x", base_url=server.base_url, max_retries=retries, http_client=http_client
    ) as client:
        yield client


async def stream(client: AsyncAnthropic, **options: Any) -> AsyncIterator[Any]:
    made: AsyncIterator[Any] = await client.messages.create(**ASKED, **options, stream=True)
    return made


async def beta_stream(client: AsyncAnthropic, **options: Any) -> AsyncIterator[Any]:
    made: AsyncIterator[Any] = await client.beta.messages.create(**ASKED, **options, stream=True)
    return made


async def helper(client: AsyncAnthropic, **options: Any) -> AsyncIterator[Any]:
    return await client.messages.stream(**ASKED, **options).__aenter__()


async def beta_helper(client: AsyncAnthropic, **options: Any) -> AsyncIterator[Any]:
    return await client.beta.messages.stream(**ASKED, **options).__aenter__()


Way: TypeAlias = Callable[[AsyncAnthropic], Any]
WAYS: Final[list[Way]] = [stream, beta_stream, helper, beta_helper]


async def received(client: AsyncAnthropic, way: Way = stream) -> list[Any]:
    return [item async for item in await way(client)]


async def decoded(client: AsyncAnthropic, way: Way = stream, adapter: AnthropicAdapter | None = None) -> list[Chunk]:
    adapter = adapter or AnthropicAdapter()
    chunks: list[Chunk] = []
    async for item in await way(client):
        chunks += adapter.decode(item)
    return [*chunks, *adapter.finish()]


async def chunks_of(script: Script, *, way: Way = stream, adapter: AnthropicAdapter | None = None) -> list[Chunk]:
    """What the adapter makes of one answer."""
    with LocalAnthropic([script]) as server:
        async with sdk(server) as client:
            return await decoded(client, way, adapter)


T = TypeVar("T")


def of_type(kind: type[T], chunks: Sequence[object]) -> list[T]:
    return [chunk for chunk in chunks if isinstance(chunk, kind)]

"""The client of a local OpenAI server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import openai


def client_of(base_url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="none", base_url=base_url, max_retries=0)


@contextmanager
def client_of_sync(base_url: str) -> Iterator[openai.AsyncOpenAI]:
    """For a synchronous entry point, which uses the event loop of the thread."""
    client = client_of(base_url)
    try:
        yield client
    finally:
        asyncio.get_event_loop().run_until_complete(client.close())

"""The real google-genai SDK against a local server."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
from google import genai
from google.genai import types
from google.genai.client import AsyncClient

from bench._close_cases import Transport
from monitor.testing.gemini_server import LocalGemini


@contextlib.asynccontextmanager
async def sdk(server: LocalGemini, transport: Transport) -> AsyncIterator[AsyncClient]:
    options: dict[str, Any] = {"base_url": server.base_url}
    if transport == "httpx2":
        options["async_client_args"] = {"transport": httpx2.AsyncHTTPTransport()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # aiohttp warns of how the SDK derives from its session
        client = genai.Client(api_key="local", http_options=types.HttpOptions(**options))
        try:
            yield client.aio
        finally:
            await client.aio.aclose()
            client.close()


@contextlib.contextmanager
def quiet(*loggers: str) -> Iterator[None]:
    """Crashing sinks are reported, as they should be; httpcore2 leaves a generator to the collector on trio, and trio says so."""
    levels = {name: logging.getLogger(name).level for name in loggers}
    for name in loggers:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)

"""An ASGI application behind a real server, in the test's own event loop."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import uvicorn


@asynccontextmanager
async def serving(app: Any, lifespan: Literal["on", "off"] = "on") -> AsyncIterator[str]:
    """The address of the server."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan=lifespan, timeout_graceful_shutdown=1, ws="none"
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listening])  # without its loop, which looks at the clock ten times a second
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        for connection in list(server.server_state.connections):
            connection.shutdown()
        await server.shutdown(sockets=[listening])

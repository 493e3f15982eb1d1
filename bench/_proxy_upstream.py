"""A service that streams chat completions on order, and writes down when it did what.

    python -m bench._proxy_upstream

Prints its port. The last message of a request says what is wanted: `id kind chunks pause_s`. Kinds:
`words` (an answer that does not loop), `chant`, `silent` (nothing at all). `GET /log` answers with
the moments, in seconds of the machine's monotonic clock, which all its processes share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from bench._close_cases import SENTENCE, words

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_MOST_HEAD = 1 << 20


@dataclass
class Served:
    """What was done for one request."""

    sent: list[float] = field(default_factory=list)
    closed: float | None = None
    """When the other side closed the connection before the end."""


LOG: dict[str, Served] = {}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection, which may have several requests."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            names = {
                line.partition(b":")[0].strip().lower(): line.partition(b":")[2].strip()
                for line in head.split(b"\r\n")[1:]
                if line
            }
            body = await reader.readexactly(int(names.get(b"content-length", b"0")))
            if head.startswith(b"GET /log"):
                await _log(writer)
            elif not await _stream(reader, writer, json.loads(body)):
                break
    writer.close()


async def _log(writer: asyncio.StreamWriter) -> None:
    body = json.dumps({name: asdict(served) for name, served in LOG.items()}).encode()
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()


async def _stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[str, Any]) -> bool:
    """Stream an answer. False: the other side has left."""
    name, kind, chunks, pause_s = asked["messages"][-1]["content"].split()
    served = LOG[name] = Served()
    leaving = asyncio.create_task(reader.read(1))
    playing = asyncio.create_task(_play(writer, served, kind, int(chunks), float(pause_s)))
    await asyncio.wait({leaving, playing}, return_when=asyncio.FIRST_COMPLETED)
    if not playing.done() or playing.exception() is not None:
        served.closed = time.perf_counter()
        playing.cancel()
        await asyncio.wait({playing})
        return False
    if not leaving.done():
        leaving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await leaving
        return True
    return False


async def _play(writer: asyncio.StreamWriter, served: Served, kind: str, chunks: int, pause_s: float) -> None:
    if kind == "silent":
        await asyncio.Event().wait()
    writer.write(_HEAD)
    pieces = words(chunks) if kind == "words" else [SENTENCE] * chunks
    due = time.perf_counter()
    for piece in pieces:
        served.sent.append(time.perf_counter())
        _event(writer, {"content": piece}, None)
        await writer.drain()
        due += pause_s
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
    _event(writer, {}, "stop")
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    await writer.drain()


def _event(writer: asyncio.StreamWriter, delta: dict[str, str], finish: str | None) -> None:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    data = b"data: %b\n\n" % json.dumps(chunk).encode()
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


async def main() -> None:
    """Serve until the process is ended."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=_MOST_HEAD)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())

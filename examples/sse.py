"""A run as server-sent events, with Starlette: each client gets its own run. When a client leaves,
its run is aborted, and the connection to the model is closed.

The model is a local server here, which stops in the middle of its answer and never goes on. With a
key, put `monitor.model("openai:gpt-5")` in its place. Needs starlette and uvicorn.
"""

import asyncio
import contextlib
import json

import openai
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import monitor
from monitor.events import Envelope, envelope_codec
from monitor.testing import LocalOpenAI, openai_steps


class EventStream(Response):
    """The events of a run and of its nested runs, as they come."""

    media_type = "text/event-stream"

    def __init__(self, run: monitor.Run) -> None:
        super().__init__(headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events. A client may leave while the model is silent, so somebody listens."""
        listening = asyncio.create_task(self._listen(receive))
        try:
            # an OSError: the client left while something was sent
            with contextlib.suppress(OSError):
                await self._send(send)
        finally:
            listening.cancel()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with self._run as run:
            async for envelope in run.envelopes():
                await send({"type": "http.response.body", "body": as_event(envelope), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _listen(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._run.abort("the client has left")


def as_event(envelope: Envelope) -> bytes:
    """An envelope as one server-sent event, named like the event."""
    data = envelope_codec.to_dict(envelope)
    return f"id: {envelope.run}:{envelope.seq}\nevent: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def application(supervisor: monitor.Supervisor) -> Starlette:
    """`GET /run?task=...` is a run."""

    async def run(request: Request) -> Response:
        return EventStream(supervisor.stream(request.query_params["task"]))

    return Starlette(routes=[Route("/run", run)])


async def main() -> None:
    """Serve, let a client read some words and leave, and ask the model's server what it saw."""
    with LocalOpenAI([[openai_steps.text("The sky is "), openai_steps.Stall()]]) as provider:
        client = openai.AsyncOpenAI(base_url=provider.base_url, api_key="none")
        supervisor = monitor.Supervisor(monitor.model("openai:local", client=client))
        server = uvicorn.Server(uvicorn.Config(application(supervisor), port=0, log_level="warning"))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]

        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /run?task=Why+is+the+sky+blue%3F HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while b"The sky is" not in await reader.readline():
            pass
        writer.close()

        left = await provider.wait_closed_async()
        print(f"the client has left, and the model's server saw: {left.how}")
        server.should_exit = True
        await serving
        await client.close()


if __name__ == "__main__":
    asyncio.run(main())

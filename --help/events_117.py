import asyncio
import json

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

import monitor
from monitor.events import envelope_codec
from monitor.testing import ScriptedModel

supervisor = monitor.Supervisor(ScriptedModel("The sky is blue."))  # with a key: monitor.model("openai:gpt-5")


class EventStream(Response):
    """The events of a run, as they come."""

    def __init__(self, run: monitor.Run) -> None:
        super().__init__(media_type="text/event-stream", headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self.run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        leaving = asyncio.create_task(self.left(receive))
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async with self.run as run:
                async for envelope in run.envelopes():
                    data = envelope_codec.to_dict(envelope)
                    event = f"id: {envelope.run}:{envelope.seq}\nevent: {data['type']}\ndata: {json.dumps(data)}\n\n"
                    await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
        finally:
            leaving.cancel()
        await send({"type": "http.response.body", "body": b""})

    async def left(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.run.abort("the client has left")


async def answer(request: Request) -> Response:  # Starlette(routes=[Route("/run", answer)])
    return EventStream(supervisor.stream(request.query_params["task"]))


async def main() -> None:  # what a server does with a request
    async def send(message: Message) -> None:
        print(message.get("body", b"").decode(), end="")

    async def receive() -> Message:
        await asyncio.Event().wait()  # the client stays
        return {"type": "http.disconnect"}

    scope: Scope = {"type": "http", "query_string": b"task=Why%20blue", "headers": []}
    await (await answer(Request(scope)))(scope, receive, send)


asyncio.run(main())

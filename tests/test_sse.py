"""The example of server-sent events, behind a real server: what a client gets, and what the model's
server sees when a client leaves.
"""

from __future__ import annotations

import asyncio
import json
import runpy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
import uvicorn

import monitor
from monitor.events import RunTerminated, envelope_codec
from monitor.sinks import MemorySink
from monitor.testing import LocalOpenAI, openai_steps
from tests.adapters.google.sdk import sdk_warnings

pytestmark = [pytest.mark.asyncio, sdk_warnings]

EXAMPLE = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "sse.py"), run_name="sse")
SAYS = [openai_steps.text("The sky "), openai_steps.text("is blue."), openai_steps.usage(5, output=5)]


class Client:
    """One request, read by hand, so that it can be left at any point."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def ask(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(b"GET /run?task=why HTTP/1.1\r\nHost: localhost\r\n\r\n")

    async def read(self, until: str) -> str:
        """What came, up to the first event of the type `until`."""
        got = b""
        while f"event: {until}\n".encode() not in got:
            piece = await self._reader.read(65_536)
            assert piece, got
            got += piece
        return got.decode()

    async def rest(self) -> str:
        got = b""
        while not got.endswith(b"0\r\n\r\n"):
            got += await self._reader.read(65_536)
        return got.decode()

    async def leave(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@asynccontextmanager
async def serving(script: list[Any]) -> AsyncIterator[tuple[LocalOpenAI, Client, MemorySink]]:
    memory = MemorySink()
    with LocalOpenAI([script]) as provider:
        client = openai.AsyncOpenAI(base_url=provider.base_url, api_key="none", max_retries=0)
        supervisor = monitor.Supervisor(monitor.model("openai:local", client=client), sinks=[memory])
        config = uvicorn.Config(EXAMPLE["application"](supervisor), port=0, log_level="warning", lifespan="off")
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0)
        caller = Client(server.servers[0].sockets[0].getsockname()[1])
        await caller.ask()
        try:
            yield provider, caller, memory
        finally:
            await caller.leave()
            server.should_exit = True
            await task
            await client.close()


async def ended(memory: MemorySink) -> monitor.Outcome:
    while not (memory.events and isinstance(memory.events[-1], RunTerminated)):  # noqa: ASYNC110 - a list
        await asyncio.sleep(0)
    return memory.events[-1].outcome


@pytest.mark.parametrize(
    ("script", "seen"),
    [
        ([openai_steps.text("The sky "), openai_steps.Stall()], "chunk_received"),
        ([openai_steps.Stall()], "run_started"),
        ([openai_steps.Repeat(openai_steps.text("sky "), times=None, delay_s=0.001)], "chunk_received"),
    ],
    ids=["in the middle of an answer", "before the first word", "while words come"],
)
async def test_a_client_that_leaves_closes_the_connection_to_the_model(script: list[Any], seen: str):
    async with serving(script) as (provider, caller, memory):
        await caller.read(seen)
        await asyncio.to_thread(provider.wait_request)  # the model is asked
        await caller.leave()
        assert (await provider.wait_closed_async()).how in {"eof", "reset"}
        outcome = await ended(memory)
        assert outcome.reason is monitor.TerminateReason.ABORTED
        assert outcome.detail == "the client has left"
        assert outcome.closed


async def test_a_client_that_stays_gets_every_event_with_its_number():
    async with serving([*SAYS, openai_steps.finish()]) as (_, caller, memory):
        body = await caller.rest()
        assert "content-type: text/event-stream" in body
        data = [json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line.startswith("data: ")]
        told = [envelope_codec.from_dict(one) for one in data if one["type"] != "chunk_received"]
        assert [one.seq for one in told] == [one.seq for one in memory.envelopes]
        assert [type(one.event) for one in told] == [type(event) for event in memory.events]
        pieces = [one["chunk"]["text"] for one in data if one["type"] == "chunk_received" and "text" in one["chunk"]]
        assert "".join(pieces) == "The sky is blue."
        assert (await ended(memory)).ok

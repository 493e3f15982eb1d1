"""The connection behind a wrapper is closed: behind a generator, an iterator of another class, and
one inside the other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest

import monitor
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import Repeat, text
from tests.integrations.programs.openai_client import client_of

CHANT = "Let me check the file again. "
ASKED: Any = {"model": "local", "messages": [{"role": "user", "content": "go"}], "stream": True}


class Wrapped:
    """An iterator as a framework writes one: it cannot be closed."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self.stream)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        return await anext(self.stream)


async def generated(stream: Any) -> AsyncIterator[Any]:
    async for one in stream:
        yield one


def generated_sync(stream: Any) -> Iterator[Any]:
    yield from stream


ASYNC = [generated, Wrapped, lambda stream: generated(Wrapped(stream)), lambda stream: Wrapped(generated(stream))]
SYNC = [generated_sync, Wrapped, lambda stream: generated_sync(Wrapped(stream))]


@pytest.mark.asyncio
@pytest.mark.parametrize("wrap", ASYNC, ids=["generator", "iterator", "iterator inside", "generator inside"])
async def test_what_a_wrapper_holds_is_closed(wrap: Any):
    with LocalOpenAI([[Repeat(text(CHANT), 5000, delay_s=0.001)]]) as server:
        async with client_of(server.base_url) as client:
            stream = await client.chat.completions.create(**ASKED)  # held here too, so nothing is closed by chance
            async with monitor.watch(wrap(stream)) as watched:
                async for _ in watched:
                    pass
            await server.wait_closed_async(0)
            assert watched.outcome.reason is monitor.TerminateReason.LOOP_DETECTED
            assert watched.outcome.closed
            assert watched.outcome.chunks_after_decision == 0
            await stream.close()


@pytest.mark.parametrize("wrap", SYNC, ids=["generator", "iterator", "iterator inside"])
def test_what_a_wrapper_holds_is_closed_without_an_event_loop(wrap: Any):
    with (
        LocalOpenAI([[Repeat(text(CHANT), 5000, delay_s=0.001)]]) as server,
        openai.OpenAI(api_key="x", base_url=server.base_url, max_retries=0) as client,
    ):
        stream = client.chat.completions.create(**ASKED)
        with monitor.watch(wrap(stream)) as watched:
            for _ in watched:
                pass
        server.wait_closed(0)
        assert watched.outcome.closed
        stream.close()

"""Law 4 in the moments in which nobody owns the connection: the stream is opening, or an exception
has just left whoever read it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import pytest

import monitor
from monitor.adapters.adapter import responses_behind
from monitor.testing import FakeClock
from monitor.testing.local_server import LocalServer
from monitor.testing.openai_steps import Send, Stall
from tests.adapters.google.provider import GOOGLE
from tests.adapters.openai.provider import OPENAI
from tests.adapters.provider import Provider
from tests.adapters.providers import each_stream, warnings

pytestmark = [pytest.mark.anyio, *warnings]

Reason = monitor.TerminateReason
each_place = pytest.mark.parametrize(
    ("transport", "anyio_backend"), [("aiohttp", "asyncio"), ("httpx2", "asyncio"), ("httpx2", "trio")], ids=str
)


def stalled(provider: Provider) -> LocalServer:
    """Every answer begins, and then stalls."""
    return provider.server([[Send(provider.text("one ")), Send(provider.text("two ")), Stall()]])


class _LateClock(FakeClock):
    """Jumps as soon as the server was asked, and rings nothing: the first object arrives when it is
    too late.
    """

    def __init__(self, server: LocalServer) -> None:
        super().__init__()
        self._server = server

    def now(self) -> float:
        return 1000.0 if self._server.requests else 0.0


async def _gone(server: LocalServer, outcome: monitor.Outcome) -> None:
    """It said so, and it is so."""
    assert outcome.closed
    await server.wait_closed_async()


async def _read(watch: monitor.guard.Watch[Any]) -> monitor.Outcome:
    async with watch as watched:
        async for _ in watched:
            pass
    return watch.outcome


async def _read_until_aborted(watch: monitor.guard.Watch[Any], moment: anyio.Event) -> monitor.Outcome:
    async def abort() -> None:
        await moment.wait()
        watch.abort("enough")

    async with anyio.create_task_group() as group:
        group.start_soon(abort)
        outcome = await _read(watch)
    assert outcome.reason is Reason.ABORTED
    return outcome


@each_stream
@each_place
async def test_a_stream_whose_first_object_comes_too_late_is_closed(
    provider: Provider, transport: str, anyio_backend: str
) -> None:
    with stalled(provider) as server:
        async with provider.sdk(server, transport) as client:
            watch = monitor.watch(
                provider.stream(client), clock=_LateClock(server), stop_when=monitor.FirstChunkTimeout(10)
            )
            outcome = await _read(watch)
            assert outcome.reason is Reason.IDLE_TIMEOUT
            assert watch.turn.text == ""
            await _gone(server, outcome)


@each_stream
@each_place
async def test_an_opening_that_has_the_stream_already_is_closed_when_it_is_interrupted(
    provider: Provider, transport: str, anyio_backend: str
) -> None:
    moment = anyio.Event()

    async def opens(client: Any) -> Any:
        stream = await provider.stream(client)
        await anext(stream)
        moment.set()
        await anyio.sleep_forever()
        return stream

    with stalled(provider) as server:
        async with provider.sdk(server, transport) as client:
            await _gone(server, await _read_until_aborted(monitor.watch(partial(opens, client)), moment))


@each_stream
@each_place
async def test_a_wrapper_that_is_interrupted_at_its_own_work_leaves_nothing_open(
    provider: Provider, transport: str, anyio_backend: str
) -> None:
    moment = anyio.Event()

    async def wrapped(client: Any) -> AsyncIterator[Any]:
        async for item in await provider.stream(client):
            moment.set()
            await anyio.sleep_forever()
            yield item

    with stalled(provider) as server:
        async with provider.sdk(server, transport) as client:
            await _gone(server, await _read_until_aborted(monitor.watch(wrapped(client)), moment))


@each_stream
@each_place
async def test_a_wrapper_that_fails_leaves_nothing_open_that_has_a_name(
    provider: Provider, transport: str, anyio_backend: str
) -> None:
    async def wrapped(client: Any) -> AsyncIterator[Any]:
        stream = await provider.stream(client)
        async for item in stream:
            yield item
            raise ValueError("the wrapper's own")

    with stalled(provider) as server:
        async with provider.sdk(server, transport) as client:
            outcome = await _read(monitor.watch(wrapped(client)))
            assert isinstance(outcome.error, ValueError)
            await _gone(server, outcome)


@each_stream
async def test_a_wrapper_that_fails_and_has_no_name_for_its_stream_is_not_called_closed(provider: Provider) -> None:
    async def wrapped(client: Any) -> AsyncIterator[Any]:
        async for item in await provider.stream(client):
            yield item
            raise ValueError("the wrapper's own")

    sink = monitor.sinks.MemorySink()
    with stalled(provider) as server:
        async with provider.sdk(server) as client:
            outcome = await _read(monitor.watch(wrapped(client), sinks=[sink]))
            assert isinstance(outcome.error, ValueError)
            assert not outcome.closed
    (closed,) = [event for event in sink.events if isinstance(event, monitor.events.StreamClosed)]
    assert closed.note is not None
    assert "may still be open" in closed.note


@each_stream
@each_place
async def test_a_wrapper_that_yields_something_else_is_closed_with_what_it_wraps(
    provider: Provider, transport: str, anyio_backend: str
) -> None:
    async def wrapped(client: Any) -> AsyncIterator[str]:
        async for item in await provider.stream(client):
            yield type(item).__name__

    with stalled(provider) as server:
        async with provider.sdk(server, transport) as client:
            async with monitor.watch(wrapped(client)) as watched:
                async for _ in watched:
                    break
            await _gone(server, watched.outcome)


@each_stream
@each_place
async def test_a_foreign_cancellation_of_an_opening_goes_on_and_leaves_nothing_open(
    provider: Provider, transport: str, anyio_backend: str
) -> None:
    async def opens(client: Any) -> Any:
        stream = await provider.stream(client)
        await anext(stream)
        scope.cancel()
        await anyio.sleep_forever()
        return stream

    with stalled(provider) as server:
        async with provider.sdk(server, transport) as client:
            watch = monitor.watch(partial(opens, client))
            with anyio.CancelScope() as scope:
                await _read(watch)
                raise AssertionError
            assert watch.outcome.reason is Reason.CANCELLED
            await _gone(server, watch.outcome)


@each_place
async def test_a_google_stream_that_the_service_fails_in_the_middle_is_closed(
    transport: str, anyio_backend: str
) -> None:
    failure = {"error": {"code": 500, "message": "it broke", "status": "INTERNAL"}}
    with GOOGLE.server([[GOOGLE.text("a"), failure, Stall()]]) as server:
        async with GOOGLE.sdk(server, transport) as client:
            outcome = await _read(monitor.watch(GOOGLE.stream(client)))
            assert outcome.reason is Reason.ERROR
            await _gone(server, outcome)


@each_place
async def test_another_stream_of_the_caller_is_left_alone(transport: str, anyio_backend: str) -> None:
    moment = anyio.Event()

    async def opens(client: Any) -> Any:
        stream = await OPENAI.stream(client)
        moment.set()
        await anyio.sleep_forever()
        return stream

    with stalled(OPENAI) as server:
        async with OPENAI.sdk(server, transport) as client:
            other = await OPENAI.stream(client)
            await _gone(server, await _read_until_aborted(monitor.watch(partial(opens, client)), moment))
            assert [await anext(other), await anext(other)]
            assert server.requests[0].closed is None
            await other.close()


async def test_only_the_frames_that_an_exception_has_left_are_looked_through() -> None:
    async def fails(client: Any) -> None:
        inner = await OPENAI.stream(client)
        raise ValueError(f"holding {type(inner).__name__}")

    async def reads(client: Any) -> list[Any]:
        mine = await OPENAI.stream(client)
        try:
            await fails(client)
        except ValueError as error:
            found = responses_behind(error.__traceback__, None)
            assert mine not in found
            return [*found, mine]
        raise AssertionError

    with stalled(OPENAI) as server:
        async with OPENAI.sdk(server) as client:
            found, mine = await reads(client)
            assert found is not mine
            for stream in (found, mine):
                await stream.close()

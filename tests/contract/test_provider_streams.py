"""What holds for a watched stream of every provider: the real SDK, its transports, the guard, a
typed reason, and a connection that is gone.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import monitor
from monitor.models import ErrorKind, ModelError
from monitor.testing import FakeClock
from monitor.testing.openai_steps import Pause, Repeat, Reply, Stall
from tests.adapters.provider import Provider, watched
from tests.adapters.providers import PROVIDERS, STREAMS, each_provider, each_stream, each_transport, sdk_test, warnings

pytestmark = warnings

Reason = monitor.TerminateReason
SENTENCE = "I will now check the configuration file again to be sure. "
each_own_call = pytest.mark.parametrize(
    "provider", [one for one in STREAMS if one.own_call is not None], ids=lambda provider: provider.id
)


def test_every_adapter_of_an_sdk_is_under_this_contract():
    folders = {file.parent.name for file in Path(monitor.adapters.__file__).parent.glob("*/model.py")}
    assert {provider.extra for provider in PROVIDERS} == folders - {"replay"}


# --- stops, and connections


@sdk_test
@each_transport
@each_stream
async def test_a_stream_that_chants_is_stopped_and_the_server_sees_the_connection_gone(
    provider: Provider, transport: str
):
    chant = [*provider.begin, Repeat(provider.text(SENTENCE), delay_s=0.001)]
    async with provider.served(chant, provider.turn("fine"), transport=transport) as (client, server):
        outcome = (await watched(provider.stream(client))).outcome
        assert outcome.reason is Reason.LOOP_DETECTED
        assert outcome.closed
        await server.wait_closed_async(0)
        assert (await watched(provider.stream(client))).turn.text == "fine"  # the client stays usable


@sdk_test
@each_transport
@each_stream
async def test_a_flood_is_closed_at_once_and_nothing_is_dropped(provider: Provider, transport: str):
    flood = [*provider.begin, Repeat(provider.text(SENTENCE))]
    async with provider.served(flood, transport=transport) as (client, server):
        outcome = (await watched(provider.stream(client))).outcome
        await server.wait_closed_async(0)
    assert outcome.reason is Reason.LOOP_DETECTED
    assert outcome.closed
    assert outcome.chunks_after_decision == 0


@sdk_test
@each_transport
@pytest.mark.parametrize("answered", [True, False], ids=["waiting", "before the headers"])
@each_provider
async def test_an_idle_provider_and_an_abort_close_the_connection(provider: Provider, answered: bool, transport: str):
    begun = [*provider.begin, provider.text("a")] if answered else []
    clock = FakeClock()
    async with provider.served([*begun, Stall()], transport=transport) as (client, server):
        idle = monitor.watch(provider.stream(client), stop_when=monitor.IdleTimeout(10), clock=clock)
        await provider.read(idle, server, 0, lambda: clock.advance(10), answered=answered)
        assert idle.outcome.reason is Reason.IDLE_TIMEOUT
        await server.wait_closed_async(0)

        watch = monitor.watch(provider.stream(client))
        await provider.read(watch, server, 1, lambda: watch.abort("enough"), answered=answered)
        assert watch.outcome.reason is Reason.ABORTED
        await server.wait_closed_async(1)


@sdk_test
@each_provider
async def test_a_deadline_holds_on_a_busy_stream_and_while_the_sdk_waits_to_try_again(provider: Provider):
    busy = [*provider.begin, Repeat(provider.text("a "), delay_s=0.001)]
    clock = FakeClock()
    limits: dict[str, Any] = {"detectors": None, "stop_when": monitor.Timeout(10), "clock": clock}
    async with provider.served(busy, [provider.steps.rate_limited(30)], retries=5) as (client, server):
        async with monitor.watch(provider.stream(client), **limits) as stream:
            async for _ in stream:
                clock.advance(1)
        await server.wait_closed_async(0)
        trying = monitor.watch(provider.stream(client), **limits)
        await provider.read(trying, server, 1, lambda: clock.advance(10), answered=False)
        assert len(server.requests) == 2
    assert [watch.outcome.reason for watch in (stream, trying)] == [Reason.TIMEOUT, Reason.TIMEOUT]


@pytest.mark.anyio
@each_provider
@pytest.mark.parametrize(
    ("limit", "reason"),
    [(monitor.Timeout(10), Reason.TIMEOUT), (monitor.IdleTimeout(10), Reason.IDLE_TIMEOUT)],
    ids=["total", "idle"],
)
async def test_deadlines_hold_on_every_event_loop(provider: Provider, limit: monitor.Condition, reason: Reason):
    stalled = [*provider.begin, provider.text("a"), Stall()]
    clock = FakeClock()
    async with provider.served(stalled, provider.turn("fine")) as (client, server):
        watch = monitor.watch(provider.stream(client), stop_when=limit, clock=clock)
        await provider.read(watch, server, 0, lambda: clock.advance(10), answered=True)
        assert watch.outcome.reason is reason
        await server.wait_closed_async()
        assert (await watched(provider.stream(client))).turn.text == "fine"


@sdk_test
@each_transport
@each_stream
async def test_a_break_closes_the_connection_also_of_a_generator_around_the_stream_and_under_a_flood(
    provider: Provider, transport: str
):
    async def wrapped(client: Any) -> AsyncIterator[Any]:
        async for item in await provider.stream(client):
            yield item

    async with provider.served([*provider.begin, Repeat(provider.text("and on and on "))], transport=transport) as (
        client,
        server,
    ):
        for number, source in enumerate([provider.stream(client), wrapped(client)]):
            async with monitor.watch(source, detectors=None) as stream:
                count = 0
                async for _ in stream:
                    count += 1
                    await asyncio.sleep(0.002)  # slower than the server, so that the transport's buffer is full
                    if count == 20:
                        break
            assert stream.outcome.reason is Reason.CLOSED_BY_CALLER
            assert stream.outcome.closed
            assert stream.outcome.chunks_after_decision == 0
            await server.wait_closed_async(number)


# --- the course of a run


@sdk_test
@each_transport
@each_provider
async def test_every_way_a_stream_can_end_has_its_reason(provider: Provider, transport: str):
    scripts = [script for script, _ in provider.endings]
    async with provider.served(*scripts, transport=transport) as (client, _):
        for script, reason in provider.endings:
            outcome = (await watched(provider.stream(client))).outcome
            assert outcome.reason is reason, (script, outcome)
            assert outcome.ok is (reason is Reason.STREAM_ENDED), script


@sdk_test
@each_own_call
async def test_a_tool_call_repeated_over_turns_is_a_loop_and_its_result_may_be_named_by_the_sdks_own_call(
    provider: Provider,
):
    assert provider.own_call is not None
    turns = 0
    async with provider.served(provider.turn("", [("search", {"q": "same"})])) as (client, _), monitor.Guard() as guard:
        while turns < 10:
            turns += 1
            async with guard.watch(provider.stream(client)) as stream:
                items = [item async for item in stream]
            if isinstance(guard.check(), monitor.Stop):
                break
            guard.tool_result(provider.own_call(items), {"found": []})
    assert turns == 5
    assert guard.outcome is not None
    assert guard.outcome.reason is Reason.LOOP_DETECTED


@sdk_test
@each_stream
async def test_a_guarded_stream_gives_what_the_bare_one_gives(provider: Provider):
    script: list[Any] = provider.turn("Hello there", [("f", {"x": 1})], reasoning="hm", cut=6)
    script.insert(3, Pause(0.001))
    async with provider.served(script) as (client, _):
        bare = await provider.received(client)
        async with monitor.watch(provider.stream(client)) as stream:
            guarded = [item async for item in stream]
    assert [type(item) for item in guarded] == [type(item) for item in bare]
    dumped = [[item.model_dump(exclude={"sdk_http_response"}) for item in items] for items in (guarded, bare)]
    assert dumped[0] == dumped[1]
    assert stream.turn.text == "Hello there"
    assert [(made.name, made.arguments) for made in stream.turn.tool_calls] == [("f", {"x": 1})]
    assert (stream.turn.usage.input_tokens, stream.turn.usage.output_tokens) == (7, 3)
    assert not stream.turn.usage_estimated


# --- failures


async def failure(provider: Provider, opening: Any) -> ModelError:
    """How the adapter classes what the stream raises."""
    with pytest.raises(Exception, match=r"\A") as raised:  # whatever it is
        await provider.decoded(opening)
    classed: ModelError = provider.adapter().classify(raised.value)
    return classed


@sdk_test
@each_transport
@each_provider
async def test_every_failure_has_its_kind_and_its_status(provider: Provider, transport: str):
    scripts = [script for script, *_ in provider.failures]
    async with provider.served(*scripts, transport=transport) as (client, _):
        for script, kind, *expected in provider.failures:
            found = await failure(provider, provider.stream(client))
            assert (found.kind, bool(found.message)) == (kind, True), (script, found)
            assert [found.status, found.code][: len(expected)] == expected, (script, found)
            if isinstance(script[-1], Reply):
                assert found.status == script[-1].status, (script, found)


@sdk_test
@each_transport
@each_provider
async def test_the_delay_that_the_service_asks_for_is_told_with_its_own_words(provider: Provider, transport: str):
    async with provider.served(*([reply] for reply, _ in provider.delays), transport=transport) as (client, _):
        for reply, delay_s in provider.delays:
            found = await failure(provider, provider.stream(client))
            assert found.retry_after_s == delay_s, reply
            if (words := json.loads(reply.body).get("error")) is not None:
                assert found.message == words["message"]


@sdk_test
@each_provider
async def test_a_delay_is_told_in_the_outcome(provider: Provider):
    async with provider.served([provider.steps.rate_limited(7)]) as (client, _):
        watch = await watched(provider.stream(client))
    assert watch.turn.model_error is not None
    assert watch.turn.model_error.retry_after_s == 7
    assert "asks to wait 7 s" in watch.outcome.detail


@pytest.fixture
def refused_address() -> Iterator[str]:
    """An address that is taken, and at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@sdk_test
@each_transport
@each_provider
async def test_a_service_that_is_silent_is_a_matter_of_the_network(provider: Provider, transport: str):
    begun = [*provider.begin, provider.text("a"), Stall()]
    async with provider.served([Stall()], begun, transport=transport) as (client, _):
        for _ in range(2):
            assert (await failure(provider, provider.impatient(client))).kind is ErrorKind.NETWORK


@sdk_test
@each_provider
async def test_a_service_that_is_not_there_is_a_matter_of_the_network(provider: Provider, refused_address: str):
    async with provider.sdk(SimpleNamespace(base_url=refused_address)) as client:
        assert (await failure(provider, provider.stream(client))).kind is ErrorKind.NETWORK

"""The real SDKs, unmodified, behind the proxy: each format, and each way in which an answer is cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from monitor import IdleTimeout
from monitor.budgets import SQLiteBudgets
from monitor.proxy import Proxy
from monitor.testing._server import LocalServer, Scripts
from tests.proxy.formats import FORMATS, KEY, Format
from tests.proxy.served import serving

pytestmark = pytest.mark.asyncio
each_format = pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)

A, B = ("read", {"path": "a.txt"}), ("read", {"path": "b.txt"})
SEEN_S = 0.5
"""A busy machine included; `python -m bench.proxy` measures it."""


@asynccontextmanager
async def behind(
    format: Format, scripts: Scripts, **options: Any
) -> AsyncIterator[tuple[Proxy, Any, LocalServer]]:
    """A proxy, a client of it, and its upstream."""
    with format.upstream(scripts) as upstream:
        root = upstream.base_url.removesuffix("/v1")
        proxy = Proxy(root, token="token", **options)
        async with serving(proxy) as address, format.client(address) as client:
            yield proxy, client, upstream


def only_run(proxy: Proxy) -> Any:
    (run,) = proxy.runs
    return run


@each_format
async def test_an_answer_that_does_not_loop_passes_as_it_is(format: Format) -> None:
    async with behind(format, [format.turn("The sky is blue.", [A])]) as (proxy, client, _):
        streamed = await format.stream(client, format.task("Why?"))
        whole = await format.ask(client, format.task("Why?"))
    for said in (streamed, whole):
        assert said.text == "The sky is blue."
        assert [call[1] for call in said.calls] == ["read"]
    run = only_run(proxy)
    assert (run.wire, run.requests, run.stops, run.unwatched, run.state) == (format.name, 2, 0, "", "ended")


@each_format
async def test_a_chant_is_cut_the_upstream_closed_and_the_sdk_sees_a_good_end(format: Format) -> None:
    async with behind(format, [format.chant()]) as (proxy, client, upstream):
        said = await format.stream(client, format.task("Go on"))
        await upstream.wait_closed_async(0, timeout_s=SEEN_S)
    assert said.end in format.good_ends
    assert said.text.startswith("Let me see. I will now")
    assert only_run(proxy).last_stop["reason"] == "loop_detected"
    assert only_run(proxy).state == "stopped"


@each_format
async def test_a_cycle_of_calls_over_turns_ends_with_a_good_end_and_no_further_call(format: Format) -> None:
    turns = [format.turn("", [A if number % 2 == 0 else B]) for number in range(30)]
    async with behind(format, turns) as (proxy, client, upstream):
        history, said = format.task("Tidy up"), await format.stream(client, format.task("Tidy up"))
        while said.calls and len(upstream.requests) < 20:
            format.answered(history, said, "nothing here")
            said = await format.stream(client, history)
    assert said.calls == []
    assert said.end in format.good_ends
    assert 6 <= len(upstream.requests) <= 8
    assert only_run(proxy).last_stop["reason"] == "loop_detected"


@each_format
async def test_two_hundred_calls_in_one_answer_are_cut_and_the_sdk_raises_the_reason(format: Format) -> None:
    async with behind(format, [format.turn("", [A] * 228)]) as (proxy, client, _):
        with pytest.raises(format.errors, match="agent-monitor stopped this run: loop_detected"):
            await format.stream(client, format.task("Read it"))
    assert only_run(proxy).last_stop["source"] == "tool_call_repetition"


@each_format
async def test_a_stall_ends_at_its_limit_with_a_good_end(format: Format) -> None:
    async with behind(format, [format.stall()], stop_when=IdleTimeout(0.3)) as (proxy, client, upstream):
        said = await format.stream(client, format.task("Go on"))
        await upstream.wait_closed_async(0, timeout_s=SEEN_S)
    assert said.text == "Let me see. "
    assert said.end in format.good_ends
    assert only_run(proxy).last_stop["reason"] == "idle_timeout"


@each_format
async def test_without_budget_no_call_is_made_and_the_stream_has_a_good_end(format: Format) -> None:
    store = SQLiteBudgets(":memory:")
    async with behind(format, [format.turn("hello")], budget=store, key_tokens=10) as (proxy, client, upstream):
        said = await format.stream(client, format.task("Go on"))
        with pytest.raises(format.errors, match="agent-monitor stopped this run: token_limit"):
            await format.ask(client, format.task("Go on"))
    assert (said.text, said.calls) == ("", [])
    assert said.end in format.good_ends
    assert upstream.requests == []
    assert only_run(proxy).last_stop["reason"] == "token_limit"


@each_format
async def test_with_on_loop_error_the_sdk_raises(format: Format) -> None:
    async with behind(format, [format.chant()], on_loop="error") as (_, client, upstream):
        with pytest.raises(format.errors, match="loop_detected"):
            await format.stream(client, format.task("Go on"))
        await upstream.wait_closed_async(0, timeout_s=SEEN_S)


@each_format
@pytest.mark.parametrize("script", ["stall", "silence"])
async def test_a_client_that_leaves_closes_the_upstream_before_and_after_the_first_byte(
    format: Format, script: str
) -> None:
    answer = format.stall() if script == "stall" else format.stall()[-1:]
    first = asyncio.Event()
    async with behind(format, [answer]) as (proxy, client, upstream):
        asking = asyncio.create_task(format.stream(client, format.task("Go on"), first.set))
        if script == "stall":
            await first.wait()
        else:
            await asyncio.to_thread(upstream.wait_request, 0)
        asking.cancel()
        await upstream.wait_closed_async(0, timeout_s=SEEN_S)
        while only_run(proxy).active:
            await asyncio.sleep(0.001)
    assert only_run(proxy).state == "left"


@each_format
async def test_another_proxy_after_a_restart_gives_the_same_verdict(format: Format) -> None:
    with format.upstream([format.turn("", [A])]) as upstream:
        root, history = upstream.base_url.removesuffix("/v1"), format.task("Tidy up")
        async with serving(Proxy(root)) as address, format.client(address) as client:
            for _ in range(5):
                format.answered(history, await format.stream(client, history), "nothing here")
        async with serving(Proxy(root)) as address, format.client(address) as client:
            said = await format.stream(client, history)
    assert said.calls == []
    assert said.end in format.good_ends
    assert len(upstream.requests) == 5


@each_format
async def test_an_upstream_that_breaks_off_is_an_error_of_the_format(format: Format) -> None:
    from monitor.testing._steps import Reset

    async with behind(format, [[*format.words("Let me see. "), Reset()]]) as (proxy, client, _):
        with pytest.raises(format.errors, match="broke off"):
            await format.stream(client, format.task("Go on"))
    assert only_run(proxy).state == "failed"


@each_format
async def test_the_key_reaches_the_upstream_and_nothing_else(format: Format) -> None:
    async with behind(format, [format.turn("hello")]) as (proxy, client, upstream):
        await format.stream(client, format.task("Go on"))
    assert KEY in str(upstream.requests[0].headers)
    assert not any(name.startswith("x-agent-monitor") for name in upstream.requests[0].headers)
    assert KEY not in str(only_run(proxy))

"""Runs that loop over their turns: judged from the request, held for an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from monitor import MaxTurns
from monitor.proxy import Proxy
from monitor.testing import FakeClock, LocalOpenAI
from monitor.testing.openai_steps import finish, text
from tests.proxy.asked import BEARER, TOKEN, Reply, ask, chat, looping

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]
CHAT = "/v1/chat/completions"
FRESH = {"role": "user", "content": "Try something else"}


@pytest.fixture
def upstream() -> Iterator[LocalOpenAI]:
    with LocalOpenAI([[text("hello"), finish()]]) as server:
        yield server


def proxy_of(server: LocalOpenAI, **options: Any) -> Proxy:
    return Proxy(server.base_url.removesuffix("/v1"), token=TOKEN, **options)


async def held(proxy: Proxy, request: Any, then: str | Callable[[], object]) -> Reply:
    """The answer to a request that is held. `then`: an operator's word, or what happens."""
    replies: list[Reply] = []

    async def asking() -> None:
        replies.append(await ask(proxy, "POST", CHAT, request))

    async with anyio.create_task_group() as group:
        group.start_soon(asking)
        while not any(run.state == "held" for run in proxy.runs):  # noqa: ASYNC110 - the proxy has no event for it
            await anyio.sleep(0.001)
        (run,) = proxy.runs
        if callable(then):
            then()
        else:
            done = await ask(proxy, "POST", f"/agent-monitor/runs/{run.id}?do={then}", headers=BEARER)
            assert done.status == 200
    return replies[0]


async def test_a_history_in_a_loop_is_answered_without_the_upstream(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream)
    fine, stopped = await ask(proxy, "POST", CHAT, looping(4)), await ask(proxy, "POST", CHAT, looping(5))
    assert b"hello" in fine.body
    assert stopped.header("x-agent-monitor").startswith("stopped; loop_detected")
    assert b"5 times in a row" in stopped.body
    assert stopped.body.endswith(b"data: [DONE]\n\n")
    assert len(upstream.requests) == 1
    await proxy.aclose()


async def test_a_request_without_a_stream_is_refused_with_the_reason(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream, stop_as="error")
    reply = await ask(proxy, "POST", CHAT, {**looping(5), "stream": False})
    assert (reply.status, reply.header("x-should-retry")) == (400, "false")
    assert "5 times in a row" in reply.json["error"]["message"]
    await proxy.aclose()


async def test_a_new_task_of_the_user_is_not_held_for_the_loop_of_the_last_one(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream)
    done = {"role": "assistant", "content": "I stop here."}
    assert b"hello" in (await ask(proxy, "POST", CHAT, looping(9, done, FRESH))).body
    await proxy.aclose()


async def test_a_word_of_the_user_gives_the_model_one_more_turn(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream)
    assert b"hello" in (await ask(proxy, "POST", CHAT, looping(5, FRESH))).body
    again = looping(6)["messages"][-2:]
    assert b"hello" not in (await ask(proxy, "POST", CHAT, looping(5, FRESH, *again))).body
    await proxy.aclose()


async def test_a_reminder_behind_every_result_is_no_word_of_the_user(upstream: LocalOpenAI) -> None:
    request = looping(6)
    first, *turns = request["messages"]
    reminder = {"role": "user", "content": "Remember the list."}
    pairs = [[turns[at], turns[at + 1], reminder] for at in range(0, len(turns), 2)]
    proxy = proxy_of(upstream)
    reply = await ask(proxy, "POST", CHAT, {**request, "messages": [first, *(one for pair in pairs for one in pair)]})
    assert reply.header("x-agent-monitor").startswith("stopped; loop_detected")
    await proxy.aclose()


async def test_limits_on_turns_count_over_the_task(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream, stop_when=MaxTurns(3))
    assert b"hello" in (await ask(proxy, "POST", CHAT, looping(2))).body
    assert (await ask(proxy, "POST", CHAT, looping(3))).header("x-agent-monitor").startswith("stopped; max_turns")
    await proxy.aclose()


async def test_a_held_run_that_is_let_go_is_answered_and_not_held_for_this_loop_again(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream, on_loop="hold", keep_alive_s=0.01)
    reply = await held(proxy, looping(5), "go")
    assert reply.header("x-agent-monitor").startswith("held")
    assert reply.body.startswith(b": agent-monitor")
    assert b"hello" in reply.body
    assert b"hello" in (await ask(proxy, "POST", CHAT, looping(6))).body
    await proxy.aclose()


@pytest.mark.parametrize("said", ["stop", None])
async def test_a_held_run_that_is_not_let_go_ends_well(upstream: LocalOpenAI, said: str | None) -> None:
    clock = FakeClock()
    proxy = proxy_of(upstream, on_loop="hold", hold_s=300, keep_alive_s=0.01, clock=clock)
    reply = await held(proxy, looping(5), said or (lambda: clock.advance(300)))
    assert reply.body.endswith(b"data: [DONE]\n\n")
    assert upstream.requests == []
    (run,) = proxy.runs
    assert run.state == "stopped"
    await proxy.aclose()


async def test_when_too_many_wait_a_further_one_is_stopped_at_once(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream, on_loop="hold", most_held=1)
    async with anyio.create_task_group() as group:
        group.start_soon(ask, proxy, "POST", CHAT, looping(5))
        while not any(run.state == "held" for run in proxy.runs):  # noqa: ASYNC110 - as above
            await anyio.sleep(0.001)
        (waits,) = proxy.runs
        other = await ask(proxy, "POST", CHAT, looping(5), headers={"x-agent-monitor-run": "another"})
        assert other.header("x-agent-monitor").startswith("stopped; loop_detected")
        await ask(proxy, "POST", f"/agent-monitor/runs/{waits.id}?do=stop", headers=BEARER)
    await proxy.aclose()


async def test_runs_are_told_apart_by_how_they_began_or_by_name(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream)
    for request in (looping(1), looping(2), chat("Another task")):
        await ask(proxy, "POST", CHAT, request)
    await ask(proxy, "POST", CHAT, looping(1), headers={"x-agent-monitor-run": "night-7"})
    await ask(proxy, "POST", CHAT, looping(1), headers={"authorization": "Bearer sk-another-key"})
    assert [run.requests for run in proxy.runs] == [1, 1, 1, 2]
    assert "no-key/night-7" in {run.id for run in proxy.runs}
    await proxy.aclose()


async def test_a_held_run_can_be_let_go_while_another_of_its_requests_goes_on(upstream: LocalOpenAI) -> None:
    proxy = proxy_of(upstream, on_loop="hold")
    async with anyio.create_task_group() as group:
        group.start_soon(ask, proxy, "POST", CHAT, looping(5))
        while not any(run.held for run in proxy.runs):  # noqa: ASYNC110 - the proxy has no event for it
            await anyio.sleep(0.001)
        await ask(proxy, "POST", CHAT, looping(1))
        (held_run,) = proxy.runs
        assert held_run.to_dict()["state"] == "held"
        assert (await ask(proxy, "POST", f"/agent-monitor/runs/{held_run.id}?do=go", headers=BEARER)).status == 200
    (run,) = proxy.runs
    assert run.to_dict()["state"] == "ended"
    await proxy.aclose()

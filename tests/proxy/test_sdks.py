"""The real SDKs, unmodified, behind the proxy: each format, and each way to cut an answer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from monitor import IdleTimeout
from monitor.proxy import Proxy
from monitor.shared import SQLiteBudgets
from monitor.testing import FakeClock, anthropic_steps, gemini_steps, openai_steps
from monitor.testing.local_server import LocalServer, Scripts
from monitor.testing.openai_steps import Reset, Script, Stall
from tests.proxy.asked import ask
from tests.proxy.served import serving
from tests.proxy.services import FORMATS, KEY, Format, Said

pytestmark = pytest.mark.asyncio
each_format = pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)

A, B = ("read", {"path": "a.txt"}), ("read", {"path": "b.txt"})
PASS = {"authorization": "Bearer token"}


@asynccontextmanager
async def behind(kind: Format, scripts: Scripts, **options: Any) -> AsyncIterator[tuple[Proxy, Any, LocalServer]]:
    """A proxy, a client of it, and its upstream."""
    with kind.upstream(scripts) as upstream:
        root = upstream.base_url.removesuffix("/v1")
        proxy = Proxy(root, token="token", **options)
        async with serving(proxy) as address, kind.client(address) as client:
            yield proxy, client, upstream


def only_run(proxy: Proxy) -> Any:
    (run,) = proxy.runs
    return run


async def until_it_stalls(kind: Format, client: Any, upstream: LocalServer, script: Script, clock: FakeClock) -> Said:
    """What the SDK makes of an answer that begins with a text and ends in a stall."""
    pieces = itertools.count(1)
    text = asyncio.Event()

    def on_piece() -> None:
        if next(pieces) == len(kind.words("")):
            text.set()

    asking = asyncio.create_task(kind.stream(client, kind.task("Go on"), on_piece))
    await text.wait()
    while upstream.requests[0].events_sent < len(script) - 1:  # noqa: ASYNC110 - the server has no event for it
        await asyncio.sleep(0.001)
    await anyio.wait_all_tasks_blocked()
    clock.advance(10)
    return await asking


def called(proxy: Proxy) -> str:
    """The end of a sentence about the only run."""
    return f"Run {only_run(proxy).name}."


@each_format
async def test_an_answer_that_does_not_loop_passes_as_it_is(kind: Format) -> None:
    async with behind(kind, [kind.turn("The sky is blue.", [A])]) as (proxy, client, _):
        streamed = await kind.stream(client, kind.task("Why?"))
        whole = await kind.ask(client, kind.task("Why?"))
    for said in (streamed, whole):
        assert said.text == "The sky is blue."
        assert [call[1] for call in said.calls] == ["read"]
    run = only_run(proxy)
    assert (run.wire, run.requests, run.stops, run.unwatched, run.state) == (kind.name, 2, 0, "", "ended")


@each_format
async def test_a_chant_is_cut_the_upstream_closed_and_the_sdk_sees_a_good_end(kind: Format) -> None:
    async with behind(kind, [kind.chant()]) as (proxy, client, upstream):
        said = await kind.stream(client, kind.task("Go on"))
        await upstream.wait_closed_async(0)
    assert said.end in kind.good_ends
    assert said.text.startswith("Let me see. I will now")
    assert only_run(proxy).last_stop["reason"] == "loop_detected"
    assert only_run(proxy).state == "stopped"


@each_format
async def test_a_cycle_of_calls_over_turns_ends_with_a_good_end_and_no_further_call(kind: Format) -> None:
    turns = [kind.turn("", [A if number % 2 == 0 else B]) for number in range(30)]
    async with behind(kind, turns) as (proxy, client, upstream):
        history, said = kind.task("Tidy up"), await kind.stream(client, kind.task("Tidy up"))
        while said.calls and len(upstream.requests) < 20:
            kind.answered(history, said, "nothing here")
            said = await kind.stream(client, history)
    assert said.calls == []
    assert said.end in kind.good_ends
    assert 6 <= len(upstream.requests) <= 8
    assert only_run(proxy).last_stop["reason"] == "loop_detected"


@each_format
async def test_two_hundred_calls_in_one_answer_are_cut_and_the_sdk_raises_the_reason(kind: Format) -> None:
    async with behind(kind, [kind.turn("", [A] * 228)]) as (proxy, client, _):
        with pytest.raises(kind.errors, match="agent-monitor stopped this run: loop_detected"):
            await kind.stream(client, kind.task("Read it"))
    assert only_run(proxy).last_stop["source"] == "tool_call_repetition"


@each_format
async def test_a_stall_ends_at_its_limit_with_a_good_end(kind: Format) -> None:
    script, clock = kind.stall(), FakeClock()
    async with behind(kind, [script], stop_when=IdleTimeout(10), clock=clock) as (proxy, client, upstream):
        said = await until_it_stalls(kind, client, upstream, script, clock)
        await upstream.wait_closed_async(0)
    assert said.text.startswith("Let me see. ")
    assert said.text.endswith(
        f"[agent-monitor stopped this answer: the service was silent for too long. {called(proxy)}]"
    )
    assert said.end in kind.good_ends
    assert only_run(proxy).last_stop["reason"] == "idle_timeout"


@each_format
async def test_without_budget_no_call_is_made_and_the_stream_has_a_good_end(kind: Format) -> None:
    store = SQLiteBudgets(":memory:")
    await store.set_limit("proxy", tokens=10)
    async with behind(kind, [kind.turn("hello")], budget=store) as (proxy, client, upstream):
        streamed = await kind.stream(client, kind.task("Go on"))
        whole = await kind.ask(client, kind.task("Go on"))
    for said in (streamed, whole):
        sentence = f"[agent-monitor stopped this answer: its budget of tokens is used up. {called(proxy)}]"
        assert (said.text, said.calls) == (sentence, [])
        assert said.end in kind.good_ends
    assert upstream.requests == []
    assert only_run(proxy).last_stop["reason"] == "token_limit"


@each_format
async def test_a_held_run_waits_behind_comments_that_the_sdk_skips(kind: Format) -> None:
    options = {"on_loop": "hold", "keep_alive_s": 0.01}
    async with behind(kind, [kind.turn("", [A]), kind.turn("hello")], **options) as (proxy, client, _):
        history = kind.task("Tidy up")
        said = await kind.stream(client, history)
        for _ in range(5):
            kind.answered(history, said, "nothing here")
        asking = asyncio.create_task(kind.stream(client, history))
        while only_run(proxy).state != "held":  # noqa: ASYNC110 - the proxy has no event for it
            await asyncio.sleep(0.001)
        done = await ask(proxy, "POST", f"/agent-monitor/runs/{only_run(proxy).id}?do=go", headers=PASS)
        assert done.status == 200
        assert (await asking).text == "hello"


@each_format
async def test_with_on_loop_error_the_sdk_raises(kind: Format) -> None:
    async with behind(kind, [kind.chant()], on_loop="error") as (_, client, upstream):
        with pytest.raises(kind.errors, match="loop_detected"):
            await kind.stream(client, kind.task("Go on"))
        await upstream.wait_closed_async(0)


@each_format
@pytest.mark.parametrize("script", ["stall", "silence"])
async def test_a_client_that_leaves_closes_the_upstream_before_and_after_the_first_byte(
    kind: Format, script: str
) -> None:
    answer = kind.stall() if script == "stall" else kind.stall()[-1:]
    first = asyncio.Event()
    async with behind(kind, [answer]) as (proxy, client, upstream):
        asking = asyncio.create_task(kind.stream(client, kind.task("Go on"), first.set))
        if script == "stall":
            await first.wait()
        else:
            await asyncio.to_thread(upstream.wait_request, 0)
        asking.cancel()
        await upstream.wait_closed_async(0)
        while only_run(proxy).active:  # noqa: ASYNC110 - the proxy has no event for it
            await asyncio.sleep(0.001)
    assert only_run(proxy).state == "left"


@each_format
async def test_another_proxy_after_a_restart_gives_the_same_verdict(kind: Format) -> None:
    with kind.upstream([kind.turn("", [A])]) as upstream:
        root, history = upstream.base_url.removesuffix("/v1"), kind.task("Tidy up")
        async with serving(Proxy(root)) as address, kind.client(address) as client:
            for _ in range(5):
                kind.answered(history, await kind.stream(client, history), "nothing here")
        async with serving(Proxy(root)) as address, kind.client(address) as client:
            said = await kind.stream(client, history)
    assert said.calls == []
    assert said.end in kind.good_ends
    assert len(upstream.requests) == 5


@each_format
async def test_an_upstream_that_breaks_off_is_an_error_of_the_format(kind: Format) -> None:
    async with behind(kind, [[*kind.words("Let me see. "), Reset()]]) as (proxy, client, _):
        with pytest.raises(kind.errors, match="broke off"):
            await kind.stream(client, kind.task("Go on"))
    assert only_run(proxy).state == "failed"


@each_format
async def test_the_key_reaches_the_upstream_and_nothing_else(kind: Format) -> None:
    async with behind(kind, [kind.turn("hello")]) as (proxy, client, upstream):
        await kind.stream(client, kind.task("Go on"))
    assert KEY in str(upstream.requests[0].headers)
    assert not any(name.startswith("x-agent-monitor") for name in upstream.requests[0].headers)
    assert KEY not in str(only_run(proxy))


# --- a stop that everybody sees


@each_format
@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "in one piece"])
async def test_the_sentence_is_the_last_text_of_an_answer_that_loops(kind: Format, streams: bool) -> None:
    """Also of one that the client wants in one piece: the service is asked for a stream."""
    async with behind(kind, [kind.chant()]) as (proxy, client, upstream):
        said = await (kind.stream if streams else kind.ask)(client, kind.task("Go on"))
        await upstream.wait_closed_async(0)
        sentence = f"\n\n[agent-monitor stopped this answer: it repeated itself. {called(proxy)}]"
    assert said.text.startswith("Let me see. I will now")
    assert said.text.endswith(sentence)
    assert said.text.count("agent-monitor") == 1
    assert len(said.text) < 1_500
    assert said.end in kind.good_ends


@each_format
async def test_by_choice_a_stop_is_silent_or_an_error(kind: Format) -> None:
    async with behind(kind, [kind.chant()], stop_as="silent") as (_, client, _upstream):
        said = await kind.stream(client, kind.task("Go on"))
        assert "agent-monitor" not in said.text
    async with behind(kind, [kind.chant()], stop_as="error") as (_, client, _upstream):
        for ask_ in (kind.stream, kind.ask):
            with pytest.raises(kind.errors, match="loop_detected"):
                await ask_(client, kind.task("Go on"))


@each_format
async def test_half_a_call_never_reaches_the_client_and_a_whole_one_does(kind: Format) -> None:
    """The answer stalls inside its second call."""
    turn = kind.turn("Let me look. ", [A, ("write", {"text": "words and words " * 50})])
    cut = next(at for at in range(len(turn) - 1, 0, -1) if "words" in str(turn[at]))
    clock = FakeClock()
    options = {"stop_as": "silent", "stop_when": IdleTimeout(10), "clock": clock}
    for script in ([*turn[:cut], Stall()], [*turn[: cut + 1], Stall()], [*turn, Stall()]):
        async with behind(kind, [script], **options) as (_, client, upstream):
            with contextlib.suppress(kind.errors):  # a whole call was sent: its answer cannot end well
                said = await until_it_stalls(kind, client, upstream, script, clock)
                assert said.text == "Let me look. "
                for _id, _name, arguments in said.calls:
                    assert isinstance(arguments, dict) or isinstance(json.loads(arguments), dict)


@each_format
async def test_five_stops_in_one_run_are_no_loop_of_ours(kind: Format) -> None:
    sentence = "[agent-monitor stopped this answer: it repeated itself. Run r.]"
    async with behind(kind, [kind.turn("hello")]) as (proxy, client, _):
        history = kind.task("Go on")
        for _ in range(5):
            kind.answered(history, Said(sentence), "")
            history += kind.task("Go on")
        assert (await kind.stream(client, history)).text == "hello"
    assert only_run(proxy).stops == 0


@each_format
async def test_a_service_without_streams_is_asked_as_the_client_did(kind: Format) -> None:
    async with behind(kind, [error_of(kind, 400), kind.turn("hello")]) as (proxy, client, upstream):
        assert (await kind.ask(client, kind.task("Go on"))).text == "hello"
    assert len(upstream.requests) == 2
    assert only_run(proxy).stops == 0


def error_of(kind: Format, status: int) -> Any:
    """A refusal in the form of the service."""
    steps = {"anthropic": anthropic_steps, "gemini": gemini_steps}.get(kind.name, openai_steps)
    return [steps.error_reply(status, "no streams here")]


@each_format
async def test_a_failure_of_the_service_stays_one_that_may_pass(kind: Format) -> None:
    """Line for line as without the proxy: the SDKs of OpenAI and Anthropic ask three times."""
    async with behind(kind, [[Reset()], kind.turn("hello")]) as (_, client, upstream):
        if kind.name == "gemini":
            with pytest.raises(kind.errors, match="broke off"):
                await kind.ask(client, kind.task("Go on"))
        else:
            assert (await kind.ask(client, kind.task("Go on"))).text == "hello"
    assert len(upstream.requests) == (1 if kind.name == "gemini" else 2)

"""Loops and runs of programs without an event loop, with the real SDKs against local servers."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from anthropic import Anthropic, AsyncAnthropic, RateLimitError
from google import genai
from google.genai import errors, types

import monitor
from monitor.guard.streams.wait import run_in_own_loop
from monitor.testing import (
    LocalAnthropic,
    LocalGemini,
    LocalOpenAI,
    ScriptedModel,
    anthropic_steps,
    capture_events,
    gemini_steps,
    openai_steps,
)
from tests.adapters.google.sdk import sdk_warnings

pytestmark = sdk_warnings

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


def gemini(server: LocalGemini) -> genai.Client:
    retries = types.HttpRetryOptions(attempts=1)
    return genai.Client(api_key="x", http_options=types.HttpOptions(base_url=server.base_url, retry_options=retries))


def calls(sdk: str) -> list[Any]:
    """A turn that calls a tool."""
    if sdk == "openai":
        return [openai_steps.call("look", {"at": 1}), openai_steps.finish("tool_calls")]
    if sdk == "anthropic":
        called = anthropic_steps.call("look", {"at": 1})
        return [anthropic_steps.start(), *called, *anthropic_steps.finish("tool_use")]
    return [gemini_steps.call("look", {"at": 1}), gemini_steps.finish()]


def says(sdk: str) -> list[Any]:
    """A turn that answers."""
    if sdk == "openai":
        return [openai_steps.text("It is closed."), openai_steps.finish()]
    if sdk == "anthropic":
        return [anthropic_steps.start(), *anthropic_steps.say("It is closed."), *anthropic_steps.finish()]
    return [gemini_steps.text("It is closed."), gemini_steps.finish()]


@contextmanager
def server_of(sdk: str, *turns: Any) -> Iterator[tuple[Any, Any]]:
    """A local server, and a function that asks it without an event loop."""
    server: Any
    if sdk == "openai":
        with LocalOpenAI(turns) as server, openai.OpenAI(api_key="x", base_url=server.base_url, max_retries=0) as one:
            yield server, lambda: one.chat.completions.create(model="m", messages=HELLO, stream=True)
    elif sdk == "anthropic":
        with LocalAnthropic(turns) as server, Anthropic(api_key="x", base_url=server.base_url, max_retries=0) as other:
            yield server, lambda: other.messages.create(model="m", max_tokens=9, messages=HELLO, stream=True)
    else:
        with LocalGemini(turns) as server:
            client = gemini(server)
            try:
                yield server, lambda: client.models.generate_content_stream(model="m", contents="hello")
            finally:
                client.close()


each_sdk = pytest.mark.parametrize("sdk", ["openai", "anthropic", "google"])


@each_sdk
def test_a_guard_ends_a_plain_loop_that_makes_the_same_call_again_and_again(sdk: str):
    with server_of(sdk, calls(sdk)) as (server, ask), monitor.Guard(stop_when=monitor.MaxTurns(50)) as guard:
        for _ in range(60):
            with guard.watch(ask) as watched:
                for _ in watched:
                    pass
            assert [call.name for call in watched.turn.tool_calls] == ["look"]
            for call in watched.turn.tool_calls:
                guard.tool_result(call, "nothing new")
            if isinstance(guard.check(), monitor.Stop):
                break
    assert guard.outcome.reason is monitor.TerminateReason.LOOP_DETECTED
    assert len(server.requests) < 20
    lacking = {one.what for one in guard.coverage() if not one.guarded}
    assert lacking <= {"interruption", "usage"}  # reads that block, and a server that counts nothing


def test_the_message_of_each_turn_makes_a_history_that_the_real_sdk_sends():
    """A loop of one's own for OpenAI, without an event loop."""
    history: list[Any] = [{"role": "user", "content": "Is it closed?"}]
    with (
        LocalOpenAI([calls("openai"), says("openai")]) as server,
        openai.OpenAI(api_key="x", base_url=server.base_url, max_retries=0) as client,
        monitor.Guard(stop_when=monitor.MaxTurns(5)) as guard,
    ):
        while True:
            with guard.watch(client.chat.completions.create(model="m", messages=history, stream=True)) as watched:
                for _ in watched:
                    pass
            history += watched.to_form("openai-chat")
            for call in watched.turn.tool_calls:
                guard.tool_result(call, "closed")
                history.append({"role": "tool", "tool_call_id": call.id, "content": "closed"})
            if isinstance(guard.check(), monitor.Stop):
                break
            if not watched.turn.tool_calls:
                guard.finish()
                break
    assert guard.outcome.ok
    sent = server.requests[1].body["messages"]
    assert sent == history[:3]
    assert sent[1]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": 1}'}
    assert history[3] == {"role": "assistant", "content": "It is closed."}


@each_sdk
def test_whole_runs_need_no_event_loop_of_the_program_and_may_share_a_client(sdk: str):
    def look(at: int) -> str:
        """Look."""
        return f"{at} is closed"

    with server_of(sdk, *[calls(sdk), says(sdk)] * 3) as (server, _):
        client: Any = {
            "openai": lambda: openai.AsyncOpenAI(api_key="x", base_url=server.base_url, max_retries=0),
            "anthropic": lambda: AsyncAnthropic(api_key="x", base_url=server.base_url, max_retries=0),
            "google": lambda: gemini(server),
        }[sdk]()
        supervisor = monitor.Supervisor(
            monitor.model(f"{sdk}:m", client=client), tools=[look], requests=monitor.runs.Requests(retries=None)
        )
        outcomes = [supervisor.run_sync("Is it closed?") for _ in range(3)]
        run_in_own_loop(client.aio.aclose if sdk == "google" else client.close)
    assert [outcome.detail for outcome in outcomes if not outcome.ok] == []
    assert [(outcome.text, outcome.turns) for outcome in outcomes] == [("It is closed.", 2)] * 3


def test_each_thread_has_a_loop_of_its_own_that_ends_with_it():
    loops: list[asyncio.AbstractEventLoop] = []

    async def note() -> None:
        loops.append(asyncio.get_running_loop())

    def twice() -> None:
        run_in_own_loop(note)
        run_in_own_loop(note)

    for _ in range(2):
        thread = threading.Thread(target=twice)
        thread.start()
        thread.join()
    gc.collect()
    assert loops[0] is loops[1]
    assert loops[2] is loops[3]
    assert loops[0] is not loops[2]
    assert all(loop.is_closed() for loop in loops)


def test_a_run_sees_the_context_of_its_caller_and_not_that_of_the_run_before():
    with capture_events() as first:
        monitor.Supervisor(ScriptedModel("one")).run_sync("go")
    with capture_events() as second:
        monitor.Supervisor(ScriptedModel("two")).run_sync("go")
    assert (first.outcome.text, second.outcome.text) == ("one", "two")


@each_sdk
def test_with_reraise_the_except_of_the_program_gets_the_error_of_its_sdk(sdk: str):
    steps: Any = {"openai": openai_steps, "anthropic": anthropic_steps, "google": gemini_steps}[sdk]
    raised: Any = {"openai": openai.APIError, "anthropic": RateLimitError, "google": errors.APIError}[sdk]
    with server_of(sdk, [steps.rate_limited()]) as (_, ask), monitor.Guard() as guard:
        with pytest.raises(raised), guard.watch(ask, reraise=True) as watched:
            for _ in watched:
                pass
        assert watched.turn.stopped is not None
        assert isinstance(guard.check(), monitor.Stop)
    assert guard.outcome.reason is monitor.TerminateReason.RATE_LIMITED


@each_sdk
@pytest.mark.asyncio
async def test_with_reraise_an_asynchronous_stream_raises_it_too(sdk: str):
    steps: Any = {"openai": openai_steps, "anthropic": anthropic_steps, "google": gemini_steps}[sdk]
    raised: Any = {"openai": openai.APIError, "anthropic": RateLimitError, "google": errors.APIError}[sdk]
    with server_of(sdk, [steps.rate_limited()]) as (server, _):
        if sdk == "openai":
            one = openai.AsyncOpenAI(api_key="x", base_url=server.base_url, max_retries=0)
            ask: Any = lambda: one.chat.completions.create(model="m", messages=HELLO, stream=True)  # noqa: E731
            close = one.close
        elif sdk == "anthropic":
            other = AsyncAnthropic(api_key="x", base_url=server.base_url, max_retries=0)
            ask = lambda: other.messages.create(model="m", max_tokens=9, messages=HELLO, stream=True)  # noqa: E731
            close = other.close
        else:
            client = gemini(server)
            ask = lambda: client.aio.models.generate_content_stream(model="m", contents="hello")  # noqa: E731
            close = client.aio.aclose
        watched = monitor.watch(ask, reraise=True)

        async def read() -> None:
            async with watched:
                async for _ in watched:
                    pass

        with pytest.raises(raised):
            await read()
        assert watched.outcome.reason is monitor.TerminateReason.RATE_LIMITED
        await close()
        await asyncio.sleep(0)

"""LiteLLM: every provider's connection is closed, and OpenAI's form is read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("litellm", reason="the framework is not installed: litellm")

import litellm

import monitor
from monitor.errors import ConfigError, TerminateReason
from monitor.integrations.litellm import LiteLLMAdapter, completion, completion_sync
from monitor.testing import LocalAnthropic, LocalGemini, LocalOpenAI, anthropic_steps, gemini_steps
from monitor.testing.local_server import LocalServer
from monitor.testing.openai_steps import Repeat, Reply, call, call_piece, finish, text

CHANT = "Let me check the file again. "
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of LiteLLM itself
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of pydantic, about LiteLLM's types
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # its clients are never closed
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm, "suppress_debug_info", True)


def openai_stream(base_url: str, ask: Any = completion) -> Any:
    return asked(ask, base_url, "openai/local")


def anthropic_stream(base_url: str, ask: Any = completion) -> Any:
    return asked(ask, base_url, "anthropic/claude-3")


def gemini_stream(base_url: str, ask: Any = completion) -> Any:
    return asked(ask, f"{base_url}/v1beta/models/gemini-2.5-flash", "gemini/gemini-2.5-flash")


def asked(ask: Any, base_url: str, model: str) -> Any:
    messages = [{"role": "user", "content": "go"}]
    return ask(model=model, messages=messages, api_base=base_url, api_key="none", num_retries=0)


def openai_server() -> LocalServer:
    return LocalOpenAI([[Repeat(text(CHANT), 5000, delay_s=0.001)]])


def anthropic_server() -> LocalServer:
    begin = anthropic_steps.events_of("x")[:2]
    return LocalAnthropic([[*begin, anthropic_steps.Repeat(anthropic_steps.text(CHANT), 5000, delay_s=0.001)]])


def gemini_server() -> LocalServer:
    return LocalGemini([[gemini_steps.Repeat(gemini_steps.text(CHANT), 5000, delay_s=0.001)]])


@pytest.mark.parametrize(
    ("server", "stream"),
    [(openai_server, openai_stream), (anthropic_server, anthropic_stream), (gemini_server, gemini_stream)],
    ids=["openai", "anthropic", "gemini"],
)
@pytest.mark.asyncio
async def test_a_chant_is_cut_and_the_server_sees_the_client_leave(
    server: Callable[[], LocalServer], stream: Callable[[str], Any]
):
    with server() as local:
        async with monitor.Guard() as guard, guard.watch(stream(local.base_url), adapter=LiteLLMAdapter) as watched:
            async for _ in watched:
                pass
        await local.wait_closed_async(0)
        assert local.requests[0].events_sent < 500
    assert guard.outcome.reason is TerminateReason.LOOP_DETECTED
    assert guard.outcome.closed
    assert guard.outcome.text.startswith(CHANT)
    assert guard.outcome.usage_estimated


@pytest.mark.parametrize(
    ("server", "stream"),
    [(openai_server, openai_stream), (anthropic_server, anthropic_stream), (gemini_server, gemini_stream)],
    ids=["openai", "anthropic", "gemini"],
)
def test_without_an_event_loop_too(server: Callable[[], LocalServer], stream: Callable[..., Any]):
    with server() as local:
        source = stream(local.base_url, completion_sync)
        with monitor.Guard() as guard, guard.watch(source, adapter=LiteLLMAdapter) as watched:
            for _ in watched:
                pass
        local.wait_closed(0)
        assert local.requests[0].events_sent < 500
    assert guard.outcome.reason is TerminateReason.LOOP_DETECTED
    assert guard.outcome.closed


def test_the_stream_of_litellm_itself_can_be_watched_in_a_with_block():
    with LocalOpenAI([[text("It is "), text("done."), finish()]]) as local:
        stream: Any = openai_stream(local.base_url, partial(litellm.completion, stream=True))
        with monitor.watch(stream, adapter=LiteLLMAdapter) as watched:
            for _ in watched:
                pass
    assert watched.outcome.text == "It is done."


@pytest.mark.asyncio
async def test_calls_and_usage_are_read_and_results_are_seen_over_the_turns():
    looks = [[call_piece('{"q": ', name="look", id=f"c{n}"), call_piece("1}"), finish("tool_calls")] for n in range(9)]
    with LocalOpenAI(looks) as server:
        async with monitor.Guard() as guard:
            while True:
                async with guard.watch(openai_stream(server.base_url), adapter=LiteLLMAdapter) as watched:
                    async for _ in watched:
                        pass
                for one in watched.turn.tool_calls:
                    guard.tool_result(one, "nothing was found in the whole archive")
                if isinstance(guard.check(), monitor.Stop):
                    break
        assert len(server.requests) == 5
    assert guard.outcome.reason is TerminateReason.LOOP_DETECTED
    assert guard.outcome.usage.input_tokens == 4 * 7  # the fifth response was cut before its usage
    assert guard.outcome.usage_estimated


@pytest.mark.asyncio
async def test_a_refused_key_is_the_reason():
    refused = Reply(401, b'{"error": {"message": "no such key", "code": "invalid_api_key"}}')
    with LocalOpenAI([[refused]]) as server:
        async with monitor.watch(openai_stream(server.base_url), adapter=LiteLLMAdapter) as watched:
            async for _ in watched:
                pass
    assert isinstance(watched.outcome.error, litellm.exceptions.AuthenticationError)
    assert watched.turn.model_error is not None
    assert watched.turn.model_error.kind == "auth"


@pytest.mark.asyncio
async def test_a_whole_response_is_refused():
    with pytest.raises(ConfigError, match="stream=False"):
        await anext(completion(model="openai/local", messages=[], stream=False))


@pytest.mark.asyncio
async def test_a_whole_call_in_one_chunk_is_a_call():
    with LocalOpenAI([[call("look", {"q": 1}), finish("tool_calls")]]) as server:
        async with monitor.watch(openai_stream(server.base_url), adapter=LiteLLMAdapter) as watched:
            async for _ in watched:
                pass
    assert [(one.name, one.arguments) for one in watched.turn.tool_calls] == [("look", {"q": 1})]


def test_a_chunk_is_plain_text_only_if_it_says_nothing_else():
    from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices

    def chunk(finish: Any = None, **delta: Any) -> Any:
        return ModelResponseStream(choices=[StreamingChoices(finish_reason=finish, delta=Delta(**delta))])

    adapter = LiteLLMAdapter()
    assert adapter.plain_text(chunk(content="first")) is None  # no chunk has shown the form of the stream
    adapter.decode(chunk(content="first"))
    assert adapter.plain_text(chunk(content="next")) == "next"
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    for other in (
        chunk(content="last", finish="stop"),
        chunk(content="so", reasoning_content="hm"),
        chunk(content="so", tool_calls=[call]),
        chunk(content=""),
        object(),
    ):
        assert adapter.plain_text(other) is None

"""A service may repeat the key that it refuses. It stands in no outcome, no event and no log."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import anyio.lowlevel
import httpx2
import openai
import pytest
from google import genai
from google.genai import types

import monitor
from monitor._util.codec import to_plain
from monitor.errors import REMOVED, describe, message_of, without_keys
from monitor.sinks import JsonlSink, LogSink, MemorySink
from monitor.testing import LocalAnthropic, LocalGemini, LocalOpenAI, anthropic_steps, gemini_steps, openai_steps

KEY = "my-own.server_key/0123=="
"""Nothing that looks like a key of a known service."""
SAID = f"Incorrect API key provided: {KEY}. Find yours at the console."


@asynccontextmanager
async def google(url: str, transport: str) -> AsyncIterator[monitor.models.Model]:
    args: dict[str, Any] = (
        {"async_client_args": {"transport": httpx2.AsyncHTTPTransport()}} if transport == "httpx2" else {}
    )
    options = types.HttpOptions(base_url=url, retry_options=types.HttpRetryOptions(attempts=1), **args)
    client = genai.Client(api_key=KEY, vertexai=False, http_options=options)
    yield monitor.model("google:gemini-x", client=client)
    await client.aio.aclose()
    client.close()


@asynccontextmanager
async def chat(url: str, transport: str, api: str = "openai") -> AsyncIterator[monitor.models.Model]:
    options: dict[str, Any] = {"http_client": openai.DefaultAioHttpClient()} if transport == "aiohttp" else {}
    async with openai.AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0, **options) as client:
        yield monitor.model(f"{api}:gpt-x", client=client)


def responses(url: str, transport: str) -> AbstractAsyncContextManager[monitor.models.Model]:
    return chat(url, transport, "openai-responses")


@asynccontextmanager
async def claude(url: str, transport: str, **key: Any) -> AsyncIterator[monitor.models.Model]:
    options: dict[str, Any] = {"http_client": anthropic.DefaultAioHttpClient()} if transport == "aiohttp" else {}
    options |= key or {"api_key": KEY}
    async with anthropic.AsyncAnthropic(base_url=url, max_retries=0, **options) as client:
        yield monitor.model("anthropic:claude-x", client=client)


def bearer(url: str, transport: str) -> AbstractAsyncContextManager[monitor.models.Model]:
    return claude(url, transport, auth_token=KEY)


SERVICES: dict[str, tuple[Any, Any, Any, Any]] = {
    "google": (
        LocalGemini,
        google,
        gemini_steps.error_reply(401, SAID),
        [gemini_steps.midstream_error(401, SAID, "UNAUTHENTICATED")],
    ),
    "chat": (
        LocalOpenAI,
        chat,
        openai_steps.error_reply(401, SAID),
        [openai_steps.text("a"), openai_steps.midstream_error(message=SAID)],
    ),
    "responses": (
        LocalOpenAI,
        responses,
        openai_steps.error_reply(401, SAID),
        [openai_steps.response_created(), openai_steps.response_error(message=SAID)],
    ),
    "anthropic": (
        LocalAnthropic,
        claude,
        anthropic_steps.error_reply(401, SAID),
        [anthropic_steps.start(), anthropic_steps.midstream_error("api_error", SAID)],
    ),
    "anthropic, a token": (
        LocalAnthropic,
        bearer,
        anthropic_steps.error_reply(401, SAID),
        [anthropic_steps.start(), anthropic_steps.midstream_error("api_error", SAID)],
    ),
}


@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession from ClientSession:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Unclosed connection:ResourceWarning")
@pytest.mark.parametrize("transport", ["aiohttp", "httpx2"])
@pytest.mark.parametrize("how", ["refused", "in the stream"])
@pytest.mark.parametrize("service", SERVICES)
async def test_a_key_that_the_service_repeats_is_kept_nowhere(
    service: str, how: str, transport: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    server_class, make, refusal, broken = SERVICES[service]
    memory, log = MemorySink(), tmp_path / "events.jsonl"
    caplog.set_level(logging.DEBUG, "monitor")
    with server_class([[refusal] if how == "refused" else broken] * 9) as server, JsonlSink(log) as jsonl:
        async with make(server.base_url, transport) as model:
            sinks: list[Any] = [memory, jsonl, LogSink()]
            supervisor = monitor.Supervisor(
                model,
                requests=monitor.runs.Requests(retries=None),
                last_turn=None,
                stop_when=monitor.MaxTurns(3),
                sinks=sinks,
            )
            outcome = await supervisor.run("x")
        await anyio.lowlevel.checkpoint()  # aiohttp closes its connections a moment after its client
    assert not outcome.ok
    kept = {
        "detail": outcome.detail,
        "outcome": json.dumps(outcome.to_dict()),
        "events": " ".join(map(monitor.events.event_codec.dumps, memory.events)),
        "file": log.read_text(),
        "log": " ".join(
            record.getMessage() + str(vars(record)) for record in caplog.records if record.name.startswith("monitor")
        ),
    }
    assert [place for place, text in kept.items() if KEY in text] == []
    assert REMOVED in outcome.detail
    assert "Find yours at the console." in outcome.detail


KEYS = [
    "sk-proj-abcdefghijklmnop0123456789",
    "sk-ant-api03-abcdefghijklmnop-0123456789",
    "AIzaSyA0123456789abcdefghijklmnopqrstuvw",
    "gsk_0123456789abcdefghijklmnop",
    "xai-0123456789abcdefghijklmnop",
    "hf_abcdefghijklmnopqrstuvwxyz",
    "AKIA0123456789ABCDEF99",
    "ya29.a0AfB_byC0123456789abcdef",
]


@pytest.mark.parametrize("key", KEYS)
def test_what_looks_like_a_key_is_removed_from_any_exception(key: str):
    error = ValueError(f"cannot log in with '{key}', sorry")
    assert message_of(error) == f"cannot log in with '{REMOVED}', sorry"
    assert key not in describe(error)
    assert key not in json.dumps(to_plain(error))


@pytest.mark.parametrize(
    "words",
    [
        "the task-runner_is_a_long_identifier_here",
        "sk-learn is a library",
        "a risk-averse approach",
        "xai",
        "none",
        "Bearer of bad news",
    ],
)
def test_other_words_stay(words: str):
    assert without_keys(words) == words


def test_a_bearer_s_token_is_removed():
    assert (
        without_keys("header was 'Authorization: Bearer abc.def/ghi=='")
        == f"header was 'Authorization: Bearer {REMOVED}'"
    )


class Request:
    def __init__(self, key: str) -> None:
        self.headers = {"x-api-key": key}


class Failed(Exception):
    def __init__(self, said: str, key: str) -> None:
        super().__init__(said)
        self.request = Request(key)


def test_the_key_of_the_request_is_removed_also_from_what_was_raised_because_of_it():
    cause = Failed("no", "my-secret-1")
    outer = ValueError("my-secret-1 was refused")
    outer.__cause__ = cause
    assert message_of(outer) == f"{REMOVED} was refused"


def test_a_word_that_stands_for_no_key_is_not_removed_everywhere():
    assert message_of(Failed("none of the exits is open", "none")) == "none of the exits is open"


class Odd(Exception):
    @property
    def request(self) -> object:
        raise RuntimeError("not set")

    headers = 3


def test_an_exception_whose_parts_cannot_be_read_is_told_all_the_same():
    assert message_of(Odd("x")) == "x"

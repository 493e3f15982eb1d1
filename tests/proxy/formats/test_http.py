"""Endings over HTTP: the asynchronous and the synchronous SDKs, on each of their transports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors, types

from monitor.adapters.adapter import FullAdapter
from monitor.adapters.anthropic.stream import AnthropicAdapter
from monitor.adapters.google.stream import GoogleAdapter
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.chunks import TextDelta, TurnFinished
from monitor.proxy.formats.wire import decoded
from monitor.testing import LocalAnthropic, LocalGemini, LocalOpenAI
from monitor.testing.local_server import LocalServer
from monitor.testing.openai_steps import Raw
from tests.adapters.anthropic import sdk as anthropic_sdk
from tests.adapters.google import sdk as google_sdk
from tests.adapters.openai import sdk as openai_sdk
from tests.proxy.formats.clients import opened
from tests.proxy.formats.streams import FORMS, Stream, answer, passed
from tests.proxy.formats.test_endings import REASON, made

pytestmark = [google_sdk.sdk_warnings, openai_sdk.aiohttp_warnings]

ERRORS = (openai.APIError, anthropic.APIError, errors.APIError)


def cut_at(form: str) -> list[bytes]:
    """A stream before its first byte, in a thought, in its text and in a call: each ended there."""
    stream: Stream = made(form)
    words = (None, b"hm, so", b"Let me", b'"look"')
    places = [next((at for at, frame in enumerate(stream.frames) if word and word in frame), -1) + 1 for word in words]
    cut = []
    for place in places:
        reader = answer(form)
        sent = passed(reader, b"".join(stream.frames[:place]))
        cut.append(sent + reader.ending(REASON))
    return cut


def server(form: str, scripts: list[list[Raw]]) -> LocalServer:
    if form == "gemini":
        return LocalGemini(scripts)
    return LocalAnthropic(scripts) if form == "anthropic" else LocalOpenAI(scripts, done=False)


UpstreamAnswer = AbstractAsyncContextManager[Any]
CLIENTS: dict[str, Callable[[Any, str], UpstreamAnswer]] = {
    "openai-chat": openai_sdk.sdk,
    "openai-responses": openai_sdk.sdk,
    "anthropic": anthropic_sdk.sdk,
    "gemini": google_sdk.sdk,
}


async def items(form: str, client: Any) -> AsyncIterator[Any]:
    match form:
        case "openai-chat":
            stream = await openai_sdk.stream(client, "chat")
        case "openai-responses":
            stream = await openai_sdk.stream(client, "responses")
        case "anthropic":
            stream = await anthropic_sdk.stream(client)
        case _:
            stream = await google_sdk.stream(client)
    async for item in stream:
        yield item


def check(got: Sequence[tuple[str, bool, Exception | None]]) -> None:
    """What the four answers of `cut_at` say: text, whether they ended, the error."""
    assert [text for text, _, _ in got][:3] == ["", "", "Let me"]
    assert [finished for _, finished, _ in got] == [True, True, True, False]
    *whole, broken = [error for _, _, error in got]
    assert whole == [None] * 3
    assert "loop_detected" in str(broken)


def said(form: str, given: list[Any]) -> tuple[str, bool]:
    """The text, and whether an end came, as the adapter reads the SDK's objects."""
    found: dict[str, Callable[[], FullAdapter]] = {"anthropic": AnthropicAdapter, "gemini": GoogleAdapter}
    adapter = found.get(form, OpenAIAdapter)()
    chunks = [chunk for item in given for chunk in decoded(adapter, item).chunks]
    text = "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))
    return text, any(isinstance(chunk, TurnFinished) for chunk in chunks)


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", ["aiohttp", "httpx2"])
@pytest.mark.parametrize("form", FORMS)
async def test_an_asynchronous_sdk_reads_the_end_over_http(form: str, transport: str):
    got = []
    with server(form, [[Raw(data)] for data in cut_at(form)]) as upstream:
        async with CLIENTS[form](upstream, transport) as client:
            for _ in range(4):
                given: list[Any] = []
                error = None
                try:
                    async for item in items(form, client):
                        given.append(item)  # noqa: PERF401 - what came before an error counts
                except ERRORS as raised:
                    error = raised
                got.append((*said(form, given), error))
    check(got)


def synchronous(form: str, base_url: str) -> Any:
    if form == "gemini":
        return genai.Client(api_key="x", http_options=types.HttpOptions(base_url=base_url))
    client = anthropic.Anthropic if form == "anthropic" else openai.OpenAI
    return client(api_key="x", base_url=base_url, max_retries=0)


@pytest.mark.parametrize("form", FORMS)
def test_a_synchronous_sdk_reads_the_end_over_http(form: str):
    got = []
    with server(form, [[Raw(data)] for data in cut_at(form)]) as upstream:
        client = synchronous(form, upstream.base_url)
        for _ in range(4):
            given: list[Any] = []
            error = None
            try:
                given.extend(opened(form, client))
            except ERRORS as raised:
                error = raised
            got.append((*said(form, given), error))
        client.close()
    check(got)

"""The SDKs whose streams are closed: how each is set up against its local server, and how it is
asked.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

import anthropic
import httpx2
import openai
from google import genai
from google.genai import types

from bench._close_cases import SENTENCE, Backend, Transport, words
from monitor.testing import LocalAnthropic, LocalGemini, LocalOpenAI, anthropic_steps, gemini_steps, openai_steps
from monitor.testing.local_server import LocalServer, ReceivedRequest, Scripts
from monitor.testing.openai_steps import Event, Pause, Repeat, Script, Send, Stall, Step

COUNTED = "counted "
"""Prompt of an answer that is read to its end; the number of its words follows."""


@dataclass(frozen=True)
class Sdk:
    """One SDK, or one API of an SDK."""

    name: str
    packages: tuple[str, ...]
    """Whose versions the results name."""
    transports: tuple[tuple[Backend, Transport], ...]
    server: Callable[[Scripts], LocalServer]
    prompt: Callable[[Any], str]
    """Of a request's body: it names the script that answers it."""
    text: Callable[[str], Event]
    """A piece of an answer on the wire."""
    finish: Callable[[], Event]
    client: Callable[[LocalServer, Transport], AbstractAsyncContextManager[Any]]
    ask: Callable[[Any, str], Any]
    """Given a client and a prompt: what a stream is opened by, to be awaited."""
    said: Callable[[Any], str | None]
    """The visible text of one object of the stream."""

    def serve(self) -> LocalServer:
        """The server, with its scripts."""
        scripts = self._scripts()

        def script_of(request: ReceivedRequest) -> Script:
            prompt = self.prompt(request.body)
            return self._counted(prompt) if prompt.startswith(COUNTED) else scripts[prompt]

        return self.server(script_of)

    def _counted(self, prompt: str) -> Script:
        return [*(self.text(word) for word in words(int(prompt.removeprefix(COUNTED)))), self.finish()]

    def _scripts(self) -> Mapping[str, Script]:
        text = self.text
        opening = [text(word) for word in words(3)]
        busy: list[Step] = [step for word in words(500) for step in (Send(text(word)), Pause(0.001))]
        return {
            "stalls": [*opening, Stall()],
            "silent": [Stall()],
            "busy": [*busy, Stall()],
            "chants": [*opening, Repeat(text(SENTENCE), delay_s=0.001)],
            "floods": [Repeat(text("and on and on "))],
            "small": [text("ok"), self.finish()],
        }


EVERYWHERE: tuple[tuple[Backend, Transport], ...] = (("asyncio", "aiohttp"), ("asyncio", "httpx2"), ("trio", "httpx2"))
"""aiohttp knows no trio."""


# --- google-genai


@contextlib.asynccontextmanager
async def _google(server: LocalServer, transport: Transport) -> AsyncIterator[Any]:
    options: dict[str, Any] = {"base_url": server.base_url}
    if transport == "httpx2":
        options["async_client_args"] = {"transport": httpx2.AsyncHTTPTransport()}
    with _quiet_aiohttp():
        client = genai.Client(api_key="local", http_options=types.HttpOptions(**options))
        try:
            yield client.aio
        finally:
            await client.aio.aclose()
            client.close()


async def _ask_google(client: Any, prompt: str) -> AsyncIterator[Any]:
    config = types.GenerateContentConfig(automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True))
    stream: AsyncIterator[Any] = await client.models.generate_content_stream(
        model="local", contents=prompt, config=config
    )
    return stream


GOOGLE = Sdk(
    name="google-genai",
    packages=("google-genai",),
    transports=EVERYWHERE,
    server=LocalGemini,
    prompt=lambda body: str(body["contents"][0]["parts"][0]["text"]),
    text=gemini_steps.text,
    finish=gemini_steps.finish,
    client=_google,
    ask=_ask_google,
    said=lambda item: item.text,
)


# --- openai


@contextlib.asynccontextmanager
async def _openai(server: LocalServer, transport: Transport) -> AsyncIterator[Any]:
    options: dict[str, Any] = {"http_client": openai.DefaultAioHttpClient()} if transport == "aiohttp" else {}
    with _quiet_aiohttp():
        async with openai.AsyncOpenAI(api_key="local", base_url=server.base_url, max_retries=0, **options) as client:
            yield client


def _said_in_chat(item: Any) -> str | None:
    return item.choices[0].delta.content if item.choices else None


def _said_in_response(item: Any) -> str | None:
    return item.delta if item.type == "response.output_text.delta" else None


OPENAI_CHAT = Sdk(
    name="openai chat",
    packages=("openai",),
    transports=EVERYWHERE,
    server=LocalOpenAI,
    prompt=lambda body: str(body["messages"][0]["content"]),
    text=openai_steps.text,
    finish=openai_steps.finish,
    client=_openai,
    ask=lambda client, prompt: client.chat.completions.create(
        model="local", messages=[{"role": "user", "content": prompt}], stream=True
    ),
    said=_said_in_chat,
)

OPENAI_RESPONSES = Sdk(
    name="openai responses",
    packages=("openai",),
    transports=EVERYWHERE,
    server=LocalOpenAI,
    prompt=lambda body: str(body["input"]),
    text=openai_steps.response_text,
    finish=openai_steps.response_finish,
    client=_openai,
    ask=lambda client, prompt: client.responses.create(model="local", input=prompt, stream=True),
    said=_said_in_response,
)


# --- anthropic


@contextlib.asynccontextmanager
async def _anthropic(server: LocalServer, transport: Transport) -> AsyncIterator[Any]:
    options: dict[str, Any] = {"http_client": anthropic.DefaultAioHttpClient()} if transport == "aiohttp" else {}
    with _quiet_aiohttp():
        async with anthropic.AsyncAnthropic(
            api_key="local", base_url=server.base_url, max_retries=0, **options
        ) as client:
            yield client


def _of_anthropic(prompt: str) -> dict[str, Any]:
    return {"model": "local", "max_tokens": 99, "messages": [{"role": "user", "content": prompt}]}


ANTHROPIC = Sdk(
    name="anthropic",
    packages=("anthropic",),
    transports=EVERYWHERE,
    server=LocalAnthropic,
    prompt=lambda body: str(body["messages"][0]["content"]),
    text=anthropic_steps.text,
    finish=anthropic_steps.stop,
    client=_anthropic,
    ask=lambda client, prompt: client.messages.create(**_of_anthropic(prompt), stream=True),
    said=lambda item: item.delta.text if item.type == "content_block_delta" else None,
)

ANTHROPIC_HELPER = replace(
    ANTHROPIC,
    name="anthropic helper",
    ask=lambda client, prompt: client.messages.stream(**_of_anthropic(prompt)).__aenter__(),
)


SDKS: tuple[Sdk, ...] = (GOOGLE, OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, ANTHROPIC_HELPER)


@contextlib.contextmanager
def _quiet_aiohttp() -> Iterator[None]:
    """It warns of how one SDK derives from its session."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield

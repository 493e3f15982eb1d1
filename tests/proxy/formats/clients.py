"""The real SDKs as clients of given bytes, without a connection: their own transports, decoders and
accumulation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anthropic
import httpx2
import openai
from google import genai
from google.genai import errors, types
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState

SSE: Final = {"content-type": "text/event-stream"}
KEY: Final = "x"
URL: Final = "http://upstream"


@dataclass
class Got:
    """What a client has of an answer."""

    text: str = ""
    thoughts: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    finish: str | None = None
    error: Exception | None = None
    said: str | None = None
    """The message of the error."""


def opened(form: str, client: Any) -> Any:
    """A stream of a synchronous client."""
    messages = [{"role": "user", "content": "hello"}]
    match form:
        case "openai-chat":
            return client.chat.completions.create(model="m", messages=messages, stream=True)
        case "openai-responses":
            return client.responses.create(model="m", input="hello", stream=True)
        case "anthropic":
            return client.messages.create(model="m", max_tokens=9, messages=messages, stream=True)
    return client.models.generate_content_stream(model="m", contents="hello")


class Clients:
    """One client of each SDK. They read `self.body` as the answer to any request."""

    def __init__(self) -> None:
        self.body = b""
        self.status = 200
        self.headers: dict[str, str] = SSE
        self.requests: list[httpx2.ProxiedRequest] = []
        http = httpx2.Client(transport=httpx2.MockTransport(self._answer))
        self.openai = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1", http_client=http)
        self.anthropic = anthropic.Anthropic(api_key=KEY, base_url=URL, http_client=http)
        options = types.HttpOptions(base_url=URL, client_args={"transport": httpx2.MockTransport(self._answer)})
        self.google = genai.Client(api_key=KEY, http_options=options)
        self._http = http

    def close(self) -> None:
        self.google.close()
        self._http.close()

    def _answer(self, request: httpx2.ProxiedRequest) -> httpx2.Response:
        self.requests.append(request)
        return httpx2.Response(self.status, headers=self.headers, content=self.body)

    def read(self, form: str, body: bytes) -> Got:
        """What the SDK of this form makes of a stream."""
        self.body, got = body, Got()
        readers: dict[str, Callable[[Got], None]] = {
            "openai-chat": self._chat,
            "openai-responses": self._responses,
            "anthropic": self._messages,
            "gemini": self._contents,
        }
        try:
            readers[form](got)
        except (openai.APIError, anthropic.APIError, errors.APIError) as error:
            got.error, got.said = error, error.message
            if isinstance(error, anthropic.APIError) and isinstance(error.body, dict):
                got.said = error.body["error"]["message"]
        return got

    def items(self, form: str, body: bytes) -> list[Any]:
        """The SDK's own objects of a stream."""
        self.body = body
        return list(self._stream(form))

    def _stream(self, form: str) -> Any:
        client = {"anthropic": self.anthropic, "gemini": self.google}.get(form, self.openai)
        return opened(form, client)

    def _chat(self, got: Got) -> None:
        state = ChatCompletionStreamState()
        for chunk in self._stream("openai-chat"):
            for choice in chunk.choices:
                for call in choice.delta.tool_calls or ():
                    call.index = call.index if isinstance(getattr(call, "index", None), int) else 0
                if isinstance(choice.delta.content, list):
                    choice.delta.content = None
            chunk.object = "chat.completion.chunk"
            state.handle_chunk(chunk)
        answer = state.current_completion_snapshot.choices[0]
        got.text, got.finish = answer.message.content or "", answer.finish_reason
        got.calls = [(call.function.name, call.function.arguments) for call in answer.message.tool_calls or ()]

    def _responses(self, got: Got) -> None:
        state: Any = ResponseStreamState(input_tools=[], text_format=openai.omit)
        final: Any = None
        for event in self._stream("openai-responses"):
            state.handle_event(event)
            final = getattr(event, "response", final)
        got.text, got.finish = final.output_text, final.status
        got.thoughts = "".join(
            part.text for item in final.output if item.type == "reasoning" for part in item.summary or ()
        )
        got.calls = [(item.name, item.arguments) for item in final.output if item.type == "function_call"]

    def _messages(self, got: Got) -> None:
        asked: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
        with self.anthropic.messages.stream(**asked) as stream:
            message = stream.get_final_message()
        got.text = "".join(block.text for block in message.content if block.type == "text")
        got.thoughts = "".join(block.thinking for block in message.content if block.type == "thinking")
        got.calls = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
        got.finish = message.stop_reason

    def _contents(self, got: Got) -> None:
        for chunk in self._stream("gemini"):
            for candidate in chunk.candidates or ():
                for part in (candidate.content.parts if candidate.content else None) or ():
                    if part.function_call:
                        got.calls.append((part.function_call.name, part.function_call.args))
                    elif part.thought:
                        got.thoughts += part.text or ""
                    else:
                        got.text += part.text or ""
                if candidate.finish_reason:
                    got.finish = candidate.finish_reason.value


@contextmanager
def clients() -> Iterator[Clients]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made = Clients()
    try:
        yield made
    finally:
        made.close()

"""An agent's loop with each of the real SDKs, and the scripts of an upstream for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import anthropic
import httpx2
import openai
from google import genai
from google.genai import types

from monitor.testing import LocalAnthropic, LocalGemini, LocalOpenAI, anthropic_steps, gemini_steps, openai_steps
from monitor.testing.local_server import LocalServer, Scripts
from monitor.testing.openai_steps import Pause, Repeat, Script, Stall

KEY = "sk-proj-Zq8vT3nYw5Kx1Rb7Lm2Pd9Hc"
SENTENCE = "I will now read the file again. "
Calls = Sequence[tuple[str, dict[str, Any]]]


@dataclass
class Said:
    """What an SDK made of one answer."""

    text: str = ""
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    """Id, name, arguments."""
    end: str | None = None
    raw: Any = None


class Format:
    """One wire format with its SDK."""

    name: ClassVar[str]
    errors: ClassVar[type[Exception]]
    """What the SDK raises for an error of the service."""
    good_ends: ClassVar[frozenset[str]]

    def upstream(self, scripts: Scripts) -> LocalServer:
        raise NotImplementedError

    def words(self, *words: str) -> list[Any]:
        """The beginning of an answer."""
        raise NotImplementedError

    def more(self, words: str) -> Any:
        """A further piece of text."""
        raise NotImplementedError

    def turn(self, text: str, calls: Calls = ()) -> Script:
        """A whole answer."""
        raise NotImplementedError

    def chant(self) -> Script:
        return [*self.words("Let me see. "), Repeat(self.more(SENTENCE), delay_s=0.0005)]

    def stall(self) -> Script:
        return [*self.words("Let me see. "), Stall()]

    def slow(self) -> Script:
        return [*self.words("Let me see. "), Pause(0.3), *self.turn("")[-1:]]

    def task(self, text: str) -> list[Any]:
        """A new conversation."""
        return [{"role": "user", "content": text}]

    def client(self, address: str, **headers: str) -> Any:
        raise NotImplementedError

    async def stream(self, client: Any, history: list[Any], on_piece: Callable[[], None] = lambda: None) -> Said:
        raise NotImplementedError

    async def ask(self, client: Any, history: list[Any]) -> Said:
        """Without streaming."""
        raise NotImplementedError

    def answered(self, history: list[Any], said: Said, result: str) -> None:
        """Add the answer and the results of its calls to the conversation."""
        raise NotImplementedError


class Chat(Format):
    name = "openai-chat"
    errors = openai.APIError
    good_ends = frozenset({"stop"})

    def upstream(self, scripts: Scripts) -> LocalServer:
        return LocalOpenAI(scripts)

    def words(self, *words: str) -> list[Any]:
        return [openai_steps.text(word) for word in words]

    def more(self, words: str) -> Any:
        return openai_steps.text(words)

    def turn(self, text: str, calls: Calls = ()) -> Script:
        return openai_steps.events_of(text, calls, finish_reason="tool_calls" if calls else "stop")

    @asynccontextmanager
    async def client(self, address: str, **headers: str) -> AsyncIterator[Any]:
        async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{address}/v1", default_headers=headers) as client:
            yield client

    async def stream(self, client: Any, history: list[Any], on_piece: Callable[[], None] = lambda: None) -> Said:
        said, calls = Said(), dict[int, list[str]]()
        async for chunk in await client.chat.completions.create(model="m", messages=history, stream=True):
            on_piece()
            for choice in chunk.choices:
                said.text += choice.delta.content or ""
                said.end = choice.finish_reason or said.end
                for piece in choice.delta.tool_calls or ():
                    call = calls.setdefault(piece.index, ["", "", ""])
                    call[0] = piece.id or call[0]
                    call[1] = piece.function.name or call[1]
                    call[2] += piece.function.arguments or ""
        said.calls = [(id, name, arguments) for id, name, arguments in calls.values()]
        return said

    async def ask(self, client: Any, history: list[Any]) -> Said:
        answer = await client.chat.completions.create(model="m", messages=history)
        choice = answer.choices[0]
        calls = [(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
        return Said(choice.message.content or "", calls, choice.finish_reason)

    def answered(self, history: list[Any], said: Said, result: str) -> None:
        calls = [
            {"id": f"{id}_{len(history)}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in said.calls
        ]
        history.append({"role": "assistant", "content": said.text or None, "tool_calls": calls})
        history.extend({"role": "tool", "tool_call_id": call["id"], "content": result} for call in calls)


class Responses(Format):
    name = "openai-responses"
    errors = openai.APIError
    good_ends = frozenset({"completed", "incomplete"})

    def upstream(self, scripts: Scripts) -> LocalServer:
        return LocalOpenAI(scripts)

    def words(self, *words: str) -> list[Any]:
        return [
            openai_steps.response_created(),
            *openai_steps.response_message(),
            *(openai_steps.response_text(word) for word in words),
        ]

    def more(self, words: str) -> Any:
        return openai_steps.response_text(words)

    def turn(self, text: str, calls: Calls = ()) -> Script:
        return openai_steps.response_events_of(text, calls)

    client = Chat.client

    async def stream(self, client: Any, history: list[Any], on_piece: Callable[[], None] = lambda: None) -> Said:
        said = Said()
        async for event in await client.responses.create(model="m", input=history, stream=True):
            on_piece()
            if event.type == "response.output_text.delta":
                said.text += event.delta
            elif event.type in {"response.completed", "response.incomplete"}:
                said.end = event.response.status
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                said.calls.append((event.item.call_id, event.item.name, event.item.arguments))
        return said

    async def ask(self, client: Any, history: list[Any]) -> Said:
        answer = await client.responses.create(model="m", input=history)
        return Said(answer.output_text, _response_calls(answer), answer.status)

    def answered(self, history: list[Any], said: Said, result: str) -> None:
        if said.text:
            history.append({"role": "assistant", "content": said.text})
        at = len(history)
        for id, name, arguments in said.calls:
            history.append({"type": "function_call", "call_id": f"{id}_{at}", "name": name, "arguments": arguments})
        history.extend(
            {"type": "function_call_output", "call_id": f"{id}_{at}", "output": result} for id, _, _ in said.calls
        )


def _response_calls(answer: Any) -> list[tuple[str, str, Any]]:
    return [(item.call_id, item.name, item.arguments) for item in answer.output if item.type == "function_call"]


class Anthropic(Format):
    name = "anthropic"
    errors = anthropic.APIError
    good_ends = frozenset({"end_turn"})

    def upstream(self, scripts: Scripts) -> LocalServer:
        return LocalAnthropic(scripts)

    def words(self, *words: str) -> list[Any]:
        return [
            anthropic_steps.start(),
            anthropic_steps.block_start({"type": "text", "text": ""}),
            *(anthropic_steps.text(word) for word in words),
        ]

    def more(self, words: str) -> Any:
        return anthropic_steps.text(words)

    def turn(self, text: str, calls: Calls = ()) -> Script:
        return anthropic_steps.events_of(text, calls)

    @asynccontextmanager
    async def client(self, address: str, **headers: str) -> AsyncIterator[Any]:
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=address, default_headers=headers) as client:
            yield client

    async def stream(self, client: Any, history: list[Any], on_piece: Callable[[], None] = lambda: None) -> Said:
        async with client.messages.stream(model="m", max_tokens=100, messages=history) as stream:
            async for _ in stream:
                on_piece()
            return self._said(await stream.get_final_message())

    async def ask(self, client: Any, history: list[Any]) -> Said:
        return self._said(await client.messages.create(model="m", max_tokens=100, messages=history))

    def _said(self, message: Any) -> Said:
        text = "".join(block.text for block in message.content if block.type == "text")
        calls = [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]
        return Said(text, calls, message.stop_reason)

    def answered(self, history: list[Any], said: Said, result: str) -> None:
        at = len(history)
        calls = [
            {"type": "tool_use", "id": f"{id}_{at}", "name": name, "input": given} for id, name, given in said.calls
        ]
        texts = [{"type": "text", "text": said.text}] if said.text else []
        history.append({"role": "assistant", "content": [*texts, *calls]})
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": result} for call in calls]
        if results:
            history.append({"role": "user", "content": results})


class Gemini(Format):
    name = "gemini"
    errors = genai.errors.APIError
    good_ends = frozenset({"STOP", "MAX_TOKENS"})

    def upstream(self, scripts: Scripts) -> LocalServer:
        return LocalGemini(scripts)

    def words(self, *words: str) -> list[Any]:
        return [gemini_steps.text(word) for word in words]

    def more(self, words: str) -> Any:
        return gemini_steps.text(words)

    def turn(self, text: str, calls: Calls = ()) -> Script:
        return gemini_steps.events_of(text, calls)

    def task(self, text: str) -> list[Any]:
        return [types.Content(role="user", parts=[types.Part(text=text)])]

    @asynccontextmanager
    async def client(self, address: str, **headers: str) -> AsyncIterator[Any]:
        options = types.HttpOptions(
            base_url=address, headers=headers, async_client_args={"transport": httpx2.AsyncHTTPTransport()}
        )
        client = genai.Client(api_key=KEY, http_options=options)
        try:
            yield client.aio
        finally:
            await client.aio.aclose()
            client.close()

    async def stream(self, client: Any, history: list[Any], on_piece: Callable[[], None] = lambda: None) -> Said:
        said = Said()
        async for chunk in await client.models.generate_content_stream(model="m", contents=history, config=_NO_CALLS):
            on_piece()
            _add(said, chunk)
        return said

    async def ask(self, client: Any, history: list[Any]) -> Said:
        said = Said()
        _add(said, await client.models.generate_content(model="m", contents=history, config=_NO_CALLS))
        return said

    def answered(self, history: list[Any], said: Said, result: str) -> None:
        parts = [types.Part(text=said.text)] if said.text else []
        parts += [types.Part(function_call=types.FunctionCall(name=name, args=given)) for _, name, given in said.calls]
        history.append(types.Content(role="model", parts=parts))
        results = [
            types.Part(function_response=types.FunctionResponse(name=name, response={"output": result}))
            for _, name, _ in said.calls
        ]
        if results:
            history.append(types.Content(role="user", parts=results))


_NO_CALLS = types.GenerateContentConfig(automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True))


def _add(said: Said, answer: Any) -> None:
    for candidate in answer.candidates or ():
        said.end = candidate.finish_reason.value if candidate.finish_reason else said.end
        for part in (candidate.content and candidate.content.parts) or ():
            said.text += part.text or ""
            if part.function_call:
                said.calls.append((part.function_call.id or "", part.function_call.name, part.function_call.args))


FORMATS: tuple[Format, ...] = (Chat(), Responses(), Anthropic(), Gemini())

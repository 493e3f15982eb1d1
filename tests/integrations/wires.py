"""What a scripted model does, in the wire format of each provider."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from monitor.testing import LocalAnthropic, LocalGemini, LocalOpenAI, anthropic_steps, gemini_steps, openai_steps
from monitor.testing.local_server import LocalServer
from monitor.testing.openai_steps import Repeat, Reply, Stall

CHANT = "Let me check the file again. "
WORDS = 5000
"""How often the model would chant if nobody stopped it."""

Script: TypeAlias = Sequence[Sequence[Any]] | Callable[[Any], Sequence[Any]]


class Wire(ABC):
    """The scripts of one provider. Each response costs 7 tokens in and 3 out."""

    server: Callable[[Script], LocalServer]

    @abstractmethod
    def says(self, *pieces: str) -> list[Any]:
        """An answer."""

    @abstractmethod
    def calls(self, name: str, given: dict[str, Any], id: str) -> list[Any]:
        """A call of a tool."""

    @abstractmethod
    def chants(self) -> list[Any]:
        """The same sentence, without an end."""

    @abstractmethod
    def chants_in_a_call(self) -> list[Any]:
        """The same sentence in the argument of a call, without an end."""

    @abstractmethod
    def waits(self) -> list[Any]:
        """A word, and then silence."""

    @abstractmethod
    def user_said(self, body: dict[str, Any]) -> str | None:
        """The last message of a request, if it is a text of the user's side."""

    def refuses(self) -> list[Any]:
        return [Reply(401, b'{"error": {"message": "no such key", "code": "invalid_api_key"}}')]

    def looks(self, times: int) -> list[list[Any]]:
        """The same call in each of `times` turns, then an answer."""
        turns = [self.calls("look", {"q": "a"}, f"call_{number}") for number in range(times)]
        return [*turns, self.says("It is ", "done.")]


class OpenAIWire(Wire):
    server = LocalOpenAI

    def says(self, *pieces: str) -> list[Any]:
        return [*map(openai_steps.text, pieces), openai_steps.finish()]

    def calls(self, name: str, given: dict[str, Any], id: str) -> list[Any]:
        return [openai_steps.call(name, given, id=id), openai_steps.finish("tool_calls")]

    def chants(self) -> list[Any]:
        return [Repeat(openai_steps.text(CHANT), WORDS, delay_s=0.001)]

    def chants_in_a_call(self) -> list[Any]:
        begin = openai_steps.call_piece('{"q": "', name="look", id="call_1")
        return [begin, Repeat(openai_steps.call_piece(CHANT), WORDS, delay_s=0.001)]

    def waits(self) -> list[Any]:
        return [openai_steps.text("Wait"), Stall()]

    def user_said(self, body: dict[str, Any]) -> str | None:
        last = body["messages"][-1]
        return _words(last["content"]) if last["role"] == "user" else None


class GeminiWire(Wire):
    server = LocalGemini

    def says(self, *pieces: str) -> list[Any]:
        return [*map(gemini_steps.text, pieces), gemini_steps.finish()]

    def calls(self, name: str, given: dict[str, Any], id: str) -> list[Any]:
        return [gemini_steps.call(name, given), gemini_steps.finish()]  # the API gives calls no id

    def chants(self) -> list[Any]:
        return [Repeat(gemini_steps.text(CHANT), WORDS, delay_s=0.001)]

    def chants_in_a_call(self) -> list[Any]:
        piece = gemini_steps.piece("$.q", CHANT, more=True)
        begin = gemini_steps.partial_call("look", [piece], more=True)
        return [begin, Repeat(gemini_steps.partial_call(None, [piece], more=True), WORDS, delay_s=0.001)]

    def waits(self) -> list[Any]:
        return [gemini_steps.text("Wait"), Stall()]

    def refuses(self) -> list[Any]:
        return [Reply(401, b'{"error": {"code": 401, "message": "no such key", "status": "UNAUTHENTICATED"}}')]

    def user_said(self, body: dict[str, Any]) -> str | None:
        last = body["contents"][-1]
        return _words(last["parts"]) or None if last["role"] == "user" else None


class AnthropicWire(Wire):
    server = LocalAnthropic

    def says(self, *pieces: str) -> list[Any]:
        return [anthropic_steps.start(7), *anthropic_steps.say(*pieces), *anthropic_steps.finish(output_tokens=3)]

    def calls(self, name: str, given: dict[str, Any], id: str) -> list[Any]:
        call = anthropic_steps.call(name, given, id=id)
        return [anthropic_steps.start(7), *call, *anthropic_steps.finish("tool_use", output_tokens=3)]

    def chants(self) -> list[Any]:
        begin = [anthropic_steps.start(7), anthropic_steps.block_start({"type": "text", "text": ""})]
        return [*begin, Repeat(anthropic_steps.text(CHANT), WORDS, delay_s=0.001)]

    def chants_in_a_call(self) -> list[Any]:
        block = {"type": "tool_use", "id": "call_1", "name": "look", "input": {}}
        begin = [anthropic_steps.start(7), anthropic_steps.block_start(block), anthropic_steps.arguments('{"q": "')]
        return [*begin, Repeat(anthropic_steps.arguments(CHANT), WORDS, delay_s=0.001)]

    def waits(self) -> list[Any]:
        begin = [anthropic_steps.start(7), anthropic_steps.block_start({"type": "text", "text": ""})]
        return [*begin, anthropic_steps.text("Wait"), Stall()]

    def refuses(self) -> list[Any]:
        kind = b'{"type": "authentication_error", "message": "no such key"}'
        return [Reply(401, b'{"type": "error", "error": ' + kind + b"}")]

    def user_said(self, body: dict[str, Any]) -> str | None:
        last = body["messages"][-1]
        return _words(last["content"]) or None if last["role"] == "user" else None


def _words(content: Any) -> str:
    """The text of a message, without the results of tools in it."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if "text" in part)


OPENAI, GEMINI, ANTHROPIC = OpenAIWire(), GeminiWire(), AnthropicWire()

"""The OpenAI SDK: `ChatCompletionChunk` objects and events of the responses API as chunks, also
from the SDK's helper streams, and from compatible servers.

The SDK makes its objects without validating them. It does not raise if a response `failed` or is
`incomplete`, or if an `error` event comes: its stream then ends normally. Here a failed response
and an `error` event are failures of the model call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, cast

from monitor.adapters.behind import held_behind, stream_of
from monitor.adapters.openai.chat import ChatReader
from monitor.adapters.openai.errors import classify
from monitor.adapters.openai.responses import ResponsesReader
from monitor.adapters.parts import SdkAdapter, get, name_of
from monitor.chunks import Chunk
from monitor.errors import AdapterError
from monitor.models import ModelError

_TEXT: Final = "response.output_text.delta"
_HELPERS: Final = ("content.", "refusal.", "tool_calls.", "logprobs.")
"""Events of `chat.completions.stream()` that repeat the content of its `chunk` events."""

_WORDS: Final = frozenset({"role", "content"})
"""Fields of a delta that is text and nothing else."""


class _ApiReader(Protocol):
    gave: list[str]

    def read(self, item: object, /) -> Iterator[Chunk]: ...
    def finish(self) -> Iterator[Chunk]: ...


class OpenAIAdapter(SdkAdapter):
    """Reads one stream of the OpenAI SDK; the first object shows which of the two APIs it is. Only
    the first choice is read; server-side tools, audio and annotations are ignored. The objects may
    also be plain JSON, as on the wire.

    `stream` is part of the ids of calls that come without an id: `call_<stream>_<n>`.

    A call comes as `ToolCallDelta` pieces that join to the model's text, and then as one
    `ToolCall`. If that text is not a JSON object, because it was cut off or badly written, the text
    is the call's `arguments`, a `str`. A refusal is text, and the turn is blocked. Other data that
    the service needs back is the signature of a `ReasoningDelta`: reasoning items with their
    encrypted content, phases, Gemini's thought signatures.
    """

    readable = "object of an OpenAI stream"

    def __init__(self, stream: int = 0) -> None:
        self._stream = stream
        self._reader: _ApiReader | None = None
        self._responses = ResponsesReader(stream)
        self._chat = ChatReader(stream)

    @property
    def gave(self) -> Sequence[str]:  # type: ignore[override] # it is never set
        """The kinds of parts other than text, thinking and calls: `audio`, `images`, the types of
        other output items.
        """
        return self._reader.gave if self._reader is not None else ()

    def _plain_in(self, chunk: dict[str, Any]) -> str | None:
        """The plain text of a chunk of a chat as it stands on the wire."""
        choices = chunk.get("choices")
        if type(choices) is not list or len(choices) != 1 or type(choices[0]) is not dict:
            return None
        delta = choices[0].get("delta")
        return self._plain_of(chunk, choices[0], delta) if type(delta) is dict else None

    def _plain_of(self, chunk: dict[str, Any], choice: dict[str, Any], delta: dict[str, Any]) -> str | None:
        """The plain text of a chunk of a chat with one choice, by the fields of the three."""
        words: Any = delta.get("content")
        if (
            type(words) is not str
            or not words
            or self._reader is not self._chat
            or choice.get("index")
            or choice.get("finish_reason") is not None
            or chunk.get("usage") is not None
            or "x_groq" in chunk
        ):
            return None
        for name, value in delta.items():  # a generator would take three times as long
            if value and name not in _WORDS:
                return None
        self._chat.heard = self._chat.tokens.said = True
        return words

    def plain_text(self, item: object) -> str | None:
        """The text of an object that is one piece of visible text and nothing else, which most
        objects are.

        The SDK's objects are pydantic models. Reading their fields from `__dict__` takes half the
        time.
        """
        if type(item) is dict:
            return self._plain_in(item)
        try:
            fields = cast("Any", item).__dict__
            if "choices" not in fields:
                words = fields["delta"]
                if fields["type"] != _TEXT or type(words) is not str or not words:
                    return None
                self._reader, self._responses.heard = self._responses, True
                return words
            choice = fields["choices"][0].__dict__
            delta = choice["delta"]
            values = delta.__dict__
            words = values["content"]
            if (
                type(words) is str
                and words
                and self._reader is self._chat
                and len(fields["choices"]) == 1
                and not choice["index"]
                and choice["finish_reason"] is None
                and fields["usage"] is None
                and values["tool_calls"] is None
                and not values["refusal"]
                and values["function_call"] is None
                and not any((delta.__pydantic_extra__ or _NOTHING).values())
            ):
                self._chat.heard = self._chat.tokens.said = True
                return words
        except Exception:  # noqa: BLE001, S110 - not the plain case; `decode` says what it is
            pass
        return None

    def finish(self) -> Sequence[Chunk]:
        """A call that the end of the stream cut off; see the class. A missing `TurnFinished` is not
        added.
        """
        return tuple(self._reader.finish()) if self._reader is not None else ()

    def responses(self, source: object) -> Sequence[Any]:
        """The SDK's stream behind a generator of the caller's own, whose `aclose()` does not reach
        it.
        """
        return held_behind(source, stream_of("openai"))

    def classify(self, error: BaseException) -> ModelError:
        """Classify an exception of the SDK, or of a transport under it."""
        return classify(error)

    def _decode(self, item: object) -> Iterator[Chunk]:
        if "choices" in item if isinstance(item, Mapping) else hasattr(item, "choices"):
            self._reader = self._chat
            return self._chat.read(item)
        kind = get(item, "type")
        if not isinstance(kind, str):
            raise AdapterError(f"expected a chunk or an event of an OpenAI stream, not {name_of(item)}")
        if kind == "chunk":
            self._reader = self._chat
            return self._chat.read(get(item, "chunk"))
        if kind.startswith(_HELPERS):
            return iter(())
        self._reader = self._responses
        return self._responses.read(item)


_NOTHING: Final[dict[str, Any]] = {}

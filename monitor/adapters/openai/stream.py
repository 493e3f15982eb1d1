"""The OpenAI SDK: `ChatCompletionChunk` objects and events of the responses API as chunks, also
from the SDK's helper streams, and from compatible servers.

The SDK makes its objects without validating them. It does not raise if a response `failed` or is
`incomplete`, or if an `error` event comes: its stream then ends normally. Here a failed response
and an `error` event are failures of the model call.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, cast

from monitor._util.part_options import CUSTOM, mark, origin
from monitor.adapters.adapter import ReportedFailure, held_behind, stream_of
from monitor.adapters.openai.responses import ResponsesReader
from monitor.adapters.parts import PendingCall, SdkAdapter, Tokens, get, index_at, list_at, name_of, text_at
from monitor.adapters.sdk_errors import OPENAI
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, TurnFinished
from monitor.errors import AdapterError, FinishReason
from monitor.models import ModelError
from monitor.wires.fields import finish_reason_of

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
        return OPENAI.classify(error)

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


# --------------------------------------------------------------------------------------------------
# `ChatCompletionChunk` objects as chunks: OpenAI's, and those of compatible servers.

_FAILURES: Final = {
    "error": "server_error",
    "abort": "server_error",  # vLLM
    "network_error": "server_error",  # z.ai
    "insufficient_system_resource": "server_error",  # DeepSeek
}
"""Finish reasons of a failed service, and the error that each stands for."""

_REASONING: Final = ("reasoning_content", "reasoning")
"""The fields in which compatible servers put the thinking; some use both."""


_OTHER_FIELDS: Final = ("audio", "images")
"""Other fields of an answer; images are OpenRouter's."""


class ChatReader:
    """Reads one stream. Only the first choice is read.

    A `ToolCall` is given when the turn is finished, since fragments may interleave. In a turn that
    is done, all calls are complete. In a turn that was cut off, a call is complete if another call
    begins after it and its text is a whole object. Any other call has its text as its arguments.
    """

    def __init__(self, stream: int) -> None:
        self.heard = False
        """Whether visible text has come."""
        self.tokens = Tokens()
        self.gave: list[str] = []
        self._stream = stream
        self._calls: list[PendingCall] = []
        self._at: dict[int, PendingCall] = {}
        self._made = 0
        self._origin = origin("openai", None)
        self._refused = False
        self._finished = False

    def read(self, chunk: object) -> Iterator[Chunk]:
        """The chunks of one SDK object, in order."""
        if get(chunk, "model"):
            self._origin = origin("openai", get(chunk, "model"))
        choice = next((one for one in list_at(chunk, "choices") if one is not None and not get(one, "index")), None)
        if choice is not None:
            for one in self._delta(get(choice, "delta")):
                self.tokens.said = True
                yield one
        word = None if choice is None else text_at(choice, "finish_reason")
        for holder in (chunk, choice, get(chunk, "x_groq")):
            yield from self._usage(get(holder, "usage"), last=self._finished or word is not None)
        if word is not None and not self._finished:
            yield from self._finish(word)

    def finish(self) -> Iterator[Chunk]:
        """Calls that the end of the stream cut off."""
        yield from self._end_calls(cut_off=True)

    def _delta(self, delta: object) -> Iterator[Chunk]:
        if delta is None:
            return
        thought = next((words for name in _REASONING if isinstance(words := get(delta, name), str) and words), None)
        if thought is not None:
            yield ReasoningDelta(thought, origin=self._origin)
        content = get(delta, "content")
        if isinstance(content, str):
            if content:
                self.heard = True
                yield TextDelta(content)
        elif content is not None:
            yield from self._content_parts(list_at(delta, "content"))
        refusal = text_at(delta, "refusal")
        if refusal is not None:
            self._refused = True
            yield TextDelta(refusal)
        transcript = text_at(get(delta, "audio"), "transcript")
        if transcript is not None:
            yield TextDelta(transcript)
        self.gave += (kind for kind in _OTHER_FIELDS if get(delta, kind) and kind not in self.gave)
        fragments = list_at(delta, "tool_calls")
        for fragment in fragments:
            if fragment is not None:
                custom = get(fragment, "custom")  # the SDK's type does not have this field
                yield from self._fragment(
                    fragment, get(fragment, "function") if custom is None else custom, custom=custom is not None
                )
        legacy = get(delta, "function_call")
        if legacy is not None and not fragments:  # llama-cpp-python sends each piece in both forms
            yield from self._fragment(legacy, legacy)

    def _content_parts(self, parts: Any) -> Iterator[Chunk]:
        """The chunks of content in parts, which Mistral writes when it thinks."""
        for part in parts:
            kind = get(part, "type")
            if kind == "text" and (words := text_at(part, "text")) is not None:
                self.heard = True
                yield TextDelta(words)
            elif kind == "thinking":
                thought = get(part, "thinking")
                pieces = (
                    [thought]
                    if isinstance(thought, str)
                    else [text_at(one, "text") or "" for one in list_at(part, "thinking")]
                )
                if any(pieces):
                    yield ReasoningDelta("".join(pieces), origin=self._origin)

    # --- tool calls

    def _fragment(self, fragment: object, function: object, *, custom: bool = False) -> Iterator[Chunk]:
        name, id_ = text_at(function, "name"), text_at(fragment, "id")
        index, piece = (
            index_at(fragment, "index"),
            (text_at(function, "input") or "") if custom else _arguments(function),
        )
        call = self._call_of(index, id_, name)
        if call is None:
            if name is None:
                if piece:
                    raise AdapterError("a tool call has arguments and no name")
                return
            alone = not self._calls
            call = self._begin(fragment, index, id_, name)
            extra = get(fragment, "extra_content")
            if isinstance(extra, Mapping):  # Gemini's compatible endpoint refuses a history without this field
                call.kept["extra_content"] = extra
            if custom:
                call.custom, call.kept["call"] = True, CUSTOM
            if alone:  # text of the same chunk then stands before the call in the history, too
                yield from self._kept(call)
            yield call.write(piece)
        elif piece:
            yield call.write(piece)

    def _begin(self, fragment: object, index: int | None, id_: str | None, name: str) -> PendingCall:
        call = PendingCall(id_ or f"call_{self._stream}_{self._made}", name, fragment, given=id_)
        self._made += 1
        self._calls.append(call)
        if index is not None:
            self._at[index] = call
        return call

    def _call_of(self, index: int | None, id_: str | None, name: str | None) -> PendingCall | None:
        """The call that a fragment continues. `None`: the fragment begins another call.

        OpenAI numbers the calls by an index. Some servers number every call 0, or no call. There,
        another id with a name begins a call, and so does a name after a whole call.
        """
        known = (
            self._at.get(index) if index is not None else self._by_id(id_) or (self._calls[-1] if self._calls else None)
        )
        if known is None or name is None:
            return known
        if id_ is not None and known.given is not None:
            return known if id_ == known.given else None
        text = known.text
        return None if text.endswith("}") and _is_json(text) else known

    def _by_id(self, id_: str | None) -> PendingCall | None:
        return next((call for call in self._calls if call.given == id_), None) if id_ is not None else None

    def _end_calls(self, *, cut_off: bool) -> Iterator[Chunk]:
        calls, self._calls = self._calls, []
        self._at.clear()
        for call in calls:
            yield from self._kept(call)
            yield call.ended(cut_off=cut_off and (call is calls[-1] or not (call.custom or _is_json(call.text))))

    def _kept(self, call: PendingCall) -> Iterator[Chunk]:
        """The fields that the service needs back with a call: once, before the call."""
        fields, call.kept = call.kept, {}
        if fields:
            yield ReasoningDelta("", mark(fields), self._origin)

    # --- the end

    def _finish(self, word: str) -> Iterator[Chunk]:
        finish_reason = finish_reason_of(word)
        if word.lower() in _FAILURES:
            raise ReportedFailure(
                OPENAI.reported(_FAILURES[word.lower()], f"the service ended the answer with finish reason {word!r}")
            )
        if word == "model_context_window_exceeded" and not self.heard and not self._calls:
            raise ReportedFailure(OPENAI.reported(word, f"the prompt does not fit: finish reason {word!r}"))
        yield from self._end_calls(cut_off=finish_reason is not FinishReason.DONE)
        self._finished = True
        if self._refused and finish_reason is FinishReason.DONE:
            finish_reason, word = FinishReason.BLOCKED, f"{word}: refusal"
        yield TurnFinished(finish_reason, word)

    def _usage(self, usage: object, *, last: bool) -> Iterator[Chunk]:
        if usage is None:
            return
        prompt, output, total = get(usage, "prompt_tokens"), get(usage, "completion_tokens"), get(usage, "total_tokens")
        reasoning = get(get(usage, "completion_tokens_details"), "reasoning_tokens")
        cached = get(get(usage, "prompt_tokens_details"), "cached_tokens")
        counts = (prompt, output, total, reasoning)
        if all(type(count) is int for count in counts) and reasoning and prompt + output + reasoning == total:
            output += reasoning  # xAI counts the thinking beside the output
        yield from self.tokens.report(
            last=last,
            input_tokens=prompt,
            output_tokens=output,
            reasoning_tokens=reasoning,
            cached_tokens=get(usage, "prompt_cache_hit_tokens") if cached is None else cached,
            total_tokens=total,
        )


def _arguments(function: object) -> str:
    arguments = get(function, "arguments")
    if isinstance(arguments, Mapping):  # some servers send the object itself
        return json.dumps(arguments, ensure_ascii=False)
    if arguments is not None and not isinstance(arguments, str):
        raise AdapterError(f"`arguments` is {name_of(arguments)}, not str")
    return arguments or ""


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True

"""OpenAI's models, and those of compatible servers, through the OpenAI SDK, as a `Model`: by chat
completions or by responses.

`to_chat` and `to_response` write a neutral request in the SDK's form, as plain data; they need no
SDK and send nothing.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, ClassVar, Final

from monitor._util.codec import to_plain
from monitor._util.hashing import identity
from monitor._util.part_options import CUSTOM, goes_to, read_mark
from monitor.adapters.adapter import AdapterFactory
from monitor.adapters.model_names import Opening, SdkModel, check_keys, check_settings, suggested
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.adapters.provider_forms import answered_calls, arguments_in, bytes_of, valid, valid_data
from monitor.chunks import ToolCall
from monitor.errors import ConfigError, MissingExtra, describe
from monitor.messages import AssistantMessage, Media, Message, Reasoning, Text, UserMessage
from monitor.models import ModelRequest, ToolSpec
from monitor.wires.fields import Form, failed_text, plain_text

_OF_THE_REQUEST: Final = {
    "model": "the model's name says it",
    "messages": "the request's messages are the history",
    "input": "the request's messages are the history",
    "previous_response_id": "the request's messages are the history, all of it",
    "conversation": "the request's messages are the history, all of it",
    "instructions": "the request's instructions say it",
    "tool_choice": "the request's tool_choice says it",
    "functions": "the request's tools say it",
    "function_call": "the request's tool_choice says it",
    "stream": "every answer is a stream",
    "background": "an answer is watched while it is written",
}
"""Parameters of the SDK that are not allowed as settings, and why."""

_REASONS: Final = re.compile(r"o\d|codex|(gpt-(?:[5-9]|\d\d))")
"""The beginnings of the names of models that encrypt their reasoning. Other models refuse a request
for it."""

_ENCRYPTED: Final = "reasoning.encrypted_content"


class _OpenAIBase(SdkModel):
    """The common part of both models: the client, and the names of settings."""

    adapter: ClassVar[AdapterFactory] = OpenAIAdapter
    example = "gpt-5"

    def __init__(self, model: str, *, client: Any = None) -> None:
        super().__init__(model, client)
        sdk = _sdk()
        if client is not None and not isinstance(client, sdk.AsyncOpenAI):
            raise ConfigError(
                f"client takes an openai.AsyncOpenAI, not {type(client).__name__}: write client=openai.AsyncOpenAI()"
            )

    def _client_from_environment(self) -> Any:
        """Without the SDK's hidden retries, which sleep up to two minutes each."""
        sdk = _sdk()
        check_keys("OPENAI_API_KEY")
        try:
            return sdk.AsyncOpenAI(max_retries=0)
        except sdk.OpenAIError as error:
            raise ConfigError(
                "no OpenAI client can be made from the environment: set OPENAI_API_KEY, or give client=."
                f" {describe(error)}"
            ) from error


class OpenAIModel(_OpenAIBase):
    """A model by chat completions, of OpenAI or of a compatible server. Each call is one request.

    `client`: an `openai.AsyncOpenAI`, with the `base_url` of a compatible server if it is one. It
    keeps its own `max_retries` (2 unless you set 0), and you close it. Without `client`, the first
    call of each event loop makes one without retries from the environment (`OPENAI_API_KEY`, and
    `OPENAI_BASE_URL`). `aclose()` closes the client of the running loop.

    `send_reasoning`: the model's thinking goes back to it as `reasoning_content`. DeepSeek's and
    Kimi's thinking models need it when they call tools; other servers do not, and some refuse it.

    `settings` of a request are the parameters of `chat.completions.create`, `extra_body` included.
    Usage is requested; the setting `stream_options=None` omits this for a server that refuses
    `stream_options`.
    """

    form: ClassVar[Form] = "openai-chat"
    provider = "openai"

    def __init__(self, model: str, *, client: Any = None, send_reasoning: bool = False) -> None:
        super().__init__(model, client=client)
        self._send_reasoning = send_reasoning

    def stream(self, request: ModelRequest) -> Awaitable[AsyncIterator[Any]]:
        """The answer to `request`, to be awaited: each time anew, and nothing is sent before.

        Raises `ConfigError` for settings that the SDK does not have, and for a request that says
        nothing or contradicts itself.
        """
        parameters = to_chat(request, send_reasoning=self._send_reasoning, model=self._model)
        _check(parameters, _parameters("chat.completions", "AsyncCompletions"))
        return Opening(partial(self._open, parameters))

    async def _open(self, parameters: Mapping[str, Any]) -> AsyncIterator[Any]:
        stream: AsyncIterator[Any] = await self._client().chat.completions.create(
            model=self._model, stream=True, **parameters
        )
        return stream


class OpenAIResponsesModel(_OpenAIBase):
    """A model by OpenAI's responses API. Each call is one request, with the whole history: nothing
    is stored by the service.

    Reasoning therefore goes back to the service as encrypted content. Reasoning models are asked
    for it: o1 and later, gpt-5 and later, known by their names. The setting `include` overrides
    that. With the setting `store=True`, reasoning goes back by its id.

    `client` as for `OpenAIModel`. `settings` of a request are the parameters of `responses.create`;
    its `tools` are added to the request's.
    """

    form: ClassVar[Form] = "openai-responses"
    provider = "openai-responses"

    def stream(self, request: ModelRequest) -> Awaitable[AsyncIterator[Any]]:
        """The answer to `request`, to be awaited: each time anew, and nothing is sent before.

        Raises `ConfigError` for settings that the SDK does not have, and for a request that says
        nothing or contradicts itself.
        """
        parameters = to_response(request, encrypted=_reasons(self._model), model=self._model)
        _check(parameters, _parameters("responses", "AsyncResponses"))
        return Opening(partial(self._open, parameters))

    async def _open(self, parameters: Mapping[str, Any]) -> AsyncIterator[Any]:
        stream: AsyncIterator[Any] = await self._client().responses.create(model=self._model, stream=True, **parameters)
        return stream


# --- the request


def to_chat(request: ModelRequest, *, send_reasoning: bool = False, model: str | None = None) -> dict[str, Any]:
    """Messages, instructions, tools, tool choice and settings as the parameters of
    `chat.completions.create`. `model`: who is asked.

    Raises `ConfigError` for a setting that is no setting here, a call that is required where there
    is no tool, and no messages.
    """
    messages = to_messages(request.messages, send_reasoning=send_reasoning, model=model)
    parameters = _settings(request, nothing=not messages)
    if request.instructions:
        messages.insert(0, {"role": "system", "content": valid(request.instructions)})
    parameters["messages"] = messages
    options = parameters.get("stream_options", {})
    if options is None:
        del parameters["stream_options"]
    else:
        parameters["stream_options"] = {"include_usage": True, **options}
    functions = [{"type": "function", "function": _declared(tool)} for tool in request.tools]
    return parameters | _tools(request, functions)


def to_response(request: ModelRequest, *, encrypted: bool = True, model: str | None = None) -> dict[str, Any]:
    """The request as the parameters of `responses.create`. `encrypted`: reasoning is asked for in a
    form that can be sent back.
    """
    stored = request.settings.get("store") is True
    items = to_input(request.messages, stored=stored, model=model)
    parameters = {"store": False, **_settings(request, nothing=not items), "input": items}
    if encrypted and not stored:
        parameters.setdefault("include", [_ENCRYPTED])
    if parameters.get("include", _ENCRYPTED) is None:
        del parameters["include"]
    if request.instructions:
        parameters["instructions"] = valid(request.instructions)
    # without `strict`, the API makes each schema strict, and refuses a schema where it cannot
    functions = [{"type": "function", **_declared(tool), "strict": False} for tool in request.tools]
    return parameters | _tools(request, functions)


def _reasons(model: str) -> bool:
    """Whether a model reasons, by the last part of its name (`openai/gpt-5`). Models that only chat
    do not.
    """
    name = model.rpartition("/")[2]
    found = _REASONS.match(name)
    return found is not None and not (found[1] and "chat" in name)


def _settings(request: ModelRequest, *, nothing: bool) -> dict[str, Any]:
    check_settings(request, _OF_THE_REQUEST)
    if nothing:
        raise ConfigError("the request has no messages, or only empty ones")
    return {str(name): value for name, value in request.settings.items() if name != "tools"}


def _tools(request: ModelRequest, functions: list[dict[str, Any]]) -> dict[str, Any]:
    tools = joined(request.settings.get("tools"), functions)
    if tools:
        return {"tools": tools, "tool_choice": request.tool_choice}
    if request.tool_choice == "required":
        raise ConfigError("tool_choice is 'required', and the request has no tools")
    return {}


def _declared(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": to_plain(tool.parameters)}


# --- the SDK


def _sdk() -> Any:
    try:
        import openai  # noqa: PLC0415 - the SDK is optional, and takes a second to import
    except ImportError as error:
        if (error.name or "").startswith("openai"):
            raise MissingExtra("openai", "openai") from None
        raise
    return openai


@cache
def _parameters(module: str, resource: str) -> frozenset[str]:
    """The parameters of an API's `create`."""
    create = getattr(importlib.import_module(f"openai.resources.{module}"), resource).create
    return frozenset(inspect.signature(create).parameters) - {"self"}


def _check(parameters: Mapping[str, Any], known: frozenset[str]) -> None:
    unknown = [name for name in parameters if name not in known]
    if unknown:
        raise ConfigError(
            f"the OpenAI SDK has no such settings: {', '.join(suggested(name, known) for name in unknown)}; "
            "what a compatible server has besides goes into extra_body"
        )


# --------------------------------------------------------------------------------------------------
# Writes a neutral history in the forms of OpenAI's two APIs, as plain data that the services
# accept.
#
# The results of a turn follow it in call order. A call without a result is answered by an error. A
# call whose arguments were cut off is sent without arguments. Empty parts are left out, and half of
# a surrogate pair becomes U+FFFD.

_LONGEST_ID: Final = 40
"""The longest id of a call that OpenAI accepts, in characters. Other providers' ids may be
longer."""

_AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}

_ANSWERS: Final = {
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
"""Calls of OpenAI's own tools that the caller carries out, and the type of the item with the answer
as text.
"""

_UNANSWERABLE: Final = frozenset({"computer_call", "tool_search_call"})
"""Calls of such tools whose answer is not text. Without the answer, such a call must not stand in a
history."""


# --- chat completions


def to_messages(
    messages: Iterable[Message], *, send_reasoning: bool = False, model: str | None = None
) -> list[dict[str, Any]]:
    """The history as `messages` of a chat completion. `send_reasoning`: the thinking goes back as
    `reasoning_content`. `model`: the model that gets the request.

    Raises `ConfigError` for media that cannot be sent.
    """
    said: list[dict[str, Any]] = []
    for message in messages:
        match message:
            case UserMessage():
                content = [_chat_part(one) for one in message.content if isinstance(one, Media) or one.text]
                if content:
                    one_text = content[0]["text"] if len(content) == 1 and content[0]["type"] == "text" else None
                    said.append({"role": "user", "content": content if one_text is None else one_text})
            case AssistantMessage():
                said += _chat_turn(message, send_reasoning=send_reasoning, model=model)
    return said


def _chat_turn(message: AssistantMessage, *, send_reasoning: bool, model: str | None) -> Iterator[dict[str, Any]]:
    text = "".join(piece.text for piece in message.content if isinstance(piece, Text))
    calls = list(_chat_calls(message, model))
    if not text and not calls:
        return
    turn: dict[str, Any] = {"role": "assistant", "content": valid(text) or None}
    thought = "".join(piece.text for piece in message.content if isinstance(piece, Reasoning)) if send_reasoning else ""
    if thought:
        turn["reasoning_content"] = valid(thought)
    if calls:
        turn["tool_calls"] = calls
    yield turn
    shown: list[dict[str, Any]] = []
    for call, answer, media in _answers(message):
        yield {"role": "tool", "tool_call_id": _call_id(call), "content": answer}
        if media:
            shown += [
                {"type": "text", "text": f"(What {valid(call.name)} shows:)"},
                *(_or_why(_chat_part, one) for one in media),
            ]
    if shown:  # a message of a tool holds only text
        yield {"role": "user", "content": shown}


def _chat_calls(message: AssistantMessage, model: str | None) -> Iterator[dict[str, Any]]:
    kept: dict[str, Any] = {}
    for piece in message.content:
        if isinstance(piece, Reasoning):
            kept |= _mark(piece, model)
        elif isinstance(piece, ToolCall):
            call = kept.get("call")
            if isinstance(call, Mapping) and call.get("type") == CUSTOM["type"]:
                said: dict[str, Any] = {"type": "custom", "custom": {"name": valid(piece.name), "input": _input(piece)}}
            else:
                said = {"type": "function", "function": {"name": valid(piece.name), "arguments": _written(piece)}}
            extra = kept.get("extra_content")
            yield {"id": _call_id(piece)} | said | ({} if extra is None else {"extra_content": extra})
            kept = {}


def _chat_part(piece: Text | Media) -> dict[str, Any]:
    if isinstance(piece, Text):
        return {"type": "text", "text": valid(piece.text)}
    if piece.mime_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": _address(piece)}}
    if piece.data is None:
        raise ConfigError(f"a chat completion takes {_called(piece)} by its data only, not by its address")
    if piece.mime_type in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": _data(piece), "format": _AUDIO[piece.mime_type]}}
    return {"type": "file", "file": {"filename": _called(piece), "file_data": _address(piece)}}


# --- responses


def to_input(messages: Iterable[Message], *, stored: bool = False, model: str | None = None) -> list[dict[str, Any]]:
    """The history as `input` of a response. Reasoning goes back with its encrypted content, or by
    its id if the service has `stored` it.

    Thinking without either is left out. Thinking with nothing after it is left out too, because the
    service refuses it alone. So are fields for another provider, or for a model of another maker
    than `model`'s. Raises `ConfigError` for media that cannot be sent.
    """
    items: list[dict[str, Any]] = []
    for message in messages:
        match message:
            case UserMessage():
                content = [_input_part(one) for one in message.content if isinstance(one, Media) or one.text]
                if content:
                    items.append({"type": "message", "role": "user", "content": content})
            case AssistantMessage():
                items += _TurnItems(message, stored=stored, model=model).items()
    return items


class _TurnItems:
    """One assistant message as items."""

    def __init__(self, message: AssistantMessage, *, stored: bool, model: str | None) -> None:
        self._message = message
        self._model = model
        self._stored = stored
        self._items: list[dict[str, Any]] = []
        self._thought: list[str] = []
        self._phase: str | None = None
        self._kept: dict[str, Any] = {}
        self._own: dict[str, str] = {}
        """The types of the calls of OpenAI's own tools among the items, by call id."""
        self._kinds: dict[int, dict[str, Any]] = {}

    def items(self) -> list[dict[str, Any]]:
        """The items of the message, and the items that answer its calls."""
        for piece in self._message.content:
            match piece:
                case Reasoning():
                    self._reasoning(piece)
                case Text(text=text) if text:
                    self._text(text)
                case ToolCall():
                    self._call(piece)
        while self._items and self._items[-1]["type"] == "reasoning":
            self._items.pop()
        for call, answer, media in _answers(self._message):
            self._items += self._answer(call, answer, media)
        return self._items

    def _reasoning(self, piece: Reasoning) -> None:
        if piece.text and goes_to(piece.origin, "openai", self._model):
            self._thought.append(valid(piece.text))
        fields = _mark(piece, self._model)
        if not fields:
            return
        reasoning, item, kept, phase = (fields.get(name) for name in ("reasoning", "item", "call", "phase"))
        if isinstance(reasoning, Mapping) and (self._stored or reasoning.get("encrypted_content")):
            summary = [{"type": "summary_text", "text": text} for text in self._thought]
            self._items.append({"type": "reasoning", **reasoning, "summary": summary})
        elif isinstance(item, Mapping):
            self._item(dict(item))
        self._kept = dict(kept) if isinstance(kept, Mapping) else {}
        self._phase = phase if isinstance(phase, str) else None
        self._thought = []

    def _item(self, item: dict[str, Any]) -> None:
        kind, call_id = item.get("type"), item.get("call_id")
        calls = isinstance(call_id, str) and any(
            isinstance(one, ToolCall) and one.id == call_id for one in self._message.content
        )
        if calls:
            self._own[str(call_id)] = str(kind)
        if not calls or kind not in _UNANSWERABLE:
            self._items.append(item)

    def _text(self, text: str) -> None:
        message: dict[str, Any] = {"type": "message", "role": "assistant", "content": valid(text)}
        if self._phase is not None:
            message["phase"] = self._phase
        self._items.append(message)

    def _call(self, call: ToolCall) -> None:
        kept, self._kept = self._kept, {}
        self._kinds[id(call)] = kept
        if call.id in self._own:
            return
        fields: dict[str, Any] = {
            "type": "function_call",
            "call_id": _call_id(call),
            "name": valid(call.name),
            **kept,
        }
        if fields["type"] == "custom_tool_call":
            fields["input"] = _input(call)
        else:
            fields["arguments"] = _written(call)
        self._items.append(fields)

    def _answer(self, call: ToolCall, answer: str, media: Sequence[Media]) -> Iterator[dict[str, Any]]:
        call_id, own = _call_id(call), self._own.get(call.id)
        failed = not any(result.id == call.id and not result.is_error for result in self._message.results)
        if own is None:
            kept = self._kinds[id(call)]
            kind = "custom_tool_call_output" if kept.get("type") == "custom_tool_call" else "function_call_output"
            caller = {"caller": kept["caller"]} if "caller" in kept else {}
            shown = [{"type": "input_text", "text": answer}, *(_or_why(_input_part, one) for one in media)]
            yield {"type": kind, "call_id": call_id, "output": shown if media else answer} | caller
        elif own == "shell_call":
            output = [{"stdout": answer, "stderr": "", "outcome": {"type": "exit", "exit_code": int(failed)}}]
            yield {"type": _ANSWERS[own], "call_id": call_id, "output": output}
        elif own == "local_shell_call":  # the reference requires both
            yield {"type": _ANSWERS[own], "id": call_id, "call_id": call_id, "output": answer}
        elif own == "apply_patch_call":
            yield {
                "type": _ANSWERS[own],
                "call_id": call_id,
                "status": "failed" if failed else "completed",
                "output": answer,
            }
        elif own in _ANSWERS:
            yield {"type": _ANSWERS[own], "call_id": call_id, "output": answer}


def _input_part(piece: Text | Media) -> dict[str, Any]:
    if isinstance(piece, Text):
        return {"type": "input_text", "text": valid(piece.text)}
    if piece.mime_type.startswith("image/"):
        return {"type": "input_image", "image_url": _address(piece), "detail": "auto"}
    if piece.data is None and piece.uri is not None:
        return {"type": "input_file", "file_url": piece.uri}
    return {"type": "input_file", "filename": _called(piece), "file_data": _address(piece)}


# --- common to both


def _or_why(part: Callable[[Text | Media], dict[str, Any]], media: Media) -> dict[str, Any]:
    """Media in a tool's result. If the service does not accept the media, the reason stands in its
    place: the request must not fail.
    """
    try:
        return part(media)
    except ConfigError as error:
        return part(Text(f"(It cannot be shown: {error})"))


def _answers(message: AssistantMessage) -> Iterator[tuple[ToolCall, str, tuple[Media, ...]]]:
    """Every call with the text and the media of its result."""
    for call, result in answered_calls(message):
        text = valid(result.text)
        yield call, failed_text(text) if result.is_error else plain_text(text), result.media


def _written(call: ToolCall) -> str:
    return json.dumps(arguments_in(call), ensure_ascii=False)


def _input(call: ToolCall) -> str:
    """The input text of a custom tool's call."""
    written = call.arguments.get("input") if isinstance(call.arguments, Mapping) else call.arguments
    return valid(written) if isinstance(written, str) else _written(call)


def _mark(piece: Reasoning, model: str | None) -> dict[str, Any]:
    """The fields that `model` needs back; empty for fields of another model."""
    return valid_data(read_mark(piece.signature) or {}) if goes_to(piece.origin, "openai", model) else {}


def _call_id(call: ToolCall) -> str:
    return call.id if 0 < len(call.id) <= _LONGEST_ID and valid(call.id) == call.id else f"call_{identity(call.id)}"


def _address(media: Media) -> str:
    """The address of media: a `data:` address if it has data, else its own."""
    if media.data is None and media.uri is not None:
        return media.uri
    return f"data:{media.mime_type};base64,{_data(media)}"


def _data(media: Media) -> str:
    bytes_of(media)
    return media.data or ""


def _called(media: Media) -> str:
    return media.name or media.mime_type


def joined(given: object, own: Sequence[Any]) -> list[Any]:
    """The run's tools, followed by the tools of the settings."""
    if given is not None and not isinstance(given, list | tuple):
        raise ConfigError(f"the setting 'tools' takes a list, not {type(given).__name__}")
    return [*own, *(given or ())]

"""Gemini through google-genai, as a `Model`.

`to_contents` and `to_config` write a neutral request in the SDK's form, as plain data; they need no
SDK and send nothing. `GoogleModel` makes the call.
"""

from __future__ import annotations

import re
from base64 import b64decode, urlsafe_b64decode
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pydantic import ValidationError

from monitor._util.codec import to_plain
from monitor._util.part_options import goes_to, read_mark
from monitor.adapters.adapter import AdapterFactory
from monitor.adapters.google.stream import GoogleAdapter
from monitor.adapters.model_names import Opening, SdkModel, check_keys, check_settings, suggested
from monitor.adapters.provider_forms import answered_calls, append_turn, arguments_in, bytes_of, valid
from monitor.chunks import ToolCall
from monitor.errors import ConfigError, MissingExtra, describe
from monitor.messages import AssistantMessage, Media, Message, Reasoning, Text, UserMessage
from monitor.models import ModelRequest, ToolChoice, ToolSpec
from monitor.wires.fields import Form

if TYPE_CHECKING:
    from google.genai import types


_MODES: Final[Mapping[ToolChoice, str]] = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_OF_THE_REQUEST: Final = {
    "system_instruction": "the request's instructions say it",
    "automatic_function_calling": "it is off, so that calls, results and limits can be watched",
}
"""Parameters of the SDK that are not allowed as settings, and why."""


class GoogleModel(SdkModel):
    """A Gemini model. Each call is one request: the SDK does not run tools, and does not retry.

    `client`: a `genai.Client` or its `aio`. It keeps its own retry options, and you close it.
    Without one, the first call of each event loop makes a client from the environment:
    `GEMINI_API_KEY`, `GOOGLE_API_KEY`, or what the SDK reads for Vertex. `aclose()` closes the
    client of the running loop. On trio, if aiohttp is installed, pass a client with an httpx2
    transport.

    `settings` of a request are the fields of `GenerateContentConfig`.
    """

    adapter: ClassVar[AdapterFactory] = GoogleAdapter
    form: ClassVar[Form] = "gemini"
    provider = "google"
    example = "gemini-2.5-flash"

    def __init__(self, model: str, *, client: Any = None) -> None:
        super().__init__(model, None if client is None else getattr(client, "aio", client))
        self._config_type = _sdk_config()
        if client is not None and not callable(
            getattr(getattr(self._given, "models", None), "generate_content_stream", None)
        ):
            raise ConfigError(f"client takes a genai.Client, not {type(client).__name__}: write client=genai.Client()")

    def stream(self, request: ModelRequest) -> Awaitable[AsyncIterator[types.GenerateContentResponse]]:
        """The answer to `request`. The call is made when the result is awaited, and made again each
        time.

        Raises `ConfigError` for settings that `GenerateContentConfig` does not have or accept, and
        for an empty request.
        """
        contents = to_contents(request.messages, model=self._model)
        if not contents:
            raise ConfigError("the request has no messages, or only empty ones")
        return Opening(partial(self._open, contents, self._config(request)))

    async def _open(
        self, contents: Any, config: types.GenerateContentConfig
    ) -> AsyncIterator[types.GenerateContentResponse]:
        stream: AsyncIterator[types.GenerateContentResponse] = await self._client().models.generate_content_stream(
            model=self._model, contents=contents, config=config
        )
        return stream

    async def _close(self, client: Any) -> None:
        await client.aclose()

    def _client_from_environment(self) -> Any:
        """A client without the SDK's hidden retry of a refused connection, which sleeps up to ten
        seconds.
        """
        from google import genai  # noqa: PLC0415 - as above
        from google.genai import types  # noqa: PLC0415

        check_keys("GEMINI_API_KEY", "GOOGLE_API_KEY")
        try:
            return genai.Client(http_options=types.HttpOptions(retry_options=types.HttpRetryOptions(attempts=1))).aio
        except Exception as error:
            raise ConfigError(
                "no Gemini client can be made from the environment: set GEMINI_API_KEY (or GOOGLE_API_KEY), or give"
                f" client=. {describe(error)}"
            ) from error

    def _config(self, request: ModelRequest) -> types.GenerateContentConfig:
        config = to_config(request)
        known = self._config_type.model_fields
        unknown = [str(name) for name in config if name not in known]
        if unknown:
            raise ConfigError(
                f"google-genai has no such settings: {', '.join(suggested(name, known) for name in unknown)}"
            )
        try:
            return self._config_type.model_validate(config)
        except ValidationError as error:
            first, *others = error.errors(include_url=False, include_input=False)
            more = f" (and {len(others)} more)" if others else ""
            raise ConfigError(
                f"google-genai does not take {'.'.join(map(str, first['loc']))}: {first['msg']}{more}"
            ) from None


# --- the SDK


def _sdk_config() -> type[types.GenerateContentConfig]:
    try:
        from google.genai import types  # noqa: PLC0415 - the SDK is optional, and takes a second to import
    except ImportError as error:
        if (error.name or "").startswith("google"):
            raise MissingExtra("google-genai", "google") from None
        raise
    return types.GenerateContentConfig


# --- the request


def to_config(request: ModelRequest) -> dict[str, Any]:
    """Instructions, tools, tool choice and settings as the fields of a `GenerateContentConfig`.

    The settings `tools` (server-side tools) and `tool_config` are added to those of the request; a
    schema in the settings overrides the request's. Raises `ConfigError` for a setting that is not
    allowed, and for a required call without tools.
    """
    check_settings(request, _OF_THE_REQUEST)
    config: dict[str, Any] = {**request.settings, "automatic_function_calling": {"disable": True}}
    if request.reply_schema is not None and not config.keys() & {"response_schema", "response_json_schema"}:
        config["response_mime_type"] = "application/json"
        config["response_json_schema"] = to_plain(request.reply_schema)
    if request.instructions:
        config["system_instruction"] = valid(request.instructions)
    if request.tools:
        config["tools"] = [
            {"function_declarations": [_declared(tool) for tool in request.tools]},
            *(config.get("tools") or ()),
        ]
        config["tool_config"] = _tool_config(config.get("tool_config"), request.tool_choice)
    elif request.tool_choice == "required":
        raise ConfigError("tool_choice is 'required', and the request has no tools")
    return config


def _declared(tool: ToolSpec) -> dict[str, Any]:
    """The declaration of a tool. A function without parameters has no schema, because the service
    refuses an object without properties.
    """
    declared: dict[str, Any] = {"name": tool.name, "description": tool.description}
    if tool.parameters.get("properties"):
        declared["parameters_json_schema"] = to_plain(tool.parameters)
    return declared


def _tool_config(given: object, choice: ToolChoice) -> dict[str, Any]:
    plain = {} if given is None else to_plain(given)
    calling = plain.get("function_calling_config") or {} if isinstance(plain, dict) else None
    if not isinstance(calling, dict):
        raise ConfigError(f"tool_config takes a dict or a types.ToolConfig, not {given!r}")
    return {**plain, "function_calling_config": {**calling, "mode": _MODES[choice]}}


# --- the history


def to_contents(messages: Iterable[Message], *, model: str | None = None) -> list[dict[str, Any]]:
    """A neutral history as google contents that the service takes.

    The results of a turn follow it in call order as one user content. A call without a result is
    answered by an error. A call whose arguments were cut off is sent without arguments. Neighbours
    of one role become one content, empty parts are left out, and half of a surrogate pair becomes
    U+FFFD.

    `Reasoning("", signature)` signs the part that follows it. If nothing follows, or only
    `Reasoning("", "")`, it signs an empty text. Thinking and signatures of another provider are
    left out, and so are signatures that are not base64. `model`: the model that gets the request.

    Raises `ConfigError` for media without data or address.
    """
    contents: list[dict[str, Any]] = []
    for message in messages:
        match message:
            case UserMessage():
                append_turn(
                    contents,
                    "user",
                    "parts",
                    [_media(one) if isinstance(one, Media) else {"text": valid(one.text)} for one in _full(message)],
                )
            case AssistantMessage():
                append_turn(contents, "model", "parts", _said(message, model))
                append_turn(contents, "user", "parts", _answered(message, model))
    return contents


def _full(message: UserMessage) -> list[Text | Media]:
    return [one for one in message.content if isinstance(one, Media) or one.text]


def _media(media: Media) -> dict[str, Any]:
    """A part of media: by its data, or else by its address. The name is left out, because only
    Vertex accepts one.
    """
    if media.data is not None or media.uri is None:
        return {"inline_data": {"mime_type": media.mime_type, "data": bytes_of(media)}}
    return {"file_data": {"mime_type": media.mime_type, "file_uri": media.uri}}


def _said(message: AssistantMessage, model: str | None) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    signature: bytes | None = None
    for piece in message.content:
        if isinstance(piece, Reasoning) and not goes_to(piece.origin, "google", model):
            continue
        whole = _whole_part(piece.signature) if isinstance(piece, Reasoning) else None
        if whole is not None:
            parts += [*_signs_nothing(signature), whole]
            signature = None
            continue
        own = _signature(piece.signature) if isinstance(piece, Reasoning) else None
        if own is not None or (isinstance(piece, Reasoning) and piece.signature == ""):
            parts += _signs_nothing(signature)
            signature = own
        part = _part(piece)
        if part is not None:
            parts.append(part if signature is None else part | {"thought_signature": signature})
            signature = None
    return parts + _signs_nothing(signature)


def _whole_part(signature: str | None) -> dict[str, Any] | None:
    """The part that a signature keeps: the service's own work, or media that it has signed."""
    kept = (read_mark(signature) or {}).get("part")
    if not isinstance(kept, dict):
        return None
    part: dict[str, Any] = {**kept}
    try:
        for holder, name in ((part, "thought_signature"), (part.get("inline_data"), "data")):
            if isinstance(holder, dict) and isinstance(holder.get(name), str):
                holder[name] = urlsafe_b64decode(holder[name])  # as the SDK writes bytes into JSON
    except ValueError:
        return None
    return part


def _signs_nothing(signature: bytes | None) -> list[dict[str, Any]]:
    """An empty text with a signature. The service closes a turn with it, and needs it back."""
    return [] if signature is None else [{"text": "", "thought_signature": signature}]


def _signature(signature: str | None) -> bytes | None:
    try:
        return b64decode(signature, validate=True) or None if signature else None
    except ValueError:
        return None


def _part(piece: Text | Reasoning | ToolCall) -> dict[str, Any] | None:
    match piece:
        case Text(text=text) if text:
            return {"text": valid(text)}
        case Reasoning(text=text) if text:
            return {"text": valid(text), "thought": True}
        case ToolCall(id=id_, name=name):
            return {"function_call": {"id": valid(id_), "name": valid(name), "args": arguments_in(piece)}}
    return None


_NESTED: Final = re.compile(r"gemini-(?:[3-9]|\d\d)")
"""Models that take media as part of a function's response. Others take it beside the responses."""


def _answered(message: AssistantMessage, model: str | None) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    media_parts: list[dict[str, Any]] = []
    for call, result in answered_calls(message):
        response = {"error" if result.is_error else "output": valid(result.text)}
        media = [_media(one) for one in result.media]
        answer: dict[str, Any] = {"id": valid(call.id), "name": valid(call.name), "response": response}
        if media and _NESTED.search(model or "") and all("inline_data" in one for one in media):
            answer["parts"] = media
        else:
            media_parts += media
        parts.append({"function_response": answer})
    return parts + media_parts

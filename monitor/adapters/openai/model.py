"""OpenAI's models, and those of compatible servers, through the OpenAI SDK, as a `Model`: by chat
completions or by responses.

`to_chat` and `to_response` write a neutral request in the SDK's form, as plain data; they need no
SDK and send nothing.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Mapping
from functools import cache, partial
from typing import Any, ClassVar, Final

from monitor._util.codec import to_plain
from monitor.adapters.adapter import AdapterFactory
from monitor.adapters.model_names import Opening, SdkModel, check_keys, suggested, valid
from monitor.adapters.openai.request_messages import joined, to_input, to_messages
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.errors import ConfigError, MissingExtra, describe
from monitor.models import ModelRequest, ToolSpec
from monitor.wires.fields import Form

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
    for name, why in _OF_THE_REQUEST.items():
        if name in request.settings:
            raise ConfigError(f"{name!r} is not allowed as a setting: {why}")
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

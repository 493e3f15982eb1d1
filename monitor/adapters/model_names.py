"""The common part of the models of all SDKs: the name, and the client of each event loop."""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar, Final

from anyio.lowlevel import RunVar

from monitor._util.argument_checks import named_by_provider
from monitor._util.explained_options import explains_options
from monitor.errors import ConfigError
from monitor.models import Model, ModelRequest


class SdkModel(ABC):
    """A model whose calls are made by a client of an SDK."""

    provider: ClassVar[str]
    """Stands before the colon of the name."""
    example: ClassVar[str]
    """The name of a model of this provider."""

    def __init__(self, model: str, client: Any) -> None:
        """`client`: the caller's, who closes it. `None`: each event loop makes one of its own."""
        if not model:
            raise ConfigError(f"the model has no name; write one such as {self.example!r}")
        self.name: str = f"{self.provider}:{model}"
        self._model = model
        self._given = client
        self._made: RunVar[Any] = RunVar("client")

    async def aclose(self) -> None:
        """Close the client that was made in this event loop, if any. The next call makes another
        one.
        """
        made = self._made.get(None)
        if made is not None:
            self._made.set(None)
            await self._close(made)

    def _client(self) -> Any:
        client = self._given or self._made.get(None)
        if client is None:
            client = self._client_from_environment()
            self._made.set(client)
        return client

    @abstractmethod
    def _client_from_environment(self) -> Any:
        """A client without retries of its own. Raises `ConfigError` if none can be made."""

    async def _close(self, client: Any) -> None:
        await client.close()


# --------------------------------------------------------------------------------------------------
# Models by name: `anthropic:claude-sonnet-5`, `google:gemini-2.5-flash`, `openai:gpt-5`,
# `replay:run.jsonl`.

_PROVIDERS: Final = {
    "anthropic": ("monitor.adapters.anthropic.model", "AnthropicModel"),
    "google": ("monitor.adapters.google.model", "GoogleModel"),
    "openai": ("monitor.adapters.openai.model", "OpenAIModel"),
    "openai-responses": ("monitor.adapters.openai.model", "OpenAIResponsesModel"),
    "replay": ("monitor.adapters.replay_model", "ReplayModel"),
}
"""The module and class of each provider's model. The module, and with it the SDK, is imported on
demand.
"""

_NO_CLIENT: Final = frozenset({"replay"})


@explains_options(example="monitor.model('google:gemini-2.5-flash')")
def model(name: str, *, client: Any = None) -> Model:
    """The model of that name: the provider, a colon, and the provider's own name for it.

    - `anthropic:NAME` is Claude through anthropic; `client` is your `AsyncAnthropic`.
    - `google:NAME` is Gemini through google-genai; `client` is your `genai.Client`.
    - `openai:NAME` is a chat model through the OpenAI SDK, of OpenAI or of a compatible server, and
      `openai-responses:NAME` a model by OpenAI's responses API; `client` is your `AsyncOpenAI`,
      which has the server's `base_url`.
    - `replay:FILE` plays a recorded run, one recorded turn for each call.

    Without `client`, one is made from the environment at the first call.

    Raises `ConfigError` for an unknown provider, and `MissingExtra` if its SDK is not installed.
    """
    provider, _, rest = str(name).partition(":")
    known = ", ".join(f"{one}:" for one in sorted(_PROVIDERS))
    if not rest:
        raise ConfigError(
            f"model {name!r}: write the provider, a colon, and the model, as in {named_by_provider(str(name))!r};"
            f" providers: {known}"
        )
    if provider not in _PROVIDERS:
        raise ConfigError(f"model {name!r}: no provider is called {provider!r}; there are {known}")
    if client is not None and provider in _NO_CLIENT:
        raise ConfigError(f"model {name!r} calls no service and takes no client")
    module, class_name = _PROVIDERS[provider]
    made: Model = getattr(importlib.import_module(module), class_name)(
        rest, **({} if client is None else {"client": client})
    )
    return made


# --------------------------------------------------------------------------------------------------
# Helpers of the models of all SDKs.


class Opening:
    """A call that is made when it is awaited. Unlike a coroutine, it may stay unawaited or be
    awaited again.
    """

    def __init__(self, call: Callable[[], Awaitable[AsyncIterator[Any]]]) -> None:
        self._call = call

    def __await__(self) -> Generator[Any, Any, AsyncIterator[Any]]:
        return self._call().__await__()


def suggested(name: str, known: Iterable[str]) -> str:
    """An unknown name, with the most similar known one."""
    close = get_close_matches(name, known, n=1)
    return f"{name!r} (did you mean {close[0]!r}?)" if close else repr(name)


def check_settings(request: ModelRequest, of_the_request: Mapping[str, str]) -> None:
    """Raise `ConfigError` for a setting that the request has a field for, with the reason."""
    for name, why in of_the_request.items():
        if name in request.settings:
            raise ConfigError(f"{name!r} is not allowed as a setting: {why}")


def check_keys(*variables: str) -> None:
    """Raise `ConfigError` for a key in the environment that no request can carry: the SDK's own
    error comes from the transport, and does not name the variable.
    """
    for variable in variables:
        key = os.environ.get(variable, "")
        if not (key.isascii() and key.isprintable()) or key != key.strip():
            raise ConfigError(
                f"{variable} has a line break, a space at an end or a letter that is not ASCII: write"
                f" export {variable}=... with nothing but the key"
            )

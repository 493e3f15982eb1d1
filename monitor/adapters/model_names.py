"""Models by name: `anthropic:claude-sonnet-5`, `google:gemini-2.5-flash`, `openai:gpt-5`,
`replay:run.jsonl`.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from monitor._util.explained_options import explains_options
from monitor.errors import ConfigError
from monitor.models import Model

_PROVIDERS: Final = {
    "anthropic": ("monitor.adapters.anthropic.model", "AnthropicModel"),
    "google": ("monitor.adapters.google.model", "GoogleModel"),
    "openai": ("monitor.adapters.openai.model", "OpenAIModel"),
    "openai-responses": ("monitor.adapters.openai.model", "OpenAIResponsesModel"),
    "replay": ("monitor.adapters.replay.model", "ReplayModel"),
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
            f"model {name!r}: write the provider, a colon, and the model, as in 'google:gemini-2.5-flash'; providers:"
            f" {known}"
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

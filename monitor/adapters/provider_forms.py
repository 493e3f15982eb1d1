"""Writes a neutral history in the form of each provider, as the models here send it: the inverse of
`monitor.context.read_history`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from monitor.errors import ConfigError
from monitor.messages import Message
from monitor.wires.fields import Form

_BUILDERS: Final[Mapping[Form, tuple[str, str]]] = {
    "gemini": ("monitor.adapters.google.model", "to_contents"),
    "openai-chat": ("monitor.adapters.openai.request_messages", "to_messages"),
    "openai-responses": ("monitor.adapters.openai.request_messages", "to_input"),
    "anthropic": ("monitor.adapters.anthropic.model", "to_messages"),
}
"""The module of each form, imported on demand. None needs an SDK."""


def to_form(form: Form, messages: Iterable[Message]) -> list[dict[str, Any]]:
    """`messages` in the provider's `form`: Gemini's contents, OpenAI's chat messages or response
    items, Anthropic's messages.

    The result is plain data that the SDK takes unchanged, without instructions and tools; Gemini's
    bytes are `bytes`. Linear in the size of the history. Call
    `monitor.context.repair(messages, form=form)` first. Raises `ConfigError` for an unknown form,
    and for media that the provider does not take or that have neither data nor address.
    """
    if form not in _BUILDERS:
        raise ConfigError(f"unknown form {form!r}; known: {', '.join(_BUILDERS)}")
    module, name = _BUILDERS[form]
    said: list[dict[str, Any]] = getattr(importlib.import_module(module), name)(messages)
    return said

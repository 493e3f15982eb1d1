"""A neutral history in the words of each provider: the inverse of `monitor.context.read`, and the
same that the models here send.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from monitor.context.forms import Form
from monitor.errors import ConfigError
from monitor.messages import Message

_BUILDERS: Final[Mapping[Form, tuple[str, str]]] = {
    "gemini": ("monitor.adapters.google.model", "to_contents"),
    "openai-chat": ("monitor.adapters.openai.history", "to_messages"),
    "openai-responses": ("monitor.adapters.openai.history", "to_input"),
    "anthropic": ("monitor.adapters.anthropic.model", "to_messages"),
}
"""Imported when they are asked for. They need no SDK."""


def to_form(form: Form, messages: Iterable[Message]) -> list[dict[str, Any]]:
    """`messages` as `form` has them: Gemini's contents, OpenAI's chat messages or response items,
    Anthropic's messages.

    Plain data that the SDK takes as it is, instructions and tools apart; Gemini's bytes are
    `bytes`. Linear in the size of the history. `monitor.context.repair(messages, form=form)` comes
    before it. Raises `ConfigError` for an unknown form, and for media that the provider does not
    take or that have neither data nor address.
    """
    if form not in _BUILDERS:
        raise ConfigError(f"unknown form {form!r}; known: {', '.join(_BUILDERS)}")
    module, name = _BUILDERS[form]
    said: list[dict[str, Any]] = getattr(importlib.import_module(module), name)(messages)
    return said

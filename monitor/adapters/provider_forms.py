"""Writes a neutral history in the form of each provider, as the models here send it: the inverse of
`monitor.context.read_history`.
"""

from __future__ import annotations

import importlib
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from monitor._util.codec import to_plain
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ConfigError
from monitor.messages import CUT_OFF, NOT_CARRIED_OUT, AssistantMessage, Media, Message
from monitor.wires.fields import Form

_BUILDERS: Final[Mapping[Form, tuple[str, str]]] = {
    "gemini": ("monitor.adapters.google.model", "to_contents"),
    "openai-chat": ("monitor.adapters.openai.model", "to_messages"),
    "openai-responses": ("monitor.adapters.openai.model", "to_input"),
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


# --------------------------------------------------------------------------------------------------
# What the writers of all forms have in common.

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def valid(text: str) -> str:
    """`text` with each half of a surrogate pair replaced by U+FFFD. Models do write such halves,
    and no service accepts them.
    """
    # A history is sent whole at every call, and most of it is ASCII.
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def valid_data(data: Any) -> Any:
    """Plain data, with `valid` applied to every text in it."""
    match data:
        case str():
            return valid(data)
        case dict():
            return {valid(key): valid_data(value) for key, value in data.items()}
        case list():
            return [valid_data(value) for value in data]
    return data


def arguments_in(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call as every service takes them. A call that was cut off has none."""
    arguments: dict[str, Any] = valid_data(to_plain(call.arguments)) if isinstance(call.arguments, Mapping) else {}
    return arguments


def answered_calls(message: AssistantMessage) -> Iterator[tuple[ToolCall, ToolResult]]:
    """Every call of a turn with its result. Calls with the same id get their results one by one. A
    call without a result gets an error that says why.
    """
    results = list(message.results)
    for call in message.content:
        if isinstance(call, ToolCall):
            at = next((at for at, result in enumerate(results) if result.id == call.id), None)
            why = NOT_CARRIED_OUT if isinstance(call.arguments, Mapping) else CUT_OFF
            yield call, ToolResult(call.id, call.name, why, is_error=True) if at is None else results.pop(at)


def bytes_of(media: Media) -> bytes:
    """The data of media. Raises `ConfigError` for media without data and address, and for data that
    is no base64.
    """
    if media.data is None and media.uri is None:
        raise ConfigError(f"{media.name or media.mime_type} has neither data nor uri")
    try:
        return b64decode(media.data or "", validate=True)
    except ValueError:
        raise ConfigError(f"the data of {media.name or media.mime_type} is not base64") from None


def append_turn(said: list[dict[str, Any]], role: str, field: str, parts: list[dict[str, Any]]) -> None:
    """Add a message with these parts in `field`. Neighbours of one role become one message."""
    if parts and said and said[-1]["role"] == role:
        said[-1][field] += parts
    elif parts:
        said.append({"role": role, field: parts})

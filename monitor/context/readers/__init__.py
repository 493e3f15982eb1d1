"""Readers of histories in the forms of the providers, one file for each form. The adapters write
the same forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from monitor.context.forms import Form
from monitor.context.raw import RawMessage
from monitor.context.readers import _anthropic, _chat, _gemini, _responses
from monitor.errors import AdapterError, ConfigError

_READERS: Final[Mapping[Form, Callable[[Mapping[str, Any]], RawMessage]]] = {
    "gemini": _gemini.read,
    "openai-chat": _chat.read,
    "openai-responses": _responses.read,
    "anthropic": _anthropic.read,
}


def read(form: Form, history: Iterable[object]) -> Iterator[RawMessage]:
    """`history` as raw messages, one for each record. The records are dictionaries as in a request
    or its log, or the SDK's pydantic objects.

    Nothing is mended here; `repair` does that. A part that has no neutral form becomes `Unread`.
    Raises `ConfigError` for an unknown form. Raises `AdapterError`, with the index, for a record
    that is not a message of this form.
    """
    reader = _READERS.get(form)
    if reader is None:
        raise ConfigError(f"unknown form {form!r}; known: {', '.join(_READERS)}")
    return _read(reader, history)


def _read(reader: Callable[[Mapping[str, Any]], RawMessage], history: Iterable[object]) -> Iterator[RawMessage]:
    for index, given in enumerate(history):
        dump = getattr(given, "model_dump", None)
        message = dump(exclude_none=True) if callable(dump) else given
        if not isinstance(message, Mapping):
            raise AdapterError(f"message {index} is {type(given).__name__}, not an object")
        try:
            yield reader(message)
        except AdapterError as error:
            raise AdapterError(f"message {index}: {error}") from None

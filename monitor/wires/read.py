"""Readers of histories in the forms of the providers, one file for each form. The adapters write
the same forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from monitor.errors import AdapterError, ConfigError
from monitor.wires.anthropic import read as anthropic
from monitor.wires.chat import read as chat
from monitor.wires.forms import Form
from monitor.wires.gemini import read as gemini
from monitor.wires.raw import RawMessage
from monitor.wires.responses import read as responses

_READERS: Final[Mapping[Form, Callable[[Mapping[str, Any]], RawMessage]]] = {
    "gemini": gemini.read,
    "openai-chat": chat.read,
    "openai-responses": responses.read,
    "anthropic": anthropic.read,
}


def read_history(form: Form, history: Iterable[object]) -> Iterator[RawMessage]:
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

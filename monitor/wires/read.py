"""Readers of histories in the forms of the providers, one file for each form. The adapters write
the same forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from monitor.errors import AdapterError, ConfigError
from monitor.wires import anthropic, chat, gemini, responses
from monitor.wires.fields import Form, RawMessage, WireProblem

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


# --------------------------------------------------------------------------------------------------
# Checks whether a provider accepts a history, before it is sent. One invalid message makes the
# provider refuse the whole request, and every later one.

_VALIDATORS: Final[Mapping[Form, Callable[[Sequence[Mapping[str, Any]]], Iterator[WireProblem]]]] = {
    "gemini": gemini.problems,
    "openai-chat": chat.problems,
    "openai-responses": responses.problems,
    "anthropic": anthropic.problems,
}


def validate(form: Form, messages: Sequence[object]) -> list[WireProblem]:
    """The reasons for which the service would refuse `messages`: contents, messages or items, as
    they are about to be sent.

    The checks cover roles and their order, empty and unknown parts, ids, names and signatures.
    Every call must be answered once and in its place. Rules that depend on the model or on the
    settings are not checked: media types, sizes, whether a signature is genuine.

    Linear in the size of `messages`. Raises `ConfigError` for an unknown form.
    """
    problems = _VALIDATORS.get(form)
    if problems is None:
        raise ConfigError(f"unknown form {form!r}; known: {', '.join(_VALIDATORS)}")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            return [WireProblem(index, "shape", f"it is {type(message).__name__}, not an object")]
    found = list(problems([message for message in messages if isinstance(message, Mapping)]))
    return found if messages else [WireProblem(0, "empty", "there are no messages")]

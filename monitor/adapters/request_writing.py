"""Helpers with which the models of all SDKs write a neutral request in a provider's form."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from difflib import get_close_matches
from typing import Any, Final

from monitor.errors import ConfigError


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

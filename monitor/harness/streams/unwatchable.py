"""What was given as a stream and is none: what it is, and the line that watches a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from monitor._util.argument_checks import signature_of
from monitor.adapters.adapter import must_be_a_stream
from monitor.errors import ConfigError

_STREAMED: Final = {
    "anthropic": "await client.messages.create(..., stream=True)",
    "google": "await client.aio.models.generate_content_stream(...)",
    "openai": "await client.chat.completions.create(..., stream=True)",
}
"""For each SDK, the call that gives a stream."""


def opened(given: Any, *, waits: bool) -> Any:
    """`given`, or what it returns where it is a function that opens a stream.

    Raises `ConfigError` for a class, for a function that needs arguments, and for an object of an
    SDK that is no stream of one answer.
    """
    must_be_a_stream(given)
    is_class = isinstance(given, type)
    others = ("__anext__", "__aiter__", "__aenter__") if waits else ("__next__", "__iter__", "__enter__")
    if not is_class and (not callable(given) or any(hasattr(given, name) for name in others)):
        return given
    name = getattr(given, "__name__", type(given).__name__)
    line = f"write {'async with' if waits else 'with'} monitor.watch({name}(...)) as watched: ..."
    if is_class:
        raise ConfigError(f"cannot watch {name}, which is a class: {line}")
    try:
        signature_of(given).bind()
    except TypeError:
        raise ConfigError(f"cannot watch {name}, a function that needs arguments: {line}") from None
    except ValueError:  # a function in C may not say
        pass
    return given()


def not_watched(given: object, *, waits: bool) -> str:
    """Why `given` cannot be watched, and the way out. `waits`: it was given in an `async with`."""
    kind = "an async iterator" if waits else "an iterator"
    block = "async with" if waits else "with"
    sdk = type(given).__module__.partition(".")[0]
    call = _STREAMED.get(sdk, _STREAMED["openai"])
    call = call if waits else call.removeprefix("await ").replace(".aio", "")
    watch = f"{block} monitor.watch(stream) as watched"
    if given is None:
        return f"it is not {kind}: write stream = {call}, then {watch}: ..."
    if sdk in _STREAMED and _is_client(given):
        return f"it is not {kind}, but a client: write stream = {call}, then {watch}: ..."
    of_sdk = sdk in _STREAMED and not hasattr(given, "__aenter__") and not hasattr(given, "__enter__")
    if of_sdk or isinstance(given, str | bytes | Mapping):
        return f"it is not {kind}, but a whole answer; ask for a stream: write stream = {call}, then {watch}: ..."
    if waits and hasattr(given, "__next__"):
        return (
            "it is not an async iterator; use the asynchronous client of your SDK, or watch it in plain 'with': write"
            " with monitor.watch(stream) as watched: for chunk in watched: ..."
        )
    if hasattr(given, "__aenter__" if waits else "__enter__"):
        return f"it is not {kind}; enter it first: write {block} ... as stream, and then {watch}: ..."
    return f"it is not {kind}; give the stream of an SDK: write {watch}: ..."


def _is_client(given: object) -> bool:
    """Whether `given` is a client of an SDK: it makes requests of several kinds."""
    return any(hasattr(given, requests) for requests in ("chat", "messages", "models")) and hasattr(given, "close")

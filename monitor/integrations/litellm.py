"""LiteLLM (1.84 or newer): its completion stream, for a loop of your own.

    stream = completion(model="...", messages=[...])
    async with guard.watch(stream, adapter=LiteLLMAdapter) as watched:
        async for chunk in watched: ...

LiteLLM before 1.108 needs `openai<3`, so it cannot be installed beside `agent-monitor[openai]`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from inspect import isasyncgen
from types import GeneratorType
from typing import Any

from monitor.adapters.adapter import closable, held_behind
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.errors import ConfigError, MissingExtra

try:
    import litellm
except ImportError:
    raise MissingExtra("litellm", "litellm") from None

__all__ = ["LiteLLMAdapter", "completion", "completion_sync"]


async def completion(**options: Any) -> AsyncGenerator[Any]:
    """The chunks of `litellm.acompletion(stream=True, **options)`, opened by the first read.

    A generator, because the guard closes generators from the inside: `aclose()` of LiteLLM's own
    stream leaves the connections of some providers open. `stream_options` defaults to
    `{"include_usage": True}`, without which LiteLLM reports no usage.
    """
    package: Any = litellm  # not installed where the package is type-checked
    stream: Any = await package.acompletion(**_streaming(options))
    try:
        async for chunk in stream:
            yield chunk
    finally:
        await stream.aclose()


def completion_sync(**options: Any) -> Generator[Any]:
    """The chunks of `litellm.completion(stream=True, **options)`, for `with guard.watch(...)`.

    LiteLLM's own stream cannot be closed without an event loop. This one closes what is open inside
    it.
    """
    package: Any = litellm
    stream: Any = package.completion(**_streaming(options))
    try:
        yield from stream
    finally:
        for one in _open_in(stream):
            one.close()


def _streaming(options: dict[str, Any]) -> dict[str, Any]:
    if options.get("stream") is False:
        raise ConfigError("the guard watches streams: leave stream=False out")
    return {"stream_options": {"include_usage": True}} | options | {"stream": True}


class LiteLLMAdapter(OpenAIAdapter):
    """Reads LiteLLM's chunks, which have OpenAI's form for every provider."""

    readable = "chunk of a stream of LiteLLM"

    def plain_text(self, item: object) -> str | None:
        """The text of a chunk that is one piece of visible text and nothing else.

        LiteLLM's models keep most of their fields as extra ones, whose reading as attributes takes
        five times as long.
        """
        try:
            chunk = _fields(item)
            (choice,) = map(_fields, chunk["choices"])
            return self._plain_of(chunk, choice, _fields(choice["delta"]))
        except (AttributeError, KeyError, TypeError, ValueError):
            return None  # not the plain case; `decode` says what it is

    def responses(self, source: object) -> Sequence[Any]:
        """The open responses inside LiteLLM's stream. If none is found, the stream is drained."""
        return held_behind(source, _inner)


def _fields(model: Any) -> dict[str, Any]:
    declared, extra = model.__dict__, model.__pydantic_extra__
    return {**declared, **extra} if declared and extra else declared or extra


def _open_in(stream: object) -> Iterator[Any]:
    """The objects that a synchronous stream of LiteLLM holds open: the SDK's stream, or the
    response that the generators of its provider's iterator read.
    """
    inner = getattr(stream, "completion_stream", None)
    if inner is not None and closable(inner):
        yield inner
    for held in vars(inner).values() if hasattr(inner, "__dict__") else ():
        if isinstance(held, GeneratorType) and held.gi_frame is not None:
            response = held.gi_frame.f_locals.get("self")
            if closable(response):
                yield response


def _inner(held: object) -> object:
    """For `held_behind`: the SDK's stream inside LiteLLM's, or the response that the generators of
    its provider's iterator read.
    """
    theirs = type(held).__module__.partition(".")[0] == "litellm"
    inner = getattr(held, "completion_stream", None) if theirs else None
    if inner is None or closable(inner):
        return inner
    read = [one for one in getattr(inner, "__dict__", {}).values() if isasyncgen(one)]
    return next((response for one in read for response in held_behind(one, _response)), None)


def _response(held: object) -> object:
    return held if type(held).__name__ == "Response" and closable(held) else None

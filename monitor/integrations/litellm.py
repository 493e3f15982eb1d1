"""LiteLLM (1.80 or newer): its completion stream, for a loop of your own.

    stream = completion(model="...", messages=[...])
    async with guard.watch(stream, adapter=LiteLLMAdapter) as watched:
        async for chunk in watched: ...

LiteLLM 1.106 needs `openai<3`, so it cannot be installed beside `agent-monitor[openai]`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from monitor.adapters.behind import closable, held_behind
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.errors import ConfigError, MissingExtra

try:
    import litellm
except ImportError:
    raise MissingExtra("litellm", "litellm") from None

__all__ = ["LiteLLMAdapter", "completion"]


async def completion(**options: Any) -> AsyncGenerator[Any]:
    """The chunks of `litellm.acompletion(stream=True, **options)`, opened by the first read.

    A generator, because the guard closes generators from the inside: `aclose()` of LiteLLM's own
    stream leaves the connections of some providers open. `stream_options` defaults to
    `{"include_usage": True}`, without which LiteLLM reports no usage.
    """
    if options.get("stream") is False:
        raise ConfigError("the guard watches streams: leave stream=False out")
    asked = {"stream_options": {"include_usage": True}} | options | {"stream": True}
    package: Any = litellm  # not installed where the package is type-checked
    stream: Any = await package.acompletion(**asked)
    try:
        async for chunk in stream:
            yield chunk
    finally:
        await stream.aclose()


class LiteLLMAdapter(OpenAIAdapter):
    """Reads LiteLLM's chunks, which have OpenAI's form for every provider."""

    readable = "chunk of a stream of LiteLLM"

    def responses(self, source: object) -> Sequence[Any]:
        """The SDK's stream inside LiteLLM's, where there is one that can be closed. Otherwise the
        stream is drained.
        """
        return held_behind(source, _inner)


def _inner(held: object) -> object:
    theirs = type(held).__module__.partition(".")[0] == "litellm"
    inner = getattr(held, "completion_stream", None) if theirs else None
    return inner if inner is not None and closable(inner) else None

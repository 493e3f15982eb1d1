"""LiteLLM: its completion stream in a loop of one's own."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import AsyncIterator
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it fetches a list when it is imported

import litellm

from bench.frameworks.base import OPENAI_WIRE, Ended, Framework
from monitor.errors import TerminateReason
from monitor.guard.guard import Guard
from monitor.integrations.litellm import LiteLLMAdapter, completion
from monitor.testing.local_server import LocalServer


@contextlib.asynccontextmanager
async def _client(server: LocalServer) -> AsyncIterator[str]:
    """LiteLLM keeps its clients by itself: what is kept here is the address."""
    litellm.suppress_debug_info = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of LiteLLM itself
        yield server.base_url


async def ask(base_url: str, prompt: str, guard: Guard | None) -> Ended:
    """One run."""
    options: dict[str, Any] = {
        "model": "openai/local",
        "messages": [{"role": "user", "content": prompt}],
        "api_base": base_url,
        "api_key": "local",
        "num_retries": 0,
    }
    ended = Ended("", 0)
    if guard is None:
        stream: Any = await litellm.acompletion(stream=True, stream_options={"include_usage": True}, **options)
        async for chunk in stream:
            _take(ended, chunk)
        return ended
    async with guard:
        async with guard.watch(completion(**options), adapter=LiteLLMAdapter) as watched:
            async for chunk in watched:
                _take(ended, chunk)
        stopped = watched.turn.stopped
        if stopped is None:
            guard.finish()
    if guard.outcome.reason is not TerminateReason.GOAL:
        ended.reason = guard.outcome.reason.value
    return ended


def _take(ended: Ended, chunk: Any) -> None:
    ended.items += 1
    ended.text += (chunk.choices[0].delta.content or "") if chunk.choices else ""


FRAMEWORK = Framework(
    "LiteLLM",
    packages=("litellm", "openai"),
    wire=OPENAI_WIRE,
    client=_client,
    ask=ask,
    transport="LiteLLM's own",
)

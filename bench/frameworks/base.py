"""What a row of a framework is made of, and which rows there are here."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import openai

import bench.frameworks
from bench._close_sdks import OPENAI_CHAT, Sdk
from monitor.guard.guard import Guard
from monitor.testing.local_server import LocalServer


@dataclass(slots=True)
class Ended:
    """How a run ended, as the framework's user sees it."""

    text: str
    items: int
    """What the framework handed on while it streamed."""
    reason: str | None = None
    """The guard's; `None`: the framework says that the run has ended well."""


@dataclass(frozen=True)
class Framework:
    """A framework, with its integration."""

    name: str
    packages: tuple[str, ...]
    """Distributions that must be installed. The results name their versions."""
    wire: Sdk
    """The provider's format that the framework speaks to its model in these rows."""
    client: Callable[[LocalServer], AbstractAsyncContextManager[Any]]
    """What is kept from run to run: a model, or a client of the provider."""
    ask: Callable[[Any, str, Guard | None], Coroutine[Any, Any, Ended]]
    """One streamed run with the given prompt, under a guard or without one. The block of the guard
    is inside. The guard's exception is caught here: it is `Ended.reason`.
    """
    transport: str = "httpx2"
    """What carries the requests, as the tables name it."""


def prompt_of(body: Any) -> str:
    """The prompt of a chat request: the first message of the user."""
    content = next(one["content"] for one in body["messages"] if one["role"] == "user")
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


OPENAI_WIRE = replace(OPENAI_CHAT, prompt=prompt_of)


@contextlib.asynccontextmanager
async def openai_client(server: LocalServer) -> AsyncIterator[openai.AsyncOpenAI]:
    """The SDK that several frameworks call OpenAI with."""
    async with openai.AsyncOpenAI(api_key="local", base_url=server.base_url, max_retries=0) as client:
        yield client


def installed(packages: tuple[str, ...]) -> dict[str, str] | None:
    """The versions. `None`: one of them is not installed."""
    try:
        return {name: version(name) for name in packages}
    except PackageNotFoundError:
        return None


def frameworks() -> dict[str, Framework | None]:
    """All rows by the names of their modules. `None`: the framework is not installed."""
    rows: dict[str, Framework | None] = {}
    for module in sorted(found.name for found in pkgutil.iter_modules(bench.frameworks.__path__)):
        if module == "base":
            continue
        try:
            rows[module] = importlib.import_module(f"bench.frameworks.{module}").FRAMEWORK
        except ImportError:
            rows[module] = None
    return rows

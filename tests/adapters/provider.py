"""What the contract of the providers knows of one of them: its SDK, its local server, its answers,
and what is expected of each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio

import monitor
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolResult
from monitor.core.turn import MessageBuilder
from monitor.guard import Watch
from monitor.messages import AssistantMessage, Message
from monitor.models import ErrorKind, Model, ModelRequest
from monitor.testing.local_server import LocalServer, Scripts
from monitor.testing.openai_steps import Event, Reply, Script

Failure: TypeAlias = tuple[Sequence[Any], ErrorKind] | tuple[Sequence[Any], ErrorKind, int | None, str | None]
"""An answer, the kind of failure that it is, and where it matters its status and its code."""


@dataclass(frozen=True, kw_only=True)
class Provider:
    """One wire format, through the real SDK against a local server."""

    name: str
    """The name that `monitor.model` takes before the colon."""
    extra: str
    """The extra that installs the SDK."""
    way: str = ""
    """One of several ways to stream; empty for the plain one."""

    server: Callable[[Scripts], LocalServer]
    module: Any
    """A module of the SDK, which is no client."""
    sdk: Callable[..., AbstractAsyncContextManager[Any]]
    """A client of the SDK for a server, on a transport, with a number of retries."""
    stream: Callable[[Any], Any]
    """An awaitable of the stream that a client opens."""
    impatient: Callable[[Any], Any]
    """The same with a timeout of the client's own, far below a second."""

    steps: Any
    """The module of its steps."""
    begin: Script = ()
    """The events that open a text."""
    text: Callable[[str], Event]
    turn: Callable[..., list[dict[str, Any]]]
    """A model turn: its text, and its calls."""
    overloaded: Reply
    own_call: Callable[[list[Any]], Any] | None = None
    """The SDK's own object of the call among the items of a stream. `None`: this way has none."""

    adapter: Callable[..., Any]
    model: Callable[..., Any]
    history: Callable[[Sequence[Message]], list[dict[str, Any]]]
    request: Callable[[ModelRequest], dict[str, Any]]
    calls: Callable[[list[dict[str, Any]]], list[str]]
    """The ids of the calls in a history as it is sent."""
    answers: Callable[[list[dict[str, Any]]], list[tuple[str, str]]]
    """The answers in a history as it is sent: the id of the call, and the text."""
    error: str = "{}"
    """How the text of an error is sent."""

    endings: list[tuple[Sequence[Any], monitor.TerminateReason]]
    """Every way a stream can end, and the reason of the run."""
    failures: list[Failure]
    delays: list[tuple[Reply, float | None]]
    """Refusals, and the seconds that they ask to wait."""
    contradictions: list[tuple[dict[str, Any], str]]
    """Options of a request that cannot be meant, and what the refusal says."""
    wrong_settings: list[tuple[dict[str, Any], str]]
    """Settings that the SDK does not take, and what the refusal says."""

    client_type: str
    """What is said to somebody who gives another client, as a pattern."""
    keys: tuple[str, ...]
    """The environment variables that may hold the key."""
    key_hint: str
    """What is said where there is no key, as a pattern."""
    key_header: tuple[str, str]
    """The header that carries the key `the-key`."""
    address: str
    """The environment variable that holds the address."""
    cleared: tuple[str, ...] = field(default=())
    """Further environment variables that would be heard."""

    @property
    def id(self) -> str:
        return f"{self.name}-{self.way}" if self.way else self.name

    @asynccontextmanager
    async def served(
        self, *scripts: Script, transport: str = "httpx2", retries: int = 0
    ) -> AsyncIterator[tuple[Any, LocalServer]]:
        """A client of the SDK, and the server that it speaks to."""
        with self.server(scripts) as server:
            async with self.sdk(server, transport, retries=retries) as client:
                yield client, server

    @asynccontextmanager
    async def modelled(self, *scripts: Script, transport: str = "httpx2") -> AsyncIterator[tuple[Model, LocalServer]]:
        """A model with a client of the SDK, and the server that it speaks to."""
        async with self.served(*scripts, transport=transport) as (client, server):
            yield monitor.model(f"{self.name}:local", client=client), server

    async def received(self, client: Any) -> list[Any]:
        """The items of a stream without a guard."""
        return [item async for item in await self.stream(client)]

    async def decoded(self, opening: Any) -> list[Chunk]:
        """The chunks that the adapter makes of a stream that is being opened."""
        adapter = self.adapter()
        chunks = [chunk async for item in await opening for chunk in adapter.decode(item)]
        return [*chunks, *adapter.finish()]

    async def read(
        self, watch: Watch[Any], server: LocalServer, number: int, act: Callable[[], object], *, answered: bool
    ) -> None:
        """Read a stream to its end, and call `act` once the stream waits: `server` has the request
        `number`, and if it is `answered`, its text has come.
        """
        adapter, texts = self.adapter(), anyio.Event()

        async def act_in_time() -> None:
            await anyio.to_thread.run_sync(server.wait_request, number)
            if answered:
                await texts.wait()
            await anyio.wait_all_tasks_blocked()
            act()

        async with anyio.create_task_group() as group:
            group.start_soon(act_in_time)
            async with watch as stream:
                async for item in stream:
                    if any(isinstance(chunk, TextDelta) for chunk in adapter.decode(item)):
                        texts.set()
            group.cancel_scope.cancel()


async def watched(source: Any, **options: Any) -> Watch[Any]:
    """The watch of a stream that was read to its end."""
    watch = monitor.watch(source, **options)
    async with watch as stream:
        async for _ in stream:
            pass
    return watch


async def called(model: Any, request: ModelRequest, **options: Any) -> Watch[Any]:
    """The watch of one call of a model."""
    return await watched(lambda: model.stream(request), **options)


async def told(model: Any, request: ModelRequest, *results: ToolResult, turn: int = 0) -> AssistantMessage:
    """A turn of a model as a supervisor puts it into the history."""
    adapter, reply = model.adapter(turn), MessageBuilder({"text": 0, "reasoning": 0})
    chunks = [chunk async for item in await model.stream(request) for chunk in adapter.decode(item)]
    for one in [*chunks, *adapter.finish()]:
        match one:
            case TextDelta():
                reply.add_text(one.text)
            case ReasoningDelta():
                reply.add_reasoning(one)
            case ToolCall():
                reply.add_call(one)
    return AssistantMessage(reply.parts(), results)

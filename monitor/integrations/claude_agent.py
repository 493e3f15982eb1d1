"""The Claude Agent SDK (0.2.150 or newer): the messages of a client as a stream that a guard
watches, and closes by an interruption.

    options = ClaudeAgentOptions(include_partial_messages=True)
    async with monitor.Guard() as guard, ClaudeSDKClient(options) as client:
        await client.query("...")
        async with watch(client, guard) as watched:
            async for message in watched: ...

The SDK carries out calls by itself, so one stream holds all turns of an answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Self

from monitor.adapters.anthropic.stream import AnthropicAdapter
from monitor.adapters.parts import JsonView, name_of
from monitor.chunks import Chunk, ToolResult
from monitor.errors import AdapterError, MissingExtra
from monitor.guard.guard import Guard
from monitor.guard.guard_streams import Watched
from monitor.integrations._guarded_requests import FrameworkAdapter

try:
    from claude_agent_sdk import ClaudeSDKClient, ResultMessage, ToolResultBlock, UserMessage
    from claude_agent_sdk.types import Message, StreamEvent
except ImportError:
    raise MissingExtra("claude-agent-sdk", "claude-agent") from None

__all__ = ["ClaudeAgentAdapter", "ClaudeMessages", "watch"]


def watch(client: ClaudeSDKClient, guard: Guard[Any]) -> Watched[Message]:
    """The answer to the query that was just sent to `client`, message by message, behind `guard`.

    The client needs `include_partial_messages=True`, or nothing is seen while it is written. A
    subagent's messages pass; a subagent writes in a process of its own, and the SDK shows no pieces
    of its text.
    """
    return guard.watch(ClaudeMessages(client), adapter=ClaudeAgentAdapter)


class ClaudeMessages(AsyncIterator["Message"]):
    """The messages up to the `ResultMessage`. `aclose` interrupts the client, which ends the answer
    at once, and reads on to its end, so that the client can be asked again.
    """

    def __init__(self, client: ClaudeSDKClient) -> None:
        self._client = client
        self._messages = client.receive_response()
        self._over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            message = await anext(self._messages)
        except BaseException as ended:
            self._over = self._over or isinstance(ended, StopAsyncIteration)
            raise
        self._over = isinstance(message, ResultMessage)
        return message

    async def aclose(self) -> None:
        if self._over:
            return
        self._over = True
        await self._client.interrupt()
        async for _ in self._client.receive_response():
            pass


class ClaudeAgentAdapter(FrameworkAdapter):
    """Reads the messages of the Claude Agent SDK: the events of the main agent, which have the form
    of Anthropic's service, and the results of its calls.
    """

    needs_finish = True
    drains = False  # an interruption ends the answer
    readable = "message of the Claude Agent SDK"

    def __init__(self, stream: int = 0) -> None:
        super().__init__(stream)
        self.turns = 1
        self.results: Sequence[ToolResult] = ()
        self._inner = AnthropicAdapter(stream)
        self._names: dict[str, str] = {}
        self._given: list[ToolResult] = []
        self._ended = False
        """Whether the message of the running turn is whole."""

    @property
    def gave(self) -> Sequence[str]:  # type: ignore[override] # it is never set
        """The kinds of blocks other than text, thinking and calls."""
        return self._inner.gave

    def finish(self) -> Sequence[Chunk]:
        return self._inner.finish()

    def _decode(self, item: object) -> Iterator[Chunk]:
        if not type(item).__module__.startswith("claude_agent_sdk"):
            raise AdapterError(f"expected a message of the Claude Agent SDK, not {name_of(item)}")
        if getattr(item, "parent_tool_use_id", None) is not None:
            return  # of a subagent
        match item:
            case StreamEvent(event=event):
                yield from self._event(event)
            case UserMessage(content=list() as blocks):
                self._given += [_result(block, self._names) for block in blocks if isinstance(block, ToolResultBlock)]
            case _:  # whole messages repeat the events; the others tell of the program's own state
                pass

    def _event(self, event: dict[str, Any]) -> Iterator[Chunk]:
        match event:
            case {"type": "message_start"} if self._ended:
                self.turns += 1
                self.results, self._given = tuple(self._given), []
                self._inner, self._ended = AnthropicAdapter(self._stream), False
            case {"type": "message_stop"}:
                self._ended = True
            case {"type": "content_block_start", "content_block": {"type": "tool_use", "id": id_, "name": name}}:
                self._names[id_] = name
        yield from self._inner.decode(JsonView(event))


def _result(block: ToolResultBlock, names: dict[str, str]) -> ToolResult:
    content = block.content
    if isinstance(content, list):
        content = "\n".join(str(one.get("text", "")) for one in content)
    return ToolResult(block.tool_use_id, names.get(block.tool_use_id, ""), content or "", bool(block.is_error))

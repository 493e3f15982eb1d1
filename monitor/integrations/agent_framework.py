"""Microsoft Agent Framework (agent-framework-core 1.20 or newer): chat middleware that passes each
response through a guard.

    async with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
        agent = Agent(client=client, tools=[...], middleware=[GuardMiddleware(guard)])
        result = await agent.run("...")
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from monitor.adapters.parts import PendingCall, name_of
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, UsageReport
from monitor.errors import AdapterError, MissingExtra
from monitor.guard.framework_guards import Answered, GuardSource, HistoryPart, ModelSaid, UserSaid
from monitor.integrations._guarded_requests import FrameworkAdapter, GuardedRequests, written
from monitor.outcome import StoppedByGuard

try:
    from agent_framework import (
        ChatContext,
        ChatMiddleware,
        ChatResponse,
        ChatResponseUpdate,
        Content,
        Message,
        MiddlewareFailure,
        ResponseStream,
    )
except ImportError:
    raise MissingExtra("agent-framework-core", "agent-framework") from None

__all__ = ["AgentFrameworkAdapter", "GuardMiddleware", "Stopped"]


class Stopped(StoppedByGuard, MiddlewareFailure):
    """The guard has ended the run of the agent.

    It is the framework's exception that no tool turns into an answer.
    """


class GuardMiddleware(ChatMiddleware):
    """Chat middleware that passes each response through a guard, for one run. Give it to each agent
    of the run.

    Every request streams, also in `run` without `stream=True`, which otherwise waits for whole
    responses: so a loop is cut while it is written. Raises `Stopped` when the guard ends the run,
    and the framework's own exception when the call failed.
    """

    def __init__(self, guard: GuardSource) -> None:
        self._requests = GuardedRequests(guard, Stopped)

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Call the model through the guard."""
        own = self._requests.next_request(
            _history(context.messages), key=context.session.session_id if context.session is not None else None
        )
        change = own.change
        if change.text is not None:
            context.messages = [*context.messages, Message("user", [change.text])]
        if context.options and (tools := context.options.get("tools")):
            offered = [tool for tool in tools if change.offers(_name_of_tool(tool))]
            context.options = {**context.options, "tools": offered}
        streams, context.stream = context.stream, True
        try:
            await call_next()
        finally:
            context.stream = streams
        stream: Any = context.result
        if not isinstance(stream, ResponseStream):  # other middleware has answered, without the model
            return

        async def whole(_: Sequence[ChatResponseUpdate]) -> ChatResponse[Any]:
            return await stream.get_final_response()

        events = own.watched(lambda: stream, AgentFrameworkAdapter)
        guarded = ResponseStream(events, finalizer=whole)
        context.result = guarded if streams else await guarded.get_final_response()


class AgentFrameworkAdapter(FrameworkAdapter):
    """Reads the updates of a chat client. Calls are complete when the stream ends."""

    readable = "update of a chat client of Agent Framework"

    def __init__(self, stream: int = 0) -> None:
        super().__init__(stream)
        self._calls: dict[str, PendingCall] = {}
        self._last: PendingCall | None = None

    def _decode(self, item: object) -> Iterator[Chunk]:
        if not isinstance(item, ChatResponseUpdate):
            raise AdapterError(f"expected an update of a chat client, not {name_of(item)}")
        for content in item.contents:
            yield from self._content(content)
        if item.finish_reason:
            self._word = str(item.finish_reason)

    def _content(self, content: Content) -> Iterator[Chunk]:
        match content.type:
            case "text":
                yield TextDelta(content.text or "")
            case "text_reasoning":
                yield ReasoningDelta(content.text or "")
            case "function_call":
                yield self._call(content).write(written(content.arguments))
            case "usage":
                yield _usage(content.usage_details or {})
            case kind:
                self._gives(kind)

    def _call(self, content: Content) -> PendingCall:
        """The call that a piece belongs to: of its id, or the one before it."""
        known = self._calls.get(content.call_id or "") or (None if content.name else self._last)
        if known is None:
            known = self._begin(content.call_id or None, content.name or "", content)
            self._calls[known.id] = known
        self._last = known
        return known


def _usage(counts: Mapping[str, Any]) -> UsageReport:
    return UsageReport(
        input_tokens=counts.get("input_token_count"),
        output_tokens=counts.get("output_token_count"),
        reasoning_tokens=counts.get("reasoning_output_token_count"),
        cached_tokens=counts.get("cache_read_input_token_count"),
        total_tokens=counts.get("total_token_count"),
    )


def _name_of_tool(tool: Any) -> str:
    """The name of a tool, or of a declaration as the provider reads it."""
    if isinstance(tool, Mapping):
        return str(tool.get("function", tool).get("name"))
    return str(getattr(tool, "name", tool))


def _history(messages: Sequence[Message]) -> Iterator[HistoryPart]:
    """The parts of the history, newest first."""
    for message in reversed(messages):
        if message.role == "assistant":
            yield ModelSaid(message.text, [one.call_id for one in message.contents if one.type == "function_call"])
        elif message.role == "user":
            yield UserSaid(message.text)
        for content in reversed(message.contents):
            if content.type == "function_result":
                yield Answered(content.call_id, content.result, is_error=content.exception is not None)

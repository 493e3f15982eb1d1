"""LangChain and LangGraph (langchain 1.0 or newer): middleware for `create_agent`, and a chat model
for any other graph or chain.

    async with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
        agent = create_agent(model, tools, middleware=[GuardMiddleware(guard)])
        state = await agent.ainvoke({"messages": [("user", "...")]})
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from typing import Any, Literal, TypeVar

from monitor.adapters.parts import PendingCall, name_of
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, UsageReport
from monitor.errors import AdapterError, ConfigError, MissingExtra
from monitor.guard.framework_guards import Answered, GuardSource, HistoryPart, ModelSaid, UserSaid
from monitor.integrations._guarded_requests import (
    FrameworkAdapter,
    GuardedRequests,
    check_exit_behavior,
    class_as,
    is_behind,
    last_words,
    place_above,
    reason_of,
    under_class,
)
from monitor.outcome import StoppedByGuard

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain_core.language_models import BaseChatModel
    from langchain_core.language_models.chat_models import agenerate_from_stream
    from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
    from langchain_core.outputs import ChatGenerationChunk, ChatResult
    from langgraph.errors import GraphBubbleUp
except ImportError:
    raise MissingExtra("langchain", "langchain") from None

__all__ = ["GuardMiddleware", "GuardedChatModel", "LangChainAdapter", "Stopped"]

ModelT = TypeVar("ModelT", bound=BaseChatModel)

_ASYNC = "the guard watches asynchronous streams: use ainvoke, astream or astream_events"


class Stopped(StoppedByGuard, GraphBubbleUp):
    """The guard has ended the run of the agent.

    It is one of LangGraph's exceptions that retries, fallbacks and error handlers let pass.
    """


def GuardedChatModel(wrapped: ModelT, guard: GuardSource) -> ModelT:  # noqa: N802 - it makes a model, as a class would
    """A copy of a chat model of LangChain whose responses a guard watches.

    Every request streams, also in `ainvoke`, which otherwise waits for whole responses: so a loop
    is cut while it is written. Raises `Stopped` when the guard ends the run, and the provider's own
    exception when the call failed. `invoke` and `stream` raise `ConfigError`.

    The copy is a model of the same class, with the same callbacks, cache, rate limiter and name.
    """
    return _guarded(wrapped, GuardedRequests(guard, Stopped))


def _guarded(model: ModelT, requests: GuardedRequests) -> ModelT:
    if is_behind(model.__pydantic_private__, requests.guard):
        return model
    return under_class(model, _guarded_class(type(model)), requests)


_CONVERT = "_convert_chunk_to_generation_chunk"
"""The method by which the models of `langchain_openai` read a chunk of a chat completion."""
_OF_WHOLE = ("id", "system_fingerprint", "usage")
_raw: ContextVar[dict[str, Any] | None] = ContextVar("langchain_raw_answer", default=None)
"""What the chunks of a chat completion say of the whole answer, where that was asked for."""


def _as_whole(result: ChatResult, raw: Mapping[str, Any]) -> ChatResult:
    """`result` with the metadata that a whole chat completion has, and that LangChain does not read
    from a stream.
    """
    said = {"id": raw.get("id"), "system_fingerprint": raw.get("system_fingerprint"), "token_usage": raw.get("usage")}
    for one in result.generations:
        one.message.response_metadata = {**said, "logprobs": None, **one.message.response_metadata}
        one.message.additional_kwargs = {"refusal": None, **one.message.additional_kwargs}
        known = {**(one.generation_info or {}), **one.message.response_metadata}
        named = {name: known.get(name) for name in ("model_provider", "model_name")}
        result.llm_output = {**said, **named, **(result.llm_output or {})}
    return result


@cache
def _guarded_class(base: Any) -> Any:
    """`base`, with the methods by which it calls its service behind a guard."""
    place = place_above(base)
    streams = base._astream is not BaseChatModel._astream or base._stream is not BaseChatModel._stream  # noqa: SLF001 - what it overrides

    async def _agenerate(
        self: Any,
        messages: list[BaseMessage],
        stop: Any = None,
        run_manager: Any = None,  # noqa: ARG001 - a whole answer has no callbacks for its pieces
        **options: Any,
    ) -> ChatResult:
        if options.get("stream_usage") is None and getattr(self, "stream_usage", True) is None:
            options["stream_usage"] = True  # a whole answer has its usage, and a stream only if it is asked for
        raw: dict[str, Any] = {}
        token = _raw.set(raw)
        try:
            result = await agenerate_from_stream(_astream(self, messages, stop, **options))
        finally:
            _raw.reset(token)
        return _as_whole(result, raw) if raw else result

    def _convert_chunk_to_generation_chunk(self: Any, chunk: dict[str, Any], *args: Any, **options: Any) -> Any:
        if (raw := _raw.get()) is not None:
            raw |= {name: value for name, value in chunk.items() if name in _OF_WHOLE and value is not None}
        return base._convert_chunk_to_generation_chunk(self, chunk, *args, **options)  # noqa: SLF001 - as below

    async def _astream(
        self: Any, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        requests: GuardedRequests = self.__pydantic_private__[place]
        own = requests.next_request(_history(messages))
        change = own.change
        if change.text is not None:
            messages = [*messages, HumanMessage(change.text)]
        if options.get("tools"):
            options["tools"] = [tool for tool in options["tools"] if change.offers(_name_of_tool(tool))]

        def opened() -> AsyncIterator[ChatGenerationChunk]:
            if streams:
                stream: AsyncIterator[ChatGenerationChunk] = base._astream(self, messages, stop, run_manager, **options)  # noqa: SLF001 - a model's own stream
                return stream
            return _whole(base, self, messages, stop, options)

        events = own.watched(opened, LangChainAdapter)
        try:
            async for chunk in events:
                yield chunk
        finally:
            await events.aclose()

    def refuse(*_: Any, **__: Any) -> Any:
        raise ConfigError(_ASYNC)

    made: dict[str, Any] = {
        "_agenerate": _agenerate,
        "_astream": _astream,
        "invoke": refuse,
        "stream": refuse,
        "generate": refuse,
    }
    if hasattr(base, _CONVERT):
        made[_CONVERT] = _convert_chunk_to_generation_chunk
    return class_as(base, base, made)


async def _whole(
    base: Any, model: Any, messages: list[BaseMessage], stop: Any, options: dict[str, Any]
) -> AsyncIterator[ChatGenerationChunk]:
    """The answer of a model that cannot stream, as one chunk."""
    result: ChatResult = await base._agenerate(model, messages, stop, None, **options)  # noqa: SLF001 - as above
    for one in result.generations[:1]:
        fields = {**one.message.model_dump(), "type": "AIMessageChunk"}
        calls: list[Any] = fields.get("tool_calls") or []
        fields["tool_call_chunks"] = [
            {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": index}
            for index, call in enumerate(calls)
        ]
        message = AIMessageChunk(**{name: value for name, value in fields.items() if name != "tool_calls"})
        yield ChatGenerationChunk(message=message, generation_info=one.generation_info)


class GuardMiddleware(AgentMiddleware):  # without parameters: langchain 1.0 has fewer
    """Middleware of `create_agent` that passes each response through a guard, for one run.

    `exit_behavior`: as in LangChain's own limits. With `end` the run ends without an exception: its
    last message has the partial text (without the copies of a loop), no calls, and the reason in
    `response_metadata["agent_monitor"]`. With `error` it raises `Stopped`. `name`: the middleware
    of a second guard needs another one.
    """

    def __init__(
        self,
        guard: GuardSource,
        *,
        exit_behavior: Literal["end", "error"] = "end",
        name: str = "GuardMiddleware",
    ) -> None:
        super().__init__()
        check_exit_behavior(exit_behavior)
        self._name = name
        self._requests = GuardedRequests(guard, Stopped)
        self._exit_behavior = exit_behavior

    @property
    def name(self) -> str:
        return self._name

    def wrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
        raise ConfigError(_ASYNC)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | AIMessage:
        """Call the model through the guard."""
        model = _guarded(request.model, self._requests)
        try:
            return await handler(request.override(model=model))
        except Stopped as stopped:
            if self._exit_behavior == "error":
                raise
            return _last_message(stopped)


def _last_message(stopped: Stopped) -> AIMessage:
    stop, turn = stopped.stop, stopped.turn
    words = last_words(stopped)
    usage = turn.usage if turn is not None else None
    return AIMessage(
        content=words,
        response_metadata={"finish_reason": stop.reason.value, "agent_monitor": reason_of(stopped)},
        usage_metadata=None
        if usage is None
        else {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
        },
    )


class LangChainAdapter(FrameworkAdapter):
    """Reads the chunks of a chat model. Calls are complete when the stream ends."""

    readable = "chunk of a chat model of LangChain"

    def __init__(self, stream: int = 0) -> None:
        super().__init__(stream)
        self._at: dict[object, PendingCall] = {}  # by index, or by id where there is no index
        self._counts: dict[str, int] = {}

    def plain_text(self, item: object) -> str | None:
        """The text of a chunk that is one piece of visible text and nothing else."""
        if not isinstance(item, ChatGenerationChunk) or not isinstance(item.message, AIMessageChunk):
            return None
        message, words = item.message, item.message.content
        if not words or not isinstance(words, str) or message.additional_kwargs or message.tool_call_chunks:
            return None
        if message.usage_metadata is not None or _finish_word(item) is not None:
            return None
        return words

    def _decode(self, item: object) -> Iterator[Chunk]:
        message = item.message if isinstance(item, ChatGenerationChunk) else item
        if not isinstance(message, AIMessageChunk):
            raise AdapterError(f"expected a chunk of a chat model, not {name_of(item)}")
        yield from self._content(message)
        for piece in message.tool_call_chunks:
            yield from self._call(piece)
        if message.usage_metadata is not None:
            yield self._usage(message.usage_metadata)
        word = _finish_word(item)
        if isinstance(word, str):
            self._word = word

    def _content(self, message: AIMessageChunk) -> Iterator[Chunk]:
        if isinstance(message.content, str) and not message.additional_kwargs:
            if message.content:
                yield TextDelta(message.content)
            return
        blocks: Sequence[Any] = message.content_blocks
        for block in blocks:
            match block:
                case {"type": "text", "text": words}:
                    yield TextDelta(words)
                case {"type": "reasoning", "reasoning": words}:
                    yield ReasoningDelta(words)
                case {"type": "tool_call_chunk" | "tool_call" | "invalid_tool_call" | "reasoning" | "text"}:
                    pass  # calls stand in `tool_call_chunks` as well
                case {"type": kind}:
                    self._gives(kind)

    def _call(self, piece: Mapping[str, Any]) -> Iterator[Chunk]:
        """A piece of a call. The first one has the name; `index` joins the others with it. Some
        services number every call 0, or no call: there a name with another id begins a call.
        """
        name, given, index = piece.get("name"), piece.get("id"), piece.get("index")
        known = self._at.get(given if index is None else index)
        if name and (known is None or given not in {None, known.given}):
            known = self._begin(given, name, piece)
            self._at[given if index is None else index] = known
        if known is None:
            raise AdapterError("a piece of a tool call came before its name")
        yield known.write(piece.get("args") or "")

    def _usage(self, usage: Any) -> UsageReport:
        """The totals so far: LangChain adds the counts of all chunks."""
        details_in, details_out = usage.get("input_token_details") or {}, usage.get("output_token_details") or {}
        for name, count in (
            ("input_tokens", usage.get("input_tokens")),
            ("output_tokens", usage.get("output_tokens")),
            ("total_tokens", usage.get("total_tokens")),
            ("cached_tokens", details_in.get("cache_read")),
            ("reasoning_tokens", details_out.get("reasoning")),
        ):
            if isinstance(count, int):
                self._counts[name] = self._counts.get(name, 0) + count
        return UsageReport(**self._counts)


def _finish_word(item: Any) -> object:
    """Why the model has stopped, if a chunk or a message says so."""
    message = item.message if isinstance(item, ChatGenerationChunk) else item
    metadata = {**message.response_metadata, **(getattr(item, "generation_info", None) or {})}
    return metadata.get("finish_reason") or metadata.get("stop_reason")


def _name_of_tool(tool: Any) -> str:
    """The name in a provider's declaration: OpenAI's has it under `function`."""
    holder = tool.get("function", tool) if isinstance(tool, Mapping) else tool
    name = holder.get("name") if isinstance(holder, Mapping) else getattr(holder, "name", None)
    return str(name)


def _history(messages: Sequence[BaseMessage]) -> Iterator[HistoryPart]:
    """The parts of the history, newest first."""
    for message in reversed(messages):
        match message:
            case AIMessage():
                yield ModelSaid(message.text, [call["id"] for call in message.tool_calls])
            case ToolMessage():
                is_error, name = message.status == "error", message.name or None
                yield Answered(message.tool_call_id, message.text, is_error=is_error, name=name)
            case HumanMessage():
                yield UserSaid(message.text)
            case _:
                pass

"""LangChain and LangGraph (langchain 1.0 or newer): middleware for `create_agent`, and a chat model
for any other graph or chain.

    async with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
        agent = create_agent(model, tools, middleware=[GuardMiddleware(guard)])
        state = await agent.ainvoke({"messages": [("user", "...")]})
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.adapters.parts import PendingCall, name_of
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, UsageReport
from monitor.errors import AdapterError, ConfigError, MissingExtra
from monitor.guard.framework_guards import Answered, GuardSource, HistoryPart, ModelSaid, UserSaid
from monitor.guard.streams.wait import PendingCancel
from monitor.integrations._guarded_requests import (
    FrameworkAdapter,
    GuardedRequest,
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


@cache
def _guarded_class(base: Any) -> Any:
    """`base`, with the methods by which it calls its service behind a guard."""
    place = place_above(base)
    streams = base._astream is not BaseChatModel._astream or base._stream is not BaseChatModel._stream  # noqa: SLF001 - what it overrides

    async def _agenerate(
        self: Any, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> ChatResult:
        own = _next(self.__pydantic_private__[place], messages, options)
        if hasattr(self, "root_async_client"):
            clients = _whole_answers(self.root_async_client, self.async_client, own)
            told: ChatResult = await base._agenerate(  # noqa: SLF001 - as below
                self.model_copy(update=clients), own.messages, stop, run_manager, **options
            )
            return told
        result = await agenerate_from_stream(read(self, own, stop, None, options))
        return own.whole or _without_numbers(result)

    async def _astream(
        self: Any, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        own = _next(self.__pydantic_private__[place], messages, options)
        async for chunk in read(self, own, stop, run_manager, options):
            yield chunk

    async def read(
        model: Any, own: _Asked, stop: Any, run_manager: Any, options: dict[str, Any]
    ) -> AsyncIterator[ChatGenerationChunk]:
        def opened() -> AsyncIterator[ChatGenerationChunk]:
            if streams:
                stream: AsyncIterator[ChatGenerationChunk] = base._astream(  # noqa: SLF001 - a model's own stream
                    model, own.messages, stop, run_manager, **options
                )
                return stream
            return _whole(base, model, own, stop, options)

        events = own.request.watched(opened, LangChainAdapter)
        pending = PendingCancel()
        try:
            async for chunk in events:
                # On Python 3.11 `asyncio.wait_for`, by which some models read, may swallow it.
                if (cancelled := pending.swallowed) is not None:
                    raise cancelled
                yield chunk
        finally:
            await events.aclose()

    def refuse(*_: Any, **__: Any) -> Any:
        raise ConfigError(_ASYNC)

    made = {"_agenerate": _agenerate, "_astream": _astream, "invoke": refuse, "stream": refuse, "generate": refuse}
    return class_as(base, base, made)


@dataclass(slots=True)
class _Asked:
    """A request of a model, as the guard lets it be made."""

    request: GuardedRequest
    messages: list[BaseMessage]
    whole: ChatResult | None = None
    """The answer of a model that cannot stream."""


def _next(requests: GuardedRequests, messages: list[BaseMessage], options: dict[str, Any]) -> _Asked:
    """The next request. Its tools stand in `options`, which are changed."""
    own = requests.next_request(_history(messages))
    if own.change.text is not None:
        messages = [*messages, HumanMessage(own.change.text)]
    if options.get("tools"):
        options["tools"] = [tool for tool in options["tools"] if own.change.offers(_name_of_tool(tool))]
    return _Asked(own, messages)


def _without_numbers(result: ChatResult) -> ChatResult:
    """`result` without the numbers of the pieces, which a whole answer does not have."""
    for one in result.generations:
        blocks: Sequence[Any] = one.message.content
        for block in blocks:
            if isinstance(block, dict):
                block.pop("index", None)
    return result


# --------------------------------------------------------------------------------------------------
# The models of `langchain_openai` make a result of the SDK's whole answer, each API in its own way.
# So they get a client whose whole answers are streams that the guard has watched.


def _whole_answers(root: Any, completions: Any, own: _Asked) -> dict[str, Any]:
    """The clients of a model, in the place of its own ones, for one request."""
    usage = {"stream_options": {"include_usage": True}}
    clients: dict[str, Any] = {"async_client": _Api(completions, own.request, _completion, usage)}
    if root is not None:
        chat = SimpleNamespace(completions=_Api(root.chat.completions, own.request, _completion, usage))
        responses = _Api(root.responses, own.request, _response, {})
        clients["root_async_client"] = SimpleNamespace(chat=chat, responses=responses)
    return clients


class _Api:
    """One API of the SDK's client."""

    def __init__(
        self, real: Any, request: GuardedRequest, whole_of: Callable[[Any], Any], always: Mapping[str, Any]
    ) -> None:
        """`whole_of`: the whole answer in the events of a stream. `always`: further parameters."""
        self._real = real
        self._request = request
        self._whole_of = whole_of
        self._always = always
        self.with_raw_response = SimpleNamespace(create=self._created, parse=self._parsed)

    async def create(self, **payload: Any) -> _Stream:
        """A stream of the SDK."""
        made = _Stream()

        async def opened() -> AsyncIterator[Any]:
            stream = await self._real.create(**payload)
            made.response = stream.response
            async for event in stream:
                yield event

        made.events = events = self._request.watched(opened, OpenAIAdapter)
        await events.begin()
        return made

    @asynccontextmanager
    async def stream(self, **payload: Any) -> AsyncGenerator[_Stream]:
        """A stream of the SDK, whose answer is read into the form that was asked for."""
        made = _Stream()

        async def opened() -> AsyncIterator[Any]:
            async with self._real.stream(**payload) as stream:
                async for event in stream:
                    yield event
                final = getattr(stream, "get_final_completion", None) or stream.get_final_response
                made.whole = _with_roles(await final())

        made.events = events = self._request.watched(opened, OpenAIAdapter)
        try:
            yield made
        finally:
            await events.aclose()

    async def _created(self, **payload: Any) -> _Stream:
        made = await self.create(**{**payload, "stream": True, **self._always})
        made.whole = self._whole_of([event async for event in made.events])
        return made

    async def _parsed(self, **payload: Any) -> _Stream:
        payload.pop("stream", None)
        async with self.stream(**payload, **self._always) as made:
            async for _ in made.events:
                pass
        return made


class _Stream:
    """A stream that the guard watches, and its whole answer when it has ended."""

    def __init__(self) -> None:
        self.events: Any = None
        self.response: Any = None
        self.whole: Any = None

    def __aiter__(self) -> AsyncIterator[Any]:
        return aiter(self.events)

    async def get_final_completion(self) -> Any:
        return self.whole

    def parse(self) -> Any:
        return self.whole

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the answer, which are not known of a stream that is read into a form."""
        return self.response.headers if self.response is not None else {}


def _completion(chunks: Sequence[Any]) -> Any:
    """The chat completion that came in `chunks`."""
    from openai.lib.streaming.chat import ChatCompletionStreamState  # noqa: PLC0415 - of `langchain_openai`
    from openai.types.chat import ChatCompletion  # noqa: PLC0415

    state = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(chunk)
    whole = _with_roles(state.get_final_completion()).model_dump(exclude_unset=True)
    for choice in whole["choices"]:
        choice["message"].pop("parsed", None)  # nobody has asked for it
    return ChatCompletion.model_validate(whole)


def _with_roles(whole: Any) -> Any:
    """A chat completion with the role in each message, which some services do not stream."""
    for choice in getattr(whole, "choices", ()):
        choice.message.role = "assistant"
    return whole


def _response(events: Sequence[Any]) -> Any:
    """The response at the end of the events. Some services leave `output` of it empty."""
    response = next(event.response for event in reversed(events) if hasattr(event, "response"))
    response.output = response.output or [one.item for one in events if one.type == "response.output_item.done"]
    return response


async def _whole(
    base: Any, model: Any, own: _Asked, stop: Any, options: dict[str, Any]
) -> AsyncIterator[ChatGenerationChunk]:
    """The answer of a model that cannot stream, as one chunk. It is kept in `own`."""
    result: ChatResult = await base._agenerate(model, own.messages, stop, None, **options)  # noqa: SLF001 - as above
    own.whole = result
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

"""LangChain and LangGraph (langchain 1.0 or newer): middleware for `create_agent`, and a chat model
for any other graph or chain.

    async with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
        agent = create_agent(model, tools, middleware=[GuardMiddleware(guard)])
        state = await agent.ainvoke({"messages": [("user", "...")]})
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from monitor.adapters.decoding import SdkAdapter, name_of
from monitor.adapters.openai.parts import PendingCall
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, TurnFinished, UsageReport
from monitor.errors import AdapterError, ConfigError, MissingExtra
from monitor.harness.guards.guard import Guard
from monitor.integrations._common.failures import classify
from monitor.integrations._common.guarded_requests import Answered, GuardedRequests
from monitor.integrations._common.stopped import check_exit_behavior, partial_text, reason_of
from monitor.models import ModelError
from monitor.outcome import StoppedByGuard
from monitor.reasons import REPETITION_WORDS, FinishReason

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain_core.language_models import BaseChatModel
    from langchain_core.language_models.chat_models import agenerate_from_stream
    from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
    from langchain_core.outputs import ChatGenerationChunk, ChatResult
    from langchain_core.runnables import Runnable, RunnableBinding
    from pydantic import Field, PrivateAttr
except ImportError:
    raise MissingExtra("langchain", "langchain") from None

__all__ = ["GuardMiddleware", "GuardedChatModel", "LangChainAdapter", "Stopped"]

_ASYNC = "the guard watches asynchronous streams: use ainvoke, astream or astream_events"


class Stopped(StoppedByGuard):
    """The guard has ended the run of the agent."""


class GuardedChatModel(BaseChatModel):
    """A chat model of LangChain whose responses a guard watches, for one run.

    Every request streams, also in `ainvoke`, which otherwise waits for whole responses: so a loop
    is cut while it is written. Raises `Stopped` when the guard ends the run, and the provider's own
    exception when the call failed. `invoke` and `stream` raise `ConfigError`.
    """

    wrapped: BaseChatModel
    guard: Any = Field(exclude=True, repr=False)
    cache: Any = False  # a response from a cache is no model call
    _requests: GuardedRequests = PrivateAttr()

    def __init__(
        self, wrapped: BaseChatModel, guard: Guard, *, between: GuardedRequests | None = None, **options: Any
    ) -> None:
        """`between`: the state of the run, shared with other wrappers of the same run."""
        fields: dict[str, Any] = {"wrapped": wrapped, "guard": guard, "profile": wrapped.profile}
        super().__init__(**fields, **options)
        self._requests = between or GuardedRequests(guard, Stopped)

    @property
    def _llm_type(self) -> str:
        return f"guarded-{self.wrapped._llm_type}"  # noqa: SLF001 - the name that LangChain asks of every model

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return self.wrapped._get_ls_params(stop=stop, **kwargs)  # noqa: SLF001 - as above, for traces

    def bind_tools(self, tools: Any, **options: Any) -> Runnable[Any, AIMessage]:
        """The tools in the form of the wrapped model's provider."""
        bound = self.wrapped.bind_tools(tools, **options)
        if isinstance(bound, RunnableBinding):
            return self.bind(**bound.kwargs)
        if isinstance(bound, BaseChatModel):
            return type(self)(bound, self.guard, between=self._requests)
        raise ConfigError(f"cannot guard {name_of(self.wrapped)}: its bind_tools returns {name_of(bound)}")

    def _generate(self, *args: Any, **options: Any) -> ChatResult:
        raise ConfigError(_ASYNC)

    async def _agenerate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **options: Any
    ) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages, stop, **options))

    async def _astream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        change = self._requests.next_request(_results(messages))
        if change.text is not None:
            messages = [*messages, HumanMessage(change.text)]
        if options.get("tools"):
            options["tools"] = [tool for tool in options["tools"] if change.offers(_name_of_tool(tool))]

        def opened() -> AsyncIterator[ChatGenerationChunk]:
            return self.wrapped._astream(messages, stop, run_manager, **options)  # noqa: SLF001 - a model's own stream

        events = self._requests.watched(opened, LangChainAdapter)
        try:
            async for chunk in events:
                yield chunk
        finally:
            await events.aclose()


class GuardMiddleware(AgentMiddleware):  # without parameters: langchain 1.0 has fewer
    """Middleware of `create_agent` that passes each response through a guard, for one run.

    `exit_behavior`: as in LangChain's own limits. With `end` the run ends without an exception: its
    last message has the partial text (without the copies of a loop), no calls, and the reason in
    `response_metadata["agent_monitor"]`. With `error` it raises `Stopped`.
    """

    def __init__(self, guard: Guard, *, exit_behavior: Literal["end", "error"] = "end") -> None:
        super().__init__()
        check_exit_behavior(exit_behavior)
        self._guard = guard
        self._requests = GuardedRequests(guard, Stopped)
        self._exit_behavior = exit_behavior

    def wrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
        raise ConfigError(_ASYNC)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | AIMessage:
        """Call the model through the guard."""
        model = GuardedChatModel(request.model, self._guard, between=self._requests)
        try:
            return await handler(request.override(model=model))
        except Stopped as stopped:
            if self._exit_behavior == "error":
                raise
            return _last_message(stopped)


def _last_message(stopped: Stopped) -> AIMessage:
    stop, turn = stopped.stop, stopped.turn
    words = partial_text(stopped)
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


_FINISH = {
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.BLOCKED,
    "safety": FinishReason.BLOCKED,
    "refusal": FinishReason.BLOCKED,
    "malformed_function_call": FinishReason.MALFORMED,
    **dict.fromkeys(REPETITION_WORDS, FinishReason.REPETITION),
}
"""Finish reasons in lower case. Every other one means that the model was done."""


class LangChainAdapter(SdkAdapter):
    """Reads the chunks of a chat model. Calls are complete when the stream ends."""

    needs_finish = False  # each provider's package names it in its own way, and some do not
    readable = "chunk of a chat model of LangChain"

    def __init__(self, stream: int = 0) -> None:
        self._stream = stream
        self._calls: list[PendingCall] = []
        self._at: dict[object, PendingCall] = {}  # by index, or by id where there is no index
        self._counts: dict[str, int] = {}
        self._kinds: list[str] = []
        self._word: str | None = None

    @property
    def gave(self) -> Sequence[str]:  # type: ignore[override] # it is never set
        """The kinds of blocks other than text, thinking and calls."""
        return self._kinds

    def finish(self) -> Sequence[Chunk]:
        """The calls, and the finish reason if there was one."""
        word = self._word
        chunks: list[Chunk] = [call.ended(cut_off=False) for call in self._calls]
        if word is not None:
            chunks.append(TurnFinished(_FINISH.get(word.lower(), FinishReason.DONE), word))
        return chunks

    def classify(self, error: BaseException) -> ModelError:
        return classify(error)

    def _decode(self, item: object) -> Iterator[Chunk]:
        message = item.message if isinstance(item, ChatGenerationChunk) else item
        if not isinstance(message, AIMessageChunk):
            raise AdapterError(f"expected a chunk of a chat model, not {name_of(item)}")
        yield from self._content(message)
        for piece in message.tool_call_chunks:
            yield from self._call(piece)
        if message.usage_metadata is not None:
            yield self._usage(message.usage_metadata)
        metadata = {**message.response_metadata, **(getattr(item, "generation_info", None) or {})}
        word = metadata.get("finish_reason") or metadata.get("stop_reason")
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
                case {"type": kind} if kind not in self._kinds:
                    self._kinds.append(kind)

    def _call(self, piece: Mapping[str, Any]) -> Iterator[Chunk]:
        """A piece of a call. The first one has the name; `index` joins the others with it. Some
        services number every call 0, or no call: there a name with another id begins a call.
        """
        name, given, index = piece.get("name"), piece.get("id"), piece.get("index")
        known = self._at.get(given if index is None else index)
        if name and (known is None or given not in {None, known.given}):
            known = PendingCall(given or f"call_{self._stream}_{len(self._calls)}", name, piece, given=given)
            self._calls.append(known)
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


def _name_of_tool(tool: Any) -> str:
    """The name in a provider's declaration: OpenAI's has it under `function`."""
    holder = tool.get("function", tool) if isinstance(tool, Mapping) else tool
    name = holder.get("name") if isinstance(holder, Mapping) else getattr(holder, "name", None)
    return str(name)


def _results(messages: Sequence[BaseMessage]) -> Iterator[Answered]:
    """The tool results after the last response."""
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            return
        if isinstance(message, ToolMessage):
            yield Answered(message.tool_call_id, message.text, is_error=message.status == "error")

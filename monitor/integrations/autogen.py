"""AutoGen (autogen-agentchat 0.7 or newer): a model client that passes each response through a
guard, and a termination condition that ends a team with the guard's reason.

    async with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
        client = GuardedClient(OpenAIChatCompletionClient(model="..."), guard)
        agent = AssistantAgent("one", client, tools=[...])
        team = RoundRobinGroupChat([agent], termination_condition=GuardTermination(client))
        result = await team.run(task="...")
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Literal

from monitor._util.argument_checks import signature_of
from monitor.adapters.parts import arguments_of, name_of
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, TurnFinished, UsageReport
from monitor.errors import AdapterError, ConfigError, MissingExtra, SourceFailed
from monitor.guard.framework_guards import (
    Answered,
    GuardSource,
    HistoryPart,
    ModelSaid,
    UserSaid,
    guard_here,
)
from monitor.integrations._guarded_requests import FrameworkAdapter, GuardedRequests, StandIn, last_words
from monitor.outcome import StoppedByGuard
from monitor.verdicts import Stop
from monitor.wires.fields import finish_reason_of

try:
    from autogen_agentchat.base import TerminatedException, TerminationCondition
    from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, StopMessage, ToolCallExecutionEvent
    from autogen_core import CancellationToken, FunctionCall
    from autogen_core.models import (
        AssistantMessage,
        ChatCompletionClient,
        CreateResult,
        FunctionExecutionResult,
        FunctionExecutionResultMessage,
        LLMMessage,
        RequestUsage,
        UserMessage,
    )
    from autogen_core.tools import Tool, ToolSchema
    from pydantic import BaseModel
except ImportError:
    raise MissingExtra("autogen-agentchat", "autogen") from None

__all__ = ["AutoGenAdapter", "GuardTermination", "GuardedClient", "Stopped"]

_SOURCE = "agent-monitor"


class Stopped(StoppedByGuard):
    """The guard has ended the run of the team."""


class GuardedClient(StandIn, ChatCompletionClient, forwards=ChatCompletionClient):
    """A model client of AutoGen whose responses a guard watches, for one run.

    Every request streams, also `create`, which otherwise waits for whole responses: so a loop is
    cut while it is written. When the guard ends the run, a client without a `GuardTermination`
    raises `Stopped`. With one, the last answer is the partial text, and the condition ends the
    team. If the call failed, the provider's own exception is raised.
    """

    wrapped: ChatCompletionClient

    def __init__(
        self, wrapped: ChatCompletionClient, guard: GuardSource, *, _requests: GuardedRequests | None = None
    ) -> None:
        wrapped = self._without(wrapped, guard)
        self._guard = guard
        self._requests = _requests or GuardedRequests(guard, Stopped)
        self._in_team = False
        self._asks_usage = "include_usage" in signature_of(wrapped.create_stream).parameters
        self.wrapped = wrapped

    def also(self, wrapped: ChatCompletionClient) -> GuardedClient:
        """Another model in the same run, for another agent of the team."""
        other = GuardedClient(wrapped, self._guard, _requests=self._requests)
        other._in_team = self._in_team
        return other

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: Tool | Literal["auto", "required", "none"] = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        """The whole response, read as a stream."""
        result: CreateResult | None = None
        async for item in self.create_stream(
            messages,
            tools=tools,
            tool_choice=tool_choice,
            json_output=json_output,
            extra_create_args=extra_create_args,
            cancellation_token=cancellation_token,
        ):
            if isinstance(item, CreateResult):
                result = item
        if result is None:
            raise RuntimeError("the stream of the model client ended without a result")
        return result

    async def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: Tool | Literal["auto", "required", "none"] = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> AsyncGenerator[str | CreateResult, None]:
        """The response as a stream that the guard watches."""
        try:
            own = self._requests.next_request(_history(messages))
        except Stopped as stopped:
            yield self._last_result(stopped, json_output)
            return
        change = own.change
        if change.text is not None:
            messages = [*messages, UserMessage(content=change.text, source=_SOURCE)]
        options: dict[str, Any] = {
            "tools": [tool for tool in tools if change.offers(_name_of_tool(tool))],
            "tool_choice": tool_choice,
            "json_output": json_output,
            "extra_create_args": extra_create_args or {},
            "cancellation_token": cancellation_token,
        }
        if self._asks_usage and "stream_options" not in options["extra_create_args"]:
            options["include_usage"] = True  # else the client reports 0 tokens

        def opened() -> AsyncIterator[str | CreateResult]:
            return self.wrapped.create_stream(messages, **options)

        events = own.watched(opened, AutoGenAdapter)
        try:
            async for item in events:
                yield item
        except Stopped as stopped:
            yield self._last_result(stopped, json_output)
        except SourceFailed as failed:
            cancelled = cancellation_token is not None and cancellation_token.is_cancelled()
            if cancelled and failed.__cause__ is not None:
                raise failed.__cause__ from None  # as the client raises it
            raise
        finally:
            await events.aclose()

    def _last_result(self, stopped: Stopped, json_output: object) -> CreateResult:
        """The result that an agent of the team gets when the guard has ended the run. Half a text
        is no JSON, so an agent with a declared output gets the exception.
        """
        if not self._in_team or isinstance(json_output, type):
            raise stopped
        turn = stopped.turn
        usage = turn.usage if turn is not None else None
        return CreateResult(
            content=last_words(stopped),
            finish_reason="unknown",
            usage=RequestUsage(usage.input_tokens or 0, usage.output_tokens or 0) if usage else RequestUsage(0, 0),
            cached=False,
        )

    def join_team(self) -> None:
        """A condition ends the team when the guard has ended the run. Called by the condition."""
        self._in_team = True

    @property
    def stop(self) -> Stop | None:
        """Why the guard has ended the run that goes on here. `None`: it has not."""
        return guard_here(self._guard).stop

    def take(self, results: Sequence[FunctionExecutionResult]) -> None:
        """Pass on results that the agent shows before its next request. Called by the condition."""
        self._requests.take(map(_answered, results))

    async def close(self) -> None:
        await self.wrapped.close()

    def actual_usage(self) -> RequestUsage:
        return self.wrapped.actual_usage()

    def total_usage(self) -> RequestUsage:
        return self.wrapped.total_usage()

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        return self.wrapped.count_tokens(messages, tools=tools)

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        return self.wrapped.remaining_tokens(messages, tools=tools)

    @property
    def capabilities(self) -> Any:
        return self.wrapped.capabilities

    @property
    def model_info(self) -> Any:
        return self.wrapped.model_info


class GuardTermination(TerminationCondition):
    """Ends a team when the guard has ended the run. `TaskResult.stop_reason` is then the reason and
    its detail, and `stop` has the evidence too.

    `client`: the guarded client of the team's agents; made with `also`, if there are several. The
    condition can be combined with AutoGen's own.
    """

    def __init__(self, client: GuardedClient, *others: GuardedClient) -> None:
        if not all(isinstance(one, GuardedClient) for one in (client, *others)):
            raise ConfigError("GuardTermination takes the GuardedClient of the team's agents")
        self._client = client
        self.stop: Stop | None = None
        """Why the guard has ended the run. `None`: it has not."""
        self._asked = self._told = False
        for one in (client, *others):
            one.join_team()

    @property
    def terminated(self) -> bool:
        return self._told

    async def __call__(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> StopMessage | None:
        if self._told:
            raise TerminatedException("Termination condition has already been reached")
        for message in messages:
            if isinstance(message, ToolCallExecutionEvent):
                self._client.take(message.content)
        self._asked = True
        self.stop = self._client.stop
        if self.stop is None:
            return None
        self._told = True
        return StopMessage(content=str(Stopped(self.stop)), source=_SOURCE)

    async def reset(self) -> None:
        """The team may be run again. A guard that has ended ends that run too.

        A graph of agents whose last nodes were ended resets its conditions without asking them. It
        raises `Stopped` then, which AutoGen passes on as a `RuntimeError` with the reason.
        """
        asked, told = self._asked, self._told
        self._asked = self._told = False
        if asked and not told and (stop := self._client.stop) is not None:
            self.stop = stop
            raise Stopped(stop)


_THINK, _THOUGHT = "<think>", "</think>"


class AutoGenAdapter(FrameworkAdapter):
    """Reads the stream of a model client: pieces of text, then one `CreateResult`.

    AutoGen writes thinking into the text, between two tags. It gives a call only when the call is
    complete.
    """

    readable = "piece of the stream of a model client of AutoGen"

    def __init__(self, stream: int = 0) -> None:
        super().__init__(stream)
        self._said = False
        self._thinks = False

    def plain_text(self, item: object) -> str | None:
        """A piece of text, unless it may hold one of the tags."""
        return item if type(item) is str and item and self._said and not self._thinks else None

    def _decode(self, item: object) -> Iterator[Chunk]:
        match item:
            case str():
                yield from self._piece(item)
            case CreateResult():
                yield from self._result(item)
            case _:
                raise AdapterError(f"expected a str or a CreateResult of AutoGen, not {name_of(item)}")

    def _piece(self, words: str) -> Iterator[Chunk]:
        if not self._said and words.startswith(_THINK):
            self._thinks, words = True, words.removeprefix(_THINK)
        self._said = True
        if self._thinks:
            thought, end, words = words.partition(_THOUGHT)
            self._thinks = not end
            if thought:
                yield ReasoningDelta(thought)
        if words:
            yield TextDelta(words)

    def _result(self, result: CreateResult) -> Iterator[Chunk]:
        content = result.content
        if isinstance(content, str):
            if content and not self._said:
                yield TextDelta(content)
        else:
            for number, call in enumerate(content):
                yield self._call(call, number)
        usage = result.usage
        if usage.prompt_tokens or usage.completion_tokens:
            yield UsageReport(input_tokens=usage.prompt_tokens, output_tokens=usage.completion_tokens)
        yield TurnFinished(finish_reason_of(result.finish_reason), result.finish_reason)

    def _call(self, call: FunctionCall, number: int) -> ToolCall:
        return ToolCall(call.id or f"call_{self._stream}_{number}", call.name, arguments_of(call.arguments), call)


def _name_of_tool(tool: Tool | ToolSchema) -> str:
    return tool.name if isinstance(tool, Tool) else tool["name"]


def _answered(result: FunctionExecutionResult) -> Answered:
    return Answered(result.call_id, result.content, is_error=bool(result.is_error), name=result.name)


def _history(messages: Sequence[LLMMessage]) -> Iterator[HistoryPart]:
    """The parts of the history, newest first. A message of another agent is not the user's."""
    for message in reversed(messages):
        match message:
            case AssistantMessage(content=str() as words):
                yield ModelSaid(words)
            case AssistantMessage(content=calls):
                yield ModelSaid(calls=[call.id for call in calls if not isinstance(call, str)])
            case FunctionExecutionResultMessage():
                yield from map(_answered, reversed(message.content))
            case UserMessage(content=content, source="user"):
                yield UserSaid("\n".join(one for one in [content, *content] if isinstance(one, str)))
            case _:
                pass

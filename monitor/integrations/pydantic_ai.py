"""Pydantic AI (2.60 or newer): a model that passes each response through a guard.

async with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
result = await agent.run("...", model=GuardedModel(agent.model, guard))
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from monitor.adapters.adapter import responses_behind
from monitor.adapters.parts import arguments_of, name_of
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, UsageReport
from monitor.errors import AdapterError, MissingExtra
from monitor.guard.framework_guards import Answered, GuardSource, HistoryPart, ModelSaid, UserSaid
from monitor.integrations._guarded_requests import (
    FrameworkAdapter,
    GuardedEvents,
    GuardedRequests,
    StandIn,
    must_have,
    written,
)
from monitor.outcome import StoppedByGuard

try:
    from pydantic_ai import messages as said
    from pydantic_ai.exceptions import AgentRunError
    from pydantic_ai.models import KnownModelName, Model, ModelRequestParameters, StreamedResponse
    from pydantic_ai.models.wrapper import WrapperModel
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import RunContext
except ImportError:
    raise MissingExtra("pydantic-ai-slim", "pydantic-ai") from None

try:
    from pydantic_ai._run_context import get_current_run_context
except ImportError:  # of another version, and only a name depends on it

    def get_current_run_context() -> RunContext[Any] | None:
        return None


__all__ = ["GuardedModel", "PydanticAIAdapter", "Stopped"]


class Stopped(StoppedByGuard, AgentRunError):
    """The guard has ended the run. `turn.text` is the partial answer; `capture_run_messages` of
    Pydantic AI keeps the messages before it.
    """

    def __init__(self, stop: Any, turn: Any = None) -> None:
        StoppedByGuard.__init__(self, stop, turn)
        self.message = self.args[0]


class GuardedModel(StandIn, WrapperModel, forwards=Model):
    """A model of Pydantic AI whose responses a guard watches, for one run of one agent.

    Every request streams, also in `agent.run`, which otherwise waits for whole responses: so a loop
    is cut while it is written. The model must be able to stream. Raises `Stopped` when the guard
    ends the run, and the provider's own exception when the call failed.
    """

    def __init__(self, wrapped: Model | KnownModelName | str, guard: GuardSource) -> None:
        self._requests = GuardedRequests(guard, Stopped)
        super().__init__(self._without(wrapped, guard))

    async def request(
        self,
        messages: list[said.ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> said.ModelResponse:
        """The whole response, read as a stream."""
        source, events = self._watched(messages, model_settings, model_request_parameters, None)
        source.may_be_whole = True
        try:
            await events.begin()
            if source.response is not None:
                source.response._event_iterator = events  # noqa: SLF001 - as in `request_stream`
                async for _ in source.response:
                    pass
                return source.response.get()
            async for _ in events:
                pass
        finally:
            await events.aclose()
        assert source.whole is not None  # noqa: S101 - the guard raises if it has ended before
        return source.whole

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[said.ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """The response as a stream. It ends with an exception if the guard ends the run."""
        source, events = self._watched(messages, model_settings, model_request_parameters, run_context)
        try:
            await events.begin()
            response = source.response
            assert response is not None  # noqa: S101 - `begin` raises if nothing was opened
            response._event_iterator = events  # noqa: SLF001 - `StreamedResponse` has no public place for it
            yield response
        finally:
            await events.aclose()

    def _watched(
        self,
        messages: list[said.ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None,
    ) -> tuple[_StreamSource, GuardedEvents[said.ModelResponseStreamEvent]]:
        run = getattr(messages[-1], "run_id", None) if messages else None
        own = self._requests.next_request(_history(messages), key=run, name=_name_of_agent(), is_one_task=True)
        change = own.change
        if change.text is not None:
            messages = [*messages, said.ModelRequest(parts=[said.UserPromptPart(change.text)])]
        parameters = replace(
            model_request_parameters,
            function_tools=[one for one in model_request_parameters.function_tools if change.offers(one.name)],
        )
        source = _StreamSource(self.wrapped, (messages, model_settings, parameters, run_context))
        return source, own.watched(source.events, source.adapter)


class _StreamSource:
    """The framework's own stream. The guard opens, reads and closes it."""

    def __init__(self, model: Model, request: tuple[Any, ...]) -> None:
        self._model = model
        self._request = request
        self.response: StreamedResponse | None = None
        self.may_be_whole = False
        """A whole response is wanted, so a model that cannot stream may give one."""
        self.whole: said.ModelResponse | None = None
        """The response of a model that cannot stream."""

    async def events(self) -> AsyncGenerator[said.ModelResponseStreamEvent]:
        """The events, from a generator: the guard looks behind a generator for what is open."""
        try:
            async with self._model.request_stream(*self._request) as self.response:
                must_have(self.response, "_event_iterator", "pydantic-ai-slim")
                async for event in self.response:
                    yield event
        except (AssertionError, NotImplementedError):  # it cannot stream, as a `FunctionModel` without a stream
            if self.response is not None or not self.may_be_whole:
                raise
            self.whole = whole = await self._model.request(*self._request[:3])
            for index, part in enumerate(whole.parts):
                yield said.PartStartEvent(index=index, part=part)
                yield said.PartEndEvent(index=index, part=part)

    def adapter(self, stream: int) -> PydanticAIAdapter:
        return PydanticAIAdapter(stream, self.response or self.whole)


class PydanticAIAdapter(FrameworkAdapter):
    """Reads the events of a `StreamedResponse`. `response`: it has the usage and the finish
    reason.
    """

    readable = "event of a stream of Pydantic AI"

    def __init__(self, stream: int = 0, response: StreamedResponse | said.ModelResponse | None = None) -> None:
        super().__init__(stream)
        self._response = response
        self._calls: dict[int, tuple[str, str]] = {}
        self._reported: UsageReport | None = None

    def plain_text(self, item: object) -> str | None:
        """The text of an event that is one piece of visible text."""
        match item:
            case said.PartDeltaEvent(delta=said.TextPartDelta(content_delta=words)) if words:
                return words
            case _:
                return None

    def finish(self) -> Sequence[Chunk]:
        """Usage and finish reason, which stand in the response and in no event."""
        self._word = self._response.finish_reason if self._response is not None else None
        return [*self._usage(), *super().finish()]

    def responses(self, source: object) -> Sequence[Any]:
        """The SDK's open responses, behind the stream that the framework's response has in one of
        its attributes. Only closing these ends the connection of google-genai.
        """
        held = [*vars(self._response).values()] if self._response is not None else []
        held += [getattr(one, "source", None) for one in held]  # a stream that can be peeked into
        return [found for one in held if inspect.isasyncgen(one) for found in responses_behind(one, None)]

    def _decode(self, item: object) -> Iterator[Chunk]:
        match item:
            case said.PartDeltaEvent(index=index, delta=delta):
                yield from self._delta(index, delta)
            case said.PartStartEvent(index=index, part=part):
                yield from self._usage()
                yield from self._start(index, part)
            case said.PartEndEvent(part=said.ToolCallPart() as part):
                yield ToolCall(part.tool_call_id, part.tool_name, _arguments(part.args), part)
            case said.PartEndEvent() | said.FinalResultEvent():
                pass
            case _:
                raise AdapterError(f"expected an event of a model response, not {name_of(item)}")

    def _start(self, index: int, part: object) -> Iterator[Chunk]:
        match part:
            case said.TextPart(content=words):
                yield TextDelta(words)
            case said.ThinkingPart(content=words):
                yield ReasoningDelta(words)
            case said.ToolCallPart():
                self._calls[index] = part.tool_call_id, part.tool_name
                yield ToolCallDelta(part.tool_call_id, part.tool_name, written(part.args))
            case _:
                self._gives(str(getattr(part, "part_kind", name_of(part))))

    def _delta(self, index: int, delta: object) -> Iterator[Chunk]:
        match delta:
            case said.TextPartDelta(content_delta=words):
                yield TextDelta(words)
            case said.ThinkingPartDelta(content_delta=words):
                if words:
                    yield ReasoningDelta(words)
            case said.ToolCallPartDelta(args_delta=piece) if index in self._calls:
                yield ToolCallDelta(self._calls[index][0], None, written(piece))
            case _:  # of a part that the provider carries out by itself
                pass

    def _usage(self) -> Iterator[Chunk]:
        if self._response is None:
            return
        usage = self._response.usage
        report = UsageReport(
            input_tokens=usage.input_tokens or None,
            output_tokens=usage.output_tokens or None,
            cached_tokens=usage.cache_read_tokens or None,
            reasoning_tokens=usage.details.get("reasoning_tokens"),
        )
        if report != self._reported and (report.input_tokens or report.output_tokens):
            self._reported = report
            yield report


def _arguments(args: Any) -> Any:
    return arguments_of(args) if isinstance(args, str) else args or {}


def _name_of_agent() -> str:
    """The name of the agent that runs, where the framework says it."""
    context = get_current_run_context()
    return str(getattr(getattr(context, "agent", None), "name", None) or "")


def _history(messages: Sequence[said.ModelMessage]) -> Iterator[HistoryPart]:
    """The parts of the history, newest first."""
    for message in reversed(messages):
        if isinstance(message, said.ModelResponse):
            yield ModelSaid(message.text or "", [call.tool_call_id for call in message.tool_calls])
            continue
        for part in reversed(message.parts):
            match part:
                case said.UserPromptPart(content=words):
                    yield UserSaid("\n".join(one for one in [words, *words] if isinstance(one, str)))
                case said.ToolReturnPart():
                    yield Answered(
                        part.tool_call_id,
                        part.model_response_str(wrap_if_error=False),
                        is_error=part.outcome in _ERRORS,
                    )
                case _ if part.part_kind == "retry-prompt" and part.tool_name is not None:
                    yield Answered(part.tool_call_id, part.model_response(), is_error=True)


_ERRORS = frozenset({"failed", "denied", "retried"})
"""The outcomes of a tool call that are errors. `interrupted` is the framework's own doing."""

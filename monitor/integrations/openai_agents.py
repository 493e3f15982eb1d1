"""The OpenAI Agents SDK (0.20 or newer): a model that passes each response through a guard.

async with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
config = RunConfig(model=GuardedModel(model, guard))
result = await Runner.run(agent, "...", run_config=config)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.errors import MissingExtra
from monitor.guard.framework_guards import Answered, GuardSource, HistoryPart, ModelSaid, UserSaid
from monitor.integrations._guarded_requests import GuardedRequests, StandIn, classify
from monitor.models import ModelError
from monitor.outcome import StoppedByGuard

try:
    from agents import AgentsException, Handoff, ModelBehaviorError, Tool, Usage
    from agents.items import ModelResponse, TResponseInputItem, TResponseStreamEvent
    from agents.models.fake_id import FAKE_RESPONSES_ID
    from agents.models.interface import Model, ModelProvider
    from agents.models.multi_provider import MultiProvider
    from openai.types.responses import Response, ResponseCompletedEvent, ResponseOutputItemDoneEvent
except ImportError:
    raise MissingExtra("openai-agents", "openai-agents") from None

try:
    from agents.models._run_context import get_model_run_owner
except ImportError:  # of another version: agents are then told apart by their calls

    def get_model_run_owner() -> object | None:
        return None


__all__ = ["GuardedModel", "GuardedProvider", "Stopped"]


class Stopped(StoppedByGuard, AgentsException):
    """The guard has ended the run. `run_data` is the SDK's own account of the turns before."""


class GuardedModel(StandIn, Model, forwards=Model):
    """A model of the OpenAI Agents SDK whose responses a guard watches, for one run.

    Every request streams, also in `Runner.run`, which otherwise waits for whole responses: so a
    loop is cut while it is written. Raises `Stopped` when the guard ends the run, and the SDK's own
    exception when the call failed.
    """

    wrapped: Model

    def __init__(self, wrapped: Model, guard: GuardSource) -> None:
        self._requests = GuardedRequests(guard, Stopped)
        self.wrapped = self._without(wrapped, guard)

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        """The whole response, read as a stream."""
        options = _by_name(args, options)
        settings = options["model_settings"]
        if settings.include_usage is None:  # a whole response has its usage, and a stream only if it is asked for
            options["model_settings"] = replace(settings, include_usage=True)
        done: Response | None = None
        items: list[Any] = []
        async for event in self.stream_response(**options):
            if isinstance(event, ResponseCompletedEvent):
                done = event.response
            elif isinstance(event, ResponseOutputItemDoneEvent):
                items.append(event.item)
        if done is None:
            raise ModelBehaviorError("the stream ended without a completed response")
        return ModelResponse(
            output=done.output or items,  # some services leave `output` of the last event empty
            usage=_usage_of(done),
            response_id=None if done.id == FAKE_RESPONSES_ID else done.id,
            request_id=getattr(done, "_request_id", None),
        )

    def stream_response(  # noqa: PLR0917 - the parameters of the SDK
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002 - the name that the SDK passes
        model_settings: Any,
        tools: list[Tool],
        output_schema: Any,
        handoffs: list[Handoff],
        tracing: Any,
        **options: Any,
    ) -> AsyncIterator[TResponseStreamEvent]:
        """The response as a stream. It ends with an exception if the guard ends the run."""
        own = self._requests.next_request(_history(input), key=get_model_run_owner(), is_one_task=True)
        change = own.change
        if change.text is not None:
            before: list[Any] = [{"role": "user", "content": input}] if isinstance(input, str) else [*input]
            input = [*before, {"role": "user", "content": change.text}]  # noqa: A001 - see above
        offered = [tool for tool in tools if change.offers(tool.name)]
        handoffs = [] if change.only else handoffs

        def opened() -> AsyncIterator[TResponseStreamEvent]:
            return self.wrapped.stream_response(
                system_instructions, input, model_settings, offered, output_schema, handoffs, tracing, **options
            )

        return own.watched(opened, AgentsAdapter)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self.wrapped._cleanup_on_run_end(owner)  # noqa: SLF001 - the SDK calls it on every model


class GuardedProvider(StandIn, ModelProvider, forwards=ModelProvider):
    """A provider of models whose responses a guard watches: for a program whose agents have several
    models, each by its name.

        config = RunConfig(model_provider=GuardedProvider(guard))

    An agent whose `model` is an object asks no provider: give it a `GuardedModel`.
    """

    def __init__(self, guard: GuardSource, wrapped: ModelProvider | None = None) -> None:
        """`wrapped`: the program's own provider; `None`: the SDK's `MultiProvider`."""
        self._requests = GuardedRequests(guard, Stopped)
        self.wrapped = self._without(wrapped or MultiProvider(), guard)

    def get_model(self, model_name: str | None) -> Model:
        return GuardedModel(self.wrapped.get_model(model_name), self._requests.guard)


class AgentsAdapter(OpenAIAdapter):
    """Reads the events of the SDK's models, which are those of OpenAI's responses API.

    The SDK raises an exception of its own for a failed call; the cause is the client's exception.
    """

    def classify(self, error: BaseException) -> ModelError:
        return classify(error)


_PARAMETERS = ("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs", "tracing")


def _by_name(args: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the SDK's call, which it passes by name or by position."""
    return {**dict(zip(_PARAMETERS, args, strict=False)), **options}


def _usage_of(response: Response) -> Usage:
    usage = response.usage
    if usage is None:
        return Usage(requests=1)
    return Usage(
        requests=1,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        input_tokens_details=usage.input_tokens_details,
        output_tokens_details=usage.output_tokens_details,
    )


def _history(items: str | list[TResponseInputItem]) -> Iterator[HistoryPart]:
    """The parts of the history, newest first. The SDK does not say which results are errors."""
    if isinstance(items, str):
        yield UserSaid(items)
        return
    history: list[Any] = items
    for item in reversed(history):
        if str(item.get("type") or "message").endswith("_output"):
            yield Answered(str(item.get("call_id")), item.get("output"))
        elif item.get("role") == "user":
            yield UserSaid(_text(item.get("content")))
        elif item.get("role") not in {"system", "developer"}:
            yield ModelSaid(_text(item.get("content")), [item.get("call_id")])


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(str(part.get("text") or "") for part in content or ())

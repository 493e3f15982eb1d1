"""Google ADK (google-adk 2.8 or newer): a plugin that passes each response of a runner's agents
through a guard.

    async with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
        runner = InMemoryRunner(agent, plugins=[GuardPlugin(guard)])
        async for event in runner.run_async(...): ...
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from monitor.adapters.google.stream import GoogleAdapter
from monitor.adapters.parts import name_of
from monitor.chunks import Chunk
from monitor.errors import AdapterError, MissingExtra
from monitor.guard.framework_guards import Answered, GuardSource, HistoryPart, ModelSaid, UserSaid
from monitor.integrations._guarded_requests import (
    FrameworkAdapter,
    GuardedRequests,
    RequestChange,
    class_as,
    is_behind,
    must_have,
    place_above,
    under_class,
)
from monitor.outcome import StoppedByGuard

try:
    from google.adk.models import BaseLlm, LlmRequest, LlmResponse
    from google.adk.plugins import BasePlugin
    from google.genai import types
except ImportError:
    raise MissingExtra("google-adk", "adk") from None

__all__ = ["ADKAdapter", "GuardPlugin", "GuardedModel", "Stopped"]


class Stopped(StoppedByGuard):
    """The guard has ended the run. It leaves `run_async` as it is, without a wrapper."""


ModelT = TypeVar("ModelT", bound=BaseLlm)


def GuardedModel(wrapped: ModelT, guard: GuardSource) -> ModelT:  # noqa: N802 - it makes a model, as a class would
    """A copy of a model of ADK whose responses a guard watches, for one run of one agent.

    Every request streams, also without `StreamingMode.SSE`, where ADK otherwise waits for whole
    responses: so a loop is cut while it is written. Raises `Stopped` when the guard ends the run,
    and the provider's own exception when the call failed. The copy is a model of the same class. A
    live connection is not watched.
    """
    return _guarded(wrapped, _OfOneAgent(GuardedRequests(guard, Stopped)))


@dataclass(frozen=True, slots=True)
class _OfOneAgent:
    """The guard of a model, and whose calls it watches."""

    requests: GuardedRequests
    run: Hashable | None = None
    agent: str = ""
    begin: Callable[[], None] | None = None
    """Called before each request."""

    @property
    def guard(self) -> GuardSource:
        return self.requests.guard


def _guarded(model: ModelT, calls: _OfOneAgent) -> ModelT:
    if is_behind(model.__pydantic_private__, calls.guard):
        return model
    base: Any = type(model)
    return under_class(model, _guarded_class(base), calls)


@cache
def _guarded_class(base: Any) -> Any:
    """`base`, with the method by which it calls its service behind a guard."""
    place = place_above(base)

    async def generate_content_async(
        self: Any,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: FBT001, FBT002 - as ADK calls it
    ) -> AsyncGenerator[LlmResponse, None]:
        calls: _OfOneAgent = self.__pydantic_private__[place]
        if calls.begin is not None:
            calls.begin()
        own = calls.requests.next_request(
            _history(llm_request.contents), key=calls.run, name=calls.agent, is_one_task=True
        )
        request = _changed(llm_request, own.change)
        events = own.watched(lambda: base.generate_content_async(self, request, stream=True), ADKAdapter)
        try:
            async for response in events:
                if stream:
                    yield response
                elif not response.partial:
                    yield _joined(response)
        finally:
            await events.aclose()

    return class_as(base, base, {"generate_content_async": generate_content_async})


class GuardPlugin(BasePlugin):
    """A plugin of ADK that passes each response through a guard, for one run of a runner. It covers
    all agents of the runner, as long as they run one after the other.
    """

    def __init__(self, guard: GuardSource, *, name: str = "agent_monitor") -> None:
        super().__init__(name=name)
        self._guard = guard
        self._requests = GuardedRequests(guard, Stopped)

    async def before_model_callback(self, *, callback_context: Any, llm_request: LlmRequest) -> None:
        """Put a guarded model in the place of the agent's, for this call only.

        The agent is not changed, since other runs may use it: the call gets a copy.
        """
        must_have(callback_context, "_invocation_context", "google-adk")
        context = callback_context._invocation_context  # noqa: SLF001 - a plugin has no public way to the agent
        agent = context.agent
        model = agent.canonical_model
        if is_behind(model.__pydantic_private__, self._guard):
            return

        def put_back() -> None:
            context.agent = agent

        calls = _OfOneAgent(self._requests, _run_of(context), agent.name, put_back)
        context.agent = agent.model_copy(update={"model": _guarded(model, calls)})

    async def after_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, result: Any
    ) -> None:
        """Pass on the result at once: after a transfer, the next agent's history lacks it."""
        answer = _answered(tool_context.function_call_id, tool.name, result)
        self._requests.take([answer], key=_run_of(tool_context._invocation_context))  # noqa: SLF001 - as above


def _run_of(context: Any) -> Hashable:
    """The run of an agent, and of those that follow it by a transfer. `AgentTool` begins a new
    invocation, and each agent of a `ParallelAgent` has a branch of its own.
    """
    return context.invocation_id, context.branch


class ADKAdapter(FrameworkAdapter):
    """Reads the responses of a model of ADK: pieces that are `partial`, and then whole ones, which
    repeat them.
    """

    readable = "LlmResponse of ADK"

    def __init__(self, stream: int = 0) -> None:
        self._google = GoogleAdapter(stream)
        self._given: set[str] = set()  # the kinds of parts that pieces have brought since the last whole response

    @property
    def gave(self) -> Sequence[str]:  # type: ignore[override] # it is never set
        """The kinds of parts other than text, thinking and calls."""
        return self._google.gave

    def plain_text(self, item: object) -> str | None:
        """The text of a piece that is visible text and nothing else, which most pieces are."""
        try:
            fields = cast("Any", item).__dict__
            unset = fields["usage_metadata"] is fields["finish_reason"] is fields["error_code"] is None
            if fields["partial"] and unset:
                words = self._google.plain_content(fields["content"], None)
                if words is not None:
                    self._given.add("text")
                return words
        except Exception:  # noqa: BLE001, S110 - not the plain case; `decode` says what it is
            pass
        return None

    def finish(self) -> Sequence[Chunk]:
        """A streamed call that the end of the stream cut off."""
        return self._google.finish()

    def _decode(self, item: object) -> Sequence[Chunk]:
        if not isinstance(item, LlmResponse):
            raise AdapterError(f"expected an LlmResponse of ADK, not {name_of(item)}")
        parts = list(item.content.parts or ()) if item.content is not None else []
        if item.partial:
            self._given.update(map(_kind_of, parts))
        else:
            parts = [part for part in parts if _kind_of(part) not in self._given]
            self._given.clear()
        return self._google.decode(_as_response(item, parts))


def _kind_of(part: types.Part) -> str:
    if part.function_call is not None:
        return "call"
    if part.text is None:
        return "other"
    return "thought" if part.thought else "text"


def _as_response(item: LlmResponse, parts: Sequence[types.Part]) -> Any:
    """The response in the form of google-genai, which `GoogleAdapter` reads."""
    refused = item.error_code if item.finish_reason is None else None  # the prompt: there is no candidate
    candidate = SimpleNamespace(
        content=SimpleNamespace(parts=parts), finish_reason=item.finish_reason, finish_message=item.error_message
    )
    return SimpleNamespace(
        candidates=[] if refused else [candidate],
        prompt_feedback=SimpleNamespace(block_reason=refused, block_reason_message=item.error_message),
        usage_metadata=item.usage_metadata,
        model_version=item.model_version,
    )


def _joined(response: LlmResponse) -> LlmResponse:
    """The response of a call that was not to stream: the pieces of a text are one part of it, and
    `partial` is unset.
    """
    parts = response.content.parts if response.content is not None else None
    if not parts or response.content is None:
        return response
    joined: list[types.Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if last is None or _kind_of(part) != _kind_of(last) or part.text is None or last.thought_signature is not None:
            joined.append(part)
        else:
            joined[-1] = part.model_copy(update={"text": f"{last.text}{part.text}"})
    content = response.content.model_copy(update={"parts": joined})
    return response.model_copy(update={"content": content, "partial": None})


def _changed(request: LlmRequest, change: RequestChange) -> LlmRequest:
    """A copy of the request with the guard's text, and without the tools that it withdraws."""
    update: dict[str, Any] = {}
    if change.text is not None:
        words = types.Content(role="user", parts=[types.Part(text=change.text)])
        update["contents"] = [*request.contents, words]
    tools = request.config.tools if request.config is not None else None
    if tools and (change.withdrawn or change.only):
        offered = [left for tool in tools if (left := _offered(tool, change)) is not None]
        update["config"] = request.config.model_copy(update={"tools": offered or None})
    return request.model_copy(update=update)


def _offered(tool: Any, change: RequestChange) -> Any:
    """The tool with the declarations that are still offered. `None`: none is left."""
    declared = getattr(tool, "function_declarations", None)
    if not declared:
        return tool
    left = [one for one in declared if change.offers(str(one.name))]
    return tool.model_copy(update={"function_declarations": left}) if left else None


def _answered(call: str | None, tool: str | None, result: object) -> Answered:
    """ADK's functions answer with a dict: `result` has a plain answer, `error` what went wrong."""
    is_error = isinstance(result, Mapping) and bool(result.get("error"))
    if isinstance(result, Mapping) and set(result) == {"result"}:
        result = result["result"]
    return Answered(call, result, is_error=is_error, name=tool)


def _history(contents: Sequence[types.Content]) -> Iterator[HistoryPart]:
    """The parts of the history, newest first. ADK takes its own ids off calls and results."""
    for content in reversed(contents):
        parts = content.parts or ()
        if content.role == "model":
            words = "".join(part.text for part in parts if part.text and not part.thought)
            yield ModelSaid(words, [part.function_call.id for part in parts if part.function_call is not None])
            continue
        for part in reversed(parts):
            if (answer := part.function_response) is not None:
                yield _answered(answer.id, answer.name, answer.response)
            elif part.text:
                yield UserSaid(part.text)

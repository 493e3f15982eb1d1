"""CrewAI (1.10 or newer): an LLM whose responses a guard watches.

    with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
        agent = Agent(role="...", ..., llm=guarded_llm(LLM("openai/..."), guard))
        result = Crew(agents=[agent], tasks=[...]).kickoff()

CrewAI is synchronous: limits are checked between the pieces of an answer, and nothing interrupts a
read that blocks. Give the LLM a timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from types import SimpleNamespace
from typing import Any, Self

from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.errors import ConfigError, MissingExtra
from monitor.guard.framework_guards import Answered, GuardSource, HistoryPart, ModelSaid, UserSaid
from monitor.integrations._guarded_requests import (
    GuardedRequest,
    GuardedRequests,
    class_as,
    is_behind,
    must_have,
    place_above,
)
from monitor.outcome import StoppedByGuard

try:
    from crewai.hooks.dispatch import HookAborted
    from crewai.llms.providers.openai.completion import OpenAICompletion
except ImportError:
    raise MissingExtra("crewai", "crewai") from None

__all__ = ["Stopped", "guarded_llm"]

_agent: ContextVar[object] = ContextVar("crewai_agent", default=None)
"""The agent that makes the call which goes on here."""


class _Aborted(HookAborted):
    """The framework's exception that no retry catches, without the hook that it names."""

    def __init__(self, message: str) -> None:
        super().__init__(reason=message, source="agent-monitor")


class Stopped(StoppedByGuard, _Aborted):
    """The guard has ended the run of the crew. CrewAI does not retry it."""


def guarded_llm(llm: Any, guard: GuardSource) -> Any:
    """A copy of an LLM of CrewAI whose responses a guard watches, for one run.

    It is an LLM of the same class. Every request streams: so a loop is cut while it is written.
    Raises `Stopped` when the guard ends the run, and the provider's own exception when the call
    failed. Raises `ConfigError` for an LLM that does not use the OpenAI SDK; it goes through the
    proxy.
    """
    if not isinstance(llm, OpenAICompletion):
        raise ConfigError(
            f"the guard watches LLMs that use the OpenAI SDK, and not {type(llm).__name__}: let it use the proxy"
        )
    if llm.api != "completions":
        raise ConfigError("the guard watches chat completions of CrewAI: leave api='responses' out, or use the proxy")
    must_have(llm, "_get_sync_client", "crewai")
    if is_behind(vars(llm), guard):
        return llm
    other: Any = llm.model_copy(update={"stream": True})
    base = other.__class__
    other.__class__ = _guarded_class(base)
    object.__setattr__(other, place_above(base), GuardedRequests(guard, Stopped))
    return other


@cache
def _guarded_class(base: Any) -> Any:
    """`base`, with a client whose streams pass through a guard."""
    place = place_above(base)

    def call(self: Any, *args: Any, **options: Any) -> Any:
        token = _agent.set(getattr(options.get("from_agent"), "id", None))
        try:
            return base.call(self, *args, **options)
        finally:
            _agent.reset(token)

    async def acall(self: Any, *args: Any, **options: Any) -> Any:
        token = _agent.set(getattr(options.get("from_agent"), "id", None))
        try:
            return await base.acall(self, *args, **options)
        finally:
            _agent.reset(token)

    def _get_sync_client(self: Any) -> Any:
        real, requests = base._get_sync_client(self).chat.completions, getattr(self, place)  # noqa: SLF001 - the one place where its client is asked for

        def create(**params: Any) -> Iterator[Any]:
            own = _next(requests, params)
            return own.read(lambda: real.create(**params), OpenAIAdapter)

        def stream(**params: Any) -> _Structured:
            own = _next(requests, params)
            return _Structured(own, lambda: real.stream(**params))

        return _client(create, stream)

    def _get_async_client(self: Any) -> Any:
        real, requests = base._get_async_client(self).chat.completions, getattr(self, place)  # noqa: SLF001 - as above

        async def create(**params: Any) -> Any:
            return _next(requests, params).watched(lambda: real.create(**params), OpenAIAdapter)

        return _client(create, None)

    made = {"call": call, "acall": acall, "_get_sync_client": _get_sync_client, "_get_async_client": _get_async_client}
    return class_as(base, base, made)


def _client(create: Any, stream: Any) -> Any:
    """A client of the OpenAI SDK, as far as CrewAI uses it."""
    completions = SimpleNamespace(create=create, stream=stream)
    chat = SimpleNamespace(completions=completions)
    return SimpleNamespace(chat=chat, beta=SimpleNamespace(chat=chat))


class _Structured:
    """The SDK's helper for structured output, behind the guard."""

    def __init__(self, own: GuardedRequest, opens: Callable[[], Any]) -> None:
        self._own = own
        self._manager = opens()
        self._stream: Any = None

    def __enter__(self) -> Self:
        self._stream = self._manager.__enter__()
        return self

    def __exit__(self, *ended: object) -> None:
        self._manager.__exit__(*ended)

    def __iter__(self) -> Iterator[Any]:
        return self._own.read(lambda: self._stream, OpenAIAdapter)

    def get_final_completion(self) -> Any:
        return self._stream.get_final_completion()


def _next(requests: GuardedRequests, params: dict[str, Any]) -> GuardedRequest:
    """The next request, whose parameters are changed as the guard wants it."""
    messages = params["messages"]
    own = requests.next_request(_history(messages), key=_agent.get())
    change = own.change
    if change.text is not None:
        params["messages"] = [*messages, {"role": "user", "content": change.text}]
    if params.get("tools"):
        params["tools"] = [tool for tool in params["tools"] if change.offers(tool["function"]["name"])]
        if not params["tools"]:
            del params["tools"]
            params.pop("tool_choice", None)
    return own


def _history(messages: Sequence[Mapping[str, Any]]) -> Iterator[HistoryPart]:
    """The parts of the history, newest first."""
    for message in reversed(messages):
        content = message.get("content")
        match message["role"]:
            case "assistant":
                yield ModelSaid(str(content or ""), [call["id"] for call in message.get("tool_calls") or ()])
            case "tool":
                yield Answered(message.get("tool_call_id"), content)
            case "user":
                yield UserSaid(str(content))

"""Strands Agents (1.62 or newer): a plugin whose middleware passes each response through a guard.

async with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
agent = Agent(model, tools=[...], plugins=[GuardPlugin(guard)])
result = await agent.invoke_async("...")
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from monitor.adapters.parts import PendingCall, name_of
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, TurnFinished, UsageReport
from monitor.errors import AdapterError, MissingExtra
from monitor.guard.framework_guards import Answered, GuardSource, HistoryPart, ModelSaid, UserSaid
from monitor.integrations._guarded_requests import (
    FrameworkAdapter,
    GuardedEvents,
    GuardedRequests,
    StandIn,
    check_exit_behavior,
    last_words,
    reason_of,
    written,
)
from monitor.outcome import StoppedByGuard
from monitor.wires.fields import finish_reason_of

try:
    from strands import Agent
    from strands.middleware import InvokeModelContext, InvokeModelStage, ModelStopReason, TypedEvent
    from strands.models import Model
    from strands.plugins import Plugin
    from strands.types.exceptions import EventLoopException
except ImportError:
    raise MissingExtra("strands-agents", "strands") from None

__all__ = ["GuardPlugin", "Stopped", "StrandsAdapter"]


class Stopped(StoppedByGuard, EventLoopException):
    """The guard has ended the run of the agent."""

    def __init__(self, stop: Any, turn: Any = None) -> None:
        StoppedByGuard.__init__(self, stop, turn)
        self.original_exception = self
        self.request_state: dict[str, Any] = {}


class GuardPlugin(Plugin):
    """A plugin of Strands that passes each response through a guard, for one run. Several agents of
    one run, one after the other, share the plugin.

    `exit_behavior`: with `end` the run ends without an exception. `result.stop_reason` is
    `cancelled`, `result.message` has the partial text (without the copies of a loop), and
    `result.state["agent_monitor"]` the reason. With `error` it raises `Stopped`. `name`: the plugin
    of a second guard needs another one.
    """

    name = "agent-monitor"

    def __init__(
        self, guard: GuardSource, *, exit_behavior: Literal["end", "error"] = "end", name: str = "agent-monitor"
    ) -> None:
        super().__init__()
        check_exit_behavior(exit_behavior)
        self.name = name
        self._requests = GuardedRequests(guard, Stopped)
        self._exit_behavior = exit_behavior

    def init_agent(self, agent: Agent) -> None:
        agent.add_middleware(InvokeModelStage, self.middleware)

    async def middleware(
        self, context: InvokeModelContext, next_fn: Callable[[InvokeModelContext], AsyncIterator[TypedEvent]]
    ) -> AsyncGenerator[TypedEvent, None]:
        """Call the model through the guard. The agent's own model stays as it is."""
        model = _GuardedStrandsModel(context.model, self._requests, context.agent)
        try:
            async for event in next_fn(context.replace(model=model)):
                yield event
        except Stopped as stopped:
            if self._exit_behavior == "error":
                raise
            state = context.invocation_state.setdefault("request_state", {})
            state["agent_monitor"] = reason_of(stopped)
            yield _last_event(stopped)
        finally:
            await model.aclose()


class _GuardedStrandsModel(StandIn, Model, forwards=Model):
    """The model of one call. It opens its stream through the guard."""

    def __init__(self, wrapped: Model, requests: GuardedRequests, agent: Any) -> None:
        self._requests = requests
        self._agent = agent
        self._events: GuardedEvents[Any] | None = None
        self._signal: _Signal | None = None
        self.wrapped = wrapped

    @property
    def _supports_structured_output(self) -> bool:  # type: ignore[override] # a constant of each class
        return bool(getattr(self.wrapped, "_supports_structured_output", False))

    def update_config(self, **model_config: Any) -> None:
        self.wrapped.update_config(**model_config)

    def get_config(self) -> Any:
        return self.wrapped.get_config()

    def structured_output(self, *args: Any, **options: Any) -> Any:
        return self.wrapped.structured_output(*args, **options)

    def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: str | None = None, **options: Any
    ) -> AsyncIterator[Any]:
        """The response as a stream that the guard watches."""
        own = self._requests.next_request(_history(messages), key=self._agent, name=str(self._agent.name or ""))
        change = own.change
        if change.text is not None:
            messages = _with_text(messages, change.text)
        options["cancel_signal"] = self._signal = _Signal(options.get("cancel_signal"))
        if tool_specs:
            tool_specs = [one for one in tool_specs if change.offers(one["name"])] or None

        def opened() -> AsyncIterator[Any]:
            return aiter(self.wrapped.stream(messages, tool_specs, system_prompt, **options))

        self._events = own.watched(opened, StrandsAdapter)
        return self._events

    async def aclose(self) -> None:
        """Close the stream, if the framework has left it before its end."""
        if self._signal is not None:
            self._signal.set()
        if self._events is not None:
            await self._events.aclose()


class _Signal(threading.Event):
    """Set when the call is over, or when the agent is cancelled.

    The model of Bedrock reads in a thread. The thread goes on after the stream is closed, unless
    its signal is set.
    """

    def __init__(self, cancelled: threading.Event | None) -> None:
        super().__init__()
        self._cancelled = cancelled

    def is_set(self) -> bool:
        return super().is_set() or (self._cancelled is not None and self._cancelled.is_set())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for either: an event has no way to wait for two."""
        ends = None if timeout is None else time.monotonic() + timeout
        while not self.is_set() and (ends is None or time.monotonic() < ends):
            super().wait(_STEP_S if ends is None else max(0.0, min(_STEP_S, ends - time.monotonic())))
        return self.is_set()


_STEP_S = 0.05


def _last_event(stopped: Stopped) -> ModelStopReason:
    turn = stopped.turn
    words = last_words(stopped)
    usage = turn.usage if turn is not None else None
    counts = (usage.input_tokens or 0, usage.output_tokens or 0) if usage is not None else (0, 0)
    return ModelStopReason(
        stop_reason="cancelled",
        message={"role": "assistant", "content": [{"text": words}]},
        usage={"inputTokens": counts[0], "outputTokens": counts[1], "totalTokens": sum(counts)},
        metrics={"latencyMs": 0},
    )


class StrandsAdapter(FrameworkAdapter):
    """Reads the events of a model of Strands, which have the form of Bedrock's."""

    readable = "event of a model of Strands"

    def __init__(self, stream: int = 0) -> None:
        super().__init__(stream)
        self._calls = 0
        self._call: PendingCall | None = None

    def plain_text(self, item: object) -> str | None:
        """The text of an event that is one piece of visible text."""
        try:
            words = cast("Any", item)["contentBlockDelta"]["delta"]["text"]  # a pattern would take ten times as long
        except (KeyError, TypeError):
            return None
        return words if type(words) is str and words else None

    def finish(self) -> Sequence[Chunk]:
        """A call that the end of the stream cut off."""
        return tuple(self._end_call(cut_off=True))

    def _decode(self, item: object) -> Iterator[Chunk]:
        match item:
            case {"contentBlockDelta": {"delta": delta}}:
                yield from self._delta(delta)
            case {"contentBlockStart": {"start": {"toolUse": call}}}:
                yield from self._begin_call(call)
            case {"contentBlockStop": _}:
                yield from self._end_call(cut_off=False)
            case {"messageStop": {"stopReason": word}}:
                yield TurnFinished(finish_reason_of(word), word)
            case {"metadata": {"usage": usage}}:
                yield UsageReport(
                    input_tokens=usage.get("inputTokens"),
                    output_tokens=usage.get("outputTokens"),
                    total_tokens=usage.get("totalTokens"),
                    cached_tokens=usage.get("cacheReadInputTokens"),
                )
            case Mapping():  # the beginning of a message or of a part, and events that a model adds
                pass
            case _:
                raise AdapterError(f"expected an event of a model of Strands, not {name_of(item)}")

    def _delta(self, delta: Mapping[str, Any]) -> Iterator[Chunk]:
        match delta:
            case {"text": words}:
                yield TextDelta(words)
            case {"reasoningContent": {"text": str(words)}}:
                yield ReasoningDelta(words)
            case {"toolUse": piece}:
                if self._call is None and piece.get("name"):  # some models name the call here
                    yield from self._begin_call(piece)
                if self._call is not None:
                    yield self._call.write(written(piece.get("input")))
            case {"reasoningContent": _} | {"citation": _}:
                pass
            case _:
                for kind in delta:
                    self._gives(kind)

    def _begin_call(self, call: Mapping[str, Any]) -> Iterator[Chunk]:
        yield from self._end_call(cut_off=False)
        given = call.get("toolUseId")
        self._call = PendingCall(given or f"call_{self._stream}_{self._calls}", call["name"], call, given=given)
        self._calls += 1
        yield self._call.write("")

    def _end_call(self, *, cut_off: bool) -> Iterator[ToolCall]:
        if self._call is not None:
            yield self._call.ended(cut_off=cut_off)
            self._call = None


def _with_text(messages: Sequence[Any], words: str) -> list[Any]:
    """The messages with another text for the model. Two messages of a user in a row are refused by
    some providers, so it goes into the last one.
    """
    last = messages[-1] if messages else None
    if last is None or last["role"] != "user":
        return [*messages, {"role": "user", "content": [{"text": words}]}]
    return [*messages[:-1], {**last, "content": [*last["content"], {"text": words}]}]


def _history(messages: Sequence[Any]) -> Iterator[HistoryPart]:
    """The parts of the history, newest first."""
    for message in reversed(messages):
        blocks = message["content"]
        if message["role"] == "assistant":
            words = "".join(block["text"] for block in blocks if "text" in block)
            yield ModelSaid(words, [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block])
            continue
        for block in reversed(blocks):
            match block:
                case {"toolResult": {"toolUseId": call, "content": content} as result}:
                    yield Answered(call, _text(content), is_error=result.get("status") == "error")
                case {"text": words}:
                    yield UserSaid(words)


def _text(content: Sequence[Mapping[str, Any]]) -> object:
    """The result as the model reads it: its texts, and everything else as JSON."""
    if all("text" in one for one in content):
        return "\n".join(one["text"] for one in content)
    return [one.get("text", one.get("json", next(iter(one), None))) for one in content]

"""smolagents (1.26 or newer): a model whose responses a guard watches.

    with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
        agent = ToolCallingAgent(tools=[...], model=GuardedModel(OpenAIModel("..."), guard))
        result = agent.run("...")

smolagents is synchronous: limits are checked between the pieces of an answer, and nothing
interrupts a read that blocks. Give the client a timeout.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

from monitor.adapters.parts import PendingCall, name_of
from monitor.chunks import Chunk, TextDelta, UsageReport
from monitor.errors import AdapterError, ConfigError, MissingExtra
from monitor.guard.framework_guards import Answered, GuardSource, HistoryPart, ModelSaid, UserSaid
from monitor.integrations._guarded_requests import (
    FrameworkAdapter,
    GuardedRequest,
    GuardedRequests,
    class_as,
    is_behind,
    place_above,
)
from monitor.outcome import StoppedByGuard

try:
    from smolagents.models import (
        ChatMessage,
        ChatMessageStreamDelta,
        MessageRole,
        Model,
        agglomerate_stream_deltas,
        remove_content_after_stop_sequences,
    )
    from smolagents.utils import AgentGenerationError
except ImportError:
    raise MissingExtra("smolagents", "smolagents") from None

__all__ = ["GuardedModel", "SmolagentsAdapter", "Stopped"]

ModelT = TypeVar("ModelT", bound=Model)


class _GenerationError(AgentGenerationError):
    """The framework's exception without its logger, which would print each stop."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)
        self.message = message


class Stopped(StoppedByGuard, _GenerationError):
    """The guard has ended the run of the agent. The framework raises an `AgentGenerationError`
    whose cause it is.
    """


def GuardedModel(wrapped: ModelT, guard: GuardSource) -> ModelT:  # noqa: N802 - it makes a model, as a class would
    """A copy of a model of smolagents whose responses a guard watches, for one run.

    Every request streams, also `generate`, which otherwise waits for whole responses: so a loop is
    cut while it is written. Raises `Stopped` when the guard ends the run, and the provider's own
    exception when the call failed. The copy is a model of the same class. Raises `ConfigError` for
    a model that cannot stream, such as `InferenceClientModel` without `generate_stream`.
    """
    if not hasattr(wrapped, "generate_stream"):
        raise ConfigError(f"{type(wrapped).__name__} cannot stream: use a model with generate_stream, or the proxy")
    if is_behind(vars(wrapped), guard):
        return wrapped
    model: Any = copy.copy(wrapped)
    base = model.__class__
    model.__class__ = _guarded_class(base)
    setattr(model, place_above(base), GuardedRequests(guard, Stopped))
    made: ModelT = model
    return made


@cache
def _guarded_class(base: Any) -> Any:
    """`base`, with the methods by which it calls its service behind a guard."""
    place = place_above(base)

    def generate_stream(
        self: Any,
        messages: list[ChatMessage | dict[str, Any]],
        stop_sequences: list[str] | None = None,
        response_format: Any = None,
        tools_to_call_from: Any = None,
        **options: Any,
    ) -> Iterator[ChatMessageStreamDelta]:
        requests: GuardedRequests = getattr(self, place)
        own = _next(requests, messages)
        change, offered = own.change, tools_to_call_from
        if change.text is not None:
            messages = [*messages, ChatMessage(MessageRole.USER, [{"type": "text", "text": change.text}])]
        if offered:
            offered = [tool for tool in offered if change.offers(tool.name)]

        def opened() -> Iterator[ChatMessageStreamDelta]:
            stream: Iterator[ChatMessageStreamDelta] = base.generate_stream(
                self, messages, stop_sequences, response_format, offered, **options
            )
            return stream

        yield from own.read(opened, SmolagentsAdapter)

    def generate(
        self: Any,
        messages: list[ChatMessage | dict[str, Any]],
        stop_sequences: list[str] | None = None,
        *args: Any,
        **options: Any,
    ) -> ChatMessage:
        answer = agglomerate_stream_deltas([*generate_stream(self, messages, stop_sequences, *args, **options)])
        if stop_sequences is not None and not self.supports_stop_parameter and isinstance(answer.content, str):
            answer.content = remove_content_after_stop_sequences(answer.content, stop_sequences)
        # What a whole answer does not have is `None` in it, and empty in a stream.
        answer.content, answer.tool_calls = answer.content or None, answer.tool_calls or None
        return answer

    return class_as(base, base, {"generate": generate, "generate_stream": generate_stream})


def _next(requests: GuardedRequests, given: Sequence[ChatMessage | dict[str, Any]]) -> GuardedRequest:
    """The next request. The framework has no key of a run: instructions and task are one."""
    messages = [ChatMessage.from_dict(one) if isinstance(one, dict) else one for one in given]
    asked = (message for message in messages if message.role in {MessageRole.SYSTEM, MessageRole.USER})
    return requests.next_request(_history(messages), key=tuple(map(_text, asked))[:2], is_one_task=True)


def _history(messages: Sequence[ChatMessage]) -> Iterator[HistoryPart]:
    """The parts of the history, newest first. A result does not say which call it answers."""
    for message in reversed(messages):
        match message.role:
            case MessageRole.ASSISTANT | MessageRole.TOOL_CALL:
                yield ModelSaid(_text(message))
            case MessageRole.TOOL_RESPONSE:
                yield Answered(None, _text(message))
            case MessageRole.USER:
                yield UserSaid(_text(message))
            case _:
                pass


class SmolagentsAdapter(FrameworkAdapter):
    """Reads the deltas of a model. Calls are complete when the stream ends."""

    readable = "delta of a model of smolagents"

    def __init__(self, stream: int = 0) -> None:
        super().__init__(stream)
        self._calls: dict[int, PendingCall] = {}

    def finish(self) -> Sequence[Chunk]:
        """The calls."""
        return [call.ended(cut_off=False) for call in self._calls.values()]

    def _decode(self, item: object) -> Iterator[Chunk]:
        if not isinstance(item, ChatMessageStreamDelta):
            raise AdapterError(f"expected a delta of a model of smolagents, not {name_of(item)}")
        if item.content:
            yield TextDelta(item.content)
        for piece in item.tool_calls or ():
            written = piece.function.arguments if piece.function is not None else ""
            yield self._call(piece).write(written if isinstance(written, str) else "")
        if item.token_usage is not None:
            used = item.token_usage
            yield UsageReport(used.input_tokens, used.output_tokens, total_tokens=used.total_tokens)

    def _call(self, piece: Any) -> PendingCall:
        index = piece.index or 0
        if index not in self._calls:
            name = piece.function.name if piece.function is not None else None
            id_ = piece.id or f"call_{self._stream}_{index}"
            self._calls[index] = PendingCall(id_, name or "", piece, given=piece.id)
        return self._calls[index]


def _text(message: ChatMessage) -> str:
    content = message.content
    return content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content or ())

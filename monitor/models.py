"""What the supervisor, a judge and compaction need of a model, and how a model fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias

from monitor.messages import Message
from monitor.reasons import TerminateReason

ToolChoice: TypeAlias = Literal["auto", "required", "none"]


class ErrorKind(StrEnum):
    """One table of failures for all providers."""

    OVERFLOW = "overflow"
    """The prompt does not fit the model's window."""
    RATE_LIMITED = "rate_limited"
    AUTH = "auth"
    """The key is missing, wrong, or not allowed to do this."""
    REQUEST = "request"
    """The provider refuses the request as such; sending it again will not help."""
    SERVER = "server"
    NETWORK = "network"
    """The connection could not be made, or broke, or timed out."""
    MALFORMED = "malformed"
    """What arrived is no valid stream."""
    BLOCKED = "blocked"
    UNKNOWN = "unknown"


_REASONS = {
    ErrorKind.OVERFLOW: TerminateReason.PROMPT_TOO_LONG,
    ErrorKind.RATE_LIMITED: TerminateReason.RATE_LIMITED,
    ErrorKind.MALFORMED: TerminateReason.INVALID_STREAM,
    ErrorKind.BLOCKED: TerminateReason.BLOCKED,
}


@dataclass(slots=True, frozen=True)
class ModelError:
    """A failed model call, classed. The SDK's own exception stays beside it (`Outcome.error`)."""

    kind: ErrorKind
    message: str
    retry_after_s: float | None = None
    """How long the provider asks to wait, where it says."""
    status: int | None = None
    """HTTP status, where there was one."""
    code: str | None = None
    """The provider's own code, e.g. `RESOURCE_EXHAUSTED`."""

    @property
    def reason(self) -> TerminateReason:
        """How a run ends that ends by this error."""
        return _REASONS.get(self.kind, TerminateReason.ERROR)


@dataclass(slots=True, frozen=True)
class ToolSpec:
    """A tool as the model is told about it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments object."""


@dataclass(slots=True, frozen=True)
class ModelRequest:
    """One model call."""

    messages: tuple[Message, ...]
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Passed to the provider as they are: temperature, output limit, thinking."""
    reply_schema: Mapping[str, Any] | None = None
    """JSON schema of the answer, where the answer is to be JSON. A provider that cannot be held to it is only asked."""


class Model(Protocol):
    """Anything that answers a request with a stream.

    A model whose stream can not be told by its objects has an attribute `adapter` besides: what makes the stream's adapter, as
    `monitor.watch(adapter=...)` takes it. One that sends the history in a known form says so in an attribute `form`: `gemini`,
    `openai-chat`, `openai-responses` or `anthropic`; the history is then kept to the rules of that one, else to those that all take.
    """

    @property
    def name(self) -> str:
        """Provider and model, e.g. `google:gemini-2.5-flash`."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Any] | Awaitable[AsyncIterator[Any]]:
        """The stream that answers `request`: of chunks, or of the SDK's own objects. Nothing is sent before it is opened.

        A failed call is raised from opening or iterating the stream, as the SDK raises it; the adapter says what kind of failure
        that is. Raises `ConfigError` for a request that makes no sense.
        """
        ...

"""What the supervisor, a judge and compaction need of a model, and how a model fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias

from monitor.errors import ConfigError
from monitor.messages import Message
from monitor.reasons import TerminateReason

__all__ = ["ErrorKind", "Model", "ModelError", "ModelRequest", "Retries", "ToolChoice", "ToolSpec"]

ToolChoice: TypeAlias = Literal["auto", "required", "none"]
"""Whether the model may, must or must not call a tool."""


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
    """JSON schema of the answer, where the answer is to be JSON. A provider that cannot be held to
    it is only asked.
    """


class Model(Protocol):
    """Anything that answers a request with a stream.

    A model whose stream can not be told by its objects has an attribute `adapter` besides: what
    makes the stream's adapter, as `monitor.watch(adapter=...)` takes it. One that sends the history
    in a known form says so in an attribute `form`: `gemini`, `openai-chat`, `openai-responses` or
    `anthropic`; the history is then kept to the rules of that one, else to those that all take.
    """

    @property
    def name(self) -> str:
        """Provider and model, e.g. `google:gemini-2.5-flash`."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Any] | Awaitable[AsyncIterator[Any]]:
        """The stream that answers `request`: of chunks, or of the SDK's own objects. Nothing is
        sent before it is opened.

        A failed call is raised from opening or iterating the stream, as the SDK raises it; the
        adapter says what kind of failure that is. Raises `ConfigError` for a request that makes no
        sense.
        """
        ...


PASSING = frozenset({ErrorKind.RATE_LIMITED, ErrorKind.SERVER, ErrorKind.NETWORK, ErrorKind.MALFORMED})
"""Failures that another attempt may well get past. A refusal, a wrong key or a prompt that does not
fit stays what it is.
"""


@dataclass(slots=True, frozen=True)
class Retries:
    """A failed call is made again at most `attempts` times for one turn; then the run ends with its
    reason.

    An answer that is no answer (without an end, unreadable, empty) is asked for again at once. A
    provider that fails is given `first_delay_s`, then twice as long each time, at most
    `max_delay_s`; or as long as it asks for, and if that is longer than `max_delay_s`, the run ends
    instead of waiting. A block by a safety filter is never tried again.
    """

    attempts: int = 3
    first_delay_s: float = 1.0
    max_delay_s: float = 60.0

    def __post_init__(self) -> None:
        if self.attempts < 0 or self.first_delay_s < 0 or self.max_delay_s < 0:
            raise ConfigError(f"{self}: attempts and delays cannot be negative; Retries(0) tries nothing again")

    def delay_s(self, failures: int, error: ModelError | None) -> float | None:
        """How long to wait after the failure number `failures` (from 1) of a turn; `None`: give up.
        `error`: of the call, if it failed.
        """
        if failures > self.attempts:
            return None
        if error is None:
            return 0.0
        if error.kind not in PASSING:
            return None
        if error.retry_after_s is not None:
            return error.retry_after_s if error.retry_after_s <= self.max_delay_s else None
        if error.kind is ErrorKind.MALFORMED:
            return 0.0
        return min(self.max_delay_s, self.first_delay_s * 2.0 ** (failures - 1))

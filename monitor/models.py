"""The protocol of models, as supervisor, judges and compaction use them, and how a call fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias

from monitor._util.explained_options import explained
from monitor.errors import ConfigError
from monitor.messages import Message
from monitor.reasons import TerminateReason

__all__ = ["ErrorKind", "Model", "ModelError", "ModelRequest", "Retries", "ToolChoice", "ToolSpec"]
__dir__ = __all__.copy

ToolChoice: TypeAlias = Literal["auto", "required", "none"]
"""Whether the model may, must or must not call a tool."""


class ErrorKind(StrEnum):
    """The kind of a failure; all providers have the same kinds."""

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
    """The data that arrived is not a valid stream."""
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
    """How long the provider asks to wait. `None`: it does not say."""
    status: int | None = None
    """HTTP status, if there was one."""
    code: str | None = None
    """The provider's own code, e.g. `RESOURCE_EXHAUSTED`."""

    @property
    def reason(self) -> TerminateReason:
        """The reason of a run that ends by this error."""
        return _REASONS.get(self.kind, TerminateReason.ERROR)


@dataclass(slots=True, frozen=True)
class ToolSpec:
    """A tool as it is described to the model."""

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
    """JSON schema of the answer, if the answer is to be JSON. Some providers cannot enforce it;
    their models are only asked.
    """


class Model(Protocol):
    """Anything that answers a request with a stream.

    Two attributes are optional. `adapter` makes the stream's adapter, as
    `monitor.watch(adapter=...)` takes it; a model needs it if its stream cannot be recognised by
    its objects. `form` names the form of history that the model sends: `gemini`, `openai-chat`,
    `openai-responses` or `anthropic`. The history then keeps to the rules of that form, without it
    to the rules that all forms share.
    """

    @property
    def name(self) -> str:
        """Provider and model, e.g. `google:gemini-2.5-flash`."""
        ...

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Any] | Awaitable[AsyncIterator[Any]]:
        """The stream that answers `request`: of chunks, or of the SDK's own objects. Nothing is
        sent before the stream is opened.

        A failed call is raised as the SDK raises it, from opening or iterating the stream. The
        adapter classifies the failure. Raises `ConfigError` for an invalid request.
        """
        ...


PASSING = frozenset({ErrorKind.RATE_LIMITED, ErrorKind.SERVER, ErrorKind.NETWORK, ErrorKind.MALFORMED})
"""Failures after which another attempt may succeed. A refusal, a wrong key or a prompt that does
not fit will fail again.
"""


@explained(example="monitor.Retries(3)")
@dataclass(slots=True, frozen=True)
class Retries:
    """How a failed model call is repeated: at most `attempts` times for one turn. Then the run ends
    with the reason of the last failure.

    An answer that cannot be used (without an end, unreadable, empty) is requested again at once.
    After a provider's failure the wait is `first_delay_s`, doubled each time, at most
    `max_delay_s`. If the provider asks for a wait, that one counts; if it is longer than
    `max_delay_s`, the run ends. A block by a safety filter is never retried.
    """

    attempts: int = 3
    """The number of repetitions of one turn. 0: nothing is tried again."""
    first_delay_s: float = 1.0
    """Seconds before the first repetition after a provider's failure."""
    max_delay_s: float = 60.0
    """The longest wait, in seconds."""

    def __post_init__(self) -> None:
        if self.attempts < 0 or self.first_delay_s < 0 or self.max_delay_s < 0:
            raise ConfigError(f"{self}: attempts and delays cannot be negative; Retries(0) tries nothing again")

    def delay_s(self, failures: int, error: ModelError | None) -> float | None:
        """Seconds to wait after failure number `failures` (from 1) of a turn. `None`: give up.
        `error`: the error of the call, if the call failed.
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

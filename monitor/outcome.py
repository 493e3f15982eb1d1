"""How a turn and a run ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

from pydantic import PlainValidator

from monitor._util.codec import Codec
from monitor.chunks import ToolCall
from monitor.errors import MonitorError, RecordedError
from monitor.models import ModelError
from monitor.reasons import SUCCESSES, FinishReason, TerminateReason
from monitor.usage import Usage
from monitor.verdicts import Detection, Met, Stop

__all__ = ["Outcome", "RunFailed", "Turn", "outcome_codec", "turn_codec"]


class RunFailed(MonitorError):
    """A run did not succeed. Raised by `Outcome.raise_for_reason()`; `outcome` says the rest."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"{outcome.reason.value}: {outcome.detail}")
        self.outcome = outcome

    def __reduce__(self) -> tuple[type[RunFailed], tuple[Outcome]]:
        return type(self), (self.outcome,)


def _error_from(value: object) -> BaseException | None:
    if value is None or isinstance(value, BaseException):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("type"), str) and isinstance(value.get("message"), str):
        return RecordedError(value["type"], value["message"])
    raise ValueError("an error is an object with 'type' and 'message'")


RecordableError: TypeAlias = Annotated[
    BaseException | None, PlainValidator(_error_from, json_schema_input_type=dict[str, str] | None)
]


@dataclass(slots=True, frozen=True, kw_only=True)
class Turn:
    """One model response, as far as it came."""

    number: int
    """1 for the first turn of the run."""
    text: str = ""
    """The visible text, all of it; of a very long one its first `keep_text_chars` code points."""
    text_chars: int = 0
    """Code points of visible text that came, kept or not."""
    text_truncated: bool = False
    """More came than `text` holds."""
    tool_calls: tuple[ToolCall, ...] = ()
    gave: tuple[str, ...] = ()
    """What came besides, by its kind: `image/png`, `audio`, `mcp_approval_request`. It stands in
    the SDK's objects only.
    """
    usage: Usage = field(default_factory=Usage)
    usage_estimated: bool = False
    finish_reason: FinishReason | None = None
    """`None`: the stream stopped before the model closed its turn."""
    raw_finish_reason: str | None = None
    stopped: Stop | None = None
    """Why the turn is not a good one, or why the run ended in it; `None`: it ended well."""
    loop_offset: int | None = None
    """Where in the visible text the copies of a loop begin, in code points: `text[:loop_offset]` is
    fit for the history, while a model that reads its own loop goes on with it. `None`: no loop was
    seen in the text.
    """
    model_error: ModelError | None = None
    """The failed call, classed, if the stream failed."""
    error: RecordableError = None
    """The SDK's own exception, if the stream failed."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Outcome:
    """How a run ended. Always set, whatever happened; an ending is not an exception."""

    ok: bool
    """The goal was reached, the model terminated with success, or the stream came to its good
    end.
    """
    reason: TerminateReason
    detail: str
    """One sentence for people."""
    source: str
    """Who decided it: a condition, detector or judge by name, `provider`, `caller`, `abort`,
    `guard`.
    """
    limit: float | int | str | None = None
    value: float | int | str | None = None
    evidence: Detection | Met | None = None
    """The detection that ended the run, or, for a composed condition, the tree of what was true."""
    output: Any = None
    """The declared outputs: an instance of the declared model, or a dict; `None` unless all are
    there.
    """
    emitted: dict[str, Any] = field(default_factory=dict)
    """The outputs that were emitted, by name; also where the run failed."""
    missing: list[str] = field(default_factory=list)
    """Declared outputs that were not."""
    text: str = ""
    """The visible text of the last turn, all of it; of a very long one its first `keep_text_chars`
    code points.
    """
    text_truncated: bool = False
    """More came than `text` holds."""
    usage: Usage = field(default_factory=Usage)
    usage_estimated: bool = False
    """Part of `usage` is an estimate, because the provider did not report it."""
    judge_usage: Usage = field(default_factory=Usage)
    """Tokens that judges have used; part of `usage` only where a judge `counts`."""
    judge_usage_estimated: bool = False
    """Part of `judge_usage` is an estimate, because the provider did not report it."""
    compaction_usage: Usage = field(default_factory=Usage)
    """Tokens that summaries of the history have used; part of `usage`."""
    cost_usd: float = 0.0
    """What `usage` costs by the prices that were given, in US dollars; 0 without any."""
    turns: int = 0
    elapsed_s: float = 0.0
    recovered_from: TerminateReason | None = None
    """The run was about to end for this, and a last turn reached the goal."""
    closed: bool = True
    """The source of the last stream is known to be closed (or ended by itself)."""
    chunks_after_decision: int = 0
    """Chunks that the SDK had already buffered when the end was decided, read and thrown away while
    closing.
    """
    closed_after_s: float | None = None
    """From the decision to the closed source; `None` where nothing had to be closed."""
    error: RecordableError = None
    """The exception behind the reason, if there was one: the SDK's, a detector's, the caller's."""

    def raise_for_reason(self) -> Outcome:
        """Raise `RunFailed` (from `error`, if there is one) unless `ok`; else return this
        outcome.
        """
        if not self.ok:
            raise RunFailed(self) from self.error
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; `Outcome.from_dict` is the inverse (an exception comes back as
        `RecordedError`).
        """
        return outcome_codec.to_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Outcome:
        """The outcome that `to_dict` was called on."""
        return outcome_codec.from_dict(data)


outcome_codec: Codec[Outcome] = Codec(Outcome)
"""JSON form of an outcome."""
turn_codec: Codec[Turn] = Codec(Turn)
"""JSON form of a turn."""


def succeeded(reason: TerminateReason) -> bool:
    """Whether a run that ended for `reason` did well, as far as the reason alone tells."""
    return reason in SUCCESSES

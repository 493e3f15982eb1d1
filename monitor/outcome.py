"""The results of a turn and of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, NoReturn, TypeAlias

from monitor._util.checked_words import checked
from monitor._util.codec import Codec
from monitor._util.lazy import LazyModule, did_you_mean
from monitor._util.part_options import draft_of
from monitor.chunks import ToolCall, Usage
from monitor.errors import SUCCESSES, ConfigError, FinishReason, MonitorError, RecordedError, TerminateReason
from monitor.messages import ApprovalRequest, Message, SteerMessage
from monitor.models import ModelError
from monitor.verdicts import Detection, Met, Stop

if TYPE_CHECKING:
    import pydantic
    from typing_extensions import TypeVar

    OutputT = TypeVar("OutputT", default=Any, covariant=True)  # noqa: PLC0105 - as its users call it
else:  # the default is for type checkers, and Python 3.13 is the first that takes it
    from typing import TypeVar

    pydantic = LazyModule("pydantic")
    OutputT = TypeVar("OutputT", covariant=True)  # noqa: PLC0105 - as above

__all__ = [
    "Outcome",
    "Phase",
    "RunFailed",
    "RunState",
    "StoppedByGuard",
    "Turn",
    "outcome_codec",
    "turn_codec",
]
__dir__ = __all__.copy


class RunFailed(MonitorError):
    """A run did not succeed. Raised by `Outcome.raise_for_reason()`; details are in `outcome`."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"{outcome.reason.value}: {outcome.detail}")
        self.outcome = outcome

    def __reduce__(self) -> tuple[type[RunFailed], tuple[Outcome]]:
        return type(self), (self.outcome,)


class StoppedByGuard(MonitorError):
    """The guard has ended the run inside a framework's loop.

    Each integration raises a subclass that is also an error of its framework. `Guard.outcome` has
    the whole account when the block of the guard has been left.
    """

    def __init__(self, stop: Stop, turn: Turn | None = None) -> None:
        self.stop = stop
        """The reason, with its evidence."""
        self.turn = turn
        """The model response that was cut: text, calls and usage as far as they came. `None`: the
        run ended between two responses.
        """
        super().__init__(f"{stop.reason.value}: {stop.detail}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.stop, self.turn)


def _error_from(value: object) -> BaseException | None:
    if value is None or isinstance(value, BaseException):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("type"), str) and isinstance(value.get("message"), str):
        return RecordedError(value["type"], value["message"])
    raise ValueError("an error is an object with 'type' and 'message'")


class _ReadBack:
    """Tells pydantic how an error is read from a record."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        reader = pydantic.PlainValidator(_error_from, json_schema_input_type=dict[str, str] | None)
        return reader.__get_pydantic_core_schema__(source, handler)


RecordableError: TypeAlias = Annotated[BaseException | None, _ReadBack()]

_WORDS: Final = {
    **dict.fromkeys(("content", "message", "output_text"), "text"),
    **dict.fromkeys(("answer", "data", "final_output", "result"), "output"),
    **dict.fromkeys(("failed", "success", "succeeded"), "ok"),
    **dict.fromkeys(("cost", "total_cost", "usd"), "cost_usd"),
    **dict.fromkeys(("finish_reason", "status", "stop_reason", "stopped"), "reason"),
    **dict.fromkeys(("input_tokens", "output_tokens", "tokens", "total_tokens"), "usage"),
}
"""What other libraries call a field of an outcome."""


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class Turn:
    """One model response, as far as it came."""

    number: int
    """1 for the first turn of the run."""
    text: str = ""
    """The visible text, all of it; of a very long one its first `keep_text_chars` code points."""
    text_chars: int = 0
    """Code points of visible text that came, whether kept or not."""
    text_truncated: bool = False
    """Whether `text` was cut, because there is more text."""
    tool_calls: tuple[ToolCall, ...] = ()
    gave: tuple[str, ...] = ()
    """The kinds of other parts that came, e.g. `image/png`, `audio`, `mcp_approval_request`. The
    parts themselves stand only in the SDK's objects.
    """
    usage: Usage = field(default_factory=Usage)
    usage_estimated: bool = False
    finish_reason: FinishReason | None = None
    """`None`: the stream stopped before the model closed its turn."""
    raw_finish_reason: str | None = None
    stopped: Stop | None = None
    """Why the turn failed, or why the run ended in it. `None`: the turn ended well."""
    loop_offset: int | None = None
    """Where in the visible text the copies of a loop begin, in code points. `None`: no loop was
    seen in the text. Put only `text[:loop_offset]` into the history: a model that reads its own
    loop continues it.
    """
    model_error: ModelError | None = None
    """The failed call, classed, if the stream failed."""
    error: RecordableError = None
    """The SDK's own exception, if the stream failed. It is not in the `repr`, because a foreign
    exception may not be printable; `stopped` names it.
    """

    def __repr__(self) -> str:
        end = self.stopped.reason if self.stopped is not None else self.finish_reason
        return f"<Turn {self.number}: {end.value if end else None}, {self.text!r:.60}, {len(self.tool_calls)} calls>"


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class Outcome(Generic[OutputT]):
    """How a run ended. Every run has one, even after an exception.

    `Outcome[Review]`: of a run whose `outputs` were declared by the class `Review`.
    """

    ok: bool
    """Success: the goal was reached, the model terminated with success, or the stream ended well.
    """
    reason: TerminateReason
    """Why the run ended."""
    detail: str
    """One sentence for people."""
    source: str
    """The part that decided it: a condition, detector or judge by name, or `provider`, `caller`,
    `abort`, `guard`.
    """
    limit: float | int | str | None = None
    """The limit that was reached, in the unit of `value`. `None`: no limit has ended the run."""
    value: float | int | str | None = None
    """The number that has reached the limit."""
    evidence: Detection | Met | None = None
    """The detection that ended the run. For a composed condition: which of its parts were true."""
    output: OutputT = None  # type: ignore[assignment] # as a type it is there
    """The declared outputs: an instance of the declared class, or a dict. `None` unless all are
    there, which `ok` and `raise_for_reason` say. For a type checker it is always there.
    """
    emitted: dict[str, Any] = field(default_factory=dict)
    """The outputs that were emitted, by name. Also set if the run failed."""
    missing: list[str] = field(default_factory=list)
    """Declared outputs that were not emitted."""
    text: str = ""
    """The visible text of the last turn, all of it; of a very long one its first `keep_text_chars`
    code points.
    """
    text_truncated: bool = False
    """Whether `text` was cut, because there is more text."""
    usage: Usage = field(default_factory=Usage)
    """The tokens of the run."""
    usage_estimated: bool = False
    """Part of `usage` is an estimate, because the provider did not report it."""
    judge_usage: Usage = field(default_factory=Usage)
    """Tokens that judges have used. They are part of `usage` only for a judge with `counts`."""
    judge_usage_estimated: bool = False
    """Part of `judge_usage` is an estimate, because the provider did not report it."""
    compaction_usage: Usage = field(default_factory=Usage)
    """Tokens that summaries of the history have used; part of `usage`."""
    cost_usd: float | None = None
    """The cost of `usage` in US dollars, by the given prices or the list prices. `None`: some of
    the tokens have no known price.
    """
    turns: int = 0
    """The number of turns."""
    elapsed_s: float = 0.0
    """Seconds from the beginning to the end of the run."""
    recovered_from: TerminateReason | None = None
    """The run was about to end for this reason, and a last turn reached the goal."""
    closed: bool = True
    """The source of the last stream is known to be closed, or ended by itself."""
    chunks_after_decision: int = 0
    """Chunks that the SDK had already buffered when the end was decided. They were read and dropped
    while closing.
    """
    closed_after_s: float | None = None
    """Seconds from the decision to the closed source. `None`: nothing had to be closed."""
    pending: tuple[ApprovalRequest, ...] = ()
    """Questions that nobody has answered yet, if the run is `paused` for them."""
    returned: tuple[SteerMessage, ...] = ()
    """Messages to the run that it has not delivered to the model, because it ended first."""
    error: RecordableError = None
    """The exception behind the reason, if there was one: the SDK's, a detector's, the caller's.
    `detail` names it, the `repr` does not: a foreign exception may not be printable.
    """
    history: tuple[Message, ...] = field(default=(), compare=False, metadata={"record": False})
    """The messages of a supervised run, as the model is shown them. Another run can begin with
    them: `supervisor.run(task, history=outcome.history)`.
    """

    def __repr__(self) -> str:
        how = "ok" if self.ok else "failed"
        return f"<Outcome {how}, {self.reason.value}: {self.detail} ({self.turns} turns, {self.elapsed_s:.3g} s)>"

    def __bool__(self) -> NoReturn:
        """An outcome has no truth value: one that failed is there as well."""
        raise ConfigError("an outcome is neither true nor false: write if outcome.ok, or if outcome is not None")

    if not TYPE_CHECKING:  # type checkers know the fields

        def __getattr__(self, name: str) -> Any:
            right = _WORDS.get(name)
            hint = f"; write outcome.{right}" if right else did_you_mean(name, self.__slots__)
            raise AttributeError(f"an Outcome has no {name!r}{hint}")

    def raise_for_reason(self) -> Outcome[OutputT]:
        """Return this outcome if `ok`; else raise `RunFailed`, from `error` if there is one."""
        if not self.ok:
            raise RunFailed(self) from self.error
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data. `Outcome.from_dict` is the inverse; an exception comes back as
        `RecordedError`.
        """
        return outcome_codec.to_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Outcome:
        """The outcome that `to_dict` was called on."""
        return outcome_codec.from_dict(data)


TurnDraft: Any = draft_of(Turn)
OutcomeDraft: Any = draft_of(Outcome)

outcome_codec: Codec[Outcome] = Codec(Outcome)
"""The JSON form of an outcome."""
turn_codec: Codec[Turn] = Codec(Turn)
"""The JSON form of a turn."""


def is_success(stop: Stop) -> bool:
    """Whether a run that ends by `stop` has done what it was for."""
    return stop.reason in SUCCESSES or (stop.reason is TerminateReason.TERMINATED and stop.value == "success")


# --------------------------------------------------------------------------------------------------
# The run as numbers: what conditions and policies examine.


Phase: TypeAlias = Literal["before_call", "streaming", "after_call"]
"""Where in a turn the run is."""


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class RunState:
    """One moment of a run. Times are seconds since the run began."""

    elapsed_s: float = 0.0
    phase: Phase = "before_call"
    """`before_call`: the next model call would start now. `streaming`: a stream is being read.
    `after_call`: tools may be running.
    """
    turns: int = 0
    """Turns started. A turn whose stream failed counts again only when its retry has started."""
    model_calls: int = 0
    """Streams opened."""
    tool_calls: int = 0
    """Tool calls that the model has completed writing."""
    consecutive_errors: int = 0
    """Turns and attempts in a row that failed: the model call failed, or a tool did and none
    succeeded.
    """
    usage: Usage = field(default_factory=Usage)
    """Tokens of all turns together. The running turn counts by its latest report plus an estimate
    of what came since.
    """
    usage_estimated: bool = False
    """Whether part of `usage` is an estimate, because the provider has not reported it (yet)."""
    stream_started_s: float | None = None
    """When the running stream was first read. `None`: no stream is running."""
    first_chunk_seen: bool = False
    """Whether the running stream has delivered its first chunk."""
    waiting_since_s: float | None = None
    """When the pending read of the stream began. `None`: no read is pending."""
    cost_usd: float | None = 0.0
    """The cost of `usage` in US dollars, by the prices of the run or the list prices. `None`: some
    of the tokens have no known price.
    """
    paused_s: float = 0.0
    """Seconds during which a person was asked, including a pause that is not over."""
    paused: bool = False
    """Whether a person is being asked now."""
    retry_delay_s: float = 0.0
    """Seconds spent waiting before another attempt, because a provider failed or asked for it."""
    tools_called: tuple[str, ...] = ()
    """Names of the tools that have answered, each once."""
    missing_outputs: tuple[str, ...] | None = None
    """Declared outputs that are not emitted yet. `None`: no outputs are declared."""
    plan_done: bool | None = None
    """Whether no step of the plan is left to do. `None`: there is no plan."""
    task_done: bool | None = None
    """The judge's latest answer. `None`: the judge has not answered yet."""


StateDraft: Any = draft_of(RunState)

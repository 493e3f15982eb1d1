"""Limits on what a run may use. Each means "at most n": whatever would exceed n ends the run."""

from __future__ import annotations

import inspect
import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from monitor._util.argument_checks import ROUNDING_USD, is_finite, signature_of
from monitor._util.explained_options import explained
from monitor.conditions.condition import AllOf, AnyOf, Condition
from monitor.errors import ConfigError, TerminateReason
from monitor.outcome import RunState
from monitor.verdicts import Met, Stop


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise ConfigError(
            f"{name} must be a whole number of at least 1, not {value!r}; leave the condition out for no limit"
        )


def _done(number: int, what: str) -> str:
    return f"1 {what} is done" if number == 1 else f"{number} {what}s are done"


@explained(example="monitor.MaxTurns(30)", words={"max_turns": "turns"})
@dataclass(frozen=True)
class MaxTurns(Condition):
    """Ends the run before it begins more than `turns` turns.

    Raises `ConfigError` for anything but a whole number of at least 1.
    """

    turns: int
    """The largest number of turns that is allowed."""

    def __post_init__(self) -> None:
        _at_least_one("MaxTurns.turns", self.turns)

    def evaluate(self, state: RunState) -> Stop | None:
        if state.phase != "before_call" or state.turns < self.turns:
            return None
        detail = f"{_done(state.turns, 'turn')}, the limit is {self.turns}"
        return Stop(TerminateReason.MAX_TURNS, detail, self.name, self.turns, state.turns)

    def progress(self, state: RunState) -> Sequence[Met]:
        return (Met(self.name, met=self.evaluate(state) is not None, value=state.turns, limit=self.turns),)


@explained(example="monitor.MaxModelCalls(30)")
@dataclass(frozen=True)
class MaxModelCalls(Condition):
    """Ends the run before it makes more than `calls` model calls, retries included.

    Raises `ConfigError` for anything but a whole number of at least 1.
    """

    calls: int
    """The largest number of calls that is allowed."""

    def __post_init__(self) -> None:
        _at_least_one("MaxModelCalls.calls", self.calls)

    def evaluate(self, state: RunState) -> Stop | None:
        if state.phase != "before_call" or state.model_calls < self.calls:
            return None
        detail = f"{_done(state.model_calls, 'model call')}, the limit is {self.calls}"
        return Stop(TerminateReason.MODEL_CALL_LIMIT, detail, self.name, self.calls, state.model_calls)

    def progress(self, state: RunState) -> Sequence[Met]:
        return (Met(self.name, met=self.evaluate(state) is not None, value=state.model_calls, limit=self.calls),)


@explained(example="monitor.MaxToolCalls(100)")
@dataclass(frozen=True)
class MaxToolCalls(Condition):
    """Ends the run at the tool call that is more than `calls`. That call is seen in the stream,
    before it is carried out.

    Raises `ConfigError` for anything but a whole number of at least 1.
    """

    calls: int
    """The largest number of calls that is allowed."""

    def __post_init__(self) -> None:
        _at_least_one("MaxToolCalls.calls", self.calls)

    def evaluate(self, state: RunState) -> Stop | None:
        if state.tool_calls <= self.calls:
            return None
        detail = f"the model asked for tool call {state.tool_calls}, the limit is {self.calls}"
        return Stop(TerminateReason.TOOL_CALL_LIMIT, detail, self.name, self.calls, state.tool_calls)

    def progress(self, state: RunState) -> Sequence[Met]:
        return (Met(self.name, met=self.evaluate(state) is not None, value=state.tool_calls, limit=self.calls),)


@explained(example="monitor.MaxConsecutiveErrors(3)")
@dataclass(frozen=True)
class MaxConsecutiveErrors(Condition):
    """Ends the run after more than `errors` errors in a row, of model calls or of tools. A success
    starts the count anew.

    Tools of one turn that fail together are one error, because the model has not read about the
    first yet. If one of them succeeds, they are none. The default of 3 is common, e.g. in
    Microsoft's agent framework.
    """

    errors: int = 3
    """The largest number of errors in a row that is allowed."""

    def __post_init__(self) -> None:
        _at_least_one("MaxConsecutiveErrors.errors", self.errors)

    def evaluate(self, state: RunState) -> Stop | None:
        if state.consecutive_errors <= self.errors:
            return None
        detail = f"{state.consecutive_errors} errors came in a row, the limit is {self.errors}"
        return Stop(TerminateReason.CONSECUTIVE_ERRORS, detail, self.name, self.errors, state.consecutive_errors)


@explained(example="monitor.TokenLimit(200_000)", words={"tokens": "total_tokens", "max_tokens": "total_tokens"})
@dataclass(frozen=True)
class TokenLimit(Condition):
    """Ends the run when it has used more tokens than it may: in total, of input, or of output.

    Output includes reasoning. Raises `ConfigError` without a limit.

    While a stream runs, unreported tokens count by an estimate; the provider's report makes the
    number exact.
    """

    total_tokens: int | None = None
    """Tokens of input and output together. `None`: no limit."""
    input_tokens: int | None = field(default=None, kw_only=True)
    """Tokens of input. `None`: no limit."""
    output_tokens: int | None = field(default=None, kw_only=True)
    """Tokens of output, with reasoning. `None`: no limit."""

    _limits: tuple[tuple[str, int], ...] = field(init=False, repr=False, compare=False)
    """The given ones by name: they are read at every look."""

    def __post_init__(self) -> None:
        given = (
            ("total_tokens", self.total_tokens),
            ("input_tokens", self.input_tokens),
            ("output_tokens", self.output_tokens),
        )
        object.__setattr__(self, "_limits", tuple((name, limit) for name, limit in given if limit is not None))
        if not self._limits:
            raise ConfigError("TokenLimit needs total_tokens, input_tokens or output_tokens")
        for name, value in self._limits:
            _at_least_one(f"TokenLimit.{name}", value)

    def evaluate(self, state: RunState) -> Stop | None:
        for name, limit in self._limits:
            value: int = getattr(state.usage, name)
            if value > limit:
                about = "about " if state.usage_estimated else ""
                kind = name.removesuffix("_tokens")
                detail = f"{about}{value} tokens ({kind}) are used, the limit is {limit}"
                return Stop(TerminateReason.TOKEN_LIMIT, detail, self.name, limit, value)
        return None

    def token_headroom(self, state: RunState) -> int | None:
        room = [limit - getattr(state.usage, name) for name, limit in self._limits if name != "input_tokens"]
        return max(0, min(room)) if room else None

    def progress(self, state: RunState) -> Sequence[Met]:
        used, own = state.usage, self.name
        return [
            Met(f"{own}.{name}", (value := getattr(used, name)) > limit, value, limit) for name, limit in self._limits
        ]


@explained(example="monitor.CostLimit(2.0)")
@dataclass(frozen=True)
class CostLimit(Condition):
    """Ends the run when it has cost more than `usd` US dollars. The prices of the run count, else
    the list price of its model. Without a known price, the run raises `ConfigError` at once.

    While a stream runs, unreported tokens count by an estimate; the provider's report makes the
    number exact.
    """

    usd: float
    """US dollars."""

    def __post_init__(self) -> None:
        if self.usd <= 0 or not is_finite(self.usd):
            raise ConfigError(
                f"CostLimit.usd must be a finite number above 0, not {self.usd!r}; leave the condition out for no limit"
            )

    def evaluate(self, state: RunState) -> Stop | None:
        if state.cost_usd is None or state.cost_usd <= self.usd + ROUNDING_USD:
            return None
        about = "about " if state.usage_estimated else ""
        detail = f"{about}{state.cost_usd:.4g} USD are spent, the limit is {self.usd:g} USD"
        return Stop(TerminateReason.COST_LIMIT, detail, self.name, self.usd, state.cost_usd)

    def cost_headroom(self, state: RunState) -> float | None:
        return None if state.cost_usd is None else max(0.0, self.usd - state.cost_usd)

    def progress(self, state: RunState) -> Sequence[Met]:
        return (Met(self.name, met=self.evaluate(state) is not None, value=state.cost_usd, limit=self.usd),)


@dataclass(frozen=True)
class DefaultLimits(AnyOf):
    """The limits of a run without limits of the caller's. A stop by them is named as the
    default.
    """

    def evaluate(self, state: RunState) -> Stop | None:
        stop = AnyOf.evaluate(self, state)
        said = "the default of a run that is given no limit; stop_when= sets another"
        return stop and replace(stop, source=f"default {stop.source}", detail=f"{stop.detail}, {said}")


# --------------------------------------------------------------------------------------------------
# Limits on time. They read no clock: the harness passes the time in, and sleeps until
# `deadline(state)`.

ROUNDING_S = 1e-6
"""Tolerance: a deadline counts as reached within a microsecond, because times are differences of
large floats.
"""


@dataclass(frozen=True)
class _Timed(Condition):
    """True from `_due(state)` on. While a person is asked, time stands still and no deadline comes
    closer.
    """

    seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.seconds <= sys.float_info.max:
            name = type(self).__name__
            raise ConfigError(
                f"{name} takes a finite number of seconds that is not negative, not {self.seconds!r}: write"
                f" monitor.{name}(300), or leave the condition out for no limit"
            )

    @abstractmethod
    def _due(self, state: RunState) -> float | None:
        """When the condition becomes true, in seconds since the run began. `None`: its time does
        not run.
        """

    @abstractmethod
    def _stop(self, state: RunState) -> Stop: ...

    def deadline(self, state: RunState) -> float | None:
        return None if state.paused else self._due(state)

    def evaluate(self, state: RunState) -> Stop | None:
        due = self._due(state)
        return None if due is None or state.elapsed_s < due - ROUNDING_S else self._stop(state)


@explained(example="monitor.Timeout(300)", words={"timeout": "seconds", "timeout_s": "seconds"})
@dataclass(frozen=True)
class Timeout(_Timed):
    """Limit on the whole run, in seconds: opening, streaming, tools and the caller's own time
    between turns.

    Time in which a person is asked does not count. `exclude_retry_delays`: waits before another
    attempt do not count either.
    """

    exclude_retry_delays: bool = field(default=False, kw_only=True)
    """Whether waits before another attempt do not count."""

    def _excluded(self, state: RunState) -> float:
        return state.paused_s + state.retry_delay_s if self.exclude_retry_delays else state.paused_s

    def _due(self, state: RunState) -> float | None:
        return self.seconds + self._excluded(state)

    def _stop(self, state: RunState) -> Stop:
        excluded_s = self._excluded(state)
        active_s = state.elapsed_s - excluded_s
        apart = f" ({excluded_s:.3g} s of waiting do not count)" if excluded_s else ""
        detail = f"the run took {active_s:.3g} s{apart}, the limit is {self.seconds:g} s"
        return Stop(TerminateReason.TIMEOUT, detail, self.name, self.seconds, active_s)

    def progress(self, state: RunState) -> Sequence[Met]:
        active_s = max(0.0, state.elapsed_s - self._excluded(state))
        return (Met(self.name, active_s >= self.seconds - ROUNDING_S, active_s, self.seconds),)


@explained(example="monitor.IdleTimeout(300)", words={"timeout": "seconds", "timeout_s": "seconds"})
@dataclass(frozen=True)
class IdleTimeout(_Timed):
    """Ends the run when the provider is silent for `seconds`. The caller's own time between chunks
    does not count.
    """

    def _due(self, state: RunState) -> float | None:
        return None if state.waiting_since_s is None or state.paused else state.waiting_since_s + self.seconds

    def _stop(self, state: RunState) -> Stop:
        idle_s = state.elapsed_s - (state.waiting_since_s or 0.0)
        detail = f"the provider sent nothing for {idle_s:.3g} s, the limit is {self.seconds:g} s"
        return Stop(TerminateReason.IDLE_TIMEOUT, detail, self.name, self.seconds, idle_s)


@explained(example="monitor.FirstChunkTimeout(300)", words={"timeout": "seconds", "timeout_s": "seconds"})
@dataclass(frozen=True)
class FirstChunkTimeout(_Timed):
    """Ends the run when a stream has delivered no first chunk after `seconds`. They include opening
    the stream and the SDK's own retries.
    """

    def _due(self, state: RunState) -> float | None:
        if state.stream_started_s is None or state.first_chunk_seen or state.paused:
            return None
        return state.stream_started_s + self.seconds

    def _stop(self, state: RunState) -> Stop:
        waited_s = state.elapsed_s - (state.stream_started_s or 0.0)
        detail = f"no first chunk after {waited_s:.3g} s, the limit is {self.seconds:g} s"
        return Stop(TerminateReason.IDLE_TIMEOUT, detail, self.name, self.seconds, waited_s)


def silence_limits(condition: Condition | None) -> Condition | None:
    """The part of `condition` that limits silence: `IdleTimeout`, `FirstChunkTimeout`, and
    conditions joined to one of them by `&`. `None`: there is no such part.
    """
    match condition:
        case IdleTimeout() | FirstChunkTimeout():
            return condition
        case AllOf(parts):
            return condition if any(silence_limits(part) is not None for part in parts) else None
        case AnyOf(parts):
            kept = tuple(limit for part in parts if (limit := silence_limits(part)) is not None)
            return AnyOf(kept) if len(kept) > 1 else next(iter(kept), None)
        case _:
            return None


# --------------------------------------------------------------------------------------------------
# Conditions on facts of the run.


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _checked(reason: object, whose: str) -> TerminateReason:
    if not isinstance(reason, str) or reason not in set(TerminateReason):
        raise ConfigError(f"{whose} takes a TerminateReason as its reason, not {reason!r}")
    return TerminateReason(reason)


@dataclass(frozen=True)
class Predicate(Condition):
    """The caller's own function of the `RunState`. Called at the transitions of a run (turns, tool
    calls, results, usage), not at every chunk.

    It has no JSON form, and is picklable only if `fn` is.
    """

    fn: Callable[[RunState], bool]
    reason: TerminateReason = field(default=TerminateReason.CONDITION_MET, kw_only=True)
    label: str | None = field(default=None, init=False, repr=False)

    def __init__(
        self,
        fn: Callable[[RunState], bool],
        *,
        reason: TerminateReason | str = TerminateReason.CONDITION_MET,
        name: str | None = None,
    ) -> None:
        if not callable(fn):
            raise ConfigError(
                f"Predicate takes a function of the run's state: write monitor.Predicate(lambda state: ...), not {fn!r}"
            )
        if inspect.iscoroutinefunction(fn):
            raise ConfigError(f"Predicate takes a plain function, and {fn!r} is asynchronous")
        try:
            signature_of(fn).bind(None)
        except TypeError:
            raise ConfigError(
                f"Predicate takes a function of the run's state: write monitor.Predicate(lambda state: ...), not {fn!r}"
            ) from None
        except ValueError:  # a function in C may not say
            pass
        object.__setattr__(self, "fn", fn)
        object.__setattr__(self, "reason", _checked(reason, "Predicate"))
        object.__setattr__(self, "label", name or getattr(fn, "__name__", None))

    @property
    def name(self) -> str:
        return self.label or "predicate"

    def evaluate(self, state: RunState) -> Stop | None:
        return Stop(self.reason, f"{self.name} is true", self.name) if self.fn(state) else None

    def to_dict(self) -> dict[str, Any]:
        raise ConfigError(f"Predicate {self.name!r} holds a Python function and has no JSON form")


@dataclass(frozen=True)
class ToolCalled(Condition):
    """The tool `tool` has answered, with or without an error. Checked after each result."""

    tool: str
    """The name of the tool."""
    reason: TerminateReason = field(default=TerminateReason.CONDITION_MET, kw_only=True)
    """The reason with which the run ends."""

    if TYPE_CHECKING:  # the reason may be given as a text

        def __init__(self, tool: str, *, reason: TerminateReason | str = TerminateReason.CONDITION_MET) -> None: ...

    def __post_init__(self) -> None:
        if not _is_name(self.tool):
            name = getattr(self.tool, "__name__", None) or "search"
            raise ConfigError(
                f"ToolCalled takes the name of a tool, not {self.tool!r:.60}:"
                f" write monitor.conditions.ToolCalled({name!r})"
            )
        object.__setattr__(self, "reason", _checked(self.reason, "ToolCalled"))

    def evaluate(self, state: RunState) -> Stop | None:
        if self.tool not in state.tools_called:
            return None
        return Stop(self.reason, f"tool {self.tool!r} was called", self.name, value=self.tool)


@dataclass(frozen=True)
class OutputsComplete(Condition):
    """All declared outputs are emitted. Never true of a run that declares none."""

    def evaluate(self, state: RunState) -> Stop | None:
        if state.missing_outputs is None or state.missing_outputs:
            return None
        return Stop(TerminateReason.GOAL, "all declared outputs are emitted", self.name)


@dataclass(frozen=True)
class PlanComplete(Condition):
    """No step of the plan is left to do. Never true of a run without a plan."""

    def evaluate(self, state: RunState) -> Stop | None:
        return Stop(TerminateReason.GOAL, "no step of the plan is left to do", self.name) if state.plan_done else None


@dataclass(frozen=True)
class TaskDone(Condition):
    """A judge said that the task is done. Never true of a run without a judge."""

    def evaluate(self, state: RunState) -> Stop | None:
        return (
            Stop(TerminateReason.GOAL, "the judge said that the task is done", self.name) if state.task_done else None
        )

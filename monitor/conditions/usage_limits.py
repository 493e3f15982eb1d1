"""Limits on what a run may use. Each means "at most n": whatever would exceed n ends the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from monitor._util.argument_checks import ROUNDING_USD, is_finite
from monitor._util.explained_options import explained
from monitor.conditions.condition import AnyOf, Condition
from monitor.errors import ConfigError
from monitor.reasons import TerminateReason
from monitor.state import RunState
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

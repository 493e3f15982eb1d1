"""The options of a guard and of a supervisor: their checks, and their names in other libraries. And
the end of a run whose block is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from os import PathLike, fspath
from typing import Any, Final, TypedDict

from monitor import conditions
from monitor._util.argument_checks import check_part, is_finite, is_whole
from monitor._util.codec import tag_of
from monitor.budget import Budget
from monitor.chunks import Price
from monitor.conditions import Condition, CostLimit, OutputsComplete, PlanComplete, TaskDone
from monitor.conditions.condition import leaves
from monitor.context.window import Window
from monitor.detectors.detector import Detector
from monitor.errors import ConfigError, TerminateReason, describe
from monitor.guard.streams.wait import Clock, SystemClock, cancelled_types
from monitor.judges.judge import GivenJudges, Judge
from monitor.models import Model
from monitor.policy import Policy
from monitor.sinks.base import Sink
from monitor.verdicts import Stop

KEEP_TEXT_CHARS = 1_000_000
"""How much text of a turn is kept, in code points. No model answers as much, so only a flood is
cut, which would fill the memory.
"""

CLOSE_GRACE_S = 2.0
"""How long closing a source may take, in seconds. Real SDKs take below a millisecond."""


def ending_by(error: BaseException | None) -> Stop | None:
    """The end of a run whose block is left by `error`, if nothing was decided before."""
    if error is None:
        return None
    cancelled = cancelled_types()  # a task may be destroyed with its event loop
    # On trio a cancellation that passes through a nursery arrives in an exception group.
    if isinstance(error, cancelled) or (isinstance(error, BaseExceptionGroup) and error.split(cancelled)[1] is None):
        return Stop(TerminateReason.CANCELLED, "a cancellation went through the run", "caller")
    if isinstance(error, GeneratorExit):
        return Stop(TerminateReason.CLOSED_BY_CALLER, "the generator around the run was closed", "caller")
    return Stop(TerminateReason.ERROR, describe(error), "caller")


def must_know_price(
    price: Price | None, stop_when: Condition | None, budget: Budget | None, model: str, give: str
) -> None:
    """Raise `ConfigError` for a limit in US dollars without a known price."""
    in_usd: list[object] = (
        [part for part in leaves(stop_when) if _is_in_usd(type(part))] if stop_when is not None else []
    )
    in_usd += [part for part in (budget.chain if budget is not None else ()) if part.usd is not None]
    if in_usd and price is None:
        raise ConfigError(f"{in_usd[0]!r} needs to know what {model} costs: give {give}")


OWN_MODEL: Final = "own model"
"""As a judge: the model of the run, through the same client."""


def checked_judges(
    given: GivenJudges, stop_when: Condition | None, *, outputs: bool, plan: bool, own: Model | None = None
) -> tuple[Judge, ...]:
    """The judges of a run. `outputs`, `plan`: whether the run has outputs, and a plan. `own`: the
    model of the run, if that is known.

    Raises `ConfigError` for what is no judge, and for a condition that nothing can make true.
    """
    judges = _judges_of(given, own) if given is not None else ()
    for part in leaves(stop_when) if stop_when is not None else ():
        if isinstance(part, TaskDone) and not any(judge.fact == "done" for judge in judges):
            raise ConfigError("TaskDone needs a judge that says when: write judge=monitor.judges.DoneJudge(model)")
        if isinstance(part, OutputsComplete) and not outputs:
            raise ConfigError("OutputsComplete needs declared outputs: write outputs={'summary': str}")
        if isinstance(part, PlanComplete) and not plan:
            raise ConfigError(
                "PlanComplete needs the plan of a supervisor: write monitor.Supervisor(model,"
                " plan=monitor.Plan(['look', 'mend', 'test']))"
            )
    return judges


def _judges_of(given: GivenJudges, own: Model | None) -> tuple[Judge, ...]:
    # only a run with a judge needs these
    from monitor.adapters.model_names import model  # noqa: PLC0415
    from monitor.judges.loop import as_judges  # noqa: PLC0415

    if given == OWN_MODEL and not getattr(own, "can_judge", True):
        return ()
    return as_judges(given, lambda name: own if name == OWN_MODEL and own is not None else model(name))


@cache
def _is_in_usd(kind: type) -> bool:
    return issubclass(kind, CostLimit)


def check_session(session: object, method: str) -> Any:
    """`session`. Raises `ConfigError` for a path, and for an object without `method`."""
    if isinstance(session, str | PathLike):
        path = fspath(session)
        raise ConfigError(
            f"session takes an open session, not the path {path!r}: write async with"
            f" monitor.sessions.SQLiteSession({path!r}) as session: ... session=session"
        )
    check_part("session", session, method)
    return session


def check_bounds(keep_text_chars: int | None, close_grace_s: float | None, max_nudges: int | None) -> None:
    """Raise `ConfigError` for a bound that is out of range."""
    if keep_text_chars is not None and not (is_whole(keep_text_chars) and keep_text_chars >= 0):
        raise ConfigError(
            f"keep_text_chars is {keep_text_chars!r}; give a whole number, or None to keep all of the text"
        )
    if close_grace_s is not None and not (is_finite(close_grace_s) and close_grace_s > 0):
        raise ConfigError(f"close_grace_s is {close_grace_s!r}; give seconds above 0, or None for no bound")
    if max_nudges is not None and not (is_whole(max_nudges) and max_nudges >= 0):
        raise ConfigError(f"max_nudges is {max_nudges!r}; give 0 or more, or None for no bound")


_SYSTEM_CLOCK = SystemClock()


def clock_of(given: Clock | None) -> Clock:
    """`given`, checked. `None`: the system's clock."""
    if given is None:
        return _SYSTEM_CLOCK
    check_part("clock", given, "call_at")
    return given


# --------------------------------------------------------------------------------------------------
# The options of other libraries, in the words of this one: `max_turns=30` is
# `stop_when=monitor.MaxTurns(30)` here.

WORDS: Final = {
    "system": "instructions",
    "system_prompt": "instructions",
    "system_message": "instructions",
    "system_instruction": "instructions",
    "prompt": "instructions",
    "output_type": "outputs",
    "output_schema": "outputs",
    "response_format": "outputs",
    "response_model": "outputs",
    "result_type": "outputs",
    "name": "agent",
    "functions": "tools",
    "toolsets": "tools",
    "messages": "history",
    "message_history": "history",
    "chat_history": "history",
    "callbacks": "sinks",
    "handlers": "sinks",
    "memory": "session",
    "checkpointer": "session",
    "llm": "model",
    "limits": "stop_when",
    "usage_limits": "stop_when",
    "termination_condition": "stop_when",
    "price": "prices",
    "condition": "stop_when",
    "dependencies": "deps",
}
"""The name of an option elsewhere, and here."""

CONDITION_WORDS: Final = {
    "max_iterations": "MaxTurns",
    "max_iters": "MaxTurns",
    "max_steps": "MaxTurns",
    "recursion_limit": "MaxTurns",
    "request_limit": "MaxModelCalls",
    "timeout_s": "Timeout",
    "timeout_seconds": "Timeout",
    "max_time": "Timeout",
    "max_execution_time": "Timeout",
    "idle_timeout_s": "IdleTimeout",
    "max_cost": "CostLimit",
    "max_usd": "CostLimit",
    "max_budget_usd": "CostLimit",
    "max_total_tokens": "TokenLimit",
    "total_tokens_limit": "TokenLimit",
}
"""The name of a limit elsewhere, and of the condition here."""

MODEL_SETTINGS: Final = frozenset(
    {
        *("frequency_penalty", "max_completion_tokens", "max_output_tokens", "max_tokens", "presence_penalty"),
        *(
            "reasoning",
            "reasoning_effort",
            "seed",
            "stop",
            "stop_sequences",
            "temperature",
            "thinking",
            "top_k",
            "top_p",
        ),
    }
)
"""Options that are the model's."""

OF_SUPERVISOR: Final = {
    **{
        name: f"{name}=..."
        for name in ("compaction", "history", "instructions", "model", "plan", "session", "tools", "calls", "requests")
    },
    **{name: f"calls=monitor.runs.ToolCalls({name}=...)" for name in ("approval", "approver")},
    "model_settings": "requests=monitor.runs.Requests(settings=...)",
    "retries": "requests=monitor.runs.Requests(retries=...)",
}
"""Options of a `Supervisor` that a guard does not have, because the loop is the caller's, and how
they are written.
"""


def line_for(owner: str, option: str, value: object) -> str | None:
    """The line to write in place of `option` of `owner`. `None`: the option is not known here."""
    if condition := CONDITION_WORDS.get(option) or _conditions().get(option):
        return f"write stop_when=monitor.{condition}({value!r})"
    if option in MODEL_SETTINGS:
        if owner == "Supervisor":
            return f"it is the model's; write requests=monitor.runs.Requests(settings={{{option!r}: {value!r}}})"
        return f"it is the model's; pass {option}={value!r} to your own call of the model"
    right = WORDS.get(option, option)
    if right in OF_SUPERVISOR:
        return (
            f"the loop and its calls are yours; a loop that has it is monitor.Supervisor(model, {OF_SUPERVISOR[right]})"
        )
    return None


def of_the_supervisor(_owner: str, option: str, value: object) -> str | None:
    """The line to write in place of `option` of a supervisor's method. `None`: it is not known."""
    _, found, right = (line_for("Supervisor", option, value) or "").rpartition("write ")
    if not found:
        word = WORDS.get(option, option)
        if word not in OF_SUPERVISOR and word not in WORDS.values():
            return None
        right = OF_SUPERVISOR.get(word, f"{word}=...")
    return f"it is an option of the supervisor; write monitor.Supervisor(model, {right})"


def _conditions() -> dict[str, str]:
    """The names of the public conditions, by their names as options."""
    kinds = [getattr(conditions, name) for name in dir(conditions)]
    return {tag_of(kind): kind.__name__ for kind in kinds if isinstance(kind, type)}


# --------------------------------------------------------------------------------------------------
# The options of a guard, for type checkers.


class SharedOptions(TypedDict, total=False):
    """The options that a `Guard` and a `Supervisor` have in common, for type checkers."""

    agent: str
    stop_when: Condition | None
    detectors: Sequence[Detector] | None
    policy: Policy | None
    judge: GivenJudges
    window: Window | int | None
    sinks: Sequence[Sink]
    clock: Clock | None
    close_grace_s: float | None


class GuardOptions(SharedOptions, total=False):
    """The options of a `Guard` but `outputs`, for type checkers: both of its signatures take them.
    `Guard` documents them.
    """

    task: str | None
    max_nudges: int | None
    budget: Budget | None
    prices: Price | str | None
    keep_text_chars: int | None

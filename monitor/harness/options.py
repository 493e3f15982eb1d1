"""What a run is to do, checked: everything that a `Supervisor` is given, as the run needs it. What
makes no sense is said at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from monitor._util.checks import check_part, check_parts, is_finite
from monitor.budget import Budget
from monitor.calls import CallLedger
from monitor.conditions import Condition
from monitor.context.raw import RawMessage
from monitor.context.window import Window, window_of
from monitor.core.reply import LoopedText
from monitor.detectors.base import Detector
from monitor.errors import ConfigError
from monitor.goal.goal import MAX_NUDGES, preflight
from monitor.goal.instructions import render, run_instructions
from monitor.goal.outputs import Outputs
from monitor.goal.plan import Plan
from monitor.harness.checks import (
    CLOSE_GRACE_S,
    KEEP_TEXT_CHARS,
    CallOptions,
    Offer,
    check_bounds,
    clock_of,
    must_know_price,
)
from monitor.harness.compaction import DEFAULT, Compaction
from monitor.harness.outgoing import Given, form_of, take_in
from monitor.harness.streams.clock import Clock
from monitor.judges.base import Judge, as_judges
from monitor.messages import Message
from monitor.models import Model, Retries, ToolChoice
from monitor.policy import Ladder, Policy
from monitor.sinks.base import EventSink
from monitor.tools.approval import Approval, Approver, AskFunction, Mode, approval_of
from monitor.tools.base import Tool
from monitor.tools.registry import Registry, Toolset
from monitor.tools.scheduler import MAX_PARALLEL
from monitor.usage import Price, price_of
from monitor.verdicts import LastTurn

_DEFAULT: Any = object()


class RunOptions:
    """The parts of a `Supervisor`, which says what they are. Raises `ConfigError` for what makes no
    sense.
    """

    def __init__(
        self,
        model: Model,
        *,
        instructions: str | None = None,
        variables: Mapping[str, object] | None = None,
        tools: Sequence[Callable[..., Any] | Tool | Toolset] = (),
        tool_choice: ToolChoice = "auto",
        max_parallel_tools: int = MAX_PARALLEL,
        ledger: CallLedger | None = None,
        approval: Approval | Mode | None = None,
        approver: Approver | AskFunction | None = None,
        offer: Offer | None = None,
        artifacts: Any = None,
        outputs: Mapping[str, Any] | type | None = None,
        stop_when: Condition | None = _DEFAULT,
        budget: Budget | None = None,
        prices: Mapping[str, Price] | Price | None = None,
        detectors: Sequence[Detector] | None = _DEFAULT,
        judge: Judge | Sequence[Judge] | None = None,
        policy: Policy | None = None,
        plan: Plan | None = None,
        last_turn: LastTurn | None = _DEFAULT,
        max_nudges: int | None = MAX_NUDGES,
        retries: Retries | None = _DEFAULT,
        looped_text: LoopedText = "trim",
        model_settings: Mapping[str, Any] | None = None,
        window: Window | int | None = None,
        compaction: Compaction | None = _DEFAULT,
        history: Sequence[RawMessage | Message] = (),
        sinks: Sequence[EventSink] = (),
        clock: Clock | None = None,
        keep_text_chars: int | None = KEEP_TEXT_CHARS,
        close_grace_s: float | None = CLOSE_GRACE_S,
    ) -> None:
        if isinstance(model, str):
            raise ConfigError(f"model: {model!r} is a name; write monitor.model({model!r})")
        check_part("model", model, "stream")
        self.limits_given = stop_when is not _DEFAULT
        """`stop_when` was said, if only as `None`, which is off."""
        self.stop_when = stop_when = _checked_condition(stop_when)
        if budget is not None and not isinstance(budget, Budget):
            raise ConfigError(f"budget takes a monitor.Budget, not {budget!r}")
        if policy is not None:
            check_part("policy", policy, "decide")
        if plan is not None and not isinstance(plan, Plan):
            raise ConfigError(f"plan takes a monitor.Plan, not {plan!r}")
        if retries is not _DEFAULT and not isinstance(retries, Retries | None):
            raise ConfigError(f"retries takes a monitor.Retries, not {retries!r}")
        _check_choice("tool_choice", tool_choice, get_args(ToolChoice))
        _check_choice("looped_text", looped_text, get_args(LoopedText))
        check_bounds(keep_text_chars, close_grace_s, max_nudges)
        if model_settings is not None and not isinstance(model_settings, Mapping):
            raise ConfigError(f"model_settings takes a dict, not {model_settings!r}")
        if last_turn is _DEFAULT:
            last_turn = LastTurn()
        _check_last_turn(last_turn)
        self.model = model
        self.form = form_of(model)
        self.outputs = Outputs(outputs) if outputs is not None else None
        self.plan = plan
        self.tools = Registry(tools)
        self.calls = CallOptions(max_parallel_tools, ledger, approval_of(approval), approver, offer, artifacts)
        self.prices = prices
        self.price = price_of(prices, model.name)
        preflight(self.outputs, plan, self.tools, tool_choice)
        must_know_price(self.price, stop_when, budget, model.name, f"prices={{{model.name!r}: monitor.Price(...)}}")
        self.tool_choice: ToolChoice = tool_choice
        self._said = render(instructions, variables or {}) if instructions is not None else None
        self.given = self.taken_in(history)
        self.budget = budget
        self.detectors = None if detectors is _DEFAULT else check_parts("detectors", detectors or (), "observe")
        self.judges = as_judges(judge)
        self.policy = policy or Ladder()
        self.last_turn = last_turn
        self.max_nudges = max_nudges
        self.retries = Retries() if retries is _DEFAULT else retries or Retries(0)
        self.looped_text: LoopedText = looped_text
        self.model_settings = dict(model_settings or {})
        self.window = window_of(model.name, config=window)
        self.compaction = _checked_compaction(compaction)
        self.sinks = check_parts("sinks", sinks, "emit")
        self.clock = clock_of(clock)
        self.keep_text_chars = keep_text_chars
        self.close_grace_s = float("inf") if close_grace_s is None else close_grace_s

    def taken_in(self, history: Sequence[RawMessage | Message]) -> Given:
        """`history`, put in order, and the instructions of a run that begins with it. Raises
        `ConfigError` for what is none.
        """
        given = take_in(history, self.form, self._said)
        has_tools = self.tool_choice != "none"
        return replace(
            given, instructions=run_instructions(given.instructions, self.outputs, self.plan, has_tools=has_tools)
        )


RunOptions.__init__.__qualname__ = "Supervisor.__init__"  # as Python calls it where an argument is wrong


def _check_choice(name: str, given: object, known: Sequence[str]) -> None:
    if given not in known:
        raise ConfigError(f"{name} is one of {', '.join(map(repr, known))}, not {given!r}")


def _checked_condition(given: Condition | None) -> Condition | None:
    if given is _DEFAULT or given is None:
        return None
    if not isinstance(given, Condition):
        raise ConfigError(f"stop_when takes a condition such as monitor.MaxTurns(30), not {given!r}")
    return given


def _checked_compaction(given: object) -> Compaction | None:
    if given is _DEFAULT:
        return DEFAULT
    if given is None or isinstance(given, Compaction):
        return given
    raise ConfigError(f"compaction takes one such as monitor.Compaction.opencode(), or None, not {given!r}")


def _check_last_turn(given: object) -> None:
    if given is not None and not (isinstance(given, LastTurn) and is_finite(given.seconds) and given.seconds > 0):
        raise ConfigError(f"last_turn takes a LastTurn with its seconds, such as monitor.LastTurn(60), not {given!r}")

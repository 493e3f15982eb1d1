"""The options of a `Supervisor`, checked at once, in the form that a run needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, Unpack, overload

from monitor._util.argument_checks import check_kind, check_model, check_part, check_parts, is_finite
from monitor._util.explained_options import explains_options
from monitor.budget import Budget
from monitor.chunks import Price
from monitor.conditions import Condition
from monitor.conditions.condition import check_condition
from monitor.context.window import Window, window_of
from monitor.detectors.detector import Detector
from monitor.errors import ConfigError
from monitor.goal.declared import Declaration
from monitor.goal.goal import preflight
from monitor.goal.outputs import Outputs
from monitor.goal.plan import Plan, run_instructions
from monitor.guard.options import (
    CLOSE_GRACE_S,
    OWN_MODEL,
    WORDS,
    SharedOptions,
    check_bounds,
    check_session,
    checked_judges,
    clock_of,
    line_for,
    must_know_price,
)
from monitor.guard.streams.wait import Clock
from monitor.judges.judge import GivenJudges, Judge
from monitor.messages import CallLedger, Message
from monitor.models import Model
from monitor.outcome import OutputT
from monitor.policy import Ladder, Policy
from monitor.prices import known_price
from monitor.runs.context.compaction import DEFAULT, Compaction
from monitor.runs.context.requests import InitialHistory, form_of, take_in
from monitor.runs.option_groups import GROUPS, FlatOptions, Instructions, Requests, Results, ToolCalls, in_groups
from monitor.sessions.closed_runs import SessionStore
from monitor.sessions.postgres.postgres_session import is_database, session_at
from monitor.shared.budgets.base import SharedBudget
from monitor.sinks.base import Sink, checked_sinks
from monitor.tools.artifacts.artifact_store import READ, ArtifactStore, ArtifactTools
from monitor.tools.base import Tool
from monitor.tools.registry import Registry, Toolset
from monitor.verdicts import LastTurn
from monitor.wires.fields import Form, RawMessage

if TYPE_CHECKING:
    from typing_extensions import TypeForm


class RunKeywords(SharedOptions, total=False):
    """The options of a `Supervisor` but `outputs`, for type checkers: both of its signatures take
    them. `Supervisor` documents them.
    """

    instructions: Instructions | str | None
    history: Sequence[RawMessage | Message]
    tools: Sequence[Callable[..., Any] | Tool | Toolset]
    plan: Plan | None
    deps: object
    session: SessionStore | str | None
    budget: Budget | SharedBudget | None
    prices: Mapping[str, Price] | Price | None
    last_turn: LastTurn | None
    compaction: Compaction | None
    calls: ToolCalls
    results: Results
    requests: Requests


class SupervisorKeywords(RunKeywords, FlatOptions, total=False):
    """The same, with the options of the groups by themselves."""


_DEFAULT: Any = object()
LADDER: Final = Ladder()
"""The policy of a supervisor that was given none. Each run has its own copy."""
LAST_TURN: Final = LastTurn()
CALLS: Final = ToolCalls()
RESULTS: Final = Results()
REQUESTS: Final = Requests()


class RunOptions(Generic[OutputT]):
    """The options of a `Supervisor`, which documents them. Raises `ConfigError` for an invalid
    option.
    """

    # A type checker reads `A | B` as a form of a type only where nothing else is allowed.
    @overload
    def __init__(self, model: Model, *, outputs: TypeForm[OutputT], **options: Unpack[SupervisorKeywords]) -> None: ...
    @overload
    def __init__(
        self, model: Model, *, outputs: Mapping[str, Any] | None = None, **options: Unpack[SupervisorKeywords]
    ) -> None: ...
    @in_groups
    @explains_options(
        example="monitor.Supervisor(monitor.model('google:gemini-2.5-flash'))", words=WORDS, explain=line_for
    )
    def __init__(
        self,
        model: Model,
        *,
        agent: str = "",
        instructions: Instructions | str | None = None,
        history: Sequence[RawMessage | Message] = (),
        tools: Sequence[Callable[..., Any] | Tool | Toolset] = (),
        outputs: Declaration | None = None,
        plan: Plan | None = None,
        deps: object = None,
        session: SessionStore | str | None = None,
        stop_when: Condition | None = _DEFAULT,
        budget: Budget | SharedBudget | None = None,
        prices: Mapping[str, Price] | Price | None = None,
        last_turn: LastTurn | None = LAST_TURN,
        detectors: Sequence[Detector] | None = _DEFAULT,
        judge: GivenJudges = OWN_MODEL,
        policy: Policy | None = LADDER,
        window: Window | int | None = None,
        compaction: Compaction | None = DEFAULT,
        calls: ToolCalls = CALLS,
        results: Results = RESULTS,
        requests: Requests = REQUESTS,
        sinks: Sequence[Sink] = (),
        clock: Clock | None = None,
        close_grace_s: float | None = CLOSE_GRACE_S,
    ) -> None:
        check_model("model", model)
        self.limits_given: bool = stop_when is not _DEFAULT
        """Whether `stop_when` was given. `None` counts as given: it means no limit."""
        self.stop_when: Condition | None = stop_when if self.limits_given else None
        check_condition("stop_when", self.stop_when, "monitor.MaxTurns(30)")
        check_kind("budget", budget, Budget | SharedBudget, "a monitor.Budget, such as monitor.Budget(tokens=200_000)")
        self.budget: Budget | None = budget if isinstance(budget, Budget) else None
        self.shared_budget: SharedBudget | None = budget if isinstance(budget, SharedBudget) else None
        if policy is not None:
            check_part("policy", policy, "decide")
        check_kind("plan", plan, Plan, "a monitor.Plan")
        check_bounds(None, close_grace_s, None)
        check_kind("compaction", compaction, Compaction, "one such as monitor.Compaction.opencode(), or None")
        check_kind("agent", agent, str, "a name")
        for name, given in (("calls", calls), ("results", results), ("requests", requests)):
            if not isinstance(given, GROUPS[name]):
                right = f"{name}=monitor.runs.{GROUPS[name].__name__}(...)"
                raise ConfigError(f"{name} takes a {GROUPS[name].__name__}, not {given!r}: write {right}")
        self.agent, self.model = agent, model
        self.calls, self.results, self.requests, self.deps = calls, results, requests, deps
        self.form: Form | None = form_of(model)
        self.outputs: Outputs | None = Outputs(outputs) if outputs is not None else None
        self.tools: Registry = _readable(Registry(tools), results.artifacts)
        self.session: SessionStore | None = checked_session(session, calls.ledger)
        self.plan, self.prices = plan, prices
        self.price: Price | None = known_price(prices, model.name)
        preflight(self.outputs, plan, self.tools, requests.tool_choice)
        must_know_price(
            self.price, self.stop_when, self.budget, model.name, f"prices={{{model.name!r}: monitor.Price(...)}}"
        )
        self.instructions: Instructions = (
            instructions if isinstance(instructions, Instructions) else Instructions(instructions)
        )
        self.given: InitialHistory = self.taken_in(history)
        self.detectors: Sequence[Detector] | None = (
            None
            if detectors is _DEFAULT
            else check_parts("detectors", () if detectors is None else detectors, "observe")
        )
        self.judges: tuple[Judge, ...] = checked_judges(
            judge, self.stop_when, outputs=outputs is not None, plan=plan is not None, own=model
        )
        self.policy: Policy = policy or LADDER
        self.last_turn: LastTurn | None = _checked_last_turn(last_turn)
        self.model_settings: dict[str, Any] = dict(requests.settings or {})
        self.window: Window = window_of(model.name, config=window)
        self.compaction = compaction
        self.sinks: Sequence[Sink] = checked_sinks(sinks)
        self.clock: Clock = clock_of(clock)
        self.close_grace_s: float = float("inf") if close_grace_s is None else close_grace_s

    def taken_in(self, history: Sequence[RawMessage | Message]) -> InitialHistory:
        """`history`, repaired, and the instructions of a run that begins with it. Raises
        `ConfigError` for anything but a history.
        """
        given = take_in(history, self.form, self.instructions.filled())
        has_tools = self.requests.tool_choice != "none"
        return replace(
            given, instructions=run_instructions(given.instructions, self.outputs, self.plan, has_tools=has_tools)
        )


def checked_session(session: SessionStore | str | None, ledger: CallLedger | None) -> SessionStore | None:
    """`session`, or the session at this address. Raises `ConfigError` if it is none, and beside a
    ledger.
    """
    if session is None:
        return None
    if isinstance(session, str) and is_database(session):
        session = session_at(session)
    store: SessionStore = check_session(session, "commit")
    if ledger is not None:
        raise ConfigError("a session is the ledger of its runs: give session= or ledger=, not both")
    return store


def _readable(tools: Registry, store: ArtifactStore | None) -> Registry:
    """`tools` with those that read `store`: a model that is given references can follow them."""
    if store is not None and READ not in tools:
        tools.add(ArtifactTools(store))
    return tools


def _checked_last_turn(given: object) -> LastTurn | None:
    if given is None:
        return None
    if not isinstance(given, LastTurn) or given.text.isdecimal() or not is_finite(given.seconds) or given.seconds <= 0:
        raise ConfigError(
            f"last_turn takes a LastTurn with its seconds, not {given!r}: write last_turn=monitor.LastTurn(60)"
        )
    return given

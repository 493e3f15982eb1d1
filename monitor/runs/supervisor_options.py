"""The options of a `Supervisor`, checked at once, in the form that a run needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypedDict, Unpack, overload

from monitor._util.argument_checks import check_kind, check_model, check_part, check_parts, check_word, is_finite
from monitor._util.explained_options import explains_options
from monitor.budget import Budget
from monitor.chunks import Price
from monitor.conditions import Condition
from monitor.conditions.condition import check_condition
from monitor.context.window import Window, window_of
from monitor.core.turn import LoopedText
from monitor.detectors.detector import Detector
from monitor.errors import ConfigError
from monitor.goal.declared import Declaration
from monitor.goal.goal import MAX_NUDGES, preflight
from monitor.goal.outputs import Outputs
from monitor.goal.plan import Plan, render, run_instructions
from monitor.guard.options import (
    CLOSE_GRACE_S,
    KEEP_TEXT_CHARS,
    WORDS,
    check_bounds,
    check_session,
    checked_judges,
    clock_of,
    line_for,
    must_know_price,
)
from monitor.guard.streams.wait import Clock
from monitor.judges.judge import Judge
from monitor.messages import CallLedger, Message
from monitor.models import Model, Retries, ToolChoice
from monitor.outcome import OutputT
from monitor.policy import Ladder, Policy
from monitor.prices import known_price
from monitor.runs.calls.offered_tools import CallOptions, GuidanceFlag, Offer, ResultSummary
from monitor.runs.context.compaction import DEFAULT, Compaction
from monitor.runs.context.requests import InitialHistory, form_of, take_in
from monitor.sessions.closed_runs import SessionStore
from monitor.sessions.postgres.postgres_session import is_database, session_at
from monitor.shared.budgets.base import SharedBudget
from monitor.shared.outages import Outages
from monitor.sinks.base import Sink, checked_sinks
from monitor.tools.approvals.approval import Approval, Approver, AskFunction, Mode, approval_of
from monitor.tools.artifacts.artifact_store import READ, ArtifactStore, ArtifactTools
from monitor.tools.base import Bound, Tool
from monitor.tools.calls.scheduler import MAX_PARALLEL
from monitor.tools.files.file_memory import Notes
from monitor.tools.registry import Registry, Toolset
from monitor.verdicts import LastTurn
from monitor.wires.fields import Form, RawMessage

if TYPE_CHECKING:
    from typing_extensions import TypeForm


# --------------------------------------------------------------------------------------------------
# The options of a `Supervisor` but `outputs`, for type checkers: both of its signatures take
# them.

Unfinished: TypeAlias = Literal["supersede", "refuse"]
"""What a new run does with a run of its session that has not ended."""


class SupervisorKeywords(TypedDict, total=False):
    """`Supervisor` documents them."""

    agent: str
    instructions: str | None
    variables: Mapping[str, object] | None
    tools: Sequence[Callable[..., Any] | Tool | Toolset]
    tool_choice: ToolChoice
    max_parallel_tools: int
    ledger: CallLedger | None
    session: SessionStore | str | None
    unfinished: Unfinished
    approval: Approval | Mode | None
    approver: Approver | AskFunction | None
    offer: Offer | None
    artifacts: ArtifactStore | None
    result_bound: Bound | None
    result_summary: ResultSummary | None
    guidance: GuidanceFlag
    deps: object
    notes: Sequence[Notes]
    stop_when: Condition | None
    budget: Budget | SharedBudget | None
    prices: Mapping[str, Price] | Price | None
    outages: Outages | None
    detectors: Sequence[Detector] | None
    judge: Judge | Sequence[Judge] | None
    policy: Policy | None
    plan: Plan | None
    last_turn: LastTurn | None
    max_nudges: int | None
    retries: Retries | None
    looped_text: LoopedText
    model_settings: Mapping[str, Any] | None
    window: Window | int | None
    compaction: Compaction | None
    history: Sequence[RawMessage | Message]
    sinks: Sequence[Sink]
    clock: Clock | None
    keep_text_chars: int | None
    close_grace_s: float | None


_DEFAULT: Any = object()
BOUND: Final = Bound()
"""The bound of the results of a run that was given none."""


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
    @explains_options(
        example="monitor.Supervisor(monitor.model('google:gemini-2.5-flash'))", words=WORDS, explain=line_for
    )
    def __init__(
        self,
        model: Model,
        *,
        agent: str = "",
        instructions: str | None = None,
        variables: Mapping[str, object] | None = None,
        tools: Sequence[Callable[..., Any] | Tool | Toolset] = (),
        tool_choice: ToolChoice = "auto",
        max_parallel_tools: int = MAX_PARALLEL,
        ledger: CallLedger | None = None,
        session: SessionStore | str | None = None,
        unfinished: Unfinished = "supersede",
        approval: Approval | Mode | None = None,
        approver: Approver | AskFunction | None = None,
        offer: Offer | None = None,
        artifacts: ArtifactStore | None = None,
        result_bound: Bound | None = BOUND,
        result_summary: ResultSummary | None = None,
        guidance: GuidanceFlag = True,
        deps: object = None,
        notes: Sequence[Notes] = (),
        outputs: Declaration | None = None,
        stop_when: Condition | None = _DEFAULT,
        budget: Budget | SharedBudget | None = None,
        prices: Mapping[str, Price] | Price | None = None,
        outages: Outages | None = None,
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
        sinks: Sequence[Sink] = (),
        clock: Clock | None = None,
        keep_text_chars: int | None = KEEP_TEXT_CHARS,
        close_grace_s: float | None = CLOSE_GRACE_S,
    ) -> None:
        check_model("model", model)
        self.limits_given: bool = stop_when is not _DEFAULT
        """Whether `stop_when` was given. `None` counts as given: it means no limit."""
        stop_when = None if stop_when is _DEFAULT else stop_when
        self.stop_when: Condition | None = stop_when
        check_condition("stop_when", stop_when, "monitor.MaxTurns(30)")
        self.budget, self.shared_budget = _apart(budget)
        self.outages = _checked_outages(outages)
        if policy is not None:
            check_part("policy", policy, "decide")
        check_kind("plan", plan, Plan, "a monitor.Plan")
        retries = Retries() if retries is _DEFAULT else retries
        check_kind("retries", retries, Retries, "a monitor.Retries, such as monitor.Retries(3)")
        for name, given, words in (
            ("tool_choice", tool_choice, ToolChoice),
            ("looped_text", looped_text, LoopedText),
            ("unfinished", unfinished, Unfinished),
        ):
            check_word(name, given, words)
        check_bounds(keep_text_chars, close_grace_s, max_nudges)
        check_kind("model_settings", model_settings, Mapping, "a dict")
        compaction = DEFAULT if compaction is _DEFAULT else compaction
        check_kind("compaction", compaction, Compaction, "one such as monitor.Compaction.opencode(), or None")
        check_kind("agent", agent, str, "a name")
        self.agent, self.model = agent, model
        self.form: Form | None = form_of(model)
        self.outputs: Outputs | None = Outputs(outputs) if outputs is not None else None
        self.tools: Registry = _readable(Registry(tools), artifacts)
        self.session: SessionStore | None = checked_session(session, ledger)
        self.unfinished: Unfinished = unfinished
        self.calls: CallOptions = CallOptions(
            max_parallel_tools,
            ledger,
            approval_of(approval),
            approver,
            offer,
            artifacts,
            result_bound,
            result_summary,
            guidance,
            deps,
        )
        self.notes: Sequence[Notes] = check_parts("notes", notes, "text")
        self.plan, self.prices = plan, prices
        self.price: Price | None = known_price(prices, model.name)
        preflight(self.outputs, plan, self.tools, tool_choice)
        must_know_price(
            self.price, stop_when, self.budget, model.name, f"prices={{{model.name!r}: monitor.Price(...)}}"
        )
        self.tool_choice: ToolChoice = tool_choice
        self.variables: Mapping[str, object] = variables or {}
        said = render("" if instructions is None else instructions, variables)
        self._said = None if instructions is None else said
        self.given: InitialHistory = self.taken_in(history)
        self.detectors: Sequence[Detector] | None = (
            None
            if detectors is _DEFAULT
            else check_parts("detectors", () if detectors is None else detectors, "observe")
        )
        self.judges: tuple[Judge, ...] = checked_judges(
            judge, stop_when, outputs=outputs is not None, plan=plan is not None
        )
        self.policy: Policy = policy or Ladder()
        self.last_turn: LastTurn | None = _checked_last_turn(last_turn)
        self.max_nudges = max_nudges
        self.retries: Retries = retries or Retries(0)
        self.looped_text: LoopedText = looped_text
        self.model_settings: dict[str, Any] = dict(model_settings or {})
        self.window: Window = window_of(model.name, config=window)
        self.compaction = compaction
        self.sinks: Sequence[Sink] = checked_sinks(sinks)
        self.clock: Clock = clock_of(clock)
        self.keep_text_chars = keep_text_chars
        self.close_grace_s: float = float("inf") if close_grace_s is None else close_grace_s

    def taken_in(self, history: Sequence[RawMessage | Message]) -> InitialHistory:
        """`history`, repaired, and the instructions of a run that begins with it. Raises
        `ConfigError` for anything but a history.
        """
        given = take_in(history, self.form, self._said)
        has_tools = self.tool_choice != "none"
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


def _apart(budget: Budget | SharedBudget | None) -> tuple[Budget | None, SharedBudget | None]:
    """The budget of this process, and that of many."""
    check_kind("budget", budget, Budget | SharedBudget, "a monitor.Budget, such as monitor.Budget(tokens=200_000)")
    return (None, budget) if isinstance(budget, SharedBudget) else (budget, None)


def _checked_outages(given: Outages | None) -> Outages | None:
    check_kind("outages", given, Outages, "a monitor.shared.Outages")
    return given


def _checked_last_turn(given: object) -> LastTurn | None:
    if given is _DEFAULT:
        return LastTurn()
    if given is None:
        return None
    if not isinstance(given, LastTurn) or given.text.isdecimal() or not is_finite(given.seconds) or given.seconds <= 0:
        raise ConfigError(
            f"last_turn takes a LastTurn with its seconds, not {given!r}: write last_turn=monitor.LastTurn(60)"
        )
    return given

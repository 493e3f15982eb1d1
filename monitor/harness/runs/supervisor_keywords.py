"""The options of a `Supervisor` but `outputs`, for type checkers: both of its signatures take
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from monitor.budget import Budget
from monitor.calls import CallLedger
from monitor.conditions import Condition
from monitor.context.measure.window import Window
from monitor.core.reply_parts import LoopedText
from monitor.detectors.detector import Detector
from monitor.goal.plan import Plan
from monitor.harness.context.compaction import Compaction
from monitor.harness.runs.calls.call_options import Offer
from monitor.harness.runs.calls.result_summaries import ResultSummary
from monitor.harness.streams.clock import Clock
from monitor.judges.judge import Judge
from monitor.messages import Message
from monitor.models import Retries, ToolChoice
from monitor.policy import Policy
from monitor.sessions.session_store import SessionStore
from monitor.shared.budgets.shared_budget import SharedBudget
from monitor.shared.outages.shared_outages import Outages
from monitor.sinks.base import Sink
from monitor.tools.approvals.approval import Approval, Approver, AskFunction, Mode
from monitor.tools.artifacts.artifact_store import ArtifactStore
from monitor.tools.base import Tool
from monitor.tools.files.file_memory import Notes
from monitor.tools.registry import Toolset
from monitor.tools.results.guidance import GuidanceFlag
from monitor.tools.results.truncation import Bound
from monitor.usage import Price
from monitor.verdicts import LastTurn
from monitor.wires.raw import RawMessage

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

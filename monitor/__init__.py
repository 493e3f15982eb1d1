"""agent-monitor: watch streaming LLM agents, see loops while they are written, stop for real, and
say why.

    limits = monitor.Timeout(300) | monitor.IdleTimeout(30)
    async with monitor.watch(stream, stop_when=limits) as watched:
        async for chunk in watched: ...
    watched.outcome

A loop of several model calls is one `Guard`; a `Supervisor` is the loop itself.
What is public: the names below, and the names that the public modules list in their `__all__`
(`monitor.events`, `monitor.messages`, `monitor.context` ...). Everything else is private and may
change.
"""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names
from monitor.budget import Budget
from monitor.conditions import (
    Condition,
    CostLimit,
    FirstChunkTimeout,
    IdleTimeout,
    MaxConsecutiveErrors,
    MaxModelCalls,
    MaxToolCalls,
    MaxTurns,
    OutputsComplete,
    PlanComplete,
    Predicate,
    TaskDone,
    Timeout,
    TokenLimit,
    ToolCalled,
)
from monitor.context.measure.window import Window
from monitor.detectors import (
    ContentRepetition,
    NoProgress,
    SimilarMessages,
    ToolCallCycle,
    ToolCallRepetition,
    ToolPolicy,
    UnknownTool,
    default_detectors,
)
from monitor.errors import ConfigError, MonitorError, ToolError
from monitor.goal.plan import Plan
from monitor.messages import AssistantMessage, Media, Text, UserMessage
from monitor.models import Retries
from monitor.outcome import Outcome, RunFailed, Turn
from monitor.policy import Ladder, ObserveOnly, StopAtFirstLoop
from monitor.reasons import FinishReason, TerminateReason
from monitor.usage import Price, Usage
from monitor.verdicts import Compact, Continue, Detection, LastTurn, Nudge, Stop, Verdict, WithdrawTool

if TYPE_CHECKING:
    from monitor import adapters as adapters
    from monitor import calls as calls
    from monitor import chunks as chunks
    from monitor import compaction as compaction
    from monitor import conditions as conditions
    from monitor import context as context
    from monitor import core as core
    from monitor import detectors as detectors
    from monitor import errors as errors
    from monitor import events as events
    from monitor import fleet as fleet
    from monitor import goal as goal
    from monitor import harness as harness
    from monitor import integrations as integrations
    from monitor import judges as judges
    from monitor import messages as messages
    from monitor import models as models
    from monitor import outcome as outcome
    from monitor import policy as policy
    from monitor import proxy as proxy
    from monitor import reasons as reasons
    from monitor import schemas as schemas
    from monitor import sessions as sessions
    from monitor import settings as settings
    from monitor import shared as shared
    from monitor import sinks as sinks
    from monitor import state as state
    from monitor import testing as testing
    from monitor import tools as tools
    from monitor import transcripts as transcripts
    from monitor import usage as usage
    from monitor import verdicts as verdicts
    from monitor import view as view
    from monitor.adapters.models import model
    from monitor.harness.context.compaction import Compaction
    from monitor.harness.guards.guard import Guard, watch
    from monitor.harness.record.replay import Replay, replay
    from monitor.harness.runs.run import Run
    from monitor.harness.runs.supervisor import Supervisor
    from monitor.judges import DoneJudge, LoopJudge
    from monitor.settings import load_settings
    from monitor.sinks import JsonlSink, LogSink
    from monitor.tools import ToolContext, tool

__version__ = "0.1.0"

__all__ = [
    "AssistantMessage",
    "Budget",
    "Compact",
    "Compaction",
    "Condition",
    "ConfigError",
    "ContentRepetition",
    "Continue",
    "CostLimit",
    "Detection",
    "DoneJudge",
    "FinishReason",
    "FirstChunkTimeout",
    "Guard",
    "IdleTimeout",
    "JsonlSink",
    "Ladder",
    "LastTurn",
    "LogSink",
    "LoopJudge",
    "MaxConsecutiveErrors",
    "MaxModelCalls",
    "MaxToolCalls",
    "MaxTurns",
    "Media",
    "MonitorError",
    "NoProgress",
    "Nudge",
    "ObserveOnly",
    "Outcome",
    "OutputsComplete",
    "Plan",
    "PlanComplete",
    "Predicate",
    "Price",
    "Replay",
    "Retries",
    "Run",
    "RunFailed",
    "SimilarMessages",
    "Stop",
    "StopAtFirstLoop",
    "Supervisor",
    "TaskDone",
    "TerminateReason",
    "Text",
    "Timeout",
    "TokenLimit",
    "ToolCallCycle",
    "ToolCallRepetition",
    "ToolCalled",
    "ToolContext",
    "ToolError",
    "ToolPolicy",
    "Turn",
    "UnknownTool",
    "Usage",
    "UserMessage",
    "Verdict",
    "Window",
    "WithdrawTool",
    "__version__",
    "default_detectors",
    "load_settings",
    "model",
    "replay",
    "tool",
    "watch",
]

_ROOMS = (
    "adapters",
    "calls",
    "chunks",
    "compaction",
    "conditions",
    "context",
    "core",
    "detectors",
    "errors",
    "events",
    "fleet",
    "goal",
    "harness",
    "integrations",
    "judges",
    "messages",
    "models",
    "outcome",
    "policy",
    "proxy",
    "reasons",
    "schemas",
    "sessions",
    "settings",
    "shared",
    "sinks",
    "state",
    "testing",
    "tools",
    "transcripts",
    "usage",
    "verdicts",
    "view",
)
"""The public modules."""

_LATER = {
    "Compaction": "monitor.harness.context.compaction",
    "DoneJudge": "monitor.judges",
    "Guard": "monitor.harness.guards.guard",
    "JsonlSink": "monitor.sinks",
    "LogSink": "monitor.sinks",
    "LoopJudge": "monitor.judges",
    "Replay": "monitor.harness.record.replay",
    "Run": "monitor.harness.runs.run",
    "Supervisor": "monitor.harness.runs.supervisor",
    "ToolContext": "monitor.tools",
    "load_settings": "monitor.settings",
    "model": "monitor.adapters.models",
    "replay": "monitor.harness.record.replay",
    "tool": "monitor.tools",
    "watch": "monitor.harness.guards.guard",
}
"""Names that many programs do not need: loaded at first use."""

if not TYPE_CHECKING:  # a type checker would believe that every name is there
    __getattr__, __dir__ = lazy_names(__name__, {room: f"monitor.{room}" for room in _ROOMS} | _LATER)

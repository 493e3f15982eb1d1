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

from monitor._util.lazy import lazy_names

TYPE_CHECKING = False  # a hook is waited for, and `typing` takes longer to import than this package

__version__ = "0.2.0"

_ROOMS = (
    "adapters chunks conditions context core detectors errors events fleet goal guard integrations judges messages"
    " models outcome policy prices proxy runs sessions settings shared sinks testing tools transcripts verdicts view"
)
"""The public modules, separated by blanks."""
_MOVED = (
    "calls compaction harness reasons schemas state usage"
    " Detection detector DoneJudge guarding JsonlSink LogSink Media MonitorError NoProgress ObserveOnly"
    " OutputsComplete PlanComplete RunFailed SimilarMessages TaskDone Text ToolCallCycle ToolCalled Turn"
    " UnknownTool Usage"
)
"""The old addresses of public modules and names (`monitor.moved`)."""

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
    from monitor import guard as guard
    from monitor import harness as harness
    from monitor import integrations as integrations
    from monitor import judges as judges
    from monitor import messages as messages
    from monitor import models as models
    from monitor import outcome as outcome
    from monitor import policy as policy
    from monitor import prices as prices
    from monitor import proxy as proxy
    from monitor import reasons as reasons
    from monitor import runs as runs
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
    from monitor.adapters.model_names import model as model
    from monitor.budget import Budget as Budget
    from monitor.chunks import Price as Price

    # The names below have moved: each stays here for one release.
    from monitor.chunks import Usage as Usage
    from monitor.conditions import Condition as Condition
    from monitor.conditions import CostLimit as CostLimit
    from monitor.conditions import FirstChunkTimeout as FirstChunkTimeout
    from monitor.conditions import IdleTimeout as IdleTimeout
    from monitor.conditions import MaxConsecutiveErrors as MaxConsecutiveErrors
    from monitor.conditions import MaxModelCalls as MaxModelCalls
    from monitor.conditions import MaxToolCalls as MaxToolCalls
    from monitor.conditions import MaxTurns as MaxTurns
    from monitor.conditions import OutputsComplete as OutputsComplete
    from monitor.conditions import PlanComplete as PlanComplete
    from monitor.conditions import Predicate as Predicate
    from monitor.conditions import TaskDone as TaskDone
    from monitor.conditions import Timeout as Timeout
    from monitor.conditions import TokenLimit as TokenLimit
    from monitor.conditions import ToolCalled as ToolCalled
    from monitor.context.window import Window as Window
    from monitor.detectors import ContentRepetition as ContentRepetition
    from monitor.detectors import NoProgress as NoProgress
    from monitor.detectors import SimilarMessages as SimilarMessages
    from monitor.detectors import ToolCallCycle as ToolCallCycle
    from monitor.detectors import ToolCallRepetition as ToolCallRepetition
    from monitor.detectors import ToolPolicy as ToolPolicy
    from monitor.detectors import UnknownTool as UnknownTool
    from monitor.detectors import as_detector as detector  # noqa: F401 - an old name
    from monitor.detectors import default_detectors as default_detectors
    from monitor.errors import ConfigError as ConfigError
    from monitor.errors import FinishReason as FinishReason
    from monitor.errors import MonitorError as MonitorError
    from monitor.errors import TerminateReason as TerminateReason
    from monitor.errors import ToolError as ToolError
    from monitor.goal.plan import Plan as Plan
    from monitor.guard import guarding as guarding
    from monitor.guard.guard import Guard as Guard
    from monitor.guard.watching import watch as watch
    from monitor.judges import DoneJudge as DoneJudge
    from monitor.judges import LoopJudge as LoopJudge
    from monitor.messages import AssistantMessage as AssistantMessage
    from monitor.messages import Media as Media
    from monitor.messages import Text as Text
    from monitor.messages import UserMessage as UserMessage
    from monitor.models import Retries as Retries
    from monitor.outcome import Outcome as Outcome
    from monitor.outcome import RunFailed as RunFailed
    from monitor.outcome import Turn as Turn
    from monitor.policy import Ladder as Ladder
    from monitor.policy import ObserveOnly as ObserveOnly
    from monitor.policy import StopAtFirstLoop as StopAtFirstLoop
    from monitor.runs.context.compaction import Compaction as Compaction
    from monitor.runs.record.replay import Replay as Replay
    from monitor.runs.record.replay import replay as replay
    from monitor.runs.supervised_run import Run as Run
    from monitor.runs.supervisor import Supervisor as Supervisor
    from monitor.settings import load_settings as load_settings
    from monitor.sinks import JsonlSink as JsonlSink
    from monitor.sinks import LogSink as LogSink
    from monitor.tools import ToolContext as ToolContext
    from monitor.tools import tool as tool
    from monitor.verdicts import Compact as Compact
    from monitor.verdicts import Continue as Continue
    from monitor.verdicts import Detection as Detection
    from monitor.verdicts import Hold as Hold
    from monitor.verdicts import LastTurn as LastTurn
    from monitor.verdicts import Nudge as Nudge
    from monitor.verdicts import RefuseCall as RefuseCall
    from monitor.verdicts import Stop as Stop
    from monitor.verdicts import Verdict as Verdict
    from monitor.verdicts import WithdrawTool as WithdrawTool
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__, hidden=_MOVED)
    __all__ += ["__version__"]

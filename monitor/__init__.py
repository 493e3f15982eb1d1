"""agent-monitor: watch streaming LLM agents, see loops while they are written, stop for real, and say why.

    async with monitor.watch(stream, stop_when=monitor.Timeout(300) | monitor.IdleTimeout(30)) as watched:
        async for chunk in watched: ...
    watched.outcome

A loop of several model calls is one `Guard`.
"""

from monitor._wait import Clock as Clock
from monitor._wait import SystemClock as SystemClock
from monitor.adapters.forms import to_form as to_form
from monitor.adapters.models import model as model
from monitor.answers import Answer as Answer
from monitor.budget import Budget as Budget
from monitor.chunks import Chunk as Chunk
from monitor.chunks import ReasoningDelta as ReasoningDelta
from monitor.chunks import StreamRetried as StreamRetried
from monitor.chunks import TextDelta as TextDelta
from monitor.chunks import ToolCall as ToolCall
from monitor.chunks import ToolCallDelta as ToolCallDelta
from monitor.chunks import ToolResult as ToolResult
from monitor.chunks import TurnFinished as TurnFinished
from monitor.chunks import UsageReport as UsageReport
from monitor.chunks import chunk_codec as chunk_codec
from monitor.compacting import CompactionDetails as CompactionDetails
from monitor.compacting import CompactionError as CompactionError
from monitor.compacting import CompactionFailure as CompactionFailure
from monitor.compacting import CompactionIneffective as CompactionIneffective
from monitor.compacting import CompactionReason as CompactionReason
from monitor.compacting import CompactionRecord as CompactionRecord
from monitor.compacting import CompactionResult as CompactionResult
from monitor.compacting import CompactionStore as CompactionStore
from monitor.compaction.engine import Compaction as Compaction
from monitor.compaction.extractive import Extractive as Extractive
from monitor.compaction.hooks import BeforeCompaction as BeforeCompaction
from monitor.compaction.hooks import CompactionHook as CompactionHook
from monitor.compaction.memory import InMemoryCompactions as InMemoryCompactions
from monitor.compaction.pinned import PinnedFacts as PinnedFacts
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
from monitor.conditions import condition_from_dict as condition_from_dict
from monitor.config import MonitorConfig as MonitorConfig
from monitor.config import load_config as load_config
from monitor.context import Committed as Committed
from monitor.context import ContextMeter as ContextMeter
from monitor.context import Headroom as Headroom
from monitor.context import History as History
from monitor.context import HistoryEdit as HistoryEdit
from monitor.context import Overflow as Overflow
from monitor.context import OverflowKind as OverflowKind
from monitor.context import OverflowRow as OverflowRow
from monitor.context import RawMessage as RawMessage
from monitor.context import Repair as Repair
from monitor.context import RepairKind as RepairKind
from monitor.context import RepairReport as RepairReport
from monitor.context import Stale as Stale
from monitor.context import TokenCount as TokenCount
from monitor.context import Trigger as Trigger
from monitor.context import Window as Window
from monitor.context import WindowSource as WindowSource
from monitor.context import repair as repair
from monitor.context import window_of as window_of
from monitor.declarations import declare as declare
from monitor.detectors import ContentRepetition as ContentRepetition
from monitor.detectors import Detector as Detector
from monitor.detectors import NoProgress as NoProgress
from monitor.detectors import SimilarMessages as SimilarMessages
from monitor.detectors import ToolCallCycle as ToolCallCycle
from monitor.detectors import ToolCallRepetition as ToolCallRepetition
from monitor.detectors import ToolPolicy as ToolPolicy
from monitor.detectors import UnknownTool as UnknownTool
from monitor.detectors import default_detectors as default_detectors
from monitor.errors import AdapterError as AdapterError
from monitor.errors import ConfigError as ConfigError
from monitor.errors import MissingExtra as MissingExtra
from monitor.errors import MonitorError as MonitorError
from monitor.errors import RecordedError as RecordedError
from monitor.errors import RunFailed as RunFailed
from monitor.errors import StoreError as StoreError
from monitor.errors import ToolError as ToolError
from monitor.events import AbortRequested as AbortRequested
from monitor.events import AttemptRetried as AttemptRetried
from monitor.events import ChunkReceived as ChunkReceived
from monitor.events import CompactionFailed as CompactionFailed
from monitor.events import CompactionFinished as CompactionFinished
from monitor.events import CompactionProgressed as CompactionProgressed
from monitor.events import CompactionSkipped as CompactionSkipped
from monitor.events import CompactionStarted as CompactionStarted
from monitor.events import ContextFull as ContextFull
from monitor.events import ContextNearlyFull as ContextNearlyFull
from monitor.events import DetectionRaised as DetectionRaised
from monitor.events import Event as Event
from monitor.events import FirstChunk as FirstChunk
from monitor.events import HistoryReduced as HistoryReduced
from monitor.events import HistoryRepaired as HistoryRepaired
from monitor.events import JudgeAnswered as JudgeAnswered
from monitor.events import JudgeAsked as JudgeAsked
from monitor.events import JudgeFailed as JudgeFailed
from monitor.events import LastTurnStarted as LastTurnStarted
from monitor.events import LimitWarning as LimitWarning
from monitor.events import Nudged as Nudged
from monitor.events import OutputEmitted as OutputEmitted
from monitor.events import Paused as Paused
from monitor.events import PlanUpdated as PlanUpdated
from monitor.events import ResultUnmatched as ResultUnmatched
from monitor.events import Resumed as Resumed
from monitor.events import RetryScheduled as RetryScheduled
from monitor.events import RunStarted as RunStarted
from monitor.events import RunTerminated as RunTerminated
from monitor.events import SinkFailed as SinkFailed
from monitor.events import StopDecided as StopDecided
from monitor.events import StreamClosed as StreamClosed
from monitor.events import StreamContinued as StreamContinued
from monitor.events import StreamFailed as StreamFailed
from monitor.events import ToolFinished as ToolFinished
from monitor.events import ToolStarted as ToolStarted
from monitor.events import ToolWithdrawn as ToolWithdrawn
from monitor.events import TurnEnded as TurnEnded
from monitor.events import TurnStarted as TurnStarted
from monitor.events import WindowWarning as WindowWarning
from monitor.events import event_codec as event_codec
from monitor.guard import Guard as Guard
from monitor.guard import Watch as Watch
from monitor.guard import Watched as Watched
from monitor.guard import watch as watch
from monitor.judges import DoneJudge as DoneJudge
from monitor.judges import LoopJudge as LoopJudge
from monitor.judging import AskCost as AskCost
from monitor.judging import Judge as Judge
from monitor.judging import JudgeInput as JudgeInput
from monitor.judging import Judgement as Judgement
from monitor.messages import AssistantMessage as AssistantMessage
from monitor.messages import Media as Media
from monitor.messages import Message as Message
from monitor.messages import Reasoning as Reasoning
from monitor.messages import Text as Text
from monitor.messages import UserMessage as UserMessage
from monitor.messages import message_codec as message_codec
from monitor.models import ErrorKind as ErrorKind
from monitor.models import Model as Model
from monitor.models import ModelError as ModelError
from monitor.models import ModelRequest as ModelRequest
from monitor.models import ToolSpec as ToolSpec
from monitor.outcome import Outcome as Outcome
from monitor.outcome import Turn as Turn
from monitor.outputs import Outputs as Outputs
from monitor.outputs import Terminate as Terminate
from monitor.plan import Plan as Plan
from monitor.plan import PlanState as PlanState
from monitor.plan import Step as Step
from monitor.plan import StepStatus as StepStatus
from monitor.policy import Ladder as Ladder
from monitor.policy import ObserveOnly as ObserveOnly
from monitor.policy import Policy as Policy
from monitor.policy import StopAtFirstLoop as StopAtFirstLoop
from monitor.prices import Price as Price
from monitor.reasons import FinishReason as FinishReason
from monitor.reasons import TerminateReason as TerminateReason
from monitor.retries import Retries as Retries
from monitor.run import RunCore as RunCore
from monitor.sinks import EventSink as EventSink
from monitor.sinks import JsonlSink as JsonlSink
from monitor.sinks import LogSink as LogSink
from monitor.sinks import MemorySink as MemorySink
from monitor.state import RunState as RunState
from monitor.state import Usage as Usage
from monitor.supervised import Run as Run
from monitor.supervisor import Supervisor as Supervisor
from monitor.tools import FunctionTool as FunctionTool
from monitor.tools import Tool as Tool
from monitor.tools import ToolContext as ToolContext
from monitor.tools import tool as tool
from monitor.verdicts import Compact as Compact
from monitor.verdicts import Continue as Continue
from monitor.verdicts import Detection as Detection
from monitor.verdicts import Evidence as Evidence
from monitor.verdicts import LastTurn as LastTurn
from monitor.verdicts import Met as Met
from monitor.verdicts import Nudge as Nudge
from monitor.verdicts import Stop as Stop
from monitor.verdicts import Verdict as Verdict
from monitor.verdicts import WithdrawTool as WithdrawTool
from monitor.verdicts import verdict_codec as verdict_codec

__version__ = "0.1.0"

__all__ = [
    "AbortRequested",
    "AdapterError",
    "Answer",
    "AskCost",
    "AssistantMessage",
    "AttemptRetried",
    "BeforeCompaction",
    "Budget",
    "Chunk",
    "ChunkReceived",
    "Clock",
    "Committed",
    "Compact",
    "Compaction",
    "CompactionDetails",
    "CompactionError",
    "CompactionFailed",
    "CompactionFailure",
    "CompactionFinished",
    "CompactionHook",
    "CompactionIneffective",
    "CompactionProgressed",
    "CompactionReason",
    "CompactionRecord",
    "CompactionResult",
    "CompactionSkipped",
    "CompactionStarted",
    "CompactionStore",
    "Condition",
    "ConfigError",
    "ContentRepetition",
    "ContextFull",
    "ContextMeter",
    "ContextNearlyFull",
    "Continue",
    "CostLimit",
    "Detection",
    "DetectionRaised",
    "Detector",
    "DoneJudge",
    "ErrorKind",
    "Event",
    "EventSink",
    "Evidence",
    "Extractive",
    "FinishReason",
    "FirstChunk",
    "FirstChunkTimeout",
    "FunctionTool",
    "Guard",
    "Headroom",
    "History",
    "HistoryEdit",
    "HistoryReduced",
    "HistoryRepaired",
    "IdleTimeout",
    "InMemoryCompactions",
    "JsonlSink",
    "Judge",
    "JudgeAnswered",
    "JudgeAsked",
    "JudgeFailed",
    "JudgeInput",
    "Judgement",
    "Ladder",
    "LastTurn",
    "LastTurnStarted",
    "LimitWarning",
    "LogSink",
    "LoopJudge",
    "MaxConsecutiveErrors",
    "MaxModelCalls",
    "MaxToolCalls",
    "MaxTurns",
    "Media",
    "MemorySink",
    "Message",
    "Met",
    "MissingExtra",
    "Model",
    "ModelError",
    "ModelRequest",
    "MonitorConfig",
    "MonitorError",
    "NoProgress",
    "Nudge",
    "Nudged",
    "ObserveOnly",
    "Outcome",
    "OutputEmitted",
    "Outputs",
    "OutputsComplete",
    "Overflow",
    "OverflowKind",
    "OverflowRow",
    "Paused",
    "PinnedFacts",
    "Plan",
    "PlanComplete",
    "PlanState",
    "PlanUpdated",
    "Policy",
    "Predicate",
    "Price",
    "RawMessage",
    "Reasoning",
    "ReasoningDelta",
    "RecordedError",
    "Repair",
    "RepairKind",
    "RepairReport",
    "ResultUnmatched",
    "Resumed",
    "Retries",
    "RetryScheduled",
    "Run",
    "RunCore",
    "RunFailed",
    "RunStarted",
    "RunState",
    "RunTerminated",
    "SimilarMessages",
    "SinkFailed",
    "Stale",
    "Step",
    "StepStatus",
    "Stop",
    "StopAtFirstLoop",
    "StopDecided",
    "StoreError",
    "StreamClosed",
    "StreamContinued",
    "StreamFailed",
    "StreamRetried",
    "Supervisor",
    "SystemClock",
    "TaskDone",
    "Terminate",
    "TerminateReason",
    "Text",
    "TextDelta",
    "Timeout",
    "TokenCount",
    "TokenLimit",
    "Tool",
    "ToolCall",
    "ToolCallCycle",
    "ToolCallDelta",
    "ToolCallRepetition",
    "ToolCalled",
    "ToolContext",
    "ToolError",
    "ToolFinished",
    "ToolPolicy",
    "ToolResult",
    "ToolSpec",
    "ToolStarted",
    "ToolWithdrawn",
    "Trigger",
    "Turn",
    "TurnEnded",
    "TurnFinished",
    "TurnStarted",
    "UnknownTool",
    "Usage",
    "UsageReport",
    "UserMessage",
    "Verdict",
    "Watch",
    "Watched",
    "Window",
    "WindowSource",
    "WindowWarning",
    "WithdrawTool",
    "__version__",
    "chunk_codec",
    "condition_from_dict",
    "declare",
    "default_detectors",
    "event_codec",
    "load_config",
    "message_codec",
    "model",
    "repair",
    "to_form",
    "tool",
    "verdict_codec",
    "watch",
    "window_of",
]

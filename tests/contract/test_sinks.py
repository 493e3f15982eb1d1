"""What holds for every sink, found by its `emit`. A new one needs a line in `MAKERS` and nothing
else.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import monitor.sinks
from monitor.chunks import TextDelta, ToolCall, ToolResult
from monitor.events import (
    EVENT_TYPES,
    AbortRequested,
    AttemptRetried,
    ChunkReceived,
    CompactionFailed,
    CompactionFinished,
    CompactionProgressed,
    CompactionSkipped,
    CompactionStarted,
    ContextFull,
    ContextNearlyFull,
    DetectionRaised,
    Event,
    FirstChunk,
    HistoryReduced,
    HistoryRepaired,
    JudgeAnswered,
    JudgeAsked,
    JudgeFailed,
    LastTurnStarted,
    LimitWarning,
    Nudged,
    OutputEmitted,
    Paused,
    PlanUpdated,
    ResultUnmatched,
    Resumed,
    RetryScheduled,
    RunStarted,
    RunTerminated,
    SinkFailed,
    StopDecided,
    StreamClosed,
    StreamContinued,
    StreamFailed,
    ToolFinished,
    ToolStarted,
    ToolWithdrawn,
    TurnEnded,
    TurnStarted,
    WindowWarning,
)
from monitor.messages import Repair, RepairKind
from monitor.models import ErrorKind, ModelError
from monitor.outcome import Outcome, Turn
from monitor.reasons import CompactionFailure, CompactionReason, TerminateReason
from monitor.sinks import EventSink, FanOut, JsonlSink, LogSink, MemorySink
from monitor.usage import AskCost
from monitor.verdicts import Detection, Evidence, Judgement, Stop

MAKERS: dict[type, Callable[[Path], Any]] = {
    MemorySink: lambda folder: MemorySink(),
    LogSink: lambda folder: LogSink(),
    JsonlSink: lambda folder: JsonlSink(folder / "events.jsonl"),
    FanOut: lambda folder: FanOut([MemorySink()]),
}

STOP = Stop(TerminateReason.LOOP_DETECTED, "it repeats \ud800", "content_repetition", 10, 12)
EVENTS: list[Event] = [
    RunStarted(0.0, ("content_repetition",), None),
    TurnStarted(0.1, 1, 1),
    FirstChunk(0.2, 1, 0.1),
    AttemptRetried(0.3, 1, "the connection broke"),
    StreamContinued(0.3, 1, 2),
    ResultUnmatched(0.3, "call_9"),
    DetectionRaised(
        0.4,
        1,
        Detection(
            "c", "chant", "text", "loop", 12, 10, 0, 60, Evidence("\x00\ud800", "0" * 16, 2, (0, 9)), "it repeats"
        ),
    ),
    StreamFailed(0.5, 1, ModelError(ErrorKind.NETWORK, "gone %s {}", status=503)),
    ChunkReceived(0.56, 1, TextDelta("\ud800")),
    RetryScheduled(at_s=0.56, turn=1, attempt=2, after_s=0.5, why="the connection broke"),
    ToolStarted(0.56, 1, ToolCall("c", "search", {"q": "\x00"})),
    ToolFinished(0.57, 1, ToolResult("c", "search", "found", is_error=False), 0.01),
    OutputEmitted(at_s=0.57, turn=1, name="when", value=datetime(2026, 1, 1, tzinfo=UTC), overwritten=False),
    PlanUpdated(0.57, 1, "1. [x] read"),
    Nudged(0.58, 1, "do go on"),
    ToolWithdrawn(0.58, 1, "search", "it is gone"),
    LastTurnStarted(0.58, TerminateReason.MAX_TURNS, 60.0),
    JudgeAsked(0.58, 30, "loop_judge"),
    JudgeAnswered(
        at_s=0.58,
        turn=30,
        judge="loop_judge",
        fact="loop",
        judgement=Judgement("it repeats", 0.95, found=True, judged_by="scripted:model"),
    ),
    JudgeFailed(at_s=0.58, turn=30, judge="loop_judge", why="TimeoutError"),
    Paused(0.58),
    Resumed(0.59),
    LimitWarning(0.59, "max_turns", 24, 30),
    WindowWarning(0.59, 20_000, "the window is small"),
    ContextFull(at_s=0.59, turn=3, tokens=90_000, usable_tokens=85_000, detail="85,000 may be used"),
    ContextNearlyFull(0.59, 3, 77_000, 85_000),
    HistoryReduced(at_s=0.59, turn=3, kind="prune", saved_tokens=21_000, reread_tokens=60_000, messages=7),
    CompactionStarted(
        at_s=0.59,
        turn=3,
        compaction=1,
        reason=CompactionReason.HIGH_WATER,
        preset="default",
        tokens=85_000,
        background=True,
        refill="results of read_file \ud800",
    ),
    CompactionProgressed(at_s=0.59, turn=3, compaction=1, done_messages=40, of_messages=90),
    CompactionFinished(
        at_s=0.59,
        turn=4,
        compaction=1,
        reason=CompactionReason.HIGH_WATER,
        tokens_before=85_000,
        tokens_after=30_000,
        estimator="reported",
        kept_messages=12,
        kept_tokens=9_000,
        summarised_by="a:model",
        cost=AskCost(),
        reread_tokens=20_000,
        replayed=3,
        after_s=0.2,
        warnings=("cut",),
    ),
    CompactionSkipped(
        at_s=0.59,
        turn=4,
        reason=CompactionReason.MANUAL,
        why=CompactionFailure.CANCELLED,
        detail="a hook\x00 did not want it",
    ),
    CompactionFailed(
        at_s=0.59,
        turn=4,
        compaction=2,
        failure=CompactionFailure.TIMEOUT,
        retryable=True,
        detail="no\nanswer",
        cost=AskCost(),
        after_s=60.0,
    ),
    HistoryRepaired(0.6, 3, (Repair(RepairKind.ID_REWRITTEN, 4, "\ud800 is call_1"),), ("role: it is none",)),
    AbortRequested(0.6, "no\nmore"),
    StopDecided(0.7, STOP),
    StreamClosed(at_s=0.8, turn=1, closed=False, after_s=0.1, chunks_dropped=3, note="it would not"),
    TurnEnded(0.9, Turn(number=1, text="so far", stopped=STOP, error=OSError("gone"))),
    SinkFailed(1.0, "JsonlSink", "OSError: disk full"),
    RunTerminated(
        1.1,
        Outcome(
            ok=False, reason=STOP.reason, detail=STOP.detail, source=STOP.source, evidence=None, error=OSError("gone")
        ),
    ),
]


def sinks() -> set[type]:
    """Every public class in `monitor.sinks` that has `emit`, the protocol itself aside."""
    names = [name for _, name, _ in pkgutil.iter_modules(monitor.sinks.__path__, "monitor.sinks.")]
    classes = {
        value for name in names for value in vars(importlib.import_module(name)).values() if inspect.isclass(value)
    }
    return {
        cls
        for cls in classes
        if cls.__module__.startswith("monitor.sinks") and hasattr(cls, "emit") and cls is not EventSink
    }


def test_every_sink_is_under_the_contract():
    assert set(MAKERS) == sinks()


def test_every_event_is_shown_to_the_sinks():
    assert [type(event) for event in EVENTS] == list(EVENT_TYPES)


@pytest.mark.parametrize("cls", MAKERS, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_sink_takes_every_event_and_prints_nothing(
    cls: type, event: Event, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    sink = MAKERS[cls](tmp_path)
    with closing(sink) if hasattr(sink, "close") else nullcontext():
        assert sink.emit(event) is None
        assert sink.emit(event) is None
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("cls", MAKERS, ids=lambda cls: cls.__name__)
def test_no_sink_is_taken_off_by_a_whole_run(cls: type, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    sink = MAKERS[cls](tmp_path)
    with closing(sink) if hasattr(sink, "close") else nullcontext():
        fan = FanOut([sink])
        for event in EVENTS:
            fan.emit(event)
    assert "gets no more events" not in caplog.text


@pytest.mark.parametrize("cls", MAKERS, ids=lambda cls: cls.__name__)
def test_emit_is_synchronous_and_takes_the_event_alone(cls: type):
    assert not inspect.iscoroutinefunction(cls.emit)  # type: ignore[attr-defined]
    assert list(inspect.signature(cls.emit).parameters) == ["self", "event"]  # type: ignore[attr-defined]

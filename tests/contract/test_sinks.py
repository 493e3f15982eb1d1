"""What holds for every sink, found by its `emit`. A new one needs a line in `MAKERS` and nothing
else.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from pydantic import BaseModel, model_serializer

import monitor.sinks
from monitor.chunks import AskCost, TextDelta, ToolCall, ToolResult
from monitor.errors import CompactionFailure, CompactionReason, TerminateReason
from monitor.events import (
    EVENT_TYPES,
    AbortRequested,
    ApprovalAnswered,
    ApprovalRequested,
    AttemptRetried,
    BudgetAwaited,
    BudgetLost,
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
    OutageEnded,
    OutageFound,
    OutagesLost,
    OutputEmitted,
    Paused,
    PlanUpdated,
    ResultUnmatched,
    Resumed,
    RetryScheduled,
    RunHeld,
    RunReleased,
    RunStarted,
    RunTerminated,
    SandboxDecided,
    SandboxWarning,
    SinkFailed,
    SteerAccepted,
    SteerDelivered,
    SteerReturned,
    StopDecided,
    StreamClosed,
    StreamContinued,
    StreamFailed,
    ToolCallChanged,
    ToolFinished,
    ToolOutput,
    ToolProgressed,
    ToolResultDropped,
    ToolStarted,
    ToolWithdrawn,
    TurnEnded,
    TurnStarted,
    WindowWarning,
    event_codec,
)
from monitor.messages import ApprovalAnswer, ApprovalRequest, CallRecord, Repair, RepairKind, SteerMessage
from monitor.models import ErrorKind, ModelError
from monitor.outcome import Outcome, Turn
from monitor.sinks import FanOut, JsonlSink, LogSink, MemorySink, OtelSink, line_of
from monitor.sinks.otel.run_spans import RunSpans
from monitor.verdicts import Detection, Evidence, FleetFinding, Judgement, Stop


def recorded() -> OtelSink:
    """With an SDK that keeps every span, and all content."""
    return OtelSink(content=True, tracer_provider=TracerProvider(shutdown_on_exit=False))


MAKERS: dict[type, Callable[[Path], Any]] = {
    MemorySink: lambda folder: MemorySink(),
    LogSink: lambda folder: LogSink(),
    JsonlSink: lambda folder: JsonlSink(folder / "events.jsonl"),
    OtelSink: lambda folder: recorded(),
    RunSpans: lambda folder: recorded().for_run(),
    FanOut: lambda folder: FanOut([MemorySink()]),
}

STOP = Stop(TerminateReason.LOOP_DETECTED, "it repeats \ud800", "content_repetition", 10, 12)
FINDING = FleetFinding(
    outage="0" * 16, what="tool search\x00", error="503 \ud800", runs=8, failures=9, since_s=3.0, found_s=9.5
)
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
    ToolCallChanged(0.57, 1, CallRecord(run="r", call_id="c", tool="search", arguments={"q": "\x00"}, key="k")),
    ToolOutput(0.57, 1, "c", "stdout", "\x1b[2K\ud800"),
    ToolProgressed(at_s=0.57, turn=1, call_id="c", done=1, total=3, note="one of them"),
    ToolResultDropped(0.57, 1, "c", "search", "it ran out of time"),
    ApprovalRequested(
        0.57,
        1,
        ApprovalRequest(
            id="q", run="r", call_id="c", tool="search", arguments={}, schema_hash="s", bound_to="b", why="a rule"
        ),
    ),
    ApprovalAnswered(0.57, 1, ApprovalAnswer(id="q", decision="denied", reason="not now", by="Ada")),
    OutputEmitted(at_s=0.57, turn=1, name="when", value=datetime(2026, 1, 1, tzinfo=UTC), overwritten=False),
    PlanUpdated(0.57, 1, "1. [x] read"),
    Nudged(0.58, 1, "do go on"),
    SteerAccepted(0.58, 1, SteerMessage(id="m1", text="look\nat\x00 it", by="Ada")),
    SteerDelivered(0.58, 1, SteerMessage(id="m1", text="look\nat\x00 it", by="Ada")),
    SteerReturned(0.58, 1, SteerMessage(id="m2", text="\ud800", kind="follow_up", data=True), "it was\nover"),
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
    SandboxDecided(0.59, "bubblewrap", ("write /srv/app", "network")),
    SandboxWarning(0.59, "none", "bubblewrap is not installed"),
    WindowWarning(0.59, 20_000, "the window is small"),
    BudgetAwaited(
        at_s=0.585,
        budget="team/night",
        reason=TerminateReason.BUDGET_BUSY,
        after_s=0.2,
        detail="others hold it",
    ),
    BudgetLost(0.59, "team/night", "the budgets in Redis cannot be used", goes_on=False),
    OutageFound(0.59, 3, FINDING),
    OutageEnded(0.59, 3, FINDING),
    RunHeld(0.59, 3, FINDING),
    RunReleased(at_s=0.59, turn=3, outage=FINDING.outage, what=FINDING.what, why="probe", after_s=16.0),
    OutagesLost(0.59, "the outages in o.db cannot be used"),
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
    """Every public class in `monitor.sinks` that has `emit`, the protocols aside."""
    names = [name for _, name, _ in pkgutil.walk_packages(monitor.sinks.__path__, "monitor.sinks.")]
    classes = {
        value for name in names for value in vars(importlib.import_module(name)).values() if inspect.isclass(value)
    }
    return {
        cls
        for cls in classes
        if cls.__module__.startswith("monitor.sinks")
        and hasattr(cls, "emit")
        and not getattr(cls, "_is_protocol", False)
    }


def test_every_sink_is_under_the_contract():
    assert set(MAKERS) == sinks()


def test_every_event_is_shown_to_the_sinks():
    assert [type(event) for event in EVENTS] == list(EVENT_TYPES)


@pytest.mark.parametrize("cls", MAKERS, ids=lambda cls: cls.__name__)
def test_every_sink_takes_every_event_alone_and_prints_nothing(
    cls: type, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for event in EVENTS:
        sink = MAKERS[cls](tmp_path)
        with closing(sink) if hasattr(sink, "close") else nullcontext():
            assert sink.emit(event) is None, event
            assert sink.emit(event) is None, event
        assert capsys.readouterr().out == "", event


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


# --- values of the caller's that break while they are read


class _Breaks:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


class _BreaksLater(_Breaks):
    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise RuntimeError("no attribute")


class _BrokenMapping(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("no item")

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


class _BrokenList(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("no items")


class _BrokenModel(BaseModel):
    value: Any = None

    @model_serializer
    def dump(self) -> Any:
        raise RuntimeError("no dump")


@dataclass(slots=True)
class _Unset:
    value: Any = field(init=False)


class _Choice(Enum):
    BROKEN = _Breaks()


class _BrokenDate(date):
    def isoformat(self) -> str:
        raise RuntimeError("no date")

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class _BrokenInt(int):
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class _BrokenText(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("no text")


_NESTED: list[Any] = []
_NESTED.append(_NESTED)

BROKEN: list[Any] = [
    10**100_000,
    -(10**5_000),
    _Breaks(),
    _BreaksLater(),
    {_Breaks(): 1},
    {10**100_000: 1},
    _BrokenMapping(),
    _BrokenList([1]),
    _BrokenModel(),
    _Unset(),
    _Choice.BROKEN,
    _BrokenDate(2026, 1, 1),
    _BrokenInt(7),
    _BrokenText("so far"),
    {frozenset({_Breaks()})},
    (item for item in [1]),
    Decimal("NaN"),
    float("nan"),
    b"\xff",
    _NESTED,
    {"\ud800": "\ud800"},
    object(),
]


def carrying(value: Any) -> list[Event]:
    """The events that carry what a model, a tool or the caller made, each with `value` in it, also
    deep inside.
    """
    inside = {"deep": [{"inside": value}]}
    call: Any = ToolCall("c", "search", value)
    return [
        OutputEmitted(at_s=0.5, turn=1, name="when", value=value, overwritten=False),
        OutputEmitted(at_s=0.5, turn=1, name="when", value=inside, overwritten=False),
        ToolStarted(0.6, 1, call),
        ToolStarted(0.6, 1, ToolCall("c", "search", inside, raw=value)),
        ChunkReceived(0.6, 1, ToolCall("c", "search", inside)),
        TurnEnded(0.7, Turn(number=1, tool_calls=(call,), error=ValueError(value))),
        JudgeAnswered(
            at_s=0.7,
            turn=3,
            judge="j",
            fact="loop",
            judgement=Judgement("it repeats", 0.95, found=True, judged_by=value),
        ),
        RunTerminated(
            0.9, Outcome(ok=True, reason=STOP.reason, detail="d", source="s", output=value, emitted={"a": value})
        ),
    ]


@pytest.mark.parametrize("cls", MAKERS, ids=lambda cls: cls.__name__)
def test_no_sink_is_taken_off_for_a_value_that_breaks_while_it_is_read(
    cls: type, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    for number, value in enumerate(BROKEN):
        place = f"{number}: {type(value).__name__}"
        folder = tmp_path / str(number)
        folder.mkdir()
        sink, memory = MAKERS[cls](folder), MemorySink()
        with closing(sink) if hasattr(sink, "close") else nullcontext():
            fan = FanOut([sink, memory])
            for event in carrying(value):
                fan.emit(event)
        assert [type(event) for event in memory.events if isinstance(event, SinkFailed)] == [], place
        if cls is JsonlSink:
            lines = (folder / "events.jsonl").read_text().splitlines()
            assert len(lines) == len(carrying(None)), place
            assert all(json.loads(line)["type"] for line in lines), place


def test_every_event_has_a_line_for_people_whatever_it_carries():
    for number, value in enumerate(BROKEN):
        for event in carrying(value):
            assert line_of(event), f"{number}: {type(value).__name__}"


def test_what_cannot_be_read_is_named_in_its_place():
    value = {"number": 10**5_000, "object": _Breaks(), "good": 1}
    plain = json.loads(event_codec.dumps(OutputEmitted(at_s=0.5, turn=1, name="when", value=value, overwritten=False)))[
        "value"
    ]
    assert plain["number"] == hex(10**5_000)
    assert plain["object"] == "<_Breaks: repr failed with RuntimeError>"
    assert plain["good"] == 1

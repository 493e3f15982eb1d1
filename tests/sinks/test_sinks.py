from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import structlog

from monitor.chunks import AskCost, ToolCall
from monitor.errors import CompactionFailure, CompactionReason, StoreError, TerminateReason
from monitor.events import (
    AbortRequested,
    BudgetAwaited,
    BudgetLost,
    CompactionFailed,
    CompactionSkipped,
    ContextFull,
    ContextNearlyFull,
    DetectionRaised,
    Event,
    HistoryRepaired,
    LimitWarning,
    RunHeld,
    RunIdentity,
    RunReleased,
    RunStarted,
    RunTerminated,
    SandboxDecided,
    SandboxWarning,
    SinkFailed,
    StopDecided,
    StreamFailed,
    TurnEnded,
    TurnStarted,
    WindowWarning,
    event_codec,
)
from monitor.messages import Repair, RepairKind
from monitor.models import ErrorKind, ModelError
from monitor.outcome import Outcome, Turn
from monitor.sinks import FanOut, JsonlSink, LogSink, MemorySink, Sink
from monitor.verdicts import Detection, Evidence, FleetFinding, Stop

STARTED = RunStarted(0.0, ("content_repetition",), "(timeout | idle_timeout)")
TURN = TurnStarted(0.5, 1, 1)
STOPPED = StopDecided(2.0, Stop(TerminateReason.TIMEOUT, "too long", "timeout", 2, 2.0))
ENDED = RunTerminated(
    2.5, Outcome(ok=False, reason=TerminateReason.TIMEOUT, detail="too long", source="timeout", elapsed_s=2.5)
)
RUN: list[Event] = [STARTED, TURN, STOPPED, ENDED]


@dataclass(eq=False)
class Failing:
    """Takes events until one of a class comes."""

    at: type[Event] = TurnStarted
    error: BaseException = field(default_factory=lambda: ValueError("disk full"))
    events: list[Event] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        if isinstance(event, self.at):
            raise self.error
        self.events.append(event)


IDENTITY = RunIdentity(run="r1", root="r1", agent="reviewer", model="openai:m", began_s=1_000.0)


def through(*sinks: Sink) -> list[Event]:
    """Give a run to `sinks`. Returns the events after which the run could go on."""
    fan = FanOut(sinks)
    fan.identity = IDENTITY
    passed: list[Event] = []
    for event in RUN:
        fan.emit(event)
        passed.append(event)
    return passed


# --- one event, several sinks


def test_every_sink_gets_every_event_in_order():
    first, second = MemorySink(), MemorySink()
    through(first, second)
    assert first.events == second.events == RUN


def test_events_go_nowhere_without_sinks():
    assert through() == RUN


def test_a_failing_sink_is_taken_off_and_the_others_go_on():
    failing, healthy = Failing(), MemorySink()
    through(failing, healthy)
    assert failing.events == [STARTED]
    assert [event for event in healthy.events if not isinstance(event, SinkFailed)] == RUN


@pytest.mark.parametrize("failing_first", [True, False])
def test_the_others_are_told_which_sink_failed_and_why(*, failing_first: bool):
    failing, healthy = Failing(), MemorySink()
    through(*((failing, healthy) if failing_first else (healthy, failing)))
    assert [event for event in healthy.events if isinstance(event, SinkFailed)] == [
        SinkFailed(0.5, "Failing", "ValueError: disk full")
    ]


def test_a_sink_that_fails_is_said_in_the_log(caplog: pytest.LogCaptureFixture):
    through(Failing())
    assert [(record.name, record.levelname) for record in caplog.records] == [("monitor.sinks", "WARNING")]
    assert "Failing" in caplog.text
    assert "disk full" in caplog.text


def test_all_sinks_may_fail():
    sinks = [Failing(RunStarted), Failing(TurnStarted), Failing(SinkFailed), Failing(RunTerminated)]
    assert through(*sinks) == RUN
    taken = [[event for event in sink.events if not isinstance(event, SinkFailed)] for sink in sinks]
    assert taken == [[], RUN[:1], RUN[:1], RUN[:-1]]


@pytest.mark.parametrize("at", [RunStarted, TurnStarted, StopDecided, RunTerminated])
@pytest.mark.parametrize("failing_first", [True, False])
def test_the_first_event_stays_the_first_and_the_last_the_last(at: type[Event], *, failing_first: bool):
    """Readers of a record rely on `RunStarted` first and `RunTerminated` last, whatever another
    sink does.
    """
    failing, healthy = Failing(at), MemorySink()
    through(*((failing, healthy) if failing_first else (healthy, failing)))
    assert healthy.events[0] == STARTED
    assert healthy.events[-1] == ENDED
    assert [event for event in healthy.events if not isinstance(event, SinkFailed)] == RUN


@dataclass
class Equal:
    """A sink that is a plain dataclass: two of them with the same contents are equal."""

    broken: list[bool] = field(default_factory=list, compare=False)
    events: list[Event] = field(default_factory=list, compare=False)

    def emit(self, event: Event) -> None:
        if self.broken:
            raise ValueError("broken")
        self.events.append(event)


def test_of_two_sinks_that_are_equal_the_one_that_failed_is_taken_off():
    healthy, failing = Equal(), Equal(broken=[True])
    assert healthy == failing
    through(healthy, failing)
    assert [event for event in healthy.events if not isinstance(event, SinkFailed)] == RUN


class Mute(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("not even this")

    __repr__ = __str__


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), ValueError("\ud800"), RecursionError(), MemoryError(), StopIteration(), Mute()],
    ids=lambda e: type(e).__name__,
)
def test_no_failure_of_a_sink_goes_further(error: Exception, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)  # logging itself would print that it cannot write the line
    healthy = MemorySink()
    through(Failing(error=error), healthy)
    assert ENDED in healthy.events


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)], ids=lambda e: type(e).__name__)
def test_who_wants_to_leave_the_program_may(error: BaseException):
    with pytest.raises(type(error)):
        FanOut([Failing(error=error)]).emit(TURN)


# --- lines of JSON


def lines(path: Path) -> list[Event]:
    return [event_codec.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_line_is_an_event(tmp_path: Path):
    with JsonlSink(tmp_path / "run.jsonl") as sink:
        through(sink)
    assert lines(tmp_path / "run.jsonl") == RUN


def test_a_line_is_on_disk_as_soon_as_the_event_happened(tmp_path: Path):
    with JsonlSink(tmp_path / "run.jsonl") as sink:
        for count, event in enumerate(RUN, 1):
            sink.emit(event)
            assert len(lines(tmp_path / "run.jsonl")) == count


def test_a_second_run_is_appended(tmp_path: Path):
    for _ in range(2):
        with JsonlSink(str(tmp_path / "run.jsonl")) as sink:
            through(sink)
    assert lines(tmp_path / "run.jsonl") == RUN + RUN


def test_the_same_events_give_the_same_bytes(tmp_path: Path):
    for name in ("one", "two"):
        with JsonlSink(tmp_path / name) as sink:
            through(sink)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("text", ["\x00", "line\r\nbreak\u2028and\x85more", "\ud800", "😀"], ids=ascii)
def test_one_event_is_one_line_whatever_its_text(tmp_path: Path, text: str):
    with JsonlSink(tmp_path / "run.jsonl") as sink:
        sink.emit(AbortRequested(1.0, text))
        sink.emit(AbortRequested(2.0, text))
    assert lines(tmp_path / "run.jsonl") == [AbortRequested(1.0, text), AbortRequested(2.0, text)]


def test_a_tool_call_with_a_lone_surrogate_in_a_key_does_not_cost_the_record(tmp_path: Path):
    turn = TurnEnded(1.0, Turn(number=1, tool_calls=(ToolCall("a", "look", json.loads(r'{"\ud800": 1}')),)))
    with JsonlSink(tmp_path / "run.jsonl") as sink:
        fan = FanOut([sink])
        fan.emit(turn)
        fan.emit(ENDED)
    assert lines(tmp_path / "run.jsonl") == [turn, ENDED]


def test_a_file_that_cannot_be_opened_is_a_store_error_that_names_it(tmp_path: Path):
    with pytest.raises(StoreError, match=r"no_such_folder.run\.jsonl"):
        JsonlSink(tmp_path / "no_such_folder" / "run.jsonl")


def test_a_closed_sink_refuses_events_and_may_be_closed_again(tmp_path: Path):
    sink = JsonlSink(tmp_path / "run.jsonl")
    sink.close()
    sink.close()
    with pytest.raises(ValueError, match="closed"):
        sink.emit(TURN)


# --- log lines


@pytest.fixture
def _structlog_as_it_was() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as `extra`."""
    usual = vars(logging.makeLogRecord({}))
    return {key: value for key, value in vars(record).items() if key not in usual and key != "message"}


FAILED = StreamFailed(1.0, 1, ModelError(ErrorKind.NETWORK, "gone"))
LOOP = DetectionRaised(
    1.0, 1, Detection("c", "chant", "text", "loop", 10, 10, 0, 9, Evidence("x", "0" * 16, 1), "it repeats")
)
OUTAGE = FleetFinding(outage="o", what="tool search", error="503", runs=8, failures=9, since_s=3.0, found_s=9.5)
COMPACTION_FAILED = CompactionFailed(
    at_s=1.0,
    turn=3,
    compaction=1,
    failure=CompactionFailure.TIMEOUT,
    retryable=True,
    detail="no answer",
    cost=AskCost(),
    after_s=60.0,
)
LOUDNESS: list[tuple[Event, str, str]] = [
    (STARTED, "run_started", "DEBUG"),
    (TURN, "turn_started", "DEBUG"),
    (LOOP, "detection_raised", "DEBUG"),
    (AbortRequested(1.0, "why"), "abort_requested", "DEBUG"),
    (FAILED, "stream_failed", "WARNING"),
    (LimitWarning(1.0, "max_turns", 24, 30), "limit_warning", "WARNING"),
    (
        BudgetAwaited(at_s=0.0, budget="team", reason=TerminateReason.BUDGET_BUSY, after_s=1.0, detail="held"),
        "budget_awaited",
        "DEBUG",
    ),
    (BudgetLost(0.0, "team", "it is gone", goes_on=False), "budget_lost", "WARNING"),
    (RunHeld(0.0, 1, OUTAGE), "run_held", "WARNING"),
    (
        RunReleased(at_s=0.0, turn=1, outage="o", what="tool search", why="recovered", after_s=3.0),
        "run_released",
        "DEBUG",
    ),
    (SandboxDecided(0.0, "bubblewrap", ("write /srv/app",)), "sandbox_decided", "DEBUG"),
    (SandboxWarning(0.0, "none", "bubblewrap is not installed"), "sandbox_warning", "WARNING"),
    (WindowWarning(0.0, 20_000, "the window is small"), "window_warning", "WARNING"),
    (
        ContextFull(at_s=1.0, turn=3, tokens=90_000, usable_tokens=85_000, detail="85,000 may be used"),
        "context_full",
        "WARNING",
    ),
    (ContextNearlyFull(1.0, 3, 77_000, 85_000), "context_nearly_full", "WARNING"),
    (COMPACTION_FAILED, "compaction_failed", "WARNING"),
    (
        CompactionSkipped(
            at_s=1.0, turn=3, reason=CompactionReason.MANUAL, why=CompactionFailure.CANCELLED, detail="a hook"
        ),
        "compaction_skipped",
        "DEBUG",
    ),
    (HistoryRepaired(1.0, 3, (Repair(RepairKind.RESULT_ADDED, 4, "for look 1"),)), "history_repaired", "WARNING"),
    (STOPPED, "stop_decided", "WARNING"),
    (StopDecided(2.0, Stop(TerminateReason.GOAL, "the model has answered", "model")), "stop_decided", "DEBUG"),
    (StopDecided(2.0, Stop(TerminateReason.TERMINATED, "done", "x", value="success")), "stop_decided", "DEBUG"),
    (StopDecided(2.0, Stop(TerminateReason.TERMINATED, "no", "x", value="failure")), "stop_decided", "WARNING"),
    (SinkFailed(1.0, "JsonlSink", "OSError: disk full"), "sink_failed", "WARNING"),
    (ENDED, "run_terminated", "INFO"),
]
LOUD_IDS = [f"{message}-{level}" for _, message, level in LOUDNESS]


@pytest.mark.usefixtures("_structlog_as_it_was")
@pytest.mark.parametrize(
    ("event", "message", "level"), LOUDNESS, ids=[f"{message}-{level}" for _, message, level in LOUDNESS]
)
def test_without_a_configured_structlog_the_standard_library_logs(
    event: Event, message: str, level: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG, logger="monitor")
    LogSink().emit(event)
    assert [(record.name, record.getMessage(), record.levelname) for record in caplog.records] == [
        ("monitor", message, level)
    ]


@pytest.mark.usefixtures("_structlog_as_it_was")
def test_the_fields_of_an_event_are_fields_of_the_record(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, logger="monitor")
    LogSink().emit(TURN)
    assert fields_of(caplog.records[0]) == {"at_s": 0.5, "turn": 1, "model_call": 1}


@pytest.mark.usefixtures("_structlog_as_it_was")
def test_the_last_line_says_how_the_run_ended(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, logger="monitor")
    LogSink().emit(ENDED)
    assert fields_of(caplog.records[0]) == {"reason": "timeout", "detail": "too long", "ok": False, "elapsed_s": 2.5}


@pytest.mark.usefixtures("_structlog_as_it_was")
def test_a_stop_says_its_reason_and_its_detail(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, logger="monitor")
    LogSink().emit(STOPPED)
    fields = {"at_s": 2.0, "reason": "timeout", "detail": "too long", "source": "timeout"}
    assert fields_of(caplog.records[0]) == fields


@pytest.mark.usefixtures("_structlog_as_it_was")
def test_a_line_says_whose_it_is(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, logger="monitor")
    through(LogSink())
    assert {(record.run, record.agent) for record in caplog.records} == {("r1", "reviewer")}  # type: ignore[attr-defined]


def test_the_last_line_of_a_file_says_reason_and_detail(tmp_path: Path):
    with JsonlSink(tmp_path / "run.jsonl") as sink:
        through(sink)
    last = json.loads((tmp_path / "run.jsonl").read_text().splitlines()[-1])
    assert (last["outcome"]["reason"], last["outcome"]["detail"]) == ("timeout", "too long")
    identity = {"run": "r1", "root": "r1", "parent": None, "call": None, "agent": "reviewer", "model": "openai:m"}
    assert last["envelope"] == {**identity, "began_s": 1000.0, "seq": len(RUN)}


@pytest.mark.usefixtures("_structlog_as_it_was")
@pytest.mark.parametrize(
    ("level", "count"), [(logging.DEBUG, 4), (logging.INFO, 2), (logging.WARNING, 1), (logging.ERROR, 0)]
)
def test_the_level_of_the_logger_decides(level: int, count: int, caplog: pytest.LogCaptureFixture):
    caplog.set_level(level, logger="monitor")
    through(LogSink())
    assert len(caplog.records) == count


@pytest.mark.usefixtures("_structlog_as_it_was")
@pytest.mark.parametrize(
    ("event", "message", "level"), LOUDNESS, ids=[f"{message}-{level}" for _, message, level in LOUDNESS]
)
def test_a_configured_structlog_gets_the_lines(
    event: Event, message: str, level: str, caplog: pytest.LogCaptureFixture
):
    sink = LogSink()  # made before the program configures structlog
    with structlog.testing.capture_logs() as logs:
        sink.emit(event)
    (line,) = logs
    assert (line["event"], line["log_level"]) == (message, level.lower())
    assert not caplog.records


@pytest.mark.usefixtures("_structlog_as_it_was")
def test_a_sink_that_failed_is_told_to_the_log_and_the_log_goes_on(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, logger="monitor")
    through(Failing(), LogSink())
    assert [record.getMessage() for record in caplog.records if record.name == "monitor"].count("sink_failed") == 1
    assert caplog.records[-1].getMessage() == "run_terminated"


PROGRAM = """
import monitor
from monitor.events import *
from monitor.sinks import FanOut
fan = FanOut([monitor.sinks.LogSink()])
fan.emit(RunStarted(0.0, (), None))
fan.emit(StopDecided(1.0, monitor.Stop(monitor.TerminateReason.TIMEOUT, "too long", "timeout")))
outcome = monitor.Outcome(ok=False, reason=monitor.TerminateReason.TIMEOUT, detail="too long", source="timeout")
fan.emit(RunTerminated(1.0, outcome))
print("done")
"""


def test_a_program_that_configured_nothing_finds_nothing_of_ours_on_its_stdout():
    """It may talk a protocol there. Warnings go to stderr, as the standard library has it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=250, check=True)
    assert done.stdout == "done\n"
    assert done.stderr == "stop_decided\n"


# ------------------------------------------------------------------ whose the file is


def test_a_new_log_is_for_its_owner_alone_and_an_old_one_keeps_its_mode(tmp_path: Path):
    JsonlSink(tmp_path / "log").close()
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    (tmp_path / "log").chmod(0o644)
    JsonlSink(tmp_path / "log").close()
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_to_another_file_is_no_log(tmp_path: Path, exists: bool):
    if exists:
        (tmp_path / "victim").write_text("precious")
    (tmp_path / "log").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError, match="it is a symbolic link"):
        JsonlSink(tmp_path / "log")
    assert (tmp_path / "victim").exists() is exists


def test_a_link_to_what_is_no_file_may_be_written_to(tmp_path: Path):
    (tmp_path / "log").symlink_to("/dev/null")
    sink = JsonlSink(tmp_path / "log")
    sink.emit(STARTED)
    sink.close()
    assert (tmp_path / "log").read_bytes() == b""

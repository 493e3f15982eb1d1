"""What happened in a supervised run, as data: every event has a JSON form, and the same script
gives the same events.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from pydantic import BaseModel

import monitor
from monitor.testing import Do, FakeClock, call
from tests.runs.driving import SENTENCE, Drive, Reason, look

pytestmark = pytest.mark.anyio


class Finding(BaseModel):
    what: str
    when: datetime


FINDING = {"what": "noon", "when": "2026-01-01T12:00:00Z"}
SCRIPT: list[Any] = [
    [
        "I think. ",
        monitor.chunks.ReasoningDelta("hm", "c2ln"),
        call("look", q="x"),
        monitor.chunks.UsageReport(input_tokens=900),
    ],
    ConnectionError("gone"),
    [SENTENCE] * 30,
    "Done.",
    [call("update_plan", step=1, status="completed"), call("look", q="y")],
    [call("emit_value", name="finding", value=FINDING), call("emit_value", name="day", value="soon")],
    call("emit_value", name="day", value="2026-01-01"),
]


def everything() -> Drive:
    return Drive(
        *SCRIPT,
        tools=[look],
        outputs={"finding": Finding, "day": date},
        plan=monitor.Plan(["look"]),
        requests=monitor.runs.Requests(retries=monitor.Retries(first_delay_s=0)),
        stop_when=monitor.MaxTurns(7) | monitor.TokenLimit(1_100),
    )


async def test_every_event_of_a_run_has_a_json_form_that_comes_back_the_same():
    run = await everything().go()
    assert run.outcome.reason is Reason.GOAL
    assert run.outcome.output == {
        "finding": Finding(what="noon", when=datetime(2026, 1, 1, 12, tzinfo=UTC)),
        "day": date(2026, 1, 1),
    }
    for event in run.events[:-1]:
        if isinstance(event, monitor.events.TurnEnded) and event.turn.error is not None:
            continue  # an exception comes back as what was recorded of it
        assert monitor.events.event_codec.loads(monitor.events.event_codec.dumps(event)) == event
    last = monitor.events.event_codec.loads(monitor.events.event_codec.dumps(run.events[-1]))
    assert isinstance(last, monitor.events.RunTerminated)
    assert last.outcome.output == {"finding": FINDING, "day": "2026-01-01"}
    assert last.outcome.to_dict() == run.outcome.to_dict()
    kinds = {type(event) for event in run.events}
    assert kinds >= {
        monitor.events.AttemptRetried,
        monitor.events.ChunkReceived,
        monitor.events.DetectionRaised,
        monitor.events.LimitWarning,
        monitor.events.Nudged,
        monitor.events.OutputEmitted,
        monitor.events.PlanUpdated,
        monitor.events.RetryScheduled,
        monitor.events.StreamClosed,
        monitor.events.StreamFailed,
        monitor.events.ToolFinished,
        monitor.events.ToolStarted,
    }


async def test_the_same_script_gives_the_same_events_byte_for_byte():
    lines = [[monitor.events.event_codec.dumps(event) for event in (await everything().go()).events] for _ in range(2)]
    assert lines[0] == lines[1]


async def test_the_history_has_a_json_form():
    run = await everything().go()
    for message in run.run.history:
        assert monitor.messages.message_codec.loads(monitor.messages.message_codec.dumps(message)) == message


async def test_sinks_get_what_the_stream_yields_but_for_the_chunks():
    sink = monitor.sinks.MemorySink()
    d = Drive("Hel", sinks=[sink])
    await d.go()
    assert sink.events == [event for event in d.events if not isinstance(event, monitor.events.ChunkReceived)]
    assert d.of(monitor.events.ChunkReceived)


async def test_an_exception_in_the_callers_body_goes_on_and_is_the_reason():
    d = Drive("Hello")

    async def read() -> None:
        async with d.run as run:
            async for _ in run:
                _ = 1 // 0

    with pytest.raises(ZeroDivisionError):
        await read()
    assert (d.outcome.reason, d.run.phase) == (Reason.ERROR, "error")
    assert isinstance(d.outcome.error, ZeroDivisionError)


async def test_what_is_decided_stands_whatever_the_caller_does_then():
    clock = FakeClock()
    d = Drive(["a", Do(lambda: clock.advance(61)), "b"], stop_when=monitor.Timeout(60), last_turn=None, clock=clock)
    async with d.run as run:
        async for event in run:
            if isinstance(event, monitor.events.StopDecided):
                break
    assert d.outcome.reason is Reason.TIMEOUT

"""Whose an event is: runs inside of runs, told apart in sinks and in the stream of their caller."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

import monitor
from monitor.events import (
    ChunkReceived,
    Envelope,
    RunStarted,
    RunTerminated,
    SinkFailed,
    ToolStarted,
    TurnEnded,
    envelope_codec,
    event_codec,
)
from monitor.sinks import JsonlSink, MemorySink
from monitor.testing import FakeClock, ScriptedModel, Stall, call

pytestmark = pytest.mark.anyio


async def look(at: str) -> str:
    """Look at something."""
    await anyio.lowlevel.checkpoint()
    return f"{at}: closed"


def answers(name: str, turns: int = 2) -> list[Any]:
    return [*([f"{name} looks. ", call("look", at=f"{name} {n}")] for n in range(turns - 1)), f"{name} is done."]


def child(name: str, *, turns: int = 2, **options: Any) -> monitor.tools.Tool:
    model = ScriptedModel(*answers(name, turns), name=f"child:{name}")
    return monitor.Supervisor(model, tools=[look], **options).as_tool(name=name, description="Find something out.")


NAMES = ("north", "south", "west")


def family(sinks: Sequence[Any], **options: Any) -> monitor.Supervisor:
    """A run that calls three others at once."""
    first = [call(name, task=f"look {name}") for name in NAMES]
    options.setdefault("tools", [child(name, turns=2 + n) for n, name in enumerate(NAMES)])
    model = ScriptedModel(first, "All is closed.", name="parent:model")
    return monitor.Supervisor(model, agent="lead", sinks=sinks, clock=FakeClock(), **options)


def by_run(envelopes: Sequence[Envelope]) -> dict[str, list[Envelope]]:
    runs: dict[str, list[Envelope]] = defaultdict(list)
    for envelope in envelopes:
        runs[envelope.run].append(envelope)
    return runs


def assert_laws(envelopes: Sequence[Envelope]) -> None:
    """What holds for the envelopes of one run and of all runs below it."""
    runs = by_run(envelopes)
    roots = {envelope.root for envelope in envelopes}
    assert len(roots) == 1
    for run, told in runs.items():
        counted = [envelope for envelope in told if not isinstance(envelope.event, ChunkReceived)]
        assert [envelope.seq for envelope in counted] == list(range(1, len(counted) + 1))
        assert isinstance(told[0].event, RunStarted)
        assert isinstance(told[-1].event, RunTerminated)
        assert len({envelope.identity for envelope in told}) == 1
        assert (told[0].parent is None) == (run in roots)
        assert told[0].parent is None or told[0].parent in runs
        times = [envelope.time_s for envelope in told]
        assert times == sorted(times)
        before = 0
        for envelope in told:
            assert not isinstance(envelope.event, ChunkReceived) or envelope.seq == before
            before = envelope.seq


async def test_three_runs_at_once_are_told_apart_in_the_sink_of_their_caller():
    memory = MemorySink()
    outcome = await family([memory]).run("look everywhere")
    assert outcome.ok
    assert_laws(memory.envelopes)
    runs = by_run(memory.envelopes)
    root = memory.envelopes[0]
    assert (root.agent, root.model, root.parent, root.root) == ("lead", "parent:model", None, root.run)
    children = {told[0].agent: told for run, told in runs.items() if run != root.run}
    assert set(children) == set(NAMES)
    for name, told in children.items():
        assert told[0].parent == told[0].root == root.run
        assert told[0].model == f"child:{name}"
        said = [envelope.event.turn.text for envelope in told if isinstance(envelope.event, TurnEnded)]
        assert said[-1] == f"{name} is done."
        assert all(name in text for text in said)
    # the call of the parent that is the run
    started = {e.event.call.id: e.event.call.name for e in runs[root.run] if isinstance(e.event, ToolStarted)}
    assert {started[told[0].identity.call or ""] for told in children.values()} == set(NAMES)
    assert {started[told[0].identity.call or ""] == name for name, told in children.items()} == {True}
    # they did run at once: no run's events stand together
    order = [envelope.agent for envelope in memory.envelopes if envelope.agent in NAMES]
    assert sum(a != b for a, b in pairwise(order)) > len(NAMES)


async def test_the_stream_of_a_run_gives_the_same_as_its_sink_and_the_pieces_of_all_answers():
    memory = MemorySink()
    async with family([memory]).stream("look everywhere") as run:
        read = [envelope async for envelope in run.envelopes()]
    assert_laws(read)
    assert [e for e in read if not isinstance(e.event, ChunkReceived)] != []
    for id, told in by_run(memory.envelopes).items():
        assert [e for e in by_run(read)[id] if not isinstance(e.event, ChunkReceived)] == told
    pieces = {e.agent for e in read if isinstance(e.event, ChunkReceived)}
    assert pieces == {"lead", *NAMES}
    assert read[-1].event == RunTerminated(read[-1].event.at_s, run.outcome)


async def test_a_plain_reader_and_a_plain_sink_get_the_events_of_their_own_run_alone():
    class Plain:
        def __init__(self) -> None:
            self.events: list[monitor.events.Event] = []

        def emit(self, event: monitor.events.Event) -> None:
            self.events.append(event)

    plain = Plain()
    async with family([plain]).stream("look everywhere") as run:
        read = [event async for event in run]
    assert [event for event in read if not isinstance(event, ChunkReceived)] == plain.events
    assert sum(isinstance(event, RunStarted) for event in plain.events) == 1
    said = [event.turn.text for event in plain.events if isinstance(event, TurnEnded)]
    assert said == ["", "All is closed."]


async def test_reading_envelopes_after_events_goes_on_with_the_right_number():
    async with family([]).stream("look everywhere") as run:
        assert isinstance(await anext(run), RunStarted)
        rest = [envelope async for envelope in run.envelopes()]
    own = [e.seq for e in rest if e.run == run.id and not isinstance(e.event, ChunkReceived)]
    assert own == list(range(2, len(own) + 2))


async def test_a_reader_that_goes_back_to_events_gets_those_of_its_own_run():
    async with family([]).stream("look everywhere") as run:
        first = await anext(aiter(run.envelopes()))
        rest = [event async for event in run]
    assert isinstance(first.event, RunStarted)
    assert sum(isinstance(event, RunTerminated) for event in rest) == 1


async def test_a_grandchild_names_its_parent_and_the_outermost_run():
    inner = child("inner")
    middle_model = ScriptedModel([call("inner", task="look")], "The middle is done.", name="child:middle")
    middle = monitor.Supervisor(middle_model, tools=[inner], agent="the middle").as_tool(
        name="middle", description="Ask the inner one."
    )
    memory = MemorySink()
    model = ScriptedModel([call("middle", task="ask")], "done")
    async with monitor.Supervisor(model, tools=[middle], sinks=[memory]).stream("go", run_id="root") as run:
        read = [envelope async for envelope in run.envelopes()]
    assert_laws(memory.envelopes)
    assert_laws(read)
    first = {told[0].agent: told[0] for told in by_run(memory.envelopes).values()}
    assert first[""].run == "root"
    assert first["the middle"].parent == "root"
    assert first["inner"].parent == first["the middle"].run
    assert first["inner"].root == "root"


async def test_a_sink_that_caller_and_nested_run_share_gets_each_event_once():
    memory = MemorySink()
    tools = [child(name, sinks=[memory]) for name in NAMES]
    await family([memory], tools=tools).run("look everywhere")
    assert_laws(memory.envelopes)
    assert memory.events == memory.of(memory.envelopes[0].run)


@pytest.mark.parametrize("in_nested", [False, True], ids=["of the caller", "of the nested run"])
async def test_a_sink_that_fails_leaves_no_gap_in_the_numbers_of_the_others(*, in_nested: bool):
    class Failing:
        def receive(self, envelope: Envelope) -> None:
            if isinstance(envelope.event, TurnEnded) and envelope.parent is not None:
                raise ValueError("disk full")

    memory = MemorySink()
    tools = [child(name, sinks=[Failing()] if in_nested else ()) for name in NAMES]
    supervisor = family([memory] if in_nested else [Failing(), memory], tools=tools)
    async with supervisor.stream("look everywhere") as run:
        read = [envelope async for envelope in run.envelopes()]
    assert_laws(memory.envelopes)
    assert_laws(read)
    failed = [e for e in read if isinstance(e.event, SinkFailed)]
    assert sorted(e.agent for e in failed) == sorted(NAMES)
    assert {e.event.why for e in failed if isinstance(e.event, SinkFailed)} == {"ValueError: disk full"}


async def test_news_that_a_sink_itself_causes_come_after_the_event_that_it_got():
    class Aborting:
        def __init__(self) -> None:
            self.fan: Any = None

        def emit(self, event: monitor.events.Event) -> None:
            if isinstance(event, monitor.events.TurnStarted):
                self.fan.emit(monitor.events.Paused(1.0))

    aborting, memory = Aborting(), MemorySink()
    fan = aborting.fan = monitor.sinks.FanOut([aborting, memory])
    fan.emit(monitor.events.TurnStarted(1.0, 1, 1))
    assert [(e.seq, type(e.event).__name__) for e in memory.envelopes] == [(1, "TurnStarted"), (2, "Paused")]


async def test_a_run_that_is_left_early_ends_the_envelopes_of_its_nested_runs():
    slow = ScriptedModel(["I look. ", Stall(), "never"], name="child:slow")
    tool = monitor.Supervisor(slow).as_tool(name="slow", description="Takes long.")
    memory = MemorySink()
    model = ScriptedModel([call("slow", task="look")], "done")
    async with monitor.Supervisor(model, tools=[tool], sinks=[memory]).stream("go") as run:
        async for envelope in run.envelopes():
            if isinstance(envelope.event, ChunkReceived) and envelope.agent == "slow":
                break
    assert_laws(memory.envelopes)
    assert len(by_run(memory.envelopes)) == 2


async def test_a_guard_has_an_identity_of_its_own():
    memory = MemorySink()

    async def chunks() -> Any:
        yield "hello"

    for _ in range(2):
        async with monitor.Guard(agent="mine", sinks=[memory]) as guard, guard.watch(chunks()) as watched:
            async for _ in watched:
                pass
    runs = by_run(memory.envelopes)
    assert len(runs) == 2
    for told in runs.values():
        assert_laws(told)
        assert (told[0].agent, told[0].model, told[0].parent) == ("mine", None, None)


async def test_a_line_of_the_log_is_the_envelope_and_reads_as_the_event(tmp_path: Path):
    memory = MemorySink()
    with JsonlSink(tmp_path / "log") as sink:
        await family([sink, memory]).run("look everywhere")
    lines = (tmp_path / "log").read_text().splitlines()
    assert [envelope_codec.loads(line) for line in lines] == [
        envelope_codec.loads(envelope_codec.dumps(envelope)) for envelope in memory.envelopes
    ]
    for line, envelope in zip(lines, memory.envelopes, strict=True):
        assert envelope_codec.loads(line).identity == envelope.identity
        assert envelope_codec.dumps(envelope_codec.loads(line)) == line
        assert type(event_codec.loads(line)) is type(envelope.event)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"type":"paused","at_s":1}', "without an envelope"),
        ('{"type":"paused","at_s":1,"envelope":3}', "envelope.seq"),
        ('{"type":"paused","at_s":1,"envelope":{"run":"r","root":"r"}}', "envelope.seq"),
        ('{"type":"paused","at_s":1,"envelope":{"seq":1,"run":"r"}}', "root"),
        ('{"type":"paused","at_s":1,"envelope":{"seq":1,"run":"r","root":"r","who":"x"}}', "no such field"),
        ("[]", "expected a JSON object"),
    ],
)
async def test_a_line_that_does_not_say_properly_whose_it_is_is_refused(line: str, complaint: str):
    with pytest.raises(ValueError, match=complaint):
        envelope_codec.loads(line)

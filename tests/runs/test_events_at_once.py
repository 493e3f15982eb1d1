"""Each event reaches the sinks and the reader of its run when it happens, and is stored by then."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import anyio
import pytest

import monitor
from monitor.events import (
    ApprovalAnswered,
    ApprovalRequested,
    Envelope,
    ToolCallChanged,
    ToolFinished,
    ToolOutput,
    ToolProgressed,
    ToolStarted,
    event_codec,
)
from monitor.messages import ApprovalAnswer, ApprovalRequest, CallState
from monitor.runs.record.recorder import NOT_STORED
from monitor.sessions import Changes, Committed, InMemorySession, SessionStore
from monitor.shared import Failure, Outages
from monitor.testing import FakeClock, ScriptedModel, call
from tests.examples import every_second
from tests.runs.driving import SENTENCE, Reason
from tests.runs.test_outage_gate import outages_of
from tests.runs.test_run_session import Died, Mortal

pytestmark = pytest.mark.anyio

SLOW_S = 30
"""How long the slowest call takes."""


@dataclass
class World:
    """A run whose tools and approver take time on a clock of its own."""

    shape: str
    store: SessionStore | None = None
    clock: FakeClock = field(default_factory=FakeClock)
    sunk: list[tuple[float, Envelope]] = field(default_factory=list)
    """The envelopes that a sink got, with their times."""
    read: list[tuple[float, Envelope]] = field(default_factory=list)
    """The envelopes that the reader got, with their times."""
    outages: Outages = field(init=False)

    def __post_init__(self) -> None:
        self.outages = outages_of(self.clock)

    async def begin(self) -> Self:
        """A tool has failed in other runs, if the shape says so."""
        for number in range(4 if self.shape == "outage" else 0):
            await self.outages.failed([Failure("tool work", "tool work", "down", "it is down")], f"run {number}")
        return self

    def receive(self, envelope: Envelope) -> None:
        self.sunk.append((self.clock.now(), envelope))

    def tools(self) -> list[Any]:
        @monitor.tool(name="work", kind="read")
        async def work(context: monitor.ToolContext, seconds: float) -> str:
            await context.output(f"begun {seconds}")
            await self.clock.sleep(seconds / 2)
            context.progress(1.0, 2.0, "halfway")
            await self.clock.sleep(seconds / 2)
            await context.output(f"ended {seconds}")
            return f"took {seconds}"

        @monitor.tool(name="fail", kind="read")
        async def fail(seconds: float) -> str:
            await self.clock.sleep(seconds)
            raise monitor.ToolError("it failed")

        @monitor.tool(name="ask", needs_approval=True, kind="read")
        async def ask(decision: str, seconds: float) -> str:
            await self.clock.sleep(seconds)
            return f"was {decision}"

        @monitor.tool(name="write", needs_approval=True, kind="edit")
        async def write(decision: str, seconds: float) -> str:
            await self.clock.sleep(seconds)
            return f"was {decision}"

        return [work, fail, ask, write]

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        await self.clock.sleep(3)
        decision = request.arguments.get("decision", "approved")
        return ApprovalAnswer(id=request.id, decision=decision)

    def supervisor(self) -> monitor.Supervisor:
        options: dict[str, Any] = {"tools": self.tools(), "calls": monitor.runs.ToolCalls(approver=self.approve)}
        answers: list[Any] = [*CALLS[self.shape], "Done."]
        if self.shape == "nested":
            child = monitor.Supervisor(ScriptedModel(CALLS["three"][0], "Found."), **options)
            options["tools"] = [*options["tools"], child.as_tool(name="child", description="Looks.")]
        if self.shape == "outage":
            options["requests"] = monitor.runs.Requests(outages=self.outages)
        if self.shape == "held":
            options["policy"] = monitor.Ladder(hold=True)
        return monitor.Supervisor(
            ScriptedModel(*answers), sinks=[self], clock=self.clock, session=self.store, **options
        )

    def late(self) -> list[str]:
        """The events that were read or sunk after they had happened, or before they were stored."""
        began: dict[str, float] = {}
        found: list[str] = []
        for who in (self.sunk, self.read):
            for now, envelope in who:
                began.setdefault(envelope.run, now - envelope.event.at_s)
                due = began[envelope.run] + envelope.event.at_s
                if now != due:
                    found.append(f"{type(envelope.event).__name__} of {due:g} s at {now:g} s")
        return found


CALLS: dict[str, list[Any]] = {
    "one": [[call("work", seconds=SLOW_S)]],
    "three": [
        [
            call("work", seconds=2),
            call("fail", seconds=5),
            call("ask", decision="approved", seconds=4),
            call("ask", decision="denied", seconds=0),
            call("ask", decision="expired", seconds=0),
            call("work", seconds="wrong"),
            call("work", seconds=SLOW_S),
        ]
    ],
    "queued": [
        [
            call("write", decision="approved", seconds=SLOW_S),
            call("write", decision="approved", seconds=4),
            call("write", decision="denied", seconds=4),
        ]
    ],
    "nested": [[call("work", seconds=SLOW_S + 10), call("child", task="look"), call("work", seconds=1)]],
    "outage": [[call("work", seconds=SLOW_S)]],
    "held": [SENTENCE * 40, SENTENCE * 40, [call("work", seconds=SLOW_S)]],
}
SHAPES = [*CALLS]


@pytest.fixture(params=["memory", None], ids=["session", "no session"])
def store(request: pytest.FixtureRequest) -> SessionStore | None:
    return InMemorySession() if request.param == "memory" else None


@pytest.mark.feature("GT-04")
@pytest.mark.parametrize("shape", SHAPES)
async def test_each_event_reaches_sinks_and_reader_at_the_time_it_happens(shape: str, store: SessionStore | None):
    world = await World(shape, store).begin()
    async with world.clock.autojump(), world.supervisor().stream("go") as run:
        async for envelope in run.envelopes():
            world.read.append((world.clock.now(), envelope))
    assert run.outcome.ok
    assert world.late() == []
    read = [one for _, one in world.read if not isinstance(one.event, monitor.events.ChunkReceived)]
    assert read == [one for _, one in world.sunk]
    assert world.clock.now() >= SLOW_S
    if store is not None:
        for run_id in {one.run for one in read}:
            kept = [event_codec.dumps(stored.event) for stored in await store.events(run_id)]
            heard = [event_codec.dumps(one.event) for one in read if one.run == run_id]
            assert [one for one in heard if event_codec.loads(one).__class__ not in NOT_STORED] == kept


@pytest.mark.feature("GT-04")
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_run_that_nobody_reads_tells_its_sinks_at_once(shape: str, store: SessionStore | None):
    world = await World(shape, store).begin()
    async with world.clock.autojump():
        assert (await world.supervisor().run("go")).ok
    assert world.late() == []


@pytest.mark.feature("GT-04")
async def test_the_states_of_calls_are_all_read_before_the_slowest_call_ends(store: SessionStore | None):
    world = await World("three", store).begin()
    states: dict[str, list[str]] = {}
    kinds: set[type[Any]] = set()
    async with world.clock.autojump(), world.supervisor().stream("go") as run:
        async for event in run:
            if world.clock.now() >= SLOW_S:
                continue
            kinds.add(type(event))
            if isinstance(event, ToolCallChanged):
                told = event.record.arguments
                name = f"{event.record.tool} {told.get('decision', told['seconds'])}"
                states.setdefault(name, []).append(event.record.state.value)
    asked = ["intended", "awaiting_approval"]
    assert states == {
        "work 2": ["intended", "running", "done"],
        "fail 5": ["intended", "running", "failed"],
        "ask approved": [*asked, "running", "done"],
        "ask denied": [*asked, "denied"],
        "ask expired": [*asked, "expired"],
        "work wrong": ["intended", "failed"],
        f"work {SLOW_S}": ["intended", "running"],
    }
    assert kinds >= {ToolStarted, ToolFinished, ToolOutput, ToolProgressed, ApprovalRequested, ApprovalAnswered}


class AfterEach(Mortal):
    """A session that notes what it has, at each commit."""

    def __init__(self, store: SessionStore) -> None:
        super().__init__(store, 10_000, after=False)
        self.calls_at: list[Changes] = []

    async def commit(self, changes: Changes) -> Committed:
        self.calls_at.append(changes)
        return await self._store.commit(changes)


@pytest.mark.feature("GT-04")
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_state_that_is_told_is_in_the_session(shape: str):
    store = InMemorySession()
    world = await World(shape, store).begin()
    async with world.clock.autojump(), world.supervisor().stream("go") as run:
        async for envelope in run.envelopes():
            event = envelope.event
            if isinstance(event, ToolCallChanged):
                (record,) = [one for one in await store.calls() if one.key == event.record.key]
                order = [*CallState]
                assert order.index(record.state) >= order.index(event.record.state)
            elif isinstance(event, ApprovalRequested):
                assert event.request.id in [one.request.id for one in await store.approvals()]
                if event.request.call_id:
                    waiting = [one for one in await store.calls() if one.approval == event.request.id]
                    assert [one.state for one in waiting] == [CallState.AWAITING_APPROVAL]
            elif isinstance(event, ApprovalAnswered):
                answers = [one.answer.id for one in await store.approvals() if one.answer is not None]
                assert event.answer.id in answers


@pytest.mark.feature("GT-04")
@pytest.mark.parametrize("how", ["abort", "break"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_who_leaves_at_any_event_ends_the_run_at_once(shape: str, how: str, store: SessionStore | None):
    whole = await World(shape, InMemorySession() if store is not None else None).begin()
    async with whole.clock.autojump(), whole.supervisor().stream("go") as run:
        kinds = {kind_of(event): None async for event in run}
    assert len(kinds) > 8
    for kind in every_second(kinds, odd=how == "break"):
        world = await World(shape, InMemorySession() if store is not None else None).begin()
        left_at = -1.0
        async with world.clock.autojump(), world.supervisor().stream("go") as run:
            async for event in run:
                if left_at < 0 and kind_of(event) == kind:
                    left_at = world.clock.now()
                    if how == "break":
                        break
                    run.abort("enough")
        assert world.clock.now() == left_at, kind
        left = run.outcome.reason in {Reason.ABORTED, Reason.CLOSED_BY_CALLER}
        assert left or (run.outcome.ok and left_at >= SLOW_S)  # the model had given its answer
        assert world.clock.pending == 0


def kind_of(event: Any) -> str:
    """The type of an event, and the state of its call."""
    state = f" {event.record.state}" if isinstance(event, ToolCallChanged) else ""
    return f"{type(event).__name__}{state}"


@pytest.mark.feature("GT-04")
async def test_a_turn_in_which_nothing_is_slow_has_two_commits_with_a_reader_too():
    store = AfterEach(InMemorySession())

    async def look(q: str) -> str:
        """Look."""
        return q

    for number in (1, 3):
        store.calls_at = []
        model = ScriptedModel([call("look", q=str(n)) for n in range(number)], "Done.")
        async with monitor.Supervisor(model, tools=[look], session=store).stream("go") as run:
            async for _ in run:
                pass
        assert run.outcome.ok
        assert len(store.calls_at) == 5  # the beginning, the calls, their results, the answer, the end


@pytest.mark.feature("GT-04")
async def test_calls_that_end_one_after_the_other_have_one_commit_each():
    store = AfterEach(InMemorySession())
    world = await World("three", store).begin()
    async with world.clock.autojump():
        assert (await world.supervisor().run("go")).ok
    assert len(store.calls_at) <= 4 + 1 + 3 + 2 * 3  # the run; each end; each question; each answer and what follows


@pytest.mark.feature("GT-04")
@pytest.mark.parametrize(("steps", "after"), [(1, True), (2, False)], ids=["before the question", "after it"])
async def test_a_run_that_died_while_a_person_was_asked_goes_on_with_the_question(steps: int, after: bool):
    asked: list[str] = []
    states: list[list[str]] = []

    @monitor.tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    async def dies(request: ApprovalRequest) -> bool:
        asked.append(request.id)
        states.append([one.state.value for one in await memory.calls()])
        raise Died

    async def answers(request: ApprovalRequest) -> bool:
        asked.append(request.id)
        with anyio.fail_after(60):
            await is_read.wait()
        return True

    is_read = anyio.Event()

    memory = InMemorySession()
    options: dict[str, Any] = {"tools": [pay]}
    first = monitor.Supervisor(
        ScriptedModel([call("pay", amount=3)]), calls=monitor.runs.ToolCalls(approver=dies), **options
    )
    with pytest.raises(Died):
        await first.run("go", session=Mortal(memory, steps, after=after))
    assert states == [["awaiting_approval"]] * (not after)
    (record,) = await memory.calls()
    (question,) = await memory.approvals(only_open=True)
    assert (record.state, record.approval) == (CallState.AWAITING_APPROVAL, question.request.id)
    second = monitor.Supervisor(
        ScriptedModel("Paid."), calls=monitor.runs.ToolCalls(approver=answers), session=memory, **options
    )
    async with await second.resume_stream() as run:
        async for event in run:
            if isinstance(event, ApprovalRequested):
                is_read.set()
    assert run.outcome.ok
    assert asked == [question.request.id] * (1 if after else 2)
    assert [one.state for one in await memory.calls()] == [CallState.DONE]
    assert [one.answer.decision for one in await memory.approvals() if one.answer is not None] == ["approved"]

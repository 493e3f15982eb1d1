"""Runs of many supervisors that wait together for what fails in all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import monitor
from monitor.errors import ConfigError, StoreError, TerminateReason, ToolError, ToolErrorKind
from monitor.events import OutageEnded, OutageFound, OutagesLost, RunHeld, RunReleased, RunTerminated
from monitor.messages import CallState
from monitor.models import ModelRequest
from monitor.policy import StopAtFirstLoop
from monitor.sessions import InMemorySession
from monitor.shared import Failure, InMemoryOutages, OutageRule, Outages
from monitor.testing import CapturedEvents, FakeClock, ScriptedModel, call

pytestmark = pytest.mark.anyio

RULE = OutageRule(runs=4, window_s=120.0, probe_every_s=10.0)


class Fleet:
    """Supervisors that share a clock and a list of events."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.events = CapturedEvents()

    def supervisor(self, model: Any, **options: Any) -> monitor.Supervisor[Any]:
        """A supervisor of this fleet. Its tools are asynchronous, as the clock sees no threads."""
        given = {"clock": self.clock, "sinks": [self.events], "detectors": None, **options}
        return monitor.Supervisor(model, **given)

    async def one(self, supervisor: monitor.Supervisor[Any]) -> monitor.Outcome[Any]:
        """One run."""
        return await supervisor.run("task")

    async def run(self, supervisor: monitor.Supervisor[Any], runs: int, every_s: float) -> list[monitor.Outcome[Any]]:
        """`runs` runs, of which one begins each `every_s` seconds."""
        outcomes: list[monitor.Outcome[Any]] = []

        async def one(after_s: float) -> None:
            await self.clock.sleep(after_s)
            outcomes.append(await self.one(supervisor))

        async with self.clock.autojump(), anyio.create_task_group() as group:
            for number in range(runs):
                group.start_soon(one, every_s * (number + 1))
        return outcomes


class Service:
    """A tool's service, which is down until some time."""

    def __init__(self, fleet: Fleet, until: float, error: Callable[[], Exception] | None = None) -> None:
        self._fleet = fleet
        self._until = until
        self._error = error or (lambda: RuntimeError("the index is gone"))
        self.calls = self.failures = 0

    async def search(self, q: str) -> str:
        """Search."""
        self.calls += 1
        await self._fleet.clock.sleep(2.0)
        if self._fleet.clock.now() < self._until:
            self.failures += 1
            raise self._error()
        return f"all about {q}"


def asks(times: int = 1) -> Callable[[ModelRequest], Any]:
    """A model that searches until it has found enough."""

    def answer(request: ModelRequest) -> Any:
        found = sum("all about" in str(message) for message in request.messages)
        return "done" if found >= times else call("search", q="anyio")

    return answer


def outages_of(clock: FakeClock, **options: Any) -> Outages:
    return Outages(InMemoryOutages(clock=clock.now), **{"rule": RULE, **options})


async def test_a_fleet_waits_for_a_tool_and_goes_on_when_it_works_again():
    fleet = Fleet()
    service = Service(fleet, until=100.0)
    outages = outages_of(fleet.clock)
    supervisor = fleet.supervisor(
        ScriptedModel(asks()), tools=[service.search], requests=monitor.runs.Requests(outages=outages)
    )
    outcomes = await fleet.run(supervisor, runs=12, every_s=1.0)
    assert {outcome.reason for outcome in outcomes} == {TerminateReason.GOAL}
    (found,), (ended,) = fleet.events.of(OutageFound), fleet.events.of(OutageEnded)
    assert (found.finding.what, found.finding.runs) == ("tool search", 4)
    assert ended.finding.outage == found.finding.outage
    # those before the finding, those on their way, and the probes after 10, 20 and 40 s
    assert service.failures < 20
    assert [one.why for one in fleet.events.of(RunReleased)].count("probe") == 4
    held, released = fleet.events.of(RunHeld), fleet.events.of(RunReleased)
    assert len(held) == len(released)
    assert {one.why for one in released} == {"probe", "recovered"}
    assert not fleet.clock.pending


async def test_without_a_tool_that_fails_nothing_is_held():
    fleet = Fleet()
    supervisor = fleet.supervisor(
        ScriptedModel(asks()),
        tools=[Service(fleet, until=0.0).search],
        requests=monitor.runs.Requests(outages=outages_of(fleet.clock)),
    )
    await fleet.run(supervisor, runs=12, every_s=1.0)
    assert not fleet.events.of(RunHeld)
    assert not fleet.events.of(OutageFound)


async def test_a_fleet_waits_for_its_provider_and_no_run_uses_up_its_retries():
    fleet, failures = Fleet(), 0

    def answer(request: ModelRequest) -> Any:
        nonlocal failures
        if fleet.clock.now() < 100.0:
            failures += 1
            return ConnectionError("gone")
        return "done"

    supervisor = fleet.supervisor(
        ScriptedModel(answer),
        requests=monitor.runs.Requests(outages=outages_of(fleet.clock), retries=monitor.Retries(1)),
        stop_when=None,
    )
    outcomes = await fleet.run(supervisor, runs=12, every_s=0.1)
    assert {outcome.reason for outcome in outcomes} == {TerminateReason.GOAL}
    (found,) = fleet.events.of(OutageFound)
    assert found.finding.what == "model scripted:model"
    assert failures <= 12 + 4


@pytest.mark.parametrize("limit", [monitor.Timeout(40), monitor.MaxTurns(50)])
async def test_the_limits_of_a_held_run_go_on(limit: monitor.Condition):
    fleet = Fleet()
    outages = outages_of(fleet.clock, hold_s=1_000.0)
    service = Service(fleet, until=200.0)
    supervisor = fleet.supervisor(
        ScriptedModel(asks()),
        tools=[service.search],
        requests=monitor.runs.Requests(outages=outages),
        stop_when=limit,
        last_turn=None,
    )
    outcomes = await fleet.run(supervisor, runs=6, every_s=1.0)
    timed_out = isinstance(limit, monitor.Timeout)
    assert {outcome.reason for outcome in outcomes} == {TerminateReason.TIMEOUT if timed_out else TerminateReason.GOAL}
    assert ("run_ended" in {one.why for one in fleet.events.of(RunReleased)}) == timed_out
    assert not fleet.clock.pending


async def test_an_abort_ends_a_held_run():
    fleet = Fleet()
    supervisor = fleet.supervisor(
        ScriptedModel(asks()),
        tools=[Service(fleet, until=1e9).search],
        requests=monitor.runs.Requests(outages=outages_of(fleet.clock)),
    )
    async with anyio.create_task_group() as group:
        group.start_soon(fleet.run, supervisor, 5, 1.0)
        async with supervisor.stream("task") as run:
            async for event in run:
                if isinstance(event, RunHeld):
                    run.abort("enough")
        assert run.outcome.reason is TerminateReason.ABORTED
        group.cancel_scope.cancel()


async def test_a_run_that_has_waited_long_enough_goes_on_in_spite_of_the_outage():
    fleet = Fleet()
    service = Service(fleet, until=1e9)
    supervisor = fleet.supervisor(
        ScriptedModel(asks()),
        tools=[service.search],
        requests=monitor.runs.Requests(outages=outages_of(fleet.clock, hold_s=30.0)),
        stop_when=monitor.MaxTurns(6),
        last_turn=None,
    )
    outcomes = await fleet.run(supervisor, runs=6, every_s=1.0)
    assert TerminateReason.GOAL not in {outcome.reason for outcome in outcomes}
    assert "waited_long_enough" in {one.why for one in fleet.events.of(RunReleased)}
    assert fleet.clock.now() < 120.0


async def test_a_held_run_stores_its_turn_first_and_is_left_as_soon_as_it_is_handed_over():
    fleet, session = Fleet(), InMemorySession()
    outages = outages_of(fleet.clock)

    async def search(q: str) -> str:
        """Search."""
        for number in range(4):
            model = "model scripted:model"
            await outages.failed([Failure(model, model, "down", "the model is down")], f"other run {number}")
        return f"all about {q}"

    async def goes_on() -> None:
        await anyio.wait_all_tasks_blocked()
        fleet.clock.advance(1.0)

    supervisor = fleet.supervisor(
        ScriptedModel(asks(2)), tools=[search], requests=monitor.runs.Requests(outages=outages)
    )
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group, supervisor.stream("task", session=session) as run:
            run.hand_over(at_turn=9)
            async for event in run:
                if isinstance(event, RunHeld):
                    assert [one.state for one in await session.calls()] == [CallState.DONE]
                    run.hand_over()
                    group.start_soon(goes_on)
    assert (run.outcome.reason, run.outcome.turns) == (TerminateReason.WORKER_STOPPING, 1)
    assert [one.why for one in fleet.events.of(RunReleased)] == ["run_ended"]


async def test_by_option_an_outage_is_told_and_nobody_is_held():
    fleet = Fleet()
    supervisor = fleet.supervisor(
        ScriptedModel(asks()),
        tools=[Service(fleet, until=20.0).search],
        requests=monitor.runs.Requests(outages=outages_of(fleet.clock, hold_s=None)),
    )
    await fleet.run(supervisor, runs=8, every_s=1.0)
    assert len(fleet.events.of(OutageFound)) == 1
    assert not fleet.events.of(RunHeld)


@pytest.mark.parametrize(
    ("error", "is_outage"),
    [
        (lambda: RuntimeError("the index is gone"), True),
        (lambda: TimeoutError("no answer"), True),
        (lambda: ToolError("the index answered 503"), True),
        (lambda: ToolError("2 of 40 tests failed"), False),
        (lambda: ToolError("no such page", kind=ToolErrorKind.NOT_FOUND), False),
        (lambda: FileNotFoundError("a.txt"), False),
        (lambda: ToolError("q is no word", kind=ToolErrorKind.INVALID_ARGUMENTS), False),
    ],
)
async def test_what_a_tool_says_of_the_call_is_no_outage(error: Callable[[], Exception], is_outage: bool):
    fleet = Fleet()
    supervisor = fleet.supervisor(
        ScriptedModel(asks()),
        tools=[Service(fleet, until=30.0, error=error).search],
        requests=monitor.runs.Requests(outages=outages_of(fleet.clock)),
    )
    await fleet.run(supervisor, runs=8, every_s=1.0)
    assert bool(fleet.events.of(OutageFound)) == is_outage


async def test_a_tool_that_worked_before_and_says_that_it_fails_now_has_an_outage():
    fleet = Fleet()

    async def publish(page: str) -> str:
        """Publish."""
        await fleet.clock.sleep(2.0)
        if 10.0 <= fleet.clock.now() < 60.0:
            raise ToolError(f"{page} was not taken")
        return "all about it"

    def answer(request: ModelRequest) -> Any:
        found = sum("all about" in str(message) for message in request.messages)
        return "done" if found else call("publish", page=f"page-{len(request.messages)}-{fleet.clock.now()}")

    supervisor = fleet.supervisor(
        ScriptedModel(answer), tools=[publish], requests=monitor.runs.Requests(outages=outages_of(fleet.clock))
    )
    outcomes = await fleet.run(supervisor, runs=20, every_s=1.0)
    (found,) = fleet.events.of(OutageFound)
    assert found.finding.since_s >= 10.0
    assert {outcome.reason for outcome in outcomes} == {TerminateReason.GOAL}


async def test_runs_of_different_supervisors_and_nested_ones_share_one_outage():
    fleet = Fleet()
    service, outages = Service(fleet, until=50.0), outages_of(fleet.clock)
    helper = fleet.supervisor(ScriptedModel(asks()), tools=[service.search])
    nested = fleet.supervisor(
        ScriptedModel(lambda request: call("helper", task="look") if len(request.messages) == 1 else "done"),
        tools=[helper.as_tool(name="helper", description="Helps.")],
        requests=monitor.runs.Requests(outages=outages),
    )
    plain = fleet.supervisor(
        ScriptedModel(asks()), tools=[service.search], requests=monitor.runs.Requests(outages=outages)
    )
    async with fleet.clock.autojump(), anyio.create_task_group() as group:
        for supervisor in (nested, plain) * 3:
            group.start_soon(fleet.one, supervisor)
    assert {ended.outcome.reason for ended in fleet.events.of(RunTerminated)} == {TerminateReason.GOAL}
    assert len(fleet.events.of(OutageFound)) == 1


class Lost(InMemoryOutages):
    """A store that cannot be used."""

    async def change(self, subject: str, step: Any, rule: Any) -> Any:
        raise StoreError("no route to the store")


async def test_without_its_store_a_run_goes_on_and_says_so_once():
    fleet = Fleet()
    supervisor = fleet.supervisor(
        ScriptedModel(asks()),
        tools=[Service(fleet, until=4.0).search],
        requests=monitor.runs.Requests(outages=Outages(Lost(clock=fleet.clock.now), rule=RULE)),
    )
    (outcome,) = await fleet.run(supervisor, runs=1, every_s=1.0)
    assert outcome.reason is TerminateReason.GOAL
    assert len(fleet.events.of(OutagesLost)) == 1


async def test_a_run_that_was_held_is_decided_again_without_the_outages():
    fleet, session = Fleet(), InMemorySession(chunks=True)
    service, outages = Service(fleet, until=50.0), outages_of(fleet.clock)
    plain = fleet.supervisor(
        ScriptedModel(asks()), tools=[service.search], requests=monitor.runs.Requests(outages=outages)
    )
    async with fleet.clock.autojump(), anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(fleet.one, plain)
        outcome = await plain.run("task", session=session)
    again = await monitor.replay(session)
    assert (again.exact, again.departed) == (True, None)
    assert outcome.reason is TerminateReason.GOAL


def test_what_are_no_outages_is_refused():
    with pytest.raises(ConfigError, match="outages"):
        monitor.Supervisor(ScriptedModel("done"), requests=monitor.runs.Requests(outages=InMemoryOutages()))  # type: ignore[arg-type]


ADDRESSES: list[Callable[[int], str]] = [
    lambda n: f"10.0.{n}.7:{40_000 + n}",
    lambda n: f"[fe80::{n:x}1]:{50_000 + n}",
    lambda n: f"db-{n}.internal:5432",
    lambda n: f"port {n * 917}",
    lambda n: f"request req_{n * 7919:x}Q",
    lambda n: f"id={n * 104_729}",
    lambda n: f"attempt {n}, {n * 13} rows",
    lambda n: f"shard-{n}/replica-{n % 3}",
    lambda n: f"trace {n:032x}",
    lambda n: f"offset 0x{n * 4093:x}",
]


@pytest.mark.parametrize("numbered", ADDRESSES, ids=[one(7) for one in ADDRESSES])
async def test_errors_that_differ_in_addresses_ids_and_numbers_are_one_outage(numbered: Callable[[int], str]):
    fleet, numbers = Fleet(), iter(range(3, 1_000))
    service = Service(fleet, until=30.0, error=lambda: ConnectionError(f"cannot reach {numbered(next(numbers))}, gone"))
    supervisor = fleet.supervisor(
        ScriptedModel(asks()),
        tools=[service.search],
        requests=monitor.runs.Requests(outages=outages_of(fleet.clock)),
        stop_when=None,
    )
    await fleet.run(supervisor, runs=8, every_s=0.5)
    assert len(fleet.events.of(OutageFound)) == 1


async def test_errors_that_say_different_things_are_no_outage():
    fleet = Fleet()
    said = (f"{'abcdefghij'[number % 10] * 4} is wrong" for number in itertools.count())
    service = Service(fleet, until=4.0, error=lambda: RuntimeError(next(said)))
    supervisor = fleet.supervisor(
        ScriptedModel(asks()),
        tools=[service.search],
        requests=monitor.runs.Requests(outages=outages_of(fleet.clock)),
        stop_when=None,
    )
    await fleet.run(supervisor, runs=8, every_s=0.2)
    assert not fleet.events.of(OutageFound)


CHANT = "Let me check the file again. " * 60


@pytest.mark.parametrize(("chanting", "told"), [(58, 1), (40, 1), (20, 0)])
async def test_a_model_that_loops_in_most_runs_at_once_is_one_outage_of_the_model(chanting: int, told: int):
    fleet, began = Fleet(), iter(range(1_000))

    def answer(request: ModelRequest) -> Any:
        return CHANT if next(began) * 7 % 60 < chanting else "done"

    outages = Outages(InMemoryOutages(clock=fleet.clock.now), hold_s=None)
    supervisor = fleet.supervisor(
        ScriptedModel(answer),
        requests=monitor.runs.Requests(outages=outages),
        detectors=monitor.default_detectors(),
        policy=StopAtFirstLoop(),
    )
    outcomes = await fleet.run(supervisor, runs=60, every_s=0.5)
    assert sum(one.reason is TerminateReason.LOOP_DETECTED for one in outcomes) == chanting
    found = fleet.events.of(OutageFound)
    assert len(found) == told
    assert {(one.finding.what, one.finding.error) for one in found} <= {
        ("model scripted:model", "loop: the model repeats itself")
    }


async def test_runs_wait_while_a_model_loops_and_go_on_when_it_answers():
    fleet = Fleet()

    def answer(request: ModelRequest) -> Any:
        return CHANT if fleet.clock.now() < 30.0 else "done"

    supervisor = fleet.supervisor(
        ScriptedModel(answer),
        requests=monitor.runs.Requests(outages=outages_of(fleet.clock)),
        detectors=monitor.default_detectors(),
        policy=StopAtFirstLoop(),
    )
    outcomes = await fleet.run(supervisor, runs=40, every_s=0.5)
    looped = sum(one.reason is TerminateReason.LOOP_DETECTED for one in outcomes)
    assert len(fleet.events.of(OutageFound)) == len(fleet.events.of(OutageEnded)) == 1
    assert 4 <= looped <= 8, "those before the finding, and the probes"
    assert sum(one.ok for one in outcomes) == 40 - looped

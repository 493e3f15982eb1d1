"""Runs that spend from a budget in a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import monitor
from monitor.chunks import TextDelta, UsageReport
from monitor.errors import BudgetUnreachable, ConfigError
from monitor.events import BudgetLost
from monitor.reasons import TerminateReason
from monitor.sessions import InMemorySession
from monitor.shared import Amount, BudgetState, Refused, Reservation, SharedBudget, SQLiteBudgets
from monitor.testing import CapturedEvents, FakeClock, Pause, ScriptedModel, Stall, call

pytestmark = pytest.mark.anyio

SLICE = 400


class Store(SQLiteBudgets):
    """A store in memory that can be cut off, and that counts its open steps."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.is_gone = False
        self.at_work = 0
        self.leases: list[float] = []

    async def _step(self, name: str | None, step: Any) -> Any:
        if self.is_gone:
            raise BudgetUnreachable("no route to the store")
        self.at_work += 1
        try:
            return await super()._step(name, step)
        finally:
            self.at_work -= 1

    async def extend(self, hold: Reservation, more: Amount, *, used: Amount, lease_s: float) -> Reservation | Refused:
        self.leases.append(lease_s)
        return await super().extend(hold, more, used=used, lease_s=lease_s)


class Answered(Pause):
    """A step of a stream that goes on when the store has answered all questions."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store

    async def perform(self) -> None:
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        while self.store.at_work:
            await anyio.lowlevel.checkpoint()


def tokens(number: int) -> TextDelta:
    """Text that is counted as about so many tokens, and repeats nothing."""
    return TextDelta(" ".join(f"w{n:05}x" for n in range(number * 4 // 8)))


async def state(store: Store, name: str = "team") -> BudgetState:
    (found,) = [one for one in await store.states() if one.name == name]
    return found


def runs_of(store: Store, *answers: Any, **options: Any) -> monitor.Supervisor:
    shared = SharedBudget(store, options.pop("name", "team"), slice_tokens=SLICE, **options.pop("shared", {}))
    return monitor.Supervisor(ScriptedModel(*answers), budget=shared, **{"detectors": None, **options})


def reported(input_tokens: int, output_tokens: int) -> UsageReport:
    return UsageReport(
        input_tokens=input_tokens, output_tokens=output_tokens, total_tokens=input_tokens + output_tokens
    )


async def test_the_store_has_what_the_run_has_used_and_nothing_stays_held():
    store = Store()
    supervisor = runs_of(store, [call("look"), reported(50, 20)], ["done", reported(90, 10)], tools=[look])
    outcome = await supervisor.run("task")
    assert outcome.reason is TerminateReason.GOAL
    found = await state(store)
    assert (found.spent.tokens, found.held, found.holds) == (outcome.usage.total_tokens, Amount(), 0)
    assert outcome.usage.total_tokens == 170


def look() -> str:
    return "nothing new"


async def test_a_call_that_the_budget_cannot_pay_is_not_made():
    store = Store()
    await store.set_limit("team", tokens=SLICE)
    supervisor = runs_of(store, "never", name="team/run")
    outcome = await supervisor.run("task")
    assert outcome.reason is TerminateReason.TOKEN_LIMIT
    assert "the shared budget 'team' has 400 of 400 tokens left, and the next call may need" in outcome.detail
    assert outcome.turns == 0
    assert (await state(store)).spent == Amount()


async def test_a_long_answer_holds_slice_after_slice():
    store = Store()
    await store.set_limit("team", tokens=100_000)
    steps = [step for _ in range(20) for step in (tokens(SLICE // 4), Answered(store))]
    outcome = await runs_of(store, steps).run("task")
    assert outcome.reason is TerminateReason.GOAL
    assert outcome.usage.total_tokens > 4 * SLICE
    found = await state(store)
    assert (found.spent.tokens, found.held) == (outcome.usage.total_tokens, Amount())


@pytest.mark.parametrize("left", [1_000, 1_400, 2_100])
async def test_an_answer_ends_where_the_budget_ends(left: int):
    store = Store()
    await store.set_limit("team", tokens=left)
    steps = [step for _ in range(60) for step in (tokens(SLICE // 10), Answered(store))]
    outcome = await runs_of(store, steps, last_turn=None).run("task")
    assert outcome.reason is TerminateReason.TOKEN_LIMIT
    assert "left" in outcome.detail
    assert left - SLICE <= (await state(store)).spent.tokens <= left + SLICE
    assert outcome.text  # what was written before is kept


async def test_a_flood_that_outruns_the_store_is_stopped_a_slice_later():
    store = Store()
    flood = [tokens(SLICE // 4)] * 100
    outcome = await runs_of(store, flood, last_turn=None).run("task")
    assert outcome.reason is TerminateReason.TOKEN_LIMIT
    assert "has not answered yet" in outcome.detail
    assert (await state(store)).spent.tokens <= 3 * SLICE


async def test_runs_side_by_side_exceed_a_budget_by_a_slice_each_at_most():
    store = Store()
    await store.set_limit("team", tokens=6_000)
    outcomes: list[monitor.Outcome] = []

    async def one(number: int) -> None:
        steps = [step for _ in range(40) for step in (tokens(SLICE // 8), Answered(store))]
        outcomes.append(await runs_of(store, steps, name=f"team/{number}", last_turn=None).run("task"))

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(one, number)
    found = await state(store)
    assert found.spent.tokens == sum(outcome.usage.total_tokens for outcome in outcomes)
    assert 6_000 - 8 * SLICE <= found.spent.tokens <= 6_000 + SLICE
    assert found.held == Amount()
    assert {outcome.reason for outcome in outcomes} == {TerminateReason.TOKEN_LIMIT}


async def test_money_is_held_by_the_price_of_the_model():
    store = Store()
    await store.set_limit("team", usd=0.012)
    prices = monitor.Price(input=10.0, output=20.0)
    supervisor = runs_of(store, ["done", reported(100, 100)], prices=prices)
    assert (await supervisor.run("task")).cost_usd == pytest.approx(0.003)
    assert (await state(store)).spent.usd == pytest.approx(0.003)
    refused = await runs_of(store, "never", prices=prices).run("task")
    assert refused.reason is TerminateReason.COST_LIMIT


async def test_a_limit_in_money_without_a_price_is_refused():
    store = Store()
    await store.set_limit("team", usd=1.0)
    with pytest.raises(ConfigError, match="'team' has a limit in US dollars: give prices="):
        await runs_of(store, "never", name="team/a").run("task")


# --- the store does not answer


async def test_without_its_store_no_call_is_made():
    store, events = Store(), CapturedEvents()
    store.is_gone = True
    outcome = await runs_of(store, "never", sinks=[events]).run("task")
    assert outcome.reason is TerminateReason.TOKEN_LIMIT
    assert "no route to the store" in outcome.detail
    (lost,) = events.of(BudgetLost)
    assert (lost.budget, lost.goes_on) == ("team", False)


async def test_an_answer_whose_store_is_lost_may_use_what_it_holds():
    store, cut = Store(), Pause()
    supervisor = runs_of(store, [tokens(50), cut, *[tokens(SLICE // 10)] * 60], last_turn=None)
    async with anyio.create_task_group() as group:
        outcomes: list[monitor.Outcome] = []

        async def run() -> None:
            outcomes.append(await supervisor.run("task"))

        group.start_soon(run)
        await cut.reached()
        store.is_gone = True
        cut.release()
    (outcome,) = outcomes
    assert outcome.reason is TerminateReason.TOKEN_LIMIT
    assert SLICE <= outcome.usage.total_tokens <= 3 * SLICE
    store.is_gone = False
    assert (await state(store)).holds == 1  # it comes back when its lease ends


async def test_by_option_a_run_goes_on_without_its_store():
    store, events = Store(), CapturedEvents()
    store.is_gone = True
    outcome = await runs_of(store, "an answer", sinks=[events], shared={"fail": "open"}).run("task")
    assert outcome.reason is TerminateReason.GOAL
    assert [one.goes_on for one in events.of(BudgetLost)] == [True]


# --- ends


async def test_a_run_that_is_cancelled_settles_what_it_has_used():
    store, stall = Store(), Stall()
    supervisor = runs_of(store, [tokens(100), stall])
    async with anyio.create_task_group() as group:
        group.start_soon(supervisor.run, "task")
        await stall.reached()
        group.cancel_scope.cancel()
    found = await state(store)
    assert found.held == Amount()
    assert found.spent.tokens >= 100


async def test_a_lease_is_renewed_while_a_run_waits():
    store, clock, stall = Store(), FakeClock(), Stall()
    supervisor = runs_of(store, [tokens(100), stall], clock=clock, shared={"lease_s": 30.0}, stop_when=None)
    async with anyio.create_task_group() as group:
        group.start_soon(supervisor.run, "task")
        await stall.reached()
        for renewals in range(1, 4):
            await Answered(store).perform()
            clock.advance(10.1)
            with anyio.fail_after(60):
                while len(store.leases) < renewals:
                    await anyio.lowlevel.checkpoint()
        assert store.leases == [30.0] * 3
        group.cancel_scope.cancel()


async def test_a_nested_run_spends_from_the_hold_of_its_caller():
    store = Store()
    helper = monitor.Supervisor(ScriptedModel(["found it", reported(40, 5)]))
    supervisor = runs_of(
        store,
        [call("finder", task="look"), reported(30, 10)],
        ["done", reported(60, 10)],
        tools=[helper.as_tool(name="finder", description="Finds things.")],
    )
    outcome = await supervisor.run("task")
    assert outcome.reason is TerminateReason.GOAL
    assert (await state(store)).spent.tokens == outcome.usage.total_tokens == 155


async def test_a_run_that_goes_on_under_its_id_takes_up_its_hold():
    """As after a crash: the same key, a hold with usage of its own."""
    store = Store()
    hold = await store.reserve("team", Amount(500), key="run-1", lease_s=60)
    assert isinstance(hold, Reservation)
    await store.extend(hold, Amount(), used=Amount(120), lease_s=60)
    outcome = await runs_of(store, ["done", reported(30, 10)]).run("task", run_id="run-1")
    found = await state(store)
    assert (found.spent.tokens, found.held, found.holds) == (120 + outcome.usage.total_tokens, Amount(), 0)


@pytest.mark.parametrize(
    ("left", "step", "fail", "gone"),
    [
        (100_000, True, "closed", False),  # slice after slice
        (1_400, True, "closed", False),  # the store grants no more in the middle of an answer
        (100, True, "closed", False),  # nor the first call
        (100_000, False, "closed", False),  # an answer that outruns the store
        (100_000, True, "closed", True),
        (100_000, True, "open", True),
    ],
)
async def test_a_run_that_spends_from_a_store_is_decided_again_without_the_store(
    left: int, step: bool, fail: str, gone: bool
):
    store, session = Store(), InMemorySession(chunks=True)
    await store.set_limit("team", tokens=left)
    store.is_gone = gone
    script = [part for _ in range(40) for part in (tokens(SLICE // 10), *([Answered(store)] if step else []))]
    supervisor = runs_of(store, script, last_turn=None, shared={"fail": fail})
    outcome = await supervisor.run("task", session=session)
    again = await monitor.replay(session)
    assert (again.exact, again.as_stored, again.departed) == (True, True, None)
    assert again.outcome is not None
    assert (again.outcome.reason, again.outcome.detail) == (outcome.reason, outcome.detail)


@pytest.mark.parametrize(
    "wrong", [{"slice_tokens": 0}, {"slice_tokens": 1.5}, {"lease_s": 0}, {"lease_s": float("inf")}, {"fail": "maybe"}]
)
def test_what_is_no_option_is_refused(wrong: dict[str, Any]):
    with pytest.raises(ConfigError):
        SharedBudget(Store(), "team", **wrong)


def test_what_is_no_store_and_no_name_is_refused():
    given: Sequence[tuple[Any, Any]] = [("budgets.db", "team"), (SQLiteBudgets, "team"), (Store(), ""), (Store(), 3)]
    for store, name in given:
        with pytest.raises(ConfigError):
            SharedBudget(store, name)

"""Runs that spend from a budget in a store."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

import monitor
from monitor.chunks import TextDelta, UsageReport
from monitor.errors import BudgetUnreachable, ConfigError, TerminateReason
from monitor.events import BudgetAwaited, BudgetLost
from monitor.sessions import InMemorySession
from monitor.shared import Amount, BudgetState, Refused, Reservation, SharedBudget, SQLiteBudgets
from monitor.shared.budgets.sql_budgets import BudgetTransaction
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


class Prompt(Store):
    """A store that answers without a thread, so that a fake clock may jump."""

    async def _step(self, name: str | None, step: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        if self.is_gone:
            raise BudgetUnreachable("no route to the store")
        return self._database.run(lambda execute, _: step(BudgetTransaction(execute, 0.0)))


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
    given = {"slice_tokens": SLICE, "wait_s": 0, **options.pop("shared", {})}
    shared = SharedBudget(store, options.pop("name", "team"), **given)
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


async def look() -> str:  # in a thread, the fake clock would jump while it runs
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
    assert outcome.reason is TerminateReason.BUDGET_UNREACHABLE  # nobody knows that the budget is used up
    assert "has not answered yet" in outcome.detail
    assert (await state(store)).spent.tokens <= 3 * SLICE


async def test_a_flood_is_read_no_faster_than_the_store_grants_it():
    store = Store()
    await store.set_limit("team", tokens=100_000)
    flood = [tokens(SLICE // 4)] * 100
    outcome = await runs_of(store, flood, shared={"wait_s": 60}).run("task")
    assert outcome.reason is TerminateReason.GOAL
    assert (await state(store)).spent.tokens == outcome.usage.total_tokens > 20 * SLICE


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
    assert {outcome.reason for outcome in outcomes} <= {TerminateReason.TOKEN_LIMIT, TerminateReason.BUDGET_BUSY}


@pytest.mark.parametrize("number", [30])
async def test_runs_side_by_side_wait_for_what_others_hold(number: int):
    """Each needs a seventh of the budget at once, and all together spend a tenth of it."""
    store, clock, events = Prompt(), FakeClock(), CapturedEvents()
    await store.set_limit("team", tokens=3_500)
    outcomes: list[monitor.Outcome] = []

    async def one(index: int) -> None:
        supervisor = runs_of(
            store,
            [call("look"), reported(4, 2)],
            ["done", reported(4, 2)],
            name=f"team/{index}",
            shared={"wait_s": 60},
            tools=[look],
            clock=clock,
            sinks=[events],
        )
        outcomes.append(await supervisor.run("task"))

    async with clock.autojump(), anyio.create_task_group() as group:
        for index in range(number):
            group.start_soon(one, index)
    assert [outcome.reason for outcome in outcomes] == [TerminateReason.GOAL] * number
    found = await state(store)
    assert (found.spent.tokens, found.held) == (12 * number, Amount())
    waits = events.of(BudgetAwaited)
    assert {one.reason for one in waits} == {TerminateReason.BUDGET_BUSY}
    assert max(one.after_s for one in waits) <= 3


async def test_a_run_that_waits_for_others_holds_nothing_meanwhile():
    """Two runs that each hold what the other waits for would wait for ever."""
    store, clock = Prompt(), FakeClock()
    await store.set_limit("team", tokens=2 * SLICE)
    mine = [[tokens(SLICE // 2), call("look")], ["done"]]
    outcomes: list[monitor.Outcome] = []

    async def one(name: str) -> None:
        supervisor = runs_of(
            store, *mine, name=name, shared={"wait_s": 60, "slice_tokens": SLICE - 100}, tools=[look], clock=clock
        )
        outcomes.append(await supervisor.run("task"))

    async with clock.autojump(), anyio.create_task_group() as group:
        group.start_soon(one, "team/a")
        group.start_soon(one, "team/b")
    assert {one.reason for one in outcomes} <= {TerminateReason.GOAL, TerminateReason.TOKEN_LIMIT}
    assert (await state(store)).held == Amount()


async def test_a_run_waits_no_longer_than_it_may_for_what_others_hold():
    store, clock = Prompt(), FakeClock()
    await store.set_limit("team", tokens=1_000)
    await store.reserve("team", Amount(900), key="other", lease_s=3_600)
    async with clock.autojump():
        outcome = await runs_of(store, "never", shared={"wait_s": 20}, clock=clock).run("task")
    assert outcome.reason is TerminateReason.BUDGET_BUSY
    assert outcome.detail.endswith("other runs hold the rest")
    assert 20 <= outcome.elapsed_s < 21


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
    assert outcome.reason is TerminateReason.BUDGET_UNREACHABLE
    assert "no route to the store" in outcome.detail
    (lost,) = events.of(BudgetLost)
    assert (lost.budget, lost.goes_on) == ("team", False)


async def test_an_answer_whose_store_is_lost_may_use_what_it_holds():
    store, cut = Store(), Pause()
    supervisor = runs_of(store, [tokens(50), cut, *[tokens(SLICE // 10)] * 60], last_turn=None)
    outcomes: list[monitor.Outcome] = []
    async with anyio.create_task_group() as group:

        async def run() -> None:
            outcomes.append(await supervisor.run("task"))

        group.start_soon(run)
        await cut.reached()
        store.is_gone = True
        cut.release()
    (outcome,) = outcomes
    assert outcome.reason is TerminateReason.BUDGET_UNREACHABLE
    assert SLICE <= outcome.usage.total_tokens <= 3 * SLICE
    store.is_gone = False
    assert (await state(store)).holds == 1  # it comes back when its lease ends


@pytest.mark.parametrize("when", ["before the first call", "between two calls", "in an answer"])
async def test_a_store_that_comes_back_ends_no_run(when: str):
    store, clock, events = Prompt(), FakeClock(), CapturedEvents()
    await store.set_limit("team", tokens=100_000)

    def gone(seconds: float = 8.0) -> None:
        store.is_gone = True
        clock.call_at(clock.now() + seconds, lambda: setattr(store, "is_gone", False))

    @monitor.tool
    async def work() -> str:  # in a thread, the fake clock would jump while it runs
        """Works."""
        if when == "between two calls":
            gone()
        return "done"

    class Away(Pause):
        async def perform(self) -> None:
            gone(4.0)

    if when == "before the first call":
        gone()
    steps = [tokens(SLICE // 10)] * 20
    answer = [*steps, Away(), *steps] if when == "in an answer" else steps
    supervisor = runs_of(store, call("work"), answer, shared={"wait_s": 60}, tools=[work], clock=clock, sinks=[events])
    async with clock.autojump():
        outcome = await supervisor.run("task")
    assert outcome.reason is TerminateReason.GOAL
    assert not events.of(BudgetLost)
    assert {one.reason for one in events.of(BudgetAwaited)} <= {TerminateReason.BUDGET_UNREACHABLE}
    assert bool(events.of(BudgetAwaited)) is (when != "in an answer")
    assert (await state(store)).held == Amount()


async def test_a_run_that_went_on_without_its_store_asks_it_again():
    store, clock = Store(), FakeClock()

    @monitor.tool
    def work() -> str:
        """Works for a minute, after which the store is back."""
        store.is_gone = False
        clock.advance(60)
        return "done"

    store.is_gone = True
    supervisor = runs_of(
        store,
        [call("work"), reported(10, 5)],
        ["done", reported(10, 5)],
        shared={"fail": "open"},
        tools=[work],
        clock=clock,
        stop_when=None,
    )
    outcome = await supervisor.run("task")
    assert outcome.reason is TerminateReason.GOAL
    assert (await state(store)).spent.tokens == 15


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
    "wrong",
    [
        {"slice_tokens": 0},
        {"slice_tokens": 1.5},
        {"lease_s": 0},
        {"lease_s": float("inf")},
        {"fail": "maybe"},
        {"wait_s": -1},
    ],
)
def test_what_is_no_option_is_refused(wrong: dict[str, Any]):
    with pytest.raises(ConfigError):
        SharedBudget(Store(), "team", **wrong)


def test_what_is_no_store_and_no_name_is_refused():
    given: dict[Any, Any] = {"budgets.db": "team", SQLiteBudgets: "team", Store(): "", Store(): 3}
    for store, name in given.items():
        with pytest.raises(ConfigError):
            SharedBudget(store, name)

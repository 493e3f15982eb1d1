"""A run that goes on has its limits, budgets, detectors and nested runs as they were."""

from __future__ import annotations

from typing import Any

import pytest

import monitor
from monitor.events import DetectionRaised, TurnEnded
from monitor.messages import AssistantMessage, CallState
from monitor.sessions import InMemorySession, RunStage
from monitor.testing import FakeClock, ScriptedModel, call
from tests.runs.driving import Reason, look
from tests.runs.test_run_session import Died, Mortal, supervisor, words

pytestmark = pytest.mark.anyio

PRICE = monitor.Price(input=1_000_000, output=1_000_000)


async def dies(store: InMemorySession, commits: int, *answers: Any, **options: Any) -> None:
    """A run whose process dies after some commits."""
    with pytest.raises(Died):
        await supervisor(*answers, session=Mortal(store, commits, after=False), **options).run("go", run_id="r")


def turns(number: int, first: int = 0) -> list[Any]:
    return [call("look", q=str(n)) for n in range(first, first + number)]


async def test_turns_calls_tokens_and_cost_count_on():
    store = InMemorySession()
    options: dict[str, Any] = {"tools": [look], "prices": PRICE}
    whole = await supervisor(*turns(5), "Done.", **options).run("go")
    await dies(store, 7, *turns(5), **options)  # the beginning, and three turns of two commits each
    outcome = await supervisor(*turns(2, 3), "Done.", session=store, **options).resume()
    assert outcome.ok
    assert (outcome.turns, outcome.usage, outcome.cost_usd) == (whole.turns, whole.usage, whole.cost_usd)
    assert outcome.usage.total_tokens > 0


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (monitor.MaxTurns(4), Reason.MAX_TURNS),
        (monitor.MaxModelCalls(4), Reason.MODEL_CALL_LIMIT),
        (monitor.MaxToolCalls(4), Reason.TOOL_CALL_LIMIT),
    ],
    ids=["turns", "model calls", "tool calls"],
)
async def test_a_limit_holds_for_both_parts_of_a_run_together(limit: Any, reason: Reason):
    store = InMemorySession()
    options: dict[str, Any] = {"tools": [look], "stop_when": limit, "last_turn": None}
    whole = await supervisor(*turns(9), **options).run("go")
    await dies(store, 7, *turns(9), **options)
    outcome = await supervisor(*turns(9, 3), session=store, **options).resume()
    assert (outcome.reason, outcome.value) == (reason, whole.value)
    assert outcome.turns == whole.turns


async def test_the_time_that_was_spent_counts_and_the_time_without_a_process_does_not():
    store = InMemorySession()
    clock = FakeClock()

    async def wait(s: float) -> str:
        """Wait."""
        clock.advance(s)
        return "waited"

    options: dict[str, Any] = {"tools": [wait], "stop_when": monitor.Timeout(10), "clock": clock, "last_turn": None}
    await dies(store, 3, call("wait", s=6.0), call("wait", s=1.0), **options)
    clock.advance(1_000)  # nobody has the run
    one = supervisor(call("wait", s=3.0), call("wait", s=3.0), call("wait", s=3.0), session=store, **options)
    outcome = await one.resume()
    assert outcome.reason is Reason.TIMEOUT
    assert 10 <= outcome.elapsed_s <= 12.5
    assert [one.text for one in await store.calls("r")] == ["waited"] * 3


async def test_a_budget_is_spent_once():
    store = InMemorySession()
    budget = monitor.Budget(tokens=100_000)
    await dies(store, 7, *turns(9), tools=[look], budget=budget)
    assert budget.spent_tokens > 0
    fresh = monitor.Budget(tokens=100_000)  # that of another process knows nothing
    outcome = await supervisor("Done.", session=store, tools=[look], budget=fresh).resume()
    assert outcome.ok
    first = sum(
        one.event.turn.usage.total_tokens for one in await store.events("r") if isinstance(one.event, TurnEnded)
    )
    assert fresh.spent_tokens == outcome.usage.total_tokens == first


async def test_a_budget_that_outlives_the_pause_of_its_run_does_not_count_it_twice():
    store = InMemorySession()

    @monitor.tool(needs_approval=True)
    async def act() -> str:
        """Act."""
        return "acted"

    budget = monitor.Budget(tokens=100_000)
    approver = monitor.tools.PendingApprovals()
    options: dict[str, Any] = {
        "tools": [act],
        "budget": budget,
        "calls": monitor.runs.ToolCalls(approver=approver),
        "session": store,
    }
    paused = await supervisor(call("act"), **options).run("go")
    assert paused.reason is Reason.PAUSED
    assert budget.spent_tokens == paused.usage.total_tokens > 0
    approver.answer(monitor.messages.ApprovalAnswer(id=paused.pending[0].id, decision="approved"))
    outcome = await supervisor("Done.", **options).resume()
    assert outcome.ok
    assert budget.spent_tokens == outcome.usage.total_tokens > paused.usage.total_tokens


@pytest.mark.parametrize("commits", [3, 5, 7, 9, 11, 13])
async def test_a_loop_across_a_restart_is_stopped_where_it_would_have_been(commits: int):
    store = InMemorySession()
    same: list[Any] = [call("look", q="again")] * 40
    whole = await supervisor(*same, tools=[look]).run("go")
    assert whole.reason is Reason.LOOP_DETECTED
    await dies(store, commits, *same, tools=[look])
    outcome = await supervisor(*same, tools=[look], session=store).resume()
    assert (outcome.reason, outcome.source, outcome.turns) == (Reason.LOOP_DETECTED, whole.source, whole.turns)


@pytest.mark.parametrize("commits", [3, 5, 8])
async def test_what_was_written_before_a_restart_is_compared_with_what_comes_after(commits: int):
    said: list[Any] = ["Let me look at that file again, because the error must come from its third function."] * 20
    options: dict[str, Any] = {
        "outputs": {"it": str},
        "requests": monitor.runs.Requests(max_nudges=None),
        "policy": monitor.policy.ObserveOnly(),
    }
    options |= {"stop_when": monitor.MaxTurns(12), "last_turn": None}
    whole, store = InMemorySession(), InMemorySession()
    await supervisor(*said, session=whole, **options).run("go")
    await dies(store, commits, *said, **options)
    outcome = await supervisor(*said, session=store, **options).resume()
    assert outcome.turns == 12
    assert await raised(store) == await raised(whole) != []


async def raised(store: InMemorySession) -> list[Any]:
    found = [one.event for one in await store.events() if isinstance(one.event, DetectionRaised)]
    return [
        (one.turn, one.detection.detector, one.detection.count, one.detection.start_offset, one.detection.offset)
        for one in found
    ]


async def test_missing_outputs_are_asked_for_no_more_often_than_in_one_process():
    store = InMemorySession()
    options: dict[str, Any] = {"outputs": {"it": str}, "requests": monitor.runs.Requests(max_nudges=2)}
    whole = await supervisor(*["I am done."] * 9, **options).run("go")
    assert whole.reason is Reason.MISSING_OUTPUTS
    await dies(store, 3, *["I am done."] * 9, **options)
    outcome = await supervisor(*["I am done."] * 9, session=store, **options).resume()
    assert outcome.reason is Reason.MISSING_OUTPUTS
    asked, asked_of_one = (
        [text for text in words(history) if "emit_value" in text] for history in (outcome.history, whole.history)
    )
    assert asked == asked_of_one


# ---------------------------------------------------------------------- subagents


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("steps", range(14))
async def test_a_subagent_that_is_cut_off_at_any_step_goes_on_and_makes_no_effect_twice(steps: int, *, after: bool):
    store = InMemorySession()
    effects: list[int] = []

    async def act(n: int) -> str:
        """Act."""
        effects.append(n)
        return f"acted {n}"

    inner = [call("act", n=1), call("act", n=2), "Found deep."]
    outer = [call("research", task="go deep"), "Done."]

    def made(session: Any, said: int = 0, asked: int = 0) -> monitor.Supervisor:
        sub = supervisor(*inner[said:], "Nothing is left.", tools=[act])
        tools = [sub.as_tool(name="research", description="Looks things up.")]
        return supervisor(*outer[asked:], "Nothing is left.", tools=tools, session=session)

    try:
        outcome = await made(Mortal(store, steps, after=after)).run("go", run_id="r")
    except Died:
        runs = await store.runs()
        if not runs or runs[0].state is RunStage.ENDED:
            return
        child = next((f"run-{one.id}" for one in runs if one.parent_run), "")
        said = sum(isinstance(one, AssistantMessage) for one in (await store.context(child)).messages) if child else 0
        asked = sum(isinstance(one, AssistantMessage) for one in (await store.context()).messages)
        outcome = await made(store, said, asked).resume()
    assert outcome.ok
    main, child_run = await store.runs()
    assert (main.state, child_run.state, child_run.parent_run) == (RunStage.ENDED, RunStage.ENDED, "r")
    calls = await store.calls(child_run.id)
    assert [one.open for one in await store.calls()] == [False] * 3
    assert len([one for one in calls if one.state in {CallState.DONE, CallState.UNKNOWN}]) == 2
    assert sorted(set(effects)) == sorted(effects)  # no effect twice
    (research,) = await store.calls("r")
    assert (research.state, research.text) in [(CallState.DONE, "Found deep."), (CallState.DONE, "Nothing is left.")]
    assert await store.verify() == ()


async def test_without_a_session_a_subagent_that_was_cut_off_is_not_begun_again():
    ledger = monitor.tools.InMemoryLedger()
    began: list[str] = []

    async def act() -> str:
        """Act."""
        began.append("act")
        return "acted"

    sub = supervisor(call("act"), "Found.", tools=[act]).as_tool(name="research", description="Looks.")
    options: dict[str, Any] = {"tools": [sub], "calls": monitor.runs.ToolCalls(ledger=ledger)}
    await supervisor(call("research", task="x"), "Done.", **options).run("go", run_id="r")
    (record,) = ledger._records.values()
    ledger._records[record.key] = monitor.messages.stepped(record, state=CallState.UNKNOWN)
    model = ScriptedModel(call("research", task="x"), "Done.")
    await monitor.Supervisor(model, **options).run("go", run_id="r")
    assert began == ["act"]

"""Limits of a run: when they are looked at, what wins when several things are true at once, and
what people are told.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import monitor
from monitor.testing import Do, FakeClock, Pause, ScriptedModel, ScriptedStream, call
from tests.runs.driving import SENTENCE, Drive, Reason, drive, look

pytestmark = pytest.mark.anyio

Report = monitor.chunks.UsageReport
WORDS = "".join(f"word {n} " for n in range(500))


# --- when they are looked at


@pytest.mark.feature("GC-01")
@pytest.mark.parametrize("row", ["S14"])
async def test_max_turns_ends_the_run_before_the_turn_that_is_too_many(row: str):
    """Upstream makes three calls, the third of which is its recovery turn; ours is switched off
    here.
    """
    run = await drive(
        call("look", q="1"),
        call("look", q="2"),
        tools=[look],
        outputs={"a": int},
        stop_when=monitor.MaxTurns(2),
        last_turn=None,
    )
    outcome = run.outcome
    assert (outcome.reason, outcome.source, outcome.limit, outcome.value) == (Reason.MAX_TURNS, "max_turns", 2, 2)
    assert (outcome.turns, len(run.requests), outcome.ok) == (2, 2, False)
    assert len(run.results()) == 1


@pytest.mark.parametrize("row", ["E6"])
async def test_emits_of_an_undeclared_name_run_into_max_turns(row: str):
    run = await drive(
        lambda request: call("emit_value", name="other", value=1),
        outputs={"a": int},
        stop_when=monitor.MaxTurns(2),
        last_turn=None,
        detectors=None,
    )
    assert (run.outcome.reason, len(run.requests), run.outcome.missing) == (Reason.MAX_TURNS, 2, ["a"])


@pytest.mark.feature("OM-03")
@pytest.mark.parametrize("turns", [20, 30])
async def test_a_step_limit_is_what_its_kind_of_agent_is_given_and_the_result_says_that_it_was_reached(turns: int):
    run = await drive(
        lambda request: call("look", q=str(len(request.messages))),
        tools=[look],
        stop_when=monitor.MaxTurns(turns),
        last_turn=None,
    )
    assert (run.outcome.reason, run.outcome.turns, run.outcome.limit) == (Reason.MAX_TURNS, turns, turns)
    assert run.outcome.detail == f"{turns} turns are done, the limit is {turns}"


@pytest.mark.parametrize(
    ("condition", "reason", "calls"),
    [
        (monitor.MaxModelCalls(2), Reason.MODEL_CALL_LIMIT, 2),
        (monitor.MaxToolCalls(2), Reason.TOOL_CALL_LIMIT, 3),
        (monitor.conditions.ToolCalled("look"), Reason.CONDITION_MET, 1),
        (monitor.conditions.ToolCalled("look", reason=Reason.GOAL), Reason.GOAL, 1),
        (monitor.Predicate(lambda state: state.turns == 2, name="two"), Reason.CONDITION_MET, 1),
    ],
)
@pytest.mark.feature("ST-06")
async def test_counted_limits_end_the_run(condition: monitor.Condition, reason: monitor.TerminateReason, calls: int):
    run = await drive(
        lambda request: call("look", q=str(len(request.messages))),
        tools=[look],
        stop_when=condition,
        last_turn=None,
        detectors=None,
    )
    assert (run.outcome.reason, len(run.requests)) == (reason, calls)
    assert run.outcome.source == condition.name


async def test_the_call_that_exceeds_max_tool_calls_is_not_carried_out():
    run = await drive(
        [call("look", q="1"), call("look", q="2")],
        tools=[look],
        stop_when=monitor.MaxToolCalls(1),
        last_turn=None,
        detectors=None,
    )
    assert run.outcome.reason is Reason.TOOL_CALL_LIMIT
    assert run.of(monitor.events.ToolStarted) == []
    assert [result.is_error for result in run.results()] == [True, True]


@pytest.mark.feature("ST-06")
async def test_a_condition_that_a_tool_result_makes_true_ends_the_run_at_that_result_and_starts_nothing_after_it():
    ran = []

    async def stop_here() -> str:
        return "ok"

    @monitor.tool(alone=True)
    async def later() -> str:
        ran.append("later")
        return "ran"

    run = await drive(
        [call("stop_here"), call("later")],
        tools=[stop_here, later],
        stop_when=monitor.conditions.ToolCalled("stop_here"),
    )
    assert run.outcome.reason is Reason.CONDITION_MET
    assert ran == []
    assert [result.is_error for result in run.results()] == [False, True]


async def test_a_condition_that_an_own_tool_makes_true_starts_no_other_tool():
    run = await drive(
        [call("emit_value", name="a", value=1), call("look", q="x")],
        outputs={"a": int},
        tools=[look],
        stop_when=monitor.conditions.OutputsComplete(),
    )
    assert (run.outcome.reason, run.outcome.source) == (Reason.GOAL, "outputs_complete")
    assert run.of(monitor.events.ToolStarted) == []


@pytest.mark.feature("GC-02")
@pytest.mark.parametrize("when", ["before the call", "while it streams", "after it", "while a tool runs"])
async def test_a_timeout_is_seen_at_every_place(when: str):
    clock = FakeClock()

    async def slow(q: str) -> str:
        clock.advance(61 if when == "while a tool runs" else 0)
        return q

    def late(_: monitor.models.ModelRequest) -> list[Any]:
        return [
            "a",
            Do(lambda: clock.advance(61 if when == "while it streams" else 0)),
            "b",
            call("slow", q="x"),
            monitor.chunks.TurnFinished(DONE),
            after,
        ]

    after = Do(lambda: clock.advance(61 if when == "after it" else 0))
    d = Drive(late, tools=[slow], stop_when=monitor.Timeout(60) | monitor.MaxTurns(3), last_turn=None, clock=clock)
    async with d.run as run:
        async for event in run:
            d.events.append(event)
            if when == "before the call" and isinstance(event, monitor.events.RunStarted):
                clock.advance(61)
    assert (d.outcome.reason, d.outcome.source, d.outcome.limit, d.outcome.value) == (Reason.TIMEOUT, "timeout", 60, 61)
    assert len(d.requests) == (0 if when == "before the call" else 1)
    assert all(stream.exhausted for stream in d.model.streams)


DONE = monitor.FinishReason.DONE


# --- tokens and money


@pytest.mark.feature("ST-04")
@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (monitor.TokenLimit(200), Reason.TOKEN_LIMIT),
        (monitor.TokenLimit(output_tokens=200), Reason.TOKEN_LIMIT),
        (monitor.CostLimit(0.002), Reason.COST_LIMIT),
    ],
)
async def test_tokens_and_money_end_the_run_mid_stream_by_estimate(
    condition: monitor.Condition, reason: monitor.TerminateReason
):
    pieces = [WORDS[i : i + 20] for i in range(0, len(WORDS), 20)]
    run = await drive(pieces, stop_when=condition, prices=monitor.Price(input=1, output=10), detectors=None)
    outcome = run.outcome
    assert (outcome.reason, outcome.source, outcome.usage_estimated) == (reason, condition.name, True)
    assert "about" in outcome.detail
    assert 200 < outcome.usage.output_tokens < 260
    (stream,) = run.model.streams
    assert stream.closed
    assert stream.pulled < len(pieces) / 2


@pytest.mark.feature("ST-04")
@pytest.mark.parametrize(
    ("condition", "reason", "value"),
    [
        (monitor.TokenLimit(1_000), Reason.TOKEN_LIMIT, 1_100),
        (monitor.TokenLimit(input_tokens=999), Reason.TOKEN_LIMIT, 1_000),
        (monitor.CostLimit(0.0019), Reason.COST_LIMIT, 0.002),
    ],
)
async def test_a_report_makes_it_exact(condition: monitor.Condition, reason: monitor.TerminateReason, value: float):
    run = await drive(
        ["Hi", call("look", q="x"), Report(input_tokens=1_000, output_tokens=100)],
        stop_when=condition,
        prices={"scripted:model": monitor.Price(input=1, output=10)},
        tools=[look],
    )
    outcome = run.outcome
    assert (outcome.reason, outcome.usage_estimated) == (reason, False)
    assert outcome.value == pytest.approx(value)
    assert outcome.cost_usd == pytest.approx(0.002)
    assert "about" not in outcome.detail


@pytest.mark.feature("ST-04")
@pytest.mark.parametrize("exactly", [monitor.TokenLimit(1_100), monitor.CostLimit(0.002)])
async def test_a_limit_that_is_used_up_exactly_is_kept(exactly: monitor.Condition):
    run = await drive(
        ["Hi", Report(input_tokens=1_000, output_tokens=100)],
        stop_when=exactly,
        prices=monitor.Price(input=1, output=10),
    )
    assert run.outcome.reason is Reason.GOAL


@pytest.mark.feature("ST-04")
@pytest.mark.parametrize("reported", [False, True])
@pytest.mark.parametrize(
    ("limits", "reason", "limit"),
    [
        ({"stop_when": monitor.TokenLimit(100)}, Reason.TOKEN_LIMIT, 100),
        ({"budget": {"tokens": 100}}, Reason.TOKEN_LIMIT, 100),
        ({"stop_when": monitor.CostLimit(0.001)}, Reason.COST_LIMIT, 0.001),
        ({"budget": {"usd": 0.001}}, Reason.COST_LIMIT, 0.001),
    ],
)
async def test_a_guard_ends_for_tokens_and_money_too(
    limits: dict[str, Any], reason: monitor.TerminateReason, limit: float, reported: bool
):
    given: dict[str, Any] = {
        key: monitor.Budget(**value) if key == "budget" else value for key, value in limits.items()
    }
    pieces: list[Any] = [monitor.chunks.TextDelta(WORDS[i : i + 20]) for i in range(0, 2_000, 20)]
    if reported:
        pieces = [monitor.chunks.TextDelta("Hi"), Report(input_tokens=10, output_tokens=110), *pieces]
    async with monitor.Guard(**given, prices=monitor.Price(input=1, output=10), detectors=None) as guard:
        stream = ScriptedStream(*pieces)
        async with guard.watch(stream) as watched:
            async for _ in watched:
                pass
        assert isinstance(guard.check(), monitor.Stop)
    assert (guard.outcome.reason, guard.outcome.limit) == (reason, limit)
    assert stream.closed
    assert stream.pulled == 2 if reported else 10 < stream.pulled < 60
    assert guard.outcome.usage_estimated is not reported


@pytest.mark.parametrize("what", [{"stop_when": monitor.CostLimit(1)}, {"budget": monitor.Budget(usd=1)}])
def test_a_limit_in_dollars_without_a_price_is_refused(what: dict[str, Any]):
    with pytest.raises(monitor.ConfigError, match="prices="):
        monitor.Supervisor(ScriptedModel("x"), **what)
    with pytest.raises(monitor.ConfigError, match="scripted:model"):
        monitor.Supervisor(ScriptedModel("x"), prices={"another": monitor.Price(1, 1)}, **what)


async def test_a_budget_is_spent_over_several_runs():
    budget = monitor.Budget(tokens=150)
    answer = ["Hi", Report(input_tokens=90, output_tokens=10)]
    first = await drive(answer, budget=budget)
    second = await drive(answer, budget=budget)
    assert first.outcome.reason is Reason.GOAL
    assert (second.outcome.reason, second.outcome.source, second.outcome.value) == (Reason.TOKEN_LIMIT, "Budget", 200)
    assert budget.spent_tokens == 200
    third = await drive(answer, budget=budget)
    assert third.outcome.reason is Reason.TOKEN_LIMIT
    assert third.requests == []


async def test_the_tokens_of_a_failed_attempt_were_spent():
    run = await drive(
        [Report(input_tokens=100, output_tokens=1), ConnectionError("gone")],
        ["Hi", Report(input_tokens=100, output_tokens=2)],
        requests=monitor.runs.Requests(retries=monitor.Retries(first_delay_s=0)),
    )
    assert run.outcome.usage.total_tokens == 203


# --- warnings


async def test_a_limit_that_is_nearly_used_up_is_told_once():
    clock = FakeClock()

    async def work() -> str:
        clock.advance(10)
        return "done"

    run = await drive(
        *[[call("work"), Report(input_tokens=100)]] * 9,
        "Done.",
        tools=[work],
        stop_when=monitor.MaxTurns(10) | monitor.Timeout(100) | monitor.TokenLimit(1_000) | monitor.MaxToolCalls(100),
        detectors=None,
        clock=clock,
    )
    assert run.outcome.reason is Reason.GOAL
    warnings = {event.source: event.value for event in run.of(monitor.events.LimitWarning)}
    assert warnings == {"max_turns": 8, "timeout": 80, "token_limit.total_tokens": pytest.approx(800, abs=20)}
    assert len(run.of(monitor.events.LimitWarning)) == 3


async def test_a_budget_warns_too():
    run = await drive(
        [call("look", q="x"), Report(input_tokens=85, output_tokens=0)],
        "ok",
        tools=[look],
        budget=monitor.Budget(tokens=100),
    )
    assert [(event.source, event.limit) for event in run.of(monitor.events.LimitWarning)] == [("Budget.tokens", 100)]


# --- several things at once


async def test_an_abort_wins_over_a_timeout_and_a_loop():
    """Gemini CLI does the opposite; what the user wants is clearer than what a clock says."""
    clock = FakeClock()
    d = Drive(
        ["a", Do(lambda: d.run.abort("enough")), Do(lambda: clock.advance(100)), "b"],
        stop_when=monitor.Timeout(60),
        clock=clock,
    )
    await d.go()
    assert (d.outcome.reason, d.outcome.detail) == (Reason.ABORTED, "enough")

    d = Drive([SENTENCE, Do(lambda: d.run.abort("enough")), SENTENCE * 40], policy=monitor.StopAtFirstLoop())
    await d.go()
    assert d.outcome.reason is Reason.ABORTED


async def test_a_loop_wins_over_a_limit_that_is_reached_by_the_same_call():
    same = {"q": "x"}
    run = await drive(
        lambda request: call("look", **same),
        tools=[look],
        stop_when=monitor.MaxToolCalls(4),
        policy=monitor.StopAtFirstLoop(),
    )
    assert run.outcome.reason is Reason.LOOP_DETECTED


@pytest.mark.parametrize(
    "limit",
    [
        monitor.MaxTurns(1),
        monitor.MaxModelCalls(1),
        monitor.TokenLimit(50),
        monitor.Timeout(60),
        monitor.MaxToolCalls(1),
    ],
    ids=lambda limit: limit.name,
)
@pytest.mark.parametrize("last_turn", [None, monitor.LastTurn()])
async def test_a_goal_that_is_reached_in_a_turn_wins_over_a_limit_that_is_reached_in_it(
    limit: monitor.Condition, last_turn: monitor.LastTurn | None
):
    """What the model has handed over counts, whatever else happened in the turn; no other call is
    made to get it again.
    """
    clock = FakeClock()

    async def slow() -> str:
        clock.advance(61)
        return "late"

    run = await drive(
        [
            call("emit_value", name="a", value=1),
            *([call("slow")] if limit.name in ("timeout", "max_tool_calls") else []),
            Report(input_tokens=90),
        ],
        outputs={"a": int},
        tools=[slow],
        stop_when=limit,
        last_turn=last_turn,
        clock=clock,
    )
    assert (run.outcome.reason, run.outcome.ok, run.outcome.output) == (Reason.GOAL, True, {"a": 1})
    assert len(run.requests) == 1
    stops = [event.stop.reason for event in run.of(monitor.events.StopDecided)]
    assert stops[-1] is Reason.GOAL
    assert run.outcome.recovered_from == (stops[0] if len(stops) > 1 else None)


async def test_of_two_limits_that_are_reached_at_once_the_one_written_first_counts():
    for one, other, reason in [
        (monitor.MaxTurns(1), monitor.MaxModelCalls(1), Reason.MAX_TURNS),
        (monitor.MaxModelCalls(1), monitor.MaxTurns(1), Reason.MODEL_CALL_LIMIT),
    ]:
        run = await drive(call("look", q="x"), tools=[look], stop_when=one | other, last_turn=None)
        assert run.outcome.reason is reason


# --- what people are told


@pytest.mark.feature("ST-12")
async def test_each_reason_has_a_sentence_of_its_own():
    clock = FakeClock()

    async def slow() -> str:
        clock.advance(100)
        return "late"

    loop: dict[str, Any] = {"policy": monitor.StopAtFirstLoop()}
    never: dict[str, Any] = {"last_turn": None, "requests": monitor.runs.Requests(retries=None)}
    aborted = Drive(["a", Do(lambda: aborted.run.abort("the user pressed Ctrl-C")), "b"])
    price = monitor.Price(1, 1)
    runs = [
        await drive("Hello"),
        await drive(call("emit_value", name="a", value=1), outputs={"a": int}),
        await drive(call("terminate", status="failure", reason="no access")),
        await drive(
            "no", outputs={"a": int}, last_turn=None, requests=monitor.runs.Requests(retries=None, max_nudges=0)
        ),
        await drive(call("look", q="x"), tools=[look], stop_when=monitor.MaxTurns(1), **never),
        await drive(call("look", q="x"), tools=[look], stop_when=monitor.MaxModelCalls(1), **never),
        await drive(
            [call("look", q="x"), call("look", q="y")], tools=[look], stop_when=monitor.MaxToolCalls(1), **never
        ),
        await drive(call("slow"), tools=[slow], stop_when=monitor.Timeout(60), clock=clock, **never),
        await drive(["Hi", Report(input_tokens=99)], stop_when=monitor.TokenLimit(50)),
        await drive(["Hi", Report(input_tokens=99)], stop_when=monitor.CostLimit(0.00001), prices=price),
        await drive(["Hi", Report(input_tokens=99)], budget=monitor.Budget(tokens=50)),
        await drive([SENTENCE] * 40, **loop),
        await drive(call("look", q="x"), tools=[look], stop_when=monitor.conditions.ToolCalled("look")),
        await aborted.go(),
        await drive(ConnectionError("gone"), **never),
        await drive("", **never),
        await drive(["x", monitor.chunks.TurnFinished(monitor.FinishReason.LENGTH)], **never),
        await drive(["x", monitor.chunks.TurnFinished(monitor.FinishReason.BLOCKED, "SAFETY")], **never),
        await drive(["x", monitor.chunks.TurnFinished(monitor.FinishReason.MALFORMED)], **never),
    ]
    details = [run.outcome.detail for run in runs]
    assert len(set(details)) == len(details)
    assert all(len(detail.split()) >= 2 for detail in details), details
    assert {run.outcome.reason for run in runs} >= {
        Reason.GOAL,
        Reason.TERMINATED,
        Reason.MISSING_OUTPUTS,
        Reason.MAX_TURNS,
        Reason.MODEL_CALL_LIMIT,
        Reason.TOOL_CALL_LIMIT,
        Reason.TIMEOUT,
        Reason.TOKEN_LIMIT,
        Reason.COST_LIMIT,
        Reason.LOOP_DETECTED,
        Reason.CONDITION_MET,
        Reason.ABORTED,
        Reason.ERROR,
        Reason.INVALID_STREAM,
        Reason.TRUNCATED,
        Reason.BLOCKED,
    }


@pytest.mark.feature("ST-12")
async def test_a_composition_tells_which_of_its_parts_were_true():
    both = monitor.MaxTurns(1) & monitor.conditions.ToolCalled("look")
    run = await drive(call("look", q="x"), tools=[look], stop_when=both | monitor.MaxTurns(9), last_turn=None)
    evidence = run.outcome.evidence
    assert isinstance(evidence, monitor.verdicts.Met)

    def tree(met: monitor.verdicts.Met) -> Any:
        return (met.condition, met.met, [tree(part) for part in met.parts])

    assert "max_turns" in run.outcome.source
    leaves = {(leaf.condition, leaf.met) for leaf in _leaves(evidence)}
    assert ("max_turns", True) in leaves
    assert ("tool_called", True) in leaves


@pytest.mark.feature("ST-12")
async def test_a_negation_and_a_conjunction_are_looked_at_too():
    calm = monitor.MaxTurns(2) & ~monitor.conditions.ToolCalled("alarm")
    run = await drive(call("look", q="1"), call("look", q="2"), tools=[look], stop_when=calm, last_turn=None)
    assert (run.outcome.reason, run.outcome.turns) == (Reason.MAX_TURNS, 2)

    async def alarm() -> str:
        return "!"

    run = await drive(call("look", q="1"), call("alarm"), "Done.", tools=[look, alarm], stop_when=calm, last_turn=None)
    assert run.outcome.reason is Reason.GOAL


def _leaves(met: monitor.verdicts.Met) -> list[monitor.verdicts.Met]:
    return [leaf for part in met.parts for leaf in _leaves(part)] or [met]


async def test_a_condition_that_crashes_ends_the_run_and_is_named():
    run = await drive("x", stop_when=monitor.Predicate(lambda _: 1 // 0 > 0, name="mine"))
    assert (run.outcome.reason, run.outcome.source) == (Reason.ERROR, "mine")
    assert isinstance(run.outcome.error, ZeroDivisionError)
    assert run.requests == []


async def test_an_idle_provider_ends_the_run_and_the_connection():
    clock = FakeClock()
    silence = Pause()
    d = Drive(["a", silence], stop_when=monitor.IdleTimeout(30), last_turn=None, clock=clock)
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await silence.reached()
        clock.advance(31)
    assert (d.outcome.reason, d.outcome.source) == (Reason.IDLE_TIMEOUT, "idle_timeout")
    assert d.model.streams[0].closed


# --- a run that is given no limit


def endless(request: monitor.models.ModelRequest) -> Any:
    """A model that always has one more thing to look up."""
    return call("look", q=str(len(request.messages)))


ENDLESS: dict[str, Any] = {"model": ScriptedModel(endless), "tools": [look], "detectors": None, "last_turn": None}


async def test_a_run_that_is_given_no_limit_has_a_hundred_turns_and_says_that_this_is_the_default():
    run = await Drive(**ENDLESS).go()
    outcome = run.outcome
    assert (outcome.reason, outcome.source, outcome.limit, outcome.turns) == (
        Reason.MAX_TURNS,
        "default max_turns",
        100,
        100,
    )
    assert (
        outcome.detail
        == "100 turns are done, the limit is 100, the default of a run that is given no limit; stop_when= sets another"
    )
    assert [(event.source, event.limit) for event in run.of(monitor.events.LimitWarning)] == [("max_turns", 100)]


async def test_it_has_one_hour():
    clock = FakeClock()
    run = await Drive(["Hm.", Do(lambda: clock.advance(3_600.5)), "late"], clock=clock, last_turn=None).go()
    assert (run.outcome.reason, run.outcome.source, run.outcome.limit) == (Reason.TIMEOUT, "default timeout", 3_600)


async def test_a_budget_that_counts_only_is_no_limit():
    run = await Drive(**ENDLESS, budget=monitor.Budget()).go()
    assert run.outcome.source == "default max_turns"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"stop_when": None}, Reason.ABORTED),
        ({"stop_when": monitor.MaxTurns(120)}, Reason.MAX_TURNS),
        ({"budget": monitor.Budget(tokens=10**9)}, Reason.ABORTED),
        ({"budget": monitor.Budget(tokens=10**9).share()}, Reason.ABORTED),
    ],
)
async def test_who_says_anything_of_limits_has_no_other(given: dict[str, Any], reason: Reason):
    d = Drive(**ENDLESS, **given)
    async with d.run as run:
        async for _ in run:
            if len(run.history) > 150:
                run.abort("enough")
    assert run.outcome.reason is reason
    # a turn is part of the history when the events of the next one are read
    assert run.outcome.turns == (120 if reason is Reason.MAX_TURNS else 151)
    assert not run.outcome.source.startswith("default")


async def test_a_guard_has_no_limit_of_its_own_but_the_detectors():
    async with monitor.Guard() as guard:
        for number in range(300):
            async with guard.watch(
                ScriptedStream(monitor.chunks.ToolCall(f"c{number}", "look", {"q": number}))
            ) as watched:
                async for _ in watched:
                    pass
            guard.tool_result(watched.turn.tool_calls[0], f"found {number}")
            assert guard.check() == monitor.Continue()
        guard.finish()
    assert guard.outcome.ok

"""Runs inside of runs: a supervisor as a tool, and budgets that several runs share."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

import monitor
from monitor.testing import FakeClock, ScriptedModel, Stall, call
from tests.runs.driving import Drive, Reason, drive, look

pytestmark = pytest.mark.anyio

Report = monitor.chunks.UsageReport
WORDS = "".join(f"word {n} " for n in range(2_000))
PIECES = [WORDS[i : i + 20] for i in range(0, len(WORDS), 20)]


def child(
    *answers: Any, name: str = "child:model", **options: Any
) -> tuple[ScriptedModel, monitor.tools.Tool, monitor.sinks.MemorySink]:
    """A model, the tool that is a run of it, and the events of these runs."""
    model = ScriptedModel(*answers, name=name)
    sink = monitor.sinks.MemorySink()
    supervisor = monitor.Supervisor(model, sinks=[sink], **options)
    return model, supervisor.as_tool(name="research", description="Find something out."), sink


def ended(sink: monitor.sinks.MemorySink) -> list[monitor.Outcome]:
    return [event.outcome for event in sink.events if isinstance(event, monitor.events.RunTerminated)]


RESEARCH = {"task": "find out when it is noon"}


def research() -> monitor.chunks.ToolCall:
    return call("research", **RESEARCH)


# --- what comes back


async def test_a_call_is_a_run_and_its_answer_is_the_result():
    model, tool, sink = child("At twelve.")
    run = await drive(research(), "It is at twelve.", tools=[tool])
    assert run.outcome.reason is Reason.GOAL
    assert model.requests[0].messages[0] == monitor.UserMessage((monitor.messages.Text(RESEARCH["task"]),))
    assert [(result.text, result.is_error) for result in run.results(0)] == [("At twelve.", False)]
    assert len(ended(sink)) == 1


async def test_a_long_answer_comes_back_whole_and_emitted_outputs_as_json():
    _, tool, _ = child(WORDS)
    run = await drive(research(), "ok", tools=[tool])
    assert run.results(0)[0].text == WORDS
    _, tool, _ = child(
        [call("emit_value", name="a", value=1), call("emit_value", name="b", value="é")], outputs={"a": int, "b": str}
    )
    run = await drive(research(), "ok", tools=[tool])
    assert run.results(0)[0].text == '{"a": 1, "b": "é"}'


@pytest.mark.parametrize("row", ["I1"])
async def test_a_limit_of_the_childs_own_is_an_error_result_that_names_it_and_keeps_what_was_emitted(row: str):
    """Upstream reports TIMEOUT and MAX_TURNS as `completed`; a parent that reads that takes half a
    work for a whole one.
    """
    _, tool, sink = child(
        [call("emit_value", name="a", value=1), call("look", q="x")],
        outputs={"a": int, "b": int},
        tools=[look],
        stop_when=monitor.MaxTurns(1),
        last_turn=None,
    )
    run = await drive(research(), "I see.", tools=[tool])
    (result,) = run.results(0)
    assert result.is_error
    assert "max_turns: 1 turn is done, the limit is 1" in result.text
    assert '{"a": 1}' in result.text
    assert run.outcome.reason is Reason.GOAL
    assert [outcome.reason for outcome in ended(sink)] == [Reason.MAX_TURNS]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"stop_when": monitor.TokenLimit(100)}, "token_limit"),
        ({"budget": monitor.Budget(tokens=100)}, "token_limit"),
        ({"stop_when": monitor.CostLimit(0.0001), "prices": monitor.Price(1, 1)}, "cost_limit"),
    ],
)
async def test_the_same_holds_for_what_the_child_may_spend(options: dict[str, Any], reason: str):
    _, tool, sink = child(["x", Report(input_tokens=200)], **options)
    run = await drive(research(), "I see.", tools=[tool], stop_when=monitor.TokenLimit(10_000))
    assert reason in run.results(0)[0].text
    assert run.outcome.reason is Reason.GOAL
    assert ended(sink)[0].usage.total_tokens <= run.outcome.usage.total_tokens


@pytest.mark.parametrize("row", ["I2"])
async def test_a_child_that_fails_is_an_error_result(row: str):
    _, tool, _ = child(ValueError("broken"), requests=monitor.runs.Requests(retries=None))
    run = await drive(research(), "Oh.", tools=[tool])
    (result,) = run.results(0)
    assert result.is_error
    assert "error: ValueError: broken" in result.text
    assert run.outcome.reason is Reason.GOAL


@pytest.mark.parametrize("row", ["I3"])
@pytest.mark.parametrize("arguments", [{}, {"task": ""}, {"task": 1}, {"task": "x", "mode": "deep"}])
async def test_a_child_that_cannot_begin_is_an_error_result(row: str, arguments: dict[str, Any]):
    model, tool, _ = child("never")
    run = await drive(call("research", **arguments), "Oh.", tools=[tool])
    assert run.results(0)[0].is_error
    assert model.requests == []
    assert run.outcome.reason is Reason.GOAL


# --- what the parent decides


@pytest.mark.parametrize("row", ["I4"])
async def test_an_abort_of_the_parent_is_one_of_the_child_and_ends_both(row: str):
    """Upstream throws; here an abort is an ending like any other, and the parent's outcome has its
    reason.
    """
    stall = Stall()
    model, tool, sink = child(["I begin", stall])
    d = Drive(research(), tools=[tool])
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await stall.reached()
        d.run.abort("the user said stop")
    assert (d.outcome.reason, d.outcome.detail) == (Reason.ABORTED, "the user said stop")
    assert [(outcome.reason, outcome.detail) for outcome in ended(sink)] == [(Reason.ABORTED, "the user said stop")]
    assert model.streams[0].closed
    assert len(d.requests) == 1


async def test_the_parents_timeout_ends_the_child_and_then_the_parent():
    stall = Stall()
    clock = FakeClock()
    model, tool, sink = child(["I begin", stall], stop_when=monitor.Timeout(1_000))
    d = Drive(research(), tools=[tool], stop_when=monitor.Timeout(60), last_turn=None, clock=clock)
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await stall.reached()
        clock.advance(60)
    assert (d.outcome.reason, d.outcome.source, d.outcome.limit) == (Reason.TIMEOUT, "timeout", 60)
    (inner,) = ended(sink)
    assert (inner.reason, inner.source, inner.limit) == (Reason.ABORTED, "timeout", 60)
    assert "the run that called this one ends" in inner.detail
    assert model.streams[0].closed


@pytest.mark.parametrize(
    ("options", "reason", "source"),
    [
        ({"stop_when": monitor.TokenLimit(1_000)}, Reason.TOKEN_LIMIT, "token_limit"),
        ({"stop_when": monitor.TokenLimit(output_tokens=1_000)}, Reason.TOKEN_LIMIT, "token_limit"),
        ({"budget": {"tokens": 1_000}}, Reason.TOKEN_LIMIT, "Budget"),
        ({"stop_when": monitor.CostLimit(0.001)}, Reason.COST_LIMIT, "cost_limit"),
        ({"budget": {"usd": 0.001}}, Reason.COST_LIMIT, "Budget"),
    ],
)
@pytest.mark.parametrize("depth", [1, 2])
async def test_what_the_parent_may_spend_ends_the_child_mid_stream_and_then_the_parent(
    options: dict[str, Any], reason: monitor.TerminateReason, source: str, depth: int
):
    price = monitor.Price(1, 1)
    model, tool, sink = child(PIECES, detectors=None, prices=price)
    if depth == 2:
        between = monitor.Supervisor(ScriptedModel(research()), tools=[tool], prices=price)
        tool = between.as_tool(name="research", description="Ask somebody else.")
    given = {key: monitor.Budget(**value) if key == "budget" else value for key, value in options.items()}
    run = await drive(research(), tools=[tool], prices=price, **given)
    assert (run.outcome.reason, run.outcome.source) == (reason, source)
    assert len(run.requests) == 1
    (inner,) = ended(sink)
    assert inner.source == source
    assert inner.reason in (Reason.ABORTED, reason)
    (stream,) = model.streams
    assert stream.closed
    assert 1_000 < run.outcome.usage.total_tokens < 1_350


async def test_what_a_child_uses_counts_for_the_parent_once():
    budget = monitor.Budget(tokens=10_000)
    price = monitor.Price(10, 10)
    _, tool, sink = child(["x", Report(input_tokens=100, output_tokens=10)], budget=budget, prices=price)
    run = await drive(
        [research(), Report(input_tokens=50, output_tokens=5)],
        ["ok", Report(input_tokens=70, output_tokens=7)],
        tools=[tool],
        budget=budget,
        prices=price,
    )
    assert ended(sink)[0].usage.total_tokens == 110
    assert run.outcome.usage.total_tokens == 110 + 55 + 77
    assert budget.spent_tokens == 110 + 55 + 77
    assert run.outcome.cost_usd == pytest.approx((110 + 55 + 77) / 100_000)


@pytest.mark.parametrize(
    "prices", [monitor.Price(10, 10), {"scripted:model": monitor.Price(1, 1), "child:model": monitor.Price(10, 10)}]
)
async def test_a_child_without_prices_costs_what_the_parents_say(prices: Any):
    _, tool, sink = child(["x", Report(input_tokens=100, output_tokens=0)])
    run = await drive(research(), "never", tools=[tool], stop_when=monitor.CostLimit(0.0005), prices=prices)
    assert ended(sink)[0].cost_usd == pytest.approx(0.001)
    assert run.outcome.reason is Reason.COST_LIMIT


async def test_a_child_whose_price_nobody_knows_cannot_spend_from_a_limit_in_dollars():
    model, tool, _ = child("never")
    run = await drive(
        research(), "Oh.", tools=[tool], budget=monitor.Budget(usd=1), prices={"scripted:model": monitor.Price(1, 1)}
    )
    assert "needs to know what child:model costs" in run.results(0)[0].text
    assert model.requests == []


async def test_children_at_the_same_time_share_the_parents_budget():
    budget = monitor.Budget(tokens=1_000)
    model, tool, sink = child(lambda request: ["x", Report(input_tokens=400, output_tokens=0)])
    run = await drive([research(), research(), research()], tools=[tool], budget=budget)
    assert (run.outcome.reason, run.outcome.source, run.outcome.value) == (
        Reason.TOKEN_LIMIT,
        "Budget",
        budget.spent_tokens,
    )
    assert len(model.requests) == 3
    assert len(ended(sink)) == 3


async def test_a_last_turn_of_the_parent_is_not_taken_from_it_by_its_children():
    clock = FakeClock()
    stall = Stall()
    _, tool, _ = child([stall])
    d = Drive(research(), "It takes too long.", tools=[tool], stop_when=monitor.Timeout(60), clock=clock)
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await stall.reached()
        clock.advance(60)
    assert (d.outcome.reason, d.outcome.recovered_from) == (Reason.GOAL, Reason.TIMEOUT)


async def test_while_a_childs_tool_asks_a_person_the_parents_deadlines_stand_still_too():
    clock = FakeClock()

    async def ask(context: monitor.ToolContext) -> str:
        assert isinstance(context.run, monitor.Run)
        with context.run.paused():
            clock.advance(3_600)
            await anyio.lowlevel.checkpoint()
        return "yes"

    _, tool, sink = child(call("ask"), "They said yes.", tools=[ask], stop_when=monitor.Timeout(50))
    run = await drive(research(), "Fine.", tools=[tool], stop_when=monitor.Timeout(60), clock=clock)
    assert [outcome.reason for outcome in ended(sink)] == [Reason.GOAL]
    assert run.outcome.reason is Reason.GOAL


async def test_a_supervisor_that_is_its_own_tool_is_bound_by_the_budget_of_the_first_run():
    tools: list[Any] = []
    model = ScriptedModel(lambda request: [research(), Report(input_tokens=10)])

    class Deferred:
        alone = False

        @property
        def spec(self) -> monitor.models.ToolSpec:
            return monitor.models.ToolSpec("research", "Ask yourself.", {"type": "object"})

        async def call(self, arguments: Any, context: monitor.ToolContext) -> object:
            return await tools[0].call(arguments, context)

    supervisor = monitor.Supervisor(model, tools=[Deferred()], budget=monitor.Budget(tokens=200), last_turn=None)
    tools.append(supervisor.as_tool(name="research", description="Ask yourself."))
    outcome = await supervisor.run("go")
    assert outcome.reason is Reason.TOKEN_LIMIT
    assert 5 < len(model.requests) < 21


@pytest.mark.parametrize("name", ["terminate", "two words", ""])
def test_a_name_that_no_tool_can_have_is_refused(name: str):
    with pytest.raises(monitor.ConfigError):
        monitor.Supervisor(ScriptedModel("x")).as_tool(name=name, description="x")


async def test_a_subagent_without_limits_of_its_own_has_thirty_turns():
    def work(request: monitor.models.ModelRequest) -> Any:
        return call("look", q=str(len(request.messages)))

    _, tool, sink = child(work, tools=[look], detectors=None, last_turn=None)
    run = await drive(research(), "It did not work.", tools=[tool])
    assert [(outcome.reason, outcome.limit, outcome.turns) for outcome in ended(sink)] == [(Reason.MAX_TURNS, 30, 30)]
    assert [outcome.source for outcome in ended(sink)] == ["default max_turns"]
    assert "max_turns" in run.results(0)[0].text
    assert run.outcome.reason is Reason.GOAL


async def test_a_subagent_that_is_called_in_a_loop_of_somebodys_own_has_the_same_limits():
    _, tool, sink = child(
        lambda request: call("look", q=str(len(request.messages))), tools=[look], detectors=None, last_turn=None
    )
    with pytest.raises(monitor.ToolError, match="max_turns"):
        await tool.call({"task": "Find it."}, monitor.ToolContext(call("research", task="Find it.")))
    assert [(outcome.limit, outcome.turns) for outcome in ended(sink)] == [(30, 30)]


async def test_a_subagent_whose_limits_are_off_has_those_of_its_caller():
    def work(request: monitor.models.ModelRequest) -> Any:
        return "Found." if len(request.messages) > 80 else call("look", q=str(len(request.messages)))

    _, tool, sink = child(work, tools=[look], detectors=None, stop_when=None)
    run = await drive(research(), "I see.", tools=[tool])
    assert [(outcome.reason, outcome.turns > 30) for outcome in ended(sink)] == [(Reason.GOAL, True)]
    assert run.outcome.reason is Reason.GOAL

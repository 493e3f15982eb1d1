"""What happens in the turns of a run: tools, outputs, the goal. Rows S and E restate the cases of
Gemini CLI's subagents.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pydantic import BaseModel

import monitor
from monitor.messages import AssistantMessage, Text
from monitor.testing import ScriptedModel, call
from tests.runs.driving import Drive, Reason, drive, look

pytestmark = pytest.mark.anyio

BLANK = pytest.param("\u200b \u2060", id="zero-width"), pytest.param("  \n", id="blank")


def emit(name: str, value: Any) -> monitor.chunks.ToolCall:
    return call("emit_value", name=name, value=value)


# --- without declared outputs


@pytest.mark.feature("GC-05")
@pytest.mark.parametrize("row", ["E1", "S2"])
async def test_without_outputs_an_answer_without_calls_is_the_goal(row: str):
    run = await drive("It is noon.")
    assert (run.outcome.reason, run.outcome.source, run.outcome.ok) == (Reason.GOAL, "model", True)
    assert run.outcome.text == "It is noon."
    assert run.outcome.output is None
    assert len(run.requests) == 1


@pytest.mark.parametrize("row", ["E3", "S1"])
async def test_a_tool_is_carried_out_its_result_goes_back_and_then_the_answer_is_the_goal(row: str):
    looking = call("look", q="time")
    run = await drive(["I look.", looking], "It is noon.", tools=[look])
    assert run.outcome.reason is Reason.GOAL
    assert run.requests[1].messages[1] == AssistantMessage(
        (Text("I look."), looking),
        (monitor.chunks.ToolResult(looking.id, "look", "found time"),),
        monitor.FinishReason.DONE,
    )
    assert [(event.turn, event.model_call) for event in run.of(monitor.events.TurnStarted)] == [(1, 1), (2, 2)]
    assert [event.result.text for event in run.of(monitor.events.ToolFinished)] == ["found time"]


# --- with declared outputs


@pytest.mark.feature("GC-06")
@pytest.mark.parametrize("row", ["E2"])
async def test_the_goal_is_reached_in_the_turn_that_emits_the_last_output_without_another_call(row: str):
    run = await drive(
        [call("look", q="x"), emit("risk", 0.5)],
        emit("summary", "fine"),
        outputs={"summary": str, "risk": float},
        tools=[look],
    )
    assert (run.outcome.reason, run.outcome.source) == (Reason.GOAL, "outputs")
    assert run.outcome.output == {"summary": "fine", "risk": 0.5}
    assert run.outcome.missing == []
    assert len(run.requests) == 2
    assert [(event.name, event.value) for event in run.of(monitor.events.OutputEmitted)] == [
        ("risk", 0.5),
        ("summary", "fine"),
    ]


@pytest.mark.feature("GC-06")
async def test_the_other_calls_of_the_turn_that_reaches_the_goal_are_carried_out_as_well():
    run = await drive([emit("n", 1), call("look", q="x")], outputs={"n": int}, tools=[look])
    assert run.outcome.reason is Reason.GOAL
    assert [result.text for result in run.results()] == ["`n` is recorded. All required outputs are there.", "found x"]


class Report(BaseModel):
    summary: str
    risk: float = 0.0


async def test_outputs_declared_by_a_model_are_its_instance():
    run = await drive(emit("summary", "fine"), outputs=Report)
    assert run.outcome.output == Report(summary="fine")
    assert run.outcome.emitted == {"summary": "fine"}


@pytest.mark.feature("GC-07")
@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        pytest.param(call("emit_value", name="risk"), ["`value` is missing", "risk"], id="S4"),
        pytest.param(emit("risk", "high"), ["`risk` is not accepted", "number"], id="S8"),
        pytest.param(emit("rsik", 1), ["No output is called", "Did you mean `risk`"], id="undeclared"),
        pytest.param(monitor.chunks.ToolCall("c", "emit_value", '{"name": "ri'), ["Error"], id="half-json"),
    ],
)
async def test_a_wrong_emit_is_a_tool_error_that_says_what_is_allowed_and_the_run_goes_on(
    wrong: monitor.chunks.ToolCall, names: list[str]
):
    run = await drive(wrong, emit("risk", 0.1), outputs={"risk": float})
    assert run.outcome.reason is Reason.GOAL
    assert len(run.requests) == 2
    (refusal,) = run.results(0)
    assert refusal.is_error
    assert all(name in refusal.text for name in names)


@pytest.mark.parametrize("row", ["S5"])
async def test_emitting_twice_in_one_turn_is_one_call_and_the_later_value_counts(row: str):
    """Gemini CLI keeps the first; ours lets a model correct itself, and says that it did."""
    run = await drive([emit("n", 1), emit("n", 2)], outputs={"n": int})
    assert run.outcome.output == {"n": 2}
    assert [event.overwritten for event in run.of(monitor.events.OutputEmitted)] == [False, True]
    assert len(run.requests) == 1


@pytest.mark.feature("GC-08")
@pytest.mark.parametrize("row", ["E5"])
async def test_stopping_with_outputs_missing_brings_one_user_message_that_names_them_and_the_tool(row: str):
    run = await drive(emit("a", 1), "Done.", [emit("b", 2), emit("c", 3)], outputs={"a": int, "b": int, "c": int})
    assert run.outcome.reason is Reason.GOAL
    assert len(run.requests) == 3
    nudge = run.told(2)
    assert "`b`" in nudge
    assert "`c`" in nudge
    assert "`a`" not in nudge
    assert "emit_value" in nudge
    assert [event.text for event in run.of(monitor.events.Nudged)] == [nudge]


@pytest.mark.feature("GC-08")
async def test_nudges_are_bounded_and_what_was_emitted_is_kept():
    run = await drive(
        lambda request: "Done.", outputs={"a": int}, requests=monitor.runs.Requests(max_nudges=2), last_turn=None
    )
    outcome = run.outcome
    assert (outcome.reason, outcome.ok, outcome.missing) == (Reason.MISSING_OUTPUTS, False, ["a"])
    assert (outcome.limit, outcome.value) == (2, "a")
    assert "after 2 nudges" in outcome.detail
    assert len(run.requests) == 3

    run = await drive(
        emit("b", 1),
        "Done.",
        outputs={"a": int, "b": int},
        requests=monitor.runs.Requests(max_nudges=0),
        last_turn=None,
    )
    assert (run.outcome.reason, run.outcome.emitted, run.outcome.missing) == (Reason.MISSING_OUTPUTS, {"b": 1}, ["a"])
    assert run.outcome.output is None


# --- tools


@pytest.mark.parametrize("row", ["S10", "E4"])
async def test_what_a_tool_raises_reaches_the_model(row: str):
    async def broken(path: str) -> str:
        raise FileNotFoundError(path)

    def refusing() -> str:
        raise monitor.ToolError("ask the owner first")

    run = await drive([call("broken", path="/x"), call("refusing")], "Oh.", tools=[broken, refusing])
    assert run.outcome.reason is Reason.GOAL
    assert [(result.text, result.is_error) for result in run.results(0)] == [
        ("Error: FileNotFoundError: /x", True),
        ("Error: ask the owner first", True),
    ]


@pytest.mark.parametrize("row", ["S7"])
async def test_a_call_of_a_tool_that_is_not_there_is_an_error_result_and_the_run_goes_on(row: str):
    run = await drive(call("lokk", q="x"), "Oh.", tools=[look])
    (result,) = run.results(0)
    assert result.is_error
    assert "Did you mean look" in result.text
    assert run.outcome.reason is Reason.GOAL
    assert [event.result for event in run.of(monitor.events.ToolFinished)] == [result]


@pytest.mark.parametrize("row", ["S11"])
async def test_a_refusal_by_a_person_is_an_answer_that_the_run_goes_on_from(row: str):
    async def delete(path: str) -> str:
        raise monitor.ToolError("the user said no; find another way")

    run = await drive(call("delete", path="x"), "I left it.", tools=[delete])
    assert run.results(0)[0].text == "Error: the user said no; find another way"
    assert run.outcome.reason is Reason.GOAL


@pytest.mark.parametrize("arguments", [{"q": [1]}, {}, {"q": "x", "z": 1}, "{broken", ["q"]])
async def test_arguments_that_do_not_fit_are_an_error_result(arguments: Any):
    run = await drive(monitor.chunks.ToolCall("c", "look", arguments), "Oh.", tools=[look])
    (result,) = run.results(0)
    assert result.is_error
    assert run.outcome.reason is Reason.GOAL


@pytest.mark.feature("OM-07")
async def test_all_calls_of_a_turn_are_carried_out_side_by_side_with_results_in_call_order():
    order = []
    second = anyio.Event()

    async def slow(n: int) -> int:
        await second.wait()
        order.append(n)
        return n

    async def quick(n: int) -> int:
        order.append(n)
        second.set()
        return n

    def plain(n: int) -> int:
        return n

    calls = [call("slow", n=1), call("plain", n=2), call("quick", n=3)]
    run = await drive(calls, "Done.", tools=[slow, quick, plain])
    assert [result.text for result in run.results(0)] == ["1", "2", "3"]
    assert [result.id for result in run.results(0)] == [made.id for made in calls]
    assert order == [3, 1]


@pytest.mark.parametrize("ids", [("same", "same"), ("", "")])
async def test_calls_with_the_same_id_or_none_keep_their_own_results(ids: tuple[str, str]):
    run = await drive(
        [monitor.chunks.ToolCall(ids[0], "look", {"q": "a"}), monitor.chunks.ToolCall(ids[1], "look", {"q": "b"})],
        "Done.",
        tools=[look],
    )
    reply = run.run.history[1]
    assert isinstance(reply, AssistantMessage)
    assert [result.text for result in reply.results] == ["found a", "found b"]
    made = [part.id for part in reply.content if isinstance(part, monitor.chunks.ToolCall)]
    assert made == [result.id for result in reply.results]
    assert len(set(made)) == 2
    assert all(made)


# --- terminate


@pytest.mark.feature("OM-01", "ST-06")
@pytest.mark.parametrize(("status", "ok"), [("success", True), ("failure", False)])
async def test_terminate_ends_the_run_with_its_status_after_the_batch_that_holds_it(status: str, ok: bool):
    run = await drive([call("terminate", status=status, reason="that is it"), call("look", q="x")], tools=[look])
    outcome = run.outcome
    assert (outcome.reason, outcome.ok, outcome.value, outcome.source) == (Reason.TERMINATED, ok, status, "terminate")
    assert "that is it" in outcome.detail
    assert run.results()[1].text == "found x"
    assert len(run.requests) == 1


@pytest.mark.feature("OM-01")
async def test_terminate_with_success_is_refused_while_outputs_are_missing_but_failure_is_not():
    run = await drive(
        call("terminate", status="success", reason="done"),
        call("terminate", status="failure", reason="no access"),
        outputs={"a": int},
    )
    assert run.results(0)[0].is_error
    assert "`a`" in run.results(0)[0].text
    assert (run.outcome.reason, run.outcome.value, run.outcome.missing) == (Reason.TERMINATED, "failure", ["a"])


@pytest.mark.feature("OM-01")
async def test_what_is_emitted_in_the_same_turn_counts_before_the_terminate_wherever_it_stands():
    run = await drive([call("terminate", status="success", reason="done"), emit("a", 1)], outputs={"a": int})
    assert (run.outcome.reason, run.outcome.output) == (Reason.GOAL, {"a": 1})
    assert not any(result.is_error for result in run.results())


@pytest.mark.parametrize("row", ["S5"])
async def test_of_two_terminates_in_one_turn_the_first_counts(row: str):
    run = await drive(
        [call("terminate", status="failure", reason="first"), call("terminate", status="success", reason="second")]
    )
    assert run.outcome.value == "failure"
    assert "first" in run.outcome.detail


@pytest.mark.feature("OM-11")
@pytest.mark.parametrize("tools", [[], [look]])
async def test_the_instructions_tell_when_to_emit_and_when_to_terminate(tools: list[Any]):
    run = await drive(emit("a", 1), outputs={"a": int}, tools=tools, instructions="You are terse.")
    instructions = run.requests[0].instructions
    assert instructions is not None
    assert instructions.startswith("You are terse.\n")
    assert "`emit_value`" in instructions
    assert "When every required output is emitted, call `terminate`" in instructions
    assert 'call `terminate` with status "failure"' in instructions


async def test_the_instructions_stay_the_same_over_a_run_and_name_no_tool_that_may_not_be_called():
    run = await drive(call("look", q="x"), "Done.", tools=[look], instructions="Be quick.")
    assert run.requests[0].instructions == run.requests[1].instructions
    run = await drive("Done.", requests=monitor.runs.Requests(tool_choice="none"))
    assert "terminate" not in (run.requests[0].instructions or "")


# --- steps and states


@pytest.mark.feature("OM-02")
async def test_a_run_is_idle_then_running_then_finished_and_is_used_once():
    d = Drive("Hello")
    phases: list[str] = [d.run.phase]
    with pytest.raises(monitor.ConfigError, match="the run has ended"):
        _ = d.run.outcome
    with pytest.raises(monitor.ConfigError, match="enter the run"):
        await anext(d.run)
    async with d.run as run:
        phases += [run.phase async for _ in run]
        assert [event async for event in run] == []
    assert list(dict.fromkeys(phases)) == ["idle", "running", "finished"]
    with pytest.raises(monitor.ConfigError, match="a run is used once"):
        await d.run.__aenter__()
    with pytest.raises(StopAsyncIteration):
        await anext(d.run)


@pytest.mark.feature("OM-02", "GC-04")
@pytest.mark.parametrize("row", ["E8"])
async def test_a_model_that_raises_ends_the_run_with_error_and_the_exception_is_kept(row: str):
    error = ValueError("broken")
    run = await drive(error)
    assert run.run.phase == "error"
    assert (run.outcome.reason, run.outcome.ok) == (Reason.ERROR, False)
    assert run.outcome.error is error
    assert "broken" in run.outcome.detail
    with pytest.raises(monitor.outcome.RunFailed) as caught:
        run.outcome.raise_for_reason()
    assert caught.value.__cause__ is error


async def test_run_is_the_same_as_stream_without_the_events():
    outcome = await monitor.Supervisor(ScriptedModel("Hello")).run("hi")
    assert (outcome.reason, outcome.text, outcome.turns) == (Reason.GOAL, "Hello", 1)


@pytest.mark.parametrize("text", BLANK)
async def test_an_answer_in_which_nothing_can_be_seen_is_no_goal(text: str):
    run = await drive(lambda request: text, requests=monitor.runs.Requests(retries=None))
    assert run.outcome.reason is Reason.INVALID_STREAM


@pytest.mark.parametrize("keep", [0, 3])
async def test_how_much_text_is_kept_for_the_outcome_has_no_say_in_what_is_an_answer(keep: int):
    run = await drive("     a long answer", requests=monitor.runs.Requests(keep_text_chars=keep))
    assert run.outcome.reason is Reason.GOAL
    assert run.outcome.text == "     a long answer"[:keep]


async def test_a_long_answer_is_whole_in_the_outcome_and_in_the_history():
    words = " ".join(map(str, range(3_000)))
    run = await drive(words)
    assert run.outcome.text == words
    assert run.run.history[-1] == AssistantMessage((Text(words),), (), monitor.FinishReason.DONE)


async def test_a_call_of_a_tool_that_there_is_not_is_answered_with_all_that_there_are():
    run = await drive(
        call("emit_values", name="a", value=1), call("emit_value", name="a", value=1), tools=[look], outputs={"a": int}
    )
    assert run.outcome.reason is Reason.GOAL
    text = run.results(0)[0].text
    assert "Did you mean emit_value?" in text
    assert "emit_value, look, terminate" in text

"""The same supervised runs over every wire format, through the real SDKs: nobody's dialect shows in
how a run goes and ends.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import monitor
from monitor.testing import anthropic_steps, gemini_steps, openai_steps
from monitor.testing.openai_steps import Stall
from tests.adapters.provider import Provider
from tests.adapters.providers import each_provider, sdk_test, warnings

pytestmark = warnings

Reason = monitor.TerminateReason


def look(q: str) -> str:
    """Look it up."""
    return f"nothing about {q}"


def emit(value: str) -> tuple[str, dict[str, Any]]:
    return "emit_value", {"name": "city", "value": value}


@sdk_test
@each_provider
async def test_a_goal_is_reached_by_way_of_a_tool(provider: Provider):
    turns = [provider.turn("I look.", [("look", {"q": "é"})]), provider.turn("", [emit("Paris")])]
    async with provider.modelled(*turns) as (model, server):
        outcome = await monitor.Supervisor(model, tools=[look], outputs={"city": str}).run("Which city?")
    assert (outcome.reason, outcome.emitted, outcome.turns) == (Reason.GOAL, {"city": "Paris"}, 2), outcome
    assert outcome.usage.input_tokens > 0
    assert not outcome.usage_estimated
    assert "nothing about é" in str(server.requests[1].body)


@sdk_test
@each_provider
async def test_a_model_that_stops_too_early_is_nudged(provider: Provider):
    turns = [provider.turn("I think it is Paris."), provider.turn("", [emit("Paris")])]
    async with provider.modelled(*turns) as (model, server):
        outcome = await monitor.Supervisor(model, outputs={"city": str}).run("Which city?")
    assert (outcome.reason, outcome.emitted, outcome.turns) == (Reason.GOAL, {"city": "Paris"}, 2), outcome
    assert "city" in str(server.requests[1].body)
    assert "I think it is Paris." in str(server.requests[1].body)


@sdk_test
@each_provider
async def test_a_run_out_of_turns_gets_a_last_one(provider: Provider):
    turns = [provider.turn("", [("look", {"q": "a"})]), provider.turn("", [emit("Paris")])]
    async with provider.modelled(*turns) as (model, server):
        supervisor = monitor.Supervisor(model, tools=[look], outputs={"city": str}, stop_when=monitor.MaxTurns(1))
        outcome = await supervisor.run("Which city?")
    assert (outcome.reason, outcome.recovered_from, outcome.emitted) == (
        Reason.GOAL,
        Reason.MAX_TURNS,
        {"city": "Paris"},
    ), outcome
    assert "'look'" not in str(server.requests[1].body["tools"]), "a last turn is left with the run's own tools"


@sdk_test
@each_provider
async def test_a_call_repeated_over_the_turns_is_a_loop(provider: Provider):
    async with provider.modelled(provider.turn("", [("look", {"q": "a"})])) as (model, _):
        supervisor = monitor.Supervisor(
            model, tools=[look], last_turn=None, policy=monitor.StopAtFirstLoop(), stop_when=monitor.MaxTurns(20)
        )
        outcome = await supervisor.run("Look.")
    assert outcome.reason is Reason.LOOP_DETECTED, outcome
    assert outcome.source == "tool_call_repetition"
    assert outcome.turns == 5


@sdk_test
@each_provider
async def test_a_prompt_that_does_not_fit_is_no_matter_of_trying_again(provider: Provider):
    async with provider.modelled([provider.steps.overflow()]) as (model, server):
        outcome = await monitor.Supervisor(model, last_turn=None).run("Go.")
        assert len(server.requests) == 1
    assert outcome.reason is Reason.PROMPT_TOO_LONG, outcome


@sdk_test
@each_provider
async def test_a_rate_limit_is_waited_for(provider: Provider):
    async with provider.modelled([provider.steps.rate_limited(0.01)], provider.turn("Paris.")) as (model, server):
        outcome = await monitor.Supervisor(model).run("Which city?")
        assert len(server.requests) == 2
    assert (outcome.reason, outcome.text) == (Reason.GOAL, "Paris."), outcome


@sdk_test
@each_provider
async def test_an_abort_closes_the_connection(provider: Provider):
    async with provider.modelled([*provider.turn("Paris.")[:1], Stall()], provider.turn("fine")) as (model, server):
        supervisor = monitor.Supervisor(model)
        async with supervisor.stream("Which city?") as run, anyio.create_task_group() as group:

            async def abort() -> None:
                await anyio.to_thread.run_sync(server.wait_request)
                await anyio.sleep(0.02)
                run.abort("enough")

            group.start_soon(abort)
            async for _ in run:
                pass
        await server.wait_closed_async(0)
        assert (run.outcome.reason, run.outcome.closed) == (Reason.ABORTED, True), run.outcome
        assert (await supervisor.run("Again.")).text == "fine"


def cut_off(provider: Provider, name: str) -> list[Any]:
    """A turn that the output limit ends before the first argument of its only call."""
    match provider.name:
        case "anthropic":
            block = {"type": "tool_use", "id": "toolu_0", "name": name, "input": {}}
            return [anthropic_steps.start(), *anthropic_steps.whole(block), *anthropic_steps.finish("max_tokens")]
        case "google":
            return [gemini_steps.partial_call(name, more=True), gemini_steps.finish("MAX_TOKENS")]
        case "openai":
            return [openai_steps.call_piece("", name=name, id="a"), openai_steps.finish("length")]
    end = openai_steps.response_finish("incomplete", reason="max_output_tokens")
    return [openai_steps.response_created(), *openai_steps.response_call(name, "", id="a", whole=False), end]


@sdk_test
@each_provider
@pytest.mark.parametrize("name", ["delete", "terminate"])
async def test_a_call_that_was_cut_off_before_its_first_argument_is_not_carried_out(provider: Provider, name: str):
    done: list[str] = []

    def delete(path: str = "/") -> None:
        """Delete it."""
        done.append(path)

    async with provider.modelled(cut_off(provider, name), provider.turn("", [emit("Paris")])) as (model, server):
        outcome = await monitor.Supervisor(model, tools=[delete], outputs={"city": str}).run("Clean up.")
    assert not done
    assert (outcome.reason, outcome.emitted) == (Reason.GOAL, {"city": "Paris"}), outcome
    assert "was cut off while its arguments were being written" in str(server.requests[1].body)


def only(provider: Provider) -> list[tuple[str, list[Any]]]:
    """Answers in which there is neither text nor a call, and yet something: their kind, and their
    events.
    """
    image = {"inlineData": {"mimeType": "image/png", "data": "aW1hZ2U="}}
    code = {"executableCode": {"code": "1", "language": "PYTHON"}}
    approval = {
        "id": "mcpr_1",
        "type": "mcp_approval_request",
        "name": "pay",
        "arguments": "{}",
        "server_label": "bank",
    }
    picture = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "aW1hZ2U="}
    match provider.name:
        case "google":
            sent = [
                ("image/png", image),
                ("audio/wav", {"inlineData": {"mimeType": "audio/wav", "data": "YQ=="}}),
                ("executable_code", code),
            ]
            return [(kind, [gemini_steps.chunk([part]), gemini_steps.finish()]) for kind, part in sent]
        case "anthropic":
            blocks = [{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}]
            return [
                (str(one["type"]), [anthropic_steps.start(), *anthropic_steps.whole(one), *anthropic_steps.finish()])
                for one in blocks
            ]
        case "openai":
            audio = {"audio": {"id": "audio_1", "data": "YQ==", "transcript": ""}}
            pictures = {"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1hZ2U="}}]}
            return [(next(iter(one)), [openai_steps.chunk(one), openai_steps.finish()]) for one in (audio, pictures)]
    done = [
        (item["type"], {"type": "response.output_item.done", "output_index": 0, "item": item})
        for item in (approval, picture)
    ]
    return [(kind, [openai_steps.response_created(), one, openai_steps.response_finish()]) for kind, one in done]


@sdk_test
@each_provider
async def test_an_answer_without_text_is_not_empty_and_not_asked_for_again(provider: Provider):
    for kind, script in only(provider):
        async with provider.modelled(script) as (model, server):
            async with monitor.Supervisor(model).stream("Draw a cat.") as run:
                turns = [event.turn async for event in run if isinstance(event, monitor.events.TurnEnded)]
            assert len(server.requests) == 1, kind
        assert run.outcome.reason is Reason.GOAL, run.outcome
        assert [turn.gave for turn in turns] == [(kind,)]


@sdk_test
@each_provider
async def test_an_answer_in_which_nothing_came_is_asked_for_again(provider: Provider):
    async with provider.modelled(provider.turn(""), provider.turn("Paris.")) as (model, server):
        outcome = await monitor.Supervisor(model).run("Which city?")
        assert len(server.requests) == 2
    assert (outcome.reason, outcome.text) == (Reason.GOAL, "Paris."), outcome

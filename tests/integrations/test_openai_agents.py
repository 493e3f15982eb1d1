"""OpenAI Agents: the responses API, handoffs, and the SDK's own retries."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("agents", reason="the framework is not installed: agents")

from agents import (
    Agent,
    ModelRetrySettings,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIProvider,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
    retry_policies,
)

import monitor
from monitor.integrations.openai_agents import GuardedModel, GuardedProvider, Stopped
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import Repeat, Reply, call, finish, response_events_of, response_text, text
from tests.integrations.programs.openai_client import client_of

CHANT = "Let me check the file again. "


@function_tool
def look(q: str) -> str:
    """Looks."""
    return f"nothing about {q} was found in the archive"


async def run(server: LocalOpenAI, guard: monitor.Guard, agent: Agent[Any], *, responses: bool = False) -> Any:
    async with client_of(server.base_url) as client, guard:
        kind = OpenAIResponsesModel if responses else OpenAIChatCompletionsModel
        config = RunConfig(model=GuardedModel(kind("local", client), guard), tracing_disabled=True)
        return await Runner.run(agent, "go", run_config=config)


@pytest.mark.asyncio
async def test_a_chant_in_the_responses_api_is_cut():
    guard = monitor.Guard()
    with LocalOpenAI([[Repeat(response_text(CHANT), 5000, delay_s=0.001)]]) as server:
        with pytest.raises(Stopped, match="loop_detected"):
            await run(server, guard, Agent(name="one"), responses=True)
        await server.wait_closed_async(0)
        assert server.requests[0].events_sent < 500
    assert guard.outcome.closed


@pytest.mark.asyncio
async def test_a_tool_loop_in_the_responses_api_is_seen_with_its_results():
    guard = monitor.Guard()
    scripts = [response_events_of("", [("look", {"q": "a"})])]
    with LocalOpenAI(scripts) as server, pytest.raises(Stopped, match="gave the same result") as raised:
        await run(server, guard, Agent(name="one", tools=[look]), responses=True)
    assert raised.value.run_data is not None
    assert len(raised.value.run_data.raw_responses) == 4
    assert guard.outcome.turns == 5


@pytest.mark.asyncio
async def test_the_guard_goes_on_after_a_handoff():
    guard = monitor.Guard(stop_when=monitor.MaxTurns(2))
    second = Agent(name="second", tools=[look])
    first = Agent(name="first", handoffs=[second])
    hand_over = [call("transfer_to_second", {}, id="call_0"), finish("tool_calls")]
    scripts = [hand_over, *[[call("look", {"q": "a"}, id=f"call_{n}"), finish("tool_calls")] for n in (1, 2)]]
    with LocalOpenAI(scripts) as server:
        with pytest.raises(Stopped, match="max_turns"):
            await run(server, guard, first)
        assert len(server.requests) == 2
    assert guard.outcome.turns == 2


@pytest.mark.asyncio
async def test_a_call_that_the_sdk_repeats_is_one_turn_and_ends_well():
    guard = monitor.Guard(stop_when=monitor.MaxTurns(2))
    busy = Reply(503, b'{"error": {"message": "busy"}}')
    retry = ModelRetrySettings(max_retries=2, policy=retry_policies.http_status([503]), backoff={"initial_delay": 0.0})
    agent = Agent(name="one", model_settings=ModelSettings(retry=retry))
    with LocalOpenAI([[busy], [text("It is "), text("done."), finish()]]) as server:
        result = await run(server, guard, agent)
        assert len(server.requests) == 2
    assert result.final_output == "It is done."
    assert guard.outcome.ok
    assert guard.outcome.turns == 1


@pytest.mark.asyncio
async def test_a_guarded_provider_watches_the_agents_of_all_its_models():
    def script(request: Any) -> list[Any]:
        if request.body["model"] == "one":
            return [call("transfer_to_second", {}, id="c1"), finish("tool_calls")]
        return [Repeat(text(CHANT), 5000, delay_s=0.001)]

    second = Agent(name="second", model="two")
    first = Agent(name="first", model="one", handoffs=[second])
    with LocalOpenAI(script) as server:
        async with client_of(server.base_url) as client, monitor.Guard() as guard:
            provider = GuardedProvider(guard, OpenAIProvider(openai_client=client, use_responses=False))
            assert isinstance(provider, OpenAIProvider)
            config = RunConfig(model_provider=provider, tracing_disabled=True)
            with pytest.raises(Stopped, match="loop_detected"):
                await Runner.run(first, "go", run_config=config)
        assert [request.body["model"] for request in server.requests] == ["one", "two"]
    assert guard.outcome.turns == 2

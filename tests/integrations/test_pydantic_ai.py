"""Pydantic AI: what its own providers and ways of streaming need."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="the framework is not installed: pydantic_ai")

import anthropic
from google import genai
from pydantic_ai import Agent, capture_run_messages
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider

import monitor
from monitor.errors import TerminateReason
from monitor.integrations.pydantic_ai import GuardedModel, PydanticAIAdapter, Stopped
from monitor.testing import LocalAnthropic, LocalGemini, anthropic_steps, gemini_steps
from monitor.testing.local_server import LocalServer
from tests.adapters.google.sdk import sdk_warnings

CHANT = "Let me check the file again. "


async def stopped_by(model: Model, server: LocalServer) -> monitor.Outcome:
    async with monitor.Guard() as guard:
        with pytest.raises(Stopped):
            await Agent(model).run("go", model=GuardedModel(model, guard))
    await server.wait_closed_async(0)
    assert server.requests[0].events_sent < 100
    assert guard.outcome.reason is TerminateReason.LOOP_DETECTED
    return guard.outcome


@sdk_warnings
@pytest.mark.asyncio
async def test_the_connection_of_gemini_is_closed_at_once():
    """Closing the stream of google-genai leaves its connection open, until a garbage collection."""
    script = [gemini_steps.Repeat(gemini_steps.text(CHANT), 5000, delay_s=0.001)]
    with LocalGemini([script]) as server:
        client = genai.Client(api_key="none", http_options=genai.types.HttpOptions(base_url=server.base_url))
        async with client.aio:
            assert (await stopped_by(GoogleModel("local", provider=GoogleProvider(client=client)), server)).closed


@pytest.mark.asyncio
async def test_the_input_that_anthropic_has_reported_is_kept_after_a_cut():
    begin = anthropic_steps.events_of("x")[:2]
    script: list[Any] = [*begin, anthropic_steps.Repeat(anthropic_steps.text(CHANT), 5000, delay_s=0.001)]
    with LocalAnthropic([script]) as server:
        async with anthropic.AsyncAnthropic(api_key="none", base_url=server.base_url) as client:
            model = AnthropicModel("local", provider=AnthropicProvider(anthropic_client=client))
            outcome = await stopped_by(model, server)
    assert outcome.usage.input_tokens == 7
    assert outcome.usage.output_tokens > 10
    assert outcome.usage_estimated


@pytest.mark.asyncio
async def test_thinking_is_watched_too():
    async def think(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[dict[int, DeltaThinkingPart]]:
        for _ in range(1000):
            yield {0: DeltaThinkingPart(content=CHANT)}

    model = FunctionModel(stream_function=think)
    async with monitor.Guard() as guard:
        with pytest.raises(Stopped) as raised:
            await Agent(model).run("go", model=GuardedModel(model, guard))
    assert raised.value.stop.evidence is not None
    assert guard.outcome.evidence is not None
    assert getattr(guard.outcome.evidence, "channel", None) == "reasoning"


@pytest.mark.asyncio
async def test_an_error_of_a_tool_is_an_error_for_the_guard():
    model = TestModel(call_tools=["look"])
    agent = Agent(model, retries=20)

    @agent.tool_plain
    def look(q: str) -> str:
        from pydantic_ai import ModelRetry

        raise ModelRetry(f"there is no {q}")

    async with monitor.Guard(stop_when=monitor.MaxConsecutiveErrors(3), detectors=None) as guard:
        with pytest.raises(Stopped, match="consecutive_errors"):
            await agent.run("go", model=GuardedModel(model, guard))
    assert guard.outcome.reason is TerminateReason.CONSECUTIVE_ERRORS


@pytest.mark.asyncio
async def test_a_history_that_is_passed_in_is_not_counted():
    earlier = [
        ModelRequest(parts=[ToolReturnPart(tool_name="look", content="nothing", tool_call_id=f"call_{number}")])
        for number in range(10)
    ]
    model = TestModel(custom_output_text="Done.")
    events = monitor.testing.CapturedEvents()
    async with monitor.Guard(sinks=[events]) as guard:
        result = await Agent(model).run("go", message_history=earlier, model=GuardedModel(model, guard))
    assert result.output == "Done."
    assert guard.outcome.ok
    assert guard.outcome.turns == 1


@pytest.mark.asyncio
async def test_pydantic_ai_keeps_the_messages_before_the_cut():
    model = TestModel(call_tools=["look"])
    agent = Agent(model)

    @agent.tool_plain
    def look() -> str:
        return "nothing"

    with capture_run_messages() as messages:
        async with monitor.Guard(stop_when=monitor.MaxTurns(1)) as guard:
            with pytest.raises(Stopped, match="max_turns"):
                await agent.run("go", model=GuardedModel(model, guard))
    assert len(messages) == 3  # the request, the call, and its result


def test_the_exception_can_be_pickled():
    stop = monitor.Stop("timeout", "it took 3 s", "timeout")
    again: Any = pickle.loads(pickle.dumps(Stopped(stop, None)))
    assert again.stop == stop
    assert str(again) == "timeout: it took 3 s"


def test_an_object_of_another_library_is_refused():
    with pytest.raises(monitor.errors.AdapterError, match="expected an event of a model response, not str"):
        PydanticAIAdapter().decode("hello")


@pytest.mark.feature("US-04")
@pytest.mark.asyncio
async def test_an_agent_that_is_run_again_after_the_end_is_told_the_stop_each_time_and_asks_no_model():
    asked = 0

    async def call(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[dict[int, DeltaToolCall]]:
        nonlocal asked
        asked += 1
        yield {0: DeltaToolCall("look", "{}", tool_call_id=f"c{asked}")}

    limits, detectors = monitor.MaxTurns(2), [monitor.ToolCallRepetition(loop_at=2, suspect_at=None)]
    async with monitor.Guard(stop_when=limits, detectors=None) as guard, monitor.Guard(detectors=detectors) as other:
        for used, asks in ((guard, 2), (other, 4)):
            agent = Agent(GuardedModel(FunctionModel(stream_function=call), used), tools=[look])
            for _ in range(4):
                with pytest.raises(Stopped):
                    await agent.run("go")
                assert asked == asks
    assert guard.outcome.reason is TerminateReason.MAX_TURNS
    assert other.outcome.reason is TerminateReason.LOOP_DETECTED


@pytest.mark.feature("US-04")
@pytest.mark.asyncio
async def test_one_list_of_detectors_in_two_guarded_agents_counts_each_by_itself():
    detectors = [monitor.ToolCallRepetition(loop_at=5, suspect_at=None)]

    async def thrice(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[dict[int, DeltaToolCall] | str]:
        if len(messages) < 6:
            yield {0: DeltaToolCall("look", "{}", tool_call_id=f"c{len(messages)}")}
        else:
            yield "Done."

    async with monitor.Guard(detectors=detectors) as one, monitor.Guard(detectors=detectors) as other:
        for guard in (one, other):
            await Agent(GuardedModel(FunctionModel(stream_function=thrice), guard), tools=[look]).run("go")
    assert one.outcome.ok
    assert other.outcome.ok


def look() -> str:
    """Looks."""
    return "nothing"

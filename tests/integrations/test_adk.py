"""Google ADK: its responses, several agents of one runner, and its other plugins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="`make frameworks` runs this: google-adk needs an older google-genai")

from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.apps import App
from google.adk.models import LlmResponse
from google.adk.plugins import BasePlugin
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool
from google.genai import types

import monitor
from monitor.chunks import ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, TurnFinished, UsageReport
from monitor.errors import AdapterError, FinishReason
from monitor.integrations.adk import ADKAdapter, GuardPlugin, Stopped
from monitor.testing import LocalGemini, gemini_steps
from tests.integrations.drivers import ADK
from tests.integrations.programs.adk import GO, Local, client_of
from tests.integrations.wires import GEMINI

pytestmark = [pytest.mark.filterwarnings(f"ignore{one}") for one in ADK.warnings]
USAGE = types.GenerateContentResponseUsageMetadata(prompt_token_count=7, candidates_token_count=3, total_token_count=10)


def look(q: str) -> str:
    """Finds nothing."""
    return f"nothing about {q} was found in the archive"


def fail(q: str) -> dict[str, str]:
    """Fails."""
    return {"error": f"there is no {q}"}


def said(*parts: types.Part, partial: bool | None = None, **fields: Any) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=list(parts)), partial=partial, **fields)


def read(*responses: Any) -> list[Any]:
    adapter = ADKAdapter(0)
    chunks = [one for response in responses for one in adapter.decode(response)] + list(adapter.finish())
    return [ToolCall(one.id, one.name, one.arguments) if isinstance(one, ToolCall) else one for one in chunks]


def test_what_pieces_have_given_is_not_read_again_from_the_whole_response():
    text, thought = types.Part(text="Yes."), types.Part(text="Hm.", thought=True)
    call = types.Part(function_call=types.FunctionCall(name="look", args={"q": 1}, id="a"))
    assert read(
        said(thought, partial=True),
        said(text, partial=True),
        said(call, partial=True),
        said(thought, text, call, partial=False, finish_reason="STOP", usage_metadata=USAGE),
    ) == [
        ReasoningDelta("Hm."),
        TextDelta("Yes."),
        ToolCall("a", "look", {"q": 1}),
        UsageReport(input_tokens=7, output_tokens=3, total_tokens=10),
        TurnFinished(FinishReason.DONE, "STOP"),
    ]


def test_a_piece_is_plain_text_only_if_it_says_nothing_else():
    adapter = ADKAdapter()
    first, words = said(types.Part(text="It is "), partial=True), types.Part(text="done.")
    assert adapter.plain_text(first) is None  # no piece has shown the form of the stream
    adapter.decode(first)
    assert adapter.plain_text(said(words, partial=True)) == "done."
    others = (
        said(words),
        said(words, words, partial=True),
        said(types.Part(text="Hm.", thought=True), partial=True),
        said(types.Part(text="So.", thought_signature=b"x"), partial=True),
        said(types.Part(function_call=types.FunctionCall(name="look")), partial=True),
        said(words, partial=True, usage_metadata=USAGE),
        said(words, partial=True, finish_reason=types.FinishReason.STOP),
        said(words, partial=True, error_code="SAFETY"),
        LlmResponse(partial=True),
        object(),
    )
    assert [adapter.plain_text(one) for one in others] == [None] * len(others)
    assert adapter.decode(said(types.Part(text="It is done."))) == ()  # the whole response repeats the pieces


def test_calls_that_come_only_in_the_whole_response_are_read_from_it():
    call = types.Part(function_call=types.FunctionCall(name="look", args={}))
    chunks = read(said(types.Part(text="Yes."), partial=True), said(types.Part(text="Yes.")), said(call))
    assert chunks == [TextDelta("Yes."), ToolCall("call_0_0", "look", {})]


def test_a_response_without_pieces_is_read_whole():
    assert read(said(types.Part(text="Yes."))) == [TextDelta("Yes.")]


def test_streamed_arguments_are_pieces_of_a_call():
    def piece(name: str | None, words: str) -> LlmResponse:
        part = types.PartialArg(json_path="$.q", string_value=words, will_continue=True)
        function = types.FunctionCall(name=name, partial_args=[part], will_continue=True)
        return said(types.Part(function_call=function), partial=True)

    chunks = read(piece("look", "a"), piece(None, "b"))
    assert [one.arguments_text for one in chunks if isinstance(one, ToolCallDelta)] == ['{"q":"a', "b"]


def test_a_refused_prompt_is_blocked():
    assert read(LlmResponse(error_code="PROHIBITED_CONTENT")) == [
        TurnFinished(FinishReason.BLOCKED, "PROHIBITED_CONTENT")
    ]


def test_an_object_of_another_library_is_refused():
    with pytest.raises(AdapterError, match="expected an LlmResponse of ADK, not str"):
        ADKAdapter().decode("hello")


@asynccontextmanager
async def model_of(server: LocalGemini) -> AsyncIterator[Local]:
    client = client_of(server.base_url)
    async with client.aio:
        model = Local(model="gemini-2.5-flash")
        model._client = client
        yield model


async def run(agent: Any, guard: monitor.Guard, *plugins: BasePlugin) -> list[Any]:
    runner = InMemoryRunner(app=App(name="app", root_agent=agent, plugins=[GuardPlugin(guard), *plugins]))
    session = await runner.session_service.create_session(app_name="app", user_id="user")
    try:
        return [one async for one in runner.run_async(user_id="user", session_id=session.id, new_message=GO)]
    finally:
        await runner.close()


@pytest.mark.filterwarnings("ignore:SequentialAgent is deprecated:DeprecationWarning")
@pytest.mark.asyncio
async def test_one_plugin_guards_all_agents_of_a_workflow_and_leaves_them_as_they_are():
    with LocalGemini([GEMINI.says("One."), *GEMINI.looks(20)]) as server:
        async with model_of(server) as model:
            first = LlmAgent(name="first", model=model)
            second = LlmAgent(name="second", model=model, tools=[FunctionTool(look)])
            async with monitor.Guard(stop_when=monitor.MaxTurns(3)) as guard:
                with pytest.raises(Stopped, match="max_turns"):
                    await run(SequentialAgent(name="both", sub_agents=[first, second]), guard)
        assert len(server.requests) == 3
    assert first.model is model
    assert second.model is model


@pytest.mark.asyncio
async def test_the_guard_goes_on_after_a_transfer_and_has_its_result():
    hand_over = [gemini_steps.call("transfer_to_agent", {"agent_name": "second"}), gemini_steps.finish()]
    with LocalGemini([hand_over, GEMINI.says("It is done.")]) as server:
        async with model_of(server) as model:
            second = LlmAgent(name="second", model=model, description="Knows it.")
            first = LlmAgent(name="first", model=model, sub_agents=[second])
            async with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
                await run(first, guard)
    assert guard.outcome.ok
    assert guard.outcome.turns == 2
    assert [one for one in guard.coverage() if not one.guarded] == []


@pytest.mark.asyncio
async def test_a_result_with_an_error_is_an_error_for_the_guard():
    calls = [gemini_steps.call("fail", {"q": "a"}), gemini_steps.finish()]
    with LocalGemini([calls] * 9) as server:
        async with model_of(server) as model:
            agent = LlmAgent(name="one", model=model, tools=[FunctionTool(fail)])
            async with monitor.Guard(stop_when=monitor.MaxConsecutiveErrors(3), detectors=None) as guard:
                with pytest.raises(Stopped, match="consecutive_errors"):
                    await run(agent, guard)


@pytest.mark.asyncio
async def test_two_equal_calls_in_one_response_have_two_results():
    both = [gemini_steps.call("look", {"q": "a"}), gemini_steps.call("look", {"q": "b"}), gemini_steps.finish()]
    with LocalGemini([both, GEMINI.says("It is done.")]) as server:
        async with model_of(server) as model:
            agent = LlmAgent(name="one", model=model, tools=[FunctionTool(look)])
            async with monitor.Guard() as guard:
                await run(agent, guard)
    (results,) = [one for one in guard.coverage() if one.what == "results"]
    assert results.detail == "2 of 2 calls have their result"


class Answers(BasePlugin):
    """Another plugin, which answers in the place of the model."""

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> LlmResponse:
        return said(types.Part(text="From a cache."))


@pytest.mark.asyncio
async def test_an_answer_of_another_plugin_is_no_turn():
    with LocalGemini([GEMINI.says("From the model.")]) as server:
        async with model_of(server) as model:
            agent = LlmAgent(name="one", model=model)
            async with monitor.Guard() as guard:
                events = await run(agent, guard, Answers(name="answers"))
        assert server.requests == []
    assert events[-1].content.parts[0].text == "From a cache."
    assert guard.outcome.turns == 0

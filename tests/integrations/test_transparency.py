"""A good program does the same with the guard as without it: what the user's model has, does and
reports.
"""

from __future__ import annotations

from typing import Any

import pytest

import monitor
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import finish, text
from tests.integrations.programs.openai_client import client_of

ANSWER = [text("It is "), text("done."), finish()]


class TestLangChain:
    """A chat model that is guarded is still the user's model."""

    @pytest.fixture(autouse=True)
    def packages(self) -> None:
        pytest.importorskip("langchain_openai", reason="the framework is not installed: langchain_openai")

    @staticmethod
    def model(client: Any, **options: Any) -> Any:
        from langchain_openai import ChatOpenAI
        from pydantic import SecretStr

        completions = client.chat.completions
        return ChatOpenAI(model="local", async_client=completions, api_key=SecretStr("x"), max_retries=0, **options)

    @pytest.mark.asyncio
    async def test_its_class_its_name_and_its_fields_stay(self):
        from langchain_openai import ChatOpenAI

        from monitor.integrations.langchain import GuardedChatModel

        with LocalOpenAI([ANSWER]) as server:
            async with client_of(server.base_url) as client, monitor.Guard() as guard:
                bare = self.model(client, temperature=0.7)
                model = GuardedChatModel(bare, guard)
                assert isinstance(model, ChatOpenAI)
                assert type(model).__name__ == "ChatOpenAI"
                assert (model.model_name, model.temperature) == ("local", 0.7)
                events = [event["name"] async for event in model.astream_events("go", version="v2")]
                assert set(events) == {"ChatOpenAI"}
                assert type(bare) is ChatOpenAI

    @pytest.mark.asyncio
    async def test_callbacks_limiter_and_cache_are_asked_as_without_the_guard(self):
        from langchain_core.caches import InMemoryCache
        from langchain_core.callbacks import AsyncCallbackHandler
        from langchain_core.rate_limiters import InMemoryRateLimiter

        from monitor.integrations.langchain import GuardedChatModel

        class Heard(AsyncCallbackHandler):
            def __init__(self) -> None:
                self.words: list[str] = []

            async def on_chat_model_start(self, *_: Any, **__: Any) -> None:
                self.words.append("start")

            async def on_llm_new_token(self, *_: Any, **__: Any) -> None:
                self.words.append("token")

            async def on_llm_end(self, *_: Any, **__: Any) -> None:
                self.words.append("end")

        class Limiter(InMemoryRateLimiter):
            async def aacquire(self, *, blocking: bool = True) -> bool:
                limited.append(blocking)
                return True

        limited: list[bool] = []
        seen: list[Any] = []
        with LocalOpenAI([ANSWER]) as server:
            async with client_of(server.base_url) as client, monitor.Guard() as guard:
                for guarded in (False, True):
                    heard = Heard()
                    limited.clear()
                    limiter, cache = Limiter(requests_per_second=1000), InMemoryCache()
                    model = self.model(client, callbacks=[heard], rate_limiter=limiter, cache=cache)
                    model = GuardedChatModel(model, guard) if guarded else model
                    before = len(server.requests)
                    first, again = await model.ainvoke("go"), await model.ainvoke("go")
                    totals = [one.usage_metadata["total_tokens"] for one in (first, again)]
                    seen.append((heard.words, len(limited), len(server.requests) - before, first.text, totals))
            assert seen[0] == seen[1]
            assert server.requests[-1].body["stream_options"] == {"include_usage": True}
        assert guard.outcome.turns == 1  # what the cache answers is no model call

    @pytest.mark.asyncio
    async def test_what_is_set_after_guarding_takes_effect(self):
        from monitor.integrations.langchain import GuardedChatModel

        with LocalOpenAI([ANSWER]) as server:
            async with client_of(server.base_url) as client, monitor.Guard() as guard:
                model = GuardedChatModel(self.model(client, temperature=0.7), guard)
                await model.model_copy(update={"temperature": 0.1}).ainvoke("go")
                await model.bind(stop=["x"]).ainvoke("go")
            assert server.requests[0].body["temperature"] == 0.1
            assert server.requests[1].body["stop"] == ["x"]
        assert guard.outcome.turns == 2

    @pytest.mark.asyncio
    async def test_a_model_that_cannot_stream_is_watched_as_a_whole(self):
        from langchain_core.language_models import FakeMessagesListChatModel
        from langchain_core.messages import AIMessage

        from monitor.integrations.langchain import GuardedChatModel

        call: Any = {"name": "look", "args": {"q": "a"}, "id": "c1"}
        fake = FakeMessagesListChatModel(responses=[AIMessage("", tool_calls=[call]), AIMessage("done")])
        async with monitor.Guard() as guard:
            model = GuardedChatModel(fake, guard)
            first, second = await model.ainvoke("go"), await model.ainvoke("go on")
        assert first.tool_calls[0]["args"] == {"q": "a"}
        assert second.text == "done"
        assert guard.outcome.turns == 2

    @pytest.mark.asyncio
    @pytest.mark.parametrize("order", ["retry outside", "retry inside", "fallback outside"])
    async def test_retries_and_fallbacks_do_not_hide_the_stop(self, order: str):
        from langchain.agents import create_agent
        from langchain.agents.middleware import ModelFallbackMiddleware, ModelRetryMiddleware

        from monitor.integrations.langchain import GuardMiddleware, Stopped

        with LocalOpenAI([[text("Let me check the file again. ")] * 500]) as server:
            async with client_of(server.base_url) as client, monitor.Guard() as guard:
                ours: Any = GuardMiddleware(guard, exit_behavior="error")
                retry, other = ModelRetryMiddleware(max_retries=2, initial_delay=0), self.model(client)
                middleware = {
                    "retry outside": [retry, ours],
                    "retry inside": [ours, retry],
                    "fallback outside": [ModelFallbackMiddleware(other), ours],
                }[order]
                agent: Any = create_agent(self.model(client), [], middleware=middleware)
                with pytest.raises(Stopped, match="loop_detected"):
                    await agent.ainvoke({"messages": [("user", "go")]})
            assert len(server.requests) == 1


@pytest.mark.asyncio
async def test_a_function_model_without_a_stream_answers_as_without_the_guard():
    pytest.importorskip("pydantic_ai", reason="the framework is not installed: pydantic_ai")
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from monitor.integrations.pydantic_ai import GuardedModel

    def answers(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("look", {"q": "a"}, tool_call_id="c1")])
        return ModelResponse(parts=[TextPart("done")])

    agent = Agent(FunctionModel(answers))

    @agent.tool_plain
    def look(q: str) -> str:
        return f"nothing about {q}"

    bare = await agent.run("go")
    async with monitor.Guard() as guard:
        guarded = await agent.run("go", model=GuardedModel(FunctionModel(answers), guard))
    assert guarded.output == bare.output == "done"
    assert guarded.usage == bare.usage
    assert guard.outcome.turns == 2
    assert {one.what: one.guarded for one in guard.coverage()}["results"]


@pytest.mark.asyncio
async def test_a_whole_run_of_the_agents_sdk_asks_for_its_usage_and_has_no_made_up_id():
    pytest.importorskip("agents", reason="the framework is not installed: agents")
    from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner

    from monitor.integrations.openai_agents import GuardedModel

    seen: list[Any] = []
    with LocalOpenAI([ANSWER]) as server:
        async with client_of(server.base_url) as client, monitor.Guard() as guard:
            for guarded in (False, True):
                model: Any = OpenAIChatCompletionsModel("local", client)
                model = GuardedModel(model, guard) if guarded else model
                config = RunConfig(model=model, tracing_disabled=True)
                result = await Runner.run(Agent(name="one"), "go", run_config=config)
                usage = result.context_wrapper.usage
                counts = (usage.requests, usage.input_tokens, usage.output_tokens, usage.total_tokens)
                seen.append((result.final_output, counts, result.raw_responses[0].response_id))
        assert server.requests[-1].body["stream_options"] == {"include_usage": True}
    assert seen[0] == seen[1]


@pytest.mark.asyncio
async def test_an_error_of_the_service_keeps_its_cause_and_its_context():
    pytest.importorskip("pydantic_ai", reason="the framework is not installed: pydantic_ai")
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from monitor.integrations.pydantic_ai import GuardedModel
    from monitor.testing.openai_steps import Reply

    seen: list[Any] = []
    with LocalOpenAI([[Reply(401, b'{"error": {"message": "no such key"}}')]]) as server:
        async with client_of(server.base_url) as client, monitor.Guard() as guard:
            bare = OpenAIChatModel("local", provider=OpenAIProvider(openai_client=client))
            for model in (bare, GuardedModel(bare, guard)):
                with pytest.raises(Exception, match="no such key") as raised:
                    await Agent(model).run("go")
                error = raised.value
                seen.append((type(error), type(error.__cause__), type(error.__context__)))
    assert seen[0] == seen[1]

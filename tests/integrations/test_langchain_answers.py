"""Whole answers of the models of `langchain_openai`: equal with the guard and without it, over each
API and in each form that a user may ask for.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

pytest.importorskip("langchain_openai", reason="the framework is not installed: langchain_openai")

from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from pydantic import BaseModel, SecretStr

import monitor
from monitor.integrations.langchain import GuardedChatModel, Stopped
from monitor.testing import LocalOpenAI
from monitor.testing import openai_steps as steps
from tests.integrations.transparent.scenes import raised, seen


class Report(BaseModel):
    """A declared output."""

    summary: str
    risk: float


def look(q: str) -> str:
    """Looks."""
    return q


GIVEN = {"summary": "fine", "risk": 0.5}


def script(request: Any) -> list[Any]:
    body = request.body
    tools = body.get("tools") or []
    if "messages" in body:
        if tools:
            name = tools[0]["function"]["name"]
            return [steps.call(name, {"q": "a"} if name == "look" else GIVEN, id="c1"), steps.finish("tool_calls")]
        words = json.dumps(GIVEN) if body.get("response_format") else "It is done."
        return [steps.text(words[:5]), steps.text(words[5:]), steps.finish()]
    asked = (body.get("text") or {}).get("format") or {"type": "text"}
    words = "It is done." if asked["type"] == "text" else json.dumps(GIVEN)
    calls = [(one["name"], {"q": "a"} if one["name"] == "look" else GIVEN) for one in tools[:1]]
    events = steps.response_events_of("" if calls else words, calls, cut=5, reasoning="Hm.")
    events[-1]["response"] |= {"output": steps.merged_response(events)["output"], "text": {"format": asked}}
    return events


TIMEOUTS = itertools.count(60)


def common() -> dict[str, Any]:
    """The options of all models. LangChain keeps a client for each address and timeout, also a
    closed one.
    """
    return {"model": "local", "api_key": SecretStr("none"), "max_retries": 0, "timeout": next(TIMEOUTS)}


def azure(url: str, **options: Any) -> Any:
    options["azure_endpoint"] = url.removesuffix("/v1")
    return AzureChatOpenAI(azure_deployment="local", api_version="2025-04-01-preview", **common(), **options)


MODELS: dict[str, Callable[[str], Any]] = {
    "chat": lambda url: ChatOpenAI(base_url=url, **common()),
    "chat without usage in streams": lambda url: ChatOpenAI(base_url=url, stream_usage=False, **common()),
    "chat with headers": lambda url: ChatOpenAI(base_url=url, include_response_headers=True, **common()),
    "responses": lambda url: ChatOpenAI(base_url=url, use_responses_api=True, **common()),
    "responses v0": lambda url: ChatOpenAI(base_url=url, use_responses_api=True, output_version="v0", **common()),
    "responses v1": lambda url: ChatOpenAI(base_url=url, use_responses_api=True, output_version="v1", **common()),
    "azure": azure,
    "azure responses": lambda url: azure(url, use_responses_api=True),
    "fake": lambda _: FakeListChatModel(responses=[json.dumps(GIVEN)]),
}
WAYS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda model: model.ainvoke("go"),
    "tools": lambda model: model.bind_tools([look]).ainvoke("go"),
    "json schema": lambda model: model.with_structured_output(Report, include_raw=True).ainvoke("go"),
    "function": lambda model: model.with_structured_output(Report, method="function_calling", include_raw=True).ainvoke(
        "go"
    ),
    "json": lambda model: model.with_structured_output(Report, method="json_mode", include_raw=True).ainvoke("JSON"),
    "batch": lambda model: model.abatch(["go", "go"]),
}


@contextlib.asynccontextmanager
async def model_at(url: str, kind: str) -> AsyncIterator[Any]:
    """A model, whose clients are closed at the end."""
    model = MODELS[kind](url)
    yield model
    if kind != "fake":
        await model.root_async_client.close()
        model.root_client.close()


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items() if name not in {"id", "headers"}}
    return plain(value.model_dump()) if hasattr(value, "model_dump") else value


@pytest.mark.asyncio
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.filterwarnings("ignore::UserWarning")
async def test_a_whole_answer_is_the_same_with_the_guard(kind: str, way: str):
    async def answer(of: Any) -> Any:
        return seen(plain(await WAYS[way](of)))

    with LocalOpenAI(script) as server:
        async with model_at(server.base_url, kind) as model, monitor.Guard() as guard:
            bare = await raised(answer(model))
            assert await raised(answer(GuardedChatModel(model, guard))) == bare
    if kind != "fake":
        assert guard.outcome.usage.total_tokens == 10 * guard.outcome.turns
        assert not guard.outcome.usage_estimated


def chants(request: Any) -> list[Any]:
    whole = "messages" in request.body
    piece = steps.text if whole else steps.response_text
    begin = [] if whole else [steps.response_created(), *steps.response_message()]
    return [*begin, steps.Repeat(piece("Let me check the file again. "), 5000, delay_s=0.001)]


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", [one for one in MODELS if one != "fake"])
async def test_a_loop_in_a_whole_answer_is_cut_while_it_is_written(kind: str):
    with LocalOpenAI(chants) as server:
        async with model_at(server.base_url, kind) as model, monitor.Guard() as guard:
            with pytest.raises(Stopped):
                await GuardedChatModel(model, guard).ainvoke("go")
            await server.wait_closed_async(0)
        assert server.requests[0].events_sent < 500
    assert guard.outcome.reason is monitor.TerminateReason.LOOP_DETECTED


@pytest.mark.asyncio
async def test_a_failed_call_is_the_sdks_own_exception():
    with LocalOpenAI([[steps.Reply(401, b'{"error": {"message": "no such key"}}')]]) as server:
        async with model_at(server.base_url, "responses") as model, monitor.Guard() as guard:
            bare = await raised(model.ainvoke("go"))
            assert await raised(GuardedChatModel(model, guard).ainvoke("go")) == bare
    assert "no such key" in str(bare)


class Swallows(FakeListChatModel):
    """A model that swallows a cancellation, as `asyncio.wait_for` may on Python 3.11."""

    async def _astream(self, *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
        for word in ("one", "two", "three"):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(30 if word == "two" else 0)
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))


@pytest.mark.asyncio
async def test_a_cancellation_that_the_model_swallows_is_not_lost():
    began, heard = asyncio.Event(), list[str]()

    async def read() -> None:
        async with monitor.Guard() as guard:
            async for piece in GuardedChatModel(Swallows(responses=[]), guard).astream("go"):
                heard.append(piece.text)
                began.set()

    run = asyncio.create_task(read())
    await began.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert heard == ["one"]

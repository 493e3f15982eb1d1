"""smolagents. It is synchronous, so each run has a thread."""

from __future__ import annotations

import asyncio
from typing import Any

from smolagents.models import ChatMessageStreamDelta

import monitor
from monitor.integrations.smolagents import GuardedModel
from tests.integrations.programs.smolagents import Look, agent_of, model_of
from tests.integrations.transparent.scenes import Scene, behind, raised, seen


def looked(q: str) -> str:
    return f"nothing about {q}"


def failing(q: str) -> str:
    raise ValueError(f"no archive has {q}")


def _run(url: str, guard: Any, tools: Any = (), *, stream: bool = False) -> Any:
    model = model_of(url)
    try:
        agent = agent_of(behind(guard, GuardedModel, model), [*tools], stream_outputs=stream)
        result = agent.run("go", return_full_result=True)
        return seen(
            result.output, result.state, result.token_usage.dict(), _told([step.dict() for step in agent.memory.steps])
        )
    finally:
        model.client.close()


def _told(value: Any) -> Any:
    """A step without its times, and without the raw answer: a stream has none."""
    if isinstance(value, dict):
        return {name: _told(one) for name, one in value.items() if name not in {"timing", "raw"}}
    return [_told(one) for one in value] if isinstance(value, list) else value


async def plain(url: str, guard: Any) -> Any:
    return await asyncio.to_thread(_run, url, guard)


async def model_alone(url: str, guard: Any) -> Any:
    model = model_of(url)
    asked = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
    try:
        guarded = model if guard is None else GuardedModel(model, guard)
        answer = await asyncio.to_thread(guarded.generate, asked)
        return seen(answer.role, answer.content, answer.tool_calls, answer.token_usage.dict())
    finally:
        model.client.close()


async def streaming(url: str, guard: Any) -> Any:
    return await asyncio.to_thread(_run, url, guard, stream=True)


async def tools(url: str, guard: Any) -> Any:
    return await asyncio.to_thread(_run, url, guard, [Look(looked)])


async def failing_tool(url: str, guard: Any) -> Any:
    return await asyncio.to_thread(_run, url, guard, [Look(failing)])


async def failing_service(url: str, guard: Any) -> Any:
    return await raised(asyncio.to_thread(_run, url, guard))


async def early_break(url: str, guard: Any) -> Any:
    def run() -> Any:
        model = model_of(url)
        try:
            agent = agent_of(behind(guard, GuardedModel, model), [], stream_outputs=True)
            stream = agent.run("go", stream=True)
            for event in stream:
                if isinstance(event, ChatMessageStreamDelta):
                    stream.close()
                    return seen(event.content, [call.function.name for call in event.tool_calls or ()])
            raise AssertionError
        finally:
            model.client.close()

    return await raised(asyncio.to_thread(run))  # the framework does not let its stream be closed


async def kept(url: str, guard: Any) -> Any:
    guarding = None if guard is None else monitor.guard.guarding()
    model = model_of(url)
    guarded = model if guarding is None else GuardedModel(model, guarding)

    def one(number: int) -> Any:
        agent = agent_of(guarded, [])
        if guarding is None:
            return agent.run(f"go {number}")
        with guarding():
            return agent.run(f"go {number}")

    try:
        return await asyncio.gather(*[asyncio.to_thread(one, number) for number in range(4)])
    finally:
        model.client.close()


SCENES: dict[str, Scene] = {
    "plain": plain,
    "model alone": model_alone,
    "streaming": streaming,
    "tools": tools,
    "kept agent, four runs at once": kept,
    "early break": early_break,
    "failing tool": failing_tool,
    "failing service": failing_service,
}

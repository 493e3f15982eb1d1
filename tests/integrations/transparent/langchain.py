"""LangChain and LangGraph."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain.agents import AgentState, create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain.tools import ToolRuntime
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, StateGraph
from langgraph.types import Command
from pydantic import BaseModel, SecretStr

import monitor
from monitor.integrations.langchain import GuardedChatModel, GuardMiddleware
from tests.integrations.programs.openai_client import client_of
from tests.integrations.transparent.scenes import Scene, guards, raised, seen

GO: Any = {"messages": [("user", "go")]}


class Report(BaseModel):
    """A declared output."""

    summary: str
    risk: float


class Heard(AsyncCallbackHandler):
    """Notes which callbacks are called."""

    def __init__(self) -> None:
        self.words: list[Any] = []

    async def on_chat_model_start(self, serialized: Any, messages: Any, **_: Any) -> None:
        self.words.append(("model starts", len(messages[0])))

    async def on_llm_end(self, response: Any, **_: Any) -> None:
        self.words.append(("model ends", response.generations[0][0].text, response.llm_output))

    async def on_tool_start(self, *_: Any, **__: Any) -> None:
        self.words.append("tool starts")

    async def on_tool_end(self, output: Any, **_: Any) -> None:
        self.words.append(("tool ends", output.content))

    async def on_tool_error(self, error: BaseException, **_: Any) -> None:
        self.words.append(("tool fails", str(error)))


@tool
async def look(q: str) -> str:
    """Looks."""
    return f"nothing about {q}"


@tool
async def fail(q: str) -> str:
    """Looks."""
    raise ValueError(f"no archive has {q}")


fail.name = "look"


def model_of(client: Any) -> ChatOpenAI:
    key = SecretStr("none")
    return ChatOpenAI(
        model="local", async_client=client.chat.completions, api_key=key, max_retries=0, stream_usage=True
    )


def agent_of(client: Any, guard: Any, tools: Any = (), **options: Any) -> Any:
    middleware = [GuardMiddleware(one, name=f"guard_{at}") for at, one in enumerate(guards(guard))]
    return create_agent(model_of(client), [*tools], middleware=middleware, **options)


def messages(state: Any) -> Any:
    return seen([one.model_dump(exclude={"id"}) for one in state["messages"]], state.get("structured_response"))


async def plain(url: str, guard: Any, tools: Any = (), **options: Any) -> Any:
    heard = Heard()
    async with client_of(url) as client:
        state = await agent_of(client, guard, tools, **options).ainvoke(GO, config={"callbacks": [heard]})
        return messages(state), heard.words


async def of_a_model(url: str, guard: Any) -> Any:
    """The model alone, as in a graph of one's own."""
    async with client_of(url) as client:
        bare = model_of(client)
        model: Any = bare if guard is None else GuardedChatModel(bare, guard)
        said = await model.ainvoke("go")
        return seen(said.model_dump(exclude={"id"}), isinstance(model, ChatOpenAI), type(model).__name__)


async def streaming(url: str, guard: Any) -> Any:
    parts: list[Any] = []
    heard = Heard()
    async with client_of(url) as client:
        agent = agent_of(client, guard)
        async for mode, part in agent.astream(GO, stream_mode=["messages", "updates"], config={"callbacks": [heard]}):
            said = part[0] if mode == "messages" else None
            parts.append((mode, None if said is None else said.model_dump(exclude={"id"})))
        named = [event["name"] async for event in model_of(client).astream_events("go", version="v2")]
        return seen(parts, heard.words, named)


async def structured(url: str, guard: Any) -> Any:
    return await plain(url, guard, response_format=ToolStrategy(Report))


async def tools(url: str, guard: Any) -> Any:
    return await plain(url, guard, [look])


async def failing_tool(url: str, guard: Any) -> Any:
    return await raised(plain(url, guard, [fail]))


async def failing_service(url: str, guard: Any) -> Any:
    return await raised(plain(url, guard))


async def early_break(url: str, guard: Any) -> Any:
    async with client_of(url) as client:
        stream = agent_of(client, guard).astream(GO, stream_mode="messages")
        async for said, _ in stream:
            await stream.aclose()
            return seen(said.model_dump(exclude={"id"}))
    raise AssertionError


@tool
def transfer_to_second(runtime: ToolRuntime) -> Command[str]:
    """Hands over to the second agent."""
    told = ToolMessage("handed over", tool_call_id=runtime.tool_call_id or "", name="transfer_to_second")
    update = {"messages": [*runtime.state["messages"], told]}
    return Command(goto="second", graph=Command.PARENT, update=update)


async def hand_off(url: str, guard: Any) -> Any:
    async with client_of(url) as client:
        made: Any = StateGraph(AgentState)
        for name, given in (("first", [transfer_to_second]), ("second", [])):
            made.add_node(name, agent_of(client, guard, given, system_prompt=f"AGENT:{name}"))
        made.add_edge(START, "first")
        parts = [part async for part in made.compile().astream(GO, stream_mode="updates", subgraphs=True)]
        return seen([(len(space), sorted(update)) for space, update in parts], messages(parts[-1][1]["second"]))


async def kept(url: str, guard: Any) -> Any:
    guarding = None if guard is None else monitor.guard.guarding()
    async with client_of(url) as client:
        agent = agent_of(client, guarding)

        async def one(number: int) -> Any:
            asked: Any = {"messages": [("user", f"go {number}")]}
            if guarding is None:
                return messages(await agent.ainvoke(asked))
            async with guarding():
                return messages(await agent.ainvoke(asked))

        return await asyncio.gather(*map(one, range(4)))


SCENES: dict[str, Scene] = {
    "plain": plain,
    "model alone": of_a_model,
    "streaming": streaming,
    "structured": structured,
    "tools": tools,
    "hand-off": hand_off,
    "kept agent, four runs at once": kept,
    "early break": early_break,
    "cancellation": plain,
    "failing tool": failing_tool,
    "failing service": failing_service,
}

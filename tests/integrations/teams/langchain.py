"""Programs of LangChain and LangGraph."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from pydantic import SecretStr
from typing_extensions import TypedDict

from monitor.integrations.langchain import GuardedChatModel, GuardMiddleware
from tests.integrations.programs.openai_client import client_of


@tool
async def look(q: str) -> str:
    """Looks."""
    return f"nothing about {q} was found"


async def boss(url: str, guard: Any) -> str:
    """Two agents behind tools of a third."""
    async with client_of(url) as client:
        model, middleware = _model(client), _middleware(guard)
        a, b = (_agent(model, name, [look], middleware) for name in "ab")

        @tool
        async def ask_a(q: str) -> str:
            """Asks a."""
            return _text(await a.ainvoke({"messages": [("user", q)]}))

        @tool
        async def ask_b(q: str) -> str:
            """Asks b."""
            return _text(await b.ainvoke({"messages": [("user", q)]}))

        return _text(await _agent(model, "boss", [ask_a, ask_b], middleware).ainvoke({"messages": [("user", "go")]}))


async def gathered(url: str, guard: Any) -> str:
    """Two runs at once, without an agent above them."""
    async with client_of(url) as client:
        agents = [_agent(_model(client), name, [look], _middleware(guard)) for name in "ab"]
        states = await asyncio.gather(*[agent.ainvoke({"messages": [("user", "go")]}) for agent in agents])
        return ", ".join(map(_text, states))


class State(TypedDict):
    out: Annotated[list[str], operator.add]


async def graph(url: str, guard: Any) -> str:
    """A graph of one's own, whose node runs twice at once."""
    async with client_of(url) as client:
        model: Any = _model(client) if guard is None else GuardedChatModel(_model(client), guard)

        async def work(state: Any) -> dict[str, list[str]]:
            answer = await model.ainvoke([("system", f"AGENT:{state['name']}"), ("user", "go")])
            return {"out": [answer.text]}

        made: Any = StateGraph(State)
        made.add_node("work", work)
        made.add_conditional_edges(START, lambda _: [Send("work", {"name": name}) for name in "ab"], ["work"])
        made.add_edge("work", END)
        return ", ".join((await made.compile().ainvoke({"out": []}))["out"])


async def batch(url: str, guard: Any) -> str:
    """Two questions at once to one model."""
    async with client_of(url) as client:
        model: Any = _model(client) if guard is None else GuardedChatModel(_model(client), guard)
        asked = [[("system", f"AGENT:{name}"), ("user", "go")] for name in "ab"]
        return ", ".join([one.text for one in await model.abatch(asked)])


def _agent(model: Any, name: str, tools: list[Any], middleware: list[Any]) -> Any:
    return create_agent(model, tools, system_prompt=f"AGENT:{name}", name=name, middleware=middleware)


def _middleware(guard: Any) -> list[Any]:
    return [] if guard is None else [GuardMiddleware(guard, exit_behavior="error")]


def _model(client: Any) -> ChatOpenAI:
    completions = client.chat.completions
    return ChatOpenAI(model="local", async_client=completions, api_key=SecretStr("none"), max_retries=0)


def _text(state: Any) -> str:
    return str(state["messages"][-1].text)


PROGRAMS = {"boss": boss, "gathered": gathered, "graph": graph, "batch": batch}

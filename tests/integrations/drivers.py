"""Which frameworks there are, and how a test runs an agent of each: one line for each framework.

The program of a framework is an agent with the tool `look`, which runs under a guard against a
local server.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pytest

from monitor.guard.guard import Guard
from monitor.outcome import StoppedByGuard
from tests.integrations.wires import ANTHROPIC, GEMINI, OPENAI, Wire

Tool: TypeAlias = Callable[[str], str]


@dataclass(frozen=True)
class Ending:
    """What the framework's user gets, read where the framework puts it."""

    text: str
    reason: str | None = None
    """`None`: the framework says that the run has ended well."""
    total_tokens: int | None = None
    """The framework's own count. `None`: it has none."""


Run: TypeAlias = Callable[[str, Guard, Tool], Coroutine[Any, Any, Ending]]
RunSync: TypeAlias = Callable[[str, Guard, Tool], Ending]


@dataclass(frozen=True)
class Driver:
    """A way to run an agent of one framework."""

    program: str
    """`module:function` in `tests.integrations.programs`."""
    packages: tuple[str, ...]
    wire: Wire = OPENAI
    pieces_of_calls: bool = True
    """Whether the framework shows the pieces of a call's arguments."""
    warnings: tuple[str, ...] = ()
    """Warnings of the framework itself, which nobody here can change."""

    def load(self) -> Any:
        for package in self.packages:
            pytest.importorskip(package, reason=f"the framework is not installed: {package}")
        module, _, function = self.program.partition(":")
        return getattr(importlib.import_module(f"tests.integrations.programs.{module}"), function)

    async def __call__(self, base_url: str, guard: Guard, tool: Tool) -> Ending:
        run: Run = self.load()
        return await run(base_url, guard, tool)


def stopped(error: StoppedByGuard) -> Ending:
    """The end of a framework whose own manner is an exception."""
    return Ending(error.turn.text if error.turn is not None else "", error.stop.reason.value)


OPEN = ("::ResourceWarning", "::pytest.PytestUnraisableExceptionWarning")
"""A client that stays open."""
ADK = Driver(
    "adk:run",
    ("google.adk",),
    GEMINI,
    warnings=(
        ":Inheritance class AiohttpClientSession from ClientSession:DeprecationWarning",  # of google-genai
        ":.EXPERIMENTAL. feature:UserWarning",
    ),
)
AGENT_FRAMEWORK = Driver("agent_framework:run", ("agent_framework", "agent_framework.openai"))
LANGCHAIN = ("langchain", "langchain_openai")
AUTOGEN = ("autogen_agentchat", "autogen_ext.models.openai")

DRIVERS = {
    "pydantic-ai": Driver("pydantic_ai:run", ("pydantic_ai",)),
    "openai-agents": Driver("openai_agents:run", ("agents",)),
    "langchain": Driver("langchain:run", LANGCHAIN),
    "autogen": Driver("autogen:run", AUTOGEN, pieces_of_calls=False),
    "adk": ADK,
    "strands": Driver("strands:run", ("strands", "strands.models.openai"), pieces_of_calls=False),
    "agent-framework": AGENT_FRAMEWORK,
}
"""Each framework, as most programs use it."""

OF_SCENES = {
    "crewai": Driver("crewai:run", ("crewai",), warnings=("",)),
}
"""Frameworks whose other tests are their own: `test_crewai.py`."""

WAYS = {
    "pydantic-ai-streamed": Driver("pydantic_ai:streamed", ("pydantic_ai",)),
    "openai-agents-streamed": Driver("openai_agents:streamed", ("agents",)),
    "langchain-streamed": Driver("langchain:streamed", LANGCHAIN),
    "langchain-raising": Driver("langchain:raising", LANGCHAIN),
    "autogen-team": Driver("autogen:team", AUTOGEN, pieces_of_calls=False),
    "autogen-team-streamed": Driver("autogen:team_streamed", AUTOGEN, pieces_of_calls=False),
    "adk-streamed": replace(ADK, program="adk:streamed"),
    "adk-model": replace(ADK, program="adk:model"),
    "agent-framework-streamed": replace(AGENT_FRAMEWORK, program="agent_framework:streamed"),
    "strands-streamed": Driver("strands:streamed", ("strands", "strands.models.openai"), pieces_of_calls=False),
    "strands-raising": Driver("strands:raising", ("strands", "strands.models.anthropic"), ANTHROPIC),
}
"""Other ways to run the same frameworks. The tests of a stream's end run these too."""

SYNC = {
    "pydantic-ai": Driver("pydantic_ai:run_sync", ("pydantic_ai",)),
    "openai-agents": Driver("openai_agents:run_sync", ("agents",)),
    "autogen": Driver("autogen:run_sync", AUTOGEN),
    "adk": replace(ADK, program="adk:run_sync", warnings=(*ADK.warnings, *OPEN)),
    "strands": Driver("strands:run_sync", ("strands", "strands.models.openai")),
}
"""The synchronous entry points. LangChain's is refused, as its own tests say."""
